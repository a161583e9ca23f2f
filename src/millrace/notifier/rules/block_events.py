"""The events inside a saved block, and the block reduced to some of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from google.protobuf.message import DecodeError

from millrace.chain import outport
from millrace.chain.headers import proposes, read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.rules.entry import field
from millrace.notifier.rules.filters import EventKey

# Field numbers of OutportBlock, TransactionPool, LogData and Log.
_POOL, _LOGS, _TX_HASH, _LOG, _ADDRESS, _EVENTS = 3, 6, 1, 2, 1, 2


BLOCKS = frozenset((outport.SAVE_BLOCK, outport.EXECUTED_BLOCK))
"""Topics whose payload is an `OutportBlock`."""


def read_block(payload: bytes) -> pb.OutportBlock:
    """The block in a payload of the journal; an empty one for a block that was passed on unread.

    One that only proposes has no pool: whatever stands there was not executed.
    """
    try:
        block = pb.OutportBlock.FromString(payload)
    except DecodeError:
        return pb.OutportBlock()
    if proposes(block.blockData.headerType):
        block.ClearField("transactionPool")
    return block


class BlockEvents:
    """The logs of one block, flat. Events are encoded at most once, however many subscriptions want them."""

    def __init__(self, payload: bytes) -> None:
        self._block = read_block(payload)
        self._events: list[tuple[int, pb.Event]] = []
        self.keys: list[EventKey] = []
        """Of every event, in order."""
        for number, log in enumerate(self._block.transactionPool.logs):
            for event in log.log.events:
                self._events.append((number, event))
                self.keys.append(EventKey(event.address, event.identifier, event.topics))
        self._encoded: dict[int, bytes] = {}
        self._frame_parts: tuple[bytes, bytes] | None = None

    @property
    def carrying(self) -> str:
        """Of an execution: hex hash of the block that brought it; empty of other blocks."""
        return self._block.carryingHeaderHash.hex()

    @cached_property
    def executed(self) -> frozenset[str]:
        """Hex hashes of the headers whose executions this block lists, whether they are news or not."""
        header = read_header(self._block.blockData)
        return frozenset(execution.block_hash.hex() for execution in header.executions) if header else frozenset()

    def reduced(self, positions: Iterable[int]) -> bytes:
        """An `OutportBlock` with the events at these ascending positions and without the rest of the pool.

        Kept: shard, header with its hash, proof and time, number of shards, the newest final block; of an execution the
        block that brought it. Left out: miniblocks, transactions, results, rewards, receipts, accounts, gas, signers.
        """
        by_log: dict[int, list[bytes]] = {}
        for position in positions:
            number, event = self._events[position]
            encoded = self._encoded.get(position)
            if encoded is None:
                encoded = self._encoded[position] = field(_EVENTS, event.SerializeToString())
            by_log.setdefault(number, []).append(encoded)
        logs = self._block.transactionPool.logs
        pool = b"".join(
            field(
                _LOGS,
                field(_TX_HASH, logs[number].txHash.encode())
                + field(_LOG, b"".join((field(_ADDRESS, logs[number].log.address), *events))),
            )
            for number, events in by_log.items()
        )
        before, after = self._around()
        return b"".join((before, field(_POOL, pool), after))

    def _around(self) -> tuple[bytes, bytes]:
        """What stands before and after the pool in every reduced block."""
        if self._frame_parts is None:
            block = self._block
            before = pb.OutportBlock(shardID=block.shardID, blockData=block.blockData)
            before.blockData.ClearField("body")
            before.blockData.ClearField("intraShardMiniBlocks")
            before.blockData.ClearField("results")
            after = pb.OutportBlock(
                numberOfShards=block.numberOfShards,
                highestFinalBlockNonce=block.highestFinalBlockNonce,
                highestFinalBlockHash=block.highestFinalBlockHash,
                carryingHeaderHash=block.carryingHeaderHash,
                carryingHeaderNonce=block.carryingHeaderNonce,
            )
            self._frame_parts = before.SerializeToString(), after.SerializeToString()
        return self._frame_parts
