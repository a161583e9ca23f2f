"""Addresses to listen on and to dial, and what a peer does when nobody takes what it publishes."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest
import trio
from libp2p.crypto.secp256k1 import create_new_key_pair
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V12
from trio.testing import MockClock

from millrace.gossip.identity import from_seed
from millrace.gossip.peer import Peer, _free, _target
from millrace.gossip.queues import BoundedQueue
from millrace.gossip.settings import GossipSettings, PeerSettings

PEER = "16Uiu2HAm979nYv6WosJcoTvk72QtFJ5X7xLprMHPHTi7YYMus6D2"


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0", "/ip4/0.0.0.0/tcp/0"])
def test_free_address_is_taken_as_it_is(address: str) -> None:
    """A TCP address where nobody listens is accepted unchanged."""
    assert str(_free(address)) == address


@pytest.mark.parametrize("address", ["", "tcp", "/ip4/127.0.0.1", "/ip4/127.0.0.1/udp/1", "/dns4/host/tcp/1"])
def test_address_to_listen_on_must_be_ip_and_tcp(address: str) -> None:
    """Anything else is refused with the form that is expected."""
    with pytest.raises(ValueError, match=r"is no /ip4/<address>/tcp/<port>"):
        _free(address)


def test_taken_port_is_refused() -> None:
    """A port on which somebody listens is not shared, although both sides would allow it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on /ip4/127.0.0.1/tcp/{port}"):
            _free(f"/ip4/127.0.0.1/tcp/{port}")


def test_target_has_the_peer_id() -> None:
    """An address to dial says where and whom."""
    target = _target(f"/dns4/seed.example/tcp/10000/p2p/{PEER}")
    assert target.peer_id.to_base58() == PEER
    assert [str(address) for address in target.addrs] == ["/dns4/seed.example/tcp/10000"]


@pytest.mark.parametrize("address", ["", "nonsense", "/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/1/p2p/xyz"])
def test_target_without_peer_id_is_refused(address: str) -> None:
    """An address that does not end in a peer id is refused by name."""
    with pytest.raises(ValueError, match=f"^{address} is no multiaddress"):
        _target(address)


# ---- back-pressure


class Company:
    """A peer that is never run, with one remote subscriber whose queue takes one frame."""

    def __init__(self) -> None:
        self.peer = Peer(0, PeerSettings(key_seed="own"), GossipSettings(), lambda *_: None, lambda *_: None)
        remote = ID.from_pubkey(create_new_key_pair(from_seed("remote")).public_key)
        messages = self.peer._messages
        self.queue = messages.peer_queues[remote] = BoundedQueue(1, 1_000_000)
        messages.router.add_peer(remote, PROTOCOL_ID_V12)
        messages.peer_topics["t"] = {remote}

    def run(self, what: Callable[[], Awaitable[None]]) -> None:
        """Run with a clock that jumps over every wait."""
        trio.run(what, clock=MockClock(autojump_threshold=0))


def test_publish_waits_until_a_peer_takes() -> None:
    """While the only peer of the topic is full a publish waits, and goes out as soon as there is room."""
    company = Company()

    async def run() -> None:
        assert await company.peer._publish_once_taken("t", b"first") == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_later)
            assert await company.peer._publish_once_taken("t", b"second") == 1
        assert 0.5 <= trio.current_time() - began < 0.52

    async def take_later() -> None:
        await trio.sleep(0.5)
        await company.queue.pop()

    began = 0.0

    async def timed() -> None:
        nonlocal began
        began = trio.current_time()
        await run()

    company.run(timed)
    stats = company.peer.stats(0)
    assert (stats.stalled, stats.dropped_outbound, stats.published) == (0, 0, 2)


def test_publish_that_nobody_takes_is_zero_and_counted() -> None:
    """After its patience a publish is answered with 0; the next ones at once, until somebody takes again."""
    company = Company()

    async def run() -> None:
        await company.peer._publish_once_taken("t", b"first")
        began = trio.current_time()
        assert await company.peer._publish_once_taken("t", b"second") == 0
        waited = trio.current_time()
        assert 1.0 <= waited - began < 1.02
        assert await company.peer._publish_once_taken("t", b"third") == 0
        assert trio.current_time() == waited
        await company.queue.pop()
        assert await company.peer._publish_once_taken("t", b"fourth") == 1
        assert await company.peer._publish_once_taken("nobody's", b"x") == 0

    company.run(run)
    stats = company.peer.stats(0)
    assert (stats.stalled, stats.dropped_outbound, stats.published) == (2, 0, 3)


# ---- pings


@pytest.mark.parametrize(("heard", "closed"), [(None, True), (-1.0, True), (5.0, False)])
def test_only_silent_connections_are_closed(monkeypatch: pytest.MonkeyPatch, heard: float | None, closed: bool) -> None:
    """A connection whose ping gets no answer is closed unless its peer sent something meanwhile."""
    peer = Peer(0, PeerSettings(key_seed="own"), GossipSettings(), lambda *_: None, lambda *_: None)
    remote = ID.from_pubkey(create_new_key_pair(from_seed("remote")).public_key)

    class Connection:
        is_closed = False
        muxed_conn = SimpleNamespace(peer_id=remote)

        async def close(self) -> None:
            self.is_closed = True

    async def unanswered(connection: Connection, ping_timeout: float) -> SimpleNamespace:
        if heard is not None:
            peer._messages.heard[remote] = trio.current_time() + heard
        await trio.sleep(ping_timeout)
        return SimpleNamespace(success=False)

    monkeypatch.setattr("millrace.gossip.peer.ping_connection", unanswered)
    connection = Connection()
    trio.run(peer._ping, connection, clock=MockClock(autojump_threshold=0))
    assert connection.is_closed == closed
