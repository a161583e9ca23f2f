"""The floor under every answer: the best single path in whole units."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.constant_product import JexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.routing.exactpath import LABELS, NEWEST, Looks, NeedsTime, _among_best, _pop, _push, needed
from millrace.routing.plan import PlanError
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute, Router
from millrace.routing.scratch import make
from millrace.routing.venue import Trade
from synthetic import make_market

WRAPPED = "WEGLD-bd4d79"
TOKENS = [WRAPPED, *(f"TK{k}-00000{k}" for k in range(5))]
DECIMALS = [18, 2, 6, 2, 8, 4]


def small_market(seed: int) -> list[Pool]:
    """A few pools between tokens of 2 to 18 decimals: prices off by up to a tenth, some next to empty."""
    rng = random.Random(seed)
    prices = [10 ** rng.uniform(-2, 2) for _ in TOKENS]
    pools: list[Pool] = []
    for number in range(rng.randrange(4, 11)):
        a, b = rng.sample(range(len(TOKENS)), 2)
        depth = 10 ** rng.uniform(-1, 5)
        reserves = (
            max(2, int(depth / prices[a] * 10 ** DECIMALS[a])),
            max(2, int(depth / prices[b] * 10 ** DECIMALS[b] * rng.uniform(0.9, 1.1))),
        )
        common = {"address": bytes([number + 1]) * 32, "tokens": (TOKENS[a], TOKENS[b]), "reserves": reserves}
        if rng.random() < 0.5 and not any(set(pool.tokens) == {TOKENS[a], TOKENS[b]} for pool in pools):
            pools.append(XExchangePool(id=f"x:{number}", **common, total_fee=300, special_fee=50))  # type: ignore[arg-type]
        else:
            pools.append(JexPool(id=f"j:{number}", **common, lp_fee=20, platform_fee=10))  # type: ignore[arg-type]
    return pools


def simple_paths(pools: list[Pool], token_in: str, token_out: str, hops: int) -> list[list[Trade]]:
    """Every path without a token twice."""
    found: list[list[Trade]] = []

    def extend(path: list[Trade], token: str, seen: frozenset[str]) -> None:
        if token == token_out:
            found.append(path)
        elif len(path) < hops:
            for pool in pools:
                for i, j in ((0, 1), (1, 0)):
                    if pool.tokens[i] == token and pool.tokens[j] not in seen:
                        extend([*path, Trade(pool, i, j)], pool.tokens[j], seen | {pool.tokens[j]})

    extend([], token_in, frozenset({token_in}))
    return found


def pays(path: list[Trade], amount: int) -> int:
    """What the path pays; 0 where a pool refuses."""
    for trade in path:
        amount = trade.pays(amount) if amount else 0
    return amount


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 4), st.sampled_from(["greedy", "lagrangian", "hybrid"])
)
def test_no_answer_is_below_the_best_single_path(seed: int, size: int, hops: int, algorithm: str) -> None:
    """Whatever the decimals, dust and prices: a pair that any path serves is answered, with no less than it pays."""
    pools = small_market(seed)
    planner = Planner(pools, DictMarket(pools, WRAPPED))
    amount = max(1, int(1.9**size))
    usable = [pool for pool in pools if any(trade.pool is pool for trade in planner.router._trades)]
    paths = simple_paths(usable, TOKENS[0], TOKENS[1], hops)
    floor = max((pays(path, amount) for path in paths), default=0)
    try:
        limits = Limits(pools=10, paths=3, hops=hops)
        done = planner.forward(TOKENS[0], TOKENS[1], amount, limits, algorithm)  # type: ignore[arg-type]
    except (NoRoute, PlanError):
        assert floor == 0
        return
    assert done.execution.amount_out >= floor


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 10**9))
def test_the_needed_input_is_the_smallest(seed: int, wanted: int) -> None:
    """A path's exact inverse pays what is wanted, and one unit less does not."""
    rng = random.Random(seed)
    pools = small_market(seed)
    paths = simple_paths(pools, TOKENS[0], TOKENS[1], 3)
    if not paths:
        return
    path = rng.choice(paths)
    try:
        amount = needed(path, wanted)
    except PoolError:
        return
    assert pays(path, amount) >= wanted
    assert pays(path, amount - 1) < wanted


def test_dust_pools_that_alone_connect_are_used() -> None:
    """A pool with next to nothing is left out only where the market stays connected without it."""

    def pool(name: str, tokens: tuple[str, str], reserves: tuple[int, int]) -> Pool:
        number = int(name.split(":")[1])
        return JexPool(
            id=name, address=bytes([number]) * 32, tokens=tokens, reserves=reserves, lp_fee=20, platform_fee=10
        )

    left = pool("j:1", (TOKENS[0], TOKENS[1]), (10**24, 10**24))
    bridge = pool("j:2", (TOKENS[1], TOKENS[2]), (5_000, 5_000))
    right = pool("j:3", (TOKENS[2], TOKENS[3]), (10**24, 10**24))
    pools = [left, bridge, right]
    planner = Planner(pools, DictMarket(pools, WRAPPED))
    assert planner.forward(TOKENS[0], TOKENS[3], 1000, Limits(), "hybrid").execution.amount_out > 0
    with pytest.raises(PlanError):
        planner.forward(TOKENS[0], TOKENS[3], 1, Limits(), "hybrid")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(0, 12), st.integers(0, 8))
def test_a_search_in_a_hurry_gives_the_same_answer_or_none(seed: int, size: int, allowed: int) -> None:
    """Where a search is not done after so many trades it says so; else it finds what it would with all the time."""
    pools = small_market(seed)
    router = Planner(pools, DictMarket(pools, WRAPPED)).router
    token_in, token_out = pools[0].tokens[0], pools[-1].tokens[1]
    if token_in == token_out or not router.connected(token_in, token_out):
        return
    patient = router.exact_path(token_in, token_out, 10**size, Limits())
    try:
        assert router.exact_path(token_in, token_out, 10**size, Limits(), allowed=allowed) == patient
    except NeedsTime:
        assert allowed < 100


@pytest.mark.parametrize(
    ("pools", "seed", "token_in", "token_out", "amount"),
    [
        (30, 5165, "TK3X-1dbdec", "WEGLD-bd4d79", 3717803811036),
        (200, 5549, "TK25X-b0de17", "WEGLD-bd4d79", 40364664463360),
    ],
)
def test_two_pools_that_round_in_favour_of_one_token_are_found(
    pools: int, seed: int, token_in: str, token_out: str, amount: int
) -> None:
    """Units that a pool pays too many and units that the next one takes no fee of add up: no such path is cut off."""
    market = make_market(pools, seed=seed, noise=0.003)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    path = router.exact_path(token_in, token_out, amount, Limits())
    assert path is not None
    paid = amount
    for trade in path:
        paid = trade.pays(paid)
    assert router.forward(token_in, token_out, amount, Limits(), "hybrid").execution.amount_out >= paid


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(0, 26), st.sampled_from([0.0, 1e-9, 1e-5]))
def test_whoever_makes_the_trades_the_path_is_the_same(seed: int, size: int, toll: float) -> None:
    """Where Python is asked what each trade pays the search finds what it does with the kernels' formulas."""
    pools = small_market(seed)
    token_in, token_out = pools[0].tokens[0], pools[-1].tokens[1]
    routers = [Router(pools, DictMarket(pools, WRAPPED)) for _ in range(2)]
    if not routers[0].connected(token_in, token_out):
        return
    finder = routers[1]._finder
    finder._field = finder._field._replace(terms=np.zeros_like(finder._field.terms))
    paths = [router.exact_path(token_in, token_out, 10**size, Limits(toll=toll)) for router in routers]
    known, asked = ([(trade.pool.id, trade.i) for trade in path or ()] for path in paths)
    assert known == asked


def test_more_than_any_token_has_of_units_is_no_trouble() -> None:
    """What 128 bits cannot hold is sold, and a trade that would pay as much is left out."""
    huge = 10**60
    pools: list[Pool] = [
        JexPool(id=f"j:{k}", address=bytes([k + 1]) * 32, tokens=(TOKENS[k], TOKENS[k + 1]), reserves=reserves,
                lp_fee=20, platform_fee=10)
        for k, reserves in enumerate([(huge, 10**30), (10**30, 10**30), (10**30, huge), (huge, 10**20)])
    ]  # fmt: skip
    router = Router(pools, DictMarket(pools, WRAPPED))
    path = router.exact_path(TOKENS[0], TOKENS[2], huge, Limits())
    assert path is not None
    assert pays(path, huge) > 10**29
    assert router.exact_path(TOKENS[0], TOKENS[4], huge, Limits()) is None
    assert router.exact_path(TOKENS[0], TOKENS[2], huge, Limits(), floor=huge) is None


def test_a_hub_with_many_pools_takes_no_more_than_twice_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a token with hundreds of pools only the most promising are looked at; with budget enough the path is found."""
    spokes = [f"SPOKE{chr(65 + k // 26)}{chr(65 + k % 26)}-000000" for k in range(300)]
    pools: list[Pool] = [
        XExchangePool(
            id=f"{end}:{spoke}",
            address=(2 * number + end + 1).to_bytes(32, "big"),
            tokens=(TOKENS[end], spoke),
            reserves=(10**33, 10**33 + number),  # so much that Python makes the trades, and can be counted
            total_fee=300,
            special_fee=50,
        )
        for number, spoke in enumerate(spokes)
        for end in (0, 1)
    ]
    router = Router(pools, DictMarket(pools, WRAPPED))
    looks, exact = 0, Trade.pays

    def counted(trade: Trade, amount: int) -> int:
        nonlocal looks
        looks += 1
        return exact(trade, amount)

    monkeypatch.setattr(Trade, "pays", counted)
    assert router.exact_path(TOKENS[0], TOKENS[1], 10**20, Limits(), budget=40) is None
    assert 40 <= looks <= 80
    looks = 0
    path = router.exact_path(TOKENS[0], TOKENS[1], 10**20, Limits(), budget=400)
    assert path is not None
    assert len(path) == 2
    assert looks <= 800


@pytest.mark.parametrize("seed", range(20))
def test_what_promises_most_comes_first_and_of_equals_the_older(seed: int) -> None:
    """Whatever is added in between: the order decides which of equal paths is found, so answers are the same bytes."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 12, 60).astype(float)  # many are equal
    heap, size, inside = np.empty(len(keys), np.int32), 0, set()
    waiting = list(rng.permutation(len(keys)).tolist())
    while waiting or inside:
        if waiting and (not inside or rng.random() < 0.6):
            item = waiting.pop()
            _push(heap, size, keys, item)
            size += 1
            inside.add(item)
        else:
            first = min(inside, key=lambda item: (-keys[item], item))
            assert _pop(heap, size, keys) == first
            size -= 1
            inside.remove(first)
    assert size == 0


@pytest.mark.parametrize(("smaller", "is_kept"), [(0, False), (NEWEST - LABELS, False), (NEWEST, True)])
def test_an_amount_is_compared_with_the_newest_only(smaller: int, is_kept: bool) -> None:
    """However many amounts have reached a token, the work for one more is bounded; one kept in vain costs a look."""
    x = make(Looks, tokens=1, edges=1, widest=1, labels=100)
    amounts = [9] * LABELS + [1] * smaller
    x.amount[: len(amounts), 0], x.amount[: len(amounts), 1] = 0, amounts
    x.left[:], x.taken[:] = 0.0, 0.0
    x.other[: len(amounts)] = range(-1, len(amounts) - 1)
    x.reached[0] = len(amounts) - 1
    assert bool(_among_best(x, 0, (np.uint64(0), np.uint64(5)), 0.0, 0.0)) is is_kept
