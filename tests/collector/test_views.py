"""Layouts of the exchanges' views, and that damaged values are errors."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.abi import AbiError, nested_biguint, nested_bool, nested_bytes, nested_list, nested_uint, top_uint
from millrace.collector import views
from millrace.dex.constant_product import FeeDestination, TrustedPair
from millrace.dex.entries import MAX_FEE_ENTRIES
from millrace.dex.pool import PoolState

OWNER = b"\x0e" * 32


def a_pair(tail: bytes) -> bytes:
    data = nested_uint(9, 4) + b"\x02" + nested_bool(False) + OWNER
    data += b"".join(map(nested_bytes, (b"ONE-f9954f", b"WEGLD-bd4d79", b"ONEWEGLD-892244"))) + nested_uint(18, 4)
    return data + nested_biguint(1) + nested_biguint(0) + nested_biguint(2**80) + nested_bool(True) + tail


@pytest.mark.parametrize(
    ("tail", "fee"),
    [(b"", None), (nested_uint(100, 8), 100), (nested_uint(7, 4) + nested_uint(40, 4), 40)],
    ids=["2023", "one number", "two numbers"],
)
def test_layouts_of_onedex_pairs(tail: bytes, fee: int | None) -> None:
    """The fee is the last half of the last eight bytes, where there are any."""
    pair = views.onedex_pair(a_pair(tail))
    assert (pair.pair_id, pair.state, pair.enabled, pair.total_fee) == (9, PoolState.NO_SWAPS, False, fee)
    assert pair.tokens == ("ONE-f9954f", "WEGLD-bd4d79")
    assert (pair.reserves, pair.lp_supply) == ((1, 0), 2**80)


def stable(count: int, prices: bytes) -> bytes:
    data = nested_bool(True) + nested_uint(256, 4) + nested_uint(count, 4)
    data += nested_list([nested_bytes(b"USDC-c76f1f"), nested_bytes(b"USDT-f8c08c")])
    data += nested_list([nested_biguint(5), nested_biguint(6)]) + nested_bytes(b"LP-000000") + nested_biguint(11)
    return data + OWNER + nested_uint(500, 4) + b"\x01" + OWNER + nested_list([]) * 3 + prices


def test_jex_stable_pools_with_and_without_prices() -> None:
    """Older pools end before the prices, which are then 1."""
    status = views.jex_stable_status(stable(2, b""))
    assert (status.paused, status.amp, status.prices, status.swap_fee) == (True, 256, (10**18, 10**18), 500)
    priced = views.jex_stable_status(stable(2, nested_list([nested_biguint(3), nested_biguint(4)])))
    assert priced.prices == (3, 4)
    with pytest.raises(AbiError, match="3 tokens announced"):
        views.jex_stable_status(stable(3, b""))


def test_lists_and_states() -> None:
    """Top-encoded lists have no count; states are the three that exist."""
    assert views.token_list(nested_bytes(b"USDC-c76f1f")) == ("USDC-c76f1f",)
    assert views.amount_list(nested_biguint(5) + nested_biguint(0)) == (5, 0)
    assert [views.state(k) for k in range(3)] == [PoolState.INACTIVE, PoolState.ACTIVE, PoolState.NO_SWAPS]
    with pytest.raises(AbiError):
        views.state(3)
    with pytest.raises(AbiError):
        views.text(b"\xff")


ADDRESSES = st.binary(min_size=32, max_size=32)
TOKENS = st.from_regex(r"([a-z0-9]{1,4}-)?[A-Z0-9]{3,10}-[0-9a-f]{6}", fullmatch=True)


@given(st.lists(st.builds(FeeDestination, ADDRESSES, TOKENS), max_size=5))
@settings(max_examples=50, deadline=None)
def test_fee_destinations_are_read_as_they_are_nested(destinations: list[FeeDestination]) -> None:
    """An address and a token's name with its length in front, one value each."""
    values = [to.address + nested_bytes(to.token.encode()) for to in destinations]
    assert views.fee_destinations(values) == tuple(destinations)


@given(st.lists(st.builds(TrustedPair, st.tuples(TOKENS, TOKENS), ADDRESSES), max_size=5))
@settings(max_examples=50, deadline=None)
def test_trusted_pairs_are_read_as_they_are_nested(pairs: list[TrustedPair]) -> None:
    """Two tokens' names with their lengths in front and an address, one value each."""
    values = [b"".join(nested_bytes(token.encode()) for token in pair.tokens) + pair.address for pair in pairs]
    assert views.trusted_pairs(values) == tuple(pairs)


@pytest.mark.parametrize("values", [[], [b""], [bytes(32)]], ids=["nothing", "empty", "zeros"])
def test_no_collector_has_three_forms(values: list[bytes]) -> None:
    """No value, an empty one and the address of zeros all say that nobody collects the fee."""
    assert views.fees_collector(values) == b""
    assert views.fees_collector_cut(values) == 0


MEX = nested_bytes(b"MEX-455c57")
UNREADABLE: dict[str, tuple[Callable[[list[bytes]], Any], list[bytes]]] = {
    "short address": (views.fees_collector, [b"\1" * 31]),
    "long address": (views.fees_collector, [b"\1" * 33]),
    "short zeros": (views.fees_collector, [bytes(31)]),
    "two addresses": (views.fees_collector, [OWNER, OWNER]),
    "two cuts": (views.fees_collector_cut, [b"\1", b"\2"]),
    "cut above the base": (views.fees_collector_cut, [top_uint(100_001)]),
    "huge cut": (views.fees_collector_cut, [b"\1" + bytes(32)]),
    "empty destination": (views.fee_destinations, [b""]),
    "destination without a token": (views.fee_destinations, [OWNER]),
    "destination with more": (views.fee_destinations, [OWNER + MEX + b"\0"]),
    "destination that names no token": (views.fee_destinations, [OWNER + nested_bytes(b"EGLD")]),
    "second destination broken": (views.fee_destinations, [OWNER + MEX, OWNER + MEX[:-1]]),
    "too many destinations": (views.fee_destinations, [OWNER + MEX] * (MAX_FEE_ENTRIES + 1)),
    "pair of one token": (views.trusted_pairs, [MEX + OWNER]),
    "pair without an address": (views.trusted_pairs, [MEX + MEX]),
    "pair that names no token": (views.trusted_pairs, [MEX + nested_bytes(b"\xff") + OWNER]),
    "too many pairs": (views.trusted_pairs, [MEX + MEX + OWNER] * (MAX_FEE_ENTRIES + 1)),
}


@pytest.mark.parametrize(("decode", "values"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_fee_setup_that_no_document_would_take_is_an_error(
    decode: Callable[[list[bytes]], Any], values: list[bytes]
) -> None:
    """What has another form, or more of it than a document may hold, is not read in part."""
    with pytest.raises(AbiError):
        decode(values)


def test_the_most_entries_are_read() -> None:
    """As many destinations and pairs as a document takes are no error."""
    assert len(views.fee_destinations([OWNER + MEX] * MAX_FEE_ENTRIES)) == MAX_FEE_ENTRIES
    assert len(views.trusted_pairs([MEX + MEX + OWNER] * MAX_FEE_ENTRIES)) == MAX_FEE_ENTRIES


def of_one(decode: Callable[[list[bytes]], Any]) -> Callable[[bytes], Any]:
    """A decoder of a view's values, for one value."""
    return lambda data: decode([data])


DECODERS: list[Callable[[bytes], Any]] = [
    of_one(views.fees_collector),
    of_one(views.fees_collector_cut),
    of_one(views.fee_destinations),
    of_one(views.trusted_pairs),
    views.xexchange_pair,
    views.onedex_pair,
    views.jex_status,
    views.jex_stable_status,
    views.token_list,
    views.amount_list,
]


@given(st.sampled_from(DECODERS), st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_damaged_values_are_errors(decode: Callable[[bytes], Any], data: bytes) -> None:
    """Whatever bytes a contract returns, the answer is a value or an `AbiError`."""
    try:
        decode(data)
    except AbiError as error:
        assert str(error)


@given(st.integers(0, 180), st.binary(min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_altered_pairs_are_errors_or_pairs(place: int, noise: bytes) -> None:
    """A real value with bytes replaced never makes the decoder fail otherwise."""
    data = bytearray(a_pair(nested_uint(100, 8)))
    data[place : place + len(noise)] = noise
    try:
        views.onedex_pair(bytes(data))
    except AbiError as error:
        assert str(error)
