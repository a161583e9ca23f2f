"""The StableSwap invariant in integers, for any number of coins.

    A n^n sum(x) + D = A D n^n + D^(n+1) / (n^n prod(x))

Balances enter as `xp`: scaled to 18 decimals and multiplied by a price. `amp` is the A that getters of
such pools answer, times `precision` (100 on later Curve pools, 1 on Curve 3pool, JEX and AshSwap). Every
step rounds as the contracts do. Sources: Curve's StableSwap, JEX `jex-sc-stablepool`; see docs/pools.md.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from millrace.dex.pool import InsufficientLiquidity, InvalidAmount, NotConverged

MAX_ITERATIONS = 255
UNIT = 10**18


def invariant(xp: Sequence[int], amp: int, precision: int = 1) -> int:
    """D: what the balances would sum to if the pool were in balance. 0 for an empty pool."""
    n = len(xp)
    total = sum(xp)
    if total == 0:
        return 0
    if min(xp) <= 0:
        raise InsufficientLiquidity("a balance of the pool is empty")
    ann = amp * n
    d = total
    for _ in range(MAX_ITERATIONS):
        product = d
        for x in xp:
            product = product * d // (n * x)
        previous = d
        numerator = (ann * total // precision + n * product) * d
        d = numerator // ((ann - precision) * d // precision + (n + 1) * product)
        if -1 <= d - previous <= 1:
            return d
    raise NotConverged("the pool's invariant did not converge")


def balance_for(xp: Sequence[int], amp: int, d: int, j: int, precision: int = 1) -> int:
    """The balance of coin `j` at which the invariant is `d`, the other balances being those of `xp`."""
    n = len(xp)
    ann = amp * n
    c = d
    total = 0
    for k, x in enumerate(xp):
        if k != j:
            if x <= 0:
                raise InsufficientLiquidity("a balance of the pool is empty")
            total += x
            c = c * d // (x * n)
    c = c * d * precision // (ann * n)
    b = total + d * precision // ann - d
    y = d
    for _ in range(MAX_ITERATIONS):
        previous = y
        slope = 2 * y + b
        if slope <= 0:
            break
        y = (y * y + c) // slope
        if -1 <= y - previous <= 1:
            return y
    raise NotConverged("the pool's balance did not converge")


class Output(NamedTuple):
    """A swap in units of the bought coin: the net amount, the fee, and the part of the fee that leaves."""

    amount: int
    fee: int
    leaving: int


class StableMaths(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's arithmetic around the invariant: scaling, fees, and where each exchange rounds.

    `rates[k]` turns units of coin k into `xp` over 10^18. `fee` and `liquidity_fee` are over `fee_base`;
    `admin` is the part of a swap's fee that leaves the pool, as numerator and denominator.

    * `fee_first`: the fee is taken in `xp` and the rest converted (later Curve pools, AshSwap); otherwise
      the output is converted and the fee taken from it (Curve 3pool, JEX).
    * `multipliers`: if given, conversion divides by the multiplier first and by the price after (JEX).
    """

    amp: int
    rates: tuple[int, ...]
    fee: int
    fee_base: int
    liquidity_fee: int
    admin: tuple[int, int] = (0, 1)
    precision: int = 1
    fee_first: bool = True
    multipliers: tuple[int, ...] | None = None

    def scale(self, k: int, amount: int) -> int:
        """Units of coin `k` in `xp`."""
        return amount * self.rates[k] // UNIT

    def unscale(self, k: int, amount: int) -> int:
        """`xp` in units of coin `k`."""
        if self.multipliers is None:
            return amount * UNIT // self.rates[k]
        multiplier = self.multipliers[k]
        return amount // multiplier * UNIT // (self.rates[k] // multiplier)

    def xp(self, balances: Sequence[int]) -> list[int]:
        """Scaled balances."""
        return [balance * rate // UNIT for balance, rate in zip(balances, self.rates, strict=True)]

    def invariant(self, xp: Sequence[int]) -> int:
        """D of scaled balances."""
        return invariant(xp, self.amp, self.precision)

    def balance_for(self, xp: Sequence[int], d: int, j: int) -> int:
        """Scaled balance of coin `j` that gives `d`."""
        return balance_for(xp, self.amp, d, j, self.precision)

    def swap_output(self, balances: Sequence[int], i: int, j: int, amount: int, d: int | None = None) -> Output:
        """Outcome, in units of coin `j`, of selling `amount` of coin `i`. `d`: the invariant, if at hand."""
        xp = self.xp(balances)
        if d is None:
            d = self.invariant(xp)
        if d == 0:
            raise InsufficientLiquidity("the pool holds nothing")
        before = xp[j]
        xp[i] += self.scale(i, amount)
        gained = before - self.balance_for(xp, d, j) - 1
        if gained <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        part, whole = self.admin
        if self.fee_first:
            fee = gained * self.fee // self.fee_base
            leaving = self.unscale(j, fee * part // whole)
            return Output(self.unscale(j, gained - fee), self.unscale(j, fee), leaving)
        gross = self.unscale(j, gained)
        fee = gross * self.fee // self.fee_base
        return Output(gross - fee, fee, fee * part // whole)

    def swap_input(self, balances: Sequence[int], i: int, j: int, wanted: int) -> int:
        """The input of coin `i` for `wanted` units of coin `j`, rounded down: may be a unit or two short."""
        gross = wanted * self.fee_base // (self.fee_base - self.fee)
        xp = self.xp(balances)
        d = self.invariant(xp)
        before = xp[i]
        xp[j] -= self.scale(j, gross)
        if xp[j] <= 0 or d == 0:
            raise InsufficientLiquidity(f"the pool holds {balances[j]}, {wanted} are wanted")
        return max(self.balance_for(xp, d, i) - before, 0) * UNIT // self.rates[i]

    def lp_for(self, balances: Sequence[int], after: Sequence[int], supply: int) -> int:
        """LP units for moving from one set of balances to another, fees ignored (`calc_token_amount`)."""
        d0, d1 = self.invariant(self.xp(balances)), self.invariant(self.xp(after))
        if d0 == 0:
            return d1
        return supply * abs(d1 - d0) // d0

    def imbalance_fee(self, old: int, new: int, d0: int, d1: int) -> int:
        """Fee on one balance of a deposit: on its distance from where a balanced deposit would take it."""
        return abs(old * d1 // d0 - new) * self.liquidity_fee // self.fee_base

    def withdrawal(self, balances: Sequence[int], lp: int, supply: int, j: int) -> tuple[int, int]:
        """(output, fee) in units of coin `j` for redeeming `lp` of `supply` LP units in that coin alone."""
        xp = self.xp(balances)
        d0 = self.invariant(xp)
        d1 = d0 - d0 * lp // supply
        if d1 <= 0:
            raise InsufficientLiquidity("one coin cannot stand for the whole pool")
        y0 = self.balance_for(xp, d1, j)
        reduced = []
        for k, x in enumerate(xp):
            share = x * d1 // d0
            change = share - y0 if k == j else x - share
            reduced.append(x - max(change, 0) * self.liquidity_fee // self.fee_base)
        gained = reduced[j] - self.balance_for(reduced, d1, j) - 1
        if gained < 0:
            raise InvalidAmount("the LP amount is too small")
        out = self.unscale(j, gained)
        return out, max(self.unscale(j, xp[j] - y0) - out, 0)


def liquidity_fee(fee: int, coins: int) -> int:
    """The usual fee on imbalance: fee * n / (4 (n - 1)), rounded down."""
    return fee * coins // (4 * (coins - 1))
