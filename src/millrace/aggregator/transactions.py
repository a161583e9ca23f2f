"""Transactions in answers: all that a sender needs but the signature, and the nonce where nobody tells it."""

from __future__ import annotations

import msgspec

from millrace.aggregator.responses import UnsignedTransaction
from millrace.aggregator.settings import AggregatorSettings


def unsigned(
    settings: AggregatorSettings,
    *,
    sender: str,
    receiver: str,
    value: int,
    data: str,
    gas_limit: int,
    gas_price: int | None = None,
    nonce: int | msgspec.UnsetType = msgspec.UNSET,
) -> UnsignedTransaction:
    """A transaction with `data` in base64, at the settings' gas price unless another is given."""
    return UnsignedTransaction(
        nonce=nonce,
        sender=sender,
        receiver=receiver,
        value=str(value),
        data=data,
        gas_limit=gas_limit,
        gas_price=settings.gas_price if gas_price is None else gas_price,
        chain_id=settings.chain_id,
        chain_id_again=settings.chain_id,
    )


def with_nonce(
    transaction: UnsignedTransaction | msgspec.UnsetType, nonce: int
) -> UnsignedTransaction | msgspec.UnsetType:
    """The transaction with its nonce, if there is one at all."""
    if isinstance(transaction, msgspec.UnsetType):
        return transaction
    return msgspec.structs.replace(transaction, nonce=nonce)
