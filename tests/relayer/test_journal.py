"""The journal: durable before it answers, one row per sender and nonce, an audit log nobody can change."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from relayer_support import transfer, wallet

from millrace.chain.transaction import client_hash, signing_message, to_proto
from millrace.relayer.journal import Journal, JournalError, NonceTaken, Record, hash_message

ALICE = wallet(1)


def row(nonce: int, data: bytes = b"", **changes: object) -> Record:
    tx = transfer(ALICE, nonce, data=data)
    made = Record(
        tx.sender, nonce, client_hash(tx), None, hash_message(signing_message(tx)), to_proto(tx),
        "relay", tx.relayer, 10, None, "ip", 1000 + nonce, "journalled", True,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    made = Journal(tmp_path / "data" / "journal.sqlite")
    made.open()
    try:
        yield made
    finally:
        await made.close()


async def test_append_is_committed_when_it_returns(journal: Journal) -> None:
    """Another process sees the row as soon as `append` returned, and a group takes one commit."""
    before = journal.commits
    await asyncio.gather(*(journal.append([row(nonce)]) for nonce in range(50)))
    other = sqlite3.connect(f"file:{journal.path}?mode=ro", uri=True)
    assert other.execute("SELECT COUNT(*) FROM submissions").fetchone() == (50,)
    other.close()
    assert journal.commits - before < 50
    assert journal.path.parent.stat().st_mode & 0o077 == 0


async def test_row_10_second_payload_for_a_nonce(journal: Journal) -> None:
    """A nonce that may still run has one payload; a failed row takes its group's others not with it."""
    await journal.append([row(1)])
    good, bad = journal.append([row(2)]), journal.append([row(1, b"other")])
    results = await asyncio.gather(good, bad, return_exceptions=True)
    assert results[0] is None and isinstance(results[1], JournalError)
    assert [record.nonce for record in journal.open_records()] == [1, 2]
    assert journal.find(row(1).client_hash) == row(1)


@pytest.mark.parametrize(
    ("changes", "gives_way"),
    [
        ({"state": "finished", "chain_hash": b"h", "cost": 5}, False),
        ({"state": "superseded", "chain_hash": b"h", "cost": 10}, False),
        ({"state": "superseded", "chain_hash": None, "cost": 10}, False),
        ({"state": "superseded", "chain_hash": None, "cost": 0}, True),
        ({"state": "dropped", "chain_hash": b"h", "relayer": None}, True),
    ],
)
async def test_only_what_we_never_signed_gives_way(journal: Journal, changes: dict[str, Any], gives_way: bool) -> None:
    """A row our key may have signed keeps its nonce also when it is over, and a refusal is no failure of the disk."""
    await journal.append([row(1, **changes)])
    if gives_way:
        await journal.append([row(1, b"other")])
        (found,) = journal.open_records()
        assert found.client_hash == row(1, b"other").client_hash
    else:
        with pytest.raises(NonceTaken):
            await journal.append([row(1, b"other")])
        assert journal.failed is None


async def test_reopened_file_has_everything(tmp_path: Path) -> None:
    """Rows and cursor survive; a file of another version is refused with what to do."""
    path = tmp_path / "journal.sqlite"
    first = Journal(path)
    first.open()
    await first.append([row(1)])
    first.keep_cursor(77)
    await first.close()
    second = Journal(path)
    second.open()
    assert second.cursor() == 77 and len(second.open_records()) == 1
    await second.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match="move the file away"):
        Journal(path).open()


async def test_audit_log_is_append_only(journal: Journal) -> None:
    """Neither an update nor a delete of the audit log is possible."""
    await journal.append([row(1)])
    for statement in ("UPDATE audit SET amount = '0'", "DELETE FROM audit"):
        with pytest.raises(sqlite3.Error, match="append-only"):
            journal.read(statement)
    assert journal.read("SELECT event, amount FROM audit") == [("reserve", "10")]
