"""How sponsored transactions ended: what reputations and losses are made from, and restored from after a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from millrace.chain.address import is_contract
from millrace.relayer.journal.chain import Kind, content
from millrace.relayer.journal.submissions import Beside, put_beside
from millrace.relayer.rules.policy import CallName, Target

SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    id INTEGER PRIMARY KEY,       -- of the submission
    time_ms INTEGER NOT NULL,
    contract BLOB,                -- called by it; NULL for a transfer
    function TEXT,
    paid TEXT NOT NULL,           -- by the relayer, atomic units
    failed INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS results_go_with_submissions BEFORE DELETE ON submissions
    BEGIN DELETE FROM results WHERE id = old.id; END;
"""

KIND = Kind(
    "result",
    "results",
    ("(SELECT client_hash FROM submissions WHERE submissions.id = {}id)", "{}contract"),
    ("{}time_ms", "{}function", "{}paid", "{}failed"),
    told=True,
)
BEFORE = Kind(
    "outcome",
    "outcomes",
    ("{}client_hash", "{}relayer", "{}sender", "{}contract"),
    ("{}time_ms", "{}function", "{}cost", "{}failed"),
)
"""The same of files of earlier versions, whose rows lay in the order of their hashes, and so in a page each."""

Read = Callable[[str, tuple[Any, ...]], list[Any]]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The end of one sponsored transaction."""

    client_hash: bytes
    time_ms: int
    relayer: bytes
    sender: bytes
    nonce: int
    call: CallName | None
    cost: int
    failed: bool


def write(connection: sqlite3.Connection, outcomes: Sequence[Outcome]) -> None:
    """Keep outcomes, where there is none of the transaction yet; the caller commits."""
    put_beside(connection, _RESULTS, [_row(item) for item in outcomes])


def _row(item: Outcome) -> tuple[Any, ...]:
    contract, function = item.call or (None, None)
    return (
        item.sender, item.nonce, item.client_hash, item.time_ms, contract, function, str(item.cost), int(item.failed)
    )  # fmt: skip


def _content(row: tuple[Any, ...]) -> bytes:
    """What `KIND` keeps of a row."""
    _, _, client_hash, time_ms, contract, function, paid, failed = row
    return content(("result", client_hash, contract, time_ms, function, paid, failed))


_RESULTS = Beside(
    "results SELECT id, column4, column5, column6, column7, column8", 8, " AND client_hash = column3", _content
)


def since(read: Read, time_ms: int) -> list[Outcome]:
    """Outcomes since `time_ms`, oldest first."""
    rows = read(
        "SELECT client_hash, time_ms, relayer, sender, nonce, contract, function, paid, failed "
        "FROM results JOIN submissions USING (id) WHERE time_ms >= ? ORDER BY time_ms",
        (time_ms,),
    )
    return [
        Outcome(
            client, at, key, sender, nonce, CallName(contract, function) if contract else None, int(paid), bool(failed)
        )
        for client, at, key, sender, nonce, contract, function, paid, failed in rows
    ]


def prune(connection: sqlite3.Connection, before_ms: int) -> None:
    """Forget what no window reaches back to, from the oldest submission on up to the first that counts."""
    first = "SELECT id FROM results WHERE time_ms >= ? ORDER BY id LIMIT 1"
    connection.execute(
        f"DELETE FROM results WHERE id < coalesce(({first}), (SELECT max(id) + 1 FROM results))", (before_ms,)
    )


def call_of(target: Target) -> CallName | None:
    """The function of a contract that a transaction calls, if it calls one."""
    return CallName(target.receiver, target.function) if is_contract(target.receiver) else None
