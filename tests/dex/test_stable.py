"""JEX and AshSwap stable pools: recorded numbers first, then what must hold for any pool."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.pool import (
    InsufficientLiquidity,
    InvalidAmount,
    InvalidToken,
    LiquidityDisabled,
    PoolError,
    PoolState,
    Restricted,
    SwapsDisabled,
)
from millrace.dex.stable import AshStablePool, JexStablePool, StablePool
from millrace.dex.stableswap import liquidity_fee

VECTORS = Path(__file__).parent / "vectors"
ALL = json.loads((VECTORS / "stableswap.json").read_text()) + json.loads((VECTORS / "liquidity.json").read_text())
ADDRESS = bytes(30) + b"\x01\x02"
UNIT = 10**18


def vectors(*ops: str) -> list[Any]:
    found = [v for v in ALL if v["op"] in ops and v["venue"] in ("JEX StableSwap", "JEX / AshSwap v1 stable")]
    assert found, ops
    return [pytest.param(v, id=v["id"]) for v in found]


def decimals(state: dict[str, Any]) -> tuple[int, ...]:
    multipliers = state.get("multipliers") or ["1"] * len(state["reserves"])
    return tuple(18 - (len(multiplier) - 1) for multiplier in multipliers)


def jex(state: dict[str, Any]) -> JexStablePool:
    reserves = tuple(int(x) for x in state["reserves"])
    return JexStablePool(
        id="p",
        address=ADDRESS,
        tokens=tuple(state.get("tokens") or [f"T{k}-aaaaaa" for k in range(len(reserves))]),
        reserves=reserves,
        lp_supply=int(state.get("lp_supply", 0)),
        decimals=decimals(state),
        prices=tuple(int(x) for x in state["underlying_prices"]),
        amp=int(state["amp_factor"]),
        swap_fee=int(state.get("swap_fee", 0)),
        liquidity_fee=int(state.get("liquidity_fee", 0)),
    )


def ash(state: dict[str, Any], admin_fee: int = 0) -> AshStablePool:
    reserves = tuple(int(x) for x in state["reserves"])
    return AshStablePool(
        id="p",
        address=ADDRESS,
        tokens=tuple(f"T{k}-aaaaaa" for k in range(len(reserves))),
        reserves=reserves,
        lp_supply=int(state.get("lp_supply", 0)),
        decimals=decimals(state),
        prices=tuple(int(x) for x in state["underlying_prices"]),
        amp=int(state["amp_factor"]),
        swap_fee=int(state.get("swap_fee", 0)),
        admin_fee=admin_fee,
    )


# Recorded numbers


@pytest.mark.parametrize("v", vectors("quote_exact_in", "swap_exact_in", "estimateAmountOut"))
def test_jex_swaps(v: Any) -> None:
    """Net output, fees and reserves afterwards are the contract's, with two and three coins and prices."""
    pool, args, expected = jex(v["state"]), v["args"], v["expected"]
    i = args["i"] if "i" in args else pool.index(args["token_in"])
    j = args["j"] if "j" in args else pool.index(args["token_out"])
    amount = int(args.get("amount_in") or args["dx"])
    swap = pool.swap(i, j, amount)
    assert swap.amount_out == int(expected.get("amount_out") or expected["net_amount_out"])
    assert pool.amount_out(i, j, amount) == swap.amount_out
    if "lp_fee" in expected:
        assert swap.fee_amount == int(expected["lp_fee"]) + int(expected["platform_fee"])
        assert swap.pool.reserves == tuple(int(x) for x in expected["reserves_after"])


@pytest.mark.parametrize("v", vectors("quote_exact_out"))
def test_jex_inputs_for_wanted_outputs(v: Any) -> None:
    """The view's estimate is the contract's; the input found covers what the estimate may miss."""
    pool, wanted = jex(v["state"]), int(v["args"]["amount_out"])
    i, j = pool.index(v["args"]["token_in"]), pool.index(v["args"]["token_out"])
    estimate = pool.view_amount_in(i, j, wanted)
    assert estimate == int(v["expected"]["amount_in"])
    amount = pool.amount_in(i, j, wanted)
    assert pool.amount_out(i, j, amount) >= wanted > pool.amount_out(i, j, amount - 1)


def test_ashswap_takes_the_smaller_of_two_public_formulas() -> None:
    """On a real pool the output is the smaller one; the front end's is one unit more."""
    (v,) = [v for v in ALL if v["venue"].startswith("AshSwap v1 (front-end")]
    out = ash(v["state"]).amount_out(v["args"]["i"], v["args"]["j"], int(v["args"]["dx"]))
    assert out == int(v["expected"]["net_amount_out"]) == int(v["recomputed"]["net_amount_out"]) - 1


@pytest.mark.parametrize("v", vectors("lp_add", "quote_lp_add", "addLiquidity"))
def test_jex_deposits(v: Any) -> None:
    """First deposits mint the invariant, later ones its growth less the imbalance fee."""
    pool = jex(v["state"])
    mint = pool.mint(tuple(int(x) for x in v["args"]["amounts"]))
    assert mint.lp == int(v["expected"]["lp_minted"])
    if "reserves_after" in v["expected"]:
        assert mint.pool.reserves == tuple(int(x) for x in v["expected"]["reserves_after"])
        assert mint.pool.lp_supply == int(v["expected"]["lp_supply_after"])


@pytest.mark.parametrize("v", vectors("quote_lp_remove"))
def test_jex_withdrawals(v: Any) -> None:
    """Each coin pays its share, rounded down."""
    burn = jex(v["state"]).burn(int(v["args"]["lp"]))
    assert burn.amounts == tuple(int(x) for x in v["expected"]["amounts_out"])


@pytest.mark.parametrize("v", vectors("quote_lp_remove_one", "removeLiquidityOneToken"))
def test_jex_withdrawals_of_one_token(v: Any) -> None:
    """One coin pays for the LP, less the imbalance fee."""
    pool = jex(v["state"])
    j = v["args"]["i"] if "i" in v["args"] else pool.index(v["args"]["token_out"])
    burn = pool.burn_single(int(v["args"]["lp"]), j)
    assert burn.amounts[j] == int(v["expected"]["amount_out"]) == sum(burn.amounts)
    assert burn.pool.reserves[j] == pool.reserves[j] - burn.amounts[j]


def argument(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.parametrize("v", vectors("error:addLiquidity", "error:removeLiquidity", "error:removeLiquidityOneToken"))
def test_jex_refusals(v: Any) -> None:
    """Where the contract refused, nothing is deposited or a payment is below its minimum."""
    pool, arguments = jex(v["state"]), v["args"]["arguments"]
    if v["op"] == "error:addLiquidity":
        with pytest.raises(InvalidAmount):
            pool.mint((0,) * len(pool.tokens))
        return
    lp = argument(v["args"]["payments"][0][1])
    if v["op"] == "error:removeLiquidity":
        assert any(x < argument(least) for x, least in zip(pool.burn(lp).amounts, arguments, strict=True))
        return
    j = pool.index(arguments[0].removeprefix("str:"))
    assert pool.burn_single(lp, j).amounts[j] < argument(arguments[1])


@pytest.mark.parametrize("v", vectors("addLiquidity", "removeLiquidityOneToken"))
def test_ashswap_liquidity_agrees_where_decimals_do(v: Any) -> None:
    """On pools of 18 decimals AshSwap's deposits and withdrawals give JEX's numbers to a unit."""
    state = v["state"]
    coins = len(state["reserves"])
    # the same imbalance fee, stated over AshSwap's base
    fee = int(state["liquidity_fee"]) * 4 * (coins - 1) // coins // 10
    pool = ash(state | {"swap_fee": fee})
    if "amounts" in v["args"]:
        lp = pool.mint(tuple(int(x) for x in v["args"]["amounts"])).lp
        assert abs(lp - int(v["expected"]["lp_minted"])) <= 1
    else:
        j = v["args"]["i"]
        assert pool.burn_single(int(v["args"]["lp"]), j).amounts[j] == int(v["expected"]["amount_out"])


# Any pool


@st.composite
def pools(draw: st.DrawFn) -> StablePool:
    coins = draw(st.integers(2, 4))
    places = draw(st.lists(st.sampled_from((2, 6, 8, 16, 18)), min_size=coins, max_size=coins))
    size = draw(st.integers(10**2, 10**9))
    reserves = [size * draw(st.integers(20, 500)) * 10**d // 100 for d in places]
    fee = draw(st.integers(0, 1000))
    fields: dict[str, Any] = {
        "id": "p",
        "address": ADDRESS,
        "tokens": tuple(f"T{k}-aaaaaa" for k in range(coins)),
        "reserves": tuple(reserves),
        "lp_token": "LP-aaaaaa",
        "lp_supply": size * coins * UNIT,
        "decimals": tuple(places),
        "prices": tuple(draw(st.integers(9 * 10**17, 2 * UNIT)) for _ in places),
        "amp": draw(st.sampled_from((1, 10, 256, 2000))),
        "swap_fee": fee,
    }
    if draw(st.booleans()):
        return JexStablePool(**fields, liquidity_fee=liquidity_fee(fee, coins))
    return AshStablePool(**fields, admin_fee=draw(st.integers(0, 100_000)))


AMOUNTS = st.one_of(st.integers(1, 1000), st.integers(1, 10**24), st.integers(1, 10**60))


@given(pools(), AMOUNTS)
@settings(max_examples=150, deadline=None)
def test_swaps_never_lose_the_invariant(pool: StablePool, amount: int) -> None:
    """A swap pays what `amount_out` said and the invariant does not fall by more than its own rounding."""
    try:
        out = pool.amount_out(0, 1, amount)
    except PoolError:
        return
    swap = pool.swap(0, 1, amount)
    assert swap.amount_out == out > 0
    assert swap.pool.reserves[0] == pool.reserves[0] + amount
    assert 0 < swap.pool.reserves[1] <= pool.reserves[1] - out
    maths = pool.maths()
    try:
        after = maths.invariant(maths.xp(swap.pool.reserves))
    except PoolError:
        return
    assert after >= maths.invariant(maths.xp(pool.reserves)) - 2


@given(pools(), st.integers(1, 10**30))
@settings(max_examples=100, deadline=None)
def test_found_inputs_cover_the_output(pool: StablePool, wanted: int) -> None:
    """The input for a wanted output pays it, and one unit less does not."""
    try:
        amount = pool.amount_in(1, 0, wanted)
    except PoolError:
        return
    assert pool.amount_out(1, 0, amount) >= wanted
    if amount > 1:
        with contextlib.suppress(InvalidAmount):
            assert pool.amount_out(1, 0, amount - 1) < wanted


@given(pools(), st.integers(1, 10**24), st.integers(1, 10**24))
@settings(max_examples=100, deadline=None)
def test_more_in_is_more_out(pool: StablePool, amount: int, more: int) -> None:
    """Output does not fall with input, up to the unit that the solver's stopping rule leaves open."""
    try:
        least = pool.amount_out(0, 1, amount)
        most = pool.amount_out(0, 1, amount + more)
    except PoolError:
        return
    assert most >= least - 1


@given(pools(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_round_trip_of_liquidity_gains_nothing(pool: StablePool, data: st.DataObject) -> None:
    """Depositing one coin and withdrawing the same coin never pays more than was deposited."""
    i = data.draw(st.integers(0, len(pool.tokens) - 1))
    amount = data.draw(st.integers(1, max(pool.reserves[i], 1)))
    try:
        mint = pool.mint_single(i, amount)
        burn = mint.pool.burn_single(mint.lp, i)
    except PoolError:
        return
    assert burn.amounts[i] <= amount
    assert burn.pool.lp_supply == pool.lp_supply


@given(pools(), st.integers(-1, 10**60), st.integers(-1, 5), st.integers(-1, 5))
@settings(max_examples=150, deadline=None)
def test_whatever_is_asked_is_answered(pool: StablePool, amount: int, i: int, j: int) -> None:
    """Any amount and any index give an answer or a `PoolError`."""
    calls = (
        lambda: pool.amount_out(i, j, amount),
        lambda: pool.amount_in(i, j, amount),
        lambda: pool.mint((amount,) * len(pool.tokens)),
        lambda: pool.burn(amount),
        lambda: pool.burn_single(amount, j),
    )
    for call in calls:
        try:
            call()
        except PoolError as error:
            assert str(error)


STATE = {
    "amp_factor": 256,
    "reserves": ["10000000000000000000000", "10000000000"],
    "multipliers": ["1", "1000000000000"],
    "underlying_prices": ["1000000000000000000"] * 2,
    "swap_fee": "300",
    "liquidity_fee": "150",
    "lp_supply": "20000000000000000000000",
}


def changed(pool: StablePool, **changes: Any) -> Any:
    return type(pool)(**{name: getattr(pool, name) for name in pool.__struct_fields__} | changes)


def test_restricted_pools_serve_nobody() -> None:
    """A pool with access control refuses swaps, deposits and withdrawals."""
    pool = changed(jex(STATE), restricted=True)
    for call in (
        lambda: pool.amount_out(0, 1, UNIT),
        lambda: pool.swap(0, 1, UNIT),
        lambda: pool.mint((UNIT, 0)),
        lambda: pool.burn(UNIT),
        lambda: pool.burn_single(UNIT, 0),
    ):
        with pytest.raises(Restricted):
            call()


def test_paused_pools_only_pay_out() -> None:
    """JEX stable pools when paused take no swaps and no deposits, but pay withdrawals."""
    pool = changed(jex(STATE), state=PoolState.NO_SWAPS)
    with pytest.raises(SwapsDisabled):
        pool.amount_out(0, 1, UNIT)
    with pytest.raises(LiquidityDisabled):
        pool.mint((UNIT, 0))
    assert pool.burn(UNIT).amounts == (UNIT // 2, 500_000)


def test_inactive_ashswap_pools_do_nothing() -> None:
    """An inactive pool refuses everything; one without swaps still takes and pays liquidity."""
    inactive = changed(ash(STATE), state=PoolState.INACTIVE)
    for call in (
        lambda: inactive.mint((UNIT, 0)),
        lambda: inactive.burn(UNIT),
        lambda: inactive.burn_single(UNIT, 0),
    ):
        with pytest.raises(LiquidityDisabled):
            call()
    no_swaps = changed(ash(STATE), state=PoolState.NO_SWAPS)
    assert no_swaps.mint((UNIT, 0)).lp > 0
    with pytest.raises(SwapsDisabled):
        no_swaps.swap(0, 1, UNIT)


def test_the_admin_part_of_ashswap_fees_leaves() -> None:
    """With the whole fee going to the admin the pool keeps none of it."""
    nothing, whole = ash(STATE), ash(STATE, admin_fee=100_000)
    kept, left = nothing.swap(0, 1, 100 * UNIT), whole.swap(0, 1, 100 * UNIT)
    assert kept.amount_out == left.amount_out
    assert kept.pool.reserves[1] - left.pool.reserves[1] == left.fee_amount
    assert nothing.mint((UNIT, 0)).lp == whole.mint((UNIT, 0)).lp
    assert nothing.mint((UNIT, 0)).pool.reserves[0] > whole.mint((UNIT, 0)).pool.reserves[0]


def test_draining_is_refused() -> None:
    """Nobody gets the last unit: the wanted output is refused, the withdrawal too."""
    pool = jex(STATE)
    with pytest.raises(InsufficientLiquidity):
        pool.amount_in(0, 1, 10**10)
    with pytest.raises(InsufficientLiquidity):
        pool.burn_single(pool.lp_supply, 0)
    with pytest.raises(InsufficientLiquidity):
        pool.burn(pool.lp_supply + 1)
    with pytest.raises(InvalidToken):
        pool.burn_single(UNIT, 2)
