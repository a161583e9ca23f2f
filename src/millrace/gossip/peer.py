"""One libp2p peer (trio): host, router, the connections it keeps, the pace of its publishes."""

from __future__ import annotations

import logging
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from libp2p.abc import INetConn
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.network.health.ping_probe import ping_connection
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo, info_from_p2p_addr
from libp2p.tools.anyio_service import background_trio_service
from multiaddr.multiaddr import Multiaddr

from millrace.gossip.direct import DirectMessages
from millrace.gossip.host import Comings, new_host
from millrace.gossip.identity import secret_key
from millrace.gossip.router import Messages
from millrace.gossip.settings import GossipSettings, PeerSettings
from millrace.gossip.trim import Connection, surplus
from millrace.gossip.wire import GossipStats, ReadyPeer, TopicStats

if TYPE_CHECKING:
    from millrace.gossip.kad import Discovery

log = logging.getLogger(__name__)

_REDIAL_FIRST = 0.25
_REDIAL_MOST = 30.0
_STEADY_SECONDS = 30.0
_DIAL_TIMEOUT = 10.0
_CLOSE_TIMEOUT = 2.0
_TRIM_SECONDS = 5.0
_LOOK_AGAIN = 0.005
"""Seconds between looks whether a full queue has room again."""
# A large message takes several turns: at 300 a second that is 3 MB/s, where nodes begin to refuse at 4 MiB/s.
_BYTES_PER_TURN = 10_000

Deliver = Callable[[int, str, bytes, str], None]
Published = Callable[[int, int], None]


class Peer:
    """A running peer; `index` is its place in the settings. It lives inside `running()`."""

    def __init__(
        self,
        index: int,
        settings: PeerSettings,
        shared: GossipSettings,
        deliver: Deliver,
        published: Published,
    ) -> None:
        for address in settings.bootstrap:
            _target(address)
        self._settings = settings
        self._rate = shared.publish_rate
        self._burst = shared.publish_burst
        self._ping_interval = shared.ping_interval
        self._patience = shared.publish_patience
        self._published = published
        self._stalled: set[str] = set()
        """Topics no peer of which took anything, last time; one for each topic published on at most."""
        self._stalls = 0
        self._connected_at: dict[ID, float] = {}
        self._connections = 0
        self._trimmed = 0
        self._lost_connection = trio.Event()
        self._nursery: trio.Nursery
        self._kept: set[str] = set()
        secret = secret_key(settings.key_file, settings.key_seed)
        self._host = new_host(create_new_key_pair(secret), settings.announce)
        self._messages = Messages(
            self._host,
            lambda topic, data, source: deliver(index, topic, data, source),
            max_peer_queue=shared.max_peer_queue,
            max_peer_queue_bytes=shared.max_peer_queue_bytes,
        )
        self._direct = DirectMessages(self._host)
        # Bounded by the handle, which keeps at most `max_pending` publishes unanswered.
        self._outbox, self._inbox = trio.open_memory_channel[tuple[int, str, bytes]](float("inf"))

    def describe(self) -> ReadyPeer:
        """Who we are and where we listen; once running."""
        return ReadyPeer(
            self._host.get_id().to_base58(),
            tuple(str(listener.get_addrs()[0]) for listener in self._swarm.listeners.values()),
            tuple(str(address) for address in self._host.get_addrs()),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen, join the topics and keep the bootstrap connections while the block runs."""
        listen = [_free(address) for address in self._settings.listen]
        async with (
            self._host.run(listen_addrs=listen),
            background_trio_service(self._messages),
            background_trio_service(self._messages.router),
            trio.open_nursery() as nursery,
        ):
            if len(self._swarm.listeners) != len(listen):
                raise OSError(f"cannot listen on all of {', '.join(self._settings.listen)}")
            await self._messages.wait_until_ready()
            self._host.get_network().register_notifee(Comings(self._on_connect, self._on_disconnect))
            for topic in self._settings.subscribe:
                await self._messages.subscribe(topic)
            self._nursery = nursery
            for address in self._settings.bootstrap:
                self.keep(address)
            nursery.start_soon(self._publish_at_pace)
            nursery.start_soon(self._ping_all)
            nursery.start_soon(self._trim_for_ever)
            if self._settings.dht:
                nursery.start_soon(self._discovery().run)
            yield
            nursery.cancel_scope.cancel()

    def keep(self, address: str) -> str:
        """Stay connected to this address while running; an empty text, or what is wrong with it."""
        try:
            target = _target(address)
        except ValueError as error:
            return str(error)
        if target.peer_id != self._host.get_id() and address not in self._kept:
            self._kept.add(address)
            self._nursery.start_soon(self._keep_connected, address)
        return ""

    def publish(self, request: int, topic: str, data: bytes) -> None:
        """Queue a message; `published(request, peers)` is called once it has been signed and sent on."""
        self._outbox.send_nowait((request, topic, data))

    async def _publish_at_pace(self) -> None:
        allowance, at = float(self._burst), trio.current_time()
        async for request, topic, data in self._inbox:
            now = trio.current_time()
            allowance = min(self._burst, allowance + (now - at) * self._rate)
            at = now
            if allowance < 1:
                await trio.sleep((1 - allowance) / self._rate)
                allowance, at = 1.0, trio.current_time()
            allowance -= max(1, len(data) / _BYTES_PER_TURN)
            self._published(request, await self._publish_once_taken(topic, data))

    async def _publish_once_taken(self, topic: str, data: bytes) -> int:
        """Publish as soon as some peer of the topic has room; 0 when none has in time."""
        if not self._messages.has_room(topic, len(data)) and topic not in self._stalled:
            with trio.move_on_after(self._patience):
                while not self._messages.has_room(topic, len(data)):
                    await trio.sleep(_LOOK_AGAIN)
        if not self._messages.has_room(topic, len(data)):
            self._stalled.add(topic)
            self._stalls += 1
            return 0
        self._stalled.discard(topic)
        return self._messages.publish_signed(topic, data)

    async def flush(self) -> None:
        """Wait until the remote peers have taken what we queued for them."""
        await self._messages.flush()

    @property
    def unsent(self) -> int:
        """Frames the remote peers have not taken yet."""
        return self._messages.unsent

    # ---- connections

    async def dial(self, address: str) -> str:
        """Connect to a peer once; an empty text, or what went wrong."""
        try:
            target = _target(address)
        except ValueError as error:
            return str(error)
        if target.peer_id == self._host.get_id():
            return f"{address} is this peer itself"
        try:
            with trio.fail_after(_DIAL_TIMEOUT):
                await self._connect(target.peer_id, target.addrs[0])
        except trio.TooSlowError:
            return f"{address} did not answer within {_DIAL_TIMEOUT:.0f} s"
        except Exception as error:
            return f"cannot connect to {address}: {error}"
        return ""

    async def _connect(self, peer: ID, address: Multiaddr) -> None:
        # Not host.connect: it refuses to dial a peer for minutes after a failure, and waits 250 ms for
        # nothing after a success.
        if not self._connected(peer):
            await self._swarm.dial_addr(address, peer)

    async def _keep_connected(self, address: str) -> None:
        """Dial for ever while not connected; the pauses grow until a connection has lasted a while."""
        delay = _REDIAL_FIRST
        target = _target(address).peer_id
        while True:
            began = trio.current_time()
            problem = "" if self._connected(target) else await self.dial(address)
            while self._connected(target):
                await self._lost_connection.wait()
            if trio.current_time() - began >= _STEADY_SECONDS:
                delay = _REDIAL_FIRST
            context = {"address": address, "reason": problem or "connection lost", "retry_in_s": round(delay, 2)}
            log.warning("bootstrap peer not connected", extra=context)
            await trio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, _REDIAL_MOST)

    async def _ping_all(self) -> None:
        """Close connections that do not answer, so that a peer lost without a word is dialled again."""
        while True:
            await trio.sleep(self._ping_interval)
            async with trio.open_nursery() as nursery:
                for connections in list(self._swarm.connections.values()):
                    for connection in connections:
                        nursery.start_soon(self._ping, connection)

    async def _ping(self, connection: INetConn) -> None:
        began = trio.current_time()
        result = await ping_connection(connection, ping_timeout=self._ping_interval / 2)
        peer = connection.muxed_conn.peer_id
        # On a busy machine an answer may wait behind thousands of messages: who sends those is alive.
        heard = self._messages.heard.get(peer, began) > began
        if not result.success and not heard and not connection.is_closed:
            log.warning("a connection does not answer", extra={"remote": str(peer)})
            with trio.move_on_after(_CLOSE_TIMEOUT):
                await connection.close()

    async def _trim_for_ever(self) -> None:
        while True:
            await trio.sleep(_TRIM_SECONDS)
            for peer in self.surplus():
                self._trimmed += 1
                log.info("a connection too many is closed", extra={"remote": str(peer)})
                with trio.move_on_after(_CLOSE_TIMEOUT):
                    await self._host.disconnect(peer)

    def surplus(self) -> list[ID]:
        """The connected peers to let go of, by the quotas of the settings."""
        now = trio.current_time()
        connected = self._host.get_connected_peers()
        self._connected_at = {peer: self._connected_at.get(peer, now) for peer in connected}
        kept = {_target(address).peer_id for address in self._kept}
        ours = set(self._messages.topic_ids)
        useful = {peer for topic in ours for peer in self._messages.peer_topics.get(topic, ())}
        meshed = {peer for peers in self._messages.router.mesh.values() for peer in peers}
        found = surplus(
            self._host.get_id().to_bytes(),
            [
                Connection(
                    peer.to_bytes(), peer in kept, peer in useful or not ours, peer in meshed,
                    now - self._connected_at[peer],
                )
                for peer in connected
            ],
            self._settings.max_connections,
            self._settings.max_unknown,
        )  # fmt: skip
        return [ID(peer) for peer in found]

    def _discovery(self) -> Discovery:
        from millrace.gossip.kad import Discovery  # costs 0.1 s that most peers need not pay

        return Discovery(self._host, self._settings.kad_protocols, self.dial, self._settings.dht_peers)

    def _connected(self, peer: ID) -> bool:
        return any(not connection.is_closed for connection in self._swarm.get_connections(peer))

    def _on_connect(self) -> None:
        self._connections += 1

    def _on_disconnect(self) -> None:
        self._lost_connection.set()
        self._lost_connection = trio.Event()

    @property
    def _swarm(self) -> Swarm:
        network = self._host.get_network()
        assert isinstance(network, Swarm)
        return network

    # ---- counters

    def stats(self, dropped_inbound: int) -> GossipStats:
        messages = self._messages
        mesh = {**messages.router.fanout, **messages.router.mesh}
        names = {*messages.peer_topics, *messages.topic_ids, *messages.delivered, *messages.published}
        topics = {
            name: TopicStats(
                peers=len(messages.peer_topics.get(name, ())),
                mesh=len(mesh.get(name, ())),
                delivered=messages.delivered[name],
                duplicates=messages.duplicates[name],
                published=messages.published[name],
            )
            for name in sorted(names)
        }
        return GossipStats(
            peer_id=self._host.get_id().to_base58(),
            connected_peers=len(self._host.get_connected_peers()),
            connections=self._connections,
            topics=topics,
            delivered=messages.delivered.total(),
            duplicates=messages.duplicates.total(),
            published=messages.published.total(),
            invalid=messages.invalid + self._direct.invalid,
            dropped_inbound=dropped_inbound,
            dropped_outbound=messages.lost.messages,
            dropped_control=messages.lost.controls,
            stalled=self._stalls,
            requests=self._direct.requests,
            trimmed=self._trimmed,
        )


def _target(address: str) -> PeerInfo:
    """Whom an address leads to. Raises ValueError when it does not say."""
    try:
        return info_from_p2p_addr(Multiaddr(address))
    except Exception as error:
        raise ValueError(f"{address} is no multiaddress ending in /p2p/<peer id>: {error}") from error


def _free(address: str) -> Multiaddr:
    """The address to listen on, once sure that nobody does: the library shares ports (SO_REUSEPORT)."""
    try:
        parsed = Multiaddr(address)
        version = "ip4" if address.startswith("/ip4/") else "ip6"
        place = (str(parsed.value_for_protocol(version)), int(str(parsed.value_for_protocol("tcp"))))
    except Exception as error:
        raise ValueError(f"{address} is no /ip4/<address>/tcp/<port> to listen on") from error
    with socket.socket(socket.AF_INET if version == "ip4" else socket.AF_INET6) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except OSError as error:
            raise OSError(f"cannot listen on {address}: {error.strerror}") from error
    return parsed
