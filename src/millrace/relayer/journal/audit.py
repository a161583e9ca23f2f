"""The append-only record of what was reserved, paid, given back and written off; budgets are restored from it alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from millrace.relayer.journal.chain import Kind, content, tell

Event = Literal["reserve", "settle", "refund", "write-off"]
"""`reserve` takes an amount; one of the others ends it: with what was really paid, with nothing, or, by its operator's
word, with all of it although the transaction may still run."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY,       -- in the order of writing: nothing is ever deleted
    time_ms INTEGER NOT NULL,
    event TEXT NOT NULL,          -- reserve, settle, refund or write-off
    relayer BLOB NOT NULL,
    sender BLOB NOT NULL,
    nonce INTEGER NOT NULL,
    client_hash BLOB NOT NULL,
    amount TEXT NOT NULL          -- reserved; really paid; given back; written off
);
CREATE TRIGGER IF NOT EXISTS audit_is_append_only_1 BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS audit_is_append_only_2 BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
"""
NO_DELETE = """CREATE TRIGGER audit_is_append_only_2 BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"""
"""The second trigger alone."""

KIND = Kind(
    "audit",
    "audit",
    ("{}relayer", "{}sender", "{}client_hash"),
    ("{}id", "{}time_ms", "{}event", "{}nonce", "{}amount"),
    told=True,
)

LINES_AT_ONCE = 32

_CLOCK_SLACK_MS = 3_600_000
"""Lines are written in the order of ids; their times may be out of order by as much as the wall clock was set back."""
_SPAN_MS = 86_400_000
"""The longest span that is asked for: of a budget of a day."""
_LINES_BEFORE = 20_000
"""So many lines before the first of a span are looked at, too: a machine without a clock of its own begins at a time
long past, until somebody sets it, and what it writes by then stands between lines of the span. Some 5 ms."""

Read = Callable[[str, tuple[Any, ...]], list[Any]]
Line = tuple[int, Event, bytes, bytes, int, bytes, int]
"""Time in ms, event, relayer key, sender, nonce, client hash, amount in atomic units."""


class Spent(msgspec.Struct):
    """One reservation and how it ended, as far as the log tells."""

    relayer: bytes
    sender: bytes
    client_hash: bytes
    time_ms: int
    fee: int
    """Reserved: the most it can cost."""
    cost: int | None = None
    """What it did cost; `None` while it may still run."""


def write(connection: sqlite3.Connection, lines: Sequence[Line]) -> None:
    """Append lines; the caller commits. Many at once: each statement costs a thread a turn with the interpreter."""
    for start in range(0, len(lines), LINES_AT_ONCE):
        part = lines[start : start + LINES_AT_ONCE]
        cursor = connection.execute(_insert(len(part)), [value for line in part for value in (*line[:6], str(line[6]))])
        first = (cursor.lastrowid or 0) - len(part) + 1  # nothing is ever deleted, so ids follow each other
        tell(connection, len(part), [_content(first + place, line) for place, line in enumerate(part)])


def _content(line_id: int, line: Line) -> bytes:
    """What `KIND` keeps of a line."""
    time_ms, event, relayer, sender, nonce, client_hash, amount = line
    return content(("audit", relayer, sender, client_hash, line_id, time_ms, event, nonce, str(amount)))


@lru_cache(LINES_AT_ONCE)
def _insert(count: int) -> str:
    """The statement that appends so many lines."""
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * count)
    return f"INSERT INTO audit (time_ms, event, relayer, sender, nonce, client_hash, amount) VALUES {rows}"


def spent_since(read: Read, time_ms: int) -> list[Spent]:
    """Every reservation made since `time_ms` that was not given back, oldest first."""
    first = _first_since(read, time_ms - _CLOCK_SLACK_MS)
    rows = read(
        "SELECT event, relayer, sender, client_hash, time_ms, amount FROM audit WHERE id >= ? ORDER BY id", (first,)
    )
    return sorted((item for item in replay(rows) if item.time_ms >= time_ms), key=lambda item: item.time_ms)


def paid_since(read: Read, time_ms: int) -> list[tuple[int, bytes, int]]:
    """Time in ms, relayer key and amount of every fee settled since `time_ms`, oldest first."""
    first = _first_since(read, time_ms - _CLOCK_SLACK_MS)
    rows = read(
        "SELECT time_ms, relayer, amount FROM audit WHERE id >= ? AND event = 'settle' AND time_ms >= ? ORDER BY id",
        (first, time_ms),
    )
    return [(at, relayer, int(amount)) for at, relayer, amount in rows]


def replay(rows: Iterable[tuple[Event, bytes, bytes, bytes, int, str]]) -> Iterator[Spent]:
    """Fold lines, oldest first, into reservations; those given back are left out.

    The same bytes can be reserved again after they were given back. An end whose beginning is not among the lines
    belongs to an older reservation.
    """
    open_: dict[bytes, Spent] = {}
    for event, relayer, sender, client_hash, time_ms, amount in rows:
        if event == "reserve":
            open_[client_hash] = Spent(relayer, sender, client_hash, time_ms, int(amount))
            continue
        item = open_.pop(client_hash, None)
        if item is not None and event != "refund":
            item.cost = int(amount)
            yield item
    yield from open_.values()


def _first_since(read: Read, time_ms: int) -> int:
    """An id before which all lines are older, found by halving: the log is kept for ever and has no index of times."""
    first = _halved(read, time_ms)
    newest = read("SELECT max(time_ms) FROM (SELECT time_ms FROM audit ORDER BY id DESC LIMIT 1)", ())[0][0] or 0
    until = max(newest, time_ms + _SPAN_MS) + _CLOCK_SLACK_MS  # the newest line itself may be of such a clock
    while True:  # behind lines of a clock that stood far too early there may be more of the span
        before, is_within = read(
            "SELECT min(id), max(time_ms BETWEEN ? AND ?) FROM "
            "(SELECT id, time_ms FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?)",
            (time_ms, until, first, _LINES_BEFORE),
        )[0]
        if not is_within:
            return first
        first = before


def _halved(read: Read, time_ms: int) -> int:
    """The same for lines in the order of their times."""
    low, high = 0, (read("SELECT max(id) FROM audit", ())[0][0] or 0) + 1
    while low < high:
        middle = (low + high) // 2
        found = read("SELECT id, time_ms FROM audit WHERE id >= ? ORDER BY id LIMIT 1", (middle,))
        if found and found[0][1] < time_ms:
            low = found[0][0] + 1
        else:
            high = middle
    return low
