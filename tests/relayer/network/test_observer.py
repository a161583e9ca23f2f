"""What our peer says of itself to nodes."""

from __future__ import annotations

import pytest

from millrace.chain import gossip as wire
from millrace.chain.network import profile
from millrace.chain.shard import METACHAIN
from millrace.gossip.wire import GossipStats, TopicStats
from millrace.relayer.network.observer import SHARD_SECONDS, VERSION, Observer, claimed_shard

NETWORK = profile("mainnet")
UNIX = 1_700_000_000
PEER_ID = "16Uiu2HAm979nYv6WosJcoTvk72QtFJ5X7xLprMHPHTi7YYMus6D2"


class Air:
    """Keeps what is published; `takers` peers take each message."""

    def __init__(self) -> None:
        self.takers = 1
        self.sent: list[tuple[str, bytes]] = []
        self.observer = Observer(NETWORK, 1, "a name", self.publish)

    async def publish(self, topic: str, data: bytes) -> int:
        if self.takers:
            self.sent.append((topic, data))
        return self.takers

    async def look(self, now: float, connections: int = 1, *topics: str) -> list[str]:
        """The topics on which something was sent at `now`."""
        self.sent.clear()
        reached = topics or (wire.CONNECTION_TOPIC, "heartbeatV2_1")
        stats = GossipStats(
            peer_id=PEER_ID, connections=connections, topics={topic: TopicStats(peers=1) for topic in reached}
        )
        await self.observer.look(stats, now, UNIX)
        return [topic for topic, _ in self.sent]


async def test_shard_and_heartbeat_in_the_networks_words() -> None:
    """A new connection gets a PeerShard, and a heartbeat every field of which nodes accept."""
    air = Air()
    assert await air.look(0) == ["connection", "heartbeatV2_1"]
    assert wire.unwrap_peer_shard(air.sent[0][1], UNIX) == 1
    assert wire.unwrap_heartbeat(air.sent[1][1], UNIX) == wire.Heartbeat(
        public_key=wire.observer_key(PEER_ID), timestamp=UNIX, version=VERSION, name="a name"
    )
    assert (air.observer.announcements, air.observer.heartbeats) == (1, 1)


async def test_both_are_repeated_as_nodes_do() -> None:
    """Each comes again after 60 to 66 seconds, not before and not later."""
    air = Air()
    await air.look(0)
    assert await air.look(59.9) == []
    assert await air.look(66.1) == ["connection", "heartbeatV2_1"]
    assert await air.look(126.0) == []


async def test_each_new_connection_is_told_but_not_in_a_flood() -> None:
    """A connection made since is told the shard at once, further ones within five seconds together."""
    air = Air()
    await air.look(0)
    assert await air.look(SHARD_SECONDS, 2) == ["connection"]
    assert await air.look(SHARD_SECONDS + 1, 3) == []
    assert await air.look(SHARD_SECONDS + 2, 4) == []
    assert await air.look(2 * SHARD_SECONDS, 4) == ["connection"]
    assert await air.look(3 * SHARD_SECONDS, 4) == []


async def test_nothing_is_said_to_nobody() -> None:
    """Without a subscriber nothing is signed; what nobody took is said again."""
    air = Air()
    assert await air.look(0, 1, "transactions_0") == []
    air.takers = 0
    await air.look(1)
    assert (air.observer.announcements, air.observer.heartbeats) == (0, 0)
    air.takers = 1
    assert await air.look(1 + SHARD_SECONDS) == ["connection", "heartbeatV2_1"]


@pytest.mark.parametrize(
    ("setting", "own", "shard"),
    [("auto", (2, 1), 1), ("auto", (), 0), ("none", (1,), None), ("meta", (), METACHAIN), ("2", (0,), 2)],
)
def test_claimed_shard(setting: str, own: tuple[int, ...], shard: int | None) -> None:
    """The setting wins; by itself it is the lowest shard of the keys."""
    assert claimed_shard(setting, NETWORK, own) == shard


@pytest.mark.parametrize("setting", ["3", "-1", "", "META", "1.0"])
def test_shard_that_is_none(setting: str) -> None:
    """A shard the network does not have is refused with the choices."""
    with pytest.raises(ValueError, match="auto, none, meta or a number below 3"):
        claimed_shard(setting, NETWORK, ())


def test_name_too_long_for_nodes() -> None:
    """A name of more than 128 bytes would have each heartbeat refused."""
    air = Air()
    with pytest.raises(ValueError, match="128"):
        Observer(NETWORK, 0, "ä" * 65, air.publish)


def test_observer_key_belongs_to_the_identity() -> None:
    """96 bytes, the same for the same peer, another for another."""
    assert len(wire.observer_key(PEER_ID)) == wire.PUBLIC_KEY_BYTES
    assert wire.observer_key(PEER_ID) == wire.observer_key(PEER_ID) != wire.observer_key(PEER_ID + "x")
