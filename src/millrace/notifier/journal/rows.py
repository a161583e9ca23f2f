"""What the stores of the journal have in common: rows of events and of blocks, their checksums, and the interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from isal.isal_zlib import crc32

from millrace.notifier.journal.changes import BlockKey
from millrace.notifier.rules.dedup import Block, Index, State
from millrace.notifier.rules.entry import Entry
from millrace.notifier.rules.runs import Runs

# Of the newest events, read at the start: all are checked, and blocks among them rebuild the memory of earlier blocks.
# More than a call takes from shard to shard and back (seven rounds of four shards), but no second of a node's time.
NEWEST_EVENTS, NEWEST_BYTES = 256, 4 * 1024 * 1024
PRUNE_ROWS = 64  # deleted in one transaction that no append waits long for

SELECT = "SELECT sequence, topic, shard, marks, message_id, received_ms, checksum, size, payload FROM events"


class JournalUnusable(OSError):
    """The journal cannot be opened or used any further; the text says what an operator can do."""

    @classmethod
    def damaged(cls, place: object, what: object, aside: str = "move it") -> JournalUnusable:
        """The journal is not what it was when it was written; `aside` says how to put it out of the way."""
        return cls(
            f"{place}: {what}. The journal is damaged. Restore it from a backup, or {aside} away and start again: nodes"
            " then send what follows, and consumers are told which sequences are gone."
        )


class JournalReader(Protocol):
    """What a thread that only reads sees of a journal: all that is committed."""

    def close(self) -> None: ...

    def read(self, after: int, max_bytes: int, max_rows: int = 1024) -> tuple[list[Entry], list[int]]:
        """Events beyond the sequence `after`, at least one if there is one; and the sequences found corrupt."""

    def blocks(self, keys: Sequence[BlockKey]) -> dict[BlockKey, Block]:
        """Those of these blocks that are remembered, as of the latest commit."""


class JournalStore(Index, Protocol):
    """Where the journal is kept, and the memory of the rules with it: in one transaction."""

    origin: int
    runs: Runs
    """Whose sequences are whose."""
    oldest: int
    payload_bytes: int
    newest: list[Entry]
    """The newest events, as they were at the start; whoever has used them empties this."""

    @property
    def place(self) -> str: ...
    @property
    def disk_bytes(self) -> int:
        """How long the files of events are; 0 when they are not here."""

    def close(self) -> None: ...

    def begin(self) -> None: ...
    def commit(self) -> None:
        """Return once everything since `begin` is on disk."""

    def rollback(self) -> None: ...
    def landed(self) -> bool:
        """Whether the transaction whose commit failed last is on disk after all: only its answer was lost."""

    def mark(self) -> tuple[int, ...]:
        """A point inside a transaction to go back to."""

    def back_to(self, mark: tuple[int, ...]) -> None: ...

    def append(self, topic: str, shard: int, marks: int, message_id: str, now: int, payload: bytes) -> Entry:
        """Add an event under the next sequence."""

    def read(self, after: int, max_bytes: int, max_rows: int = 1024) -> tuple[list[Entry], list[int]]:
        """Events beyond the sequence `after`, at least one if there is one; and the sequences found corrupt."""

    def prune(self, before_ms: int, max_bytes: int, dedup_window: int, rows: int = PRUNE_ROWS) -> int:
        """Give up oldest events, so many at most, and memories beyond the bounds; return how many events go.

        It has a transaction of its own.
        """

    def shards(self) -> dict[int, tuple[int, int]]:
        """Shard -> nonce of its newest block, and when (ms) that came."""


def entry_of(row: Sequence[Any]) -> Entry:
    """The event of a row of `SELECT`."""
    return Entry(row[0], row[1], row[2], row[3], row[4], row[5], row[8])


def event_row(entry: Entry) -> tuple[object, ...]:
    """The row of an event, as `SELECT` gives it."""
    head = (entry.sequence, entry.topic, entry.shard, entry.marks, entry.message_id, entry.received_ms)
    return (*head, checksum(entry), len(entry.payload), entry.payload)


def intact(row: Sequence[Any]) -> bool:
    """Whether a row of events is what was written."""
    try:
        return bool(checksum(entry_of(row)) == row[6]) and len(row[8]) == row[7]
    except (TypeError, AttributeError):  # a flipped bit may change the type of a column
        return False


def checksum(entry: Entry) -> int:
    """CRC-32 over all that an event consists of. By ISA-L: zlib's takes three times as long."""
    head = f"{entry.sequence}|{entry.topic}|{entry.shard}|{entry.marks}|{entry.message_id}|{entry.received_ms}|"
    return crc32(entry.payload, crc32(head.encode()))


def newest_of(place: object, rows: Iterable[Sequence[Any]], aside: str = "move it") -> list[Entry]:
    """The events of rows that come newest first, up to `NEWEST_BYTES`; oldest first.

    Raises `JournalUnusable` when one of them fails its checksum.
    """
    found: list[Entry] = []
    size = 0
    for row in rows:
        if not intact(row):
            raise JournalUnusable.damaged(place, f"event {row[0]} fails its checksum", aside)
        found.append(entry_of(row))
        size += row[7]
        if size >= NEWEST_BYTES:
            break
    return found[::-1]


def prunable(rows: Sequence[Sequence[int]], before_ms: int, payload_bytes: int, max_bytes: int) -> tuple[int, int, int]:
    """Which of the oldest events (sequence, size, received) must go: last sequence, how many, their bytes."""
    last, gone, freed = 0, 0, 0
    for sequence, size, received in rows:
        if received >= before_ms and payload_bytes - freed <= max_bytes:
            break
        last, gone, freed = sequence, gone + 1, freed + size
    return last, gone, freed


def block_of(row: Sequence[Any]) -> Block:
    """The block of the columns generation, state, nonce, digest, first_sequence, announced, held_since."""
    return Block(
        generation=row[0],
        state=State(row[1]),
        nonce=None if row[2] is None else unsigned(row[2]),
        digest=row[3],
        first_sequence=row[4],
        announced=bool(row[5]),
        held_since=row[6],
    )


def row_of(block: Block) -> tuple[int, int, int | None, bytes, int, int, int]:
    """The columns of a block, in the order in which `block_of` takes them."""
    return (
        block.generation,
        int(block.state),
        signed(block.nonce),
        block.digest,
        block.first_sequence,
        int(block.announced),
        block.held_since,
    )


def update_live(
    live: dict[bytes, None], changed: Mapping[BlockKey, Block], shard: int, nonce: int, horizon: int
) -> None:
    """Bring the hashes of the live blocks of a shard at a nonce up to date with blocks that changed since.

    What was first heard of before the sequence `horizon`, and is not held, is forgotten.
    """
    for (of, block_hash), block in changed.items():
        if of == shard:
            live.pop(block_hash, None)
            known = block.first_sequence >= horizon or block.held_since
            if known and block.nonce == nonce and block.state in (State.SAVED, State.FINAL):
                live[block_hash] = None


MOST_RELEASED = 1000  # marks at a time, so that no append waits long


def update_held(held: dict[BlockKey, Block], changed: Mapping[BlockKey, Block]) -> None:
    """Bring the blocks whose announcement waits up to date with blocks that were committed."""
    for key, block in changed.items():
        if block.held_since:
            held[key] = block
        else:
            held.pop(key, None)


def held_of(blocks: Mapping[BlockKey, Block], before_ms: int) -> list[tuple[int, bytes, Block]]:
    """Of the blocks those whose announcement has waited since before this time, the longest first; some, if many."""
    held = [(*key, block) for key, block in blocks.items() if 0 < block.held_since < before_ms]
    return sorted(held, key=lambda item: item[2].held_since)[:MOST_RELEASED]


def signed(number: int | None) -> int | None:
    """Databases' integers are signed 64-bit, a nonce is unsigned."""
    return number if number is None or number < 1 << 63 else number - (1 << 64)


def unsigned(number: int) -> int:
    return number if number >= 0 else number + (1 << 64)
