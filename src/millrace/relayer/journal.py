"""The relayer's memory on disk: what was promised, what was spent, how far the events were read.

SQLite, WAL, synchronous=FULL: `append` returns after fsync. One writer thread takes everything that waits and
commits it as one group, so a disk that syncs 500 times a second still takes thousands of records.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from millrace.relayer import audit, outcomes

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEMA_VERSION = 1
MAX_WAITING = 20_000
QUOTA_MS = 3_600_000

_SCHEMA = f"""
{audit.SCHEMA}
{outcomes.SCHEMA}
CREATE TABLE IF NOT EXISTS write_offs (client_hash BLOB PRIMARY KEY, time_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS submissions (
    sender BLOB NOT NULL,
    nonce INTEGER NOT NULL,
    client_hash BLOB NOT NULL,
    chain_hash BLOB,
    message_hash BLOB NOT NULL,   -- of the bytes to be signed
    tx BLOB NOT NULL,             -- protobuf, with the relayer's signature once it is there
    kind TEXT NOT NULL,           -- relay, sign or broadcast
    relayer BLOB,                 -- our key, when it was asked to sign and so to pay
    fee TEXT NOT NULL,            -- the most it can cost, atomic units
    cost TEXT,                    -- what it did cost, once known
    ip TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    state TEXT NOT NULL,          -- journalled, signed, expired; over: finished, superseded, dropped
    broadcast INTEGER NOT NULL,
    ended_ms INTEGER,             -- never set where a fee was written off: it may still run
    PRIMARY KEY (sender, nonce)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS submissions_client ON submissions (client_hash);
DROP INDEX IF EXISTS submissions_chain;
DROP INDEX IF EXISTS submissions_created;
"""


class JournalError(Exception):
    """The journal cannot be opened or written; nothing may be signed."""


class JournalFull(JournalError):
    """More records wait than the disk takes; try later."""


class NonceTaken(JournalError):
    """A row of a (sender, nonce) is there that does not give way."""


class Record(msgspec.Struct, frozen=True):
    """One row of `submissions`."""

    sender: bytes
    nonce: int
    client_hash: bytes
    chain_hash: bytes | None
    message_hash: bytes
    tx: bytes
    kind: str
    relayer: bytes | None
    fee: int
    cost: int | None
    ip: str
    created_ms: int
    state: str
    broadcast: bool


_COLUMNS = ", ".join(Record.__struct_fields__)
_FEE, _COST = (Record.__struct_fields__.index(name) for name in ("fee", "cost"))


class Journal:
    """The file, its writer thread and a reading connection. `open` it first, `close` it last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: sqlite3.Connection | None = None
        self._writer: threading.Thread | None = None
        self._wake = threading.Condition()
        self._waiting: list[tuple[Callable[[sqlite3.Connection], None], asyncio.Future[None] | None]] = []
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failed: str | None = None
        """Why the last commit failed, until one succeeds."""
        self.commits = 0
        self.records = 0

    # ---- life

    def open(self) -> None:
        """Open or make the file and start the writer. Raises `JournalError`."""
        self._loop = asyncio.get_running_loop()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            writer = _connect(self.path)
            writer.executescript(_SCHEMA)
            _check_version(writer)
            self._reader = _connect(self.path)
        except (OSError, sqlite3.Error) as error:
            raise JournalError(f"{self.path}: {error}; move the file away to start with an empty one") from error
        self._writer = threading.Thread(target=self._write_forever, args=(writer,), name="journal", daemon=True)
        self._writer.start()

    async def close(self) -> None:
        """Write what waits, then close the file."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._writer is not None:
            await asyncio.to_thread(self._writer.join)
        if self._reader is not None:
            self._reader.close()

    # ---- writing

    @property
    def waiting(self) -> int:
        """Changes not yet on disk."""
        return len(self._waiting)

    async def append(self, records: Sequence[Record]) -> None:
        """Write new rows; returns when they are on disk.

        Raises `JournalFull`, or `JournalError` when the disk fails or a row's (sender, nonce) is held by
        another that may still run; then none of them is there.
        """

        rows = [_row(record) for record in records]
        lines: list[audit.Line] = [
            (row.created_ms, "reserve", row.relayer, row.sender, row.nonce, row.client_hash, row.fee)
            for row in records
            if row.relayer is not None
        ]

        def write(connection: sqlite3.Connection) -> None:
            if connection.executemany(_INSERT, rows).rowcount != len(rows):
                raise NonceTaken("a nonce of this sender is taken")
            audit.write(connection, lines)

        self.records += len(records)
        await self._commit(write)

    def change(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Make a change with the next group; the caller does not wait for the disk. Never refused."""
        self._enqueue(write, None)

    def keep_cursor(self, sequence: int) -> None:
        """Remember up to which event of the hub nothing need be read again."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('cursor', ?)", (str(sequence),))

        self.change(write)

    def forget_write_off(self, client_hash: bytes) -> None:
        """What an operator asked to write off is not at risk any more."""
        self.change(lambda connection: drop_write_off(connection, client_hash))

    def prune(self, before_ms: int) -> None:
        """Forget submissions that were over before a time; the audit log is kept for ever.

        What a key of ours paid for within the last hour stays: a quota of its IP address still counts it.
        """
        recent_ms = time.time_ns() // 1_000_000 - QUOTA_MS

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM submissions WHERE ended_ms < ? AND (relayer IS NULL OR created_ms < ?)",
                (before_ms, recent_ms),
            )

        self.change(write)

    async def flush(self) -> None:
        """Return when all changes so far are on disk. Raises `JournalError`."""
        await self._commit(lambda _: None)

    # ---- reading

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Rows of a query, by index, of milliseconds at most."""
        assert self._reader is not None
        return self._reader.execute(sql, parameters).fetchall()

    def find(self, client_hash: bytes) -> Record | None:
        """The row with this client hash, whatever its state."""
        rows = self.read(f"SELECT {_COLUMNS} FROM submissions WHERE client_hash = ?", (client_hash,))
        return _record(rows[0]) if rows else None

    def open_records(self) -> list[Record]:
        """Rows of transactions that may still run, oldest first."""
        return [
            _record(row)
            for row in self.read(
                f"SELECT {_COLUMNS} FROM submissions WHERE state IN ('journalled', 'signed', 'expired') "
                "ORDER BY created_ms"
            )
        ]

    def spent_since(self, time_ms: int) -> list[audit.Spent]:
        """What our keys reserved since `time_ms` and did not get back, oldest first."""
        return audit.spent_since(self.read, time_ms)

    def ips_since(self, time_ms: int) -> dict[bytes, str]:
        """From where what our keys pay for was submitted, by client hash, as far as the rows are still there."""
        return dict(
            self.read(
                "SELECT client_hash, ip FROM submissions WHERE relayer IS NOT NULL AND created_ms >= ?", (time_ms,)
            )
        )

    def outcomes_since(self, time_ms: int) -> list[outcomes.Outcome]:
        """How sponsored transactions ended since `time_ms`, oldest first."""
        return outcomes.since(self.read, time_ms)

    def undecided_since(self, time_ms: int) -> list[Record]:
        """What our keys paid for since `time_ms` without it being known yet whether it failed."""
        rows = self.read(
            f"SELECT {_COLUMNS} FROM submissions WHERE relayer IS NOT NULL AND state = 'finished' AND ended_ms >= ? "
            "AND client_hash NOT IN (SELECT client_hash FROM outcomes)",
            (time_ms,),
        )
        return [_record(row) for row in rows]

    def write_offs(self) -> list[bytes]:
        """Client hashes whose at-risk fees an operator asked to write off."""
        return [row[0] for row in self.read("SELECT client_hash FROM write_offs")]

    def cursor(self) -> int | None:
        """The last event that need not be read again, or `None` before the first."""
        rows = self.read("SELECT value FROM meta WHERE name = 'cursor'")
        return int(rows[0][0]) if rows else None

    # ---- the writer thread

    async def _commit(self, write: Callable[[sqlite3.Connection], None]) -> None:
        if len(self._waiting) >= MAX_WAITING:
            raise JournalFull("the journal's disk is too slow")
        assert self._loop is not None
        done = self._loop.create_future()
        self._enqueue(write, done)
        await done

    def _enqueue(self, write: Callable[[sqlite3.Connection], None], done: asyncio.Future[None] | None) -> None:
        with self._wake:
            self._waiting.append((write, done))
            self._wake.notify()

    def _write_forever(self, connection: sqlite3.Connection) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closing:
                    self._wake.wait()
                group, self._waiting = self._waiting, []
                if not group:
                    break
            self._write_group(connection, group)
        connection.close()

    def _write_group(
        self,
        connection: sqlite3.Connection,
        group: list[tuple[Callable[[sqlite3.Connection], None], asyncio.Future[None] | None]],
    ) -> None:
        """Commit a group; if it fails as a whole, each change alone, so that one bad one fails alone."""
        error = _try_commit(connection, [write for write, _ in group])
        results: list[Exception | None] = [error] * len(group)
        if error is not None and len(group) > 1:
            results = [_try_commit(connection, [write]) for write, _ in group]
        error = next((item for item in results if item is not None and not isinstance(item, NonceTaken)), None)
        self.failed = str(error) if error is not None else None
        self.commits += 1
        if error is not None:
            log.error("journal commit failed", extra={"error": str(error)})
        assert self._loop is not None
        waiters = [(done, result) for (_, done), result in zip(group, results, strict=True) if done is not None]
        if waiters and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_wake_all, waiters)


def hash_message(message: bytes) -> bytes:
    """What a row keeps of the bytes to be signed, so that no other payload takes its place."""
    return hashlib.blake2b(message, digest_size=32).digest()


def drop_write_off(connection: sqlite3.Connection, client_hash: bytes) -> None:
    """Forget a request to write off, as part of a change."""
    connection.execute("DELETE FROM write_offs WHERE client_hash = ?", (client_hash,))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 8000")  # pages: 32 MB are copied at once, not 4 MB eight times
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


def _check_version(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
    (found,) = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    if int(found) != SCHEMA_VERSION:
        raise sqlite3.DatabaseError(f"written by another version (schema {found}, this is {SCHEMA_VERSION})")


def _try_commit(connection: sqlite3.Connection, writes: list[Callable[[sqlite3.Connection], None]]) -> Exception | None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for write in writes:
            write(connection)
        connection.execute("COMMIT")
    except Exception as error:  # whatever a change does, the thread that writes everybody's must live on
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return error if isinstance(error, NonceTaken) else JournalError(str(error) or repr(error))
    return None


def _wake_all(waiters: list[tuple[asyncio.Future[None], Exception | None]]) -> None:
    for done, error in waiters:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


# A row gives way only when no key of ours may have signed it: it was not ours to sign, or it was withdrawn, which
# alone leaves a cost of 0 without a chain hash. Whatever the chain is thought to say, a signed nonce stays taken.
_INSERT = (
    f"INSERT INTO submissions ({_COLUMNS}) VALUES ({', '.join('?' * len(Record.__struct_fields__))}) "
    "ON CONFLICT (sender, nonce) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in Record.__struct_fields__)
    + ", ended_ms = NULL WHERE submissions.state IN ('finished', 'superseded', 'dropped') "
    "AND (submissions.relayer IS NULL OR (submissions.chain_hash IS NULL AND submissions.cost = '0'))"
)


def _row(record: Record) -> tuple[Any, ...]:
    values = list(msgspec.structs.astuple(record))
    values[_FEE] = str(record.fee)
    values[_COST] = None if record.cost is None else str(record.cost)
    return tuple(values)


def _record(row: tuple[Any, ...]) -> Record:
    values = dict(zip(Record.__struct_fields__, row, strict=True))
    values["fee"] = int(values["fee"])
    values["cost"] = None if values["cost"] is None else int(values["cost"])
    values["broadcast"] = bool(values["broadcast"])
    return Record(**values)
