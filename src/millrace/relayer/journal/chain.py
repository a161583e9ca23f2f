"""Every commit says what the journal holds with it, so that the next start knows whether it still does.

What a row holds hashes to a number, and the numbers of all rows add up to a total: a commit adds those of rows that
came and takes away those of rows that went, however old they are, so that a row that changes or is forgotten needs no
history. Commits are links of a chain: each has a number, and a head that is the hash of the head before it, of the
number and of the total. The last link lies in the table `chain`, and what was acknowledged in the mark (`mark.py`).

Triggers of the connection that writes note what comes and goes, whoever does it and by whatever statement. Rows that
come many thousand times a second are told by who writes them, which takes a fifth of the time of a trigger.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

import msgspec

log = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS chain (
    writer TEXT PRIMARY KEY,      -- id of the data directory whose relayer wrote it
    sequence INTEGER NOT NULL,    -- commits that changed anything, from 1 on
    head BLOB NOT NULL,
    before BLOB NOT NULL,         -- the head of the link before
    total BLOB NOT NULL
) WITHOUT ROWID;
"""

NO_HEAD = bytes(32)
"""Before the first link."""
PROGRESS_SECONDS = 2.0
_MODULUS = 1 << 256
_AT_ONCE = 256
"""Changes noted by triggers that are read as one value: each value costs the thread a turn with the interpreter."""
_ROWS_BETWEEN_LOOKS = 20_000
"""Rows checked between two looks at the clock, some 50 ms."""


class ChainError(Exception):
    """The journal does not hold what it held; the text says in what."""


class Overtaken(sqlite3.OperationalError):
    """Somebody else wrote a link since ours: what we would write next is not what is there."""

    sqlite_errorname = "SQLITE_BUSY_SNAPSHOT"
    """What SQLite itself says of a change that is based on an older state."""


class Link(NamedTuple):
    """What one commit left behind."""

    sequence: int
    head: bytes
    before: bytes
    total: int


class Kind(NamedTuple):
    """What is kept of a table's rows: some of its columns, as expressions in which `{}` stands for the row."""

    name: str
    table: str
    blobs: tuple[str, ...]
    values: tuple[str, ...]
    """Numbers and texts."""
    told: bool = False
    """Whether who inserts such rows calls `tell`; else a trigger notes it."""

    @property
    def query(self) -> str:
        """What is kept of every row, in the order of `content`."""
        columns = ", ".join(column.format(f"{self.table}.") for column in self.blobs + self.values)
        return f"SELECT '{self.name}', {columns} FROM {self.table} NOT INDEXED"

    def noted(self, row: str) -> str:
        """The same of one row of a trigger, as a JSON list with blobs in hex."""
        blobs = [f"iif({column} IS NULL, NULL, hex({column}))" for column in (item.format(row) for item in self.blobs)]
        return f"json_array('{self.name}', {', '.join(blobs + [item.format(row) for item in self.values])})"


class Chained(sqlite3.Connection):
    """A connection that hears of the rows which no trigger notes."""

    told: list[bytes]
    told_rows: int


content = msgspec.msgpack.Encoder().encode
"""The bytes that are hashed of a row: a list of its kind's name, its blobs and its values."""


def tell(connection: sqlite3.Connection, rows: int, contents: Iterable[bytes]) -> None:
    """So many rows were inserted, with these contents. A connection that keeps no chain does not care."""
    if isinstance(connection, Chained):
        connection.told_rows += rows
        connection.told.extend(contents)


class Chain:
    """The chain of one writer, on the connection that writes; belongs to the thread that does."""

    def __init__(self, connection: Chained, kinds: Sequence[Kind], writer: str, link: Link) -> None:
        self._connection = connection
        self._writer = writer
        self._blobs = {kind.name: len(kind.blobs) for kind in kinds}
        self._changes_before = 0
        self.link = link
        """Of the last commit."""
        self._next = link
        connection.told, connection.told_rows = [], 0
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA recursive_triggers = ON")  # else `INSERT OR REPLACE` deletes unnoticed
        connection.executescript(_watch(there(connection, kinds)))

    def begin(self) -> None:
        """A transaction has just begun."""
        self._connection.told, self._connection.told_rows = [], 0
        self._changes_before = self._connection.total_changes

    def seal(self) -> bool:
        """Write the next link, as the last change of a transaction; whether there is one: nothing may have changed."""
        connection = self._connection
        delta = sum_of(connection.told, self._writer)
        if connection.total_changes - self._changes_before != connection.told_rows:
            delta += self._noted()
        if not connection.told and not delta:
            return False
        self._next = _next(self.link, delta, self._writer)
        _write(connection, self._writer, self._next, self.link.sequence)
        return True

    def committed(self) -> Link:
        """The transaction with the sealed link is on disk."""
        self.link = self._next
        return self.link

    def repeat(self) -> None:
        """Write the link of the last commit once more: SQLite writes no page in which nothing was changed."""
        _write(self._connection, self._writer, self.link._replace(sequence=-1), self.link.sequence)
        _write(self._connection, self._writer, self.link, -1)

    def take_back(self) -> None:
        """Put a commit that says nothing where one that failed may lie in the log, or a start would take that for made.

        Raises `sqlite3.Error`, or whatever else prevents it: then it is not done.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self.repeat()
            self._connection.execute("COMMIT")
        except BaseException:
            roll_back(self._connection)
            raise

    def _noted(self) -> int:
        delta = 0
        for sign, contents in self._connection.execute(
            f"SELECT sign, json_group_array(json(content)) FROM changes GROUP BY sign, id / {_AT_ONCE}"
        ).fetchall():
            delta += sign * sum_of([self._content(row) for row in _rows(contents)], self._writer)
        self._connection.execute("DELETE FROM changes")
        return delta

    def _content(self, row: list[str | int | None]) -> bytes:
        """Of a row as a trigger noted it."""
        after = self._blobs[str(row[0])] + 1
        blobs = [None if blob is None else bytes.fromhex(str(blob)) for blob in row[1:after]]
        return content([row[0], *blobs, *row[after:]])


@lru_cache(4)
def _hasher(writer: str) -> blake2b:
    """BLAKE2b of 32 bytes of a writer's own; copied for each content, in a third of the time of making one."""
    return blake2b(digest_size=32, person=bytes.fromhex(writer))


def sum_of(contents: Iterable[bytes], writer: str) -> int:
    """The sum of the numbers that contents hash to."""
    fresh, total = _hasher(writer).copy, 0
    for item in contents:
        made = fresh()
        made.update(item)
        total += int.from_bytes(made.digest())
    return total


_rows = msgspec.json.Decoder(list[list[str | int | None]]).decode


def may_be_in_log(error: Exception) -> bool:
    """Whether a commit that failed may have been written whole, as when its sync fails, and not its last page."""
    if isinstance(error, MemoryError):  # the index of the log grows after it is synced
        return True
    name = error.sqlite_errorname if isinstance(error, sqlite3.OperationalError) else ""
    return name.startswith("SQLITE_IOERR") and name not in ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_READ")


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo an unfinished change; some failures of the disk have done so already, or prevent even that for now."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        log.error("journal rollback failed", extra={"error": str(error)})


def last(connection: sqlite3.Connection, writer: str) -> Link | None:
    """The last link of a writer; `None` where no chain was begun. Raises `ChainError` for another writer's journal."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'chain'").fetchone():
        return None
    rows = connection.execute("SELECT writer, sequence, head, before, total FROM chain").fetchall()
    for owner, sequence, head, before, total in rows:
        if owner == writer:
            return Link(sequence, head, before, int.from_bytes(total))
    if rows:
        raise ChainError(f"the journal belongs to the data directory {rows[0][0]}, and this one is {writer}")
    raise ChainError("the journal's chain is gone")


def sequence(connection: sqlite3.Connection, writer: str) -> int:
    """The number of a writer's last link; 0 without one. Raises `sqlite3.Error`."""
    found = connection.execute("SELECT sequence FROM chain WHERE writer = ?", (writer,)).fetchone()
    return int(found[0]) if found else 0


def begin(connection: sqlite3.Connection, kinds: Sequence[Kind], writer: str) -> Link:
    """The first link of a chain over what is there, as part of a transaction."""
    total = _total(connection, kinds, writer, lambda _: None)
    link = _next(Link(0, NO_HEAD, NO_HEAD, 0), total, writer)
    connection.execute("DELETE FROM chain")
    connection.execute(
        "INSERT INTO chain VALUES (?, ?, ?, ?, ?)",
        (writer, link.sequence, link.head, link.before, link.total.to_bytes(32)),
    )
    return link


def check(
    connection: sqlite3.Connection, kinds: Sequence[Kind], writer: str, link: Link, progress: Callable[[int], None]
) -> None:
    """Compare what is there with what the last link says. Raises `ChainError`, or `sqlite3.Error`.

    `progress` is told now and then how many rows were read.
    """
    if link != _next(Link(link.sequence - 1, link.before, b"", 0), link.total, writer):
        raise ChainError("the last link of the journal's chain does not hash to its head")
    check_whole(connection)
    if _total(connection, kinds, writer, progress) != link.total:
        raise ChainError("its rows are not those that were written: some were changed, lost or put in")


def check_whole(connection: sqlite3.Connection) -> None:
    """Whether all pages of the file fit together, and indices their tables. Raises `ChainError`, or `sqlite3.Error`."""
    wrong = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if wrong != "ok":
        raise ChainError(f"the file is damaged: {wrong}")


def schema_sum(connection: sqlite3.Connection, kinds: Sequence[Kind], writer: str) -> int:
    """The sum over the tables of these kinds with their indices and triggers, which is part of the total."""
    tables = {kind.table for kind in kinds}
    rows = connection.execute("SELECT 'schema', type, name, tbl_name, sql FROM sqlite_master")
    return sum_of([content(row) for row in rows if row[3] in tables], writer)


def extend(connection: sqlite3.Connection, writer: str, link: Link, delta: int) -> Link:
    """One more link for a change that no `Chain` saw, as part of a transaction."""
    following = _next(link, delta, writer)
    _write(connection, writer, following, link.sequence)
    return following


def _next(link: Link, delta: int, writer: str) -> Link:
    sequence, total = link.sequence + 1, (link.total + delta) % _MODULUS
    head = _hasher(writer).copy()
    head.update(link.head + sequence.to_bytes(8) + total.to_bytes(32))
    return Link(sequence, head.digest(), link.head, total)


def _write(connection: sqlite3.Connection, writer: str, link: Link, there: int) -> None:
    """Put a link in the place of the one with the number that is `there`. Raises `Overtaken`."""
    changed = connection.execute(
        "UPDATE chain SET sequence = ?, head = ?, before = ?, total = ? WHERE writer = ? AND sequence = ?",
        (link.sequence, link.head, link.before, link.total.to_bytes(32), writer, there),
    )
    if changed.rowcount != 1:
        raise Overtaken(
            "another process writes this journal, too (by a link, or a copy of its folder): stop both, and start one"
        )


def _total(connection: sqlite3.Connection, kinds: Sequence[Kind], writer: str, progress: Callable[[int], None]) -> int:
    """The sum over all rows, and over the schema."""
    total, rows, told = schema_sum(connection, kinds, writer), 0, time.monotonic()
    for kind in there(connection, kinds):
        cursor = connection.execute(kind.query)
        while found := cursor.fetchmany(_ROWS_BETWEEN_LOOKS):
            total += sum_of(map(content, found), writer)
            rows += len(found)
            if time.monotonic() - told >= PROGRESS_SECONDS:
                progress(rows)
                told = time.monotonic()
    return total % _MODULUS


def there(connection: sqlite3.Connection, kinds: Sequence[Kind]) -> list[Kind]:
    """The kinds that have a table: a file of an earlier version lacks some, and one that lost some another schema."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [kind for kind in kinds if kind.table in tables]


def _watch(kinds: Sequence[Kind]) -> str:
    """The triggers that note in a table of this connection what comes (1) and goes (-1)."""
    parts = ["CREATE TEMP TABLE IF NOT EXISTS changes (id INTEGER PRIMARY KEY, sign INTEGER, content TEXT);"]
    for kind in kinds:
        came, went = (
            f"INSERT INTO changes (sign, content) VALUES ({sign}, {kind.noted(row)});"
            for sign, row in ((1, "new."), (-1, "old."))
        )
        columns = ", ".join(re.findall(r"\{\}(\w+)", " ".join(kind.blobs + kind.values)))
        events = {"DELETE": went, f"UPDATE OF {columns}": went + came}
        if not kind.told:
            events["INSERT"] = came
        for event, body in events.items():
            name = f"watch_{kind.name}_{event.split()[0]}"
            parts.append(f"CREATE TEMP TRIGGER {name} AFTER {event} ON main.{kind.table} BEGIN {body} END;")
    return "\n".join(parts)
