"""The two requests with many inputs, from their bodies to a checked order."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple, TypeVar

import msgspec

from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import (
    MAX_POOLS,
    MOST_AGE_MS,
    named,
    parse_exchanges,
    parse_names,
    parse_price_impact,
    parse_sender,
    parse_slippage,
    within,
)
from millrace.aggregator.settings import ANY_REFERRAL, MIN_GAS_PRICE, MOST_GAS_PRICE, MOST_SPLITS, AggregatorSettings
from millrace.aggregator.snapshot import Filter
from millrace.routing.costs import CALLS_PER_TRANSACTION

PATHS_PER_INPUT = 2
POOLS_PER_INPUT = 8
HOPS = 4  # default of `maxHops`
NULL = b"null"

Names = list[str] | str | None
"""A list of names, or what a quote has in its place: comma-separated ones."""


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a batch request: a token and an amount in smallest units."""

    token: str
    amount: str


class BatchRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of POST /api/v1/batch-quote."""

    inputs: list[BatchItem] = []
    to: str = ""
    slippage: str | float | None = None
    max_hops: int | None = None
    max_splits: int | None = None
    max_pools: int | None = None
    max_builtin_calls: int | None = None
    max_price_impact: str | float | None = None
    max_age_ms: int | None = None
    referral_id: int | None = None
    include_exchanges: Names = None
    exclude_exchanges: Names = None
    include_pools: Names = None
    exclude_pools: Names = None


class MultiSwapRequest(BatchRequest, frozen=True, kw_only=True, rename="camel"):
    """The body of POST /api/v1/multi-swap."""

    dust_mode: bool | None = msgspec.field(default=True, name="dust_mode")
    """Unless it is false, inputs that cannot be sold are left out and named; else any of them fails the request."""
    sender: str | None = None
    gas_price: int | None = None


Request = TypeVar("Request", bound=BatchRequest)


class Order(NamedTuple):
    """A checked request. `skipping`: inputs that cannot be sold are left out; else the first of them is an error."""

    inputs: Sequence[BatchItem]
    to: str
    slippage: Decimal
    hops: int
    paths: int
    """Of each input, as are `pools`."""
    pools: int
    calls: int
    referral_id: int
    max_price_impact: Decimal | None
    max_age_ms: int | None
    gas_price: int
    chosen: Filter
    """Which pools may be used."""
    skipping: bool = True
    ignored: Sequence[str] = ()
    """Fields of the body that have no effect on the answer."""


def decode(body: bytes, kind: type[Request]) -> tuple[Request, tuple[str, ...]]:
    """A request, and the names of the fields that it does not know; what is null is not given. Raises `ApiError`."""
    try:
        request = msgspec.json.decode(body, type=kind)
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(f"invalid body: {error}"[:300]) from None
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    return request, named([name for name, value in given.items() if name not in known and bytes(value) != NULL])


def make_order(request: BatchRequest, settings: AggregatorSettings, ignored: Sequence[str] = ()) -> Order:
    """Check what can be checked without a market. Raises `ApiError`."""
    if not request.to:
        raise ApiError("to must be provided")
    if not request.inputs:
        raise ApiError("inputs must not be empty")
    if len(request.inputs) > settings.max_batch:
        raise ApiError(f"too many inputs: at most {settings.max_batch}")
    impact, age = request.max_price_impact, request.max_age_ms
    return Order(
        inputs=request.inputs,
        to=request.to,
        slippage=parse_slippage(settings.default_slippage if request.slippage is None else str(request.slippage)),
        hops=_whole("maxHops", request.max_hops, min(HOPS, settings.max_hops), settings.max_hops),
        paths=min(PATHS_PER_INPUT, _whole("maxSplits", request.max_splits, PATHS_PER_INPUT, MOST_SPLITS)),
        pools=min(POOLS_PER_INPUT, _whole("maxPools", request.max_pools, POOLS_PER_INPUT, MAX_POOLS)),
        calls=_whole("maxBuiltinCalls", request.max_builtin_calls, CALLS_PER_TRANSACTION, CALLS_PER_TRANSACTION),
        referral_id=within("referralId", request.referral_id or 0, 0, ANY_REFERRAL),
        max_price_impact=None if impact is None else parse_price_impact(str(impact)),
        max_age_ms=None if age is None else within("maxAgeMs", age, 1, MOST_AGE_MS),
        gas_price=settings.gas_price,
        chosen=_filter(request),
        ignored=ignored,
    )


def multi_swap_order(request: MultiSwapRequest, settings: AggregatorSettings, ignored: Sequence[str] = ()) -> Order:
    """The same of a multi-swap. Raises `ApiError`."""
    sender, price = parse_sender(request.sender or ""), request.gas_price
    if price is not None:
        price = within("gasPrice", price, MIN_GAS_PRICE, MOST_GAS_PRICE)
        if not sender:  # it is of transactions, and there is none
            ignored = (*ignored, "gasPrice")
    order = make_order(request, settings, ignored)
    return order._replace(gas_price=price or order.gas_price, skipping=request.dust_mode is not False)


def _filter(request: BatchRequest) -> Filter:
    return Filter(
        parse_exchanges("includeExchanges", _text(request.include_exchanges)),
        parse_exchanges("excludeExchanges", _text(request.exclude_exchanges)),
        parse_names("includePools", _text(request.include_pools)),
        parse_names("excludePools", _text(request.exclude_pools)),
    )


def _text(names: Names) -> str | None:
    return ",".join(names) if isinstance(names, list) else names


def _whole(name: str, value: int | None, default: int, high: int) -> int:
    """A parameter's value, or what counts without one. Raises `ApiError`."""
    return default if value is None else within(name, value, 1, high)
