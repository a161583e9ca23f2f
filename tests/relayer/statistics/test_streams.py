"""Statistics from observations, against sums done by hand."""

from __future__ import annotations

import random
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relayer_support import NETWORK, BlockMaker, Chain, entry_of, start, submit, transfer, wallet

from millrace.chain import gossip, outport
from millrace.chain.shard import METACHAIN
from millrace.chain.transaction import to_proto
from millrace.relayer.blocks.facts import BlockFacts, BlockHeader, TxFact
from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.statistics.gas import BUCKET_SECONDS, MAX_DISTINCT, WINDOW_SECONDS, GasStats
from millrace.relayer.statistics.network import KEPT_BLOCKS, KEPT_FINAL, LATE_SECONDS, NetworkStats, PeerNumbers
from millrace.relayer.statistics.streams import Statistics
from waiting import until


def test_gas_percentiles_are_nearest_rank() -> None:
    """p50, p75, p90 of any sample are the smallest values that so many percent do not exceed."""
    rng = random.Random(3)
    for size in (1, 2, 3, 10, 97):
        values = [rng.randrange(10**9, 10**9 + 50) for _ in range(size)]
        stats = GasStats(3)
        stats.add(1, [(value, value // 2) for value in values], 0.0)
        found = stats.message(1).data.gas_price
        ordered = sorted(values)
        for percent, value in ((50, found.percentiles.p50), (75, found.percentiles.p75), (90, found.percentiles.p90)):
            assert value == ordered[-(-size * percent // 100) - 1]
        assert (found.min, found.max, found.avg) == (ordered[0], ordered[-1], sum(values) // size)


def test_gas_window_and_buckets() -> None:
    """A bucket leaves after 30 minutes; bucketAvg weighs buckets, avg weighs transactions."""
    stats = GasStats(1)
    stats.add(0, [(100, 10)] * 9, 0.0)
    stats.add(0, [(200, 20)], BUCKET_SECONDS)
    data = stats.message(0).data
    assert (data.gas_price.avg, data.gas_price.bucket_avg, data.ppu.avg) == (110, 150, 11)
    stats.forget(WINDOW_SECONDS + BUCKET_SECONDS - 0.1)
    assert stats.message(0).data.gas_price.min == 200
    stats.forget(WINDOW_SECONDS + 2 * BUCKET_SECONDS)
    empty = stats.message(0).data.gas_price
    assert (empty.min, empty.max, empty.avg, empty.percentiles.p90) == (None, None, None, None)


def bucket_of(seconds: float) -> int:
    return int(seconds // BUCKET_SECONDS)


SOME = st.integers(1, 30) | st.integers(1, 2**64 - 1)
STEPS = st.tuples(st.integers(0, 900), st.integers(0, 1_790), st.lists(st.tuples(SOME, SOME), min_size=1, max_size=9))


@given(st.lists(STEPS, min_size=1, max_size=20))
def test_gas_statistics_are_those_of_the_window(steps: list[tuple[int, int, list[tuple[int, int]]]]) -> None:
    """Whatever comes, late or not, and leaves again: all numbers are those reckoned from what lies in the window."""
    stats, now, taken = GasStats(1), 5_000, list[tuple[int, int, int]]()
    for later, late, pairs in steps:
        now += later
        stats.add(0, pairs, now - late)
        taken += [(bucket_of(now - late), price, ppu) for price, ppu in pairs]
        stats.forget(now)
        taken = [item for item in taken if item[0] > bucket_of(now - WINDOW_SECONDS)]
        data = stats.message(0).data
        for place, found in ((1, data.gas_price), (2, data.ppu)):
            values = sorted(item[place] for item in taken)
            buckets = {item[0]: [each[place] for each in taken if each[0] == item[0]] for item in taken}
            means = [sum(each) // len(each) for each in buckets.values()]
            assert (found.min, found.max, found.avg, found.bucket_avg) == (
                (values[0], values[-1], sum(values) // len(values), sum(means) // len(means)) if values else (None,) * 4
            )
        prices, told = sorted(item[1] for item in taken), data.gas_price.percentiles
        for percent, shown in ((50, told.p50), (75, told.p75), (90, told.p90)):
            assert shown == (prices[-(-len(prices) * percent // 100) - 1] if prices else None)


class Compared(int):
    """A number that counts how often it is compared."""

    times = 0

    def __lt__(self, other: int) -> bool:
        Compared.times += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Compared.times += 1
        return int(self) > int(other)


def test_row_33_many_different_prices() -> None:
    """However many different prices the window has, one more costs a look at some of them."""
    stats = GasStats(1)
    values = random.Random(11).sample(range(10**9, 10**9 + 10**7), 60 * 600)
    for number in range(60):
        some = [Compared(value) for value in values[number * 600 : number * 600 + 600]]
        stats.add(0, [(value, value) for value in some], number * BUCKET_SECONDS)
    stats.message(0)
    Compared.times = 0
    stats.add(0, [(Compared(10**9 + 1), Compared(7))], 60 * BUCKET_SECONDS)
    data = stats.message(0).data
    assert Compared.times < 1_000
    ordered = sorted([*values, 10**9 + 1])
    assert (data.gas_price.min, data.gas_price.max, data.ppu.min) == (ordered[0], ordered[-1], 7)
    assert data.gas_price.percentiles.p90 == ordered[-(-len(ordered) * 90 // 100) - 1]


def test_row_33_what_is_kept_of_prices_is_bounded() -> None:
    """Beyond so many different prices in ten seconds further ones have three digits in percentiles; sums are exact."""
    stats = GasStats(1)
    values = [10**9 + 100_003 * number for number in range(4 * MAX_DISTINCT)]
    random.Random(7).shuffle(values)
    stats.add(0, [(value, value) for value in values], 0.0)
    price = stats.message(0).data.gas_price
    assert (price.min, price.max, price.avg) == (min(values), max(values), sum(values) // len(values))
    exact, told = sorted(values)[len(values) // 2 - 1], price.percentiles.p50
    assert told is not None and 0.99 * exact < told <= exact
    assert sum(map(len, stats._prices[0]._ranks._runs)) < MAX_DISTINCT + 900


def test_gas_message_shape() -> None:
    """The message has exactly the documented fields."""
    built = msgspec.to_builtins(GasStats(1).message(0))
    assert set(built["data"]["gasPrice"]) == {"min", "max", "avg", "bucketAvg", "percentiles"}
    assert set(built["data"]["ppu"]) == {"min", "max", "avg", "bucketAvg"} and built["type"] == "gasStats"


def block(shard: int, nonce: int, *, at_ms: int, executed: int = 0, fork: int = 0) -> BlockFacts:
    header = BlockHeader(nonce, nonce + 1, 2, executed, "ab", "5", "1")
    facts = tuple(TxFact(bytes((shard % 200, nonce % 256, number)) * 8, included=True) for number in range(executed))
    return BlockFacts(
        shard, bytes((shard % 200, nonce % 256, fork)), b"", nonce, at_ms, facts, header=header, executed=executed
    )


def whole(stats: NetworkStats, item: BlockFacts, now: float, age: float = 0.0) -> None:
    """A block that was executed when it was made."""
    stats.block_saved(item, now, age)
    stats.block_executed(item, now, age)


def numbers(stats: NetworkStats, now: float) -> dict[str, dict[str, object]]:
    built: dict[str, dict[str, object]] = msgspec.to_builtins(stats.data(now, 3))
    return built


def test_rates_and_block_times() -> None:
    """TPS of the latest blocks, rolling averages, medians and the pressure of the pool."""
    stats = NetworkStats(3, start=0.0)
    for nonce in range(1, 12):
        for shard in range(2):
            whole(stats, block(shard, nonce, at_ms=nonce * 2000, executed=10), nonce * 2.0)
    for number in range(40):
        stats.transaction_arrived(number.to_bytes(32, "big"), 22.0)
    data = numbers(stats, 22.0)
    assert data["network"]["currentTps"] == 10.0
    assert data["network"]["avgTps10s"] == 10.0
    assert data["blocks"]["blockTimeMsP50ByShard"] == {"0": 2000, "1": 2000, "2": None}
    assert data["mempool"] == {"estimatedQueue": 40, "ingressTps": 4.0, "inclusionTps": 10.0, "pressure": -1.5}


def test_pressure_where_nothing_arrives() -> None:
    """Who hears of nothing that arrives knows no pressure while blocks include something; an idle network has none."""
    stats = NetworkStats(3, start=0.0)
    whole(stats, block(0, 1, at_ms=2000, executed=0), 2.0)
    idle = numbers(stats, 3.0)
    assert idle["mempool"]["pressure"] == 0.0
    whole(stats, block(0, 2, at_ms=4000, executed=10), 4.0)
    busy = numbers(stats, 5.0)
    assert (busy["mempool"]["ingressTps"], busy["mempool"]["pressure"]) == (0.0, None)
    assert busy["health"]["dataCompleteness"] < 1


def test_a_transaction_arrives_once() -> None:
    """Who asks again once it was in a block, and an answer that comes behind the block, bring nothing new."""
    stats = NetworkStats(3, start=0.0)
    made = block(0, 1, at_ms=2000, executed=1)
    tx_hash = made.transactions[0].tx_hash
    stats.transaction_arrived(tx_hash, 1.0)
    whole(stats, made, 2.0)
    stats.transaction_arrived(tx_hash, 2.5, waits=False)
    stats.transaction_arrived(tx_hash, 3.0)
    assert numbers(stats, 10.0)["mempool"]["ingressTps"] == 0.1
    assert numbers(stats, 10.0)["mempool"]["estimatedQueue"] == 0
    stats.not_executable(tx_hash)
    stats.transaction_arrived(tx_hash, 10.0)
    assert numbers(stats, 10.0)["mempool"]["estimatedQueue"] == 1, "sent again it waits again"


def test_executions_count_at_their_own_time() -> None:
    """Results that come late, and several at once, make the rate that there was when they were executed."""
    for behind, together in ((0.6, 1), (3.0, 5), (9.0, 3)):
        stats = NetworkStats(3, start=0.0)
        waiting = []
        for nonce in range(1, 101):
            item = block(0, nonce, at_ms=1_790_000_000_000 + nonce * 600, executed=6)
            waiting.append(item)
            now = 1_000.0 + nonce * 0.6 + behind
            stats.block_saved(item, now - behind)
            if nonce % together == 0:
                for each in waiting:
                    stats.block_executed(each, now)
                waiting.clear()
        data = numbers(stats, now)["network"]
        assert data["currentTps"] == 10.0
        assert data["avgTps10s"] == pytest.approx(10.0, rel=0.07) and data["avgTps30s"] == pytest.approx(10.0, rel=0.03)
        assert numbers(stats, now + 5.0)["network"]["avgTps10s"] == pytest.approx(5.0, rel=0.15), (
            "nothing has come since"
        )
        assert numbers(stats, now + 10.0)["network"]["avgTps10s"] == 0.0
        assert numbers(stats, now)["blocks"]["blockTimeMsP50ByShard"]["0"] == 600


def test_executions_told_twice_or_out_of_order() -> None:
    """The same execution counts once; an older one moves neither the newest rate nor the latest block back."""
    stats = NetworkStats(3, start=0.0)
    for nonce in (1, 2, 4, 3, 4):
        stats.block_executed(block(0, nonce, at_ms=nonce * 600, executed=6), 100.0)
    assert numbers(stats, 100.0)["network"]["avgTps10s"] == 2.4
    assert numbers(stats, 100.0)["network"]["currentTps"] == 5.0
    for nonce in (4, 3):
        stats.block_final(block(0, nonce, at_ms=nonce * 600))
    assert numbers(stats, 100.0)["blocks"]["latestShard"]["nonce"] == 4  # type: ignore[index]
    stats.block_final(msgspec.structs.replace(block(0, 5, at_ms=3_000), header=None))
    assert numbers(stats, 100.0)["blocks"]["latestShard"]["nonce"] == 4, "of its proposal nothing is known"  # type: ignore[index]


def test_gaps_and_forks() -> None:
    """A skipped nonce counts as one gap, another block of a nonce as one duplicate, the same block as nothing."""
    stats = NetworkStats(3, start=0.0)
    for item in (block(0, 1, at_ms=1), block(0, 4, at_ms=4), block(0, 4, at_ms=4), block(0, 4, at_ms=4, fork=1)):
        stats.block_saved(item, 1.0)
    stats.block_saved(block(METACHAIN, 1, at_ms=1), 1.0)
    stats.block_saved(block(METACHAIN, 9, at_ms=2), 1.0)
    assert numbers(stats, 2.0)["blocks"]["nonceGapEvents1m"] == 2
    assert numbers(stats, 2.0)["blocks"]["duplicateNonceEvents1m"] == 1
    assert numbers(stats, 61.5)["blocks"]["nonceGapEvents1m"] == 0


def test_blocks_whose_height_is_not_known_are_no_doubles() -> None:
    """Headers that cannot be read say nothing of heights: another such block of a shard is no second of its height."""
    stats = NetworkStats(3, start=0.0)
    for item in (block(0, 0, at_ms=1), block(0, 0, at_ms=2, fork=1), block(0, 1, at_ms=3)):
        stats.block_saved(item, 1.0)
    blocks = numbers(stats, 2.0)["blocks"]
    assert blocks["duplicateNonceEvents1m"] == blocks["nonceGapEvents1m"] == 0


async def test_lost_events_are_no_skipped_blocks(world: Any) -> None:
    """Blocks that nobody heard of were not skipped, nor did the next one take their time; what then is left out was."""
    await start(world, hub_url="")
    chain = Chain(world, 1)

    def told() -> tuple[Any, Any]:
        payload = world.service.statistics.payload(0)
        return payload["blocks"]["nonceGapEvents1m"], payload["network"]["currentTps"]

    for nonce in range(2):
        chain.final([transfer(wallet(1), nonce)])
    assert told() == (0, pytest.approx(1 / 6, abs=1e-3))
    world.service.events.on_gap(3, 500)
    chain.maker.nonce += 499
    chain.final([transfer(wallet(1), 2)])
    assert told() == (0, pytest.approx(1 / 6, abs=1e-3))
    chain.maker.nonce += 2
    chain.final()
    assert told()[0] == 2


def priced(nonce: int, price: int) -> BlockFacts:
    return msgspec.structs.replace(block(1, nonce, at_ms=nonce), gas_prices=((price, price),))


def test_gas_prices_count_at_the_time_of_their_block() -> None:
    """What is read late, in whatever order, lies in its block's bucket and leaves with it; what is too old in none."""
    stats = Statistics(NETWORK)
    now = 10_000.0
    for nonce, age in ((4, 0.0), (1, WINDOW_SECONDS), (2, 1_200.0), (3, 600.0), (5, 0.0)):
        stats.block_final(priced(nonce, nonce * 100), now, age)
    price = stats.gas.message(1).data.gas_price
    assert (price.min, price.max, price.bucket_avg) == (200, 500, (200 + 300 + 450) // 3)
    for later, lowest in ((599.0, 200), (620.0, 300), (1_220.0, 400), (1_820.0, None)):
        stats.gas.forget(now + later)
        assert stats.gas.message(1).data.gas_price.min == lowest


async def test_row_42_gas_prices_are_those_of_final_blocks(world: Any) -> None:
    """Of a block that is reverted no price counts, of one that is saved again they count once."""
    await start(world, hub_url="")
    chain, gas = Chain(world, 1), world.service.statistics.gas
    fork, twice, last = (chain.maker.block([transfer(wallet(1), gas_price=price * 10**9)]) for price in (9, 5, 1))
    for item in (fork, twice):
        chain.tell(outport.SAVE_BLOCK, item)
        chain.revert(item)
    chain.tell(outport.SAVE_BLOCK, twice)
    assert gas.message(1).data.gas_price.max is None
    chain.tell(outport.SAVE_BLOCK, last)
    for item in (twice, last):
        chain.finalise(item)
    chain.tell(outport.SAVE_BLOCK, last)
    price = gas.message(1).data.gas_price
    assert (price.min, price.max, price.avg) == (10**9, 5 * 10**9, 3 * 10**9)


async def test_what_was_in_flight_before_a_restart_is_not_new(world: Any) -> None:
    """After a restart it waits for its block, and counts in no rate of arrivals; what is first sent then does."""
    await start(world)
    txs = [transfer(wallet(1), nonce) for nonce in range(30)]
    assert await submit(world, *txs) == ["ok"] * 30
    assert await submit(world, transfer(wallet(2)), kind="sign") == ["ok"]
    only_signed = entry_of(world, transfer(wallet(2))).tx
    await world.stop()
    service = await world.start()
    mempool = service.statistics.payload(0)["mempool"]
    assert (mempool["estimatedQueue"], mempool["ingressTps"]) == (30, 0.0)
    assert await submit(world, only_signed, kind="broadcast") == ["ok"]
    mempool = service.statistics.payload(0)["mempool"]
    assert mempool["estimatedQueue"] == 31 and 0 < mempool["ingressTps"] <= 1.0


def test_latest_blocks_are_final_ones() -> None:
    """latestShard and latestMeta follow finality and carry the header's fields."""
    stats = NetworkStats(3, start=0.0)
    stats.block_final(block(2, 7, at_ms=42, executed=3))
    stats.block_final(block(METACHAIN, 9, at_ms=43))
    blocks = numbers(stats, 1.0)["blocks"]
    assert blocks["latestShard"] == {
        "shardId": 2, "nonce": 7, "round": 8, "epoch": 2, "txCount": 3, "executedTxCount": 3, "timestampMs": 42,
        "leaderSignatureHex": "ab", "accumulatedFees": "5", "developerFees": "1",
    }  # fmt: skip
    assert blocks["latestMeta"] == {
        "nonce": 9, "round": 10, "epoch": 2, "txCount": 0, "executedTxCount": 0, "timestampMs": 43,
    }  # fmt: skip


def test_final_blocks_of_each_shard() -> None:
    """Each once and by its height, those after a time alone if that is asked, and no more than are kept."""
    stats = NetworkStats(2, start=0.0)
    for nonce in range(1, KEPT_FINAL + 10):
        stats.block_final(block(1, nonce, at_ms=nonce * 600, executed=nonce % 3))
    stats.block_final(block(1, KEPT_FINAL + 9, at_ms=(KEPT_FINAL + 9) * 600, executed=(KEPT_FINAL + 9) % 3, fork=1))
    stats.block_final(block(1, 3, at_ms=9))
    stats.block_final(block(METACHAIN, 4, at_ms=77))
    kept = stats.final_blocks(0).blocks
    assert [item.nonce for item in kept["1"]] == list(range(10, KEPT_FINAL + 10))
    assert kept["0"] == [] and msgspec.to_builtins(kept["meta"]) == [
        {"nonce": 4, "txCount": 0, "executedTxCount": 0, "timestampMs": 77}
    ]
    last = (KEPT_FINAL + 7) * 600
    later = stats.final_blocks(last).blocks
    assert [(item.nonce, item.tx_count) for item in later["1"]] == [
        (nonce, nonce % 3) for nonce in (KEPT_FINAL + 8, KEPT_FINAL + 9)
    ]
    assert later["meta"] == []


@pytest.mark.parametrize(("round_ms", "told", "known"), [(6_000, 25, 102), (300, KEPT_FINAL, KEPT_BLOCKS)])
def test_blocks_are_kept_for_a_time(round_ms: int, told: int, known: int) -> None:
    """As long whatever the rounds, and no more than there is room for."""
    stats = NetworkStats(1, start=0.0, rounds=Rounds(round_ms))
    for nonce in range(1, KEPT_BLOCKS + 20):
        stats.block_saved(item := block(0, nonce, at_ms=nonce * round_ms), 0.0)
        stats.block_final(item)
    assert len(stats.final_blocks(0).blocks["0"]) == told
    assert numbers(stats, 0.0)["blocks"]["duplicateNonceEvents1m"] == 0
    stats.block_saved(block(0, KEPT_BLOCKS + 20 - known, at_ms=0, fork=1), 0.0)
    assert numbers(stats, 0.0)["blocks"]["duplicateNonceEvents1m"] == 1
    stats.block_saved(block(0, KEPT_BLOCKS + 18 - known, at_ms=0, fork=1), 0.0)
    assert numbers(stats, 0.0)["blocks"]["duplicateNonceEvents1m"] == 1, "not known any more"


def test_validators_and_gossip() -> None:
    """Online are eligible keys heard in the last 15 minutes; the duplicate ratio is that of the last minute."""
    stats = NetworkStats(3, start=0.0)
    stats.validators(7, {"0": [b"a", b"b"], "meta": [b"m"]})
    stats.validators(6, {"0": [b"x"]})  # of a node that starts
    for key in (b"a", b"x"):
        stats.heartbeat("0", key, 10.0)
    stats.heartbeat("meta", b"m", 10.0)
    stats.peers(PeerNumbers(4, 100, 0), 0.0)
    stats.peers(PeerNumbers(5, 190, 10), 30.0)
    data = numbers(stats, 40.0)
    assert data["validators"]["onlineByShard"] == {"0": 1, "1": None, "2": None, "meta": 1}
    assert data["validators"]["totalOnline"] == data["network"]["activeValidators"] == 2
    assert data["network"]["connectedPeers"] == 5 and data["health"]["p2pDedupRatio1m"] == 0.1
    assert numbers(stats, 911.0)["validators"]["totalOnline"] == 0


def test_a_chain_that_began_anew_has_its_own_validators() -> None:
    """After lost events an earlier epoch's validators may be those of now, and so may an earlier block."""
    stats = NetworkStats(3, start=0.0)
    stats.validators(7, {"0": [b"a"]})
    stats.block_final(block(0, 9, at_ms=9_000))
    stats.events_lost()
    stats.validators(1, {"0": [b"b"]})
    stats.heartbeat("0", b"b", 1.0)
    stats.block_final(block(1, 5, at_ms=3_000))
    data = numbers(stats, 2.0)
    assert data["validators"]["onlineByShard"]["0"] == 1  # type: ignore[index]
    assert data["blocks"]["latestShard"]["shardId"] == 1  # type: ignore[index]


def test_the_latest_block_is_the_newest_of_all_shards() -> None:
    """A shard that is minutes behind the others has no block that is newer than theirs."""
    stats = NetworkStats(3, start=0.0)
    for item in (block(0, 9, at_ms=9_000), block(1, 5, at_ms=3_000)):
        stats.block_final(item)
    assert numbers(stats, 0.0)["blocks"]["latestShard"]["shardId"] == 0  # type: ignore[index]
    stats.block_final(block(1, 6, at_ms=9_600))
    assert numbers(stats, 0.0)["blocks"]["latestShard"]["shardId"] == 1  # type: ignore[index]


def test_active_validators_before_nodes_name_them() -> None:
    """Until an epoch's validators are named and heard of, those who made each shard's latest block are active."""
    stats = NetworkStats(3, 0.0)
    assert stats.data(1.0, 0).network.active_validators is None
    for shard, nonce, signers in ((0, 1, 400), (0, 2, 399), (1, 1, 400), (METACHAIN, 1, 63)):
        block = BlockFacts(shard, bytes([shard % 7, nonce]), b"", nonce, nonce * 6000, signers=signers)
        stats.block_saved(block, 1.0)
    assert stats.data(1.0, 0).network.active_validators == 399 + 400 + 63
    stats.validators(0, {"0": [b"a"]})
    assert stats.data(1.0, 0).network.active_validators == 399 + 400 + 63
    stats.heartbeat("0", b"a", 1.0)
    assert stats.data(1.0, 0).network.active_validators == 1


def test_completeness() -> None:
    """Nothing observed: nearly nothing is known, and dataCompleteness says how much."""
    stats = NetworkStats(3, start=0.0)
    data = numbers(stats, 0.0)
    flat = [data]
    known = total = 0
    while flat:
        for value in flat.pop().values():
            if isinstance(value, dict):
                flat.append(value)
            else:
                total, known = total + 1, known + (value is not None)
    assert data["health"]["dataCompleteness"] == pytest.approx(known / total, abs=1e-4)
    assert data["network"]["currentTps"] is None and data["health"]["streamSubscribers"] == 3


def test_blocks_read_late_are_of_no_rate_of_now() -> None:
    """What is read after an outage moves the newest block on, and counts in no rate, gap or block time of now."""
    stats = NetworkStats(3, 0.0)
    for nonce in range(1, 200):
        whole(stats, block(0, nonce, at_ms=nonce * 6000, executed=50), 100.0, age=LATE_SECONDS + 600)
    whole(stats, block(0, 250, at_ms=1_500_000, executed=5), 100.0, age=LATE_SECONDS)
    whole(stats, block(0, 250, at_ms=1_500_000, fork=1), 100.0, age=LATE_SECONDS)
    whole(stats, block(0, 251, at_ms=1_506_000, executed=30), 100.0, age=LATE_SECONDS - 1)
    shown = numbers(stats, 100.0)
    assert shown["network"]["avgTps10s"] == 3.0 and shown["network"]["avgTps30s"] == 1.0
    assert shown["network"]["currentTps"] == 5.0
    assert shown["blocks"]["nonceGapEvents1m"] == shown["blocks"]["duplicateNonceEvents1m"] == 0
    assert shown["blocks"]["blockTimeMsP50ByShard"]["0"] == 6000
    assert shown["mempool"]["inclusionTps"] == 3.0


async def test_what_the_hub_had_before_is_late(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of an hour ago that a hub hands over after an outage are none of this moment; what comes then is."""
    service = await world.start()
    await world.stop()
    maker = BlockMaker(1)
    txs = [transfer(wallet(1), nonce) for nonce in range(7)]
    world.hub.save(maker.block(txs[:5]))
    service = await world.start()
    ages: list[float] = []
    told = service.statistics.block_saved
    monkeypatch.setattr(service.statistics, "block_saved", lambda *of: (ages.append(of[-1]), told(*of)))
    world.hub.save(maker.block(txs[5:]))
    await until(lambda: service.statistics.numbers.data(time.monotonic(), 0).blocks.latest_shard.nonce == 2)
    assert ages[-1] == 0.0, "live"
    assert service.events.taken == 4 and service.statistics.numbers._inclusion.total == 2


def test_what_is_too_short_for_a_transaction_is_none() -> None:
    """A gossip message of many crumbs costs no hashes and makes no queue; a transaction among them counts."""
    stats = Statistics(NETWORK)
    crumbs = [number.to_bytes(3, "big") for number in range(1, 100_000)]
    real = to_proto(transfer(wallet(1)))
    for batch in (crumbs, [*crumbs[:10], real, real]):
        stats.gossip_message("transactions_1_1", gossip.wrap_transactions(batch, int(time.time())))
    mempool = stats.payload(0)["mempool"]
    assert mempool["estimatedQueue"] == 1 and stats.numbers._ingress.total == 1
