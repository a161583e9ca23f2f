"""Contracts that take one token for another at a rate, whatever the amount: liquid staking, and money markets.

One direction only: who stakes cannot take it back at once, and supplying and redeeming are two pools. What comes in is
staked or lent; what can be paid out is the second reserve, which nothing here replenishes. The first one only says
what all of it costs.
"""

from typing import ClassVar, Final

from millrace.dex.pool import InsufficientLiquidity, InvalidAmount, Pool, PoolState, Swap, Unsupported

SOLD, BOUGHT = 0, 1


class RatePool(Pool, frozen=True, kw_only=True):
    """`rate` is a fraction: units of the second token for a unit of the first, rounded down in each trade.

    With `native` the contract takes EGLD, and the first token is the wrapped one, which is unwrapped beforehand.
    """

    rate: tuple[int, int]
    native: bool = False

    def amount_out(self, i: int, j: int, amount_in: int) -> int:
        self._require_direction(i, j)
        if amount_in <= 0:
            raise InvalidAmount("the amount must be positive")
        paid = amount_in * self.rate[0] // self.rate[1]
        if paid == 0:
            raise InvalidAmount(f"pool {self.id} pays nothing for {amount_in}")
        self._require_stock(paid)
        return paid

    def amount_in(self, i: int, j: int, amount_out: int) -> int:
        self._require_direction(i, j)
        if amount_out <= 0:
            raise InvalidAmount("the amount must be positive")
        self._require_stock(amount_out)
        needed = -(-amount_out * self.rate[1] // self.rate[0])
        self._require_stock(needed * self.rate[0] // self.rate[1])
        return needed

    def most_in(self) -> int:
        """The largest amount that the stock pays for."""
        return (self.reserves[BOUGHT] * self.rate[1] - 1) // self.rate[0]

    def swap(self, i: int, j: int, amount_in: int) -> Swap:
        paid = self.amount_out(i, j, amount_in)
        after = self.with_reserves((self.reserves[SOLD], self.reserves[BOUGHT] - paid))
        return Swap(paid, self.tokens[SOLD], 0, after)

    def _require_direction(self, i: int, j: int) -> None:
        if (i, j) != (SOLD, BOUGHT):
            raise Unsupported(f"pool {self.id} takes {self.tokens[SOLD]} only")
        if self.state != PoolState.ACTIVE:
            raise self._refuse_swap()

    def _require_stock(self, paid: int) -> None:
        if paid >= self.reserves[BOUGHT]:
            raise InsufficientLiquidity(f"pool {self.id} has {self.reserves[BOUGHT]} to pay out, not {paid}")


class XoxnoStaking(RatePool, frozen=True, kw_only=True):
    """XOXNO's liquid staking."""

    exchange: ClassVar[str] = "XOXNO"
    kind: ClassVar[str] = "stake"


class LxoxnoStaking(RatePool, frozen=True, kw_only=True):
    """LXOXNO's liquid staking."""

    exchange: ClassVar[str] = "LXOXNO"
    kind: ClassVar[str] = "stake"


class HatomStaking(RatePool, frozen=True, kw_only=True):
    """Hatom's liquid staking."""

    exchange: ClassVar[str] = "Hatom"
    kind: ClassVar[str] = "stake"


class HatomRedeem(RatePool, frozen=True, kw_only=True):
    """A market of Hatom's: its token for what it stands for."""

    exchange: ClassVar[str] = "Hatom"
    kind: ClassVar[str] = "redeem"


class HatomSupply(RatePool, frozen=True, kw_only=True):
    """A market of Hatom's: what it lends for its token."""

    exchange: ClassVar[str] = "Hatom"
    kind: ClassVar[str] = "supply"


RATE_POOLS: Final[dict[tuple[str, str], type[RatePool]]] = {
    (made.exchange, made.kind): made for made in (XoxnoStaking, LxoxnoStaking, HatomStaking, HatomRedeem, HatomSupply)
}
