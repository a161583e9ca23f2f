"""Gas and fees as nodes compute them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import fees
from millrace.chain.fees import GasSchedule
from millrace.chain.transaction import GUARDED, HASH_SIGNED, Transaction

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "fees.json").read_text())["rows"]
GAS = GasSchedule()


def transaction(
    size: int, gas_limit: int, *, relayed: bool = False, options: int = 0, price: int = 10**9, version: int = 2
) -> Transaction:
    return Transaction(
        nonce=0, value=0, receiver=bytes(32), sender=bytes(32), gas_price=price, gas_limit=gas_limit, chain_id="1",
        data=b"x" * size, options=options, version=version, relayer=bytes(32) if relayed else b"",
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
    assert fees.move_gas(tx, GAS) == moving
    assert fees.initially_paid_fee(tx, GAS) == fee
    assert fees.price_per_unit(tx, GAS) == fee // tx.gas_limit


@pytest.mark.parametrize("row", VECTORS, ids=[str(index) for index in range(len(VECTORS))])
def test_fees_computed_in_go(row: dict[str, Any]) -> None:
    """Every figure is the one that Go's 64-bit floats and big integers give, up to the highest gas price."""
    tx = transaction(
        row["dataBytes"],
        row["gasLimit"],
        relayed=row["relayed"],
        options=GUARDED if row["guarded"] else 0,
        price=int(row["gasPrice"]),
    )
    assert fees.processing_price(tx.gas_price, GAS) == int(row["processingPrice"])
    assert fees.move_gas(tx, GAS) == row["moveGas"]
    assert fees.initially_paid_fee(tx, GAS) == int(row["initiallyPaidFee"])
    assert fees.fee_for_gas(tx, row["gasUsed"], GAS) == int(row["fee"])
    assert fees.refund(tx, row["gasUsed"], GAS) == int(row["refund"])
    assert fees.price_per_unit(tx, GAS) == int(row["pricePerUnit"])


@pytest.mark.parametrize(
    ("options", "version", "relayed", "relayer_signature", "extra"),
    [
        (0, 2, False, b"", 0),
        (HASH_SIGNED, 2, False, b"", 0),
        (GUARDED, 2, False, b"", 50_000),
        (GUARDED | HASH_SIGNED, 2, False, b"", 50_000),
        (GUARDED, 1, False, b"", 0),
        (0, 1, True, b"", 50_000),
        (0, 2, True, b"s", 50_000),
        (0, 2, False, b"s", 50_000),
        (GUARDED, 2, True, b"s", 100_000),
    ],
)
def test_extras(options: int, version: int, relayed: bool, relayer_signature: bytes, extra: int) -> None:
    """A guardian costs extra from version 2 on; a relayer or its signature costs extra once."""
    tx = Transaction(
        nonce=0, value=0, receiver=bytes(32), sender=bytes(32), gas_price=10**9, gas_limit=0, chain_id="1",
        options=options, version=version, relayer=bytes(32) if relayed else b"", relayer_signature=relayer_signature,
    )  # fmt: skip
    assert fees.move_gas(tx, GAS) == 50_000 + extra


def test_every_constant_counts() -> None:
    """Each constant of the schedule has its own effect."""
    gas = GasSchedule(
        min_gas_limit=7, gas_per_data_byte=11, gas_price_modifier=0.5, extra_guarded=100, extra_relayed=1000
    )
    tx = transaction(3, 2000, relayed=True, options=GUARDED, price=10)
    assert fees.move_gas(tx, gas) == 7 + 33 + 1100
    assert fees.initially_paid_fee(tx, gas) == 1140 * 10 + 860 * 5


@given(st.integers(0, 2**64 - 1))
def test_the_processing_price_is_the_rounded_product(price: int) -> None:
    """The processing price is the exact product of the two doubles, rounded to the nearest double, then cut."""
    exact = Fraction(float(price)) * Fraction(0.01)
    assert fees.processing_price(price, GAS) == int(float(exact))


@given(st.integers(0, 1000), st.integers(0, 10**9), st.booleans(), st.integers(10**9, 10**12))
def test_less_gas_never_costs_more(size: int, gas_used: int, relayed: bool, price: int) -> None:
    """The fee grows with the gas used and reaches the initially paid fee at the gas limit."""
    tx = transaction(size, 2 * 10**9, relayed=relayed, price=price)
    paid = fees.initially_paid_fee(tx, GAS)
    assert fees.fee_for_gas(tx, gas_used, GAS) <= fees.fee_for_gas(tx, gas_used + 1, GAS) <= paid
    assert fees.fee_for_gas(tx, tx.gas_limit, GAS) == paid
    assert fees.fee_for_gas(tx, 0, GAS) == fees.move_gas(tx, GAS) * price


@given(st.integers(0, 300), st.integers(0, 10**8), st.integers(0, 10**8), st.integers(10**9, 2**63))
def test_fee_and_refund_make_up_what_was_paid(size: int, used: int, left: int, price: int) -> None:
    """Fee and refund add up to the initially paid fee, and the refund alone tells the gas used."""
    moving = fees.move_gas(transaction(size, 0), GAS)
    tx = transaction(size, moving + used + left, price=price)
    fee, back = fees.fee_for_gas(tx, moving + used, GAS), fees.refund(tx, moving + used, GAS)
    assert fee + back == fees.initially_paid_fee(tx, GAS)
    assert fees.gas_used_and_fee(tx, back, GAS) == (moving + used, fee)


def test_refunds_are_part_of_the_processing_fee() -> None:
    """Moving gas is never refunded; a refund that would touch it, or a negative one, is refused."""
    tx = transaction(0, 60_000)
    assert fees.refund(tx, 0, GAS) == fees.refund(tx, 50_000, GAS) == 10_000 * 10**7
    assert fees.refund(tx, 70_000, GAS) == 0
    for refunded in (-1, 10_000 * 10**7 + 1):
        with pytest.raises(ValueError, match="refund"):
            fees.gas_used_and_fee(tx, refunded, GAS)


def test_a_free_transaction_has_no_refund() -> None:
    """With a gas price that rounds to no processing price, nothing is refunded and all gas counts as used."""
    tx = transaction(0, 60_000, price=99)
    assert fees.refund(tx, 50_000, GAS) == 0
    assert fees.gas_used_and_fee(tx, 0, GAS) == (60_000, 50_000 * 99)


@pytest.mark.parametrize(
    ("provided", "needed", "penalised"),
    [(1000, 100, False), (1001, 100, True), (1000, 99, True), (1000, 1000, False), (1000, 0, False), (10, 1, False)],
)
def test_too_much_gas_is_charged_whole(provided: int, needed: int, penalised: bool) -> None:
    """More than ten times the processing gas needed is charged as a whole; using none is exempt."""
    tx = transaction(5, 57_500 + provided)
    expected = tx.gas_limit if penalised else 57_500 + needed
    assert fees.charged_gas(tx, 57_500 + needed, GAS) == expected


def test_a_transaction_without_gas_has_no_price_per_unit() -> None:
    """A gas limit of zero gives zero, not a division by zero."""
    assert fees.price_per_unit(transaction(0, 0), GAS) == 0
