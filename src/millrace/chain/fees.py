"""Gas and fees, truncated as nodes truncate them.

The first part of a transaction's gas, for moving its bytes, is paid at the full gas price; the rest is for
processing and paid at a hundredth of it, a product nodes take in double precision and cut to an integer.

Formulas: mx-chain-go 1.11.5 `process/economics/economicsData.go` (named at each function) and, for refunds,
`process/smartContract/processorV2`. The public SDKs leave out the guardian's and the relayer's extra gas.
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
    max_price_set_guardian: int = 2_000_000_000
    """Of `SetGuardian` that no guardian signs. Nodes: `MaxGasPriceSetGuardian`."""
    max_gas_surplus_factor: int = 10
    """How many times the needed processing gas may be given before nothing is refunded."""


def move_gas(tx: Transaction, gas: GasSchedule) -> int:
    """Gas for moving the transaction's bytes; a gas limit below it is invalid. Nodes: `ComputeGasLimit`."""
    total = gas.min_gas_limit + gas.gas_per_data_byte * len(tx.data)
    if tx.options and tx.is_guarded and tx.version >= 2:
        total += gas.extra_guarded
    if tx.relayer or tx.relayer_signature:
        total += gas.extra_relayed
    return total


def processing_price(gas_price: int, gas: GasSchedule) -> int:
    """The price of one unit of processing gas: the product in double precision, cut to an integer.

    Nodes: `GasPriceForProcessing`.
    """
    return int(float(gas_price) * gas.gas_price_modifier)


def fee_for_gas(tx: Transaction, gas_used: int, gas: GasSchedule) -> int:
    """The fee of a transaction that used `gas_used` units in all, moving gas included and paid in any case.

    Nodes: `ComputeTxFeeBasedOnGasUsed`.
    """
    moving = move_gas(tx, gas)
    processing = max(0, gas_used - moving)
    return moving * tx.gas_price + processing * processing_price(tx.gas_price, gas)


def initially_paid_fee(tx: Transaction, gas: GasSchedule) -> int:
    """What is charged up front, and what a failing contract call costs: the fee of the whole gas limit.

    Nodes: `ComputeTxFee`.
    """
    return fee_for_gas(tx, tx.gas_limit, gas)


def charged_gas(tx: Transaction, gas_used: int, gas: GasSchedule) -> int:
    """The gas that a contract call pays for when it used `gas_used` units in all, moving gas included.

    It is the whole limit when more than ten times the gas needed was given for processing: nodes take that for
    an attack and refund nothing (`isTooMuchGasProvided`). Processing that used nothing is exempt.
    """
    moving = move_gas(tx, gas)
    needed = gas_used - moving
    if needed > 0 and tx.gas_limit - moving > needed * gas.max_gas_surplus_factor:
        return tx.gas_limit
    return gas_used


def refund(tx: Transaction, gas_used: int, gas: GasSchedule) -> int:
    """What comes back of the initially paid fee when `gas_used` units in all were charged.

    Nodes: `ComputeFeeForProcessing` of the gas that remains; moving gas is never refunded.
    """
    return initially_paid_fee(tx, gas) - fee_for_gas(tx, min(gas_used, tx.gas_limit), gas)


def gas_used_and_fee(tx: Transaction, refunded: int, gas: GasSchedule) -> tuple[int, int]:
    """The gas used and the final fee of a transaction to which `refunded` came back: the inverse of `refund`.

    Nodes: `ComputeGasUsedAndFeeBasedOnRefundValue`. Raises `ValueError` for a refund of more than was paid for
    processing.
    """
    fee = initially_paid_fee(tx, gas) - refunded
    processing = fee - fee_for_gas(tx, 0, gas)
    if refunded < 0 or processing < 0:
        raise ValueError(f"a refund of {refunded} is not part of what was paid for processing")
    if refunded == 0:
        return tx.gas_limit, fee
    return move_gas(tx, gas) + processing // processing_price(tx.gas_price, gas), fee


def price_per_unit(tx: Transaction, gas: GasSchedule) -> int:
    """What the mempool sorts by: the initially paid fee for one unit of the gas limit, rounded down.

    Nodes: `WrappedTransaction.precomputeFields`.
    """
    return initially_paid_fee(tx, gas) // tx.gas_limit if tx.gas_limit else 0
