"""The CryptoSwap invariant in integers, for any number of coins.

Curve's second invariant: an amplified curve around a price scale that falls back to constant product away
from it. `ann` is the value that getters answer (A n^n times the multiplier); `gamma` over 10^18. Every step
rounds as the contracts do, divisions from left to right. Sources: Curve's 2021 CryptoSwap pools (two and
three coins), AshSwap's ABI; see docs/pools.md.
"""

from collections.abc import Sequence

from millrace.dex.pool import InsufficientLiquidity, NotConverged

UNIT = 10**18
FEE_BASE = 10**10
NOISE_FEE = 10**5
A_MULTIPLIER = 10_000
MAX_ITERATIONS = 255
MIN_D = 10**17
MAX_D = 10**33


def geometric_mean(values: Sequence[int]) -> int:
    """The geometric mean as the contracts iterate it; `values` in descending order."""
    n = len(values)
    mean = values[0]
    for _ in range(MAX_ITERATIONS):
        previous = mean
        if n == 2:
            mean = (mean + values[0] * values[1] // mean) // 2
        else:
            product = UNIT
            for value in values:
                product = product * value // mean
            mean = mean * ((n - 1) * UNIT + product) // (n * UNIT)
        change = abs(mean - previous)
        if change <= 1 or change * UNIT < mean:
            return mean
        if mean == 0:
            break
    raise NotConverged("the geometric mean did not converge")


def newton_d(ann: int, gamma: int, balances: Sequence[int], multiplier: int = A_MULTIPLIER) -> int:
    """D of scaled balances."""
    n = len(balances)
    x = sorted(balances, reverse=True)
    if not 10**9 <= x[0] <= MAX_D or x[-1] * UNIT // x[0] < (10**14 if n == 2 else 10**11):
        raise InsufficientLiquidity("the balances are outside what the pool's contract accepts")
    total = sum(x)
    d = n * geometric_mean(x)
    for _ in range(MAX_ITERATIONS):
        previous = d
        k0 = _product(x, d)
        if k0 == 0:
            break
        g = abs(gamma + UNIT - k0) + 1
        mul1 = UNIT * d // gamma * g // gamma * g * multiplier // ann
        mul2 = 2 * UNIT * n * k0 // g
        slope = total + total * mul2 // UNIT + mul1 * n // k0 - mul2 * d // UNIT
        if slope <= 0:
            break
        plus = d * (slope + total) // slope
        minus = d * d // slope
        if k0 < UNIT:
            minus += d * (mul1 // slope) // UNIT * (UNIT - k0) // k0
        else:
            minus -= d * (mul1 // slope) // UNIT * (k0 - UNIT) // k0
        d = plus - minus if plus > minus else (minus - plus) // 2
        if d <= 0:
            break
        if abs(d - previous) * 10**14 < max(10**16, d):
            for value in x:
                _require_share(value, d)
            return d
    raise NotConverged("the pool's invariant did not converge")


def _product(x: Sequence[int], d: int) -> int:
    """K0: how far the balances are from even, 10^18 when even. Two-coin contracts divide less often."""
    n = len(x)
    if n == 2:
        return 4 * UNIT * x[0] // d * x[1] // d
    k0 = UNIT
    for value in x:
        k0 = k0 * value * n // d
    return k0


def _require_share(value: int, d: int) -> None:
    """The contracts work only while every balance is between 1 % of D and 100 D."""
    if not 10**16 <= value * UNIT // d <= 10**20:
        raise InsufficientLiquidity("the balances would be too uneven for the pool's contract")


def newton_y(ann: int, gamma: int, x: Sequence[int], d: int, j: int, multiplier: int = A_MULTIPLIER) -> int:
    """The scaled balance of coin `j` at which D is `d`; `x[j]` is ignored."""
    n = len(x)
    others = [value for k, value in enumerate(x) if k != j]
    if not MIN_D <= d <= MAX_D:
        raise InsufficientLiquidity("the invariant is outside what the pool's contract accepts")
    for value in others:
        _require_share(value, d)
    y, k0_start, total = _start(others, d, n)
    limit = max(max(others) // 10**14, d // 10**14, 100)
    for _ in range(MAX_ITERATIONS):
        previous = y
        k0 = k0_start * y * n // d
        s = total + y
        g = abs(gamma + UNIT - k0) + 1
        mul1 = UNIT * d // gamma * g // gamma * g * multiplier // ann
        mul2 = UNIT + 2 * UNIT * k0 // g
        yf = UNIT * y + s * mul2 + mul1
        dyf = d * mul2
        if yf < dyf:
            y = previous // 2
            continue
        yf -= dyf
        if y == 0 or k0 == 0 or (slope := yf // y) == 0:
            break
        minus = mul1 // slope
        plus = (yf + UNIT * d) // slope + minus * UNIT // k0
        minus += UNIT * s // slope
        y = previous // 2 if plus < minus else plus - minus
        if abs(y - previous) < max(limit, y // 10**14):
            _require_share(y, d)
            return y
    raise NotConverged("the pool's balance did not converge")


def _start(others: Sequence[int], d: int, n: int) -> tuple[int, int, int]:
    """First guess of y, the product term without y, and the sum of the other balances."""
    if n == 2:
        (x,) = others
        return d * d // (x * 4), 2 * UNIT * x // d, x
    y = d // n
    k0 = UNIT
    total = 0
    ascending = sorted(others)
    for x in ascending:
        y = y * d // (x * n)
        total += x
    for x in reversed(ascending):
        k0 = k0 * x * n // d
    return y, k0, total


def fee_rate(xp: Sequence[int], fee_gamma: int, mid_fee: int, out_fee: int) -> int:
    """The fee at these balances, over 10^10: `mid_fee` in balance, towards `out_fee` away from it."""
    n = len(xp)
    total = sum(xp)
    if total <= 0:
        raise InsufficientLiquidity("the pool holds nothing")
    if n == 2:
        k = UNIT * 4 * xp[0] // total * xp[1] // total
        k = fee_gamma * UNIT // (fee_gamma + UNIT - k)
    else:
        k = UNIT
        for x in xp:
            k = k * n * x // total
        if fee_gamma > 0:
            k = fee_gamma * UNIT // (fee_gamma + UNIT - k)
    return (mid_fee * k + out_fee * (UNIT - k)) // UNIT
