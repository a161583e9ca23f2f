"""xExchange, OneDex and JEX pairs: recorded numbers first, then what must hold for any pool."""

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.constant_product import (
    ConstantProductPool,
    FeeDestination,
    FeeUse,
    JexPool,
    OneDexPool,
    TrustedPair,
    XExchangePool,
    before_fees,
)
from millrace.dex.pool import (
    InsufficientLiquidity,
    InvalidAmount,
    InvalidToken,
    LiquidityDisabled,
    NotConverged,
    PoolError,
    PoolState,
    SwapsDisabled,
    Unsupported,
)

VECTORS = Path(__file__).parent / "vectors"
SWAPS = json.loads((VECTORS / "constant_product.json").read_text())
DEPOSITS = json.loads((VECTORS / "liquidity.json").read_text())
ADDRESS = bytes(30) + b"\x01\x02"


def vectors(source: list[Any], venue: str, *ops: str) -> list[Any]:
    found = [v for v in source if v["venue"] == venue and v["op"] in ops]
    assert found, (venue, ops)
    return [pytest.param(v, id=v["id"]) for v in found]


def common(state: dict[str, Any], first: str = "FIRST-aaaaaa", second: str = "SECOND-aaaaaa") -> dict[str, Any]:
    return {
        "id": "p",
        "address": ADDRESS,
        "tokens": (first, second),
        "reserves": (int(state["reserve_first"]), int(state["reserve_second"])),
        "lp_token": "LP-aaaaaa",
        "lp_supply": int(state.get("lp_supply") or 0),
    }


def xexchange(state: dict[str, Any]) -> XExchangePool:
    return XExchangePool(
        **common(state, state.get("first", "A"), state.get("second", "B")),
        total_fee=int(state.get("total_fee", 300)),
        special_fee=int(state.get("special_fee", 50)),
        fee_enabled=state.get("fee_enabled", False),
        fees_collector_cut=int(state.get("fees_collector_cut", 0)),
    )


def onedex(state: dict[str, Any]) -> OneDexPool:
    main = state.get("main_pair_tokens", [])
    total = int(state.get("total_fee", 100))
    return OneDexPool(
        **common(state, state.get("first", "A"), state.get("second", "B")),
        pair_id=int(state.get("pair_id", 1)),
        total_fee=total,
        special_fee=int(state.get("special_fee", total // 2)),
        staking_fee=int(state.get("staking_fee", 0)),
        main=(state.get("first") in main, state.get("second") in main),
    )


def jex(state: dict[str, Any]) -> JexPool:
    return JexPool(**common(state), lp_fee=int(state["lp_fees"]), platform_fee=int(state["platform_fees"]))


def direction(pool: ConstantProductPool, token_in: str) -> tuple[int, int]:
    i = pool.index(token_in)
    return i, 1 - i


def side(name: str) -> int:
    return ("first", "second").index(name)


# Recorded numbers


@pytest.mark.parametrize("v", vectors(SWAPS, "xExchange", "getAmountOut", "route getAmountOut"))
def test_xexchange_views_of_one_and_more_hops(v: Any) -> None:
    """Output of each hop is the contract's `getAmountOut`, and the input found for it covers it."""
    states = v["state"].get("pools") or [v["state"]]
    token, amount = v["args"]["token_in"], int(v["args"]["amount_in"])
    amounts = [amount]
    for state in states:
        pool = xexchange(state)
        i, j = direction(pool, token)
        amount = pool.amount_out(i, j, amount)
        assert pool.amount_in(i, j, amount) <= amounts[-1]
        token = pool.tokens[j]
        amounts.append(amount)
    expected = v["expected"].get("intermediary_amounts") or [amounts[0], v["expected"]["amount_out"]]
    assert amounts == [int(x) for x in expected]


@pytest.mark.parametrize("v", vectors(SWAPS, "xExchange", "getAmountIn", "route getAmountIn"))
def test_xexchange_inputs_for_wanted_outputs(v: Any) -> None:
    """Going backwards through the hops gives the contract's `getAmountIn` of each."""
    states = v["state"].get("pools") or [v["state"]]
    token = v["args"].get("token_wanted") or v["args"]["token_out"]
    amount = int(v["args"].get("amount_wanted") or v["args"]["amount_out"])
    amounts = [amount]
    for state in reversed(states):
        pool = xexchange(state)
        j, i = direction(pool, token)
        amount = pool.fixed_output_input(i, j, amount)
        token = pool.tokens[i]
        amounts.insert(0, amount)
    expected = v["expected"].get("intermediary_amounts") or [v["expected"]["amount_in"], amounts[-1]]
    assert amounts == [int(x) for x in expected]


@pytest.mark.parametrize("v", vectors(SWAPS, "xExchange", "getEquivalent"))
def test_xexchange_equivalent(v: Any) -> None:
    """`getEquivalent` is the pool's price without fee and depth."""
    pool = xexchange(v["state"])
    i, j = direction(pool, v["args"]["token_in"])
    assert pool.equivalent(i, j, int(v["args"]["amount_in"])) == int(v["expected"]["amount_out"])


@pytest.mark.parametrize("v", vectors(SWAPS, "xExchange", "swapTokensFixedInput"))
def test_xexchange_swaps(v: Any) -> None:
    """A swap pays what the contract paid, and what the collector got is in the books."""
    pool = xexchange(v["state"])
    i, j = direction(pool, v["args"]["token_in"])
    amount = int(v["args"]["amount_in"])
    swap = pool.swap(i, j, amount)
    assert swap.amount_out == int(v["expected"]["amount_out"])
    assert pool.collector_fee(amount) == int(v["expected"].get("fees_collector_received", 0))
    special = amount * pool.special_fee // pool.fee_base if pool.fee_enabled else 0
    assert swap.pool.reserves[i] == pool.reserves[i] + amount - special
    assert swap.pool.reserves[j] == pool.reserves[j] - swap.amount_out


@pytest.mark.parametrize("v", vectors(SWAPS, "xExchange", "swapTokensFixedOutput"))
def test_xexchange_fixed_output(v: Any) -> None:
    """The fixed output call takes the recorded input; the smallest input is at most one less."""
    pool = xexchange(v["state"])
    i, j = direction(pool, v["args"]["token_in"])
    wanted, taken = int(v["args"]["amount_out"]), int(v["expected"]["amount_in"])
    assert pool.fixed_output_input(i, j, wanted) == taken
    assert taken - pool.amount_in(i, j, wanted) in (0, 1)
    assert int(v["args"]["amount_in_max"]) - taken == int(v["expected"]["refund"])


@pytest.mark.parametrize("v", vectors(SWAPS, "xExchange", "multiPairSwap"))
def test_xexchange_router(v: Any) -> None:
    """Hops through the router are swaps one after the other."""
    amount = int(v["args"]["amount_in"])
    for state, (i, j) in zip(v["state"]["pools"], ((1, 0), (0, 1)), strict=True):
        amount = xexchange(state).swap(i, j, amount).amount_out
    assert amount == int(v["expected"]["amount_out"])


@pytest.mark.parametrize("v", vectors(SWAPS, "xExchange", "error"))
def test_xexchange_refuses_nothing(v: Any) -> None:
    """Zero in is an error, as in the contract's view."""
    pool = xexchange(v["state"])
    i, j = direction(pool, v["args"]["token_in"])
    with pytest.raises(InvalidAmount):
        pool.amount_out(i, j, int(v["args"]["amount_in"]))


@pytest.mark.parametrize("v", vectors(SWAPS, "OneDex", "swapMultiTokensFixedOutput"))
def test_onedex_fixed_output(v: Any) -> None:
    """Fee on the output when the sold token is no main pair token."""
    pool = onedex(v["state"])
    wanted = int(v["args"]["amount_out"])
    assert pool.fixed_output_input(0, 1, wanted) == int(v["expected"]["amount_in"])
    assert pool.amount_in(0, 1, wanted) <= int(v["expected"]["amount_in"])


@pytest.mark.parametrize("v", vectors(SWAPS, "OneDex", "getAmountOut (mainnet view)"))
def test_onedex_view_on_mainnet(v: Any) -> None:
    """The recorded view puts the fee on the input; the swap agrees within a unit."""
    pool = onedex(v["state"])
    amount, seen = int(v["args"]["amount_in"]), int(v["expected"]["amount_out"])
    assert pool.view_amount_out(0, 1, amount) == seen
    assert abs(pool.amount_out(0, 1, amount) - seen) <= 1


def test_output_fee_with_two_shares() -> None:
    """The fee-token model with the fee on the output is OneDex's other side."""
    (v,) = [v for v in SWAPS if v["venue"].startswith("OpenDex")]
    s = v["state"]
    pool = onedex(
        {
            "reserve_first": s["reserve_in"],
            "reserve_second": s["reserve_out"],
            "total_fee": s["total_fee"],
            "special_fee": s["platform_fee"],
        }
    )
    assert pool.amount_out(0, 1, int(v["args"]["amount_in"])) == int(v["expected"]["amount_out"])


JEX = "JEX constant product"


@pytest.mark.parametrize("v", vectors(SWAPS, JEX, "quote_exact_in", "swap_exact_in"))
def test_jex_swaps(v: Any) -> None:
    """Net output, both fees and the reserves afterwards are the contract's."""
    pool, expected = jex(v["state"]), v["expected"]
    i = side(v["args"]["token_in"])
    amount = int(v["args"]["amount_in"])
    swap = pool.swap(i, 1 - i, amount)
    gross, lp_fee, platform_fee = pool.fees(i, 1 - i, amount)
    assert swap.amount_out == int(expected.get("net_amount_out", expected["amount_out"]))
    assert platform_fee == int(expected["platform_fee"])
    assert swap.fee_amount == lp_fee + platform_fee == gross - swap.amount_out
    if "r1_after" in expected:
        assert swap.pool.reserves == (int(expected["r1_after"]), int(expected["r2_after"]))
        assert swap.pool.lp_supply == int(expected["S_after"])
    else:
        assert (gross, lp_fee) == (int(expected["amount_out"]), int(expected["lp_fee"]))


@pytest.mark.parametrize("v", vectors(SWAPS, JEX, "quote_exact_out", "swap_exact_out"))
def test_jex_fixed_output(v: Any) -> None:
    """The fixed output call takes the recorded input and leaves the recorded reserves."""
    pool, expected = jex(v["state"]), v["expected"]
    j = side(v["args"]["token_out"]) if "token_out" in v["args"] else 1 - side(v["args"]["token_in"])
    wanted, taken = int(v["args"]["amount_out"]), int(expected["amount_in"])
    assert pool.fixed_output_input(1 - j, j, wanted) == taken
    assert pool.amount_in(1 - j, j, wanted) <= taken
    if "r1_after" in expected:
        after = pool.swap(1 - j, j, taken).pool
        assert after.reserves == (int(expected["r1_after"]), int(expected["r2_after"]))


@pytest.mark.parametrize("v", vectors(SWAPS, JEX, "estimateAmountIn"))
def test_jex_estimate_of_input(v: Any) -> None:
    """The view's input for a wanted net output."""
    s = v["state"]
    pool = jex(s | {"reserve_first": s["reserve_in"], "reserve_second": s["reserve_out"]})
    assert pool.fixed_output_input(0, 1, int(v["args"]["net_amount_out"])) == int(v["expected"]["amount_in"])


def argument(text: str) -> int:
    """A number of a recorded call, where commas only separate digits."""
    return int(text.replace(",", ""))


@pytest.mark.parametrize("v", vectors(SWAPS, JEX, "error:swapTokensFixedInput"))
def test_jex_slippage(v: Any) -> None:
    """Where the contract refused for slippage the output is below the minimum asked for."""
    pool = jex(v["state"])
    (token, amount), minimum = v["args"]["payments"][0], argument(v["args"]["arguments"][0])
    i = 0 if token.startswith("JEX") else 1
    assert pool.amount_out(i, 1 - i, argument(amount)) < minimum


# Deposits and withdrawals on record


@pytest.mark.parametrize("v", vectors(DEPOSITS, JEX, "lp_add_initial", "lp_add"))
def test_jex_deposits(v: Any) -> None:
    """First deposits mint one LP; later ones by the first token's share, the rest returned."""
    pool, args, expected = jex(v["state"]), v["args"], v["expected"]
    amounts = (int(args.get("first", args.get("first_max"))), int(args.get("second", args.get("second_max"))))
    mint = pool.mint(amounts)
    assert mint.lp == int(expected["lp_minted"])
    assert mint.pool.reserves == (int(expected["r1_after"]), int(expected["r2_after"]))
    assert mint.pool.lp_supply == int(expected["S_after"])
    if "first_used" in expected:
        assert mint.used == (int(expected["first_used"]), int(expected["second_used"]))


@pytest.mark.parametrize("v", vectors(DEPOSITS, JEX, "lp_add_single", "quote_lp_add_single"))
def test_jex_deposit_of_one_token(v: Any) -> None:
    """One token alone mints half its share; the view's equivalents are that LP's later shares."""
    pool, expected = jex(v["state"]), v["expected"]
    mint = pool.mint_single(side(v["args"]["token"]), int(v["args"]["amount"]))
    assert mint.lp == int(expected["lp_minted"])
    assert mint.pool.lp_supply == int(expected.get("S_after") or expected["lp_supply_after"])
    if "r1_after" in expected:
        assert mint.pool.reserves == (int(expected["r1_after"]), int(expected["r2_after"]))
    else:
        assert mint.pool.shares(mint.lp) == (int(expected["eq_first"]), int(expected["eq_second"]))


@pytest.mark.parametrize("v", vectors(DEPOSITS, JEX, "error:addLiquiditySingle"))
def test_jex_refusals_of_one_token(v: Any) -> None:
    """Refused for slippage: an equivalent is below its minimum. Refused for the token: it is foreign."""
    pool = jex(v["state"])
    (token, amount), minima = v["args"]["payments"][0], [argument(x) for x in v["args"]["arguments"]]
    if v["expected"]["message"] == "str:Invalid payment token":
        with pytest.raises(InvalidToken):
            pool.index(token)
        return
    mint = pool.mint_single(0 if token.startswith("JEX") else 1, argument(amount))
    assert any(x < least for x, least in zip(mint.pool.shares(mint.lp), minima, strict=True))


@pytest.mark.parametrize("v", vectors(DEPOSITS, JEX, "error:addLiquidity"))
def test_jex_refusals_of_deposits(v: Any) -> None:
    """Each refused deposit misses a minimum, or has nothing to be in proportion to."""
    pool, message = jex(v["state"]), v["expected"]["message"]
    amounts = tuple(argument(amount) for _, amount in v["args"]["payments"])
    minima = [argument(x) for x in v["args"]["arguments"]]
    if message == "str:Initial liquidity is not set":
        assert pool.lp_supply == 0
    elif message.startswith("str:Invalid payment"):
        assert any("XXX" in token for token, _ in v["args"]["payments"])
    else:
        used = pool.mint(amounts).used
        assert any(x < least for x, least in zip(used, minima, strict=True)) or message.endswith("tokens")


@pytest.mark.parametrize("v", vectors(DEPOSITS, JEX, "lp_remove", "quote_lp_remove"))
def test_jex_withdrawals(v: Any) -> None:
    """Shares are rounded down per token; only the owner takes the last units."""
    pool, expected, lp = jex(v["state"]), v["expected"], int(v["args"]["lp"])
    burn = pool.burn(lp, owner=True)
    assert burn.amounts == (int(expected["first_out"]), int(expected["second_out"]))
    if "r1_after" in expected:
        assert burn.pool.reserves == (int(expected["r1_after"]), int(expected["r2_after"]))
        assert burn.pool.lp_supply == int(expected["S_after"])
    if pool.lp_supply - lp >= 1000:
        assert pool.burn(lp) == burn


@pytest.mark.parametrize("v", vectors(DEPOSITS, JEX, "lp_remove_single", "quote_lp_remove_single"))
def test_jex_withdrawals_of_one_token(v: Any) -> None:
    """The unwanted share is sold into what remains, with the usual fees."""
    pool, expected, j = jex(v["state"]), v["expected"], side(v["args"]["token_out"])
    burn = pool.burn_single(int(v["args"]["lp"]), j)
    paid = expected.get("amount_out") or expected[("first_out", "second_out")[j]]
    assert burn.amounts[j] == int(paid)
    assert burn.amounts[1 - j] == 0
    if "r1_after" in expected:
        assert burn.pool.reserves == (int(expected["r1_after"]), int(expected["r2_after"]))


@pytest.mark.parametrize("v", vectors(DEPOSITS, JEX, "error:estimateRemoveLiquidity", "error:removeLiquidity"))
def test_jex_refusals_of_withdrawals(v: Any) -> None:
    """More than there is, or than may leave, is refused; otherwise a share is below its minimum."""
    pool, message = jex(v["state"]), v["expected"]["message"]
    if message == "str:Cannot remove that much liquidity":
        with pytest.raises(InsufficientLiquidity):
            pool.shares(argument(v["args"]["arguments"][0]))
    elif message == "str:Not enough LP token supply":
        with pytest.raises(InsufficientLiquidity):
            pool.burn(argument(v["args"]["payments"][0][1]))
    else:
        k = 0 if "first" in message else 1
        amounts = pool.burn(argument(v["args"]["payments"][0][1])).amounts
        assert amounts[k] < argument(v["args"]["arguments"][k])


@pytest.mark.parametrize("v", vectors(DEPOSITS, "xExchange", "addLiquidity (initial)", "addLiquidity"))
def test_xexchange_deposits(v: Any) -> None:
    """The first deposit leaves 1000 LP in the pair; later ones mint the smaller share."""
    pool, expected = xexchange(v["state"]), v["expected"]
    mint = pool.mint((int(v["args"]["first_max"]), int(v["args"]["second_max"])))
    assert mint.lp == int(expected["lp_to_user"])
    assert mint.used == (int(expected["used_first"]), int(expected["used_second"]))
    assert mint.pool.lp_supply == pool.lp_supply + mint.lp + (0 if pool.lp_supply else 1000)


@pytest.mark.parametrize("v", vectors(DEPOSITS, "xExchange", "removeLiquidity"))
def test_xexchange_withdrawals(v: Any) -> None:
    """Shares are rounded down; one unit more than leaves 1000 behind is refused."""
    pool, lp = xexchange(v["state"]), int(v["args"]["lp"])
    assert pool.burn(lp).amounts == (int(v["expected"]["first"]), int(v["expected"]["second"]))
    with pytest.raises(InsufficientLiquidity):
        pool.burn(pool.lp_supply - 999)


@pytest.mark.parametrize("v", vectors(DEPOSITS, "xExchange", "removeLiquidityAndBuyBackAndBurnToken"))
def test_xexchange_buy_back(v: Any) -> None:
    """The other share is sold inside the pool without fee."""
    burn = xexchange(v["state"]).burn_and_buy_back(int(v["args"]["lp"]), 0)
    assert burn.pool.reserves[0] == int(v["expected"]["wegld_reserve_after"])


@pytest.mark.parametrize("v", vectors(DEPOSITS, "OneDex", "addLiquidity"))
def test_onedex_deposits(v: Any) -> None:
    """Later deposits mint the smaller of two shares."""
    mint = onedex(v["state"]).mint((int(v["args"]["first_max"]), int(v["args"]["second_max"])))
    assert mint.lp == int(v["expected"]["lp_minted"])


# Any pool

AMOUNTS = st.one_of(st.integers(1, 1000), st.integers(1, 10**30), st.integers(1, 10**60))
RESERVES = st.one_of(st.integers(1, 1000), st.integers(1, 10**12), st.integers(10**15, 10**30))


def base_of(reserves: tuple[int, int]) -> dict[str, Any]:
    supply = max(min(reserves), 10_000)
    return {
        "id": "p",
        "address": ADDRESS,
        "tokens": ("A-aaaaaa", "B-aaaaaa"),
        "reserves": reserves,
        "lp_supply": supply,
    }


@st.composite
def pools(draw: st.DrawFn) -> ConstantProductPool:
    fields = base_of((draw(RESERVES), draw(RESERVES)))
    match draw(st.sampled_from(("x", "o", "j"))):
        case "x":
            total = draw(st.integers(0, 5000))
            return XExchangePool(
                **fields,
                total_fee=total,
                special_fee=draw(st.integers(0, total)),
                fee_enabled=draw(st.booleans()),
            )
        case "o":
            total = draw(st.sampled_from((0, 30, 40, 60, 100)))
            special = draw(st.integers(0, total))
            return OneDexPool(
                **fields,
                pair_id=1,
                total_fee=total,
                special_fee=special,
                staking_fee=draw(st.integers(0, total - special)),
                main=draw(st.tuples(st.booleans(), st.booleans())),
            )
        case _:
            return JexPool(**fields, lp_fee=draw(st.integers(0, 100)), platform_fee=draw(st.integers(0, 100)))


@given(pools(), st.sampled_from(((0, 1), (1, 0))), AMOUNTS)
@settings(max_examples=300, deadline=None)
def test_swaps_never_lose_the_invariant(pool: ConstantProductPool, way: tuple[int, int], amount: int) -> None:
    """A swap pays what `amount_out` said and withholds what `withheld` said; the product never falls."""
    try:
        out = pool.amount_out(*way, amount)
    except InvalidAmount:
        return
    swap = pool.swap(*way, amount)
    i, j = way
    assert swap.amount_out == out > 0
    assert (swap.fee_token, swap.fee_amount) == pool.withheld(*way, amount)
    assert 0 < swap.pool.reserves[j] <= pool.reserves[j] - out
    assert pool.reserves[i] <= swap.pool.reserves[i] <= pool.reserves[i] + amount
    before, after = pool.reserves, swap.pool.reserves
    assert after[0] * after[1] >= before[0] * before[1]


@given(pools(), st.sampled_from(((0, 1), (1, 0))), AMOUNTS)
@settings(max_examples=300, deadline=None)
def test_found_inputs_are_the_smallest(pool: ConstantProductPool, way: tuple[int, int], wanted: int) -> None:
    """The input for a wanted output pays it, and one unit less does not; the exchange's own call agrees."""
    try:
        amount = pool.amount_in(*way, wanted)
    except InsufficientLiquidity:
        assert wanted > pool.reserves[way[1]] * 9 // 10 - 1000
        return
    assert pool.amount_out(*way, amount) >= wanted
    if amount > 1:
        with contextlib.suppress(InvalidAmount):
            assert pool.amount_out(*way, amount - 1) < wanted
    try:
        taken = pool.fixed_output_input(*way, wanted)
    except InsufficientLiquidity:
        return
    assert pool.amount_in(*way, wanted) <= taken + 2


@st.composite
def two_fees(draw: st.DrawFn) -> tuple[tuple[int, int], int]:
    """Two fees that leave something, and their base: all but the base, none, and anything in between."""
    base = draw(st.sampled_from((2, 3, 7, 100, 10_000)))
    first = draw(st.integers(0, base - 1))
    return (first, draw(st.integers(0, base - 1 - first))), base


def after(gross: int, fees: tuple[int, int], base: int) -> int:
    return gross - gross * fees[0] // base - gross * fees[1] // base


@given(two_fees(), st.integers(1, 400))
@settings(max_examples=400, deadline=None)
def test_amounts_before_two_fees(of: tuple[tuple[int, int], int], net: int) -> None:
    """All amounts that leave enough are named, and from the last one on there is none that does not."""
    fees, base = of
    found = list(before_fees(net, fees, base))
    last = found[-1]
    assert found == [gross for gross in range(1, last + 1) if after(gross, fees, base) >= net]
    assert all(after(gross, fees, base) >= net for gross in range(last, last + 2 * base))
    assert after(last - 1, (sum(fees), 0), base) < net, "the last one is no later than it has to be"


@given(two_fees(), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
@settings(max_examples=400, deadline=None)
def test_jex_inputs_are_the_smallest(of: tuple[tuple[int, int], int], first: int, second: int, wanted: int) -> None:
    """Whatever the fees, no smaller input pays as much, found by trying them all."""
    (lp_fee, platform_fee), base = of
    pool = JexPool(**base_of((first, second)), lp_fee=lp_fee, platform_fee=platform_fee, fee_base=base)

    def paid(amount: int) -> int:
        return after(amount * second // (first + amount), (lp_fee, platform_fee), base)

    enough = first * second  # of more a unit of the output is left
    smallest = next((amount for amount in range(1, enough + 1) if paid(amount) >= wanted), None)
    try:
        assert pool.amount_in(0, 1, wanted) == smallest
    except InsufficientLiquidity:
        assert smallest is None


@pytest.mark.parametrize("wanted", [1, 2, 3, 10**6])
def test_fees_of_nearly_all_hang_nothing(wanted: int) -> None:
    """Where more amounts than can be looked at might be the smallest there is an answer or a `PoolError`, at once."""
    base = 10**10
    pool = JexPool(**base_of((10**24, 10**24)), lp_fee=base - 1, platform_fee=0, fee_base=base)
    with contextlib.suppress(NotConverged):
        amount = pool.amount_in(0, 1, wanted)
        assert pool.amount_out(0, 1, amount) >= wanted
    fine = JexPool(**base_of((10**24, 10**24)), lp_fee=base // 500, platform_fee=base // 500, fee_base=base)
    assert fine.amount_out(0, 1, fine.amount_in(0, 1, wanted)) >= wanted


@given(pools(), AMOUNTS, st.integers(1, 10**24))
@settings(max_examples=200, deadline=None)
def test_more_in_is_more_out(pool: ConstantProductPool, amount: int, more: int) -> None:
    """Output does not fall with input; JEX's two separate roundings may cost it one unit."""
    slack = 1 if isinstance(pool, JexPool) else 0
    try:
        least = pool.amount_out(0, 1, amount)
    except InvalidAmount:
        return
    assert pool.amount_out(0, 1, amount + more) >= least - slack


@given(pools(), AMOUNTS, AMOUNTS)
@settings(max_examples=200, deadline=None)
def test_a_round_trip_of_liquidity_gains_nothing(pool: ConstantProductPool, first: int, second: int) -> None:
    """What a deposit mints redeems for no more than was deposited."""
    try:
        mint = pool.mint((first, second))
        burn = mint.pool.burn(mint.lp)
    except PoolError:
        return
    assert mint.used[0] <= first
    assert mint.used[1] <= second
    if not isinstance(pool, JexPool):  # JEX counts the first token only, so the second may round up
        assert burn.amounts[0] <= mint.used[0]
        assert burn.amounts[1] <= mint.used[1]
    assert burn.pool.lp_supply == pool.lp_supply


@given(pools(), st.integers(-2, 10**60), st.integers(-3, 3), st.integers(-3, 3))
@settings(max_examples=200, deadline=None)
def test_whatever_is_asked_is_answered(pool: ConstantProductPool, amount: int, i: int, j: int) -> None:
    """Any amount and any index give an answer or a `PoolError`."""
    for call in (pool.amount_out, pool.amount_in, pool.swap):
        try:
            call(i, j, amount)
        except PoolError as error:
            assert str(error)
    with contextlib.suppress(PoolError):
        pool.burn(amount)


def some(kind: str = "x", **changes: Any) -> Any:
    fields = base_of((10**24, 10**12)) | changes
    if kind == "x":
        return XExchangePool(**fields, total_fee=300, special_fee=50)
    if kind == "j":
        return JexPool(**fields, lp_fee=20, platform_fee=20)
    return OneDexPool(**fields, pair_id=7, total_fee=100, special_fee=30, staking_fee=20, main=(True, False))


@pytest.mark.parametrize("kind", ["x", "o", "j"])
@pytest.mark.parametrize("state", [PoolState.NO_SWAPS, PoolState.INACTIVE])
def test_states_that_forbid_swaps(kind: str, state: PoolState) -> None:
    """Neither state swaps; only `noSwaps` still takes and pays liquidity."""
    pool = some(kind, state=state)
    with pytest.raises(SwapsDisabled, match=state.value):
        pool.amount_out(0, 1, 10**18)
    with pytest.raises(SwapsDisabled):
        pool.amount_in(0, 1, 10**6)
    if state == PoolState.NO_SWAPS:
        assert pool.mint((10**18, 10**6)).lp > 0
        assert pool.burn(10**9).amounts[0] > 0
    else:
        with pytest.raises(LiquidityDisabled):
            pool.mint((10**18, 10**6))
        with pytest.raises(LiquidityDisabled):
            pool.burn(10**9)


def test_a_disabled_onedex_pair_does_nothing() -> None:
    """`enabled` false stops swaps, deposits and withdrawals."""
    pool = OneDexPool(
        **base_of((10**24, 10**12)),
        pair_id=7,
        total_fee=100,
        special_fee=50,
        staking_fee=0,
        main=(True, False),
        enabled=False,
    )
    with pytest.raises(SwapsDisabled):
        pool.swap(0, 1, 10**18)
    with pytest.raises(LiquidityDisabled):
        pool.mint((10**18, 10**6))
    with pytest.raises(LiquidityDisabled):
        pool.burn(10**9)


def test_the_fee_side_of_onedex() -> None:
    """Selling a main pair token pays the fee on the input, selling the other one on the output."""
    pool = some("o")
    sold, bought = pool.swap(0, 1, 10**20), pool.swap(1, 0, 10**9)
    assert (sold.fee_token, sold.fee_amount) == ("A-aaaaaa", 10**18)
    assert bought.fee_token == "A-aaaaaa"
    gross = 10**9 * 10**24 // (10**12 + 10**9)
    assert (bought.amount_out, bought.fee_amount) == (gross - gross // 100, gross // 100)
    assert sold.pool.reserves[0] == 10**24 + 99 * 10**18 + 5 * 10**17


def test_onedex_first_deposit_reaches_a_unit_of_lp() -> None:
    """The smaller amount is multiplied by ten until it is 10^18; 10^15 of it stay in the pair."""
    pool = some("o", reserves=(0, 0), lp_supply=0)
    mint = pool.mint((10**24, 5 * 10**12))
    assert mint.pool.lp_supply == 5 * 10**18
    assert mint.lp == 5 * 10**18 - 10**15


def test_dust_pools_answer() -> None:
    """A pair with a few units on one side quotes, or says the amount is too small."""
    pool = some("o", reserves=(69, 264_612_852_228_120_072), lp_supply=142_391_218_207_681_836)
    assert 0 < pool.amount_out(0, 1, 1) < 264_612_852_228_120_072
    with pytest.raises(InvalidAmount, match="rounds to zero"):
        pool.amount_out(1, 0, 10**12)
    with pytest.raises(InsufficientLiquidity):
        pool.amount_in(1, 0, 69)


def test_empty_pools_refuse() -> None:
    """A pair before its first deposit has no price."""
    for kind in "xoj":
        with pytest.raises(InsufficientLiquidity):
            some(kind, reserves=(0, 0), lp_supply=0).amount_out(0, 1, 10)


def test_calls_an_exchange_lacks() -> None:
    """Only JEX takes and pays one token of a pair."""
    with pytest.raises(Unsupported):
        some("x").mint_single(0, 10)
    with pytest.raises(Unsupported):
        some("o").burn_single(10, 0)


# Where the special fee of an xExchange pair goes

SOMEONE = b"\x01" * 32


def burned(*tokens: str) -> tuple[FeeDestination, ...]:
    return tuple([FeeDestination(bytes(32), token) for token in tokens])


def trusted(*pairs: tuple[str, str]) -> tuple[TrustedPair, ...]:
    return tuple([TrustedPair(pair, SOMEONE) for pair in pairs])


HALF = {"fees_collector": SOMEONE, "fees_collector_cut": 50_000, "fee_destinations": (), "trusted_pairs": ()}
A, B, C, D = "A-aaaaaa", "B-aaaaaa", "C-aaaaaa", "D-aaaaaa"

USES: dict[str, tuple[dict[str, Any], FeeUse | None]] = {
    "fee off": ({"fee_enabled": False, "fee_destinations": burned(C)}, FeeUse()),
    "fee off, the rest not known": ({"fee_enabled": False, "fees_collector": None}, FeeUse()),
    "no special fee": ({"special_fee": 0, "fee_destinations": None}, FeeUse()),
    "collector gets all": ({"fees_collector_cut": 100_000}, FeeUse(collector=True)),
    "collector gets all, destinations get nothing": (
        {"fees_collector_cut": 100_000, "fee_destinations": burned(A, C), "trusted_pairs": None},
        FeeUse(collector=True),
    ),
    "collector gets nearly all": (
        {"fees_collector_cut": 99_999, "fee_destinations": burned(A)},
        FeeUse(collector=True, here=1),
    ),
    "the least cut": ({"fees_collector_cut": 1}, FeeUse(collector=True)),
    "a collector without a cut": ({"fees_collector_cut": 0, "fee_destinations": burned(A)}, FeeUse(here=1)),
    "a cut without a collector": ({"fees_collector": b"", "fee_destinations": burned(B)}, FeeUse(here=1)),
    "a full cut without a collector": (
        {"fees_collector": b"", "fees_collector_cut": 100_000, "fee_destinations": burned(B)},
        FeeUse(here=1),
    ),
    "both tokens burned": ({"fee_destinations": burned(A, B)}, FeeUse(collector=True, here=2)),
    "own tokens, pairs not known": (
        {"fee_destinations": burned(A), "trusted_pairs": None},
        FeeUse(collector=True, here=1),
    ),
    "sold elsewhere": (
        {"fee_destinations": burned(C), "trusted_pairs": trusted((B, C))},
        FeeUse(collector=True, elsewhere=1),
    ),
    "sold elsewhere, tokens the other way round": (
        {"fee_destinations": burned(C), "trusted_pairs": trusted((C, A))},
        FeeUse(collector=True, elsewhere=1),
    ),
    "here and elsewhere": (
        {"fee_destinations": burned(C, A, D), "trusted_pairs": trusted((A, C), (D, B))},
        FeeUse(collector=True, here=1, elsewhere=2),
    ),
    "to be sold nowhere": ({"fee_destinations": burned(C)}, FeeUse(collector=True)),
    "trusted pairs without the pair's tokens": (
        {"fee_destinations": burned(C), "trusted_pairs": trusted((C, D), (A, D))},
        FeeUse(collector=True),
    ),
    "nothing left for destinations, which are not known": (
        {"fees_collector_cut": 100_000, "fee_destinations": None},
        FeeUse(collector=True),
    ),
    "collector not known": ({"fees_collector": None}, None),
    "destinations not known": ({"fee_destinations": None}, None),
    "pairs not known": ({"fee_destinations": burned(A, C), "trusted_pairs": None}, None),
}


@pytest.mark.parametrize(("fields", "use"), USES.values(), ids=USES.keys())
def test_what_a_swap_does_with_the_special_fee(fields: dict[str, Any], use: FeeUse | None) -> None:
    """A cut for the collector and one burn for each slice that can be sold; not known only where it would matter."""
    common: dict[str, Any] = {"total_fee": 300, "special_fee": 50} | HALF
    assert XExchangePool(**base_of((10**18, 10**18)), **(common | fields)).fee_use == use


def test_a_pool_made_without_it_does_not_know_where_its_fee_goes() -> None:
    """Nothing is taken for granted of a pair of which only the fee is known."""
    assert XExchangePool(**base_of((10**18, 10**18)), total_fee=300, special_fee=50).fee_use is None


@st.composite
def fee_setups(draw: st.DrawFn) -> XExchangePool:
    tokens = st.sampled_from((A, B, C, D))
    return XExchangePool(
        **base_of((10**18, 10**18)),
        total_fee=300,
        special_fee=draw(st.sampled_from((0, 50))),
        fee_enabled=draw(st.booleans()),
        fees_collector=draw(st.sampled_from((None, b"", SOMEONE))),
        fees_collector_cut=draw(st.sampled_from((0, 1, 50_000, 100_000))),
        fee_destinations=draw(st.none() | st.lists(tokens, max_size=4).map(lambda names: burned(*names))),
        trusted_pairs=draw(
            st.none()
            | st.lists(st.tuples(tokens, tokens).filter(lambda pair: pair[0] != pair[1]), max_size=4).map(
                lambda pairs: trusted(*pairs)
            )
        ),
    )


@given(fee_setups(), st.integers(1, 10**15))
@settings(max_examples=300, deadline=None)
def test_a_fee_is_used_for_no_less_than_is_paid(pool: XExchangePool, amount: int) -> None:
    """A collector that gets anything is counted, though a cut may round to zero; no slice is counted twice."""
    use = pool.fee_use
    if use is None:
        assert None in (pool.fees_collector, pool.fee_destinations, pool.trusted_pairs)
        return
    if pool.fees_collector and pool.collector_fee(amount):
        assert use.collector
    assert use.here + use.elsewhere <= len(pool.fee_destinations or ())
    assert use.elsewhere == 0 or pool.trusted_pairs
    if not pool.fees_collector_cut:
        assert not use.collector


@given(fee_setups())
@settings(max_examples=200, deadline=None)
def test_what_is_not_known_makes_no_swap_cheaper(pool: XExchangePool) -> None:
    """Forgetting any part of a pair's fee setup leaves its use the same or not known, never another one."""
    known = pool.fee_use
    for field in ("fees_collector", "fee_destinations", "trusted_pairs"):
        assert msgspec.structs.replace(pool, **{field: None}).fee_use in (known, None)
