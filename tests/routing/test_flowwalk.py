"""The compiled walk of a flow gives the very plan that Python's walk gives, or leaves it to that."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.call import TokenPayment
from millrace.dex import aggregator_contract as contract
from millrace.dex.constant_product import FeeDestination, JexPool, OneDexPool, TrustedPair, XExchangePool
from millrace.dex.pool import Pool
from millrace.dex.stable import JexStablePool
from millrace.dex.vault import DictMarket
from millrace.dex.vault import execute as run_contract
from millrace.routing import net as nets
from millrace.routing.candidates import Search
from millrace.routing.execution import Walked, execute
from millrace.routing.flowwalk import FlowWalker
from millrace.routing.kernelsearch import Flow
from millrace.routing.outlets import NONE, Outlets, enough, find_outlets
from millrace.routing.plan import Ends, PlanError, make_program
from millrace.routing.tables import BITS, make_terms
from millrace.routing.venue import CurveCache, Trade, list_edges
from millrace.routing.walk import Walker

MANY = 6  # trades
TOKENS = [f"TOK{letter}-00000{k}" for k, letter in enumerate("ABCDEF")]


def make_pool(rng: random.Random, number: int, i: int, j: int, bits: int) -> Pool:
    """A pool of any exchange with reserves of about `bits` bits."""
    reserves = (max(1, rng.getrandbits(bits)), max(1, rng.getrandbits(bits)))
    common = {"id": str(number), "address": number.to_bytes(32, "big"), "tokens": (TOKENS[i], TOKENS[j])}
    common["reserves"] = reserves
    fee = rng.choice([0, 1, 30, 300, 5000, 9999])
    exchange = rng.randrange(3)
    if exchange == 0:
        base = rng.choice([10_000, 100_000, 10**6])
        return XExchangePool(**common, total_fee=fee, special_fee=0, fee_base=base)
    if exchange == 1:
        main = (rng.random() < 0.5, rng.random() < 0.5)
        return OneDexPool(**common, pair_id=number, total_fee=fee, special_fee=0, staking_fee=0, main=main)
    return JexPool(**common, lp_fee=fee // 2, platform_fee=rng.randint(0, 5000))


class Market:
    """Trades from tokens to later ones, as a flow's are, over pools of their own."""

    def __init__(self, pools: list[Pool], outlets: Outlets = NONE) -> None:
        self.outlets = outlets
        index = {token: k for k, token in enumerate(TOKENS)}
        edges, trades = list_edges(pools, index, CurveCache())
        graph = nets.build(len(TOKENS), edges)
        self.trades = [trades[k] for k in graph.original.tolist()]
        self.tables = make_terms(trades, outlets).of(graph)
        self.walker = FlowWalker(self.tables, outlets)

    def flow(self, chosen: list[Trade], rng: random.Random) -> Flow:
        """A flow over these trades, each with an input of any size."""
        return self.flow_of(chosen, [10.0 ** rng.uniform(-3, 3) for _ in chosen])

    def flow_of(self, chosen: list[Trade], inputs: list[float]) -> Flow:
        """A flow over these trades with these inputs."""
        return Flow(chosen, np.array([self.trades.index(trade) for trade in chosen], np.int32), np.array(inputs))

    def walk(self, flow: Flow, amount: int, sink: int, whole: float | None = None, hops: int = 10) -> Walked | None:
        """The compiled walk of what is sold for the first token."""
        none = np.zeros(0)
        amounts = np.array([0.0 if whole is None else whole])
        source = np.zeros(1, np.int32)
        search = Search(source, amounts, sink, whole is not None, -1, -1, none, none, 1.0, closed=False)
        return self.walker.walk(flow, search, amount, hops)


def plan(walked: Walked | None) -> tuple[object, ...] | None:
    """All of a plan in a form that can be compared."""
    if walked is None:
        return None
    lists = (walked.trades, walked.modes, walked.values, walked.sold, walked.bought)
    return (walked.amount_in, walked.amount_out, *map(list, lists))


def in_python(flow: Flow, amount: int, sink: int, whole: float | None = None) -> Walked | None:
    """The same walk in Python; None where it fails."""
    try:
        return execute(flow.trades, flow.inputs.tolist(), {TOKENS[0]: amount}, TOKENS[sink], whole)
    except PlanError:
        return None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, BITS + 3), st.integers(1, BITS + 3), st.booleans())
def test_plans_are_those_of_python(seed: int, count: int, bits: int, bits_in: int, cycle: bool) -> None:
    """All modes, values, inputs and outputs are equal, for all exchanges and widths up to the border and beyond.

    It is left to Python only where a trade is too thin for integers, and where amounts are as wide as the border says.
    """
    rng = random.Random(seed)
    pairs = sorted([sorted(rng.sample(range(len(TOKENS)), 2)) for _ in range(count)])
    if cycle:  # what is bought last is what was sold first
        pairs = [(i, 0) if j == len(TOKENS) - 1 else (i, j) for i, j in pairs]
        pairs = [(i, j) for i, j in pairs if i != j]
    market = Market([make_pool(rng, k, i, j, bits) for k, (i, j) in enumerate(pairs)])
    chosen = [next(t for t in market.trades if t.pool.id == str(k) and t.i == 0) for k in range(len(pairs))]
    flow, amount, sink = market.flow(chosen, rng), max(1, rng.getrandbits(bits_in)), 0 if cycle else len(TOKENS) - 1
    whole = 2.0 * float(flow.inputs.sum()) if cycle else None
    expected, found = in_python(flow, amount, sink, whole), market.walk(flow, amount, sink, whole)
    if found is not None:
        assert plan(found) == plan(expected)
    elif expected is not None and len(expected.trades) == len(chosen):
        assert max(bits, bits_in) > BITS - 6  # forty pools pay no more than 2^6 times a reserve


def deep_pools(pairs: list[tuple[int, int]]) -> list[Pool]:
    """xExchange pools of the same depth."""
    return [
        XExchangePool(
            id=str(k),
            address=k.to_bytes(32, "big"),
            tokens=(TOKENS[i], TOKENS[j]),
            reserves=(10**24, 10**24),
            total_fee=300,
            special_fee=50,
        )
        for k, (i, j) in enumerate(pairs)
    ]


def test_the_widest_amounts_that_fit_are_walked_and_wider_ones_left_to_python() -> None:
    """An input of as many bits as allowed is exact; a unit more is left to Python. A pool a unit deeper is asked."""
    pairs = [(0, 1)] * MANY
    edge = (1 << BITS) - 1
    pools = [pool.with_reserves((edge, edge)) for pool in deep_pools(pairs)]
    market = Market(pools)
    flow = market.flow([t for t in market.trades if t.i == 0], random.Random(1))
    assert plan(market.walk(flow, edge, 1)) == plan(in_python(flow, edge, 1)) is not None
    assert market.walk(flow, edge + 1, 1) is None
    deeper = Market([*pools[:-1], pools[-1].with_reserves((edge + 1, edge))])
    flow = deeper.flow([t for t in deeper.trades if t.i == 0], random.Random(1))
    assert plan(deeper.walk(flow, 10**18, 1)) == plan(in_python(flow, 10**18, 1)) is not None


def test_a_pool_that_pays_more_than_fits_is_left_to_python() -> None:
    """What a pool asked says may be wider than the kernel's words."""
    market = Market([*deep_pools([(0, 1)] * MANY)[1:], deep_pools([(0, 1)])[0].with_reserves((10**3, 1 << BITS + 2))])
    flow = market.flow_of([t for t in market.trades if t.i == 0], [1.0] * MANY)
    assert market.walk(flow, 10**24, 1) is None
    assert in_python(flow, 10**24, 1) is not None


def test_a_pool_used_twice_is_left_to_python() -> None:
    """The second trade meets the pool as the first left it, which the compiled walk does not know."""
    market = Market(deep_pools([(0, 1)] * MANY))
    there = [t for t in market.trades if t.i == 0]
    back = [t for t in market.trades if t.i == 1][:1]
    flow = market.flow([*there, *back], random.Random(2))
    assert market.walk(flow, 10**20, 0) is None
    assert plan(market.walk(market.flow(there, random.Random(2)), 10**20, 1)) is not None


def stable_pool(number: int, i: int, j: int) -> JexStablePool:
    """A pool of whose output the kernel knows nothing."""
    return JexStablePool(
        id=str(number),
        address=number.to_bytes(32, "big"),
        tokens=(TOKENS[i], TOKENS[j]),
        reserves=(10**24, 10**24),
        decimals=(18, 18),
        prices=(10**18, 10**18),
        amp=100,
        swap_fee=400,
        liquidity_fee=200,
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 20), st.integers(1, 82))
def test_curved_pools_are_asked(seed: int, count: int, bits: int) -> None:
    """Among others, wherever they stand in the flow: the plan is that of Python, to which too thin trades are left."""
    rng = random.Random(seed)
    pairs = sorted([sorted(rng.sample(range(len(TOKENS)), 2)) for _ in range(count)])
    market = Market(
        [
            stable_pool(k, i, j) if rng.random() < 0.3 else make_pool(rng, k, i, j, rng.randint(2, 80))
            for k, (i, j) in enumerate(pairs)
        ]
    )
    chosen = [next(t for t in market.trades if t.pool.id == str(k) and t.i == 0) for k in range(len(pairs))]
    flow, amount, sink = market.flow(chosen, rng), max(1, rng.getrandbits(bits)), len(TOKENS) - 1
    expected, found = in_python(flow, amount, sink), market.walk(flow, amount, sink)
    whole = expected is not None and len(expected.trades) == len(chosen)
    assert plan(found) == (plan(expected) if whole else None)


def test_paths_of_too_many_pools_are_refused() -> None:
    """A flow whose longest path has more pools than allowed is no plan; one of just as many is."""
    market = Market(deep_pools([(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3), (3, 4)]))
    chosen = sorted((t for t in market.trades if t.i == 0), key=lambda t: (t.token_in, t.token_out))
    flow = market.flow(chosen, random.Random(4))
    with pytest.raises(PlanError):
        market.walk(flow, 10**20, 4, hops=3)
    assert market.walk(flow, 10**20, 4, hops=4) is not None


def test_trades_too_thin_for_integers_are_dropped_with_what_they_led_to() -> None:
    """A trade that sells less than a unit goes, and so do those that nothing reaches any more; the rest is a plan."""
    market = Market(deep_pools([(0, 1), (1, 2), (2, 4), *[(0, 4)] * MANY]))
    chosen = sorted((t for t in market.trades if t.i == 0), key=lambda t: int(t.pool.id))
    chosen = [chosen[0], *chosen[3:], chosen[1], chosen[2]]
    flow = market.flow_of(chosen, [1e-9] + [1.0] * MANY + [1e-9, 1e-9])
    assert market.walk(flow, 10**6, 4) is None  # it is left to Python
    found = in_python(flow, 10**6, 4)
    assert found is not None
    assert len(found.trades) == MANY


def test_a_walk_remembers_nothing_of_the_one_before() -> None:
    """Used and fresh scratch memory give the same, also after a walk that failed halfway."""
    market = Market(deep_pools([(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3), (3, 4)]))
    chosen = sorted((t for t in market.trades if t.i == 0), key=lambda t: (t.token_in, t.token_out))
    flow = market.flow(chosen, random.Random(5))
    with pytest.raises(PlanError):
        market.walk(flow, 10**20, 4, hops=2)
    used = market.walk(flow, 10**19, 4)
    market.walker = FlowWalker(market.tables)
    assert plan(used) == plan(market.walk(flow, 10**19, 4)) == plan(in_python(flow, 10**19, 4)) is not None


def test_fixed_amounts_and_parts_are_chosen_as_the_contract_wants_them() -> None:
    """The input is divided into fixed amounts, other tokens into parts per million; the last sale takes all."""
    market = Market(deep_pools([(0, 1), (0, 1), (0, 1), (1, 2), (1, 2), (1, 2)]))
    chosen = sorted((t for t in market.trades if t.i == 0), key=lambda t: (t.token_in, t.token_out))
    found = market.walk(market.flow_of(chosen, [1.0] * 6), 3 * 10**6, 2)
    assert found is not None
    assert list(found.modes) == [contract.FIXED, contract.FIXED, contract.ALL, contract.PPM, contract.PPM, contract.ALL]
    assert found.values[:2] == [999_999, 1_000_000]  # a third, and what is left to two thirds
    assert found.values[3:5] == [333_333, 500_000]


def slicing_market(rng: random.Random, pairs: list[tuple[int, int]]) -> tuple[list[Pool], DictMarket]:
    """xExchange pairs that burn slices of their fees, sell them, and sell them in each other."""
    made: list[Pool] = []
    for k, (i, j) in enumerate(pairs):
        own = (TOKENS[i], TOKENS[j])
        near = [(n, pair) for n, pair in enumerate(pairs) if n != k and len({*pair} & {i, j}) == 1]
        trusted = [
            TrustedPair((TOKENS[a], TOKENS[b]), n.to_bytes(32, "big")) for n, (a, b) in rng.sample(near, len(near))
        ][:2]
        wanted = [*own, *({*trusted[0].tokens} - {*own} if trusted else ())]
        made.append(
            XExchangePool(
                id=str(k),
                address=k.to_bytes(32, "big"),
                tokens=own,
                reserves=(rng.randrange(10**3, 10 ** rng.randrange(6, 24)), rng.randrange(10**3, 10**20)),
                total_fee=1_000,
                special_fee=rng.choice([0, 50, 500]),
                fees_collector=rng.choice([b"", b"c" * 32]),
                fees_collector_cut=rng.choice([0, 50_000, 99_000]),
                fee_destinations=tuple(FeeDestination(bytes(32), rng.choice(wanted)) for _ in range(rng.randrange(3))),
                trusted_pairs=tuple(trusted),
            )
        )
    return made, DictMarket(made, TOKENS[0])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 14), st.integers(1, 90))
def test_what_is_walked_is_what_the_contract_pays_whatever_slices_of_fees_do(seed: int, count: int, bits: int) -> None:
    """Both walks pay what the contract pays on the same plan, pairs used twice and pairs sold in included."""
    rng = random.Random(seed)
    every = [(i, j) for i in range(len(TOKENS)) for j in range(i + 1, len(TOKENS))]
    pools, book = slicing_market(rng, rng.sample(every, min(count, len(every))))
    market = Market(pools, find_outlets(pools, book))
    forward = [trade for trade in market.trades if trade.i == 0]
    chosen = sorted(forward + rng.sample(forward, rng.randrange(3)), key=lambda t: (t.token_in, t.token_out))
    flow, amount, sink = market.flow(chosen, rng), max(1, rng.getrandbits(bits)), len(TOKENS) - 1
    try:
        expected = execute(flow.trades, flow.inputs.tolist(), {TOKENS[0]: amount}, TOKENS[sink], outlets=market.outlets)
    except PlanError:
        expected = None
    found = market.walk(flow, amount, sink)
    if found is not None:
        assert plan(found) == plan(expected)
    if expected is not None:
        program = make_program(expected.execution().legs, Ends(TOKENS[0], TOKENS[sink]), "", 0, 0)
        done = run_contract(program, [TokenPayment(TOKENS[0], 0, amount)], book)
        assert done.amount_out == expected.amount_out
        legs = list(expected.execution().legs)
        assert Walker.replay(legs, TOKENS[0], amount, market.outlets).done(TOKENS[sink]).amount_out == done.amount_out


def test_a_pair_that_another_one_sells_its_fee_in_is_left_to_python() -> None:
    """In either order, if both are in the flow; alone each is walked."""
    pools = deep_pools([(0, 1)] * MANY + [(1, 2)])
    sold_in = pools[-1]
    trusted = (TrustedPair((TOKENS[1], TOKENS[2]), sold_in.address),)
    pools[0] = msgspec.structs.replace(
        pools[0],
        fees_collector=b"",
        fee_destinations=(FeeDestination(bytes(32), TOKENS[2]),),
        trusted_pairs=trusted,
    )
    market = Market(pools, find_outlets(pools, DictMarket(pools, TOKENS[0])))
    there = [trade for trade in market.trades if trade.i == 0 and trade.pool is not sold_in]
    onward = next(trade for trade in market.trades if trade.i == 0 and trade.pool is sold_in)
    rng = random.Random(1)
    assert market.walk(market.flow(there, rng), 10**20, 1) is not None
    assert market.walk(market.flow([*there, onward], rng), 10**20, 2) is None
    others = [trade for trade in there if trade.pool is not pools[0]]
    assert market.walk(market.flow([*others, onward], rng), 10**20, 2) is not None


def test_pools_whose_slices_may_sell_for_nothing_are_asked() -> None:
    """Below what is surely enough, and above the reserve; where another pool has a say, it is left to Python."""
    pools = deep_pools([(0, 1)] * MANY + [(1, 2)])
    pools[0] = msgspec.structs.replace(
        pools[0].with_reserves((10**24, 10**18)),
        fees_collector=b"",
        fee_destinations=(FeeDestination(bytes(32), TOKENS[1]),),
        trusted_pairs=(),
    )
    elsewhere = msgspec.structs.replace(
        pools[0],
        fee_destinations=(FeeDestination(bytes(32), TOKENS[2]),),
        trusted_pairs=(TrustedPair((TOKENS[1], TOKENS[2]), pools[-1].address),),
    )
    for first, is_asked in ((pools[0], True), (elsewhere, False)):
        chosen = [first, *pools[1:]]
        market = Market(chosen, find_outlets(chosen, DictMarket(chosen, TOKENS[0])))
        there = sorted([t for t in market.trades if (t.i, t.token_in) == (0, TOKENS[0])], key=lambda t: int(t.pool.id))
        least = enough(first, 0, market.outlets)
        assert least is not None
        assert least > 1
        flow = market.flow_of(there, [1.0] * MANY)
        for amount in (MANY * (least - least // 100), MANY * 2 * 10**24):
            found = market.walk(flow, amount, 1)
            assert plan(found) == (plan(in_python(flow, amount, 1)) if is_asked else None)
        assert market.walk(flow, MANY * (least + least // 100), 1) is not None
