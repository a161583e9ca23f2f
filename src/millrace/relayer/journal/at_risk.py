"""What an operator sees and says of fees at risk, beside a running relayer: list them, write one off.

The journal is the meeting place. The relayer takes what was asked within a second, or when it starts.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from millrace.chain import address
from millrace.relayer.journal import identity, memory, submissions
from millrace.relayer.journal.advice import told
from millrace.relayer.journal.reading import read_only
from millrace.relayer.journal.submissions import SIGNED, STATE, Record

_OPEN = f"FROM {SIGNED} WHERE relayer IS NOT NULL AND state IN ('journalled', 'signed', 'expired')"


class AtRiskError(Exception):
    """The journal cannot be used, or holds nothing like that; the text says what."""


class OpenFee(NamedTuple):
    """A transaction one of our keys may have signed, and of which it is not known that it is over."""

    client_hash: str
    sender: str
    nonce: int
    kind: str
    """`relay`, or `sign` for what only its client can broadcast."""
    state: str
    fee: int
    """The most it can cost, in atomic units."""
    age_seconds: int
    ip: str
    """The client's address, and who it was if an API key told that."""


def open_fees(journal: Path) -> list[OpenFee]:
    """All of them, oldest first. Raises `AtRiskError`."""
    now = time.time_ns() // 1_000_000
    with _journal(journal) as connection:
        rows = connection.execute(
            f"SELECT client_hash, sender, nonce, kind, {STATE}, fee, created_ms, ip {_OPEN} ORDER BY created_ms"
        ).fetchall()
    return [
        OpenFee(client.hex(), address.encode(sender), nonce, kind, state, int(fee), (now - created) // 1000, ip)
        for client, sender, nonce, kind, state, fee, created, ip in rows
    ]


class AtRisk(NamedTuple):
    """What one sender may still cost: transactions, the most they cost, age of the oldest."""

    transactions: int
    fee: int
    oldest_seconds: int


def by_sender(journal: Path) -> dict[bytes, AtRisk]:
    """The same of each sender (public key), without its single transactions. Raises `AtRiskError`."""
    now, found = time.time_ns() // 1_000_000, dict[bytes, AtRisk]()
    with _journal(journal) as connection:
        # Summed here: amounts are beyond what SQLite can add.
        for sender, fee, created in connection.execute(f"SELECT sender, fee, created_ms {_OPEN}"):
            count, sum_, oldest = found.get(sender, (0, 0, 0))
            found[sender] = AtRisk(count + 1, sum_ + int(fee), max(oldest, (now - created) // 1000))
    return found


def ask_write_off(journal: Path, client_hash: str, mark_path: str = "") -> None:
    """Have a transaction's fee written off. Raises `AtRiskError` unless it is at risk now."""
    if client_hash not in {item.client_hash for item in open_fees(journal)}:
        raise AtRiskError(f"no fee of {client_hash} is at risk; `millrace policy at-risk` lists those that are")
    _ask(journal, [client_hash], mark_path)


def ask_write_offs(journal: Path, older_than: float | None, sender: str, ip: str, mark_path: str = "") -> list[OpenFee]:
    """Have all fees written off that fit what is given: those that do. Raises `AtRiskError`."""
    found = [
        item
        for item in open_fees(journal)
        if (older_than is None or item.age_seconds >= older_than)
        and (not sender or item.sender == sender)
        and (not ip or submissions.origin_of(item.ip)[0] == ip)
    ]
    _ask(journal, [item.client_hash for item in found], mark_path)
    return found


def _ask(journal: Path, client_hashes: Sequence[str], mark_path: str) -> None:
    """Write it down. Whoever may write copies what is left of a damaged log into the database when it ends, and deletes
    the log: so it is first asked whether that holds all."""
    now = time.time_ns() // 1_000_000
    with _told(journal):
        memory.require_end(journal.parent, identity.read(journal.parent), mark_path)
    with _journal(journal, partial(sqlite3.connect, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT OR IGNORE INTO write_offs VALUES (?, ?)", [(bytes.fromhex(item), now) for item in client_hashes]
        )
        connection.execute("COMMIT")


def written_off(read: Callable[[str], list[Any]]) -> list[Record]:
    """What was written off and may still run. Raises `JournalError`."""
    rows = read(f"{submissions.SELECT} WHERE state = 'superseded' AND ended_ms IS NULL AND relayer IS NOT NULL")
    return [submissions.record(row) for row in rows]


def is_written_off(read: Callable[[str, tuple[Any, ...]], list[Any]], record: Record) -> bool:
    """Whether an operator wrote the fee of this row off: its transaction may still run, and is sent no more.

    `read` asks the journal. Such a row alone is over without having ended.
    """
    sql = "SELECT 1 FROM submissions WHERE sender = ? AND nonce = ? AND state = 'superseded' AND ended_ms IS NULL"
    return record.state == "superseded" and bool(read(sql, (record.sender, record.nonce)))


@contextlib.contextmanager
def _journal(path: Path, connect: Callable[[Path], sqlite3.Connection] = read_only) -> Iterator[sqlite3.Connection]:
    with _told(path), contextlib.closing(connect(path)) as connection:
        yield connection


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of the folder in words of ours."""
    try:
        yield
    except (identity.IdentityError, memory.MemoryLost) as error:
        raise AtRiskError(str(error)) from error
    except OSError as error:
        raise AtRiskError(told(error, path)) from error
    except sqlite3.Error as error:
        raise AtRiskError(f"{path}: {error}; start the relayer with this data_dir once") from None
