"""What every liquidity pool is: a frozen value that prices trades in exact integers.

A pool never changes. `swap`, `mint` and `burn` answer with the pool as it is afterwards, so a plan that
crosses one pool twice simply continues with the second value.

Amounts are integers in a token's smallest units. Tokens are named by their index in `tokens`. Whatever
the numbers, a pool answers or raises a `PoolError`; it never hangs and never lets an arithmetic error out.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import ClassVar, NamedTuple, Self

import msgspec


class PoolError(Exception):
    """A pool cannot do what was asked; the text says why."""


class InvalidAmount(PoolError):
    """The amount is not positive, or so small that nothing would come out."""


class InvalidToken(PoolError):
    """The token is not one of the pool's, or in and out are the same."""


class InsufficientLiquidity(PoolError):
    """The pool does not hold enough for this trade or withdrawal."""


class SwapsDisabled(PoolError):
    """The pool's state forbids swaps."""


class LiquidityDisabled(PoolError):
    """The pool's state forbids deposits or withdrawals."""


class Restricted(PoolError):
    """Only callers on the pool's own list may trade with it."""


class NotConverged(PoolError):
    """The pool's invariant has no solution that its contract would find."""


class Unsupported(PoolError):
    """The exchange has no such call."""


class PoolState(StrEnum):
    """What a pool's contract allows at present."""

    ACTIVE = "active"
    NO_SWAPS = "noSwaps"
    INACTIVE = "inactive"


class Slice(NamedTuple):
    """What leaves a pool with a swap, besides the output: `amount` of `token`, an identifier.

    It is burned, or with an `address` sold for `wanted` in the pool there, without fee, and that is burned.
    """

    token: str
    amount: int
    address: bytes = b""
    wanted: str = ""


class Swap(NamedTuple):
    """Outcome of a swap. `fee_amount` counts everything withheld, in `fee_token` (an identifier)."""

    amount_out: int
    fee_token: str
    fee_amount: int
    pool: "Pool"
    slices: tuple[Slice, ...] = ()


class Mint(NamedTuple):
    """Outcome of a deposit: LP units for the depositor, the part of the amounts used, the pool after."""

    lp: int
    used: tuple[int, ...]
    pool: "Pool"


class Burn(NamedTuple):
    """Outcome of a withdrawal: what is paid out per token, in pool order, and the pool after."""

    amounts: tuple[int, ...]
    pool: "Pool"


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Fields common to all pools. `reserves` are in the order of `tokens`; `address` is 32 bytes.

    `lp_token` is empty when the pool issues none.
    """

    exchange: ClassVar[str]
    kind: ClassVar[str]

    id: str
    address: bytes
    tokens: tuple[str, ...]
    reserves: tuple[int, ...]
    lp_token: str = ""
    lp_supply: int = 0
    lp_decimals: int = 18
    state: PoolState = PoolState.ACTIVE

    def amount_out(self, i: int, j: int, amount_in: int) -> int:
        """What selling `amount_in` of token `i` pays in token `j`, all fees taken. At least 1."""
        raise NotImplementedError

    def amount_in(self, i: int, j: int, amount_out: int) -> int:
        """The smallest amount of token `i` that pays at least `amount_out` of token `j`."""
        raise NotImplementedError

    def swap(self, i: int, j: int, amount_in: int) -> Swap:
        """Sell `amount_in` of token `i` for token `j`."""
        raise NotImplementedError

    def withheld(self, i: int, j: int, amount_in: int) -> tuple[str, int]:
        """What `swap` withholds: the token's identifier and the amount."""
        swap = self.swap(i, j, amount_in)
        return swap.fee_token, swap.fee_amount

    def mint(self, amounts: tuple[int, ...]) -> Mint:
        """Deposit `amounts`, one per token in pool order."""
        raise Unsupported(f"{self.id} takes no deposits")

    def mint_single(self, i: int, amount: int) -> Mint:
        """Deposit token `i` alone."""
        raise Unsupported(f"{self.id} takes no deposits of one token")

    def burn(self, lp: int) -> Burn:
        """Redeem `lp` LP units for a share of every token."""
        raise Unsupported(f"{self.id} has no withdrawals")

    def burn_single(self, lp: int, j: int) -> Burn:
        """Redeem `lp` LP units for token `j` alone."""
        raise Unsupported(f"{self.id} has no withdrawals of one token")

    def index(self, token: str) -> int:
        """Position of a token identifier in the pool."""
        try:
            return self.tokens.index(token)
        except ValueError:
            raise InvalidToken(f"{token} is not a token of pool {self.id}") from None

    def with_reserves(self, reserves: tuple[int, ...], lp_supply: int | None = None) -> Self:
        """The same pool holding `reserves` (and, if given, with `lp_supply` LP units issued)."""
        if lp_supply is None:
            return msgspec.structs.replace(self, reserves=reserves)
        return msgspec.structs.replace(self, reserves=reserves, lp_supply=lp_supply)

    def _refuse_swap(self) -> SwapsDisabled:
        return SwapsDisabled(f"pool {self.id} is {self.state}: swaps are not allowed")

    def _require_liquidity_open(self) -> None:
        if self.state == PoolState.INACTIVE:
            raise LiquidityDisabled(f"pool {self.id} is inactive: deposits and withdrawals are not allowed")

    def _require_deposit(self, amounts: tuple[int, ...]) -> None:
        if len(amounts) != len(self.tokens):
            raise InvalidAmount(f"pool {self.id} takes {len(self.tokens)} amounts, got {len(amounts)}")
        if min(amounts) < 0 or not any(amounts):
            raise InvalidAmount("deposits must not be negative, nor all zero")

    def _require_withdrawal(self, lp: int, locked: int = 0) -> None:
        if lp <= 0:
            raise InvalidAmount("the LP amount must be positive")
        if lp + locked > self.lp_supply:
            raise InsufficientLiquidity(f"not enough LP token supply: {self.lp_supply}, of which {locked} locked")

    def shares(self, lp: int) -> tuple[int, ...]:
        """What `lp` LP units stand for, per token, rounded down."""
        if not 0 <= lp <= self.lp_supply or self.lp_supply == 0:
            raise InsufficientLiquidity(f"cannot remove {lp} of {self.lp_supply} LP units")
        supply = self.lp_supply
        return tuple([reserve * lp // supply for reserve in self.reserves])


POWERS = tuple([int(10**k) for k in range(19)])


def precision(decimals: int) -> int:
    """What turns units of a token with that many decimals (0 to 18) into units of 18 decimals."""
    return POWERS[18 - decimals]


def smallest_input(amount_out: Callable[[int], int], wanted: int, guess: int) -> int:
    """The smallest input for which `amount_out(input) >= wanted`, near `guess`.

    For exchanges without an exact inverse. `amount_out` must not decrease; it may raise `InvalidAmount`
    for inputs too small to pay anything. Raises what `amount_out` raises when `wanted` is out of reach.
    """

    def covers(amount: int) -> bool:
        try:
            return amount_out(amount) >= wanted
        except InvalidAmount:
            return False

    low, high = 0, max(guess, 1)
    # All inputs within one unit of output are as good as each other: begin with a step of that size.
    step = max(high // max(wanted, 1), 1)
    if covers(high):
        while high > 1:
            probe = max(high - step, 1)
            if not covers(probe):
                low = probe
                break
            high = probe
            step *= 2
    else:
        while True:
            low, high = high, high + step
            if covers(high):
                break
            if step > MAX_AMOUNT:
                raise InsufficientLiquidity(f"no input pays {wanted}")
            step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if covers(middle):
            high = middle
        else:
            low = middle
    return high


MAX_AMOUNT = 10**78
"""Search bound: more than any 256-bit amount."""
