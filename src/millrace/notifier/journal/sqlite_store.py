"""The journal's database: events, and what was seen, in one SQLite file and so in one transaction.

WAL with synchronous=FULL: what was committed survives the loss of power. Every event has a checksum over all
its columns. SQLite itself checks the frames of its log and cuts off a torn tail.

A commit writes every page that it touched whole, however small the message. So pages are small, and there is no index
that something else can stand in for: the bytes of all events are counted along, and what is too old is found by
going round the tables (`_sweep`).
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from millrace.notifier.journal.rows import (
    NEWEST_EVENTS,
    PRUNE_ROWS,
    SELECT,
    JournalUnusable,
    block_of,
    checksum,
    entry_of,
    intact,
    newest_of,
    prunable,
    row_of,
    signed,
    unsigned,
)
from millrace.notifier.rules.dedup import Block
from millrace.notifier.rules.entry import Entry

FILE_NAME = "journal.sqlite3"
SCHEMA_VERSION = 2
_APPLICATION_ID = 0x6D696C6C  # "mill"
# Small commits write a fifth of what they do with 8,192, and large blocks cost 0.24 ms of CPU more; with 1,024 an
# eighth, but 0.6 ms (266 KB, insert, commit and checkpoint).
_PAGE_SIZE = 2048
# What says nothing of the file's content: full, busy, locked, read-only, out of memory, cannot be opened.
_PASSING = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip
_COUNT_EVERY = 1024  # events, between writes of the count of bytes
_SWEEP_ROWS = 512  # looked at in one transaction at least
_SWEEP_SHARE = 4  # … and for each event since the one before; so the tables outgrow the window by a third at most

_SCHEMA = """
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, shard INTEGER NOT NULL, marks INTEGER NOT NULL,
    message_id TEXT NOT NULL, received_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, size INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE blocks (
    shard INTEGER NOT NULL, hash BLOB NOT NULL, generation INTEGER NOT NULL, state INTEGER NOT NULL, nonce INTEGER,
    digest BLOB NOT NULL, first_sequence INTEGER NOT NULL, announced INTEGER NOT NULL, held_since INTEGER NOT NULL,
    PRIMARY KEY (shard, hash)) WITHOUT ROWID;
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce) WHERE nonce IS NOT NULL;
CREATE INDEX blocks_waiting ON blocks (held_since) WHERE held_since > 0;
CREATE TABLE contents (
    topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (topic, shard, digest)) WITHOUT ROWID;
CREATE TABLE latest (topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic, shard));
CREATE TABLE shards (shard INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, saved_ms INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_FROM_VERSION_1 = f"""
INSERT INTO facts SELECT 'counted', coalesce(max(sequence), 0) FROM events;
INSERT INTO facts SELECT 'bytes', coalesce(sum(size), 0) FROM events;
DROP INDEX events_sizes;
DROP INDEX blocks_by_nonce;
DROP INDEX blocks_by_age;
DROP INDEX contents_by_age;
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce) WHERE nonce IS NOT NULL;
PRAGMA user_version = {SCHEMA_VERSION};
"""
"""Pages keep their size: it is that of a new journal only."""
_KEYS = {"blocks": ("shard", "hash"), "contents": ("topic", "shard", "digest")}


class Store:
    """One connection to the journal. The writer's is also the memory of the rules (`dedup.Index`)."""

    def __init__(self, directory: Path, *, writer: bool) -> None:
        self.path = directory / FILE_NAME
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
            self._db.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
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
        self._swept = self.next_sequence
        self._swept_to: dict[str, tuple[Any, ...] | None] = dict.fromkeys(_KEYS)

    def _create(self) -> None:
        self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # A journal begins at the time of its creation, in ms: a consumer that knew another, lost journal names
        # a smaller sequence and so learns of the gap. A journal never writes 1,000 events each second for long.
        origin = time.time_ns() // 1_000_000
        facts = f"INSERT INTO facts VALUES ('origin', {origin}), ('next', {origin + 1}), ('counted', 0), ('bytes', 0);"
        self._db.executescript(f"BEGIN; {_SCHEMA} {facts} COMMIT;")

    def _require_ours(self) -> None:
        if self._db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise JournalUnusable(f"{self.path} is a database of something else: choose another data_dir")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 1:
            self._db.executescript(f"BEGIN IMMEDIATE; {_FROM_VERSION_1} COMMIT;")
            return
        if version != SCHEMA_VERSION:
            raise JournalUnusable(
                f"{self.path} has format {version}, this version reads {SCHEMA_VERSION}: "
                "start the version that wrote it, or choose another data_dir"
            )

    def _read_newest(self) -> list[Entry]:
        rows = self._db.execute(f"{SELECT} ORDER BY sequence DESC LIMIT ?", (NEWEST_EVENTS,))
        newest = newest_of(self.path, rows)
        rows.close()
        return newest

    def _fact(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise JournalUnusable.damaged(self.path, f"the fact {name!r} is missing")
        return int(row[0])

    # Transactions.

    def begin(self) -> None:
        self._undo = self.next_sequence, self.oldest, self.payload_bytes, self._counted
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Return once everything since `begin` is on disk."""
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self.next_sequence, self.oldest, self.payload_bytes, self._counted = self._undo

    def landed(self) -> bool:
        """A file's answer is never lost."""
        return False

    def mark(self) -> tuple[int, ...]:
        """A point inside a transaction to go back to."""
        self._db.execute("SAVEPOINT message")
        return self.next_sequence, self.payload_bytes

    def release_mark(self) -> None:
        self._db.execute("RELEASE message")

    def back_to(self, mark: tuple[int, ...]) -> None:
        self._db.execute("ROLLBACK TO message")
        self._db.execute("RELEASE message")
        self.next_sequence, self.payload_bytes = mark

    # Events.

    def append(self, topic: str, shard: int, marks: int, message_id: str, now: int, payload: bytes) -> Entry:
        """Add an event under the next sequence."""
        entry = Entry(self.next_sequence, topic, shard, marks, message_id, now, payload)
        self._db.execute(
            "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)",
            (entry.sequence, topic, shard, marks, message_id, now, checksum(entry), len(payload), payload),
        )
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
        if horizon > self.origin:
            count = max(_SWEEP_ROWS, _SWEEP_SHARE * (self.next_sequence - self._swept))
            self._sweep("blocks", "first_sequence < ? AND held_since = 0", horizon, count)
            self._sweep("contents", "sequence < ?", horizon, count)
        self._swept = self.next_sequence
        return gone

    def _sweep(self, table: str, is_old: str, horizon: int, count: int) -> None:
        """Delete what is too old of the next rows of a table, in the order of its key and round and round."""
        columns = ", ".join(_KEYS[table])
        marks = ", ".join("?" * len(_KEYS[table]))
        first = self._swept_to[table]
        where = "" if first is None else f"WHERE ({columns}) > ({marks})"
        ask = f"SELECT {columns} FROM {table} {where} ORDER BY {columns} LIMIT 1 OFFSET ?"
        last = self._db.execute(ask, (*(first or ()), count - 1)).fetchone()
        above = "" if first is None else f" AND ({columns}) > ({marks})"
        below = "" if last is None else f" AND ({columns}) <= ({marks})"
        delete = f"DELETE FROM {table} WHERE {is_old}{above}{below}"
        self._db.execute(delete, (horizon, *(first or ()), *(last or ())))
        self._swept_to[table] = last

    def checkpoint(self, mode: str) -> None:
        """Move the write-ahead log into the database file. `mode`: PASSIVE waits for nobody, TRUNCATE does."""
        self._db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    # The memory of the rules.

    def block(self, shard: int, block_hash: bytes) -> Block | None:
        row = self._db.execute(
            "SELECT generation, state, nonce, digest, first_sequence, announced, held_since FROM blocks"
            " WHERE shard = ? AND hash = ?",
            (shard, block_hash),
        ).fetchone()
        return None if row is None else block_of(row)

    def put_block(self, shard: int, block_hash: bytes, block: Block) -> None:
        generation, state, nonce, digest, first_sequence, announced, held_since = row_of(block)
        # An update without the nonce leaves the index of nonces alone.
        updated = self._db.execute(
            "UPDATE blocks SET generation = ?, state = ?, digest = ?, first_sequence = ?, announced = ?, held_since = ?"
            " WHERE shard = ? AND hash = ? AND nonce IS ?",
            (generation, state, digest, first_sequence, announced, held_since, shard, block_hash, nonce),
        )
        if updated.rowcount == 0:
            row = shard, block_hash, *row_of(block)
            self._db.execute("INSERT OR REPLACE INTO blocks VALUES (?,?,?,?,?,?,?,?,?)", row)

    def live_at(self, shard: int, nonce: int) -> list[bytes]:
        rows = self._db.execute(
            "SELECT hash FROM blocks WHERE shard = ? AND nonce = ? AND state IN (1, 2)", (shard, signed(nonce))
        )
        return [row[0] for row in rows]

    def newest_nonce(self, shard: int) -> int | None:
        row = self._db.execute("SELECT nonce FROM shards WHERE shard = ?", (shard,)).fetchone()
        return None if row is None else unsigned(row[0])

    def set_newest_nonce(self, shard: int, nonce: int) -> None:
        now = time.time_ns() // 1_000_000
        self._db.execute("INSERT OR REPLACE INTO shards VALUES (?,?,?)", (shard, signed(nonce), now))

    def shards(self) -> dict[int, tuple[int, int]]:
        """Shard -> nonce of its newest block, and when (ms) that came."""
        return {row[0]: (unsigned(row[1]), row[2]) for row in self._db.execute("SELECT * FROM shards")}

    def waiting(self, before_ms: int) -> list[tuple[int, bytes, Block]]:
        rows = self._db.execute(
            "SELECT shard, hash, generation, state, nonce, digest, first_sequence, announced, held_since"
            " FROM blocks WHERE held_since > 0 AND held_since < ? ORDER BY held_since LIMIT 1000",
            (before_ms,),
        ).fetchall()
        return [(row[0], row[1], block_of(row[2:])) for row in rows]

    def add_content(self, topic: str, shard: int, digest: bytes) -> bool:
        cursor = self._db.execute(
            "INSERT OR IGNORE INTO contents VALUES (?,?,?,?)", (topic, shard, digest, self.next_sequence)
        )
        return cursor.rowcount == 1

    def swap_latest(self, topic: str, shard: int, digest: bytes) -> bool:
        row = self._db.execute("SELECT digest FROM latest WHERE topic = ? AND shard = ?", (topic, shard)).fetchone()
        if row is not None and row[0] == digest:
            return False
        self._db.execute("INSERT OR REPLACE INTO latest VALUES (?,?,?)", (topic, shard, digest))
        return True
