"""What became of each transaction, for the chain API: bounded, the oldest forgotten first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from millrace.chain.transaction import Transaction, client_hash
from millrace.localnet.chain.block import Block
from millrace.localnet.chain.content import Log, Result


class Record(msgspec.Struct):
    """A transaction as the chain knows it."""

    hash: bytes
    tx: Transaction
    timestamp_ms: int
    source: Block | None = None
    """The block that took it; `None` until it was executed and a header told so."""
    destination: Block | None = None
    outcome: str = ""
    """`success`, `fail` or `dropped`; empty while it is on its way."""
    reason: str = ""
    invalid: bool = False
    """Its block refused it: the fee is gone, nothing else happened."""
    outcome_block: Block | None = None
    """The block whose header told the outcome."""
    gas_used: int = 0
    fee: int = 0
    results: dict[bytes, Result] = {}
    logs: dict[bytes, Log] = {}
    under_way: set[bytes] = set()
    """Results that have left a shard and are not executed in another one yet."""

    @property
    def status(self) -> str:
        """`pending` until the block with its outcome is final, then `success` or `fail`.

        A success waits for all results that are known of; what failed has failed, whatever is still under way.
        """
        final = self.outcome_block is not None and self.outcome_block.final
        if not final or (self.outcome == "success" and self.under_way):
            return "pending"
        return "success" if self.outcome == "success" else "fail"


class TransactionIndex:
    """Records by chain hash, found by client hash too."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._records: dict[bytes, Record] = {}
        self._aliases: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, tx_hash: bytes, tx: Transaction, timestamp_ms: int) -> None:
        """Remember a transaction that entered a mempool; beyond the bound the oldest is forgotten.

        One that could not be charged and comes again begins anew.
        """
        known = self._records.get(tx_hash)
        if known is not None and known.outcome != "dropped":
            return
        if known is None and len(self._records) >= self._bound:
            oldest = self._records.pop(next(iter(self._records)))
            self._aliases.pop(client_hash(oldest.tx), None)
        self._records[tx_hash] = Record(tx_hash, tx, timestamp_ms)
        alias = client_hash(tx)
        if alias != tx_hash:
            self._aliases[alias] = tx_hash

    def find(self, tx_hash: bytes) -> Record | None:
        """The record of a chain hash or a client hash."""
        return self._records.get(self._aliases.get(tx_hash, tx_hash))

    def newest(self, wanted: Callable[[Transaction], bool]) -> Iterator[Record]:
        """The records of wanted transactions, the last to come first."""
        return (record for record in reversed(self._records.values()) if wanted(record.tx))

    def forget(self, tx_hash: bytes) -> None:
        """Forget a transaction that left its mempool without a block."""
        record = self._records.pop(tx_hash, None)
        if record is not None:
            self._aliases.pop(client_hash(record.tx), None)

    def take(self, block: Block) -> None:
        """Note what a new block tells to have been done to each transaction."""
        for executed in block.told:
            self._take(executed, block)

    def take_back(self, block: Block) -> None:
        """Forget what a reverted block told: its transactions wait again."""
        for executed in reversed(block.told):
            self._take_back(executed, block)

    def _take(self, block: Block, teller: Block) -> None:
        leaving = _leaving(block)
        for entry in block.content.entries.values():
            if isinstance(entry.item, Result):
                record = self._records.get(entry.item.original)
                if record is not None:
                    record.results[entry.hash] = entry.item
                    (record.under_way.add if entry.hash in leaving else record.under_way.discard)(entry.hash)
                    if entry.hash in block.content.logs:
                        record.logs[entry.hash] = block.content.logs[entry.hash]
                continue
            record = self._records.get(entry.hash)
            if record is None:
                continue
            if record.source is None:
                record.source = block
            record.destination, record.invalid = block, bool(entry.invalid)
            record.fee += entry.fee.fee
            record.gas_used = max(record.gas_used, entry.fee.gas_used)
            if entry.hash in block.content.logs:
                record.logs[entry.hash] = block.content.logs[entry.hash]
        for tx_hash, outcome, reason in block.content.statuses:
            record = self._records.get(tx_hash)
            # A failure found on the way stands, whatever follows.
            if record is not None and record.outcome != "fail":
                record.outcome, record.reason, record.outcome_block = outcome, reason, teller

    def _take_back(self, block: Block, teller: Block) -> None:
        for tx_hash, _, _ in block.content.statuses:
            record = self._records.get(tx_hash)
            if record is not None and record.outcome_block is teller:
                record.outcome, record.reason, record.outcome_block = "", "", None
        arriving = _arriving(block)
        for entry in block.content.entries.values():
            tx_hash = entry.item.original if isinstance(entry.item, Result) else entry.hash
            record = self._records.get(tx_hash)
            if record is None:
                continue
            if record.outcome_block is teller:
                record.outcome, record.reason, record.outcome_block = "", "", None
            if isinstance(entry.item, Result):
                if entry.hash in arriving:
                    record.under_way.add(entry.hash)
                else:
                    record.under_way.discard(entry.hash)
                    record.results.pop(entry.hash, None)
            else:
                record.fee -= entry.fee.fee
            record.logs.pop(entry.hash, None)
            if record.source is block:
                record.source = record.destination = None
                record.gas_used = 0
            elif record.destination is block:
                record.destination = record.source


def _leaving(block: Block) -> set[bytes]:
    """What goes on from a block to other shards."""
    minis = block.content.miniblocks.items()
    return {item for (source, target, _), items in minis if source == block.shard != target for item in items}


def _arriving(block: Block) -> set[bytes]:
    """What has come into a block from other shards."""
    minis = block.content.miniblocks.items()
    return {item for (source, target, _), items in minis if source != block.shard == target for item in items}
