"""Blocks and what is in them: miniblocks, executed ranges, headers, and everything a block's execution produced."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, shake_256
from typing import Final

import msgspec

from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction
from millrace.localnet.calls import Event
from millrace.localnet.results import Result

TX_BLOCK: Final = 0
RESULT_BLOCK: Final = 90
INVALID_BLOCK: Final = 120

Item = Transaction | Result


class MiniBlock(msgspec.Struct, frozen=True):
    """Items of one kind between two shards, in order of execution."""

    sender_shard: int
    receiver_shard: int
    kind: int
    hashes: tuple[bytes, ...]
    items: tuple[Item, ...]

    def to_message(self) -> pb.MiniBlock:
        """The protobuf message."""
        return pb.MiniBlock(
            txHashes=self.hashes,
            receiverShardID=self.receiver_shard,
            senderShardID=self.sender_shard,
            type=pb.BlockType.Name(self.kind),
        )

    @property
    def hash(self) -> bytes:
        """The 32-byte hash of the miniblock."""
        return digest(self.to_message().SerializeToString())


class Part(msgspec.Struct, frozen=True):
    """What a block executed of a miniblock: the items from `first` to `last`, both included."""

    miniblock: MiniBlock
    first: int
    last: int

    @property
    def complete(self) -> bool:
        """Whether nothing of the miniblock is left after this part."""
        return self.last == len(self.miniblock.items) - 1

    def to_header(self) -> pb.MiniBlockHeader:
        """The miniblock's header, with the executed range where it is not simply all of it."""
        miniblock = self.miniblock
        header = pb.MiniBlockHeader(
            hash=miniblock.hash,
            senderShardID=miniblock.sender_shard,
            receiverShardID=miniblock.receiver_shard,
            txCount=len(miniblock.items),
            type=pb.BlockType.Name(miniblock.kind),
        )
        if self.first or not self.complete:
            header.reserved = pb.MiniBlockHeaderReserved(
                state=pb.MiniBlockState.Name(0 if self.complete else 2),
                indexOfFirstTxProcessed=self.first,
                indexOfLastTxProcessed=self.last,
            ).SerializeToString()
        return header


class FeeInfo(msgspec.Struct):
    """What an item cost. `gas_refunded` in gas units, fees in atomic units."""

    gas_used: int = 0
    fee: int = 0
    initially_paid: int = 0
    gas_refunded: int = 0
    had_refund: bool = False


class Receipt(msgspec.Struct, frozen=True):
    """Why an invalid transaction was charged."""

    value: int
    sender: bytes
    data: bytes
    tx_hash: bytes


class Log(msgspec.Struct, frozen=True):
    """The log of one executed item."""

    tx_hash: bytes
    address: bytes
    events: tuple[Event, ...]


class Content(msgspec.Struct):
    """Everything the execution of a block produced, in order of execution. State while the block is made.

    `order` numbers transactions, results and invalid transactions in one sequence. `failures` maps the hash of
    a transaction to the reason why it failed here. `credited` are accounts that received something,
    `fee_payers` the relayers that paid a fee.
    """

    transactions: dict[bytes, tuple[Transaction, FeeInfo]] = msgspec.field(default_factory=dict)
    results: dict[bytes, tuple[Result, FeeInfo]] = msgspec.field(default_factory=dict)
    invalid: dict[bytes, tuple[Transaction, FeeInfo]] = msgspec.field(default_factory=dict)
    receipts: list[Receipt] = msgspec.field(default_factory=list)
    logs: list[Log] = msgspec.field(default_factory=list)
    order: dict[bytes, int] = msgspec.field(default_factory=dict)
    outgoing: dict[tuple[int, int], list[tuple[bytes, Item]]] = msgspec.field(default_factory=dict)
    local_results: list[tuple[bytes, Result]] = msgspec.field(default_factory=list)
    received: list[bytes] = msgspec.field(default_factory=list)
    """Hashes of results that came from another shard and were executed here."""
    failures: dict[bytes, str] = msgspec.field(default_factory=dict)
    credited: set[bytes] = msgspec.field(default_factory=set)
    fee_payers: set[bytes] = msgspec.field(default_factory=set)
    fees: int = 0
    developer_fees: int = 0
    gas_provided: int = 0
    gas_refunded: int = 0
    gas_penalized: int = 0
    minted: int = 0
    """Atomic units of EGLD that the faucet made."""

    def number(self, tx_hash: bytes) -> None:
        """Give an item the next place in the order of execution."""
        self.order.setdefault(tx_hash, len(self.order))


class AlteredAccount(msgspec.Struct, frozen=True):
    """An account after a block: `tokens` are those touched in it."""

    address: bytes
    nonce: int
    balance: int
    tokens: tuple[tuple[str, int], ...]
    is_sender: bool
    balance_changed: bool


class Block(msgspec.Struct, frozen=True):
    """A block of a shard or of the metachain, as committed. `header_type` is `HeaderV2` or `MetaBlock`."""

    shard: int
    nonce: int
    round: int
    epoch: int
    timestamp_ms: int
    hash: bytes
    prev_hash: bytes
    rand_seed: bytes
    root_hash: bytes
    header_type: str
    header: pb.HeaderV2 | pb.MetaBlock
    header_bytes: bytes
    parts: tuple[Part, ...] = ()
    local_results: tuple[MiniBlock, ...] = ()
    content: Content = msgspec.field(default_factory=Content)
    altered: tuple[AlteredAccount, ...] = ()
    notarized: tuple[bytes, ...] = ()
    """Hashes of the headers this block took note of: metachain blocks in a shard, shard blocks in the metachain."""
    leader_index: int = 0
    skipped_rounds: tuple[int, ...] = ()
    """Rounds without a block since the previous one."""

    @property
    def transaction_count(self) -> int:
        """Items of all miniblocks executed here, as headers count them."""
        return sum(part.last - part.first + 1 for part in self.parts)


def digest(data: bytes) -> bytes:
    """BLAKE2b-256, the chain's hash."""
    return blake2b(data, digest_size=32).digest()


def bytes_from(size: int, *parts: object) -> bytes:
    """So many bytes that look random and follow from the parts alone: keys, signatures, seeds."""
    return shake_256("/".join(str(part) for part in parts).encode()).digest(size)


def root_after(previous: bytes, altered: Sequence[AlteredAccount]) -> bytes:
    """The state's root hash after a block: a chain over all altered accounts, in place of a Merkle root."""
    state = blake2b(previous, digest_size=32)
    for account in altered:
        state.update(msgspec.msgpack.encode(account))
    return state.digest()
