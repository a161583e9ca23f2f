"""Rounding in the trader's favour: what a trade can gain over its curve is no less than what it does gain."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.favour import favour
from millrace.routing.router import Limits, Router
from millrace.routing.venue import Trade, constant_product_curve

TOKENS = ("AAA-000001", "BBB-000002")
reserves = st.integers(1_000, 10**9)


def pools(first: int, second: int, fee: int, *, main: bool) -> list[Pool]:
    """One pool of each exchange with a closed formula."""
    common = {"address": bytes(31) + b"\x01", "tokens": TOKENS, "reserves": (first, second)}
    return [
        XExchangePool(id="x", **common, total_fee=fee, special_fee=0),  # type: ignore[arg-type]
        OneDexPool(
            id="o",
            **common,  # type: ignore[arg-type]
            pair_id=1,
            total_fee=fee,
            special_fee=0,
            staking_fee=0,
            main=(main, not main),
        ),
        JexPool(id="j", **common, lp_fee=fee // 2, platform_fee=fee // 3),  # type: ignore[arg-type]
    ]


@given(reserves, reserves, st.integers(1, 10**9), st.integers(0, 5_000), st.booleans())
def test_no_trade_beats_its_curve_by_more_than_its_favour(
    first: int, second: int, amount: int, fee: int, main: bool
) -> None:
    """What a pool pays is at most what its curve pays for the input with the favour, and the favour on the output."""
    for pool in pools(first, second, fee, main=main):
        trade = Trade(pool, 0, 1)
        more = favour(trade)
        a, r, _ = constant_product_curve(pool, 0, 1)
        sold = amount + more.sold
        assert trade.pays(amount) <= (r * sold / (a + sold) + more.bought) * (1.0 + 1e-12)


def test_a_fee_of_less_than_a_unit_is_no_fee_and_the_bound_says_so() -> None:
    """Where few units are traded, pools that withhold nothing pay more than their curves, but not than the bound."""
    some = [*pools(10**6, 10**6, 3_000, main=True)[1:]]
    router = Router(some, DictMarket(some, TOKENS[0]))
    for amount in range(2, 60):
        route = router.forward(*TOKENS, amount, Limits(), "hybrid")
        best = max(pool.amount_out(0, 1, amount) for pool in some)
        assert best <= route.execution.amount_out <= route.bound() * (1.0 + 1e-12)


def test_what_several_fees_leave_out_on_one_path_is_within_the_bound() -> None:
    """Each of two fees is less than the path is worse, and both together are more: the bound holds for it, too."""
    names = ("AAA-000001", "BBB-000002", "CCC-000003")
    deep = 10**15
    common = {"total_fee": 40, "special_fee": 0, "staking_fee": 0, "address": bytes(31) + b"\x01"}
    chain: list[Pool] = [
        OneDexPool(
            id=f"o{k}",
            tokens=(names[k], names[k + 1]),
            reserves=(deep, deep * (10**6 if k else 1)),
            pair_id=k,
            main=(True, False),
            **common,  # type: ignore[arg-type]
        )
        for k in range(2)
    ]
    reserves = (deep, deep * 10**6 * 994 // 1000)  # worse than the chain without its fees, better than with one of them
    ends = names[0], names[2]
    chain.append(JexPool(id="j", address=bytes(31) + b"\x02", tokens=ends, reserves=reserves, lp_fee=0, platform_fee=0))
    router = Router(chain, DictMarket(chain, names[0]))
    for amount in (249, 300, 1_000, 100_000):
        free = min(amount, 249)  # of so much a fee of 40 in 10 000 is less than a unit
        first = chain[0].swap(0, 1, free)
        best = chain[1].amount_out(0, 1, first.amount_out)
        best += chain[2].amount_out(0, 1, amount - free) if amount > free else 0
        for algorithm in ("greedy", "lagrangian", "hybrid"):
            route = router.forward(*ends, amount, Limits(), algorithm)
            assert best <= route.bound() * (1.0 + 1e-12)


@given(st.integers(0, 10**6), st.integers(1, 3_000))
@settings(max_examples=60)
def test_no_path_gains_more_than_each_of_its_trades_as_the_best_one(seed: int, amount: int) -> None:
    """A path pays at most what its curves pay, and the largest gain of a trade for each of its pools."""
    some = few_units(random.Random(seed))
    router = Router(some, DictMarket(some, NAMES[0]))
    search, favours = router.search(NAMES[0], NAMES[1], amount), router._favours
    assert favours is not None
    assume(search.closed)
    for path in simple_paths(router._trades, NAMES[0], NAMES[1]):
        most = along(path, amount, exact=False) + len(path) * favours.of_one(search)
        assert along(path, amount, exact=True) <= most * (1.0 + 1e-9)


NAMES = [f"TOK{k}-00000{k}" for k in range(4)]
HOPS = 3


def few_units(rng: random.Random) -> list[Pool]:
    """Pools between any two of few tokens, all at about one price, that hold few units."""
    found: list[Pool] = []
    for k, ends in enumerate([*itertools.combinations(NAMES, 2)] * 2):
        depth = rng.randrange(1_000, 10**6)
        reserves = (depth, depth + rng.randrange(-depth // 1_000, depth // 1_000 + 1))
        common = {"address": bytes(30) + b"\x01" + bytes([k]), "tokens": ends, "reserves": reserves}
        found.append(
            JexPool(id=f"j{k}", **common, lp_fee=rng.randrange(80), platform_fee=10)  # type: ignore[arg-type]
            if rng.random() < 0.5
            else OneDexPool(
                id=f"o{k}",
                **common,  # type: ignore[arg-type]
                pair_id=k + 1,
                total_fee=rng.choice((40, 100)),
                special_fee=0,
                staking_fee=0,
                main=(rng.random() < 0.5, False),
            )
        )
    return found


def simple_paths(trades: Sequence[Trade], source: str, sink: str, seen: tuple[str, ...] = ()) -> Iterator[list[Trade]]:
    """All paths of at most `HOPS` trades that meet no token twice."""
    for trade in trades:
        if trade.token_in != source or trade.token_out in (*seen, source):
            continue
        if trade.token_out == sink:
            yield [trade]
        elif len(seen) + 1 < HOPS:
            for rest in simple_paths(trades, trade.token_out, sink, (*seen, source)):
                yield [trade, *rest]


def along(path: list[Trade], amount: float, *, exact: bool) -> float:
    """What a path pays in whole units, or by its curves."""
    for trade in path:
        if exact:
            amount = trade.pays(int(amount))
        else:
            a, r, _ = constant_product_curve(trade.pool, trade.i, trade.j)
            amount = r * amount / (a + amount)
    return amount
