"""What our peer says of itself, so that nodes know it for an observer of a shard and keep the connection.

A node has few places for peers it cannot place (7 of 41). It places a peer by the messages of which that peer is the
originator: PeerShard on `connection`, and heartbeats on the topic of its own shard. Nodes that are no validators send
both (mx-chain-go, `peerShardSender` and `heartbeatSender`); we do as they do, and send PeerShard soon after each new
connection, too. Both topics are open to peers that are no validators.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Collection

from millrace.chain import gossip as wire
from millrace.chain.network import NetworkProfile
from millrace.chain.shard import METACHAIN
from millrace.gossip.wire import GossipStats

log = logging.getLogger(__name__)

VERSION = "millrace/relayer"
SPREAD = 0.1
"""A pause is longer by up to this part, as nodes' are (`HeartbeatTimeThresholdBetweenSends`)."""
SHARD_SECONDS = 5.0
"""Least time between two PeerShards, however many peers come."""

Publish = Callable[[str, bytes], Awaitable[int]]


def claimed_shard(setting: str, network: NetworkProfile, own: Collection[int]) -> int | None:
    """The shard a setting says: `auto` the lowest of the keys' own, `none`, `meta`, or its number.

    Raises `ValueError` when the network has no such shard.
    """
    if setting == "none":
        return None
    if setting == "auto":
        return min(own, default=0)
    if setting == "meta":
        return METACHAIN
    if not (setting.isascii() and setting.isdigit() and int(setting) < network.shards):
        raise ValueError(f"gossip_shard {setting}: auto, none, meta or a number below {network.shards}")
    return int(setting)


class Observer:
    """Sends heartbeats and PeerShards; `look` at the state of the peer decides when."""

    def __init__(self, network: NetworkProfile, shard: int, name: str, publish: Publish) -> None:
        if len(name.encode()) > wire.MAX_TEXT:
            raise ValueError(f"gossip_name has more than {wire.MAX_TEXT} bytes")
        self.shard = shard
        self.heartbeats = 0
        """Heartbeats that a peer took."""
        self.announcements = 0
        """PeerShards that a peer took."""
        self._topic = network.heartbeat_topic(shard)
        self._name = name
        self._publish = publish
        self._connections = 0
        self._heartbeat_due = float("-inf")
        self._shard_due = float("-inf")
        self._shard_not_before = float("-inf")

    async def look(self, stats: GossipStats, now: float, unix: int) -> None:
        """Send what is due at `now` (any steady clock, seconds) and can reach somebody; `unix` is the time told."""
        if stats.connections != self._connections:
            self._connections = stats.connections
            self._shard_due = now
        if now >= max(self._shard_due, self._shard_not_before) and _reaches(stats, wire.CONNECTION_TOPIC):
            self._shard_not_before = now + SHARD_SECONDS
            if await self._publish(wire.CONNECTION_TOPIC, wire.wrap_peer_shard(self.shard, unix)) > 0:
                self.announcements += 1
                self._shard_due = now + _pause()
        if now >= self._heartbeat_due and _reaches(stats, self._topic):
            beat = wire.Heartbeat(wire.observer_key(stats.peer_id), unix, VERSION, self._name)
            if await self._publish(self._topic, wire.wrap_heartbeat(beat, unix)) > 0:
                self.heartbeats += 1
                self._heartbeat_due = now + _pause()


def _reaches(stats: GossipStats, topic: str) -> bool:
    return stats.peers_by_topic.get(topic, 0) > 0


def _pause() -> float:
    return wire.HEARTBEAT_SECONDS * random.uniform(1.0, 1.0 + SPREAD)
