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
from functools import partial

import libp2p.pubsub.pubsub as library
import trio
from libp2p.abc import IHost, INetStream
from libp2p.crypto.keys import PublicKey
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.network.stream.exceptions import StreamError
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID, PROTOCOL_ID_V11, PROTOCOL_ID_V12, GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue
from libp2p.pubsub.validators import PUBSUB_SIGNING_PREFIX
from libp2p.tools.timed_cache.last_seen_cache import LastSeenCache

from millrace.gossip.frames import FrameReader
from millrace.gossip.settings import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

PROTOCOLS: tuple[TProtocol, ...] = (PROTOCOL_ID_V12, PROTOCOL_ID_V11, PROTOCOL_ID)
SEEN_SECONDS = 600.0
SEEN_ENTRIES = 262_144
SEQNO_BYTES = 8
_IDONTWANT_ABOVE = 1024
_KNOWN_KEYS = 4096
_TOPIC_LENGTH = 256
_BREATH = 32
"""Messages of one frame after which other tasks get their turn."""

Deliver = Callable[[str, bytes, str], None]


class SeenCache(LastSeenCache):
    """Ids of messages seen in the last ten minutes, kept from the first sight as nodes do.

    Holds at most `SEEN_ENTRIES` ids (at 400 new messages a second: all of them); beyond it the oldest go.
    """

    def __init__(self, seconds: float = SEEN_SECONDS, entries: int = SEEN_ENTRIES) -> None:
        # The base's constructor starts a thread that sweeps; `add` does that here.
        self._seconds = seconds
        self._entries = entries
        self._until: dict[bytes, float] = {}

    def has(self, key: bytes) -> bool:
        until = self._until.get(key)
        return until is not None and until > time.monotonic()

    def add(self, key: bytes) -> bool:
        now = time.monotonic()
        if self.has(key):
            return False
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now and len(self._until) < self._entries:
                break
            del self._until[oldest]
        self._until[key] = now + self._seconds
        return True

    def length(self) -> int:
        return len(self._until)


class BoundedQueue(RpcQueue):
    """Frames waiting for one remote peer, bounded in number and in bytes; a full queue refuses new ones."""

    def __init__(self, max_frames: int, max_bytes: int) -> None:
        super().__init__(max_frames, MAX_FRAME_BYTES)
        self.idle = trio.Event()
        """Set while all that was pushed has been written to the stream."""
        self._max_bytes = max_bytes
        self._bytes = 0

    def push(self, rpc: rpc_pb2.RPC, priority: bool = False) -> bool:
        size = rpc.ByteSize()
        if self._bytes + size > self._max_bytes and len(self) > 0:
            return False
        accepted = super().push(rpc, priority)
        if accepted:
            self._bytes += size
            if self.idle.is_set():
                self.idle = trio.Event()
        return accepted

    async def pop(self) -> rpc_pb2.RPC | None:
        if len(self) == 0:  # the writer is back for more: it has written the last one
            self.idle.set()
        rpc = await super().pop()
        if rpc is not None:
            self._bytes -= rpc.ByteSize()
        return rpc


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
        """Subscribers to fill up to the degree with, where the mesh is thin (after prunes, say).

        A node would leave its own message to the mesh alone, even an empty one; ours are transactions.
        """
        assert self.pubsub is not None
        if len(chosen) >= self.degree or topic not in self.pubsub.peer_topics:
            return ()
        return self._get_in_topic_gossipsub_peers_from_minus(topic, self.degree - len(chosen), chosen)

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
        self.dropped_outbound = 0
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
        """Put `rpc` into the queue of a connected peer; False, and counted, if it is full."""
        queue = self.peer_queues.get(peer)
        if queue is None:
            return False
        accepted = queue.push(rpc)
        if not accepted:
            self.dropped_outbound += 1
        return accepted

    async def flush(self) -> None:
        """Wait until what is queued now has been written to the remote peers."""
        for queue in list(self.peer_queues.values()):
            assert isinstance(queue, BoundedQueue)
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
        try:
            while (body := await reader.next()) is not None:
                rpc = rpc_pb2.RPC.FromString(body)
                rpc.ClearField("senderRecord")
                await self._take(peer, rpc)
        except (StreamError, IOException, RawConnError):
            pass  # the connection ended; the network tells the router
        except Exception as error:  # whatever a stranger sends ends his stream, not the process
            self.invalid += 1
            log.info("a remote peer sent nonsense", extra={"remote": str(peer), "reason": repr(error)})
            await stream.reset()
            self._handle_dead_peer(peer)

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
