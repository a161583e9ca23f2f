"""Smart-contract results: how the effects of a call travel, also back to the sender's shard.

Data of results as live nodes write it: `ESDTTransfer@…` or `MultiESDTNFTTransfer@…` for tokens, `@6f6b@…` for
the return values, `@<code>` for a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from millrace.chain import abi, bigint
from millrace.chain.call import MULTI_TRANSFER, TokenPayment, encode, esdt_transfer
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS

OK_DATA: Final = b"@6f6b"
REFUND_FOR_RELAYER: Final = b"gas refund for relayer"


class Result(msgspec.Struct, frozen=True):
    """One smart-contract result. `value` is EGLD; tokens are in `data`. Gas is only for a further call."""

    nonce: int
    value: int
    receiver: bytes
    sender: bytes
    prev_hash: bytes
    original_hash: bytes
    data: bytes = b""
    relayer: bytes = b""
    gas_limit: int = 0
    gas_price: int = 0
    return_message: bytes = b""
    original_sender: bytes = b""

    def to_message(self) -> pb.SmartContractResult:
        """The protobuf message."""
        return pb.SmartContractResult(
            nonce=self.nonce,
            value=bigint.encode(self.value),
            receiver=self.receiver,
            sender=self.sender,
            relayer=self.relayer,
            relayedValue=bigint.encode(None),
            data=self.data,
            prevTxHash=self.prev_hash,
            originalTxHash=self.original_hash,
            gasLimit=self.gas_limit,
            gasPrice=self.gas_price,
            returnMessage=self.return_message,
            originalSender=self.original_sender,
        )


def hash_of(result: Result) -> bytes:
    """The 32-byte hash of a result."""
    return blake2b(result.to_message().SerializeToString(), digest_size=32).digest()


def split(payments: Sequence[TokenPayment]) -> tuple[int, list[TokenPayment]]:
    """The EGLD among payments, and the tokens."""
    tokens = [payment for payment in payments if payment.token not in (NATIVE, NATIVE_IN_TRANSFERS)]
    return sum(payment.amount for payment in payments) - sum(payment.amount for payment in tokens), tokens


def transfer_data(tokens: Sequence[TokenPayment], function: str = "", args: Sequence[bytes] = ()) -> bytes:
    """The data of a result that brings tokens, and calls a function if one is named."""
    if not tokens:
        return encode(function, *args) if function else b""
    if len(tokens) == 1:
        return esdt_transfer(tokens[0].token, tokens[0].amount, function or None, *args)
    flat: list[bytes] = []
    for payment in tokens:
        flat += [payment.token.encode(), abi.top_uint(payment.nonce), abi.top_uint(payment.amount)]
    rest = (function.encode(), *args) if function else ()
    return encode(MULTI_TRANSFER, abi.top_uint(len(tokens)), *flat, *rest)
