"""Layouts of the exchanges' views, and that damaged values are errors."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.abi import AbiError, nested_biguint, nested_bool, nested_bytes, nested_list, nested_uint
from millrace.collector import views
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


DECODERS: list[Callable[[bytes], Any]] = [
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
