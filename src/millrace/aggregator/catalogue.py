"""The tokens and pools of a snapshot with their prices: what a wallet lets its users choose from.

Made once per snapshot, when somebody asks, in the thread for long questions; a request only picks rows, which are JSON
already.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from millrace.aggregator.breakdown import DEX_NAMES
from millrace.aggregator.responses import SnapshotInfo, wire_name
from millrace.aggregator.snapshot import Snapshot
from millrace.chain import address
from millrace.chain.amount import short
from millrace.chain.token import NATIVE
from millrace.dex.constant_product import OneDexPool
from millrace.dex.document import TokenInfo
from millrace.dex.pool import Pool
from millrace.dex.rate import RatePool

WARNINGS = {"freeze": "freezable", "pause": "pausable", "wipe": "wipeable"}
"""What a token's holders are told of its manager's powers."""
ROWS_PER_TURN = 500
"""Rows that are made before others have their turn in the thread: a few milliseconds."""


class TokenRow(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """A token. Prices are of a whole token; they and liquidity are null where no pool leads to the native coin."""

    identifier: str
    name: str
    ticker: str
    decimals: int
    is_lp: bool
    price_egld: float | None
    price_usdc: float | None
    liquidity_egld: float | None
    liquidity_usdc: float | None
    pools: int
    warnings: list[str]


class PoolRow(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name, omit_defaults=True):
    """A pool. `tradable`: routes may use it. Liquidity is what it holds, null where a token has no price, and of a
    contract at a rate."""

    id: str
    dex: str
    kind: str
    address: str
    tokens: tuple[str, ...]
    reserves: list[str]
    reserves_short: list[float]
    state: str
    tradable: bool
    liquidity_egld: float | None
    liquidity_usdc: float | None
    lp_token: str | None
    lp_supply: str
    pair_id: int | None = None


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a whole token; null where it has none."""

    egld: float | None
    usdc: float | None


class TokensResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/tokens`: a page of those that match, those with most liquidity first."""

    tokens: Sequence[TokenRow]
    total: int
    offset: int
    limit: int
    snapshot: SnapshotInfo


class PoolsResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/pools`: a page of those that match, those with most liquidity first."""

    pools: Sequence[PoolRow]
    total: int
    offset: int
    limit: int
    snapshot: SnapshotInfo


class PricesResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/prices`, by token."""

    prices: dict[str, Price]
    snapshot: SnapshotInfo


class Catalogue:
    """Rows by what they are asked for; `tokens` and `pools` in the order in which they are shown."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.tokens: list[tuple[str, Any]] = []
        """What a search looks at, and the row."""
        self.pools: list[tuple[str, tuple[str, ...], Any]] = []
        """Exchange, tokens, and the row."""
        self.prices: dict[str, Price] = {}
        self.all_prices = msgspec.Raw(b"{}")
        """The same as JSON."""


class _Market:
    """A snapshot's prices, per smallest unit and in smallest units of the wrapped native token."""

    def __init__(self, snapshot: Snapshot, usdc: str) -> None:
        self.usable = snapshot.usable
        self._snapshot = snapshot
        self._prices = snapshot.worth
        unit = self._prices.get(usdc)
        self._usdc = None if unit is None else unit * 10 ** snapshot.decimals[usdc] / 1e18
        """The price of a whole USDC in EGLD."""

    def price(self, token: str) -> Price:
        """Of a whole token."""
        return self.in_both(self._value(token, 10 ** self._snapshot.decimals[token]))

    def worth(self, pool: Pool) -> Price:
        """Of what a pool holds; of what a contract at a rate holds nothing is known."""
        if isinstance(pool, RatePool):
            return self.in_both(None)
        values = [self._value(token, reserve) for token, reserve in zip(pool.tokens, pool.reserves, strict=True)]
        return self.in_both(None if None in values else sum(value for value in values if value is not None))

    def in_both(self, egld: float | None) -> Price:
        """A value in EGLD, and the same in USDC where that has a price."""
        return Price(egld=egld, usdc=egld / self._usdc if egld is not None and self._usdc else None)

    def _value(self, token: str, amount: int) -> float | None:
        unit = self._prices.get(self._snapshot.inner(token))
        return None if unit is None else amount * unit / 1e18


def make(snapshot: Snapshot, usdc: str, thin: float = 0.0) -> Generator[None, None, Catalogue]:
    """The catalogue of a snapshot, in parts. `usdc` is the token that prices in USDC are told in, `thin` the liquidity
    in EGLD below which a token is warned of."""
    market, catalogue = _Market(snapshot, usdc), Catalogue(snapshot)
    yield
    held: dict[str, int] = {}
    pools_of: dict[str, int] = {}
    for pool in market.usable:
        for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
            pools_of[token] = pools_of.get(token, 0) + 1
            if not isinstance(pool, RatePool):  # whose reserves say how far the rate is trusted
                held[token] = held.get(token, 0) + reserve
    native = TokenInfo(identifier=NATIVE, decimals=18, name=NATIVE, ticker=NATIVE)
    rows = []
    for number, info in enumerate((native, *snapshot.document.tokens)):
        if number % ROWS_PER_TURN == 0:
            yield
        price, inner = market.price(info.identifier), snapshot.inner(info.identifier)
        catalogue.prices[info.identifier] = price
        units = short(held.get(inner, 0), info.decimals)
        liquidity = market.in_both(None if price.egld is None else units * price.egld)
        warnings = [WARNINGS[power] for power in WARNINGS if power in info.powers]
        if not info.is_lp and (liquidity.egld or 0.0) < thin:
            warnings.append("thin_market")
        rows.append(_token_row(info, price, liquidity, pools_of.get(inner, 0), warnings))
    catalogue.all_prices = _raw(catalogue.prices)
    yield
    rows.sort(key=lambda row: (-(row.liquidity_egld or 0.0), row.identifier))
    yield
    catalogue.tokens = [(_searched(row), _raw(row)) for row in rows]
    usable = {pool.id for pool in market.usable}
    pools = []
    for number, pool in enumerate(snapshot.document.pools):
        if number % ROWS_PER_TURN == 0:
            yield
        worth = market.worth(pool)
        row = _pool_row(snapshot, pool, worth, tradable=pool.id in usable)
        pools.append((-(worth.egld or 0.0), pool.id, (pool.exchange, pool.tokens, _raw(row))))
    catalogue.pools = [shown for _, _, shown in sorted(pools, key=lambda item: item[:2])]
    return catalogue


def _token_row(info: TokenInfo, price: Price, liquidity: Price, pools: int, warnings: list[str]) -> TokenRow:
    return TokenRow(
        identifier=info.identifier,
        name=info.name,
        ticker=info.ticker or info.identifier.partition("-")[0],
        decimals=info.decimals,
        is_lp=info.is_lp,
        price_egld=price.egld,
        price_usdc=price.usdc,
        liquidity_egld=liquidity.egld,
        liquidity_usdc=liquidity.usdc,
        pools=pools,
        warnings=warnings,
    )


def _pool_row(snapshot: Snapshot, pool: Pool, worth: Price, *, tradable: bool) -> PoolRow:
    return PoolRow(
        id=pool.id,
        dex=DEX_NAMES[pool.exchange],
        kind=pool.kind,
        address=address.encode(pool.address),
        tokens=pool.tokens,
        reserves=[str(reserve) for reserve in pool.reserves],
        reserves_short=[
            short(reserve, snapshot.decimals[token]) for token, reserve in zip(pool.tokens, pool.reserves, strict=True)
        ],
        state=pool.state,
        tradable=tradable,
        liquidity_egld=worth.egld,
        liquidity_usdc=worth.usdc,
        lp_token=pool.lp_token or None,
        lp_supply=str(pool.lp_supply),
        pair_id=pool.pair_id if isinstance(pool, OneDexPool) else None,
    )


def _searched(row: TokenRow) -> str:
    return f"{row.identifier}\n{row.name}\n{row.ticker}".lower()


def _raw(row: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(row))
