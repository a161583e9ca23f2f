"""The StableSwap arithmetic against calls recorded on Curve pools: two and three coins, both fee orders."""

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.dex.pool import InsufficientLiquidity, NotConverged
from millrace.dex.stableswap import StableMaths, balance_for, invariant, liquidity_fee

VECTORS = Path(__file__).parent / "vectors"
SWAPS = [v for v in json.loads((VECTORS / "stableswap.json").read_text()) if v["op"].startswith("get_dy")]
LIQUIDITY = [v for v in json.loads((VECTORS / "liquidity.json").read_text()) if v["venue"] == "Curve StableSwap"]


def maths(state: dict[str, Any], *, fee_first: bool) -> StableMaths:
    fee = int(state["fee"])
    return StableMaths(
        amp=int(state["A"]),
        rates=tuple(int(rate) for rate in state["rates"]),
        fee=fee,
        fee_base=int(state["fee_base"]),
        liquidity_fee=liquidity_fee(fee, len(state["rates"])),
        precision=int(state["a_precision"]),
        fee_first=fee_first,
    )


def balances(state: dict[str, Any]) -> list[int]:
    return [int(balance) for balance in state["balances"]]


@pytest.mark.parametrize("v", [pytest.param(v, id=v["id"]) for v in SWAPS])
def test_recorded_outputs(v: Any) -> None:
    """3pool (A without precision) takes its fee from the converted output, later pools before conversion."""
    state, args = v["state"], v["args"]
    pool = maths(state, fee_first=state["a_precision"] != 1)
    out = pool.swap_output(balances(state), args["i"], args["j"], int(args["dx"]))
    assert out.amount == int(v["expected"]["dy"])


@pytest.mark.parametrize("v", [pytest.param(v, id=v["id"]) for v in LIQUIDITY if "lp" in v["expected"]])
def test_recorded_deposit_estimates(v: Any) -> None:
    """LP for a deposit without fees is the growth of the invariant."""
    state = v["state"]
    before = balances(state)
    after = [x + int(amount) for x, amount in zip(before, v["args"]["amounts"], strict=True)]
    lp = maths(state, fee_first=False).lp_for(before, after, int(state["lp_supply"]))
    assert lp == int(v["expected"]["lp"])


@pytest.mark.parametrize("v", [pytest.param(v, id=v["id"]) for v in LIQUIDITY if "dy" in v["expected"]])
def test_recorded_withdrawals_of_one_coin(v: Any) -> None:
    """One coin for LP, the imbalance fee taken, down to amounts that pay nothing."""
    state = v["state"]
    out, _ = maths(state, fee_first=False).withdrawal(
        balances(state), int(v["args"]["lp"]), int(state["lp_supply"]), v["args"]["i"]
    )
    assert out == int(v["expected"]["dy"])


def test_the_invariant_of_a_balanced_pool_is_its_sum() -> None:
    """Equal balances add up to D; D solves back to the balances."""
    xp = [10**24] * 4
    assert invariant(xp, 100) == 4 * 10**24
    assert abs(balance_for(xp, 100, 4 * 10**24, 2) - 10**24) <= 1


def test_empty_and_one_sided_pools() -> None:
    """No balances: D is 0. One missing balance: an error, not a division by zero."""
    assert invariant([0, 0], 100) == 0
    with pytest.raises(InsufficientLiquidity):
        invariant([10**18, 0], 100)
    with pytest.raises(InsufficientLiquidity):
        balance_for([0, 10**18], 100, 10**18, 1)


def test_balances_without_a_solution_are_reported() -> None:
    """The iteration is bounded: balances that no pool can have end in an error, not in a loop."""
    with pytest.raises(NotConverged):
        invariant([10**60, 1], 1)
