"""Edges describe pools: the fast exact formula equals the pool, the float curve is close to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.dex.stable import StablePool
from millrace.routing import net as nets
from millrace.routing.curve import crypto_knots, sampled_knots, stable_knots
from millrace.routing.edge import edge_out
from millrace.routing.net import Edges, Graph, Knots
from millrace.routing.router import Limits, Router
from millrace.routing.venue import Trade, constant_product_curve, find_dust
from synthetic import make_market

amounts = st.integers(1, 10**30)
fees = st.integers(0, 9_000)


def pools(first: int, second: int, fee: int, other: int, main: bool) -> list[Pool]:
    common = {"address": bytes(32), "tokens": ("A-000000", "B-000000"), "reserves": (first, second)}
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
        JexPool(id="j", **common, lp_fee=fee // 2, platform_fee=other // 10),  # type: ignore[arg-type]
    ]


@given(amounts, amounts, amounts, fees, fees, st.booleans())
def test_a_trade_pays_what_the_pool_does(
    first: int, second: int, amount: int, fee: int, other: int, main: bool
) -> None:
    """For every exchange, size and fee; and nothing where it refuses."""
    for pool in pools(first, second, fee, other, main):
        for i, j in ((0, 1), (1, 0)):
            try:
                expected = pool.amount_out(i, j, amount)
            except PoolError:
                expected = 0
            assert Trade(pool, i, j).pays(amount) == expected


@given(st.integers(10**15, 10**27), st.integers(10**15, 10**27), st.integers(1, 1000), fees)
def test_the_float_curve_follows_the_pool(first: int, second: int, part: int, fee: int) -> None:
    """The edge's closed form is within 1e-9 of the exact output for amounts that are not dust."""
    amount = first * part // 1000
    for pool in pools(first, second, fee, fee, main=True):
        a, r, _ = constant_product_curve(pool, 0, 1)
        exact = pool.amount_out(0, 1, amount)
        if exact > 10**11:
            assert r * amount / (a + amount) == pytest.approx(exact, rel=1e-9)


def as_net(knots: Knots) -> nets.Graph:
    one = np.array([0], np.int32)
    deep = np.array([knots.d[-1]])
    return nets.build(2, Edges(one, one + 1, deep, deep * knots.slope[0], np.zeros(1), {0: knots}))


def tabulated(graph: Graph, amount: int) -> float:
    """What the only edge's table pays."""
    return edge_out(graph.net, 0, amount * graph.scale[0]) / float(graph.scale[1])


def test_tables_of_curved_pools_are_close() -> None:
    """Between the knots a table is within 1e-6 of the pool, for A from 10 to 1000 and for crypto pools."""
    for pool in make_market(40, 3, curved=1.0).pools:
        if not isinstance(pool, StablePool | AshCryptoPool):
            continue
        graph = as_net(stable_knots(pool, 0, 1) if isinstance(pool, StablePool) else crypto_knots(pool, 0, 1))
        for part in (0.003, 0.04, 0.2, 0.6, 1.1):
            amount = int(pool.reserves[0] * part)
            exact = pool.amount_out(0, 1, amount)
            if exact > 10**8:
                assert tabulated(graph, amount) == pytest.approx(exact, rel=1e-6)


def test_samples_become_a_concave_table() -> None:
    """Knots through samples of a hyperbola give it back to 0.1 %; a dent in the samples is bridged."""
    inputs = [int(10**9 * 1.2**k) for k in range(40)]
    outputs = [10**12 * x // (10**11 + x) for x in inputs]
    outputs[20] -= outputs[20] // 50
    graph = as_net(sampled_knots(inputs, outputs))
    for x in (3 * 10**9, 10**10, 10**11):
        found = tabulated(graph, x)
        assert found == pytest.approx(10**12 * x / (10**11 + x), rel=1e-2)


def test_dust_pools_are_left_out_unless_a_token_has_no_other() -> None:
    """A pool with next to nothing is no edge where its tokens have better ones, and is one where not."""

    def pool(name: str, tokens: tuple[str, str], reserves: tuple[int, int]) -> Pool:
        return XExchangePool(id=name, address=bytes(32), tokens=tokens, reserves=reserves, total_fee=300, special_fee=0)

    deep = pool("deep", ("A-000000", "B-000000"), (10**24, 10**24))
    dust = pool("dust", ("A-000000", "B-000000"), (69, 10**18))
    only = pool("only", ("A-000000", "C-000000"), (500, 10**18))
    assert find_dust([deep, dust, only]) == {"dust"}


def test_pools_of_a_token_of_which_few_units_exist_are_no_dust() -> None:
    """Few units are dust only beside a much larger pool of that token: of two alike the better one is used."""
    tokens = ("A-000000", "B-000000")

    def pool(name: str, reserves: tuple[int, int]) -> Pool:
        address = name.encode().ljust(32, b".")
        return JexPool(id=name, address=address, tokens=tokens, reserves=reserves, lp_fee=20, platform_fee=10)

    deep, better, dust = pool("deep", (9_000, 10**21)), pool("better", (5_000, 10**21)), pool("dust", (69, 10**21))
    assert find_dust([deep, better, dust]) == {"dust"}
    router = Router([deep, better], DictMarket([deep, better], tokens[0]))
    done = router.forward(*tokens, 10, Limits(), "hybrid").execution
    assert done.amount_out >= better.amount_out(0, 1, 10)
