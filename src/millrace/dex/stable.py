"""StableSwap pools: JEX and AshSwap. Any number of coins, each with a price of its own.

Sources: JEX `jex-sc-stablepool`; AshSwap's public front-end formulas and Curve's deposits. Where two public
AshSwap formulas differ by a unit the smaller output is taken; see docs/pools.md.
"""

from typing import ClassVar

from millrace.dex.pool import (
    Burn,
    InvalidAmount,
    InvalidToken,
    LiquidityDisabled,
    Mint,
    Pool,
    PoolState,
    Restricted,
    Swap,
    precision,
    smallest_input,
)
from millrace.dex.stableswap import StableMaths, liquidity_fee


class StablePool(Pool, frozen=True, kw_only=True):
    """What both exchanges share. `decimals[k]` and `prices[k]` (10^18 = 1) belong to token k."""

    kind: ClassVar[str] = "stable"

    decimals: tuple[int, ...]
    prices: tuple[int, ...]
    amp: int
    swap_fee: int
    fee_base: int

    def maths(self) -> StableMaths:
        """The pool's arithmetic."""
        raise NotImplementedError

    def _rates(self) -> tuple[int, ...]:
        pairs = zip(self.decimals, self.prices, strict=True)
        return tuple([precision(decimals) * price for decimals, price in pairs])

    def _require_swap(self, i: int, j: int, amount: int) -> None:
        if self.state != PoolState.ACTIVE:
            raise self._refuse_swap()
        if amount <= 0:
            raise InvalidAmount("the amount must be positive")
        n = len(self.tokens)
        if not (0 <= i < n and 0 <= j < n and i != j):
            raise InvalidToken(f"pool {self.id} has tokens 0 to {n - 1}, not {i} and {j}")

    def amount_out(self, i: int, j: int, amount_in: int) -> int:
        self._require_swap(i, j, amount_in)
        out = self.maths().swap_output(self.reserves, i, j, amount_in).amount
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        return out

    def amount_in(self, i: int, j: int, amount_out: int) -> int:
        guess = self.view_amount_in(i, j, amount_out)
        maths, reserves = self.maths(), self.reserves
        d = maths.invariant(maths.xp(reserves))
        return smallest_input(lambda a: maths.swap_output(reserves, i, j, a, d).amount, amount_out, guess)

    def view_amount_in(self, i: int, j: int, amount_out: int) -> int:
        """View `estimateAmountIn`. It rounds down, so it can be a unit or two short."""
        self._require_swap(i, j, amount_out)
        return self.maths().swap_input(self.reserves, i, j, amount_out)

    def swap(self, i: int, j: int, amount_in: int) -> Swap:
        self._require_swap(i, j, amount_in)
        out, fee, leaving = self.maths().swap_output(self.reserves, i, j, amount_in)
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        reserves = list(self.reserves)
        reserves[i] += amount_in
        reserves[j] -= out + leaving
        return Swap(out, self.tokens[j], fee, self.with_reserves(tuple(reserves)))

    def mint_single(self, i: int, amount: int) -> Mint:
        return self.mint(tuple([amount if k == i else 0 for k in range(len(self.tokens))]))

    def _minted(self, lp: int, amounts: tuple[int, ...], reserves: tuple[int, ...]) -> Mint:
        if lp <= 0:
            raise InvalidAmount("the deposit is too small: no LP would be minted")
        return Mint(lp, amounts, self.with_reserves(reserves, self.lp_supply + lp))

    def burn(self, lp: int) -> Burn:
        self._require_withdrawal(lp)
        amounts = self.shares(lp)
        reserves = tuple([r - amount for r, amount in zip(self.reserves, amounts, strict=True)])
        return Burn(amounts, self.with_reserves(reserves, self.lp_supply - lp))

    def _withdrawn(self, lp: int, j: int, paid: int, leaving: int) -> Burn:
        if paid <= 0:
            raise InvalidAmount("the LP amount is too small: the output rounds to zero")
        amounts = tuple([paid if k == j else 0 for k in range(len(self.tokens))])
        reserves = tuple([r - (paid + leaving if k == j else 0) for k, r in enumerate(self.reserves)])
        return Burn(amounts, self.with_reserves(reserves, self.lp_supply - lp))

    def _require_withdrawal_of_one(self, lp: int, j: int) -> None:
        self._require_withdrawal(lp)
        if not 0 <= j < len(self.tokens):
            raise InvalidToken(f"pool {self.id} has no token {j}")


class JexStablePool(StablePool, frozen=True, kw_only=True):
    """JEX stable pool: the fee is taken from the converted output; `platform_share` of it leaves the pool.

    A `restricted` pool serves only contracts on its own list, which the aggregator is taken not to be on.
    """

    exchange: ClassVar[str] = "Jex"

    liquidity_fee: int
    fee_base: int = 1_000_000
    platform_share: tuple[int, int] = (33, 100)
    restricted: bool = False

    def maths(self) -> StableMaths:
        return StableMaths(
            amp=self.amp,
            rates=self._rates(),
            fee=self.swap_fee,
            fee_base=self.fee_base,
            liquidity_fee=self.liquidity_fee,
            admin=self.platform_share,
            fee_first=False,
            multipliers=tuple([precision(decimals) for decimals in self.decimals]),
        )

    def _require_swap(self, i: int, j: int, amount: int) -> None:
        self._require_caller()
        StablePool._require_swap(self, i, j, amount)

    def _require_caller(self) -> None:
        if self.restricted:
            raise Restricted(f"pool {self.id} serves only contracts on its own list")

    def mint(self, amounts: tuple[int, ...]) -> Mint:
        self._require_caller()
        if self.state != PoolState.ACTIVE:
            raise LiquidityDisabled(f"pool {self.id} is paused: deposits are not allowed")
        self._require_deposit(amounts)
        maths, supply = self.maths(), self.lp_supply
        old = maths.xp(self.reserves)
        new = [x + maths.scale(k, amount) for k, (x, amount) in enumerate(zip(old, amounts, strict=True))]
        d0 = maths.invariant(old) if supply else 0
        d1 = maths.invariant(new)
        if d1 <= d0:
            raise InvalidAmount("the deposit is too small: liquidity does not increase")
        if supply:
            charged = [x - maths.imbalance_fee(before, x, d0, d1) for before, x in zip(old, new, strict=True)]
            lp = (maths.invariant(charged) - d0) * supply // d0
        else:
            lp = d1
        reserves = tuple([r + amount for r, amount in zip(self.reserves, amounts, strict=True)])
        return self._minted(lp, amounts, reserves)

    def burn(self, lp: int) -> Burn:
        self._require_caller()
        return StablePool.burn(self, lp)

    def burn_single(self, lp: int, j: int) -> Burn:
        self._require_caller()
        self._require_withdrawal_of_one(lp, j)
        paid, _ = self.maths().withdrawal(self.reserves, lp, self.lp_supply, j)
        return self._withdrawn(lp, j, paid, 0)


class AshStablePool(StablePool, frozen=True, kw_only=True):
    """AshSwap stable pool: the fee is taken before conversion; `admin_fee` of it leaves the pool."""

    exchange: ClassVar[str] = "AshSwap"

    admin_fee: int
    fee_base: int = 100_000
    pool_type: str = "plain"

    def maths(self) -> StableMaths:
        return StableMaths(
            amp=self.amp,
            rates=self._rates(),
            fee=self.swap_fee,
            fee_base=self.fee_base,
            liquidity_fee=liquidity_fee(self.swap_fee, len(self.tokens)),
            admin=(self.admin_fee, self.fee_base),
        )

    def mint(self, amounts: tuple[int, ...]) -> Mint:
        self._require_liquidity_open()
        self._require_deposit(amounts)
        maths, supply = self.maths(), self.lp_supply
        new = [r + amount for r, amount in zip(self.reserves, amounts, strict=True)]
        d0 = maths.invariant(maths.xp(self.reserves)) if supply else 0
        d1 = maths.invariant(maths.xp(new))
        if d1 <= d0:
            raise InvalidAmount("the deposit is too small: liquidity does not increase")
        if not supply:
            return self._minted(d1, amounts, tuple(new))
        fees = [maths.imbalance_fee(old, x, d0, d1) for old, x in zip(self.reserves, new, strict=True)]
        charged = [x - fee for x, fee in zip(new, fees, strict=True)]
        lp = (maths.invariant(maths.xp(charged)) - d0) * supply // d0
        kept = [x - fee * self.admin_fee // self.fee_base for x, fee in zip(new, fees, strict=True)]
        return self._minted(lp, amounts, tuple(kept))

    def burn(self, lp: int) -> Burn:
        self._require_liquidity_open()
        return StablePool.burn(self, lp)

    def burn_single(self, lp: int, j: int) -> Burn:
        self._require_liquidity_open()
        self._require_withdrawal_of_one(lp, j)
        paid, fee = self.maths().withdrawal(self.reserves, lp, self.lp_supply, j)
        return self._withdrawn(lp, j, paid, fee * self.admin_fee // self.fee_base)
