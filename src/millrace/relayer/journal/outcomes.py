"""How sponsored transactions ended: what reputations and losses are made from, and restored from after a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from millrace.chain.address import is_contract
from millrace.relayer.journal.chain import Kind, content, tell
from millrace.relayer.rules.policy import CallName, Target

SCHEMA = """
CREATE TABLE IF NOT EXISTS outcomes (
    client_hash BLOB PRIMARY KEY,
    time_ms INTEGER NOT NULL,
    relayer BLOB NOT NULL,
    sender BLOB NOT NULL,
    contract BLOB,                -- called by it; NULL for a transfer
    function TEXT,
    cost TEXT NOT NULL,           -- what the relayer paid, atomic units
    failed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS outcomes_time ON outcomes (time_ms);
"""

KIND = Kind(
    "outcome",
    "outcomes",
    ("{}client_hash", "{}relayer", "{}sender", "{}contract"),
    ("{}time_ms", "{}function", "{}cost", "{}failed"),
    told=True,
)

OUTCOMES_AT_ONCE = 32

_Row = tuple[bytes, int, bytes, bytes, bytes | None, str | None, str, int]
"""The values of a row."""

Read = Callable[[str, tuple[Any, ...]], list[Any]]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The end of one sponsored transaction; a row of the table."""

    client_hash: bytes
    time_ms: int
    relayer: bytes
    sender: bytes
    call: CallName | None
    cost: int
    failed: bool


def write(connection: sqlite3.Connection, outcomes: Sequence[Outcome]) -> None:
    """Append outcomes, where there is none of the transaction yet; the caller commits."""
    for start in range(0, len(outcomes), OUTCOMES_AT_ONCE):
        part = outcomes[start : start + OUTCOMES_AT_ONCE]
        rows = {item.client_hash: _row(item) for item in reversed(part)}  # the first of each is the one that stays
        values = [value for row in rows.values() for value in row]
        there = connection.execute(_insert(len(rows)), values).fetchall()
        tell(connection, len(there), [_content(rows[client_hash]) for (client_hash,) in there])


def _row(item: Outcome) -> _Row:
    contract, function = item.call or (None, None)
    return (
        item.client_hash, item.time_ms, item.relayer, item.sender, contract, function, str(item.cost), int(item.failed)
    )  # fmt: skip


def _content(row: _Row) -> bytes:
    """What `KIND` keeps of a row."""
    client_hash, time_ms, relayer, sender, contract, function, cost, failed = row
    return content(("outcome", client_hash, relayer, sender, contract, time_ms, function, cost, failed))


@lru_cache(OUTCOMES_AT_ONCE)
def _insert(count: int) -> str:
    """The statement that appends so many outcomes and answers with those that are new."""
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * count)
    return f"INSERT INTO outcomes VALUES {rows} ON CONFLICT DO NOTHING RETURNING client_hash"


def since(read: Read, time_ms: int) -> list[Outcome]:
    """Outcomes since `time_ms`, oldest first."""
    rows = read(
        "SELECT client_hash, time_ms, relayer, sender, contract, function, cost, failed FROM outcomes "
        "WHERE time_ms >= ? ORDER BY time_ms",
        (time_ms,),
    )
    return [
        Outcome(
            client, at, relayer, sender, CallName(contract, function) if contract else None, int(cost), bool(failed)
        )
        for client, at, relayer, sender, contract, function, cost, failed in rows
    ]


def prune(connection: sqlite3.Connection, before_ms: int) -> None:
    """Forget what no window reaches back to."""
    connection.execute("DELETE FROM outcomes WHERE time_ms < ?", (before_ms,))


def call_of(target: Target) -> CallName | None:
    """The function of a contract that a transaction calls, if it calls one."""
    return CallName(target.receiver, target.function) if is_contract(target.receiver) else None
