"""Constant product pools: xExchange, OneDex and JEX. One invariant, three places for the fee.

Sources: xExchange `mx-exchange-sc` (pair), OneDex 2023 source and per-pair fees, JEX `jex-sc-dex-pair`;
formulas and rounding are listed in docs/pools.md. In every formula ri and ro are the reserves of the
sold and the bought token and all divisions round down unless marked.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

from millrace.dex.pool import (
    Burn,
    InsufficientLiquidity,
    InvalidAmount,
    InvalidToken,
    LiquidityDisabled,
    Mint,
    NotConverged,
    Pool,
    PoolState,
    Slice,
    Swap,
    SwapsDisabled,
    smallest_input,
)

ACTIVE = PoolState.ACTIVE
MOST_LOOKS = 10_000
"""Amounts looked at for one of which enough is left after two fees: more there are none where the fees are over 10,000,
as those of JEX and of referrals are."""


class ConstantProductPool(Pool, frozen=True, kw_only=True):
    """What the three exchanges share: two tokens, shares of both, deposits in the pool's ratio."""

    kind: ClassVar[str] = "constant_product"
    locked_lp: ClassVar[int] = 0

    def _reserves_of(self, i: int, j: int, amount: int) -> tuple[int, int]:
        """(ri, ro) after the checks that every trade must pass."""
        if self.state != ACTIVE:
            raise self._refuse_swap()
        if amount <= 0:
            raise InvalidAmount("the amount must be positive")
        if i | j != 1 or i == j:
            raise InvalidToken(f"pool {self.id} has tokens 0 and 1, not {i} and {j}")
        reserves = self.reserves
        reserve_in, reserve_out = reserves[i], reserves[j]
        if reserve_in <= 0 or reserve_out <= 0:
            raise InsufficientLiquidity(f"pool {self.id} holds nothing")
        return reserve_in, reserve_out

    def _moved(self, i: int, reserve_in: int, reserve_out: int) -> Self:
        return self.with_reserves(_ordered(i, reserve_in, reserve_out))

    def _fitted(self, amounts: tuple[int, ...]) -> tuple[int, int]:
        """The largest part of two amounts that is in the pool's ratio, as the contracts compute it."""
        first, second = amounts
        r1, r2 = self.reserves
        if first <= 0 or second <= 0:
            raise InvalidAmount("a deposit needs both tokens")
        if r1 <= 0 or r2 <= 0:
            raise InsufficientLiquidity(f"pool {self.id} holds nothing")
        matching = first * r2 // r1
        if matching <= second:
            return first, matching
        return second * r1 // r2, second

    def _deposited(self, used: tuple[int, int], lp: int) -> Mint:
        if lp <= 0 or min(used) <= 0:
            raise InvalidAmount("the deposit is too small: no LP would be minted")
        after = (self.reserves[0] + used[0], self.reserves[1] + used[1])
        return Mint(lp, used, self.with_reserves(after, self.lp_supply + lp))

    def burn(self, lp: int) -> Burn:
        self._require_liquidity_open()
        self._require_withdrawal(lp, self.locked_lp)
        amounts = self.shares(lp)
        if min(amounts) <= 0:
            raise InvalidAmount("the LP amount is too small: a share rounds to zero")
        after = (self.reserves[0] - amounts[0], self.reserves[1] - amounts[1])
        return Burn(amounts, self.with_reserves(after, self.lp_supply - lp))


class FeeDestination(NamedTuple):
    """Who gets a slice of a pair's special fee, and in which token (an identifier)."""

    address: bytes
    token: str


class TrustedPair(NamedTuple):
    """Another pair in which a pair may sell its special fee: that pair's tokens and its address."""

    tokens: tuple[str, str]
    address: bytes


class FeeUse(NamedTuple):
    """What a swap does with the special fee: a cut for the collector, and slices that are burned.

    `here` counts the slices that are burned as they are or sold in the pair itself first, `elsewhere` those that are
    sold in a trusted pair.
    """

    collector: bool = False
    here: int = 0
    elsewhere: int = 0


class Outlet(NamedTuple):
    """What becomes of one slice of the special fee of a swap.

    It is sold in the pair itself first (`here`), then burned, or with an `address` sold for `wanted` in the pair there.
    """

    here: bool
    address: bytes = b""
    wanted: str = ""


class XExchangePool(ConstantProductPool, frozen=True, kw_only=True, dict=True):
    """xExchange pair: fee on the input, over `fee_base`. `special_fee` is the part that leaves the pool.

    The special fee leaves only while the pair's fee is enabled (`fee_enabled`). Where it goes does not change what a
    swap pays, but how it leaves the pair and what it takes of a transaction: `fees_collector` (empty: there is none)
    gets `fees_collector_cut` over `fee_base` of it, `fee_destinations` the rest in equal slices, for which it may be
    sold in this pair or in `trusted_pairs`. None: not known; then no slice is sold.
    """

    exchange: ClassVar[str] = "XExchange"
    locked_lp: ClassVar[int] = 1000

    total_fee: int
    special_fee: int
    fee_base: int = 100_000
    fee_enabled: bool = True
    fees_collector: bytes | None = None
    fees_collector_cut: int = 0
    fee_destinations: tuple[FeeDestination, ...] | None = None
    trusted_pairs: tuple[TrustedPair, ...] | None = None

    def amount_out(self, i: int, j: int, amount_in: int) -> int:
        reserve_in, reserve_out = self._reserves_of(i, j, amount_in)
        base = self.fee_base
        weighted = amount_in * (base - self.total_fee)
        out = weighted * reserve_out // (reserve_in * base + weighted)
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        if self.outlets[i]:
            self._without_fee(i, amount_in, out)  # the swap fails with what it does with the fee
        return out

    def amount_in(self, i: int, j: int, amount_out: int) -> int:
        reserve_in, reserve_out = self._reserves_of(i, j, amount_out)
        left = _left(self, reserve_out, amount_out)
        amount = -(-reserve_in * amount_out * self.fee_base // (left * (self.fee_base - self.total_fee)))
        if not self.outlets[i]:
            return amount
        return smallest_input(lambda given: self.amount_out(i, j, given), amount_out, amount)

    def fixed_output_input(self, i: int, j: int, amount_out: int) -> int:
        """What `swapTokensFixedOutput` takes and view `getAmountIn` answers: a unit more at exact ratios."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount_out)
        left = _left(self, reserve_out, amount_out)
        return reserve_in * amount_out * self.fee_base // (left * (self.fee_base - self.total_fee)) + 1

    def equivalent(self, i: int, j: int, amount_in: int) -> int:
        """View `getEquivalent`: the amount at the pool's price, without fee and without depth."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount_in)
        return amount_in * reserve_out // reserve_in

    def swap(self, i: int, j: int, amount_in: int) -> Swap:
        return self.swap_for(i, j, amount_in, self.amount_out(i, j, amount_in))

    def swap_for(self, i: int, j: int, amount_in: int, out: int) -> Swap:
        """A swap that pays `out`, which is no more than `amount_in` buys."""
        reserve_in, reserve_out, slices = self._without_fee(i, amount_in, out)
        return Swap(out, *self.withheld(i, j, amount_in), self._moved(i, reserve_in, reserve_out), slices)

    def _without_fee(self, i: int, amount_in: int, out: int) -> tuple[int, int, tuple[Slice, ...]]:
        """Both reserves when a swap's special fee has left, and its slices. Raises where the pair refuses the swap."""
        special = amount_in * self.special_fee // self.fee_base if self.fee_enabled else 0
        reserve_in, reserve_out = self.reserves[i] + amount_in - special, self.reserves[1 - i] - out
        outlets = self.outlets[i]
        share = (special - self.collector_fee(amount_in)) // len(outlets) if outlets else 0
        if share == 0:
            return reserve_in, reserve_out, ()
        slices = []
        for outlet in outlets:
            if outlet is None:
                raise SwapsDisabled(f"pool {self.id} cannot sell its special fee: nothing to do with fee slice")
            token, amount = self.tokens[i], share
            if outlet.here:
                token, amount = self.tokens[1 - i], share * reserve_out // (reserve_in + share)
                if amount <= 0:
                    raise InvalidAmount("Zero amount: a slice of the special fee sells for nothing")
                reserve_in, reserve_out = reserve_in + share, reserve_out - amount
            slices.append(Slice(token, amount, outlet.address, outlet.wanted))
        return reserve_in, reserve_out, tuple(slices)

    def sell_slice(self, i: int, j: int, amount: int) -> tuple[int, Self]:
        """`swapNoFeeAndForward`, in which another pair sells a slice of its fee: what is bought, to be burned, and the
        pool."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount)
        bought = amount * reserve_out // (reserve_in + amount)
        if bought <= 0:
            raise InvalidAmount(f"Zero amount: pool {self.id} pays nothing for a slice of another pair's special fee")
        return bought, self._moved(i, reserve_in + amount, reserve_out - bought)

    @cached_property
    def outlets(self) -> tuple[tuple[Outlet | None, ...], tuple[Outlet | None, ...]]:
        """What becomes of the special fee's slices when the first token is sold, and the second.

        None: that slice can be sold nowhere. Empty where there are no slices, or nothing is known of them.
        """
        if not self.fee_enabled or self.special_fee == 0 or not self._is_known or self._takes_all:
            return (), ()
        first, second = self.tokens
        wanted = [to.token for to in self.fee_destinations or ()]
        return (
            tuple([self._outlet(first, second, token) for token in wanted]),
            tuple([self._outlet(second, first, token) for token in wanted]),
        )

    def _outlet(self, sold: str, other: str, wanted: str) -> Outlet | None:
        """The first way of these that there is: burned, sold here, sold elsewhere, sold here and then elsewhere."""
        if wanted in (sold, other):
            return Outlet(wanted == other)
        for token in (sold, other):
            for tokens in ((token, wanted), (wanted, token)):
                for pair in self.trusted_pairs or ():
                    if pair.tokens == tokens:
                        return Outlet(token == other, pair.address, wanted)
        return None

    @property
    def stuck(self) -> bool:
        """Whether a slice of the special fee can be sold nowhere: then the pair refuses all swaps that have one."""
        return None in self.outlets[0]

    @property
    def _takes_all(self) -> bool:
        """Whether the collector leaves nothing of the special fee."""
        return bool(self.fees_collector) and self.fees_collector_cut == self.fee_base

    @property
    def _is_known(self) -> bool:
        """Whether it is known where all of the special fee goes."""
        if self.fees_collector is None:
            return False
        if self._takes_all:
            return True
        to = self.fee_destinations
        return to is not None and (self.trusted_pairs is not None or all(token in self.tokens for _, token in to))

    def withheld(self, i: int, j: int, amount_in: int) -> tuple[str, int]:
        return self.tokens[i], amount_in * self.total_fee // self.fee_base

    @cached_property
    def fee_use(self) -> FeeUse | None:
        """What a swap does with the special fee, as the contract's `send_fee` does it; None where that is not known."""
        if not self.fee_enabled or self.special_fee == 0:
            return FeeUse()
        if not self._is_known:
            return None
        elsewhere = [bool(outlet.address) for outlet in self.outlets[0] if outlet is not None]
        collector = bool(self.fees_collector) and self.fees_collector_cut > 0
        return FeeUse(collector, elsewhere.count(False), elsewhere.count(True))

    def collector_fee(self, amount_in: int) -> int:
        """The part of the special fee of a swap that is sent to the fees collector, if there is one."""
        special = amount_in * self.special_fee // self.fee_base if self.fee_enabled else 0
        return 0 if self.fees_collector == b"" else special * self.fees_collector_cut // self.fee_base

    def mint(self, amounts: tuple[int, ...]) -> Mint:
        self._require_liquidity_open()
        self._require_deposit(amounts)
        supply = self.lp_supply
        if supply == 0:
            return self._first_mint(amounts)
        used = self._fitted(amounts)
        lp = min(used[0] * supply // self.reserves[0], used[1] * supply // self.reserves[1])
        return self._deposited(used, lp)

    def _first_mint(self, amounts: tuple[int, ...]) -> Mint:
        lp = min(amounts)
        if lp <= self.locked_lp:
            raise InvalidAmount(f"the first deposit must exceed {self.locked_lp} of each token")
        return Mint(lp - self.locked_lp, amounts, self.with_reserves(amounts, lp))

    def burn_and_buy_back(self, lp: int, j: int) -> Burn:
        """`removeLiquidityAndBuyBackAndBurnToken`: both shares removed, the other one sold without fee.

        `amounts` is what is bought and burned of token `j`; nothing is paid to the caller.
        """
        removed, pool = self.burn(lp)
        i = 1 - j
        reserve_in, reserve_out = pool.reserves[i] + removed[i], pool.reserves[j]
        bought = removed[i] * reserve_out // reserve_in
        after = self.with_reserves(_ordered(i, reserve_in, reserve_out - bought), pool.lp_supply)
        return Burn(_ordered(j, removed[j] + bought, 0), after)


class OneDexPool(ConstantProductPool, frozen=True, kw_only=True):
    """OneDex pair: fee on the input when the sold token is a main pair token, else on the output.

    `special_fee` and `staking_fee` are the parts of `total_fee` that leave the pool; `main[k]` says
    whether token k is a main pair token. All pairs live in one contract: `address` is the router's.
    """

    exchange: ClassVar[str] = "OneDex"
    minimum_liquidity: ClassVar[int] = 10**15

    pair_id: int
    total_fee: int
    special_fee: int
    staking_fee: int
    main: tuple[bool, bool]
    fee_base: int = 10_000
    enabled: bool = True

    def _reserves_of(self, i: int, j: int, amount: int) -> tuple[int, int]:
        if not self.enabled:
            raise self._refuse_swap()
        return ConstantProductPool._reserves_of(self, i, j, amount)

    def amount_out(self, i: int, j: int, amount_in: int) -> int:
        reserve_in, reserve_out = self._reserves_of(i, j, amount_in)
        if self.main[i]:
            net = amount_in - amount_in * self.total_fee // self.fee_base
            out = net * reserve_out // (reserve_in + net)
        else:
            gross = amount_in * reserve_out // (reserve_in + amount_in)
            out = gross - gross * self.total_fee // self.fee_base
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        return out

    def amount_in(self, i: int, j: int, amount_out: int) -> int:
        reserve_in, reserve_out = self._reserves_of(i, j, amount_out)
        if self.main[i]:
            net = -(-reserve_in * amount_out // _left(self, reserve_out, amount_out))
            return _smallest_gross(net, self.total_fee, self.fee_base)
        gross = _smallest_gross(amount_out, self.total_fee, self.fee_base)
        return -(-reserve_in * gross // _left(self, reserve_out, gross))

    def fixed_output_input(self, i: int, j: int, amount_out: int) -> int:
        """What `swapMultiTokensFixedOutput` takes for one hop."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount_out)
        fee, base = self.total_fee, self.fee_base
        if self.main[i]:
            net = reserve_in * amount_out // _left(self, reserve_out, amount_out) + 1
            return net + net * fee // (base - fee)
        gross = amount_out + amount_out * fee // (base - fee)
        return reserve_in * gross // _left(self, reserve_out, gross) + 1

    def view_amount_out(self, i: int, j: int, amount_in: int) -> int:
        """View `getAmountOut`. It rounds otherwise than the swap does, by about a unit either way."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount_in)
        kept = self.fee_base - self.total_fee
        if self.main[i]:
            weighted = amount_in * kept
            return weighted * reserve_out // (reserve_in * self.fee_base + weighted)
        return amount_in * reserve_out // (reserve_in + amount_in) * kept // self.fee_base

    def view_amount_in(self, i: int, j: int, amount_out: int) -> int:
        """View `getAmountIn`. It rounds otherwise than the swap does."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount_out)
        kept = self.fee_base - self.total_fee
        if self.main[i]:
            left = _left(self, reserve_out, amount_out)
            return reserve_in * amount_out * self.fee_base // (left * kept) + 1
        gross = amount_out * self.fee_base // kept
        return reserve_in * gross // _left(self, reserve_out, gross) + 1

    def swap(self, i: int, j: int, amount_in: int) -> Swap:
        out = self.amount_out(i, j, amount_in)
        reserve_in, reserve_out = self.reserves[i], self.reserves[j]
        if self.main[i]:
            fee = amount_in * self.total_fee // self.fee_base
            pool = self._moved(i, reserve_in + amount_in - fee + self._kept(fee), reserve_out - out)
            return Swap(out, self.tokens[i], fee, pool)
        gross = amount_in * reserve_out // (reserve_in + amount_in)
        fee = gross - out
        pool = self._moved(i, reserve_in + amount_in, reserve_out - gross + self._kept(fee))
        return Swap(out, self.tokens[j], fee, pool)

    def withheld(self, i: int, j: int, amount_in: int) -> tuple[str, int]:
        if self.main[i]:
            return self.tokens[i], amount_in * self.total_fee // self.fee_base
        gross = amount_in * self.reserves[j] // (self.reserves[i] + amount_in)
        return self.tokens[j], gross * self.total_fee // self.fee_base

    def _kept(self, fee: int) -> int:
        """The part of a fee that stays in the pool."""
        total = self.total_fee
        if total == 0:
            return 0
        return fee - fee * self.special_fee // total - fee * self.staking_fee // total

    def mint(self, amounts: tuple[int, ...]) -> Mint:
        self._require_enabled()
        self._require_deposit(amounts)
        supply = self.lp_supply
        if supply == 0:
            return self._first_mint(amounts)
        used = self._fitted(amounts)
        lp = min(used[0] * supply // self.reserves[0], used[1] * supply // self.reserves[1])
        return self._deposited(used, lp)

    def _first_mint(self, amounts: tuple[int, ...]) -> Mint:
        lp = min(amounts)
        if lp <= 0:
            raise InvalidAmount("a deposit needs both tokens")
        while lp < 10**18:
            lp *= 10
        minted = lp - self.minimum_liquidity
        return Mint(minted, amounts, self.with_reserves(amounts, lp))

    def burn(self, lp: int) -> Burn:
        self._require_enabled()
        return ConstantProductPool.burn(self, lp)

    def _require_enabled(self) -> None:
        if not self.enabled:
            raise LiquidityDisabled(f"pair {self.pair_id} is disabled")
        self._require_liquidity_open()


class JexPool(ConstantProductPool, frozen=True, kw_only=True):
    """JEX pair: two fees on the output. `lp_fee` stays in the pool, `platform_fee` leaves it."""

    exchange: ClassVar[str] = "Jex"
    locked_lp: ClassVar[int] = 1000
    first_lp: ClassVar[int] = 10**18

    lp_fee: int
    platform_fee: int
    fee_base: int = 10_000
    token_id_keys: bool = False
    """Whether the contract was seen to store its tokens under `first_token_id` and `second_token_id`. The aggregator
    contract reads them there before it deposits; the published pair has other names, and a deposit reverts."""

    def amount_out(self, i: int, j: int, amount_in: int) -> int:
        reserve_in, reserve_out = self._reserves_of(i, j, amount_in)
        gross = amount_in * reserve_out // (reserve_in + amount_in)
        base = self.fee_base
        out = gross - gross * self.lp_fee // base - gross * self.platform_fee // base
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        return out

    def _net(self, gross: int) -> int:
        return gross - gross * self.lp_fee // self.fee_base - gross * self.platform_fee // self.fee_base

    def amount_in(self, i: int, j: int, amount_out: int) -> int:
        reserve_in, reserve_out = self._reserves_of(i, j, amount_out)
        amount = 0
        for gross in before_fees(amount_out, (self.lp_fee, self.platform_fee), self.fee_base):
            amount = -(-reserve_in * gross // _left(self, reserve_out, gross))
            if self._net(amount * reserve_out // (reserve_in + amount)) >= amount_out:
                break  # always so of the last one
        return amount

    def fixed_output_input(self, i: int, j: int, amount_out: int) -> int:
        """What `swapTokensFixedOutput` takes (and view `estimateAmountIn` answers)."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount_out)
        gross = amount_out * self.fee_base // (self.fee_base - self.lp_fee - self.platform_fee)
        amount_in = -(-reserve_in * gross // _left(self, reserve_out, gross))
        if amount_in >= reserve_in:
            raise InsufficientLiquidity(f"pool {self.id} has not enough liquidity")
        return amount_in

    def fees(self, i: int, j: int, amount_in: int) -> tuple[int, int, int]:
        """(gross output, LP fee, platform fee), as view `estimateAmountOut` lists them."""
        reserve_in, reserve_out = self._reserves_of(i, j, amount_in)
        gross = amount_in * reserve_out // (reserve_in + amount_in)
        return gross, gross * self.lp_fee // self.fee_base, gross * self.platform_fee // self.fee_base

    def withheld(self, i: int, j: int, amount_in: int) -> tuple[str, int]:
        gross = amount_in * self.reserves[j] // (self.reserves[i] + amount_in)
        return self.tokens[j], gross * self.lp_fee // self.fee_base + gross * self.platform_fee // self.fee_base

    def swap(self, i: int, j: int, amount_in: int) -> Swap:
        gross, lp_fee, platform_fee = self.fees(i, j, amount_in)
        out = gross - lp_fee - platform_fee
        if out <= 0:
            raise InvalidAmount("the amount is too small: the output rounds to zero")
        pool = self._moved(i, self.reserves[i] + amount_in, self.reserves[j] - (gross - lp_fee))
        return Swap(out, self.tokens[j], lp_fee + platform_fee, pool)

    def mint(self, amounts: tuple[int, ...]) -> Mint:
        self._require_liquidity_open()
        self._require_deposit(amounts)
        if self.lp_supply == 0:
            if min(amounts) < 1000:
                raise InvalidAmount("the first deposit must hold at least 1000 of each token")
            return Mint(self.first_lp, amounts, self.with_reserves(amounts, self.first_lp))
        used = self._fitted(amounts)
        return self._deposited(used, used[0] * self.lp_supply // self.reserves[0])

    def mint_single(self, i: int, amount: int) -> Mint:
        """`addLiquiditySingle`: the whole amount joins one side."""
        reserve, _ = self._reserves_of(i, 1 - i, amount)
        lp = amount * self.lp_supply // (2 * reserve)
        if lp <= 0:
            raise InvalidAmount("the deposit is too small: no LP would be minted")
        used = _ordered(i, amount, 0)
        after = (self.reserves[0] + used[0], self.reserves[1] + used[1])
        return Mint(lp, used, self.with_reserves(after, self.lp_supply + lp))

    def burn(self, lp: int, *, owner: bool = False) -> Burn:
        """Only the pool's owner may take the last 1000 LP units."""
        self._require_liquidity_open()
        self._require_withdrawal(lp, 0 if owner else self.locked_lp)
        amounts = self.shares(lp)
        after = (self.reserves[0] - amounts[0], self.reserves[1] - amounts[1])
        return Burn(amounts, self.with_reserves(after, self.lp_supply - lp))

    def burn_single(self, lp: int, j: int) -> Burn:
        """`removeLiquiditySingle`: both shares removed, the unwanted one sold to what remains."""
        if self.state != ACTIVE:
            raise self._refuse_swap()
        shares, pool = self.burn(lp)
        if shares[1 - j] == 0:
            return Burn(_ordered(j, shares[j], 0), pool)
        sold = pool.swap(1 - j, j, shares[1 - j])
        return Burn(_ordered(j, shares[j] + sold.amount_out, 0), sold.pool)


def _ordered(i: int, of_i: int, of_other: int) -> tuple[int, int]:
    """Two values of token `i` and of the other one, in pool order."""
    return (of_i, of_other) if i == 0 else (of_other, of_i)


def _left(pool: ConstantProductPool, reserve_out: int, amount_out: int) -> int:
    if amount_out >= reserve_out:
        raise InsufficientLiquidity(f"pool {pool.id} holds {reserve_out}, {amount_out} are wanted")
    return reserve_out - amount_out


def before_fees(net: int, fees: tuple[int, int], base: int) -> Iterator[int]:
    """Amounts that leave at least `net` after two fees, each rounded down on its own: up to the last one in order;
    above it all do.

    Raises `NotConverged` where fees that take nearly all leave too many to look at.
    """
    one, other = fees
    both = one + other
    last = _smallest_gross(net, both, base)
    first = max(net, (net - 2) * base // (base - both) + 1)
    if last - first > MOST_LOOKS:
        raise NotConverged(f"fees of {both} over {base} leave too little to find what pays {net}")
    for gross in range(first, last):
        # A unit less than both fees at once would take, where what their roundings cut off makes a whole.
        if gross * one % base + gross * other % base >= base:
            yield gross
    yield last


def _smallest_gross(net: int, fee: int, base: int) -> int:
    """The smallest g with g - floor(g * fee / base) >= net."""
    return (net - 1) * base // (base - fee) + 1
