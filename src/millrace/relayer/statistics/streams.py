"""The two statistics streams: what feeds them, and the clock that sends them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from millrace.chain import gossip
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.protocol import messages, topics
from millrace.relayer.statistics.gas import WINDOW_SECONDS, GasStats
from millrace.relayer.statistics.network import (
    SCHEMA_VERSION,
    NetworkStats,
    NetworkStatsMessage,
    PeerNumbers,
)
from millrace.runtime.measures import ANSWER_BUCKETS, Timings
from millrace.runtime.websocket import text_frame

log = logging.getLogger(__name__)


class Audience(Protocol):
    """Whoever hears one of the streams."""

    async def send(self, frames: bytes) -> None: ...


GAS_SECONDS, NETWORK_SECONDS = 0.05, 0.25
"""Cadences of the public interface."""
SHORTEST_TRANSACTION = 128
"""Bytes of two addresses and a signature. Anybody can gossip what is shorter, hundreds of thousands in one message."""


class Statistics:
    """Observer of blocks and gossip, and sender of gasStats and networkStats."""

    def __init__(self, network: NetworkProfile, clock: Callable[[], float] = time.monotonic) -> None:
        self._network = network
        self._clock = clock
        self.gas = GasStats(network.shards)
        self.numbers = NetworkStats(network.shards, clock())
        self.fanout = Timings(ANSWER_BUCKETS)
        """From a block's arrival to the end of its fan-out."""
        self.sequence = 0
        self._gas_frames = b""
        self._gas_version = -1
        self._network_frame = b""
        self._heartbeats = {
            network.heartbeat_topic(shard): "meta" if shard == METACHAIN else str(shard)
            for shard in (*range(network.shards), METACHAIN)
        }

    # ---- observer

    def block_saved(self, block: BlockFacts, now: float, age: float) -> None:
        self.numbers.block_saved(block, now, age)

    def block_executed(self, block: BlockFacts, now: float, age: float) -> None:
        self.numbers.block_executed(block, now, age)
        if age < WINDOW_SECONDS:
            self.gas.add(block.shard, block.gas_prices, now)

    def block_final(self, block: BlockFacts, now: float) -> None:
        self.numbers.block_final(block)

    def not_executable(self, tx_hash: bytes) -> None:
        self.numbers.not_executable(tx_hash)

    def told(self, since: float) -> None:
        """Everything that followed from a block saved at `since` is on its way to clients."""
        seconds = self._clock() - since
        self.fanout.observe(seconds)
        self.numbers.lag_ms = round(seconds * 1000, 3)

    def validators(self, message: pb.ValidatorsPubKeys) -> None:
        self.numbers.validators(
            {
                "meta" if shard == METACHAIN else str(shard): list(keys.keys)
                for shard, keys in message.validatorsPubKeys.items()
            }
        )

    def submitted(self, tx_hash: bytes) -> None:
        """A client's transaction was accepted."""
        self.numbers.transaction_arrived(tx_hash, self._clock())

    def gossip_message(self, topic: str, data: bytes) -> None:
        """A message of the gossip network."""
        now = self._clock()
        try:
            shard = self._heartbeats.get(topic)
            if shard is not None:
                self.numbers.heartbeat(shard, gossip.unwrap_heartbeat(data, int(time.time())).public_key, now)
            else:
                for item in gossip.unwrap_transactions(data, int(time.time())):
                    if len(item) >= SHORTEST_TRANSACTION:
                        self.numbers.transaction_arrived(hashlib.blake2b(item, digest_size=32).digest(), now)
        except gossip.GossipError as error:
            log.debug("a gossip message breaks a rule", extra={"topic": topic, "error": str(error)})

    def gossip_counters(self, connected: int, delivered: int, duplicates: int) -> None:
        """The gossip peer's counters."""
        self.numbers.peers(PeerNumbers(connected, delivered, duplicates), self._clock())

    def payload(self, stream_subscribers: int) -> dict[str, Any]:
        """The numbers of now, as networkStats would show them."""
        built: dict[str, Any] = msgspec.to_builtins(self.numbers.data(self._clock(), stream_subscribers))
        return built

    # ---- streams

    def snapshots(self) -> dict[str, Callable[[], bytes]]:
        """What a new subscriber gets at once."""
        return {topics.GAS_STATS: self._gas, topics.NETWORK_STATS: lambda: self._network_frame}

    async def run(self, gas: Audience, network: Audience, subscribers: Callable[[], int]) -> None:
        """Send both streams, each at its own cadence; `subscribers` of the second say how many there are."""

        async def send_gas() -> None:
            await gas.send(self._gas())

        async def send_network() -> None:
            self.gas.forget(self._clock())
            self._next_network(subscribers())
            await network.send(self._network_frame)

        await asyncio.gather(self._every(GAS_SECONDS, send_gas), self._every(NETWORK_SECONDS, send_network))

    async def _every(self, seconds: float, send: Callable[[], Awaitable[None]]) -> None:
        """Send at fixed times; a tick that is more than one period late is left out, not caught up."""
        due = self._clock()
        while True:
            due = max(due + seconds, self._clock() - seconds)
            await asyncio.sleep(max(0.0, due - self._clock()))
            await send()

    def _gas(self) -> bytes:
        """The frames of all shards, built again only when a number changed."""
        if self._gas_version != self.gas.version:
            frames = [text_frame(messages.encode(self.gas.message(shard))) for shard in range(self._network.shards)]
            self._gas_frames, self._gas_version = b"".join(frames), self.gas.version
        return self._gas_frames

    def _next_network(self, stream_subscribers: int) -> None:
        self.sequence += 1
        message = NetworkStatsMessage(
            SCHEMA_VERSION,
            self.sequence,
            time.time_ns() // 1_000_000,
            self.numbers.data(self._clock(), stream_subscribers),
        )
        self._network_frame = text_frame(messages.encode(message))
