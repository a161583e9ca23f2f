"""The numbers of networkStats (schema 1.1.0) from what was really observed; null where nothing is known. Pure."""

from __future__ import annotations

import statistics
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from millrace.chain.shard import METACHAIN
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.blocks.rounds import Rounds

SCHEMA_VERSION = "1.1.0"
ONLINE_SECONDS = 900.0
"""A node silent for longer is offline (the nodes' own limit)."""
LATE_SECONDS = 10.0
"""A block that is read so long after it was made, as after an outage, would make a rate of now of old blocks. The
shortest window of a rate, whatever the rounds."""
MAX_WAITING = 200_000
MAX_COUNTED = 50_000
"""More than come in a minute at 500 a second: answers, gossip and questions once more follow each other in less."""
WAITING_SECONDS = 600.0
"""As long as a transaction is sent for: a time, see `lifetime_seconds`."""
KNOWN_SECONDS, KEPT_BLOCKS = 615.0, 1024
"""So long a shard's blocks are known again, and no more of them; doubles are counted over a minute."""
TOLD_SECONDS, KEPT_FINAL = 154.0, 256
"""So long a shard's final blocks are told when asked for, and no more of them."""


class Network(msgspec.Struct, frozen=True, rename="camel"):
    current_tps: float | None
    avg_tps_10s: float | None = msgspec.field(name="avgTps10s")
    avg_tps_30s: float | None = msgspec.field(name="avgTps30s")
    connected_peers: int | None
    active_validators: int | None
    ws_lag_ms: float | None


class ShardBlock(msgspec.Struct, frozen=True, rename="camel"):
    shard_id: int | None = None
    nonce: int | None = None
    round: int | None = None
    epoch: int | None = None
    tx_count: int | None = None
    executed_tx_count: int | None = None
    timestamp_ms: int | None = None
    leader_signature_hex: str | None = None
    accumulated_fees: str | None = None
    developer_fees: str | None = None


class MetaBlock(msgspec.Struct, frozen=True, rename="camel"):
    nonce: int | None = None
    round: int | None = None
    epoch: int | None = None
    tx_count: int | None = None
    executed_tx_count: int | None = None
    timestamp_ms: int | None = None


class FinalBlock(msgspec.Struct, frozen=True, rename="camel"):
    """A block whose execution is final; `tx_count` is what was proposed in it."""

    nonce: int
    tx_count: int
    executed_tx_count: int
    timestamp_ms: int


class LatestBlocks(msgspec.Struct, frozen=True):
    """GET /v1/network-stats/blocks."""

    blocks: dict[str, list[FinalBlock]]
    """By shard (its number, or `meta`), oldest first."""


class Blocks(msgspec.Struct, frozen=True, rename="camel"):
    latest_shard: ShardBlock
    latest_meta: MetaBlock
    block_time_ms_p50_by_shard: dict[str, int | None] = msgspec.field(name="blockTimeMsP50ByShard")
    nonce_gap_events_1m: int | None = msgspec.field(name="nonceGapEvents1m")
    duplicate_nonce_events_1m: int | None = msgspec.field(name="duplicateNonceEvents1m")


class Mempool(msgspec.Struct, frozen=True, rename="camel"):
    estimated_queue: int | None
    ingress_tps: float | None
    inclusion_tps: float | None
    pressure: float | None


class Validators(msgspec.Struct, frozen=True, rename="camel"):
    online_by_shard: dict[str, int | None]
    total_online: int | None
    heartbeat_rate_per_sec: float | None


class Health(msgspec.Struct, frozen=True, rename="camel"):
    p2p_dedup_ratio_1m: float | None = msgspec.field(name="p2pDedupRatio1m")
    stream_subscribers: int
    data_completeness: float


class NetworkData(msgspec.Struct, frozen=True):
    network: Network
    blocks: Blocks
    mempool: Mempool
    validators: Validators
    health: Health


class NetworkStatsMessage(msgspec.Struct, frozen=True, tag_field="type", tag="networkStats", rename="camel"):
    """Pushed to /ws/stats and to subscribers of networkStats."""

    schema_version: str
    sequence: int
    ts: int
    data: NetworkData


class _Rate:
    """How many things happened in the last `seconds`, counted in steps of a quarter second."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._steps: deque[list[float]] = deque()
        self.total = 0.0

    def add(self, count: float, now: float) -> None:
        if self._steps and now - self._steps[-1][0] < 0.25:
            self._steps[-1][1] += count
        else:
            self._steps.append([now, count])
        self.total += count

    def count(self, now: float) -> float:
        while self._steps and self._steps[0][0] <= now - self._seconds:
            self.total -= self._steps.popleft()[1]
        return self.total

    def per_second(self, now: float, since: float) -> float:
        """The mean over the window, or over the time since `since` while that is shorter."""
        return self.count(now) / min(self._seconds, max(now - since, 1.0))


class _Row:
    """Blocks of one shard in their order, by their own times."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._by_nonce: OrderedDict[int, bytes] = OrderedDict()
        self.nonce = 0
        self.time_ms = 0

    def has(self, block: BlockFacts) -> bool:
        """Whether this very block came before."""
        return self._by_nonce.get(block.nonce) == block.block_hash

    def add(self, block: BlockFacts) -> _Step:
        """One more block."""
        is_double = block.nonce != 0 and block.nonce in self._by_nonce
        self._by_nonce[block.nonce] = block.block_hash
        while len(self._by_nonce) > self._rounds.count(KNOWN_SECONDS, KEPT_BLOCKS):
            self._by_nonce.popitem(last=False)
        is_next = bool(self.nonce) and block.nonce > self.nonce
        step = _Step(is_double, block.nonce - self.nonce, block.timestamp_ms - self.time_ms)
        if block.nonce >= self.nonce:
            self.nonce, self.time_ms = block.nonce, block.timestamp_ms
        return step if is_next else _Step(is_double, 0, 0)

    def begin_anew(self) -> None:
        """The next block is compared with none before it."""
        self.nonce = self.time_ms = 0


class _Step(NamedTuple):
    """From the newest block to one more; zeros where that is none before it."""

    is_double: bool
    """Another block of its height came before."""
    heights: int
    took_ms: int


class _Shard:
    """What was seen of one shard: blocks as they are made, and what is executed, which may come later."""

    def __init__(self, rounds: Rounds) -> None:
        self.saved, self.executed = _Row(rounds), _Row(rounds)
        self.intervals: deque[tuple[float, int]] = deque()
        self.signers = 0
        self.tps: float | None = None
        self.behind = 0.0
        """By how many seconds the clock here is ahead of the time of the newest execution, when that came."""
        self.rates = {seconds: _Rate(seconds) for seconds in (10.0, 30.0)}
        """Executed transactions by the time of their block: results can come late, and several at once."""


class PeerNumbers(msgspec.Struct, frozen=True):
    """What the gossip peer counted since its start."""

    connected: int
    delivered: int
    duplicates: int


class NetworkStats:
    """Takes observations, answers with one message. `start` is when observing began."""

    def __init__(self, shards: int, start: float, rounds: Rounds | None = None) -> None:
        self._rounds = Rounds() if rounds is None else rounds
        self._shards = shards
        self._start = start
        self._seen: dict[int, _Shard] = {}
        self._latest_shard = ShardBlock()
        self._latest_ms = 0  # when that was made
        self._latest_meta = MetaBlock()
        self._final: dict[int, deque[FinalBlock]] = {}
        """Of each shard the newest whose execution is final, by ascending height."""
        self._gaps, self._doubles = _Rate(60.0), _Rate(60.0)
        self._ingress, self._inclusion = _Rate(10.0), _Rate(10.0)
        self._beats = _Rate(60.0)
        self._waiting: OrderedDict[bytes, float] = OrderedDict()
        self._counted: OrderedDict[bytes, None] = OrderedDict()
        """Of late: who asks again, or hears of it from another side, brings nothing new."""
        self._online: dict[str, OrderedDict[bytes, float]] = {}
        self._eligible: dict[str, frozenset[bytes]] = {}
        self._epoch = 0  # of those
        self._peers: deque[tuple[float, PeerNumbers]] = deque()
        self.lag_ms: float | None = None

    # ---- observations

    def block_saved(self, block: BlockFacts, now: float, age: float = 0.0) -> None:
        """A block was saved, `age` seconds ago: one that is read so late is of no rate of now."""
        shard = self._seen.setdefault(block.shard, _Shard(self._rounds))
        if shard.saved.has(block):
            return
        counts = age < LATE_SECONDS
        step = shard.saved.add(block)
        if block.nonce == shard.saved.nonce:
            shard.signers = block.signers
        if not counts:
            return
        self._doubles.add(step.is_double, now)
        if step.heights > 1 and block.shard != METACHAIN:
            self._gaps.add(step.heights - 1, now)
        if step.took_ms > 0:
            shard.intervals.append((now, step.took_ms // step.heights))

    def block_executed(self, block: BlockFacts, now: float, age: float = 0.0) -> None:
        """What a block executed came, with it or later; its `age` is that of the block."""
        shard = self._seen.setdefault(block.shard, _Shard(self._rounds))
        if shard.executed.has(block):
            return
        step = shard.executed.add(block)
        if step.took_ms > 0:
            shard.tps = block.executed * 1000 / step.took_ms
        included = [fact.tx_hash for fact in block.transactions if fact.included]
        for tx_hash in included:
            self._waiting.pop(tx_hash, None)
        if age < LATE_SECONDS:
            newest = shard.saved.time_ms  # what a header says; a result's own time is one node's word
            made_at = (min(block.timestamp_ms, newest) if newest else block.timestamp_ms) / 1000
            if block.nonce == shard.executed.nonce:
                shard.behind = now - made_at
            for rate in shard.rates.values():
                rate.add(block.executed, made_at)
            self._inclusion.add(len(included), now)

    def events_lost(self) -> None:
        """Blocks may be among the events that are lost: they were not skipped, nor did the next one take so long.

        What follows may be of another chain, that began anew.
        """
        self._epoch = self._latest_ms = 0
        for shard in self._seen.values():
            shard.saved.begin_anew()
            shard.executed.begin_anew()

    def not_executable(self, tx_hash: bytes) -> None:
        """A transaction was proposed and not executed: it waits for no block any more, unless it is sent again."""
        self._waiting.pop(tx_hash, None)
        self._counted.pop(tx_hash, None)

    def block_final(self, block: BlockFacts) -> None:
        """A block's execution is final; nothing is said of one whose proposal is not known."""
        header = block.header
        kept = self._final.setdefault(block.shard, deque())
        if header is None or (kept and block.nonce < kept[-1].nonce):
            return
        if kept and block.nonce == kept[-1].nonce:
            kept.pop()
        kept.append(FinalBlock(header.nonce, header.tx_count, block.executed, block.timestamp_ms))
        while len(kept) > self._rounds.count(TOLD_SECONDS, KEPT_FINAL):
            kept.popleft()
        if block.shard == METACHAIN:
            self._latest_meta = MetaBlock(
                header.nonce, header.round, header.epoch, header.tx_count, block.executed, block.timestamp_ms
            )
        elif block.timestamp_ms >= self._latest_ms:  # a shard may be minutes behind another
            self._latest_ms = block.timestamp_ms
            self._latest_shard = ShardBlock(
                block.shard, header.nonce, header.round, header.epoch, header.tx_count, block.executed,
                block.timestamp_ms, header.leader_signature, header.accumulated_fees, header.developer_fees,
            )  # fmt: skip

    def transaction_arrived(self, tx_hash: bytes, now: float, *, is_new: bool = True, waits: bool = True) -> None:
        """A transaction reached this relayer, from a client or by gossip.

        It is not new where it came in the life of an earlier process; it does not wait for a block where it has been in
        one, or no block can name it by this hash.
        """
        if tx_hash in self._waiting or tx_hash in self._counted:
            return
        if is_new:
            self._ingress.add(1, now)
            self._counted[tx_hash] = None
            if len(self._counted) > MAX_COUNTED:
                self._counted.popitem(last=False)
        if waits:
            self._waiting[tx_hash] = now
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)

    def heartbeat(self, shard: str, public_key: bytes, now: float) -> None:
        """A node of a shard (its number, or `meta`) said that it is there."""
        self._beats.add(1, now)
        nodes = self._online.setdefault(shard, OrderedDict())
        nodes[public_key] = now
        nodes.move_to_end(public_key)
        if len(nodes) > 100_000:
            nodes.popitem(last=False)

    def validators(self, epoch: int, keys: dict[str, Iterable[bytes]]) -> None:
        """The keys that may validate in an epoch, by shard. A node that starts tells those of the one it left."""
        if epoch >= self._epoch:
            self._epoch = epoch
            self._eligible = {shard: frozenset(of_shard) for shard, of_shard in keys.items()}

    def peers(self, numbers: PeerNumbers, now: float) -> None:
        """The gossip peer's counters."""
        if self._peers and numbers.delivered < self._peers[-1][1].delivered:
            self._peers.clear()  # another process, counting from 0
        self._peers.append((now, numbers))
        while self._peers[0][0] < now - 60.0:
            self._peers.popleft()

    def final_blocks(self, after_ms: int) -> LatestBlocks:
        """The newest final blocks of each shard that were made after a time."""
        names = {**{number: str(number) for number in range(self._shards)}, METACHAIN: "meta"}
        return LatestBlocks(
            {
                name: [block for block in self._final.get(number, ()) if block.timestamp_ms > after_ms]
                for number, name in names.items()
            }
        )

    # ---- the message

    def data(self, now: float, stream_subscribers: int) -> NetworkData:
        """All fields as of now."""
        data = NetworkData(
            self._network(now),
            self._blocks(now),
            self._mempool(now),
            self._validators(now),
            Health(self._dedup_ratio(), stream_subscribers, 0.0),
        )
        health = Health(data.health.p2p_dedup_ratio_1m, stream_subscribers, completeness(data))
        return msgspec.structs.replace(data, health=health)

    def _network(self, now: float) -> Network:
        rates = [shard.tps for number, shard in self._seen.items() if number != METACHAIN]
        known = [rate for rate in rates if rate is not None]
        seen = bool(self._seen)
        return Network(
            round(sum(known), 3) if known else None,
            self._average_tps(10.0, now) if seen else None,
            self._average_tps(30.0, now) if seen else None,
            self._peers[-1][1].connected if self._peers else None,
            self._active_validators(now),
            self.lag_ms,
        )

    def _average_tps(self, seconds: float, now: float) -> float:
        """Over all shards, each up to the time that its execution has come to."""
        counts = sum(shard.rates[seconds].count(now - shard.behind) for shard in self._seen.values())
        return round(counts / min(seconds, max(now - self._start, 1.0)), 3)

    def _blocks(self, now: float) -> Blocks:
        medians: dict[str, int | None] = {}
        for number in range(self._shards):
            shard = self._seen.get(number)
            medians[str(number)] = None
            if shard is not None:
                while shard.intervals and shard.intervals[0][0] <= now - 60.0:
                    shard.intervals.popleft()
                if shard.intervals:
                    medians[str(number)] = int(statistics.median(took for _, took in shard.intervals))
        seen = bool(self._seen)
        return Blocks(
            self._latest_shard,
            self._latest_meta,
            medians,
            int(self._gaps.count(now)) if seen else None,
            int(self._doubles.count(now)) if seen else None,
        )

    def _mempool(self, now: float) -> Mempool:
        while self._waiting and next(iter(self._waiting.values())) <= now - WAITING_SECONDS:
            self._waiting.popitem(last=False)
        ingress = self._ingress.per_second(now, self._start)
        inclusion = self._inclusion.per_second(now, self._start) if self._seen else None
        pressure = 0.0 if inclusion == 0 else None  # of a part of what is included, of which nothing was heard
        if inclusion is not None and ingress:
            pressure = round((ingress - inclusion) / ingress, 6)
        return Mempool(
            len(self._waiting), round(ingress, 3), None if inclusion is None else round(inclusion, 3), pressure
        )

    def _validators(self, now: float) -> Validators:
        online: dict[str, int | None] = {}
        for shard in [*(str(number) for number in range(self._shards)), "meta"]:
            nodes = self._online.get(shard)
            online[shard] = None if nodes is None else self._count_online(shard, nodes, now)
        known = [count for count in online.values() if count is not None]
        heard = bool(self._online)
        return Validators(
            online, sum(known) if known else None, round(self._beats.per_second(now, self._start), 3) if heard else None
        )

    def _count_online(self, shard: str, nodes: OrderedDict[bytes, float], now: float) -> int:
        """Validators heard lately; all nodes while it is not known who validates."""
        while nodes and next(iter(nodes.values())) <= now - ONLINE_SECONDS:
            nodes.popitem(last=False)
        eligible = self._eligible.get(shard)
        return len(nodes) if eligible is None else len(eligible.intersection(nodes))

    def _active_validators(self, now: float) -> int | None:
        """Those who may validate and are heard; while nodes have not said who may, those who made the latest blocks.

        Nodes name the eligible ones once an epoch, which on the main network is a day.
        """
        if not self._eligible or not self._online:
            return sum(shard.signers for shard in self._seen.values()) or None
        return sum(self._count_online(shard, nodes, now) for shard, nodes in self._online.items())

    def _dedup_ratio(self) -> float | None:
        if not self._peers:
            return None
        first, last = self._peers[0][1], self._peers[-1][1]
        duplicates = last.duplicates - first.duplicates
        deliveries = duplicates + last.delivered - first.delivered
        return round(duplicates / deliveries, 6) if deliveries > 0 else 0.0


def completeness(data: NetworkData) -> float:
    """The fraction of fields, down to each number, that is not null."""
    known = total = 0
    stack: list[object] = [msgspec.to_builtins(data)]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        else:
            total += 1
            known += item is not None
    return round(known / total, 4)
