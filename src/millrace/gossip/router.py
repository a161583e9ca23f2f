"""Gossipsub as MultiversX nodes speak it, on top of py-libp2p's router.

The library keeps mesh, fanout, control messages and streams. The path of a message is our own, for the
library's (0.8.1) checks every signature up to four times, adds a signed peer record and an IDONTWANT to
each message, starts a task for each (which loses their order), counts nothing, and limits, drops or replays
messages silently. docs/gossip.md lists these traps one by one.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial, reduce

import libp2p.pubsub.pubsub as library
import trio
from libp2p.abc import IHost, INetStream
from libp2p.crypto.keys import PublicKey
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID, PROTOCOL_ID_V11, PROTOCOL_ID_V12, GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX

from millrace.gossip.frames import FrameReader
from millrace.gossip.queues import BoundedQueue, Lost, SeenCache
from millrace.gossip.settings import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

PROTOCOLS: tuple[TProtocol, ...] = (PROTOCOL_ID_V12, PROTOCOL_ID_V11, PROTOCOL_ID)
SEQNO_BYTES = 8
_IDONTWANT_ABOVE = 1024
_KNOWN_KEYS = 4096
_ENVELOPE_BYTES = 256
"""Of a frame with one message beside its data: peer id, sequence number, topic, signature, tags."""
_TOPIC_LENGTH = 256
_BREATH = 32
"""Messages of one frame after which other tasks get their turn."""

Deliver = Callable[[str, bytes, str], None]


class Mesh(GossipSub):
    """The library's gossipsub with a node's parameters, and our own `forward`."""

    pubsub: Messages | None

    def __init__(self) -> None:
        super().__init__(
            protocols=PROTOCOLS,
            degree=6,
            degree_low=5,
            degree_high=12,
            time_to_live=60,
            gossip_window=3,
            gossip_history=5,
            heartbeat_interval=1,
            prune_back_off=60,
            do_px=False,
            max_idontwant_messages=1024,
            adaptive_gossip_enabled=False,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
        )
        self.scorer = None

    def forward(self, forwarder: ID, message: rpc_pb2.Message) -> int:
        """Queue `message` for the peers it should go to; the number of peers that it was queued for."""
        assert self.pubsub is not None
        topic = message.topicIDs[0]
        origin = ID(message.from_id)
        message_id = message.from_id + message.seqno
        self.mcache.put(message)
        targets = set(self._get_peers_to_send([topic], forwarder, origin, message_id))
        if forwarder == self.pubsub.my_id:
            self.time_since_last_publish[topic] = int(time.time())
            targets.update(self._substitutes(topic, targets))
        elif len(message.data) > _IDONTWANT_ABOVE:
            self._announce_unwanted(topic, message_id, forwarder)
        rpc = rpc_pb2.RPC(publish=[message])
        return sum(self.pubsub.enqueue(peer, rpc) for peer in targets)

    def _substitutes(self, topic: str, chosen: set[ID]) -> Iterable[ID]:
        """Subscribers to fill up to the degree with, where the mesh is thin (after prunes, say) or takes nothing.

        A node would leave its own message to the mesh alone, even an empty one; ours are transactions.
        """
        assert self.pubsub is not None
        taking = sum(self.pubsub.takes(peer, 0) for peer in chosen)
        if taking >= self.degree or topic not in self.pubsub.peer_topics:
            return ()
        return self._get_in_topic_gossipsub_peers_from_minus(topic, self.degree - taking, chosen)

    def _announce_unwanted(self, topic: str, message_id: bytes, forwarder: ID) -> None:
        """Tell mesh peers not to send us a large message we have just received (gossipsub 1.2)."""
        control = rpc_pb2.ControlMessage(idontwant=[rpc_pb2.ControlIDontWant(messageIDs=[message_id])])
        rpc = rpc_pb2.RPC(control=control)
        for peer in self.mesh.get(topic, ()):
            if peer != forwarder and self.peer_protocol.get(peer) == PROTOCOL_ID_V12:
                self.send_rpc(peer, rpc, priority=True)

    async def emit_control_message(self, control_msg: rpc_pb2.ControlMessage, to_peer: ID) -> None:
        """As the library's, without the signed peer record that each receiver would have to verify."""
        self.send_rpc(to_peer, rpc_pb2.RPC(control=control_msg), priority=True)

    async def handle_ihave(self, ihave_msg: rpc_pb2.ControlIHave, sender_peer_id: ID) -> None:
        """As the library's, for topics we are subscribed to."""
        if ihave_msg.topicID in self.mesh:
            await super().handle_ihave(ihave_msg, sender_peer_id)

    async def handle_prune(self, prune_msg: rpc_pb2.ControlPrune, sender_peer_id: ID) -> None:
        """As the library's, for topics we are subscribed to: it remembers any other for ever."""
        if prune_msg.topicID in self.mesh:
            await super().handle_prune(prune_msg, sender_peer_id)

    async def _do_px(self, px_peers: list[rpc_pb2.PeerInfo]) -> None:
        """Not done (peer exchange is off): the library would dial whom a stranger names."""

    async def send_recent_messages(self, peer_id: ID, topic: str) -> None:
        """Not done: a publish that reported `no peers` must not be sent later behind its caller's back."""


class Messages(Pubsub):
    """The library's pubsub with our own path of a message, in and out."""

    router: Mesh

    def __init__(self, host: IHost, deliver: Deliver, *, max_peer_queue: int, max_peer_queue_bytes: int) -> None:
        super().__init__(host, Mesh(), strict_signing=True, max_inbound_rpc_size=MAX_FRAME_BYTES)
        self.seen_messages.stop()
        self.seen_messages = SeenCache()
        # The sequence continues over restarts: had it started at the second (as the library's does), a
        # peer that published more than once a second would repeat numbers after a restart, and nodes would
        # take its messages for copies.
        self.counter = time.time_ns()
        self.delivered: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.published: Counter[str] = Counter()
        self.invalid = 0
        self.heard: dict[ID, float] = {}
        """When a connected peer sent its last frame, on trio's clock."""
        self._readers: Counter[ID] = Counter()
        """Streams of a remote peer that are read: on these it tells its subscriptions."""
        self._lost = Lost()
        self._written: set[BoundedQueue] = set()
        """Queues with a writer; one outlives its place among the peers until its frame is through or failed."""
        self._deliver = deliver
        self._keys: OrderedDict[bytes, tuple[PublicKey, str]] = OrderedDict()
        # The library makes the queue of a new peer from this name, with room for 32 frames.
        setattr(library, "RpcQueue", partial(BoundedQueue, max_peer_queue, max_peer_queue_bytes))  # noqa: B010

    # ---- out

    def publish_signed(self, topic: str, data: bytes) -> int:
        """Sign `data` and queue it for the peers of `topic`; the number of peers, 0 when there are none.

        The signature covers `libp2p-pubsub:` and the message without signature and key. The key is left
        out, as Go does: a secp256k1 peer id contains it.
        """
        message = rpc_pb2.Message(from_id=self.my_id.to_bytes(), data=data, seqno=self._next_seqno(), topicIDs=[topic])
        assert self.sign_key is not None
        message.signature = self.sign_key.sign(PUBSUB_SIGNING_PREFIX.encode() + message.SerializeToString())
        self.seen_messages.add(message.from_id + message.seqno)
        self.published[topic] += 1
        return self.router.forward(self.my_id, message)

    def enqueue(self, peer: ID, rpc: rpc_pb2.RPC) -> bool:
        """Put `rpc` into the queue of a connected peer; False, and counted, if it is full or the peer has gone."""
        queue = self.peer_queues.get(peer)
        if queue is None:
            self._lost = self._lost.plus(Lost.of(rpc))
            return False
        return queue.push(rpc)

    def takes(self, peer: ID, size: int) -> bool:
        """Whether the queue of a peer has room for a frame of `size` bytes."""
        queue = self.peer_queues.get(peer)
        return isinstance(queue, BoundedQueue) and queue.has_room(size)

    def has_room(self, topic: str, size: int) -> bool:
        """Whether a message of `size` bytes can be queued for some peer of `topic`; also when nobody is subscribed."""
        peers = self.peer_topics.get(topic)
        return not peers or any(self.takes(peer, size + _ENVELOPE_BYTES) for peer in peers)

    @property
    def lost(self) -> Lost:
        """What has not reached the stream of a remote peer, of those connected now and before."""
        return reduce(Lost.plus, (queue.lost for queue in {*self._queues(), *self._written}), self._lost)

    @property
    def unsent(self) -> int:
        """Frames that wait for remote peers."""
        return sum(len(queue) for queue in self._queues())

    def _queues(self) -> list[BoundedQueue]:
        return [queue for queue in self.peer_queues.values() if isinstance(queue, BoundedQueue)]

    async def handle_sending_messages(self, peer_id: ID, stream: INetStream, queue: RpcQueue) -> None:
        """As the library's; what is left when the stream ends is counted as lost.

        The library opens another one while the connection lasts, and would leave this one open.
        """
        assert isinstance(queue, BoundedQueue)
        self._written.add(queue)
        try:
            await super().handle_sending_messages(peer_id, stream, queue)
        finally:
            self._written.remove(queue)
            if self.peer_queues.get(peer_id) is queue:
                del self.peer_queues[peer_id]
            self._lost = self._lost.plus(queue.abandon())
            with suppress(IOException):
                await stream.reset()

    async def flush(self) -> None:
        """Wait until what is queued now has been written to the remote peers."""
        for queue in self._queues():
            await queue.idle.wait()

    def get_hello_packet(self) -> rpc_pb2.RPC:
        """Our subscriptions, without a signed peer record."""
        return rpc_pb2.RPC(
            subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic) for topic in self.topic_ids]
        )

    # ---- in

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """Take the frames of one remote peer one after the other, until its stream ends or is nonsense."""
        peer = stream.muxed_conn.peer_id
        reader = FrameReader(stream, MAX_FRAME_BYTES)
        self._readers[peer] += 1
        try:
            while (body := await reader.next()) is not None:
                self.heard[peer] = trio.current_time()
                rpc = rpc_pb2.RPC.FromString(body)
                rpc.ClearField("senderRecord")
                await self._take(peer, rpc)
                await trio.lowlevel.checkpoint()  # a piece of the stream has a hundred frames
        except IOException:
            pass  # the stream or the connection ended; the network tells the router
        except Exception as error:  # whatever a stranger sends ends his stream, not the process
            self.invalid += 1
            log.info("a remote peer sent nonsense", extra={"remote": str(peer), "reason": repr(error)})
            await stream.reset()
            self._handle_dead_peer(peer)
        finally:
            self._readers[peer] -= 1
            if not self._readers[peer]:
                del self._readers[peer]
                self.heard.pop(peer, None)
                if peer not in self.peers:
                    self._forget_all_subscriptions(peer)

    def _forget_all_subscriptions(self, peer_id: ID) -> None:
        """As the library's, once the stream has ended on which the peer told them: it does not tell them again.

        Our own stream to a peer may fail alone: one that takes nothing for 5 s loses it.
        """
        if peer_id not in self._readers:
            super()._forget_all_subscriptions(peer_id)

    async def _take(self, peer: ID, rpc: rpc_pb2.RPC) -> None:
        for number, message in enumerate(rpc.publish):
            self.receive(peer, message)
            if number % _BREATH == _BREATH - 1:
                await trio.lowlevel.checkpoint()
        if len(rpc.subscriptions) > self.max_subscriptions_per_rpc:
            raise ValueError(f"{len(rpc.subscriptions)} subscriptions in one frame")
        for change in rpc.subscriptions:
            if len(change.topicid) > _TOPIC_LENGTH:
                raise ValueError(f"a topic of {len(change.topicid)} characters")
            self.handle_subscription(peer, change)
        if rpc.HasField("control"):
            await self.router.handle_rpc(rpc, peer)

    def receive(self, forwarder: ID, message: rpc_pb2.Message) -> None:
        """Check, count, deliver and forward one message; one that breaks a rule is counted and dropped."""
        if len(message.topicIDs) != 1 or len(message.seqno) != SEQNO_BYTES:
            self.invalid += 1
            return
        topic = message.topicIDs[0]
        if topic not in self.topic_ids:
            return
        message_id = message.from_id + message.seqno
        if self.seen_messages.has(message_id):
            self.duplicates[topic] += 1
            return
        source = self._verified_source(message)
        if source is None or message.from_id == self.my_id.to_bytes():
            self.invalid += 1
            return
        self.seen_messages.add(message_id)
        self.delivered[topic] += 1
        self._deliver(topic, message.data, source)
        self.router.forward(forwarder, message)

    def _verified_source(self, message: rpc_pb2.Message) -> str | None:
        """The originator's peer id as text, or None when its signature, key or id is wrong."""
        if not message.signature:
            return None
        try:
            key, source = self._key_of(message.from_id)
            if message.key and message.key != key.serialize():
                return None
            signed = rpc_pb2.Message(
                from_id=message.from_id, data=message.data, seqno=message.seqno, topicIDs=message.topicIDs
            )
            payload = PUBSUB_SIGNING_PREFIX.encode() + signed.SerializeToString()
            return source if key.verify(payload, message.signature) else None
        except Exception:
            return None

    def _key_of(self, peer: bytes) -> tuple[PublicKey, str]:
        """Public key and text of a peer id, from a least-recently-used cache. Raises when it has no key."""
        known = self._keys.get(peer)
        if known is not None:
            self._keys.move_to_end(peer)
            return known
        identity = ID(peer)
        key = identity.extract_public_key()
        if key is None or ID.from_pubkey(key) != identity:
            raise ValueError("the peer id does not contain its key")
        if len(self._keys) >= _KNOWN_KEYS:
            self._keys.popitem(last=False)
        known = self._keys[peer] = (key, identity.to_base58())
        return known
