"""What plans ask of pools at a rate: never more than these can pay, and nothing of an amount is lost over it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from millrace.dex.aggregator_contract import ALL, FIXED, MILLION, PPM
from millrace.dex.constant_product import XExchangePool
from millrace.dex.pool import InsufficientLiquidity
from millrace.dex.rate import HatomRedeem
from millrace.routing.stocks import share_stocks, stocks_first, throttle, within_stock
from millrace.routing.venue import Trade

A, B, C = "WEGLD-bd4d79", "SEGLD-3ad2d0", "USDC-c76f1f"
PAIR = XExchangePool(
    id="pair", address=b"\5" * 32, tokens=(A, B), reserves=(10**30, 10**30), total_fee=300, special_fee=50
)
BEFORE = structs.replace(PAIR, id="before", address=b"\6" * 32, tokens=(A, C))
RATES = st.tuples(st.integers(1, 10**9), st.integers(1, 10**9))
STOCKS = st.integers(10, 10**24)


def rated(stock: int, rate: tuple[int, int] = (1, 1), tokens: tuple[str, str] = (A, B)) -> HatomRedeem:
    return HatomRedeem(id="rate", address=b"\7" * 32, tokens=tokens, reserves=(stock, stock), rate=rate)


def sale(pool: HatomRedeem | XExchangePool) -> Trade:
    return Trade(pool, 0, 1)


@given(stock=STOCKS, rate=RATES)
def test_the_most_that_is_sold_is_paid_for_and_a_unit_more_is_not(stock: int, rate: tuple[int, int]) -> None:
    """`most_in` is the last amount that the stock pays for."""
    pool = rated(stock, rate)
    most = pool.most_in()
    assert most * rate[0] // rate[1] < stock
    with pytest.raises(InsufficientLiquidity):
        pool.amount_out(0, 1, most + 1)


@given(stock=STOCKS, have=st.integers(1, 10**26), value=st.integers(1, MILLION - 1), fixed=st.booleans())
def test_a_sale_within_the_stock_is_what_its_mode_says(stock: int, have: int, value: int, fixed: bool) -> None:
    """The value that is told gives the amount that is sold, which is no more than asked and than the pool pays for."""
    mode = FIXED if fixed else PPM
    values = [0, have * value // MILLION if fixed else value]
    asked = values[1] if fixed else have * value // MILLION
    sold = within_stock(sale(rated(stock)), mode, asked, have, values, 1, {})
    assert sold == (values[1] if fixed else have * values[1] // MILLION)
    assert sold <= asked and sold <= rated(stock).most_in()
    assert sold == asked or sold == rated(stock).most_in() or not fixed
    assert values[0] == 0


def test_only_shares_and_sums_of_pools_at_a_rate_are_bounded() -> None:
    """What sells all that is left has nobody to leave it to, and other pools take whatever comes."""
    values = [7]
    assert within_stock(sale(rated(10)), ALL, 1_000, 1_000, values, 0, {}) == 1_000
    assert within_stock(sale(PAIR), FIXED, 1_000, 1_000, values, 0, {}) == 1_000
    assert values == [7]


def test_a_stock_that_was_used_before_has_less_to_give() -> None:
    """The pool counts as it is by then, not as it was in the market."""
    pool = rated(1_000)
    used = pool.swap(0, 1, 900).pool
    assert within_stock(sale(pool), FIXED, 500, 10_000, [500], 0, {pool.id: used}) == 99


@given(
    stock=STOCKS,
    rate=RATES,
    amounts=st.lists(st.integers(10**9, 10**24), min_size=3, max_size=3),
    keep_rest=st.booleans(),
)
def test_paths_share_a_stock_and_the_rest_goes_to_the_largest_other(
    stock: int, rate: tuple[int, int], amounts: list[int], keep_rest: bool
) -> None:
    """Two paths end in the pool, one of them behind a pair: together they ask for no more than it has."""
    pool, behind = rated(stock, rate), rated(stock, rate, (C, B))
    paths = [[sale(pool)], [sale(BEFORE), sale(behind)], [sale(PAIR)]]
    shared = share_stocks(paths, amounts, keep_rest=keep_rest)
    assert all(new <= old for new, old in zip(shared[:2], amounts, strict=False))
    used = shared[0] + (paths[1][0].pays(shared[1]) if shared[1] else 0)
    assert used <= pool.most_in()
    assert shared[2] == amounts[2] if keep_rest else sum(shared) == sum(amounts)


def test_without_another_path_amounts_are_as_they_were() -> None:
    """There is nowhere to go for what is over: whoever walks the path finds out."""
    assert share_stocks([[sale(rated(10))]], [1_000], keep_rest=False) == [1_000]
    assert share_stocks([[sale(rated(10))]], [1_000], keep_rest=True) == [9]


@given(order=st.permutations(["rate", "pair", "before", "behind"]))
def test_the_last_sale_of_a_token_is_in_another_pool(order: list[str]) -> None:
    """Trades keep their flows, and what is left of a token is not sold to a pool at a rate if there is another."""
    pools = {"rate": rated(10), "pair": PAIR, "before": BEFORE, "behind": rated(10, tokens=(C, B))}
    trades = [sale(pools[name]) for name in order]
    flows = [float(ord(name[0])) for name in order]
    moved, parts = stocks_first(trades, flows)
    assert sorted(zip(map(id, moved), parts, strict=True)) == sorted(zip(map(id, trades), flows, strict=True))
    assert not isinstance([trade for trade in moved if trade.token_in == A][-1].pool, HatomRedeem)
    others = [trade for trade in moved if trade.pool.id != "rate"]
    assert others == [trade for trade in trades if trade.pool.id != "rate"], "nothing else changes its place"


@given(stock=STOCKS, more=st.integers(101, 10**4), flow=st.floats(1.0, 1e9))
def test_only_what_leads_to_too_small_a_stock_brings_less(stock: int, more: int, flow: float) -> None:
    """By what the stock lacks, down to the first token that is sold elsewhere, too; what fits is left as it is."""
    trades, flows = [sale(PAIR), sale(BEFORE), sale(rated(stock, tokens=(C, B)))], [flow, flow, flow]
    asked = stock * more // 100
    assert throttle(trades, flows, [2], [asked, asked, asked])
    assert flows[0] == flow and flows[1] == flows[2] == pytest.approx(flow * (stock - 1) / asked, rel=1e-5)
    assert not throttle(trades, [flow] * 3, [2], [1, 1, stock - 1])
    assert not throttle(trades, [flow] * 3, [0], [asked, asked, asked])
