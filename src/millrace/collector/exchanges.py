"""The pools of each exchange, read from its contracts.

A pool that cannot be read, or that nobody could trade with, is left out and named; an exchange that
cannot be listed at all is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from millrace.chain import address
from millrace.chain.abi import AbiError, top_uint
from millrace.collector import views
from millrace.collector.gateway import Gateway, GatewayError, LostAnswer, ViewError, gather
from millrace.collector.harvest import MAX_POOLS, Harvest, NoPool, Skipped, decoded, each, filled, readable
from millrace.collector.settings import RateSource
from millrace.collector.tokens import TokenBook
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import Pool, PoolState
from millrace.dex.rate import RATE_POOLS
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.dex.stableswap import UNIT, liquidity_fee

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 200
MAX_PAGES = MAX_POOLS // PAGE

FEE_VIEWS: dict[str, Callable[[Sequence[bytes]], Any]] = {
    "getFeesCollectorAddress": views.fees_collector,
    "getFeesCollectorCutPercentage": views.fees_collector_cut,
    "getFeeDestinations": views.fee_destinations,
    "getTrustedSwapPairs": views.trusted_pairs,
}
TOKEN_ID_KEYS = ("first_token_id", "second_token_id")
"""Storage keys of a pair's tokens, as the aggregator contract reads them."""
NO_COLLECTOR = "storage decode error (key: feesCollectorAddress)"
"""How a pair without a collector answers: nothing was ever stored there, and nothing is no address."""


class Reader:
    """Reads pools through one gateway; `book` knows tokens' decimals.

    Views of what hardly ever changes (fees, where they go, LP tokens) are asked again after `slow_seconds` only.
    """

    def __init__(
        self,
        gateway: Gateway,
        book: TokenBook,
        slow_seconds: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._book = book
        self._slow_seconds = slow_seconds
        self._clock = clock
        self._slow: dict[tuple[bytes, str], tuple[float, Any]] = {}
        self._unreadable: set[tuple[bytes, str]] = set()
        """Views whose answers were found unreadable: each is logged once."""

    async def xexchange(self, router: bytes) -> Harvest:
        """All pairs that the router lists."""
        raw = await self._gateway.view(router, "getAllPairContractMetadata")
        pairs, broken = readable(views.xexchange_pair, raw, _id("x", router))
        harvest = await each([(_id("x", pair.address), partial(self._xexchange_pair, pair)) for pair in pairs])
        return Harvest(harvest.pools, broken + harvest.skipped)

    async def _xexchange_pair(self, pair: views.XExchangePair) -> Pool:
        contract = pair.address
        held, state, total, special, enabled, lp_token, fee_setup = await gather(
            [
                self._gateway.view(contract, "getReservesAndTotalSupply"),
                self._number(contract, "getState"),
                self._slow_number(contract, "getTotalFeePercent"),
                self._slow_number(contract, "getSpecialFee"),
                self._slow_number(contract, "getFeeState"),
                self._lp_token(contract),
                self._fee_setup(contract),
            ]
        )
        if len(held) != 3:
            raise GatewayError(f"getReservesAndTotalSupply: {len(held)} values for 3")
        first, second, supply = map(views.number, held)
        await self._learn(pair.tokens)
        return XExchangePool(
            id=_id("x", contract),
            address=contract,
            tokens=pair.tokens,
            reserves=filled((first, second)),
            lp_token=lp_token,
            lp_supply=supply,
            state=views.state(state),
            total_fee=total,
            special_fee=special,
            fee_enabled=bool(enabled),
            **fee_setup,
        )

    async def _fee_setup(self, contract: bytes) -> dict[str, Any]:
        """Where a pair's special fee goes, as `XExchangePool` names it; what its contract does not tell is None."""
        collector, cut, destinations, trusted = await gather(
            [self._slowly(contract, name, partial(self._fee_part, decode)) for name, decode in FEE_VIEWS.items()]
        )
        if collector and cut is None:
            collector = None  # a cut cannot be "not known", and a cut of zero would make swaps look cheap
        return {
            "fees_collector": collector,
            "fees_collector_cut": cut or 0,
            "fee_destinations": destinations,
            "trusted_pairs": trusted,
        }

    async def _fee_part(self, decode: Callable[[Sequence[bytes]], Any], contract: bytes, function: str) -> Any:
        """What a view of `FEE_VIEWS` tells. None: the contract is older and has no such view, or tells no sense."""
        try:
            return decode(await self._gateway.view(contract, function))
        except ViewError as error:
            return b"" if decode is views.fees_collector and NO_COLLECTOR in str(error) else None
        except AbiError as error:
            if (contract, function) not in self._unreadable:
                self._unreadable.add((contract, function))
                reason = {"pool": _id("x", contract), "view": function, "reason": str(error)}
                log.warning("where a pair's fee goes cannot be read", extra=reason)
            return None

    async def onedex(self, router: bytes) -> tuple[Harvest, tuple[str, ...]]:
        """All pairs of the one contract, and the main pair tokens."""
        main = tuple(views.text(item) for item in await self._gateway.view(router, "getMainPairTokens"))
        last = await self._number(router, "getLastPairId")
        fees = await self._onedex_fees(router)
        pairs: dict[int, views.OneDexPair] = {}
        broken: list[Skipped] = []
        for page in range(MAX_PAGES):
            start = page * PAGE
            raw = await self._gateway.view(router, "viewPairsPaginated", top_uint(start), top_uint(PAGE))
            if len(raw) > PAGE:
                raise GatewayError(f"viewPairsPaginated: {len(raw)} pairs on a page of {PAGE}")
            listed, unreadable = readable(views.onedex_pair, raw, _id("o", router), start)
            pairs |= {pair.pair_id: pair for pair in listed}
            broken += unreadable
            if start + PAGE > last:
                break
        if last and not pairs and not broken:
            raise GatewayError(f"viewPairsPaginated: no pair on any page, and {last} is the last")
        work = [
            (f"{_id('o', router)}:{pair.pair_id}", partial(self._onedex_pair, router, pair, main, fees))
            for pair in pairs.values()
        ]
        harvest = await each(work)
        return Harvest(harvest.pools, broken + harvest.skipped), main

    async def _onedex_fees(self, router: bytes) -> tuple[int, int, int]:
        """(total, special, staking) for pairs without a fee of their own."""
        names = ("getTotalFeePercent", "getSpecialFeePercent", "getStakingRewardFeePercent")
        total, special, staking = await gather([self._slow_number(router, name) for name in names])
        return total, special, staking

    async def _onedex_pair(
        self, router: bytes, pair: views.OneDexPair, main: tuple[str, ...], fees: tuple[int, int, int]
    ) -> Pool:
        if pair.state == PoolState.INACTIVE:
            raise NoPool("inactive")
        total, special, staking = fees
        if pair.total_fee is not None:
            # Half of a pair's own fee leaves the pool; how that half is shared out does not matter to it.
            total, special, staking = pair.total_fee, pair.total_fee // 2, 0
        await self._learn(pair.tokens)
        first, second = pair.tokens
        return OneDexPool(
            id=f"{_id('o', router)}:{pair.pair_id}",
            address=router,
            tokens=pair.tokens,
            reserves=filled(pair.reserves),
            lp_token=pair.lp_token,
            lp_supply=pair.lp_supply,
            lp_decimals=pair.lp_decimals,
            state=pair.state,
            pair_id=pair.pair_id,
            total_fee=total,
            special_fee=special,
            staking_fee=staking,
            main=(first in main, second in main),
            enabled=pair.enabled,
        )

    async def jex(self, pairs: Iterable[bytes], stable: Iterable[bytes], restricted: frozenset[bytes]) -> Harvest:
        """The pairs and stable pools at the addresses given."""
        work = [(_id("j", item), partial(self._jex_pair, item)) for item in pairs]
        work += [(_id("j", item), partial(self._jex_stable, item, item in restricted)) for item in stable]
        return await each(work)

    async def _jex_pair(self, contract: bytes) -> Pool:
        status = decoded(views.jex_status, await self._gateway.value(contract, "getStatus"))
        await self._learn(status.tokens)
        return JexPool(
            id=_id("j", contract),
            address=contract,
            tokens=status.tokens,
            reserves=filled(status.reserves),
            lp_token=status.lp_token,
            lp_supply=status.lp_supply,
            state=PoolState.NO_SWAPS if status.paused else PoolState.ACTIVE,
            lp_fee=status.lp_fee,
            platform_fee=status.platform_fee,
            token_id_keys=await self._token_id_keys(contract, status.tokens),
        )

    async def _token_id_keys(self, contract: bytes, tokens: Sequence[str]) -> bool:
        """Whether a JEX pair is seen to store its tokens where the aggregator contract reads them; in doubt not."""

        async def ask(contract: bytes, name: str) -> bytes:
            try:
                return await self._gateway.key(contract, name.encode())
            except LostAnswer:
                raise
            except GatewayError as error:  # a gateway that tells no keys: asked again as seldom as of others
                log.debug("a key cannot be read", extra={"pool": _id("j", contract), "key": name, "reason": str(error)})
                return b""

        try:
            found = await gather([self._slowly(contract, name, ask) for name in TOKEN_ID_KEYS])
        except LostAnswer:
            return False
        return found == [token.encode() for token in tokens]

    async def _jex_stable(self, contract: bytes, restricted: bool) -> Pool:
        status = decoded(views.jex_stable_status, await self._gateway.value(contract, "getStatus"))
        return JexStablePool(
            id=_id("j", contract),
            address=contract,
            tokens=status.tokens,
            reserves=filled(status.reserves),
            lp_token=status.lp_token,
            lp_supply=status.lp_supply,
            state=PoolState.NO_SWAPS if status.paused else PoolState.ACTIVE,
            decimals=await self._learn(status.tokens),
            prices=status.prices,
            amp=status.amp,
            swap_fee=status.swap_fee,
            liquidity_fee=liquidity_fee(status.swap_fee, len(status.tokens)),
            restricted=restricted,
        )

    async def ashswap(self, stable: Iterable[bytes], crypto: Iterable[bytes], router: bytes | None) -> Harvest:
        """The pools at the addresses given, and the stable pools that the router lists."""
        wanted = dict.fromkeys(stable)
        if router is not None:
            listed = await self._gateway.view(router, "getAllPoolAddresses")
            if any(len(item) != address.SIZE for item in listed):
                raise GatewayError("getAllPoolAddresses: not all of them are addresses")
            wanted |= dict.fromkeys(listed)
        work = [(_id("a", item), partial(self._ash_stable, item)) for item in wanted]
        work += [(_id("a", item), partial(self._ash_crypto, item)) for item in crypto]
        return await each(work)

    async def _ash_stable(self, contract: bytes) -> Pool:
        tokens = decoded(views.token_list, await self._gateway.value(contract, "getTokens"))
        amp, swap_fee, admin_fee, state, supply, lp_token, *held = await gather(
            [
                self._number(contract, "getAmpFactor"),
                self._slow_number(contract, "getSwapFeePercent"),
                self._slow_number(contract, "getAdminFeePercent"),
                self._number(contract, "getState"),
                self._number(contract, "getTotalSupply"),
                self._lp_token(contract),
                *[self._number(contract, "getBalances", token.encode()) for token in tokens],
            ]
        )
        kind = await self._slow_number(contract, "getPoolType")
        prices = await gather([self._price(contract, token, kind) for token in tokens])
        return AshStablePool(
            id=_id("a", contract),
            address=contract,
            tokens=tokens,
            reserves=filled(tuple(held)),
            lp_token=lp_token,
            lp_supply=supply,
            state=views.state(state),
            decimals=await self._learn(tokens),
            prices=tuple(prices),
            amp=amp,
            swap_fee=swap_fee,
            admin_fee=admin_fee,
            pool_type=POOL_TYPES.get(kind, "plain"),
        )

    async def _price(self, contract: bytes, token: str, kind: int) -> int:
        """A token's price over 10^18; in a plain pool, whose tokens may have none to ask for, 1."""
        try:
            price = await self._number(contract, "getTokenPrice", token.encode(), top_uint(UNIT))
        except ViewError:
            if kind != PLAIN:
                raise
            return UNIT
        return price or UNIT

    async def _ash_crypto(self, contract: bytes) -> Pool:
        names = (
            "getA",
            "getGamma",
            "getD",
            "getPriceScale",
            "getMidFee",
            "getOutFee",
            "getFeeGamma",
            "getAdminFee",
            "getFutureAGammaTime",
            "getLpTokenSupply",
        )
        numbers = [self._number(contract, name) for name in names]
        lists = [self._gateway.value(contract, name) for name in ("getTokens", "getBalances")]
        ann, gamma, d, scale, mid, out, fee_gamma, admin, ramp, supply, tokens_raw, held, lp_token = await gather(
            [*numbers, *lists, self._lp_token(contract)]
        )
        tokens = decoded(views.token_list, tokens_raw)
        reserves = decoded(views.amount_list, held)
        if not len(tokens) == len(reserves) == 2:
            raise GatewayError(f"{len(tokens)} tokens and {len(reserves)} balances for 2")
        first, second = await self._learn(tokens)
        return AshCryptoPool(
            id=_id("a", contract),
            address=contract,
            tokens=tokens,
            reserves=filled(reserves),
            lp_token=lp_token,
            lp_supply=supply,
            decimals=(first, second),
            ann=ann,
            gamma=gamma,
            d=d,
            price_scale=scale,
            mid_fee=mid,
            out_fee=out,
            fee_gamma=fee_gamma,
            admin_fee=admin,
            ramping=ramp > 0,
        )

    async def rated(self, sources: Iterable[RateSource]) -> Harvest:
        """Contracts that trade at a rate."""
        return await each([(_rate_id(source), partial(self._rated, source)) for source in sources])

    async def _rated(self, source: RateSource) -> Pool:
        contract = address.decode(source.address)
        rate = await self._number(contract, source.view)
        stock = await self._number(contract, source.stock_view) if source.stock_view else source.stock
        if rate == 0 or stock == 0:
            raise NoPool("no rate" if rate == 0 else "nothing to pay out")
        await self._learn(source.tokens)
        num, den = (source.base, rate) if source.inverse else (rate, source.base)
        return RATE_POOLS[source.exchange, source.kind](
            id=_rate_id(source),
            address=contract,
            tokens=source.tokens,
            reserves=(max(stock * den // num, 1), stock),
            rate=(num, den),
            native=source.native,
        )

    async def _number(self, contract: bytes, function: str, *args: bytes) -> int:
        return views.number(await self._gateway.value(contract, function, *args))

    async def _slowly(self, contract: bytes, function: str, ask: Callable[[bytes, str], Awaitable[T]]) -> T:
        """What `ask` makes of a view's answer, kept for `slow_seconds`; an error is not kept."""
        key = (contract, function)
        expires, kept = self._slow.get(key, (0.0, None))
        if self._clock() >= expires:
            kept = await ask(contract, function)
            self._slow[key] = (self._clock() + self._slow_seconds, kept)
        value: T = kept
        return value

    async def _slow_value(self, contract: bytes, function: str) -> bytes:
        return await self._slowly(contract, function, self._gateway.value)

    async def _slow_number(self, contract: bytes, function: str) -> int:
        return views.number(await self._slow_value(contract, function))

    async def _lp_token(self, contract: bytes) -> str:
        return views.text(await self._slow_value(contract, "getLpTokenIdentifier"))

    async def _learn(self, tokens: Sequence[str]) -> tuple[int, ...]:
        """Decimals of tokens, which the document will need too."""
        return tuple(await gather([self._book.decimals(token) for token in tokens]))


PLAIN = 0
POOL_TYPES = {0: "plain", 1: "lending", 2: "meta"}


def _id(letter: str, contract: bytes) -> str:
    return f"{letter}:{address.encode(contract)}"


def _rate_id(source: RateSource) -> str:
    return f"r:{source.address}:{source.kind}"
