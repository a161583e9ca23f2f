"""What the exchanges' views return, decoded. Layouts are those of the contracts' ABIs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from millrace.chain import address
from millrace.chain.abi import AbiError, Reader, decode_uint
from millrace.chain.token import is_identifier
from millrace.dex.constant_product import FeeDestination, TrustedPair
from millrace.dex.entries import MAX_FEE_ENTRIES
from millrace.dex.pool import PoolState

T = TypeVar("T")

NUMBER_BYTES = 32
"""No amount, price or fee of any contract needs more; what does is no number but an attempt on its reader."""

XEXCHANGE_FEE_BASE = 100_000
"""What xExchange's fees and the collector's cut are counted over."""


class XExchangePair(NamedTuple):
    """Router view `getAllPairContractMetadata`, one item."""

    tokens: tuple[str, str]
    address: bytes


class OneDexPair(NamedTuple):
    """View `viewPairsPaginated`, one item. `total_fee` is None in the layout without a fee per pair."""

    pair_id: int
    state: PoolState
    enabled: bool
    tokens: tuple[str, str]
    lp_token: str
    lp_decimals: int
    reserves: tuple[int, int]
    lp_supply: int
    total_fee: int | None


class JexStatus(NamedTuple):
    """View `getStatus` of a JEX pair."""

    paused: bool
    tokens: tuple[str, str]
    reserves: tuple[int, int]
    lp_token: str
    lp_supply: int
    lp_fee: int
    platform_fee: int


class JexStableStatus(NamedTuple):
    """View `getStatus` of a JEX stable pool."""

    paused: bool
    amp: int
    tokens: tuple[str, ...]
    reserves: tuple[int, ...]
    lp_token: str
    lp_supply: int
    swap_fee: int
    prices: tuple[int, ...]


STATES = {0: PoolState.INACTIVE, 1: PoolState.ACTIVE, 2: PoolState.NO_SWAPS}
"""State enumeration of xExchange, OneDex and AshSwap alike."""


def text(data: bytes) -> str:
    """A token identifier."""
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise AbiError("a token identifier is not ASCII") from None


def number(data: bytes) -> int:
    """A top-encoded unsigned number."""
    return decode_uint(data, NUMBER_BYTES)


def _amount(reader: Reader) -> int:
    """A nested unsigned number."""
    return decode_uint(reader.blob(), NUMBER_BYTES)


def state(number: int) -> PoolState:
    """A pool's state from its discriminant."""
    try:
        return STATES[number]
    except KeyError:
        raise AbiError(f"{number} is no state of a pool") from None


def token_list(data: bytes) -> tuple[str, ...]:
    """A top-encoded list of token identifiers."""
    reader = Reader(data)
    return tuple(reader.items(lambda: text(reader.blob())))


def amount_list(data: bytes) -> tuple[int, ...]:
    """A top-encoded list of big numbers."""
    reader = Reader(data)
    return tuple(reader.items(lambda: _amount(reader)))


def xexchange_pair(data: bytes) -> XExchangePair:
    """{first token, second token, address}."""
    reader = Reader(data)
    pair = XExchangePair((text(reader.blob()), text(reader.blob())), reader.take(32))
    reader.end()
    return pair


def fees_collector(values: Sequence[bytes]) -> bytes:
    """View `getFeesCollectorAddress` of an xExchange pair: the address, or nothing where there is no collector.

    Source of this and the three views below: `mx-exchange-sc`, pair contract, fee module. Raises `AbiError`.
    """
    found = _only(values)
    if found and len(found) != address.SIZE:
        raise AbiError(f"an address has {address.SIZE} bytes, not {len(found)}")
    return b"" if found == address.ZERO else found


def fees_collector_cut(values: Sequence[bytes]) -> int:
    """View `getFeesCollectorCutPercentage`: the collector's part of the special fee, over 100 000."""
    cut = number(_only(values))
    if cut > XEXCHANGE_FEE_BASE:
        raise AbiError(f"a cut of {cut} is more than the base {XEXCHANGE_FEE_BASE}")
    return cut


def fee_destinations(values: Sequence[bytes]) -> tuple[FeeDestination, ...]:
    """View `getFeeDestinations`: {address, token} each, at most 64 of them."""
    return _fee_entries(values, lambda reader: FeeDestination(reader.take(address.SIZE), _identifier(reader)))


def trusted_pairs(values: Sequence[bytes]) -> tuple[TrustedPair, ...]:
    """View `getTrustedSwapPairs`: {first token, second token, address} each, at most 64 of them."""

    def pair(reader: Reader) -> TrustedPair:
        tokens = _identifier(reader), _identifier(reader)
        return TrustedPair(tokens, reader.take(address.SIZE))

    return _fee_entries(values, pair)


def _only(values: Sequence[bytes]) -> bytes:
    """The only value of a view; empty when it returns nothing."""
    if len(values) > 1:
        raise AbiError(f"{len(values)} values for one")
    return values[0] if values else b""


def _fee_entries(values: Sequence[bytes], read: Callable[[Reader], T]) -> tuple[T, ...]:
    if len(values) > MAX_FEE_ENTRIES:
        # The document would be refused with more.
        raise AbiError(f"{len(values)} entries, at most {MAX_FEE_ENTRIES} are taken")
    entries = []
    for data in values:
        reader = Reader(data)
        entries.append(read(reader))
        reader.end()
    return tuple(entries)


def _identifier(reader: Reader) -> str:
    token = text(reader.blob())
    if not is_identifier(token):
        raise AbiError(f"{token[:40]!r} is not a token identifier")
    return token


def onedex_pair(data: bytes) -> OneDexPair:
    """A pair in the layout of 2023, or in the present one with eight more bytes that end in the fee."""
    reader = Reader(data)
    pair_id, status, enabled = reader.uint(4), state(reader.uint(1)), reader.flag()
    reader.take(32)  # owner
    tokens = (text(reader.blob()), text(reader.blob()))
    lp_token, lp_decimals = text(reader.blob()), reader.uint(4)
    reserves = (_amount(reader), _amount(reader))
    lp_supply = _amount(reader)
    reader.flag()  # whether the contract may mint the LP token
    total_fee = None
    if reader.remaining:
        # Read as one u64, or as an unknown u32 and the fee: the fee is the lower half either way.
        reader.uint(4)
        total_fee = reader.uint(4)
    reader.end()
    return OneDexPair(pair_id, status, enabled, tokens, lp_token, lp_decimals, reserves, lp_supply, total_fee)


def jex_status(data: bytes) -> JexStatus:
    """The statistics behind the fees are not read."""
    reader = Reader(data)
    paused = reader.flag()
    first, reserve_first = text(reader.blob()), _amount(reader)
    second, reserve_second = text(reader.blob()), _amount(reader)
    lp_token, lp_supply = text(reader.blob()), _amount(reader)
    reader.take(32)  # owner
    fees = reader.uint(4), reader.uint(4)
    return JexStatus(paused, (first, second), (reserve_first, reserve_second), lp_token, lp_supply, *fees)


def jex_stable_status(data: bytes) -> JexStableStatus:
    """Pools that know no prices end after their statistics; their prices are 1."""
    reader = Reader(data)
    paused, amp, count = reader.flag(), reader.uint(4), reader.uint(4)
    tokens = tuple(reader.array(lambda: text(reader.blob())))
    reserves = tuple(reader.array(lambda: _amount(reader)))
    lp_token, lp_supply = text(reader.blob()), _amount(reader)
    reader.take(32)  # owner
    swap_fee = reader.uint(4)
    reader.option(lambda: reader.take(32))  # receiver of the platform's fees
    for _ in range(3):
        reader.array(reader.biguint)  # volumes and fees
    prices = tuple(reader.array(lambda: _amount(reader))) if reader.remaining else (10**18,) * len(tokens)
    reader.end()
    if not len(tokens) == len(reserves) == len(prices) == count:
        raise AbiError(f"{count} tokens announced, {len(tokens)} named")
    return JexStableStatus(paused, amp, tokens, reserves, lp_token, lp_supply, swap_fee, prices)
