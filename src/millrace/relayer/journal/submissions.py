"""Rows of the journal's tables of submissions: what is kept of each, and the statements that write many at once.

Rows lie in the order of writing, and so do the signatures of our keys, in a table of their own: a commit changes the
last pages of both and a few of the index. Rows by sender, which grew when they were signed, changed twice as many.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from millrace.relayer.journal.chain import Kind, content, tell
from millrace.relayer.rules.stages import cosigned, hash_of

MAX_NONCE = 2**63 - 1
"""What a row can hold; an account that has got that far is not of this world."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY,
    sender BLOB NOT NULL,
    nonce INTEGER NOT NULL,
    client_hash BLOB NOT NULL,
    tx BLOB NOT NULL,             -- protobuf, as it was journalled: the signature of a key of ours comes later
    kind TEXT NOT NULL,           -- relay, sign or broadcast
    relayer BLOB,                 -- our key, when it was asked to sign and so to pay
    fee TEXT NOT NULL,            -- the most it can cost, atomic units
    cost TEXT,                    -- what it did cost, once known
    ip TEXT NOT NULL,             -- from where, and who by name if an API key told that: see `origin_text`
    created_ms INTEGER NOT NULL,
    state TEXT NOT NULL,          -- journalled, signed, expired; over: finished, superseded, dropped
    broadcast INTEGER NOT NULL,
    ended_ms INTEGER,             -- never set where a fee was written off: it may still run
    UNIQUE (sender, nonce)
);
CREATE TABLE IF NOT EXISTS signatures (
    id INTEGER PRIMARY KEY,       -- of the submission; one that is journalled and has a row here is signed
    signature BLOB NOT NULL
);
CREATE TRIGGER IF NOT EXISTS signatures_go_with_submissions BEFORE DELETE ON submissions
    BEGIN DELETE FROM signatures WHERE id = old.id; END;
"""

KINDS = (
    # Its client hash stands for the transaction (`misnamed`), but for the signature of a relayer that is not ours.
    Kind(
        "row",
        "submissions",
        ("{}sender", "{}client_hash", "substr({}tx, -64)", "{}relayer"),
        ("{}nonce", "{}kind", "{}fee", "{}ip"),
        told=True,
    ),
    Kind(
        "state",
        "submissions",
        ("{}client_hash",),
        ("{}state", "{}cost", "{}broadcast", "{}created_ms", "{}ended_ms"),
        told=True,
    ),
    Kind(
        "signature",
        "signatures",
        ("(SELECT sender FROM submissions WHERE submissions.id = {}id)", "{}signature"),
        ("(SELECT nonce FROM submissions WHERE submissions.id = {}id)",),
        told=True,
    ),
)

# sqlite3 looks for another form of every value but exact `int`, `float` and `str`, which takes longer than binding it.
# With an adapter, which changes nothing, it looks no further; these are called quickest.
sqlite3.register_adapter(bytes, bytes.__bytes__)
sqlite3.register_adapter(bool, bool.__int__)
sqlite3.register_adapter(type(None), lambda value: value)

OPEN = ("journalled", "signed", "expired")
"""States of what may still run."""
ROWS_AT_ONCE = 32
"""Rows of one statement: each statement costs the writer thread a turn with the interpreter, which others hold."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One submission. What its transaction says anyway is not written: `insert` leaves out the chain hash."""

    sender: bytes
    nonce: int
    client_hash: bytes
    chain_hash: bytes | None
    """Of what has all its signatures."""
    tx: bytes
    """In protobuf form, with the signature of our key once it is there."""
    kind: str
    relayer: bytes | None
    fee: int
    cost: int | None
    ip: str
    """See `origin_text`."""
    created_ms: int
    state: str
    broadcast: bool


def origin_text(address: str, person: str) -> str:
    """What a row says of who asked: the client's address, and behind a space their name, if an API key told it."""
    return f"{address} {person}" if person else address


def origin_of(text: str) -> tuple[str, str]:
    """Address and name in what `origin_text` made; the name is empty for strangers."""
    address, _, person = text.partition(" ")
    return address, person


RELAYER_SIGNATURE = 67
"""Bytes of that field: its tag, its length, 64 bytes of signature."""

Cosigned = tuple[bytes, int, bytes]
"""Sender and nonce of a transaction, and its relayer's signature."""
End = tuple[bytes, int, bytes, str, str | None, int | None]
"""Sender, nonce and client hash of what is over, its state, what it cost, and when that was, in ms."""

COLUMNS = "sender, nonce, client_hash, tx, kind, relayer, fee, cost, ip, created_ms, state, broadcast"
STATE = "iif(state = 'journalled' AND signature IS NOT NULL, 'signed', state)"
"""The state of a row of `SIGNED`."""
SIGNED = "submissions LEFT JOIN signatures USING (id)"
SELECT = f"SELECT {COLUMNS.replace('state', STATE)}, signature FROM {SIGNED}"
"""The beginning of a question for rows that `record` reads."""

# A row gives way only when no key of ours may have signed it: it was not ours to sign, or it was withdrawn, which
# alone leaves a cost of 0 without a signature. Whatever the chain is thought to say, a signed nonce stays taken.
_GIVES_WAY = (
    "(state IN ('finished', 'superseded', 'dropped') AND (relayer IS NULL OR (cost = '0' "
    "AND NOT EXISTS (SELECT 1 FROM signatures WHERE signatures.id = submissions.id))))"
)
_GIVE_WAY = f"DELETE FROM submissions WHERE sender = ? AND nonce = ? AND {_GIVES_WAY}"
KEPT = f"SELECT 1 FROM submissions WHERE sender = ? AND nonce = ? AND {_GIVES_WAY} IS NOT TRUE"
"""The rows of a sender and nonce that let in no other."""


@lru_cache(ROWS_AT_ONCE)
def _insert(count: int) -> str:
    """The statement that inserts so many rows."""
    row = f"({', '.join('?' * len(COLUMNS.split(', ')))})"
    return f"INSERT INTO submissions ({COLUMNS}) VALUES {', '.join([row] * count)}"


@lru_cache(ROWS_AT_ONCE)
def _end(count: int) -> str:
    """The statement that writes so many `End`s."""
    return (
        "UPDATE submissions SET state = column4, cost = column5, ended_ms = column6 "
        f"FROM (VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * count)}) "
        "WHERE sender = column1 AND nonce = column2 AND client_hash = column3"
    )


class Beside(NamedTuple):
    """A table that has at most one row of a submission, under the same number: who ends together lies together."""

    insert: str
    width: int
    """Values of what is put: sender and nonce, and more."""
    which: str
    """Of the rows with this sender and nonce, …"""
    content: Callable[[tuple[Any, ...]], bytes]
    """What the chain keeps of these values."""


def put_beside(connection: sqlite3.Connection, table: Beside, rows: Sequence[tuple[Any, ...]]) -> None:
    """Put rows where those of their submissions are there, and nothing is in their place."""
    for start in range(0, len(rows), ROWS_AT_ONCE):
        _put_part(connection, table, rows[start : start + ROWS_AT_ONCE])


def _put_part(connection: sqlite3.Connection, table: Beside, part: Sequence[tuple[Any, ...]]) -> None:
    values = [value for row in part for value in row]
    try:
        put = connection.execute(f"INSERT INTO {table.insert} {_there(table, len(part))}", values).rowcount
    except sqlite3.IntegrityError as error:  # one of them is there already
        if error.sqlite_errorname != "SQLITE_CONSTRAINT_PRIMARYKEY":
            raise
        if len(part) > 1:
            for row in part:
                _put_part(connection, table, [row])
        return
    if put < len(part):  # the rows of the others are gone
        columns = ", ".join(f"column{number + 1}" for number in range(table.width))
        part = connection.execute(f"SELECT {columns} {_there(table, len(part))}", values).fetchall()
    tell(connection, put, map(table.content, part))


@lru_cache(2 * ROWS_AT_ONCE)
def _there(table: Beside, count: int) -> str:
    """So many of a table's rows, as far as their submissions are there."""
    row = f"({', '.join('?' * table.width)})"
    return (
        f"FROM (VALUES {', '.join([row] * count)}) "
        f"CROSS JOIN submissions ON sender = column1 AND nonce = column2{table.which}"
    )


def _row(item: Record) -> tuple[Any, ...]:
    """The values of `COLUMNS`."""
    cost = None if item.cost is None else str(item.cost)
    return (
        item.sender, item.nonce, item.client_hash, item.tx, item.kind, item.relayer, str(item.fee),
        cost, item.ip, item.created_ms, item.state, item.broadcast,
    )  # fmt: skip


def record(row: tuple[Any, ...]) -> Record:
    """The record in a row that was asked for with `SELECT`."""
    sender, nonce, client, tx, kind, relayer, fee, cost, ip, created_ms, state, broadcast, signature = row
    if signature is not None:
        tx = cosigned(tx, signature)
    chain = hash_of(tx) if signature is not None or relayer is None else None
    return Record(
        sender, nonce, client, chain, tx, kind, relayer, int(fee), None if cost is None else int(cost), ip, created_ms,
        state, bool(broadcast),
    )  # fmt: skip


def insert(connection: sqlite3.Connection, records: Sequence[Record]) -> int:
    """Write records where nothing is in their way; how many that were."""
    written = 0
    for start in range(0, len(records), ROWS_AT_ONCE):
        written += _insert_part(connection, records[start : start + ROWS_AT_ONCE])
    return written


def _insert_part(connection: sqlite3.Connection, part: Sequence[Record]) -> int:
    """All at once where nothing is in the way of any of them, which is nearly always, else each alone."""
    try:
        connection.execute(_insert(len(part)), [value for item in part for value in _row(item)])
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorname != "SQLITE_CONSTRAINT_UNIQUE":
            raise
        if len(part) > 1:
            return sum([_insert_part(connection, [item]) for item in part])
        if not connection.execute(_GIVE_WAY, (part[0].sender, part[0].nonce)).rowcount:
            return 0
        connection.execute(_insert(1), _row(part[0]))
    tell(connection, len(part), [made for item in part for made in _contents(item)])
    return len(part)


def _contents(item: Record) -> tuple[bytes, bytes]:
    """What the first two of `KINDS` keep of a row that was just inserted."""
    client, cost = item.client_hash, None if item.cost is None else str(item.cost)
    return (
        content(
            ("row", item.sender, client, item.tx[-64:], item.relayer, item.nonce, item.kind, str(item.fee), item.ip)
        ),
        content(("state", client, item.state, cost, int(item.broadcast), item.created_ms, None)),
    )


def take_signatures(connection: sqlite3.Connection, rows: Sequence[Cosigned]) -> None:
    """Keep what our keys have signed; made twice they are the same."""
    put_beside(connection, _SIGNATURES, rows)


def _content_of_signature(row: tuple[Any, ...]) -> bytes:
    """What the last of `KINDS` keeps of a `Cosigned`."""
    sender, nonce, signature = row
    return content(("signature", sender, signature, nonce))


_SIGNATURES = Beside("signatures SELECT id, column3", 3, "", _content_of_signature)


def end(connection: sqlite3.Connection, ends: Sequence[End]) -> None:
    """Say of rows that they are over."""
    for start in range(0, len(ends), ROWS_AT_ONCE):
        part = ends[start : start + ROWS_AT_ONCE]
        connection.execute(_end(len(part)), [value for item in part for value in item])


def misnamed(connection: sqlite3.Connection) -> tuple[bytes, int] | None:
    """Sender and nonce of a row whose transaction does not hash to its client hash, if there is one.

    The hash leaves out a relayer's signature, which is the last field of what somebody else has co-signed.
    """
    rows = connection.execute("SELECT tx, client_hash, sender, nonce FROM submissions NOT INDEXED")
    for tx, client_hash, sender, nonce in rows:
        if hash_of(tx) != client_hash and hash_of(tx[:-RELAYER_SIGNATURE]) != client_hash:
            return sender, nonce
    return None
