"""Gas and fees as nodes compute them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain.fees import (
    GasSchedule,
    fee_for_gas,
    initially_paid_fee,
    move_gas,
    price_per_unit,
    processing_price,
)
from millrace.chain.transaction import GUARDED, Transaction

GAS = GasSchedule()


def transaction(
    size: int, gas_limit: int, *, relayed: bool = False, options: int = 0, price: int = 10**9
) -> Transaction:
    return Transaction(
        nonce=0, value=0, receiver=bytes(32), sender=bytes(32), gas_price=price, gas_limit=gas_limit, chain_id="1",
        data=b"x" * size, options=options, relayer=bytes(32) if relayed else b"",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tx", "moving", "fee"),
    [
        (transaction(0, 50_000), 50_000, 50_000_000_000_000),
        (transaction(8, 62_010), 62_000, 62_000_100_000_000),
        (transaction(0, 100_000, relayed=True), 100_000, 100_000_000_000_000),
        (transaction(127, 30_000_000, relayed=True), 290_500, 587_595_000_000_000),
        (transaction(127, 30_000_000, relayed=True, options=GUARDED), 340_500, 637_095_000_000_000),
    ],
    ids=["plain", "ten over", "relayed", "relayed call", "relayed guarded call"],
)
def test_published_fees(tx: Transaction, moving: int, fee: int) -> None:
    """Moving gas and fee include the extras for guardian and relayer."""
    assert move_gas(tx, GAS) == moving
    assert initially_paid_fee(tx, GAS) == fee
    assert price_per_unit(tx, GAS) == fee // tx.gas_limit


@pytest.mark.parametrize(
    ("gas_price", "expected"),
    [(10**9, 10**7), (1_000_000_099, 10_000_000), (1_000_000_100, 10_000_001), (2**53 + 1, 90071992547409), (0, 0)],
)
def test_processing_price_is_cut(gas_price: int, expected: int) -> None:
    """The processing price is the product in double precision with its fraction cut off."""
    assert processing_price(gas_price, GAS) == expected


@given(st.integers(0, 1000), st.integers(0, 10**9), st.booleans(), st.integers(10**9, 10**12))
def test_less_gas_never_costs_more(size: int, gas_used: int, relayed: bool, price: int) -> None:
    """The fee grows with the gas used and reaches the initially paid fee at the gas limit."""
    tx = transaction(size, 2 * 10**9, relayed=relayed, price=price)
    assert fee_for_gas(tx, gas_used, GAS) <= fee_for_gas(tx, gas_used + 1, GAS) <= initially_paid_fee(tx, GAS)
    assert fee_for_gas(tx, tx.gas_limit, GAS) == initially_paid_fee(tx, GAS)
