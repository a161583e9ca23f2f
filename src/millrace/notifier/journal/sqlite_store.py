"""The journal's database: events, and what was seen, in one SQLite file and so in one transaction.

WAL with synchronous=FULL: what was committed survives the loss of power. Every event has a checksum over all
its columns. SQLite itself checks the frames of its log and cuts off a torn tail.

A commit writes every page that it touched whole, however small the message. So pages are small; what the rules
remember is appended to the table `changes`, see `recent`, and moved to its own tables many at a time; these are in the
order of eras, so that a move touches the pages of the newest era only; and there is no index that something else can
stand in for: the bytes of all events are counted along.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millrace.notifier.journal.changes import BlockKey, Changes
from millrace.notifier.journal.recent import Recent, encode
from millrace.notifier.journal.rows import (
    NEWEST_EVENTS,
    PRUNE_ROWS,
    SELECT,
    JournalUnusable,
    block_of,
    entry_of,
    event_row,
    held_of,
    intact,
    newest_of,
    prunable,
    row_of,
    signed,
    unsigned,
    update_live,
)
from millrace.notifier.journal.sqlite_schema import (
    APPLICATION_ID,
    ERA_BITS,
    OLDER,
    PAGE_SIZE,
    SCHEMA,
    SCHEMA_VERSION,
)
from millrace.notifier.rules.dedup import Block
from millrace.notifier.rules.entry import Entry

FILE_NAME = "journal.sqlite3"
# What says nothing of the file's content: full, busy, locked, read-only, out of memory, cannot be opened.
_PASSING = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip
# Memories in `changes` before they are moved to their tables: that takes some 50 ms, and a start reads as many in 10.
_MAX_RECENT = 4096
_COUNT_EVERY = 1024  # events, between writes of the count of bytes
_FORGOTTEN_ROWS = 512  # deleted in one transaction at least
_FORGOTTEN_SHARE = 4  # … and for each event since the one before; so the tables outgrow window and era by little

_ERAS = """WITH RECURSIVE found (era) AS (
    SELECT min(era) FROM {table}
    UNION ALL SELECT (SELECT min(era) FROM {table} WHERE era > found.era) FROM found WHERE found.era IS NOT NULL)
SELECT era FROM found WHERE era IS NOT NULL"""
"""Of a table, without a look at every row."""
_BLOCK = "generation, state, nonce, digest, first_sequence, announced, held_since"


class Store:
    """One connection to the journal. The writer's is also the memory of the rules (`dedup.Index`)."""

    def __init__(self, directory: Path, *, writer: bool) -> None:
        self.path = directory / FILE_NAME
        self._writer = writer
        if writer:
            directory.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10.0)
        try:
            self._open(writer)
        except sqlite3.DatabaseError as error:
            self._db.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING:  # what Python itself finds has no code
                raise JournalUnusable(f"{self.path}: {error}. Mend that and start again") from error
            raise JournalUnusable.damaged(self.path, error) from error
        except JournalUnusable:
            self._db.close()
            raise

    @property
    def place(self) -> str:
        return str(self.path)

    def close(self) -> None:
        self._db.close()

    def _open(self, writer: bool) -> None:
        self._db.execute("PRAGMA mmap_size = 0")
        if not writer:
            self._db.execute("PRAGMA query_only = 1")
            self.origin = self._fact("origin")
            return
        empty = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty:
            self._db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")  # another connection does it, see Journal
        if empty:
            self._create()
        self._require_ours()
        self.origin = self._fact("origin")
        self.newest = self._read_newest()
        oldest, newest = (
            self._db.execute(f"SELECT {ask}(sequence) FROM events").fetchone()[0] for ask in ("min", "max")
        )
        self.next_sequence: int = max(self._fact("next"), (newest or 0) + 1)
        self.oldest: int = oldest or self.next_sequence
        self._counted = self._fact("counted")
        later = self._db.execute("SELECT total(size) FROM events WHERE sequence > ?", (self._counted,)).fetchone()[0]
        self.payload_bytes = self._fact("bytes") + int(later)
        self._recent = self._read_recent()
        self._changes, self._moved = Changes(), False
        self._collected = self.next_sequence
        self._horizon = max(self.origin, self._fact("horizon"))
        self._read_eras()

    def _create(self) -> None:
        self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # A journal begins at the time of its creation, in ms: a consumer that knew another, lost journal names
        # a smaller sequence and so learns of the gap. A journal never writes 1,000 events each second for long.
        origin = time.time_ns() // 1_000_000
        facts = f"INSERT INTO facts VALUES ('origin', {origin}), ('next', {origin + 1}), ('counted', 0), ('bytes', 0);"
        self._db.executescript(f"BEGIN; {SCHEMA} {facts} COMMIT;")

    def _require_ours(self) -> None:
        if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise JournalUnusable(f"{self.path} is a database of something else: choose another data_dir")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version in OLDER:
            self._db.executescript(f"BEGIN IMMEDIATE; {OLDER[version]} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise JournalUnusable(
                f"{self.path} has format {version}, this version reads {SCHEMA_VERSION}: "
                "start the version that wrote it, or choose another data_dir"
            )

    def _read_newest(self) -> list[Entry]:
        rows = self._db.execute(f"{SELECT} ORDER BY sequence DESC LIMIT ?", (NEWEST_EVENTS,))
        newest = newest_of(self.path, rows)
        rows.close()
        return newest

    def _read_eras(self) -> None:
        """Which eras the tables of memories have."""
        self._eras = {
            table: {row[0] for row in self._db.execute(_ERAS.format(table=table))} for table in ("blocks", "contents")
        }

    def _read_recent(self) -> Recent:
        try:
            return Recent.read(row[0] for row in self._db.execute("SELECT change FROM changes ORDER BY id"))
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise JournalUnusable.damaged(self.path, f"what was remembered last cannot be read ({error})") from error

    def _fact(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise JournalUnusable.damaged(self.path, f"the fact {name!r} is missing")
        return int(row[0])

    # Transactions.

    def begin(self) -> None:
        self._undo = self.next_sequence, self.oldest, self.payload_bytes, self._counted, self._horizon
        self._changes, self._moved = Changes(), False
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Return once everything since `begin` is on disk."""
        changes = self._changes
        if changes.events:
            rows = [event_row(entry) for entry in changes.events]
            self._db.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)", rows)
        if len(self._recent) >= _MAX_RECENT:
            self._move_recent()
        if changes.remembers:
            self._db.execute("INSERT INTO changes (change) VALUES (?)", (encode(changes),))
        self._db.execute("COMMIT")
        if self._moved:
            self._recent = Recent()
        self._recent.absorb(changes)
        self._changes = Changes()

    def _move_recent(self) -> None:
        """Write what was remembered last to its tables; it leaves memory at the commit."""
        recent, execute = self._recent, self._db.executemany
        marks = ", ".join(f"{name} = excluded.{name}" for name in _BLOCK.split(", "))
        execute(
            f"INSERT INTO blocks (era, shard, hash, {_BLOCK}) VALUES (?,?,?,?,?,?,?,?,?,?)"
            f" ON CONFLICT (era, shard, hash) DO UPDATE SET {marks}",
            sorted((_era(block.first_sequence), *key, *row_of(block)) for key, block in recent.blocks.items()),
        )
        self._eras["blocks"].update(_era(block.first_sequence) for block in recent.blocks.values())
        self._eras["contents"].update(map(_era, recent.contents.values()))
        contents = sorted((_era(sequence), *key, sequence) for key, sequence in recent.contents.items())
        execute("INSERT OR REPLACE INTO contents VALUES (?,?,?,?,?)", contents)
        latest = [(*key, digest) for key, digest in recent.latest.items()]
        execute("INSERT OR REPLACE INTO latest VALUES (?,?,?)", latest)
        nonces = [(shard, signed(nonce), at) for shard, (nonce, at) in recent.nonces.items()]
        execute("INSERT OR REPLACE INTO shards VALUES (?,?,?)", nonces)
        self._db.execute("DELETE FROM changes")
        self._moved = True

    def rollback(self) -> None:
        self._changes = Changes()
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self.next_sequence, self.oldest, self.payload_bytes, self._counted, self._horizon = self._undo

    def landed(self) -> bool:
        """A file's answer is never lost."""
        return False

    def mark(self) -> tuple[int, ...]:
        """A point inside a transaction to go back to."""
        return self.next_sequence, self.payload_bytes, *self._changes.mark()

    def back_to(self, mark: tuple[int, ...]) -> None:
        self.next_sequence, self.payload_bytes, undo, events = mark
        self._changes.back_to(undo, events)

    # Events.

    def append(self, topic: str, shard: int, marks: int, message_id: str, now: int, payload: bytes) -> Entry:
        """Add an event under the next sequence."""
        entry = Entry(self.next_sequence, topic, shard, marks, message_id, now, payload)
        self._changes.events.append(entry)
        self.next_sequence += 1
        self.payload_bytes += len(payload)
        return entry

    def read(self, after: int, max_bytes: int, max_rows: int = 1024) -> tuple[list[Entry], list[int]]:
        """Events beyond the sequence `after`, at least one if there is one; and the sequences found corrupt."""
        entries: list[Entry] = []
        corrupt: list[int] = []
        size = 0
        cursor = self._db.execute(f"{SELECT} WHERE sequence > ? ORDER BY sequence LIMIT ?", (after, max_rows))
        for row in cursor:
            if intact(row):
                entries.append(entry_of(row))
                size += len(row[8])
            else:
                corrupt.append(row[0])
            if size >= max_bytes:
                break
        cursor.close()
        return entries, corrupt

    def prune(self, before_ms: int, max_bytes: int, dedup_window: int) -> int:
        """Delete some of the oldest events and memories beyond the bounds; return how many events went."""
        rows = self._db.execute(
            "SELECT sequence, size, received_ms FROM events ORDER BY sequence LIMIT ?", (PRUNE_ROWS,)
        ).fetchall()
        last, gone, freed = prunable(rows, before_ms, self.payload_bytes, max_bytes)
        if gone:
            self._db.execute("DELETE FROM events WHERE sequence <= ?", (last,))
            self.oldest = last + 1
            self.payload_bytes -= freed
        if gone or self.next_sequence - self._counted > _COUNT_EVERY:
            self._counted = self.next_sequence - 1
            facts = ("next", self.next_sequence), ("counted", self._counted), ("bytes", self.payload_bytes)
            self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?,?)", facts)
        horizon = self.next_sequence - dedup_window
        if horizon > self._horizon:
            self._read_eras()  # before it deletes: what is deleted may be taken back
            self._horizon = horizon
            self._db.execute("UPDATE facts SET value = ? WHERE name = 'horizon'", (horizon,))
            count = max(_FORGOTTEN_ROWS, _FORGOTTEN_SHARE * (self.next_sequence - self._collected))
            self._collected = self.next_sequence
            for table, key, is_old in (
                ("blocks", "era, shard, hash", "era < ? AND held_since = 0"),
                ("contents", "era, topic, shard, digest", "era < ?"),
            ):
                old = f"SELECT {key} FROM {table} WHERE {is_old} ORDER BY {key} LIMIT ?"
                self._db.execute(f"DELETE FROM {table} WHERE ({key}) IN ({old})", (_era(horizon), count))
        return gone

    def checkpoint(self, mode: str) -> None:
        """Move the write-ahead log into the database file. `mode`: PASSIVE waits for nobody, TRUNCATE does."""
        self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    # The memory of the rules.

    def block(self, shard: int, block_hash: bytes) -> Block | None:
        key = shard, block_hash
        block = self._changes.blocks.get(key) or self._recent.blocks.get(key)
        block = block or self._block_of_table(key)
        return None if block is None or self._forgotten(block) else block

    def _forgotten(self, block: Block) -> bool:
        return block.first_sequence < self._horizon and not block.held_since

    def blocks(self, keys: Sequence[BlockKey]) -> dict[BlockKey, Block]:
        """For a reader, who has to look into the rows of changes; rarely, and at one state of the file."""
        self._db.execute("BEGIN")
        try:
            self._read_eras()
            recent = self._read_recent().blocks
            found = {key: recent.get(key) or self._block_of_table(key) for key in keys}
        finally:
            self._db.execute("COMMIT")
        return {key: block for key, block in found.items() if block is not None}

    def _block_of_table(self, key: BlockKey) -> Block | None:
        eras = self._eras["blocks"]
        places = ", ".join("?" * len(eras))
        ask = (
            f"SELECT {_BLOCK} FROM blocks WHERE era IN ({places}) AND shard = ? AND hash = ? ORDER BY era DESC LIMIT 1"
        )
        row = self._db.execute(ask, (*eras, *key)).fetchone()
        return None if row is None else block_of(row)

    def put_block(self, shard: int, block_hash: bytes, block: Block) -> None:
        self._changes.put(self._changes.blocks, (shard, block_hash), block)

    def live_at(self, shard: int, nonce: int) -> list[bytes]:
        rows = self._db.execute(
            "SELECT hash FROM blocks WHERE shard = ? AND nonce = ? AND state IN (1, 2)"
            " AND (first_sequence >= ? OR held_since > 0)",
            (shard, signed(nonce), self._horizon),
        )
        live = dict.fromkeys(row[0] for row in rows)
        for blocks in (self._recent.blocks, self._changes.blocks):
            update_live(live, blocks, shard, nonce, self._horizon)
        return list(live)

    def newest_nonce(self, shard: int) -> int | None:
        known = self._changes.nonces.get(shard) or self._recent.nonces.get(shard)
        if known is not None:
            return known[0]
        row = self._db.execute("SELECT nonce FROM shards WHERE shard = ?", (shard,)).fetchone()
        return None if row is None else unsigned(row[0])

    def set_newest_nonce(self, shard: int, nonce: int) -> None:
        self._changes.put(self._changes.nonces, shard, (nonce, time.time_ns() // 1_000_000))

    def shards(self) -> dict[int, tuple[int, int]]:
        """Shard -> nonce of its newest block, and when (ms) that came."""
        table = {row[0]: (unsigned(row[1]), row[2]) for row in self._db.execute("SELECT * FROM shards")}
        return table | self._recent.nonces | self._changes.nonces

    def waiting(self, before_ms: int) -> list[tuple[int, bytes, Block]]:
        rows = self._db.execute(
            f"SELECT shard, hash, {_BLOCK} FROM blocks WHERE held_since > 0 AND held_since < ?"
            " ORDER BY held_since LIMIT ?",
            (before_ms, 1000 + len(self._recent.blocks)),
        )
        found = {(row[0], row[1]): block_of(row[2:]) for row in rows if (row[0], row[1]) not in self._recent.blocks}
        found |= {key: self._recent.blocks[key] for key in self._recent.held}
        return held_of(found | self._changes.blocks, before_ms)

    def add_content(self, topic: str, shard: int, digest: bytes) -> bool:
        key = topic, shard, digest
        seen = self._changes.contents.get(key) or self._recent.contents.get(key)
        if seen is None:
            eras = self._eras["contents"]
            places = ", ".join("?" * len(eras))
            ask = (
                f"SELECT max(sequence) FROM contents WHERE era IN ({places}) AND topic = ? AND shard = ? AND digest = ?"
            )
            seen = self._db.execute(ask, (*eras, *key)).fetchone()[0]
        if seen is not None and seen >= self._horizon:
            return False
        self._changes.put(self._changes.contents, key, self.next_sequence)
        return True

    def swap_latest(self, topic: str, shard: int, digest: bytes) -> bool:
        key = topic, shard
        before = self._changes.latest.get(key) or self._recent.latest.get(key)
        if before is None:
            row = self._db.execute("SELECT digest FROM latest WHERE topic = ? AND shard = ?", key).fetchone()
            before = None if row is None else row[0]
        if before == digest:
            return False
        self._changes.put(self._changes.latest, key, digest)
        return True


def _era(sequence: int) -> int:
    return sequence >> ERA_BITS
