"""The two statistics streams: what feeds them, and the clock that sends them."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from millrace.chain import gossip
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.protocol import messages, topics
from millrace.relayer.statistics.gas import WINDOW_SECONDS, AllGasStatsData, AllGasStatsMessage, GasStats
from millrace.relayer.statistics.network import (
    SCHEMA_VERSION,
    NetworkStats,
    NetworkStatsMessage,
    PeerNumbers,
)
from millrace.runtime.measures import ANSWER_BUCKETS, Timings
from millrace.runtime.websocket import binary_frame, text_frame

log = logging.getLogger(__name__)


class Audience(Protocol):
    """Whoever hears one of the streams."""

    def __len__(self) -> int: ...

    async def send(self, frames: bytes) -> None: ...


GAS_STREAMS = topics.GAS_STATS, topics.ALL_GAS_STATS, topics.DEFLATED_GAS_STATS
NETWORK_STREAMS = topics.NETWORK_STATS, topics.DEFLATED_NETWORK_STATS
GAS_SECONDS, NETWORK_SECONDS = 0.05, 0.25
"""Cadences of the public interface."""
MAX_COUNTED = 65_536
"""Blocks of the window that are known again: of four shards whose rounds are 600 ms it has 12,000."""
SHORTEST_TRANSACTION = 128
"""Bytes of two addresses and a signature. Anybody can gossip what is shorter, hundreds of thousands in one message."""


class Statistics:
    """Observer of blocks and gossip, and sender of gasStats and networkStats."""

    def __init__(
        self, network: NetworkProfile, clock: Callable[[], float] = time.monotonic, rounds: Rounds | None = None
    ) -> None:
        self._shards = network.shards
        self._clock = clock
        self.gas = GasStats(network.shards)
        self.numbers = NetworkStats(network.shards, clock(), rounds)
        self._counted: OrderedDict[bytes, None] = OrderedDict()
        """Blocks whose prices count."""
        self.fanout = Timings(ANSWER_BUCKETS)
        """From a block's arrival to the end of its fan-out."""
        self.sequence = 0
        self._network = b""
        self._frames: dict[str, tuple[int, bytes]] = {}
        """What each stream sends, and of which version of its numbers: made once for all, when somebody listens."""
        self._makers: dict[str, Callable[[], bytes]] = {
            topics.GAS_STATS: self._gas,
            topics.ALL_GAS_STATS: lambda: text_frame(self._all_gas()),
            topics.DEFLATED_GAS_STATS: lambda: _deflated(self._all_gas()),
            topics.NETWORK_STATS: lambda: text_frame(self._network) if self._network else b"",
            topics.DEFLATED_NETWORK_STATS: lambda: _deflated(self._network) if self._network else b"",
        }
        self._heartbeats = {
            network.heartbeat_topic(shard): "meta" if shard == METACHAIN else str(shard)
            for shard in (*range(network.shards), METACHAIN)
        }

    # ---- observer

    def block_saved(self, block: BlockFacts, now: float, age: float) -> None:
        self.numbers.block_saved(block, now, age)

    def block_executed(self, block: BlockFacts, now: float, age: float) -> None:
        self.numbers.block_executed(block, now, age)

    def block_final(self, block: BlockFacts, now: float, age: float) -> None:
        self.numbers.block_final(block)
        self._count_prices(block, now, age)

    def read_back(self, block: BlockFacts) -> None:
        """A block became final before now, and may have been told of."""
        self._count_prices(block, self._clock(), max(0.0, time.time() - block.timestamp_ms / 1000))

    def _count_prices(self, block: BlockFacts, now: float, age: float) -> None:
        if age >= WINDOW_SECONDS or block.block_hash in self._counted:
            return
        self._counted[block.block_hash] = None
        if len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)
        self.gas.add(block.shard, block.gas_prices, now - age)

    def not_executable(self, tx_hash: bytes) -> None:
        self.numbers.not_executable(tx_hash)

    def events_lost(self) -> None:
        self.numbers.events_lost()

    def told(self, since: float) -> None:
        """Everything that followed from a block saved at `since` is on its way to clients."""
        seconds = self._clock() - since
        self.fanout.observe(seconds)
        self.numbers.lag_ms = round(seconds * 1000, 3)

    def validators(self, message: pb.ValidatorsPubKeys) -> None:
        self.numbers.validators(
            message.epoch,
            {
                "meta" if shard == METACHAIN else str(shard): list(keys.keys)
                for shard, keys in message.validatorsPubKeys.items()
            },
        )

    def submitted(self, tx_hash: bytes, *, is_new: bool = True, waits: bool = True) -> None:
        """A client's transaction was accepted; see `NetworkStats.transaction_arrived`."""
        self.numbers.transaction_arrived(tx_hash, self._clock(), is_new=is_new, waits=waits)

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
        return {topic: partial(self._frame, topic) for topic in topics.STREAMS}

    async def run(self, audiences: Mapping[str, Audience], subscribers: Callable[[], int]) -> None:
        """Send all streams, each at its own cadence; `subscribers` of /ws/stats say how many there are."""

        async def send(names: Sequence[str]) -> None:
            for name in names:
                if len(audiences[name]):
                    await audiences[name].send(self._frame(name))

        async def send_gas() -> None:
            await send(GAS_STREAMS)

        async def send_network() -> None:
            self.gas.forget(self._clock())
            self._next_network(subscribers())
            await send(NETWORK_STREAMS)

        await asyncio.gather(self._every(GAS_SECONDS, send_gas), self._every(NETWORK_SECONDS, send_network))

    async def _every(self, seconds: float, send: Callable[[], Awaitable[None]]) -> None:
        """Send at fixed times; a tick that is more than one period late is left out, not caught up."""
        due = self._clock()
        while True:
            due = max(due + seconds, self._clock() - seconds)
            await asyncio.sleep(max(0.0, due - self._clock()))
            await send()

    def _frame(self, topic: str) -> bytes:
        """What a stream sends now, built again only when a number changed."""
        version = self.gas.version if topic in GAS_STREAMS else self.sequence
        known = self._frames.get(topic)
        if known is None or known[0] != version:
            known = self._frames[topic] = version, self._makers[topic]()
        return known[1]

    def _gas(self) -> bytes:
        """The frames of all shards."""
        return b"".join(text_frame(messages.encode(self.gas.message(shard))) for shard in range(self._shards))

    def _all_gas(self) -> bytes:
        """All shards in one message."""
        shards = [self.gas.message(shard).data for shard in range(self._shards)]
        return messages.encode(AllGasStatsMessage(AllGasStatsData(shards)))

    def _next_network(self, stream_subscribers: int) -> None:
        self.sequence += 1
        message = NetworkStatsMessage(
            SCHEMA_VERSION,
            self.sequence,
            time.time_ns() // 1_000_000,
            self.numbers.data(self._clock(), stream_subscribers),
        )
        self._network = messages.encode(message)


def _deflated(payload: bytes) -> bytes:
    """A message packed as well as it can be: that is done once, and sent to all."""
    return binary_frame(zlib.compress(payload, 9))
