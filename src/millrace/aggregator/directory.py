"""What a wallet asks before it quotes: tokens, pools, prices, and how the service is set."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from millrace.aggregator.answering import EVERYBODY, Answering
from millrace.aggregator.breakdown import DEX_NAMES
from millrace.aggregator.catalogue import Catalogue, PoolsResponse, PricesResponse, TokensResponse, make
from millrace.aggregator.errors import ApiError, shown
from millrace.aggregator.query import (
    ALGORITHMS,
    MAX_POOLS,
    Query,
    parse_exchanges,
    parse_integer,
    parse_text,
)
from millrace.aggregator.responses import SnapshotInfo, wire_name
from millrace.aggregator.settings import MOST_SPLITS, AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.chain.token import NATIVE

PAGE = 100
"""Rows of a page by default."""
LONGEST_PAGE = 1000
MAX_OFFSET = 1_000_000
MAX_PRICES = 100
"""Most tokens named in one question for prices; all of them need not be named."""


class ConfigLimits(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """What is refused above."""

    max_hops: int
    max_splits: int
    max_pools: int
    max_builtin_calls: int
    max_gas: int
    max_inputs: int
    inputs_per_transaction: int
    requests_per_second: int
    max_streams_per_client: int


class ConfigDefaults(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """What holds where a request says nothing."""

    slippage: str
    algorithm: str
    max_hops: int
    max_splits: int | None
    """None: as many paths as are worth what they add to the fee."""
    include_paths: bool
    min_profit_bps: int


class ConfigResponse(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """The answer of `/api/v1/config`. `referrals`: fees of known referrals, in basis points of the output."""

    contract: str
    chain_id: str
    gas_price: int
    native_token: str
    wrapped_native_token: str
    usdc: str
    exchanges: list[str]
    algorithms: list[str]
    referrals: dict[str, int]
    poll_seconds: float
    limits: ConfigLimits
    defaults: ConfigDefaults
    snapshot: SnapshotInfo


class Directory:
    """Answers from the catalogue of the newest snapshot, which is made when the first one asks."""

    def __init__(self, settings: AggregatorSettings, answering: Answering) -> None:
        self._settings = settings
        self._answering = answering
        self._known: tuple[str, asyncio.Future[Catalogue]] | None = None
        self.made = 0
        """Catalogues made since the start."""

    def adopt(self, settings: AggregatorSettings) -> None:
        """Tell of other settings."""
        self._settings = settings

    async def tokens(self, snapshot: Snapshot, query: Query) -> TokensResponse:
        """GET /api/v1/tokens. Raises `ApiError`."""
        wanted = (parse_text(query, "search") or "").strip().lower()
        offset, limit = _page(query)
        catalogue = await self._catalogue(snapshot)
        rows = [row for text, row in catalogue.tokens if wanted in text]
        page = rows[offset : offset + limit]
        return TokensResponse(tokens=page, total=len(rows), offset=offset, limit=limit, snapshot=snapshot.info)

    async def pools(self, snapshot: Snapshot, query: Query) -> PoolsResponse:
        """GET /api/v1/pools. Raises `ApiError`."""
        token, exchanges = parse_text(query, "token"), parse_exchanges("exchange", parse_text(query, "exchange"))
        if token is not None and token not in snapshot.decimals:
            raise _unknown(token)
        offset, limit = _page(query)
        catalogue = await self._catalogue(snapshot)
        inner = None if token is None else snapshot.inner(token)
        rows = [
            row
            for exchange, tokens, row in catalogue.pools
            if (inner is None or inner in tokens) and (not exchanges or exchange in exchanges)
        ]
        page = rows[offset : offset + limit]
        return PoolsResponse(pools=page, total=len(rows), offset=offset, limit=limit, snapshot=snapshot.info)

    async def prices(self, snapshot: Snapshot, query: Query) -> PricesResponse:
        """GET /api/v1/prices. Raises `ApiError`."""
        text = parse_text(query, "tokens")
        names = [] if not text else [name.strip() for name in text.split(",")]
        if len(names) > MAX_PRICES:
            raise ApiError(f"too many tokens: at most {MAX_PRICES}, or none for all of them")
        for name in names:
            if name not in snapshot.decimals:
                raise _unknown(name)
        catalogue = await self._catalogue(snapshot)
        chosen: Any = {name: catalogue.prices[name] for name in names} if names else catalogue.all_prices
        return PricesResponse(prices=chosen, snapshot=snapshot.info)

    def config(self, snapshot: Snapshot) -> ConfigResponse:
        """GET /api/v1/config."""
        settings = self._settings
        return ConfigResponse(
            contract=settings.contract,
            chain_id=settings.chain_id,
            gas_price=settings.gas_price,
            native_token=NATIVE,
            wrapped_native_token=snapshot.wrapped,
            usdc=settings.usdc,
            exchanges=list(DEX_NAMES.values()),
            algorithms=list(ALGORITHMS),
            referrals={name: sum(bps) for name, bps in settings.referrals.items()},
            poll_seconds=settings.poll_seconds,
            limits=ConfigLimits(
                max_hops=settings.max_hops,
                max_splits=MOST_SPLITS,
                max_pools=MAX_POOLS,
                max_builtin_calls=settings.max_builtin_calls,
                max_gas=settings.max_gas,
                max_inputs=settings.max_batch,
                inputs_per_transaction=settings.inputs_per_transaction,
                requests_per_second=settings.requests_per_second,
                max_streams_per_client=settings.max_streams_per_client,
            ),
            defaults=ConfigDefaults(
                slippage=settings.default_slippage,
                algorithm="hybrid",
                max_hops=settings.max_hops,
                max_splits=settings.max_splits,
                include_paths=settings.include_paths,
                min_profit_bps=settings.min_profit_bps,
            ),
            snapshot=snapshot.info,
        )

    async def _catalogue(self, snapshot: Snapshot) -> Catalogue:
        """The catalogue of a snapshot; whoever asks at the same time waits for the same. One is kept."""
        if self._known is None or self._known[0] != snapshot.id:
            future = asyncio.ensure_future(self._made(snapshot))
            future.add_done_callback(partial(self._forget_failed, snapshot.id))
            self._known = snapshot.id, future
        return await asyncio.shield(self._known[1])

    async def _made(self, snapshot: Snapshot) -> Catalogue:
        catalogue = await self._answering.run_in_turns(
            lambda _: make(snapshot, self._settings.usdc, self._settings.thin_market_egld), EVERYBODY
        )
        self.made += 1
        return catalogue

    def _forget_failed(self, identifier: str, done: asyncio.Future[Catalogue]) -> None:
        """One that could not be made is made when the next one asks."""
        failed = done.cancelled() or done.exception() is not None
        if failed and self._known is not None and self._known[0] == identifier:
            self._known = None


def _page(query: Query) -> tuple[int, int]:
    return parse_integer(query, "offset", 0, 0, MAX_OFFSET), parse_integer(query, "limit", PAGE, 1, LONGEST_PAGE)


def _unknown(token: str) -> ApiError:
    return ApiError(f"unknown token {shown(token)}")
