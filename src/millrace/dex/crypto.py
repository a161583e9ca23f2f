"""AshSwap's CryptoSwap pools: two coins around a price scale.

The invariant D is part of the state: proportional withdrawals scale it, so it need not be what the
balances alone would give. Sources: Curve's two-coin CryptoSwap of 2021, whose shape AshSwap's ABI has; see
docs/pools.md for what is not reproduced (the price scale does not move).
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from millrace.dex.cryptoswap import (
    FEE_BASE,
    NOISE_FEE,
    UNIT,
    fee_rate,
    geometric_mean,
    newton_d,
    newton_y,
)
from millrace.dex.pool import (
    Burn,
    InsufficientLiquidity,
    InvalidAmount,
    InvalidToken,
    Mint,
    Pool,
    PoolState,
    Swap,
    precision,
    smallest_input,
)


class AshCryptoPool(Pool, frozen=True, kw_only=True):
    """`ann` is the raw value of getter A; `price_scale` is the price of token 1 in token 0 over 10^18.

    `d` is the stored invariant. `ramping` says that A or gamma are on their way to new values: the
    contract then solves D afresh before every call.
    """

    exchange: ClassVar[str] = "AshSwap"
    kind: ClassVar[str] = "crypto"

    decimals: tuple[int, int]
    ann: int
    gamma: int
    d: int
    price_scale: int
    mid_fee: int
    out_fee: int
    fee_gamma: int
    admin_fee: int = 0
    fee_base: int = FEE_BASE
    ramping: bool = False

    def scaled(self, balances: Sequence[int]) -> list[int]:
        """Balances to 18 decimals, token 1 at the price scale."""
        first, second = self.decimals
        return [
            balances[0] * precision(first),
            balances[1] * precision(second) * self.price_scale // UNIT,
        ]

    def current_d(self) -> int:
        """The invariant that the next call starts from."""
        if self.ramping:
            return newton_d(self.ann, self.gamma, self.scaled(self.reserves))
        return self.d

    def _require_swap(self, i: int, j: int, amount: int) -> None:
        if self.state != PoolState.ACTIVE:
            raise self._refuse_swap()
        if amount <= 0:
            raise InvalidAmount("the amount must be positive")
        if i | j != 1 or i == j:
            raise InvalidToken(f"pool {self.id} has tokens 0 and 1, not {i} and {j}")

    def _unscaled(self, j: int, amount: int) -> int:
        factor = precision(self.decimals[j])
        if j == 0:
            return amount // factor
        return amount * UNIT // (self.price_scale * factor)

    def _output(self, i: int, j: int, amount: int, d: int) -> tuple[int, int]:
        """(net output, fee)."""
        balances = list(self.reserves)
        balances[i] += amount
        xp = self.scaled(balances)
        y = newton_y(self.ann, self.gamma, xp, d, j)
        gained = xp[j] - y - 1
        if gained <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        xp[j] = y
        gross = self._unscaled(j, gained)
        fee = fee_rate(xp, self.fee_gamma, self.mid_fee, self.out_fee) * gross // self.fee_base
        return gross - fee, fee

    def amount_out(self, i: int, j: int, amount_in: int) -> int:
        self._require_swap(i, j, amount_in)
        out, _ = self._output(i, j, amount_in, self.current_d())
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        return out

    def fee_part(self, i: int, j: int, amount_in: int) -> float:
        """The part of the gross output that a swap's fee takes; it grows with imbalance."""
        out, fee = self._output(i, j, amount_in, self.current_d())
        return fee / (out + fee) if fee else 0.0

    def amount_in(self, i: int, j: int, amount_out: int) -> int:
        # The exchange has no inverse: search, starting from the invariant solved the other way round.
        self._require_swap(i, j, amount_out)
        d = self.current_d()
        guess = self._guess_input(i, j, amount_out, d)
        return smallest_input(lambda amount: self._output(i, j, amount, d)[0], amount_out, guess)

    def _guess_input(self, i: int, j: int, amount_out: int, d: int) -> int:
        xp = self.scaled(self.reserves)
        rate = fee_rate(xp, self.fee_gamma, self.mid_fee, self.out_fee)
        gross = amount_out * self.fee_base // (self.fee_base - rate)
        left = list(self.reserves)
        left[j] -= gross
        if left[j] <= 0:
            raise InsufficientLiquidity(f"pool {self.id} holds {self.reserves[j]}, {amount_out} are wanted")
        xp = self.scaled(left)
        needed = newton_y(self.ann, self.gamma, xp, d, i) - xp[i]
        return max(self._unscaled(i, max(needed, 0)), 1)

    def swap(self, i: int, j: int, amount_in: int) -> Swap:
        self._require_swap(i, j, amount_in)
        out, fee = self._output(i, j, amount_in, self.current_d())
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        reserves = list(self.reserves)
        reserves[i] += amount_in
        reserves[j] -= out
        d = newton_d(self.ann, self.gamma, self.scaled(reserves))
        return Swap(out, self.tokens[j], fee, self._after(reserves, d, self.lp_supply))

    def _after(self, reserves: Sequence[int], d: int, supply: int) -> "AshCryptoPool":
        return msgspec.structs.replace(self, reserves=tuple(reserves), d=d, lp_supply=supply)

    def mint(self, amounts: tuple[int, ...]) -> Mint:
        self._require_liquidity_open()
        self._require_deposit(amounts)
        supply = self.lp_supply
        reserves = [r + amount for r, amount in zip(self.reserves, amounts, strict=True)]
        xp = self.scaled(reserves)
        d = newton_d(self.ann, self.gamma, xp)
        if supply == 0:
            lp = self._first_lp(d)
        else:
            lp = supply * d // self.current_d() - supply
            deposited = [x - old for x, old in zip(xp, self.scaled(self.reserves), strict=True)]
            lp -= self._deposit_fee(deposited, xp) * lp // FEE_BASE + 1
        if lp <= 0:
            raise InvalidAmount("the deposit is too small: no LP would be minted")
        return Mint(lp, amounts, self._after(reserves, d, supply + lp))

    def _first_lp(self, d: int) -> int:
        """LP units of the first deposit: the constant product of a balanced pool with this D."""
        balanced = (d // 2, d * UNIT // (2 * self.price_scale))
        return geometric_mean(sorted(balanced, reverse=True))

    def _deposit_fee(self, deposited: Sequence[int], xp: Sequence[int]) -> int:
        """Fee rate of a deposit over 10^10: by how far it is from an even one."""
        fee = fee_rate(xp, self.fee_gamma, self.mid_fee, self.out_fee) * 2 // 4
        total = sum(deposited)
        if total == 0:
            raise InvalidAmount("the deposit is too small: it is worth nothing at the price scale")
        average = total // 2
        distance = sum(abs(amount - average) for amount in deposited)
        return fee * distance // total + NOISE_FEE

    def burn(self, lp: int) -> Burn:
        self._require_liquidity_open()
        self._require_withdrawal(lp)
        amounts = self.shares(lp - 1)  # the contract keeps a unit in favour of those who stay
        reserves = [r - amount for r, amount in zip(self.reserves, amounts, strict=True)]
        d = self.d - self.d * (lp - 1) // self.lp_supply
        return Burn(amounts, self._after(reserves, d, self.lp_supply - lp))

    def burn_single(self, lp: int, j: int) -> Burn:
        self._require_liquidity_open()
        self._require_withdrawal(lp)
        if j not in (0, 1):
            raise InvalidToken(f"pool {self.id} has no token {j}")
        xp = self.scaled(self.reserves)
        d0 = self.current_d()
        share = lp * d0 // self.lp_supply
        fee = fee_rate(xp, self.fee_gamma, self.mid_fee, self.out_fee)
        d = d0 - (share - (fee * share // (2 * FEE_BASE) + 1))
        if d <= 0:
            raise InsufficientLiquidity("one token cannot stand for the whole pool")
        gained = xp[j] - newton_y(self.ann, self.gamma, xp, d, j)
        paid = self._unscaled(j, gained) if gained > 0 else 0
        if paid <= 0:
            raise InvalidAmount("the LP amount is too small: the output rounds to zero")
        reserves = list(self.reserves)
        reserves[j] -= paid
        amounts = (paid, 0) if j == 0 else (0, paid)
        return Burn(amounts, self._after(reserves, d, self.lp_supply - lp))
