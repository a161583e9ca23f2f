"""What the compiled walk is told of each trade."""

from __future__ import annotations

import random
from typing import Any

import pytest

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.stable import JexStablePool
from millrace.routing import net as nets
from millrace.routing.lpedges import lp_edges
from millrace.routing.tables import BITS, FEE_ON_INPUT, FEE_ON_OUTPUT, MOST_BASE, PYTHON, WEIGHTED, make_terms
from millrace.routing.venue import CurveCache, list_edges

TOKENS = ("A-000000", "B-000000", "S-000000")
LARGEST = (1 << BITS) - 1


def common(name: str, first: int, second: int) -> dict[str, Any]:
    address = name.encode().ljust(32, b".")
    return {"id": name, "address": address, "tokens": TOKENS[:2], "reserves": (first, second)}


def stable() -> Pool:
    """A curved pool whose LP token other pools trade."""
    kind = {"decimals": (18, 18), "prices": (10**18, 10**18), "amp": 100, "swap_fee": 400, "liquidity_fee": 200}
    return JexStablePool(**common("s", 10**24, 10**24), **kind, lp_token=TOKENS[2], lp_supply=10**24)


def rows(*pools: Pool) -> dict[tuple[str, int], tuple[int, ...]]:
    """Of each trade, by pool and number of the token sold: kind, fees, base and both reserves."""
    index = {token: k for k, token in enumerate(TOKENS)}
    market = DictMarket(pools, TOKENS[0])
    edges, trades = list_edges(pools, index, CurveCache(), lp_edges(pools, market, index))
    graph = nets.build(len(index), edges)
    tables = make_terms(trades).of(graph)
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for place, k in enumerate(graph.original.tolist()):
        kind, fee, second, base, _, high_in, low_in, high_out, low_out = tables.terms[place].tolist()
        trade = trades[k]
        found[trade.pool.id, trade.i] = kind, fee, second, base, high_in << 64 | low_in, high_out << 64 | low_out
    return found


def test_each_exchange_has_its_formula_and_each_direction_its_reserves() -> None:
    """Kind, fees and base are the pool's, the reserves are in the order of the trade, to the last bit."""
    rng = random.Random(1)
    a, b = rng.getrandbits(BITS), rng.getrandbits(60)
    found = rows(
        XExchangePool(**common("x", a, b), total_fee=300, special_fee=50),
        OneDexPool(**common("o", b, a), pair_id=1, total_fee=30, special_fee=5, staking_fee=5, main=(True, False)),
        JexPool(**common("j", LARGEST, 10**20), lp_fee=20, platform_fee=10),
    )
    assert found == {
        ("x", 0): (WEIGHTED, 300, 0, 100_000, a, b),
        ("x", 1): (WEIGHTED, 300, 0, 100_000, b, a),
        ("o", 0): (FEE_ON_INPUT, 30, 0, 10_000, b, a),
        ("o", 1): (FEE_ON_OUTPUT, 30, 0, 10_000, a, b),
        ("j", 0): (FEE_ON_OUTPUT, 20, 10, 10_000, LARGEST, 10**20),
        ("j", 1): (FEE_ON_OUTPUT, 20, 10, 10_000, 10**20, LARGEST),
    }


@pytest.mark.parametrize(
    "pool",
    [
        JexPool(**common("j", LARGEST + 1, 10**20), lp_fee=20, platform_fee=10),
        XExchangePool(**common("x", 10**20, 10**20), total_fee=300, special_fee=50, fee_base=MOST_BASE + 1),
        stable(),
    ],
    ids=["a large reserve", "a large base", "a curve"],
)
def test_what_the_walk_cannot_do_is_left_to_python(pool: Pool) -> None:
    """Numbers that do not fit and pools with other formulas have no terms at all."""
    found = rows(pool, JexPool(**common("plain", 10**20, 10**20), lp_fee=20, platform_fee=10))
    assert found["plain", 0][0] == FEE_ON_OUTPUT
    assert all(set(row) == {PYTHON} for key, row in found.items() if key[0] != "plain")


def test_units_of_liquidity_are_left_to_python() -> None:
    """A deposit or withdrawal has no terms, although its pool may trade by a formula that the walk knows."""
    pool = JexPool(**common("j", 10**24, 10**24), lp_fee=20, platform_fee=10, lp_token=TOKENS[2], lp_supply=10**24)
    listed = {**common("l", 10**24, 10**24), "tokens": (TOKENS[0], TOKENS[2])}
    found = rows(pool, JexPool(**listed, lp_fee=20, platform_fee=10))
    assert found["j", -1] == (PYTHON, 0, 0, 0, 0, 0)
    assert found["j", 0][0] == FEE_ON_OUTPUT


def test_a_market_without_trades_has_empty_tables() -> None:
    """Where no pool can be used there are no rows, and no error."""
    assert rows() == {}
