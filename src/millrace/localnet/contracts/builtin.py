"""Token transfers that the chain itself executes: `ESDTTransfer` and `MultiESDTNFTTransfer`.

A transfer between shards runs twice: `send` takes the tokens at the sender's shard, `receive` adds them at
the receiver's. Within one shard both run on the same ledger. Both log the same event, as on the live chain.
"""

from collections.abc import Sequence
from typing import Final

from millrace.chain.abi import top_uint
from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS
from millrace.localnet.contracts.calls import Event
from millrace.localnet.contracts.ledger import Ledger, LedgerError
from millrace.localnet.contracts.meter import TRANSFER

ESDT_TRANSFER: Final = "ESDTTransfer"
MULTI_TRANSFER: Final = "MultiESDTNFTTransfer"
TRANSFER_VALUE: Final = "transferValueOnly"


class TransferError(LedgerError):
    """The transfer itself is not valid; nothing was changed."""


def send(ledger: Ledger, sender: bytes, payments: Sequence[TokenPayment]) -> None:
    """Take payments from the sender, all or none. Raises `TransferError` or `InsufficientFunds`."""
    check(payments)
    checkpoint = ledger.checkpoint()
    try:
        for payment in payments:
            ledger.debit(sender, payment.token, payment.amount)
    except LedgerError:
        ledger.rollback(checkpoint)
        raise
    ledger.discard(checkpoint)


def receive(ledger: Ledger, receiver: bytes, payments: Sequence[TokenPayment]) -> None:
    """Add payments to the receiver. Raises `TooManyAccounts`, and then adds none."""
    checkpoint = ledger.checkpoint()
    try:
        for payment in payments:
            ledger.credit(receiver, payment.token, payment.amount)
    except LedgerError:
        ledger.rollback(checkpoint)
        raise
    ledger.discard(checkpoint)


def check(payments: Sequence[TokenPayment]) -> None:
    """Raise `TransferError` unless every payment is a positive amount of a fungible token."""
    if not payments:
        raise TransferError("no token payments")
    for payment in payments:
        if payment.nonce:
            raise TransferError(f"{payment.token} has a nonce: only fungible tokens exist here")
        if payment.amount <= 0:
            raise TransferError(f"the amount of {payment.token} must be positive")


def gas(payments: Sequence[TokenPayment]) -> int:
    """Gas of a transfer of that many tokens."""
    return TRANSFER * len(payments)


def event(sender: bytes, receiver: bytes, payments: Sequence[TokenPayment], *, multi: bool = False) -> Event:
    """The event of a transfer: `[token, nonce, amount]` per token, then the receiver.

    `multi` makes it a `MultiESDTNFTTransfer` also for a single token.
    """
    topics: list[bytes] = []
    for payment in payments:
        token = NATIVE_IN_TRANSFERS if payment.token == NATIVE else payment.token
        topics += (token.encode(), top_uint(payment.nonce), top_uint(payment.amount))
    identifier = MULTI_TRANSFER if multi or len(payments) > 1 else ESDT_TRANSFER
    return Event(sender, identifier, (*topics, receiver))


def value_event(sender: bytes, receiver: bytes, amount: int, data: bytes = b"DirectCall") -> Event:
    """The event of EGLD that a contract pays."""
    return Event(sender, TRANSFER_VALUE, (top_uint(amount), receiver), data)
