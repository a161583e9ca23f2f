"""Rows of the journal's table of submissions: what is kept of each, and the statements that write many at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

SCHEMA = """
CREATE TABLE IF NOT EXISTS submissions (
    sender BLOB NOT NULL,
    nonce INTEGER NOT NULL,
    client_hash BLOB NOT NULL,
    chain_hash BLOB,
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
DROP INDEX IF EXISTS submissions_client;
DROP INDEX IF EXISTS submissions_chain;
DROP INDEX IF EXISTS submissions_created;
"""

# sqlite3 looks for another form of every value but exact `int`, `float` and `str`, which takes longer than binding it.
# With an adapter, which changes nothing, it looks no further; these are called quickest.
sqlite3.register_adapter(bytes, bytes.__bytes__)
sqlite3.register_adapter(bool, bool.__int__)
sqlite3.register_adapter(type(None), lambda value: value)

ROWS_AT_ONCE = 32
"""Rows of one statement: each statement costs the writer thread a turn with the interpreter, which others hold."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row of `submissions`."""

    sender: bytes
    nonce: int
    client_hash: bytes
    chain_hash: bytes | None
    tx: bytes
    kind: str
    relayer: bytes | None
    fee: int
    cost: int | None
    ip: str
    created_ms: int
    state: str
    broadcast: bool


Cosigned = tuple[bytes, bytes, bytes, int]
"""A transaction in protobuf form with its relayer's signature, its chain hash, its sender and nonce."""

COLUMNS = ", ".join(Record.__struct_fields__)


# A row gives way only when no key of ours may have signed it: it was not ours to sign, or it was withdrawn, which
# alone leaves a cost of 0 without a chain hash. Whatever the chain is thought to say, a signed nonce stays taken.
_GIVES_WAY = (
    "ON CONFLICT (sender, nonce) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in Record.__struct_fields__)
    + ", ended_ms = NULL WHERE submissions.state IN ('finished', 'superseded', 'dropped') "
    "AND (submissions.relayer IS NULL OR (submissions.chain_hash IS NULL AND submissions.cost = '0'))"
)


@lru_cache(ROWS_AT_ONCE)
def _insert(count: int) -> str:
    """The statement that inserts so many rows."""
    row = f"({', '.join('?' * len(Record.__struct_fields__))})"
    return f"INSERT INTO submissions ({COLUMNS}) VALUES {', '.join([row] * count)} {_GIVES_WAY}"


@lru_cache(ROWS_AT_ONCE)
def _update(count: int) -> str:
    """The statement that takes over so many `Cosigned`."""
    return (
        "UPDATE submissions SET tx = column1, chain_hash = column2, state = 'signed' "
        f"FROM (VALUES {', '.join(['(?, ?, ?, ?)'] * count)}) WHERE sender = column3 AND nonce = column4"
    )


def _row(item: Record) -> tuple[Any, ...]:
    """The values of `COLUMNS`."""
    cost = None if item.cost is None else str(item.cost)
    return (
        item.sender, item.nonce, item.client_hash, item.chain_hash, item.tx, item.kind, item.relayer, str(item.fee),
        cost, item.ip, item.created_ms, item.state, item.broadcast,
    )  # fmt: skip


def record(row: tuple[Any, ...]) -> Record:
    values = dict(zip(Record.__struct_fields__, row, strict=True))
    values["fee"] = int(values["fee"])
    values["cost"] = None if values["cost"] is None else int(values["cost"])
    values["broadcast"] = bool(values["broadcast"])
    return Record(**values)


def insert(connection: sqlite3.Connection, records: Sequence[Record]) -> int:
    """Write records where nothing is in their way; how many that were."""
    written = 0
    for start in range(0, len(records), ROWS_AT_ONCE):
        part = records[start : start + ROWS_AT_ONCE]
        written += connection.execute(_insert(len(part)), [value for item in part for value in _row(item)]).rowcount
    return written


def take_signatures(connection: sqlite3.Connection, rows: Sequence[Cosigned]) -> None:
    """Keep what our keys have signed."""
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        connection.execute(_update(len(part)), [value for row in part for value in row])
