"""The CryptoSwap arithmetic against calls recorded on Curve pools of two and three coins."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.dex.cryptoswap import fee_rate, geometric_mean, newton_d, newton_y
from millrace.dex.pool import InsufficientLiquidity, PoolError

UNIT = 10**18
VECTORS = json.loads((Path(__file__).parent / "vectors" / "cryptoswap.json").read_text())


def vectors(*ops: str) -> list[Any]:
    found = [pytest.param(v, id=v["id"]) for v in VECTORS if v["op"] in ops]
    assert found, ops
    return found


def curve(state: dict[str, Any]) -> tuple[int, int, int]:
    """(ann, gamma, multiplier)."""
    return int(state.get("ANN") or state["ANN_used_in_math"]), int(state["gamma"]), int(state["A_MULTIPLIER"])


def price_scale(state: dict[str, Any]) -> list[int]:
    scale = state["price_scale"]
    return [int(x) for x in scale] if isinstance(scale, list) else [int(scale)]


def output(state: dict[str, Any], balances: list[int], args: dict[str, Any]) -> int:
    """Output of a recorded exchange, put together from the module's parts."""
    ann, gamma, multiplier = curve(state)
    precisions, scale = [int(x) for x in state["precisions"]], [UNIT, *price_scale(state)]
    i, j = args["i"], args["j"]
    held = list(balances)
    held[i] += int(args["dx"])
    xp = [x * precision * price // UNIT for x, precision, price in zip(held, precisions, scale, strict=True)]
    y = newton_y(ann, gamma, xp, int(state["D"]), j, multiplier)
    gained = xp[j] - y - 1
    xp[j] = y
    if len(xp) == 2 and j == 1:
        out = gained * UNIT // (scale[1] * precisions[1])
    else:
        out = gained * UNIT // scale[j] // precisions[j]
    rate = fee_rate(xp, int(state["fee_gamma"]), int(state["mid_fee"]), int(state["out_fee"]))
    return out - rate * out // 10**10


@pytest.mark.parametrize("v", vectors("get_dy"))
def test_recorded_outputs(v: Any) -> None:
    """Outputs are the contract's to the unit, with the invariant it had stored."""
    balances = [int(x) for x in v["state"]["balances"]]
    assert output(v["state"], balances, v["args"]) == int(v["expected"]["dy"])


@pytest.mark.parametrize("v", vectors("exchange (balances after)"))
def test_recorded_exchanges(v: Any) -> None:
    """Balances after an exchange are the contract's, the invariant having been solved afresh before it."""
    state, args = v["state"], v["args"]
    balances = [int(x) for x in state["balances"]]
    out = output(state, balances, args)
    balances[args["i"]] += int(args["dx"])
    balances[args["j"]] -= out
    assert balances == [int(x) for x in v["expected"]["balances_after"]]


def test_the_invariant_between_recorded_exchanges() -> None:
    """The invariant stored before the third exchange is the one that its balances give."""
    (v,) = [v for v in VECTORS if v["id"] == "cr-028"]
    state = v["state"]
    scale = [UNIT, *price_scale(state)]
    triples = zip(state["balances"], state["precisions"], scale, strict=True)
    xp = [int(balance) * int(precision) * price // UNIT for balance, precision, price in triples]
    ann, gamma, multiplier = curve(state)
    assert newton_d(ann, gamma, xp, multiplier) == int(state["D"])


@pytest.mark.parametrize("v", vectors("newton_D"))
def test_recorded_invariants(v: Any) -> None:
    """D of recorded balances."""
    ann, gamma, multiplier = curve(v["state"])
    assert newton_d(ann, gamma, [int(x) for x in v["args"]["xp"]], multiplier) == int(v["expected"]["D"])


@pytest.mark.parametrize("v", vectors("newton_y"))
def test_recorded_balances(v: Any) -> None:
    """The balance of one coin that a recorded D asks for."""
    ann, gamma, multiplier = curve(v["state"])
    x, d = [int(x) for x in v["args"]["x"]], int(v["state"]["D"])
    assert newton_y(ann, gamma, x, d, v["args"]["i"], multiplier) == int(v["expected"]["y"])


PARAMETERS = (400_000, 145_000_000_000_000)


@given(st.integers(10**18, 10**27), st.integers(1, 80))
@settings(max_examples=150, deadline=None)
def test_balance_and_invariant_are_inverse(x: int, percent: int) -> None:
    """Solving for a balance at the D of two balances gives that balance back, within the stopping rule."""
    other = max(x * percent // 100, 10**17)
    d = newton_d(*PARAMETERS, [x, other])
    solved = newton_y(*PARAMETERS, [x, 0], d, 1)
    assert abs(solved - other) <= max(200, other // 10**10)
    assert newton_d(*PARAMETERS, [other, x]) == d


@given(st.lists(st.integers(0, 10**40), min_size=2, max_size=4), st.integers(0, 10**40))
@settings(max_examples=300, deadline=None)
def test_any_balances_are_answered(x: list[int], d: int) -> None:
    """Whatever the balances and the invariant, the answer is a number or a `PoolError`."""
    for call in (lambda: newton_d(*PARAMETERS, x), lambda: newton_y(*PARAMETERS, x, d, 0)):
        try:
            assert call() > 0
        except PoolError as error:
            assert str(error)


def test_unsafe_balances_are_refused() -> None:
    """Contracts refuse balances beyond 1 % and 10 000 % of D, and so does this."""
    with pytest.raises(InsufficientLiquidity, match="uneven"):
        newton_y(*PARAMETERS, [10**24, 0], 10**27, 1)
    with pytest.raises(InsufficientLiquidity):
        newton_d(*PARAMETERS, [10**24, 10**19])
    with pytest.raises(InsufficientLiquidity):
        newton_d(*PARAMETERS, [10**24, 0])


def test_the_fee_grows_with_imbalance() -> None:
    """In balance the fee is the middle fee, far from it the outer one."""
    assert fee_rate([UNIT, UNIT], 10**16, 26_000_000, 45_000_000) == 26_000_000
    assert fee_rate([UNIT, 1], 10**14, 26_000_000, 45_000_000) > 44_000_000
    assert fee_rate([UNIT] * 3, 10**16, 3_000_000, 30_000_000) == 3_000_000


def test_geometric_means() -> None:
    """The mean of equal values is the value, of two values the root of their product."""
    assert geometric_mean([10**20, 10**20]) == 10**20
    assert abs(geometric_mean([4 * 10**20, 10**20]) - 2 * 10**20) <= 1
    assert abs(geometric_mean([8 * 10**20, 10**20, 10**20]) - 2 * 10**20) <= 200
