"""The JSON form of the pool document's parts, and how pools are written in it.

Whole numbers travel as decimal strings; a reader also takes JSON integers. Fields it does not know are
left alone, so that a newer writer does no harm.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar

import msgspec

from millrace.chain import address
from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import Pool, PoolState
from millrace.dex.rate import RatePool
from millrace.dex.stable import AshStablePool, JexStablePool

MAX_DIGITS: Final = 78

Number = str | int


class DocumentError(ValueError):
    """The document is not a pool document; the text names the path and the fault."""


POWERS: Final = ("freeze", "pause", "wipe")
"""Freeze an account's tokens, stop all transfers, take frozen tokens away."""
MAX_POWERS: Final = 16


class TokenInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A token of the market. `lp_of` is the id of the pool that issues it, if it is an LP token.

    `powers` is what its manager may do to those who hold it: words of `POWERS`; others mean nothing here.
    """

    identifier: str
    decimals: int
    name: str = ""
    ticker: str = ""
    is_lp: bool = False
    lp_of: str | None = None
    powers: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_POWERS)] = ()


class Entry(msgspec.Struct, rename="camel", kw_only=True):
    """Fields of every pool."""

    id: str
    exchange: str
    kind: str
    address: str
    tokens: list[str]
    reserves: list[Number]
    state: PoolState = PoolState.ACTIVE
    lp_token: str | None = None
    lp_decimals: Number = 18
    lp_supply: Number = "0"


class FeeDestinationEntry(msgspec.Struct):
    address: str
    token: str


class TrustedPairEntry(msgspec.Struct):
    tokens: tuple[str, str]
    address: str


class XExchangeEntry(Entry, kw_only=True):
    """`feesCollector` is empty where there is none; None of what the special fee is used for: not known."""

    total_fee: Number
    special_fee: Number
    fee_base: Number = "100000"
    fee_enabled: bool = True
    fees_collector: str | None = None
    fees_collector_cut: Number | None = None
    fee_destinations: list[FeeDestinationEntry] | None = None
    trusted_pairs: list[TrustedPairEntry] | None = None


class OneDexEntry(Entry, kw_only=True):
    pair_id: Number
    enabled: bool = True
    total_fee: Number
    special_fee: Number
    staking_fee: Number
    fee_base: Number = "10000"


class JexEntry(Entry, kw_only=True):
    lp_fee: Number
    platform_fee: Number
    fee_base: Number = "10000"
    token_id_keys: bool = False


class AshStableEntry(Entry, kw_only=True):
    amp: Number
    swap_fee: Number
    admin_fee: Number
    fee_base: Number = "100000"
    underlying_prices: list[Number] | None = None
    pool_type: str = "plain"


class Share(msgspec.Struct):
    num: Number
    den: Number


class JexStableEntry(Entry, kw_only=True):
    amp: Number
    swap_fee: Number
    liquidity_fee: Number | None = None
    fee_base: Number = "1000000"
    underlying_prices: list[Number] | None = None
    platform_share: Share | None = None
    restricted: bool = False


class AshCryptoEntry(Entry, kw_only=True):
    a: Number
    gamma: Number
    d: Number
    price_scale: list[Number]
    mid_fee: Number
    out_fee: Number
    fee_gamma: Number
    admin_fee: Number = "0"
    fee_base: Number = "10000000000"
    future_a_gamma_time: Number = "0"


class RateEntry(Entry, kw_only=True):
    rate: Share
    native: bool = False


T = TypeVar("T")


def parse(data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T], path: str) -> T:
    """Decode JSON of a known type. Raises `DocumentError` whatever is wrong with it."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise DocumentError(_located(str(error), path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise DocumentError(f"{path}: not valid JSON: {error}") from None


def _located(message: str, path: str) -> str:
    """msgspec writes "... - at `$.a.b`"; put the path first, under the entry's own."""
    text, _, inner = message.partition(" - at `")
    return f"{path}{inner.rstrip('`').removeprefix('$')}: {text}"


def whole(value: Number) -> int | None:
    """A whole number from its decimal string or JSON integer; None if it is neither, negative or too long."""
    if isinstance(value, int):
        return value if 0 <= value < 10**MAX_DIGITS else None
    if len(value) > MAX_DIGITS or not (value.isascii() and value.isdigit()):
        return None
    return int(value)


@lru_cache(maxsize=1 << 16)
def _encoded(pubkey: bytes) -> str:
    return address.encode(pubkey)


def write(pool: Pool) -> Entry:
    """The entry of a pool."""
    common: dict[str, Any] = {
        "id": pool.id,
        "exchange": pool.exchange,
        "kind": pool.kind,
        "address": _encoded(pool.address),
        "tokens": list(pool.tokens),
        "reserves": _texts(pool.reserves),
        "state": pool.state,
        "lp_token": pool.lp_token or None,
        "lp_decimals": pool.lp_decimals,
        "lp_supply": str(pool.lp_supply),
    }
    if isinstance(pool, XExchangePool):
        return XExchangeEntry(
            **common,
            total_fee=str(pool.total_fee),
            special_fee=str(pool.special_fee),
            fee_base=str(pool.fee_base),
            fee_enabled=pool.fee_enabled,
            fees_collector_cut=str(pool.fees_collector_cut),
            **_fee_setup(pool),
        )
    if isinstance(pool, OneDexPool):
        return OneDexEntry(
            **common,
            pair_id=pool.pair_id,
            enabled=pool.enabled,
            total_fee=str(pool.total_fee),
            special_fee=str(pool.special_fee),
            staking_fee=str(pool.staking_fee),
            fee_base=str(pool.fee_base),
        )
    if isinstance(pool, JexPool):
        return JexEntry(
            **common,
            lp_fee=str(pool.lp_fee),
            platform_fee=str(pool.platform_fee),
            fee_base=str(pool.fee_base),
            token_id_keys=pool.token_id_keys,
        )
    if isinstance(pool, RatePool):
        return RateEntry(**common, rate=Share(*_texts(pool.rate)), native=pool.native)
    return _write_curved(pool, common)


def _fee_setup(pool: XExchangePool) -> dict[str, Any]:
    """Where a pair's special fee goes."""
    collector, to, trusted = pool.fees_collector, pool.fee_destinations, pool.trusted_pairs
    return {
        "fees_collector": None if collector is None else _encoded(collector) if collector else "",
        "fee_destinations": None if to is None else [FeeDestinationEntry(_encoded(a), token) for a, token in to],
        "trusted_pairs": None if trusted is None else [TrustedPairEntry(pair, _encoded(a)) for pair, a in trusted],
    }


def _write_curved(pool: Pool, common: dict[str, Any]) -> Entry:
    if isinstance(pool, AshStablePool):
        return AshStableEntry(
            **common,
            amp=str(pool.amp),
            swap_fee=str(pool.swap_fee),
            admin_fee=str(pool.admin_fee),
            fee_base=str(pool.fee_base),
            underlying_prices=_texts(pool.prices),
            pool_type=pool.pool_type,
        )
    if isinstance(pool, JexStablePool):
        part, whole_part = pool.platform_share
        return JexStableEntry(
            **common,
            amp=str(pool.amp),
            swap_fee=str(pool.swap_fee),
            liquidity_fee=str(pool.liquidity_fee),
            fee_base=str(pool.fee_base),
            underlying_prices=_texts(pool.prices),
            platform_share=Share(str(part), str(whole_part)),
            restricted=pool.restricted,
        )
    if isinstance(pool, AshCryptoPool):
        return AshCryptoEntry(
            **common,
            a=str(pool.ann),
            gamma=str(pool.gamma),
            d=str(pool.d),
            price_scale=[str(pool.price_scale)],
            mid_fee=str(pool.mid_fee),
            out_fee=str(pool.out_fee),
            fee_gamma=str(pool.fee_gamma),
            admin_fee=str(pool.admin_fee),
            fee_base=str(pool.fee_base),
            future_a_gamma_time=str(int(pool.ramping)),
        )
    raise TypeError(f"pools of type {type(pool).__name__} have no document form")


def _texts(values: Sequence[int]) -> list[Number]:
    return [str(value) for value in values]
