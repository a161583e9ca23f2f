"""What sponsoring programmes have paid: open charges, and for each user how many and how much.

A charge is written in the commit of its submission, and goes into its user's total in the commit of its end, so both
tables are bounded: by what may be in flight, and by the users of a programme.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from millrace.relayer.journal.chain import Kind

SCHEMA = """
CREATE TABLE IF NOT EXISTS programme_charges (
    client_hash BLOB PRIMARY KEY, -- of what may still run
    programme TEXT NOT NULL,
    sender BLOB NOT NULL,
    fee TEXT NOT NULL             -- the most it can cost, atomic units
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS programme_users (
    programme TEXT NOT NULL,
    sender BLOB NOT NULL,
    transactions INTEGER NOT NULL, -- that are over and were paid for
    spent TEXT NOT NULL,          -- what they did cost, atomic units
    time_ms INTEGER NOT NULL,     -- of the last one; of one of them also when the policy named the programme
    PRIMARY KEY (programme, sender)
) WITHOUT ROWID;
"""

KINDS = (
    Kind("charge", "programme_charges", ("{}client_hash", "{}sender"), ("{}programme", "{}fee")),
    Kind("user", "programme_users", ("{}sender",), ("{}programme", "{}transactions", "{}spent", "{}time_ms")),
)

Read = Callable[[str, tuple[Any, ...]], list[Any]]


class Charge(msgspec.Struct, frozen=True, gc=False):
    """A transaction that may still run, and the programme that pays for it."""

    client_hash: bytes
    programme: str
    sender: bytes
    fee: int


class User(NamedTuple):
    """What a programme has paid of one sender's."""

    programme: str
    sender: bytes
    transactions: int
    spent: int
    time_ms: int


def write(connection: sqlite3.Connection, charges: Sequence[Charge]) -> None:
    """Keep charges, in the commit of their submissions. What was given back may be charged again."""
    values = [(item.client_hash, item.programme, item.sender, str(item.fee)) for item in charges]
    connection.executemany("INSERT OR REPLACE INTO programme_charges VALUES (?, ?, ?, ?)", values)


def end(connection: sqlite3.Connection, client_hash: bytes, cost: int, time_ms: int) -> None:
    """A charge is over, for `cost`; one that cost nothing does not count."""
    of_hash = (client_hash,)
    found = connection.execute(
        "SELECT programme, sender FROM programme_charges WHERE client_hash = ?", of_hash
    ).fetchone()
    if found is None:
        return
    connection.execute("DELETE FROM programme_charges WHERE client_hash = ?", of_hash)
    if not cost:
        return
    transactions, spent = connection.execute(
        "SELECT transactions, spent FROM programme_users WHERE programme = ? AND sender = ?", found
    ).fetchone() or (0, "0")
    # Amounts are beyond SQLite's integers, so they are added here.
    connection.execute(
        "INSERT OR REPLACE INTO programme_users VALUES (?, ?, ?, ?, ?)",
        (*found, transactions + 1, str(int(spent) + cost), time_ms),
    )


def tidy(connection: sqlite3.Connection, gone: Iterable[str], named: Iterable[str], now_ms: int) -> None:
    """Drop what programmes that are no more have paid, and keep with one user of others that the policy names them."""
    connection.executemany("DELETE FROM programme_users WHERE programme = ?", [(name,) for name in gone])
    connection.executemany(
        "UPDATE programme_users SET time_ms = max(time_ms, ?1) WHERE programme = ?2 AND sender = "
        "(SELECT min(sender) FROM programme_users WHERE programme = ?2)",
        [(now_ms, name) for name in named],
    )


def charges(read: Read) -> list[Charge]:
    """All that may still run."""
    rows = read("SELECT client_hash, programme, sender, fee FROM programme_charges", ())
    return [Charge(client_hash, programme, sender, int(fee)) for client_hash, programme, sender, fee in rows]


def users(read: Read) -> list[User]:
    """All that programmes have paid."""
    rows = read("SELECT programme, sender, transactions, spent, time_ms FROM programme_users", ())
    return [
        User(programme, sender, transactions, int(spent), time_ms)
        for programme, sender, transactions, spent, time_ms in rows
    ]
