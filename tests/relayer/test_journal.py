"""The journal: durable before it answers, one row per sender and nonce, an audit log nobody can change."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from relayer_support import entry_of, start, submit, transfer, wallet

from millrace.chain import address
from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer import audit, checkpoints
from millrace.relayer.checkpoints import Checkpoints
from millrace.relayer.journal import Journal, _connect
from millrace.relayer.journal_writer import JournalError, NonceTaken
from millrace.relayer.records import Record
from millrace.relayer.stages import hash_of

ALICE = wallet(1)


def row(nonce: int, data: bytes = b"", **changes: object) -> Record:
    tx = transfer(ALICE, nonce, data=data)
    made = Record(
        tx.sender, nonce, client_hash(tx), None, to_proto(tx),
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
    assert journal.find(row(1).sender, 1, row(1).client_hash) == row(1)


@pytest.mark.parametrize(
    ("changes", "gives_way"),
    [
        ({"state": "finished", "chain_hash": b"h", "cost": 5}, False),
        ({"state": "superseded", "chain_hash": b"h", "cost": 10}, False),
        ({"state": "superseded", "chain_hash": None, "cost": 10}, False),
        ({"state": "superseded", "chain_hash": b"h", "cost": 0}, False),
        ({"state": "superseded", "chain_hash": None, "cost": None}, False),
        ({"state": "expired", "chain_hash": b"h", "relayer": None}, False),
        ({"state": "journalled", "chain_hash": None, "cost": 0}, False),
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


async def test_a_row_that_took_the_place_of_another_has_not_ended(journal: Journal) -> None:
    """What gave way had ended; the row in its place is not pruned with what is over."""
    await journal.append([row(1, relayer=None)])
    journal.change(lambda connection: connection.execute("UPDATE submissions SET state = 'dropped', ended_ms = 1"))
    await journal.append([row(1, b"other", relayer=None)])
    journal.prune(10**15)
    await journal.flush()
    assert [record.client_hash for record in journal.open_records()] == [row(1, b"other").client_hash]


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


OLD_SUBMISSIONS = """
CREATE TABLE submissions (
    sender BLOB NOT NULL, nonce INTEGER NOT NULL, client_hash BLOB NOT NULL, chain_hash BLOB,
    message_hash BLOB NOT NULL, tx BLOB NOT NULL, kind TEXT NOT NULL, relayer BLOB, fee TEXT NOT NULL, cost TEXT,
    ip TEXT NOT NULL, created_ms INTEGER NOT NULL, state TEXT NOT NULL, broadcast INTEGER NOT NULL, ended_ms INTEGER,
    PRIMARY KEY (sender, nonce)
) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('schema', '1');
"""


async def test_a_journal_of_the_version_before_is_brought_up_to_date(tmp_path: Path) -> None:
    """What the version before wrote is read as it was, its nonces stay taken, and new rows come behind it."""
    path, old = tmp_path / "journal.sqlite", row(1)
    connection = sqlite3.connect(path)
    connection.executescript(OLD_SUBMISSIONS)
    values = msgspec.structs.asdict(old) | {"fee": "10", "message_hash": b"m"}
    names = ", ".join(values)
    connection.execute(f"INSERT INTO submissions ({names}) VALUES ({', '.join('?' * len(values))})", [*values.values()])
    connection.commit()
    connection.close()
    for nonce in (2, 3):  # the second time there is nothing left to do
        journal = Journal(path)
        journal.open()
        assert journal.open_records() == [old, *(row(before) for before in range(2, nonce))]
        with pytest.raises(NonceTaken):
            await journal.append([row(1, b"other")])
        await journal.append([row(nonce)])
        await journal.close()


async def test_audit_log_is_append_only(journal: Journal) -> None:
    """Neither an update nor a delete of the audit log is possible."""
    await journal.append([row(1)])
    for statement in ("UPDATE audit SET amount = '0'", "DELETE FROM audit"):
        with pytest.raises(JournalError, match="append-only"):
            journal.read(statement)
    assert journal.read("SELECT event, amount FROM audit") == [("reserve", "10")]


def spoil(path: Path, tx: bytes) -> None:
    """Put other bytes in the place of the one transaction there is."""
    connection = sqlite3.connect(path)
    connection.execute("UPDATE submissions SET tx = ?, chain_hash = ?", (tx, hash_of(tx)))
    connection.execute("DELETE FROM meta WHERE name = 'signed_once'")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("times", [2, 3])
async def test_rows_that_an_earlier_version_signed_twice(world: Any, times: int) -> None:
    """A transaction with its signature more than once, which is one to the chain, is read as that one."""
    await start(world)
    path, tx = world.service.journal.path, transfer(ALICE)
    assert await submit(world, tx) == ["ok"]
    whole = entry_of(world, tx).proto
    chain_hash = entry_of(world, tx).chain_hash
    await world.stop()
    spoil(path, whole + whole[-67:] * (times - 1))
    await start(world)
    assert (entry_of(world, tx).proto, entry_of(world, tx).chain_hash) == (whole, chain_hash)
    (answer,) = await submit(world, tx)
    assert answer == "ok"
    assert world.service.journal.read("SELECT tx, chain_hash FROM submissions") == [(whole, chain_hash)]


async def test_a_row_that_cannot_be_read_is_named(world: Any) -> None:
    """The start is refused with whose row it is and what to do; nothing is forgotten silently."""
    await start(world)
    path, tx = world.service.journal.path, transfer(ALICE, 0)
    assert await submit(world, tx) == ["ok"]
    await world.stop()
    spoil(path, to_proto(tx)[:-1])
    with pytest.raises(JournalError) as error:
        await start(world)
    for word in (str(path), address.encode(ALICE.public), "nonce 0", "copy", "data_dir"):
        assert word in str(error.value)


async def test_many_rows_at_once(journal: Journal) -> None:
    """However many rows come together, all are written, or none when one of them has no room."""
    many = [row(nonce) for nonce in range(100)]
    await journal.append(many)
    assert journal.open_records() == many
    with pytest.raises(NonceTaken):
        await journal.append([*(row(nonce) for nonce in range(100, 190)), row(50)])
    assert len(journal.open_records()) == 100
    assert journal.read("SELECT count(*) FROM audit") == [(100,)]


async def test_signatures_reach_the_disk_without_anybody_waiting(journal: Journal) -> None:
    """What our keys signed is written though nothing else is, for the very rows it belongs to."""
    await journal.append([row(nonce) for nonce in range(80)])
    journal.cosigned([(b"tx%d" % nonce, b"hash%d" % nonce, row(nonce).sender, nonce) for nonce in range(70)])
    async with asyncio.timeout(10):
        while journal.read("SELECT count(*) FROM submissions WHERE state = 'signed'") != [(70,)]:
            await asyncio.sleep(0.01)
    kept = journal.read("SELECT nonce, tx, chain_hash FROM submissions WHERE state = 'signed' ORDER BY nonce")
    assert kept == [(nonce, b"tx%d" % nonce, b"hash%d" % nonce) for nonce in range(70)]


async def test_the_log_is_copied_beside_the_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before a commit would copy the log another thread does, and the log begins anew instead of growing."""
    monkeypatch.setattr(checkpoints, "COMMITS", 10)
    journal = Journal(tmp_path / "journal.sqlite")
    journal.open()
    log, nonces = tmp_path / "journal.sqlite-wal", iter(range(10**6))
    await journal.append([row(next(nonces))])
    generation = log.read_bytes()[16:24]  # the two salts of its header, others each time it begins anew
    async with asyncio.timeout(20):
        while log.read_bytes()[16:24] == generation:
            await journal.append([row(next(nonces))])
            await asyncio.sleep(0.001)
    written = next(nonces)
    await journal.close()
    assert len(log.read_bytes() if log.exists() else b"") == 0
    connection = sqlite3.connect(tmp_path / "journal.sqlite")
    assert connection.execute("SELECT count(*) FROM submissions").fetchone() == (written,)
    connection.close()


class Crowded:
    """A connection during whose every copy of the log, but for those of the thread that commits, somebody commits."""

    def __init__(self, path: Path, commit: Callable[[], None]) -> None:
        self._connection = _connect(path)
        self._commit = commit
        self.close = self._connection.close

    def execute(self, sql: str) -> sqlite3.Cursor:
        if threading.current_thread() is not threading.main_thread():
            self._commit()
        found = self._connection.execute(sql)
        if threading.current_thread() is not threading.main_thread():
            self._commit()
        return found


async def test_the_log_begins_anew_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where something is committed during each copy the log does not grow for ever: the rest is copied between."""
    monkeypatch.setattr(checkpoints, "COMMITS", 10)
    path, log = tmp_path / "file.sqlite", tmp_path / "file.sqlite-wal"
    connection = _connect(path)
    connection.execute("CREATE TABLE words (word TEXT)")

    def commit() -> None:
        connection.execute("INSERT INTO words VALUES ('word')")

    copier = Checkpoints(lambda: cast(sqlite3.Connection, Crowded(path, commit)))
    copier.start()
    for _ in range(3):
        generation = log.read_bytes()[16:24]
        for _ in range(10):
            commit()
            copier.committed()
        async with asyncio.timeout(10):
            while not copier._is_copied:
                await asyncio.sleep(0.001)
        copier.committed()
        commit()
        assert log.read_bytes()[16:24] != generation
    copier.stop()
    connection.close()


async def test_one_relayer_has_a_journal(journal: Journal) -> None:
    """A second one on the same folder would have a budget of its own: it is refused, until the first has gone."""
    second = Journal(journal.path)
    with pytest.raises(JournalError, match="in use by another relayer"):
        second.open()
    await journal.close()
    second.open()
    await second.close()


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_journal_that_cannot_be_opened(tmp_path: Path, what: str) -> None:
    """What its owner can mend is not called broken: nobody is told to throw away what was signed."""
    path = tmp_path / "data" / "journal.sqlite"
    if what == "folder":
        path.parent.touch()
    else:
        path.mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(JournalError, match="let this user write") as error:
            Journal(path).open()
        assert "move" not in str(error.value)


def test_every_commit_is_synced(tmp_path: Path) -> None:
    """What is committed outlives a loss of power: SQLite syncs the write-ahead log with each commit."""
    connection = _connect(tmp_path / "j.sqlite")
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_replaying_the_audit_log() -> None:
    """What was given back is nothing, what was settled is what it cost, what has no end may still cost all of it."""
    who = (b"relayer", b"sender")
    lines: list[Any] = [
        ("reserve", *who, b"back", 1, "10"), ("reserve", *who, b"paid", 2, "20"), ("reserve", *who, b"open", 3, "30"),
        ("reserve", *who, b"gone", 4, "40"), ("refund", *who, b"back", 5, "10"), ("settle", *who, b"paid", 6, "7"),
        ("write-off", *who, b"gone", 7, "40"), ("settle", *who, b"before", 8, "9"),
    ]  # fmt: skip
    found = {item.client_hash: (item.fee, item.cost) for item in audit.replay(lines)}
    assert found == {b"paid": (20, 7), b"gone": (40, 40), b"open": (30, None)}
