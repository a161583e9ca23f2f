"""Tables of curved pools: as exact as they claim, and what they say of trades in pieces holds and is tight."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millrace.dex.crypto import AshCryptoPool
from millrace.dex.cryptoswap import newton_d
from millrace.dex.pool import Pool, PoolError
from millrace.dex.stable import AshStablePool, StablePool
from millrace.routing.curve import NoCurve, crypto_knots, sampled_knots, stable_knots
from millrace.routing.net import Knots
from millrace.routing.segments import deviations, fit

UNIT = 10**18
Points = tuple[list[int], list[int]]


@st.composite
def stable_pools(draw: st.DrawFn) -> StablePool:
    """Two to four coins of any decimals, up to a hundred times uneven, with any amplification and fee."""
    n = draw(st.integers(2, 4))
    decimals = tuple(draw(st.lists(st.sampled_from((6, 8, 18)), min_size=n, max_size=n)))
    whole = draw(st.lists(st.integers(10**6, 10**8), min_size=n, max_size=n))
    return AshStablePool(
        id="a:1", address=bytes(32), tokens=tuple(f"T{k}-000000" for k in range(n)), decimals=decimals,
        reserves=tuple(part * 10**k for part, k in zip(whole, decimals, strict=True)), prices=(UNIT,) * n,
        amp=draw(st.sampled_from((1, 10, 100, 2000, 50_000))), swap_fee=draw(st.sampled_from((0, 40, 1000, 4000))),
        admin_fee=draw(st.sampled_from((0, 33_000, 100_000))), lp_supply=10**24,
    )  # fmt: skip


@st.composite
def crypto_pools(draw: st.DrawFn) -> AshCryptoPool:
    """Two coins around any price scale, in or out of balance, with fees that grow by nothing or tenfold."""
    price = draw(st.integers(10**15, 10**21))
    first = draw(st.integers(10**5, 10**8)) * UNIT
    reserves = (first, first * UNIT * draw(st.integers(10, 1000)) // (100 * price))
    gamma = draw(st.sampled_from((10**13, 145 * 10**12, 10**16)))
    ann = draw(st.sampled_from((40_000, 400_000, 20_000_000)))
    mid = draw(st.sampled_from((0, 5 * 10**6, 26 * 10**6)))
    try:
        d = newton_d(ann, gamma, [reserves[0], reserves[1] * price // UNIT])
    except PoolError:
        assume(False)
    return AshCryptoPool(
        id="a:1", address=bytes(32), tokens=("A-000000", "B-000000"), decimals=(18, 18), reserves=reserves, lp_supply=d,
        ann=ann, gamma=gamma, d=d, price_scale=price, mid_fee=mid, out_fee=draw(st.sampled_from((26, 45, 260))) * 10**6,
        fee_gamma=draw(st.sampled_from((10**13, 230 * 10**12, 10**16))),
    )  # fmt: skip


def table_of(pool: Pool, i: int, j: int) -> Knots:
    """The pool's table; an example without one proves nothing."""
    try:
        return stable_knots(pool, i, j) if isinstance(pool, StablePool) else crypto_knots(pool, i, j)  # type: ignore[arg-type]
    except NoCurve:
        assume(False)
        raise AssertionError from None


def pays(pool: Pool, i: int, j: int, amounts: list[int]) -> int:
    """What amounts pay that are sold one after the other; 0 where the pool refuses one."""
    total = 0
    try:
        for amount in amounts:
            swap = pool.swap(i, j, amount)
            total, pool = total + swap.amount_out, swap.pool
    except PoolError:
        return 0
    return total


def at(knots: Knots, amount: float) -> int:
    """The first knot that is not before an amount."""
    return min(int(np.searchsorted(knots.d, amount)), len(knots.d) - 1)


PARTS = (0.0003, 0.004, 0.02, 0.07, 0.3, 0.8, 1.5, 6.0)


@given(st.one_of(stable_pools(), crypto_pools()))
def test_a_table_is_as_exact_as_it_claims(pool: Pool) -> None:
    """Slopes fall, and where units do not count outputs are off by at most the table's error."""
    knots = table_of(pool, 0, 1)
    assert np.all(np.diff(knots.slope) < 0.0)
    assert np.all(np.diff(knots.d) > 0.0)
    rows = np.column_stack([knots.d, knots.y, knots.slope, knots.k1, knots.k2])
    for part in PARTS:
        amount = int(pool.reserves[0] * part)
        paid = pays(pool, 0, 1, [amount])
        if paid < 10**12 or amount > knots.d[-1]:
            continue
        off = np.zeros(1)
        deviations(rows, np.array([float(amount)]), np.array([float(paid)]), off)
        assert off[0] <= knots.error[at(knots, amount)] + 3e-8


@given(st.one_of(stable_pools(), crypto_pools()), st.sampled_from(PARTS), st.sampled_from((2, 3, 7, 40)), st.booleans())
def test_no_trade_in_pieces_pays_more_than_the_table_allows(pool: Pool, part: float, pieces: int, grow: bool) -> None:
    """Pieces of even size, or each half of the one before: what stays of their fees adds no more than `pieces` says."""
    knots = table_of(pool, 0, 1)
    amount = int(pool.reserves[0] * part)
    sizes = [amount >> (k + 1) for k in range(pieces)] if grow else [amount // pieces] * pieces
    sizes = [size for size in sizes if size]
    whole, apart = pays(pool, 0, 1, [sum(sizes)]), pays(pool, 0, 1, sizes)
    if whole > 10**12:
        k = at(knots, sum(sizes) * 1.02)
        assert apart <= whole * (1.0 + knots.pieces[k] + 2e-8) + len(sizes), "each piece is rounded to a unit"


@pytest.mark.parametrize("part", [0.02, 0.1, 1.0, 3.0])
def test_what_pieces_gain_is_no_guess(part: float) -> None:
    """Of a pool whose fee grows and stays, three hundred pieces get nine tenths of what the table allows."""
    scale = UNIT // 2
    reserves = (10**26, 2 * 10**26)
    d = newton_d(400_000, 145 * 10**12, [reserves[0], reserves[1] * scale // UNIT])
    pool = AshCryptoPool(
        id="a:1", address=bytes(32), tokens=("A-000000", "B-000000"), decimals=(18, 18), reserves=reserves, lp_supply=d,
        ann=400_000, gamma=145 * 10**12, d=d, price_scale=scale, mid_fee=26 * 10**6, out_fee=45 * 10**6,
        fee_gamma=230 * 10**12,
    )  # fmt: skip
    amount = int(reserves[0] * part)
    gained = pays(pool, 0, 1, [amount // 300] * 300) / pays(pool, 0, 1, [amount // 300 * 300]) - 1.0
    knots = crypto_knots(pool, 0, 1)
    assert 0.9 * knots.pieces[at(knots, amount)] < gained


def test_segments_run_through_their_points() -> None:
    """Slopes and outputs of a concave curve are met at every knot; a dent in it is bridged by its hull."""
    d = np.linspace(0.0, 8.0, 17)
    y, slope = np.log1p(d), 1.0 / (1.0 + d)
    knots = fit(d, y, slope)
    assert knots[:, :3] == pytest.approx(np.column_stack([d, y, slope]), rel=1e-9)
    y[8] -= 0.05
    bridged = fit(d, y, slope)
    assert len(bridged) < len(d)
    off = np.zeros(8)
    deviations(bridged, d[9:], y[9:], off)
    assert np.all(off < 1e-3)
    assert np.all(np.diff(bridged[:, 2]) < 0.0)


def test_what_is_no_curve_is_refused() -> None:
    """Too few samples, and pools that hold nothing, have no table."""
    with pytest.raises(NoCurve):
        sampled_knots([1, 2], [1, 2])
    empty = AshStablePool(
        id="a:1", address=bytes(32), tokens=("A-000000", "B-000000"), decimals=(18, 18), reserves=(0, 10**18),
        prices=(UNIT, UNIT), amp=100, swap_fee=40, admin_fee=0, lp_supply=1,
    )  # fmt: skip
    for i, j in itertools.permutations(range(2)):
        with pytest.raises(NoCurve):
            stable_knots(empty, i, j)
