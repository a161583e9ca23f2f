"""What one block holds: items executed or sent on, in order, with their logs, fees and miniblocks."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from millrace.chain import bigint
from millrace.chain.call import TokenPayment
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction
from millrace.localnet.contracts.calls import Event

TX_BLOCK, RESULT_BLOCK, INVALID_BLOCK = pb.TxBlock, pb.SmartContractResultBlock, pb.InvalidBlock
MiniBlockKey = tuple[int, int, pb.BlockType]
"""Sender's shard, receiver's shard, type of the miniblock."""


class Result(msgspec.Struct, frozen=True):
    """A smart-contract result: value, tokens or a call that a contract sends on, or a refund.

    `payments` is what it carries, EGLD included; on the wire the EGLD is its value and the tokens are in its data.
    """

    nonce: int
    sender: bytes
    receiver: bytes
    data: bytes
    original: bytes
    """Hash of the transaction it all began with."""
    previous: bytes
    """Hash of what made it: of the transaction, or of a result."""
    original_sender: bytes
    payments: tuple[TokenPayment, ...] = ()
    function: str = ""
    args: tuple[bytes, ...] = ()
    gas_limit: int = 0
    gas_price: int = 0
    relayer: bytes = b""
    return_message: str = ""
    is_refund: bool = False

    @property
    def value(self) -> int:
        """The EGLD it carries."""
        return sum(payment.amount for payment in self.payments if payment.token == "EGLD")

    def message(self) -> pb.SmartContractResult:
        """The protobuf form."""
        return pb.SmartContractResult(
            nonce=self.nonce,
            value=bigint.encode(self.value),
            receiver=self.receiver,
            sender=self.sender,
            relayer=self.relayer,
            relayedValue=b"\0",
            data=self.data,
            prevTxHash=self.previous,
            originalTxHash=self.original,
            gasLimit=self.gas_limit,
            gasPrice=self.gas_price,
            returnMessage=self.return_message.encode(),
            originalSender=self.original_sender,
        )

    def hash(self) -> bytes:
        """BLAKE2b-256 of the protobuf form."""
        return blake2b(self.message().SerializeToString(), digest_size=32).digest()


class FeeInfo(msgspec.Struct):
    """What an item cost in this shard."""

    gas_used: int = 0
    fee: int = 0
    initially_paid: int = 0
    gas_refunded: int = 0


class Entry(msgspec.Struct):
    """One transaction or result in a block."""

    hash: bytes
    item: Transaction | Result
    order: int
    fee: FeeInfo
    invalid: str = ""
    """Why the transaction is invalid (text of its receipt); empty otherwise."""


class Log(msgspec.Struct):
    """Events of one item; `address` is the account they are filed under."""

    hash: bytes
    address: bytes
    events: list[Event]


class Content:
    """The content of a block while it grows."""

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}
        self.logs: dict[bytes, Log] = {}
        self.miniblocks: dict[MiniBlockKey, list[bytes]] = {}
        self.intra_results: list[bytes] = []
        """Hashes of results that never leave the shard; they are in no miniblock of the body."""
        self.fees = 0
        self.developer_fees = 0
        self.gas_provided = 0
        self.gas_refunded = 0
        self.gas_penalized = 0
        self.minted = 0
        """EGLD that the faucet made, in smallest units."""
        self.dropped: list[tuple[bytes, Transaction]] = []
        """Transactions that could not be charged: no fee, no nonce used; in the earlier format, no trace."""
        self.statuses: list[tuple[bytes, str, str]] = []
        """Transactions that reached their end here: hash, `success` or `fail`, reason."""
        self.fee_only: set[bytes] = set()
        """Relayers that paid fees here."""
        self.credited: set[bytes] = set()
        """Accounts that received something here."""

    @property
    def unannounced(self) -> set[bytes]:
        """Relayers whose balance changed by fees alone: nodes leave them out of the altered accounts."""
        return self.fee_only - self.credited

    def add(self, tx_hash: bytes, item: Transaction | Result, key: MiniBlockKey | None) -> Entry:
        """Append an item to its miniblock; without a key it is a result that stays in the shard."""
        entry = self.entries[tx_hash] = Entry(tx_hash, item, len(self.entries), FeeInfo())
        if key is None:
            self.intra_results.append(tx_hash)
        else:
            self.miniblocks.setdefault(key, []).append(tx_hash)
        return entry

    def log(self, tx_hash: bytes, address: bytes, *events: Event) -> None:
        """Append events to the log of an item."""
        if events:
            self.logs.setdefault(tx_hash, Log(tx_hash, address, [])).events.extend(events)

    def log_failure(self, tx_hash: bytes, caller: bytes, contract: bytes, code: str, message: str) -> None:
        """Say in the log of an item that a call failed, as a node's virtual machine does."""
        data = b"@" + code.encode().hex().encode()
        trace = f"\n\truntime.go:856 [error signalled by smartcontract] [{message}]\n\truntime.go:853 [{code}]"
        self.log(
            tx_hash,
            contract,
            Event(contract, "signalError", (caller, message.encode()), data),
            Event(contract, "internalVMErrors", (caller, b""), trace.encode()),
        )

    def complete(self, tx_hash: bytes, account: bytes, previous: bytes) -> None:
        """Say in the log of an item that it is over and sent nothing on; as nodes do, by the name of what made it."""
        self.log(tx_hash, account, Event(account, "completedTxEvent", (previous,)))

    def refuse(self, tx_hash: bytes, tx: Transaction, reason: str) -> None:
        """Note a transaction that could not be charged."""
        self.dropped.append((tx_hash, tx))
        self.finish(tx_hash, "dropped", reason)

    def finish(self, tx_hash: bytes, status: str, reason: str = "") -> None:
        """Note that a transaction has reached its end."""
        self.statuses.append((tx_hash, status, reason))
