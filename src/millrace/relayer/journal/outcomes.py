"""How sponsored transactions ended: what reputations and losses are made from, and restored from after a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec

from millrace.chain.address import is_contract
from millrace.relayer.journal.chain import Kind
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
)

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


def write(connection: sqlite3.Connection, outcome: Outcome) -> None:
    """Append an outcome; the caller commits."""
    contract, function = outcome.call or (None, None)
    connection.execute(
        "INSERT OR IGNORE INTO outcomes VALUES (?,?,?,?,?,?,?,?)",
        (
            outcome.client_hash, outcome.time_ms, outcome.relayer, outcome.sender, contract, function,
            str(outcome.cost), int(outcome.failed),
        ),
    )  # fmt: skip


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
