"""Old lines of the audit log put into files, and the proof that the files hold what the log held.

Each line hashes together with the one before it to the next link, from file to file; the last link stays in the
journal. So whoever has the journal can tell of a row of files whether a line was changed, taken out or put in.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from millrace.relayer.journal import audit
from millrace.relayer.journal.advice import told
from millrace.relayer.journal.journal import Journal
from millrace.runtime import files

FORMAT = "millrace relayer audit 1"
KEPT_MS = 48 * 3_600_000
"""The budget of a day is restored from the log, whose times may be out of order by as much as clocks are set."""
ROWS_AT_ONCE = 10_000
_META = "archived"
_MAX_LINE = 4096


class ArchiveError(Exception):
    """Nothing is archived, or a file is not what was archived; the text says why."""


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a file."""

    format: str
    id: str
    """Of the data directory."""
    before: str
    """The last link of the file before, empty in the first."""


class End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to where a log is archived: the last line of a file, and what the journal keeps."""

    last: int
    """The number of the last line."""
    link: str


class Line(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One line of the log."""

    number: int
    time_ms: int
    event: str
    relayer: str
    sender: str
    nonce: int
    client_hash: str
    amount: str


async def archive(journal: Journal, identity: str, before_ms: int, file: Path) -> int:
    """Put the lines from before a time into a new file, then take them out of an open journal; how many.

    The newest line always stays. Killed in between, the file is there and the log is whole: another file can be made.
    Raises `ArchiveError` or `JournalError`.
    """
    if before_ms > time.time_ns() // 1_000_000 - KEPT_MS:
        raise ArchiveError(f"the last {KEPT_MS // 3_600_000} hours stay: budgets are restored from them")
    last = _last_before(journal, before_ms)
    if last is None:
        raise ArchiveError("there is nothing as old as that in the log")
    so_far = kept(journal)
    try:
        count, end = _write(journal, Head(FORMAT, identity, so_far.link if so_far else ""), last, file)
    except OSError as error:
        raise ArchiveError(told(error, file)) from None
    journal.change(lambda connection: _take_out(connection, end))
    await journal.flush()
    return count


def kept(journal: Journal) -> End | None:
    """Up to where the log is archived; `None` if it never was."""
    found = journal.read("SELECT value FROM meta WHERE name = ?", (_META,))
    return msgspec.json.decode(found[0][0], type=End) if found else None


def verify(journal: Journal, identity: str, files: Sequence[Path]) -> int:
    """Check all files of a journal, oldest first, against it; the number of lines. Raises `ArchiveError`."""
    end, count = End(0, ""), 0
    for file in files:
        lines, end = _verified(file, identity, end)
        count += lines
    if end != (kept(journal) or End(0, "")):
        raise ArchiveError("these are not all files that were archived from this journal, or not in their order")
    return count


def _last_before(journal: Journal, before_ms: int) -> int | None:
    """The last line such that it and all before it are older, but never the log's last."""
    found = journal.read("SELECT min(id) FROM audit WHERE time_ms >= ?", (before_ms,))[0][0]
    first, newest = journal.read("SELECT min(id), max(id) FROM audit")[0]
    if newest is None:
        return None
    last = min(newest, found if found is not None else newest) - 1
    return int(last) if last >= first else None


def _write(journal: Journal, head: Head, last: int, file: Path) -> tuple[int, End]:
    """The file, on disk when this returns; the number of its lines, and its end."""
    count, link = 0, head.before
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        output.write(msgspec.json.encode(head) + b"\n")
        for line in _lines(journal, last):
            data = msgspec.json.encode(line)
            link = _next(link, data)
            output.write(data + b"\n")
            count += 1
        end = End(last, link)
        output.write(msgspec.json.encode(end) + b"\n")
        output.flush()
        os.fsync(output.fileno())
    files.sync(file.parent)
    return count, end


def _lines(journal: Journal, last: int) -> Iterator[Line]:
    after = 0
    while after < last:
        rows = journal.read(
            "SELECT id, time_ms, event, hex(relayer), hex(sender), nonce, hex(client_hash), amount FROM audit "
            f"WHERE id > ? AND id <= ? ORDER BY id LIMIT {ROWS_AT_ONCE}",
            (after, last),
        )
        for row in rows:
            yield Line(*row)
        after = rows[-1][0] if rows else last


def _take_out(connection: sqlite3.Connection, end: End) -> None:
    """The log lets nothing go but what was archived, in one commit with the proof of it."""
    connection.execute("DROP TRIGGER audit_is_append_only_2")
    connection.execute("DELETE FROM audit WHERE id <= ?", (end.last,))
    connection.execute(audit.NO_DELETE)
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_META, msgspec.json.encode(end).decode()))


def _verified(file: Path, identity: str, before: End) -> tuple[int, End]:
    """The number of lines and the end of a file that goes on where another ended. Raises `ArchiveError`."""
    try:
        with file.open("rb") as lines:
            head = msgspec.json.decode(lines.readline(_MAX_LINE), type=Head)
            if (head.format, head.id, head.before) != (FORMAT, identity, before.link):
                raise ArchiveError(f"{file} does not go on where the one before it ends, or is another folder's")
            return _chained(file, lines, before)
    except (OSError, msgspec.DecodeError) as error:
        raise ArchiveError(f"{file}: {error}") from None


def _chained(file: Path, lines: BinaryIO, before: End) -> tuple[int, End]:
    count, number, link = 0, before.last, before.link
    while data := lines.readline(_MAX_LINE).removesuffix(b"\n"):
        if data.startswith(b"{"):
            if msgspec.json.decode(data, type=End) != End(number, link) or lines.read(1):
                break
            return count, End(number, link)
        line = msgspec.json.decode(data, type=Line)
        if line.number <= number:
            break
        count, number, link = count + 1, line.number, _next(link, data)
    raise ArchiveError(f"{file}: a line was changed, taken out or put in, at or behind number {number + 1}")


def _next(link: str, data: bytes) -> str:
    return hashlib.sha256(link.encode() + data).hexdigest()
