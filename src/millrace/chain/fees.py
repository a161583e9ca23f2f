"""Gas and fees, truncated as nodes truncate them.

The first part of a transaction's gas, for moving its bytes, is paid at the full gas price; the rest is for
processing and paid at a hundredth of it, a product nodes take in double precision and cut to an integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from millrace.chain.transaction import Transaction


class GasSchedule(msgspec.Struct, frozen=True):
    """The economic constants of a network (`/network/config` of a gateway)."""

    min_gas_limit: int = 50_000
    gas_per_data_byte: int = 1_500
    min_gas_price: int = 1_000_000_000
    gas_price_modifier: float = 0.01
    extra_guarded: int = 50_000
    extra_relayed: int = 50_000
    max_gas_per_tx: int = 600_000_000
    max_gas_per_block: int = 1_500_000_000


def move_gas(tx: Transaction, gas: GasSchedule) -> int:
    """Gas for moving the transaction's bytes; a gas limit below it is invalid."""
    total = gas.min_gas_limit + gas.gas_per_data_byte * len(tx.data)
    if tx.is_guarded and tx.version >= 2:
        total += gas.extra_guarded
    if tx.is_relayed:
        total += gas.extra_relayed
    return total


def processing_price(gas_price: int, gas: GasSchedule) -> int:
    """The price of one unit of processing gas: the product in double precision, cut to an integer."""
    return int(float(gas_price) * gas.gas_price_modifier)


def fee_for_gas(tx: Transaction, gas_used: int, gas: GasSchedule) -> int:
    """The fee of a transaction that used `gas_used` units of gas."""
    moving = move_gas(tx, gas)
    if gas_used <= moving:
        return gas_used * tx.gas_price
    return moving * tx.gas_price + (gas_used - moving) * processing_price(tx.gas_price, gas)


def initially_paid_fee(tx: Transaction, gas: GasSchedule) -> int:
    """What is charged up front, and what a failing contract call costs: the fee of the whole gas limit."""
    return fee_for_gas(tx, tx.gas_limit, gas)


def price_per_unit(tx: Transaction, gas: GasSchedule) -> int:
    """What the mempool sorts by: the initially paid fee for one unit of the gas limit, rounded down."""
    return initially_paid_fee(tx, gas) // tx.gas_limit if tx.gas_limit else 0
