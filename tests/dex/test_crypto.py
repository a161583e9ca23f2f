"""AshSwap crypto pools: a recorded two-coin call, a real pool state, and what must hold for any pool."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.crypto import AshCryptoPool
from millrace.dex.cryptoswap import newton_d
from millrace.dex.pool import (
    InsufficientLiquidity,
    InvalidAmount,
    InvalidToken,
    LiquidityDisabled,
    PoolError,
    PoolState,
    SwapsDisabled,
)

UNIT = 10**18
ADDRESS = bytes(30) + b"\x01\x02"


def usdt_ash(**changes: Any) -> AshCryptoPool:
    """A mainnet pool, USDT (6 decimals) against ASH (18), as recorded."""
    fields: dict[str, Any] = {
        "id": "a:usdt-ash",
        "address": ADDRESS,
        "tokens": ("USDT-f8c08c", "ASH-a642d1"),
        "reserves": (6_610_310_763, 10_775_028_285_126_628_963_544_615),
        "lp_token": "ALP-2d0cf8",
        "lp_supply": 250_000 * UNIT,
        "decimals": (6, 18),
        "ann": 400_000,
        "gamma": 145_000_000_000_000,
        "d": 14_713_381_882_176_947_720_176,
        "price_scale": 758_700_083_236_071,
        "mid_fee": 20_000_000,
        "out_fee": 40_000_000,
        "fee_gamma": 230_000_000_000_000,
    }
    return AshCryptoPool(**fields | changes)


def test_a_recorded_two_coin_output() -> None:
    """A Curve pool of two coins, recorded on chain, gives the recorded output."""
    source = json.loads((Path(__file__).parent / "vectors" / "cryptoswap.json").read_text())
    (v,) = [v for v in source if v["venue"] == "Curve CryptoSwap 2-coin"]
    state = v["state"]
    pool = usdt_ash(
        reserves=tuple(int(x) for x in state["balances"]),
        decimals=(18, 18),
        ann=int(state["ANN_used_in_math"]),
        gamma=int(state["gamma"]),
        d=int(state["D"]),
        price_scale=int(state["price_scale"]),
        fee_gamma=int(state["fee_gamma"]),
        mid_fee=int(state["mid_fee"]),
        out_fee=int(state["out_fee"]),
    )
    out = pool.amount_out(v["args"]["i"], v["args"]["j"], int(v["args"]["dx"]))
    assert out == int(v["expected"]["dy"])


def test_a_published_output_of_a_mainnet_state() -> None:
    """A third-party port publishes the output of 100 USDT on this state; a third of the fee is its admin part."""
    swap = usdt_ash().swap(0, 1, 100 * 10**6)
    assert swap.amount_out == 158_153_183_456_644_670_162_885
    assert swap.fee_amount // 3 == 208_848_375_516_246_118_801


def test_a_mainnet_state_is_consistent() -> None:
    """The recorded D is what the recorded balances give, to the precision the solver stops at."""
    pool = usdt_ash()
    solved = newton_d(pool.ann, pool.gamma, pool.scaled(pool.reserves))
    assert abs(solved - pool.d) * 10**6 < pool.d


def test_a_second_trade_starts_from_a_new_invariant() -> None:
    """After a swap D is solved from the new balances, and the fees make it grow."""
    pool = usdt_ash()
    pool = usdt_ash(d=newton_d(pool.ann, pool.gamma, pool.scaled(pool.reserves)))
    swap = pool.swap(0, 1, 100 * 10**6)
    after = swap.pool
    assert isinstance(after, AshCryptoPool)
    assert after.reserves == (pool.reserves[0] + 100 * 10**6, pool.reserves[1] - swap.amount_out)
    assert after.d == newton_d(pool.ann, pool.gamma, pool.scaled(after.reserves)) > pool.d
    assert after.amount_out(0, 1, 100 * 10**6) < swap.amount_out


def test_ramping_pools_do_not_trust_the_stored_invariant() -> None:
    """While A or gamma move, every call solves D from the balances."""
    stale = usdt_ash(d=10**22)
    ramping = usdt_ash(d=10**22, ramping=True)
    fresh = usdt_ash(d=newton_d(stale.ann, stale.gamma, stale.scaled(stale.reserves)))
    assert ramping.amount_out(0, 1, 10**6) == fresh.amount_out(0, 1, 10**6)
    with contextlib.suppress(PoolError):
        assert stale.amount_out(0, 1, 10**6) != fresh.amount_out(0, 1, 10**6)


@st.composite
def pools(draw: st.DrawFn) -> AshCryptoPool:
    places = (draw(st.sampled_from((6, 8, 18))), draw(st.sampled_from((2, 6, 18))))
    price = draw(st.integers(10**12, 10**22))
    value = draw(st.integers(10**21, 10**26))
    tilt = draw(st.integers(40, 160))
    first = max(value // 10 ** (18 - places[0]), 1)
    second = max(value * tilt // 100 * UNIT // price // 10 ** (18 - places[1]), 1)
    pool = usdt_ash(reserves=(first, second), decimals=places, price_scale=price, lp_supply=value)
    try:
        d = newton_d(pool.ann, pool.gamma, pool.scaled(pool.reserves))
    except PoolError:
        return usdt_ash()
    return usdt_ash(reserves=(first, second), decimals=places, price_scale=price, lp_supply=value, d=d)


AMOUNTS = st.one_of(st.integers(1, 10**6), st.integers(1, 10**22), st.integers(1, 10**60))


@given(pools(), st.sampled_from(((0, 1), (1, 0))), AMOUNTS)
@settings(max_examples=150, deadline=None)
def test_swaps_never_lose_the_invariant(pool: AshCryptoPool, way: tuple[int, int], amount: int) -> None:
    """A swap pays what `amount_out` said; D does not fall beyond the solver's own precision."""
    try:
        swap = pool.swap(*way, amount)
    except PoolError:
        return
    assert swap.amount_out == pool.amount_out(*way, amount)
    i, j = way
    assert swap.pool.reserves[i] == pool.reserves[i] + amount
    assert swap.pool.reserves[j] == pool.reserves[j] - swap.amount_out > 0
    assert isinstance(swap.pool, AshCryptoPool)
    assert swap.pool.d >= pool.d - max(pool.d // 10**12, 100)


@given(pools(), st.sampled_from(((0, 1), (1, 0))), st.integers(1, 10**24))
@settings(max_examples=80, deadline=None)
def test_found_inputs_cover_the_output(pool: AshCryptoPool, way: tuple[int, int], wanted: int) -> None:
    """The input for a wanted output pays it, and one unit less does not."""
    try:
        amount = pool.amount_in(*way, wanted)
    except PoolError:
        return
    assert pool.amount_out(*way, amount) >= wanted
    if amount > 1:
        with contextlib.suppress(InvalidAmount):
            assert pool.amount_out(*way, amount - 1) < wanted


@given(pools(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_round_trip_of_liquidity_gains_nothing(pool: AshCryptoPool, data: st.DataObject) -> None:
    """Depositing one coin and withdrawing it pays no more than was deposited, nor does any mix."""
    i = data.draw(st.integers(0, 1))
    amount = data.draw(st.integers(1, pool.reserves[i]))
    try:
        mint = pool.mint_single(i, amount)
        burn = mint.pool.burn_single(mint.lp, i)
    except PoolError:
        return
    assert burn.amounts[i] <= amount
    assert burn.pool.lp_supply == pool.lp_supply


@given(pools(), st.integers(-1, 10**60), st.integers(-1, 3), st.integers(-1, 3))
@settings(max_examples=150, deadline=None)
def test_whatever_is_asked_is_answered(pool: AshCryptoPool, amount: int, i: int, j: int) -> None:
    """Any amount and any index give an answer or a `PoolError`."""
    calls = (
        lambda: pool.swap(i, j, amount),
        lambda: pool.amount_in(i, j, amount),
        lambda: pool.mint((amount, amount)),
        lambda: pool.mint((amount, 0)),
        lambda: pool.mint((0, amount)),
        lambda: pool.mint((0, 1)),
        lambda: pool.burn(amount),
        lambda: pool.burn_single(amount, j),
    )
    for call in calls:
        try:
            call()
        except PoolError as error:
            assert str(error)


def test_proportional_withdrawals_scale_the_invariant() -> None:
    """Shares are computed for one LP unit less, and D falls in the same proportion."""
    pool = usdt_ash()
    lp = pool.lp_supply // 3
    burn = pool.burn(lp)
    assert burn.amounts == tuple(r * (lp - 1) // pool.lp_supply for r in pool.reserves)
    assert isinstance(burn.pool, AshCryptoPool)
    assert burn.pool.d == pool.d - pool.d * (lp - 1) // pool.lp_supply
    assert burn.pool.lp_supply == pool.lp_supply - lp


def test_even_deposits_pay_almost_no_fee() -> None:
    """A deposit in the pool's value ratio costs the noise fee, a deposit of one coin more."""
    reserves = (10_000 * 10**6, 10_000 * UNIT)
    pool = usdt_ash(reserves=reserves, price_scale=UNIT, lp_supply=10_000 * UNIT)
    pool = usdt_ash(
        reserves=reserves,
        price_scale=UNIT,
        lp_supply=10_000 * UNIT,
        d=newton_d(pool.ann, pool.gamma, pool.scaled(reserves)),
    )
    even, single = pool.mint((10**6, UNIT)).lp, pool.mint((2 * 10**6, 0)).lp
    assert UNIT * 99_998 // 100_000 <= even < UNIT
    assert single < even


def test_the_first_deposit_mints_the_balanced_product() -> None:
    """LP of the first deposit is the geometric mean of what D would be in balance."""
    pool = usdt_ash(reserves=(0, 0), lp_supply=0, d=0, price_scale=4 * UNIT)
    mint = pool.mint((400 * 10**6, 100 * UNIT))
    assert abs(mint.lp - 200 * UNIT) <= 10
    assert mint.pool.lp_supply == mint.lp


def test_deposits_worth_nothing() -> None:
    """A deposit that scales to nothing is refused, not divided by."""
    with pytest.raises(InvalidAmount, match="worth nothing"):
        usdt_ash().mint((0, 1))


def test_states_and_tokens() -> None:
    """Swaps need an active pool, liquidity one that is not inactive, and tokens are 0 and 1."""
    with pytest.raises(SwapsDisabled):
        usdt_ash(state=PoolState.NO_SWAPS).swap(0, 1, 10**6)
    assert usdt_ash(state=PoolState.NO_SWAPS).burn(10**20).amounts[0] > 0
    inactive = usdt_ash(state=PoolState.INACTIVE)
    for call in (lambda: inactive.mint((1, 1)), lambda: inactive.burn(1), lambda: inactive.burn_single(1, 0)):
        with pytest.raises(LiquidityDisabled):
            call()
    with pytest.raises(InvalidToken):
        usdt_ash().amount_out(0, 2, 10**6)
    with pytest.raises(InvalidToken):
        usdt_ash().burn_single(10**20, 2)
    with pytest.raises(InsufficientLiquidity):
        usdt_ash().amount_in(0, 1, usdt_ash().reserves[1])
    with pytest.raises(InsufficientLiquidity):
        usdt_ash().burn_single(usdt_ash().lp_supply, 0)
