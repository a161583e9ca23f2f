"""The journal: durable before it answers, one row per sender and nonce, an audit log nobody can change."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from relayer_support import RELAYERS, start, submit, transfer, wallet, with_identity

from millrace.chain import address
from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.journal import audit, checkpoints, identity, memory, versions
from millrace.relayer.journal.checkpoints import Checkpoints
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.journal import Journal, _connect
from millrace.relayer.journal.mark import Mark
from millrace.relayer.journal.outcomes import Outcome
from millrace.relayer.journal.outcomes import prune as prune_outcomes
from millrace.relayer.journal.seats import Seats
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.journal.submissions import Record, origin_text
from millrace.relayer.journal.writer import JournalError, NonceTaken
from millrace.relayer.rules.policy import CallName
from millrace.relayer.rules.stages import cosigned, hash_of
from millrace.runtime.settings import Secret
from waiting import until

ALICE = wallet(1)


def row(nonce: int, data: bytes = b"", **changes: object) -> Record:
    tx = transfer(ALICE, nonce, data=data)
    made = Record(
        tx.sender, nonce, client_hash(tx), None, to_proto(tx),
        "relay", tx.relayer, 10, None, "ip", 1000 + nonce, "journalled", True,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """A data directory that was just made."""
    with_identity(tmp_path / "data")
    return with_identity(tmp_path)


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Journal]:
    """Of a relayer that shares its keys with nobody."""
    made = Journal(tmp_path / "data" / "journal.sqlite")
    made.open()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture(params=["alone", "shared"])
async def journal(request: pytest.FixtureRequest, alone: Journal, tmp_path: Path) -> AsyncIterator[Journal]:
    """The same, and one whose claims lie on a server that others use."""
    if request.param == "alone":
        yield alone
        return
    seats = Seats(Secret(request.getfixturevalue("postgres").url), tmp_path.name, 1, 60.0)
    alone.sharing = Sharing(seats, "a" * 32, "here", alone.reservations)
    await alone.sharing.sit()
    alone.sharing.start()
    try:
        yield alone
    finally:
        await alone.sharing.close()


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


SIGNATURE = b"s" * 64


@pytest.mark.parametrize(
    ("changes", "signed", "gives_way"),
    [
        ({"state": "finished", "cost": 5}, True, False),
        ({"state": "superseded", "cost": 10}, True, False),
        ({"state": "superseded", "cost": 10}, False, False),
        ({"state": "superseded", "cost": 0}, True, False),
        ({"state": "superseded", "cost": None}, False, False),
        ({"state": "expired", "relayer": None}, False, False),
        ({"state": "journalled", "cost": 0}, False, False),
        ({"state": "superseded", "cost": 0}, False, True),
        ({"state": "dropped", "relayer": None}, False, True),
    ],
)
async def test_only_what_we_never_signed_gives_way(
    alone: Journal, changes: dict[str, Any], signed: bool, gives_way: bool
) -> None:
    """A row our key may have signed keeps its nonce also when it is over, and a refusal is no failure of the disk."""
    await alone.append([row(1, **changes)])
    if signed:
        alone.cosigned([(row(1).sender, 1, SIGNATURE)])
    if gives_way:
        await alone.append([row(1, b"other")])
        (found,) = alone.open_records()
        assert found.client_hash == row(1, b"other").client_hash
    else:
        with pytest.raises(NonceTaken):
            await alone.append([row(1, b"other")])
        assert alone.failed is None


async def test_what_a_known_person_spent_in_a_day_stays(journal: Journal) -> None:
    """Their budget counts it, however soon what is over is forgotten; a stranger's quota reaches an hour back."""
    now_ms = time.time_ns() // 1_000_000
    hours = (3, 3, 25)
    rows = [
        row(number, ip=origin_text("1.2.3.4", "alice" if number != 1 else ""), created_ms=now_ms - ago * 3_600_000)
        for number, ago in enumerate(hours)
    ]
    await journal.append(rows)
    journal.change(lambda connection: connection.execute("UPDATE submissions SET ended_ms = 1").close())
    journal.prune(now_ms)
    await journal.flush()
    assert journal.read("SELECT nonce FROM submissions") == [(0,)]


async def test_a_row_that_took_the_place_of_another_has_not_ended(journal: Journal) -> None:
    """What gave way had ended; the row in its place is not pruned with what is over."""
    await journal.append([row(1, relayer=None)])
    journal.change(lambda connection: connection.execute("UPDATE submissions SET state = 'dropped', ended_ms = 1"))
    await journal.append([row(1, b"other", relayer=None)])
    journal.prune(10**15)
    await journal.flush()
    assert [record.client_hash for record in journal.open_records()] == [row(1, b"other").client_hash]


def end(record: Record, state: str) -> tuple[bytes, int, bytes, str, str | None, int | None]:
    return record.sender, record.nonce, record.client_hash, state, "0", 5000


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("cost", [None, "0", "7"])
@pytest.mark.parametrize("relayer", [None, RELAYERS[1].public])
@pytest.mark.parametrize("state", ["journalled", "expired", "finished", "superseded", "dropped"])
async def test_what_is_taken_is_what_lets_no_other_in(
    alone: Journal, state: str, relayer: bytes | None, cost: str | None, signed: bool
) -> None:
    """Who asks beforehand hears what a row of other bytes would meet, also while an end waits for the disk."""
    await alone.append([row(1, relayer=relayer)])
    if signed:
        alone.cosigned([(ALICE.public, 1, b"s" * 64)])
    values = state, cost
    alone.change(lambda connection: connection.execute("UPDATE submissions SET state = ?, cost = ?", values))
    taken = await alone.is_taken(ALICE.public, 1)
    assert not await alone.is_taken(ALICE.public, 2)
    try:
        await alone.append([row(1, b"other", relayer=relayer)])
    except NonceTaken:
        assert taken
    else:
        assert not taken


async def test_an_end_finds_the_row_that_goes_in_with_it(alone: Journal) -> None:
    """A nonce that passes while its row is being written ends the row; another payload finds it over, or refuses."""
    first, second = asyncio.ensure_future(alone.append([row(1)])), asyncio.ensure_future(alone.append([row(2)]))
    await asyncio.sleep(0)
    alone.ended([end(row(1), "superseded"), end(row(2), "superseded")], [])
    third = asyncio.ensure_future(alone.append([row(2, b"other"), row(3)]))
    await asyncio.sleep(0)
    alone.ended([end(row(3), "dropped"), end(row(4), "dropped")], [])
    await asyncio.gather(first, second, third)
    await alone.flush()
    states = alone.read("SELECT nonce, state, client_hash FROM submissions ORDER BY nonce")
    assert states == [
        (1, "superseded", row(1).client_hash),
        (2, "journalled", row(2, b"other").client_hash),
        (3, "dropped", row(3).client_hash),
    ]


async def test_an_end_finds_the_row_that_is_being_claimed(journal: Journal) -> None:
    """A nonce that passes while its row is claimed or written ends the row, here and for whoever shares."""
    first = asyncio.ensure_future(journal.append([row(1)]))
    await asyncio.sleep(0)
    line: audit.Line = (2000, "refund", row(1).relayer or b"", ALICE.public, 1, row(1).client_hash, 10)
    journal.ended([end(row(1), "superseded")], [line])
    await first
    await journal.flush()
    assert journal.read("SELECT state FROM submissions") == [("superseded",)]
    assert journal.read("SELECT event FROM audit ORDER BY id") == [("reserve",), ("refund",)]
    if journal.sharing is not None:
        assert journal.sharing.open == 0


async def test_reopened_file_has_everything(tmp_path: Path) -> None:
    """Rows and cursor survive unless that was forgotten; a file of another version is refused with what to do."""
    path = tmp_path / "journal.sqlite"
    first = Journal(path)
    first.open()
    await first.append([row(1)])
    first.keep_cursor(77, "place")
    await first.close()
    second = Journal(path)
    second.open()
    assert (second.cursor(), second.cursor_place()) == (77, "place") and len(second.open_records()) == 1
    second.forget_cursor()
    await second.close()
    third = Journal(path)
    third.open()
    assert (third.cursor(), third.cursor_place()) == (None, "") and len(third.open_records()) == 1
    await third.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema'")
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match=r"another version.*Start the version"):
        Journal(path).open()


OLD_SUBMISSIONS = """
CREATE TABLE submissions (
    sender BLOB NOT NULL, nonce INTEGER NOT NULL, client_hash BLOB NOT NULL, chain_hash BLOB,
    tx BLOB NOT NULL, kind TEXT NOT NULL, relayer BLOB, fee TEXT NOT NULL, cost TEXT,
    ip TEXT NOT NULL, created_ms INTEGER NOT NULL, state TEXT NOT NULL, broadcast INTEGER NOT NULL, ended_ms INTEGER,
    PRIMARY KEY (sender, nonce)
) WITHOUT ROWID;
CREATE INDEX submissions_client ON submissions (client_hash);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
OLD_VERSIONS = {
    "1": "ALTER TABLE submissions ADD COLUMN message_hash BLOB NOT NULL DEFAULT x'6d'",
    "2": "INSERT INTO meta VALUES ('signed_once', '1')",
}


def old_file(path: Path, version: str, records: list[Record]) -> None:
    """A journal as an earlier version wrote it, with the co-signature inside its transaction."""
    connection = sqlite3.connect(path)
    connection.executescript(OLD_SUBMISSIONS)
    connection.execute(OLD_VERSIONS[version])
    connection.execute("INSERT INTO meta VALUES ('schema', ?)", (version,))
    for record in records:
        values = msgspec.structs.asdict(record) | {"fee": str(record.fee)}
        names = ", ".join(values)
        connection.execute(
            f"INSERT INTO submissions ({names}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
        )
    connection.commit()
    connection.close()


OLD_OUTCOMES = """
CREATE TABLE outcomes (
    client_hash BLOB PRIMARY KEY, time_ms INTEGER NOT NULL, relayer BLOB NOT NULL, sender BLOB NOT NULL, contract BLOB,
    function TEXT, cost TEXT NOT NULL, failed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX outcomes_time ON outcomes (time_ms);
INSERT INTO outcomes SELECT client_hash, time_ms, relayer, sender, contract, function, paid, failed
    FROM results JOIN submissions USING (id);
INSERT INTO outcomes SELECT zeroblob(32), 1, relayer, sender, NULL, NULL, '1', 0 FROM submissions LIMIT 1;
DROP TRIGGER results_go_with_submissions;
DROP TABLE results;
UPDATE meta SET value = '5' WHERE name = 'schema';
"""
"""Back to outcomes by their hash, one of them of a submission that is forgotten."""


async def test_outcomes_of_an_earlier_version_are_kept_by_their_submissions(tmp_path: Path) -> None:
    """They are the same after the file is brought up to date, which the chain says, and one that is there stays."""
    path, items = tmp_path / "journal.sqlite", [row(nonce) for nonce in (1, 2)]
    calls = None, CallName(b"c" * 32, "claim")
    ended = [
        Outcome(item.client_hash, 5 - item.nonce, item.relayer or b"", ALICE.public, item.nonce, call, 7, call is None)
        for item, call in zip(items, calls, strict=True)
    ]
    journal = Journal(path)
    journal.open()
    await journal.adopt(items, [], [], ended)
    await journal.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD_OUTCOMES)
    owner = identity.read(tmp_path)
    memory.accept(path, Mark(memory.mark_place(path, ""), owner.id), owner)
    for _ in range(2):  # the second time there is nothing left to do
        journal = Journal(path)
        journal.open()
        assert journal.outcomes_since(0) == ended[::-1]
        assert journal.failed_since(0) == [(ALICE.public, 1)]
        again = [msgspec.structs.replace(item, failed=not item.failed) for item in ended]
        await journal.adopt([], [], [], again)
        assert journal.outcomes_since(0) == ended[::-1]
        await journal.close()


async def test_a_row_stays_as_long_as_its_outcome_counts(tmp_path: Path) -> None:
    """Outcomes are forgotten from the oldest row on, up to the first that counts, and rows after their outcomes."""
    journal = Journal(tmp_path / "journal.sqlite")
    journal.open()
    items = [row(nonce) for nonce in (1, 2, 3)]
    times = 10, 30, 20
    ended = [
        Outcome(item.client_hash, at, item.relayer or b"", ALICE.public, item.nonce, None, 7, False)
        for item, at in zip(items, times, strict=True)
    ]
    ends = [(item.sender, item.nonce, item.client_hash, "finished", "7", 5) for item in items]
    await journal.adopt(items, ends, [], ended)
    for before, left in ((10, [1, 2, 3]), (25, [2, 3]), (31, [])):
        journal.change(lambda connection, before=before: prune_outcomes(connection, before))
        journal.prune(1_000)
        await journal.written()
        assert journal.read("SELECT nonce FROM submissions") == [(nonce,) for nonce in left]
        assert sorted(item.nonce for item in journal.outcomes_since(0)) == left
    await journal.close()


def signed_row(nonce: int, **changes: object) -> Record:
    """A row whose transaction our key has signed."""
    tx = cosigned(row(nonce).tx, SIGNATURE)
    return row(nonce, tx=tx, chain_hash=hash_of(tx), state="signed", **changes)


@pytest.mark.parametrize("version", OLD_VERSIONS)
async def test_a_journal_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path, version: str) -> None:
    """What it wrote is read as it was, its nonces stay taken, also the signed ones, and new rows come behind it."""
    path, broadcast = tmp_path / "journal.sqlite", transfer(ALICE, 3, relayed=False)
    own = client_hash(broadcast)
    sent = row(3, tx=to_proto(broadcast), client_hash=own, chain_hash=own, kind="broadcast", relayer=None)
    over = signed_row(4, cost="10")
    old = [row(1), signed_row(2), sent]
    old_file(path, version, [*old, msgspec.structs.replace(over, state="superseded")])
    for nonce in (5, 6):  # the second time there is nothing left to do
        journal = Journal(path)
        journal.open()
        assert journal.open_records() == [*old, *(row(before) for before in range(5, nonce))]
        found = journal.find(over.sender, 4, over.client_hash)
        assert found == msgspec.structs.replace(over, state="superseded", cost=10)
        for taken in (1, 2, 3, 4):
            with pytest.raises(NonceTaken):
                await journal.append([row(taken, b"other")])
        await journal.append([row(nonce)])
        await journal.close()


@pytest.mark.parametrize("times", [2, 3])
async def test_rows_that_an_earlier_version_signed_twice(tmp_path: Path, times: int) -> None:
    """A transaction with its signature more than once, which is one to the chain, is read as that one."""
    path, once = tmp_path / "journal.sqlite", signed_row(1)
    more = once.tx + once.tx[-67:] * (times - 1)
    old_file(path, "1", [msgspec.structs.replace(once, tx=more, chain_hash=hash_of(more)), signed_row(2)])
    journal = Journal(path)
    journal.open()
    assert journal.open_records() == [once, signed_row(2)]
    await journal.close()


async def test_a_restart_between_the_versions_begins_anew(tmp_path: Path) -> None:
    """A process that ends while it brings a file up to date leaves it as it was."""
    path = tmp_path / "journal.sqlite"
    old_file(path, "2", [row(1), signed_row(2)])
    connection = sqlite3.connect(path, isolation_level=None)
    before, _, _ = versions._FROM_2.rpartition("COMMIT;")
    bad = before.replace("UPDATE meta", "SELECT no_such_function(); UPDATE meta")
    with pytest.raises(sqlite3.OperationalError, match="no_such_function"):
        connection.executescript(bad)
    connection.close()
    journal = Journal(path)
    journal.open()
    assert journal.open_records() == [row(1), signed_row(2)]
    await journal.close()


async def test_audit_log_is_append_only(journal: Journal) -> None:
    """Neither an update nor a delete of the audit log is possible."""
    await journal.append([row(1)])
    for statement in ("UPDATE audit SET amount = '0'", "DELETE FROM audit"):
        with pytest.raises(JournalError, match="append-only"):
            journal.read(statement)
    assert journal.read("SELECT event, amount FROM audit") == [("reserve", "10")]


async def test_a_row_that_cannot_be_read_is_named(world: Any) -> None:
    """The start is refused with whose row it is and what to do; nothing is forgotten silently."""
    await start(world)
    path, tx = world.service.journal.path, transfer(ALICE, 0)
    assert await submit(world, tx) == ["ok"]
    await world.stop()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE submissions SET tx = substr(tx, 2)")
    connection.commit()
    connection.close()
    with pytest.raises(JournalError) as error:
        await start(world)
    for word in (str(path), address.encode(ALICE.public), "nonce 0", "Put back", "millrace relayer recover"):
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
    signatures = [(row(nonce).sender, nonce, b"%064d" % nonce) for nonce in range(70)]
    journal.cosigned(signatures)
    await until(lambda: journal.read("SELECT count(*) FROM signatures") == [(70,)])
    for record in journal.open_records():
        if record.nonce < 70:
            whole = cosigned(row(record.nonce).tx, b"%064d" % record.nonce)
            assert (record.tx, record.chain_hash, record.state) == (whole, hash_of(whole), "signed")
        else:
            assert record == row(record.nonce)
    journal.cosigned(signatures)  # asked for twice it is the same
    await journal.flush()
    assert journal.failed is None and journal.read("SELECT count(*) FROM signatures") == [(70,)]


async def test_a_signature_is_forgotten_with_its_submission(journal: Journal) -> None:
    """What is pruned leaves nothing behind that another row could take for its own."""
    await journal.append([row(1), row(2)])
    journal.cosigned([(row(nonce).sender, nonce, SIGNATURE) for nonce in (1, 2)])
    journal.change(lambda connection: connection.execute("UPDATE submissions SET ended_ms = nonce").close())
    journal.prune(3)
    await journal.append([row(3)])
    assert journal.open_records() == [row(3)] and journal.read("SELECT * FROM signatures") == []


@pytest.mark.parametrize("counted", ["COMMITS", "ROWS"])
async def test_the_log_is_copied_beside_the_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: str
) -> None:
    """Long before a commit would copy the log another thread does, after so many commits, or few with much in them.

    Then the log begins anew instead of growing.
    """
    monkeypatch.setattr(checkpoints, "COMMITS", 10**9)
    monkeypatch.setattr(checkpoints, "ROWS", 10**9)
    monkeypatch.setattr(checkpoints, counted, 10)
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
        await until(lambda: copier._is_copied)
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
    path = tmp_path / ("file" if what == "folder" else "data") / "journal.sqlite"
    if what == "folder":
        path.parent.touch()
    else:
        path.mkdir()
    for _ in range(2):
        with pytest.raises((JournalError, IdentityError), match=r"[Ll]et this user") as error:
            Journal(path).open()
        assert "restore" not in str(error.value) and "move" not in str(error.value)


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
