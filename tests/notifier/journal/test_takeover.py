"""Journals of earlier versions are taken over with all they hold, whenever that is interrupted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from millrace.notifier.journal import takeover
from millrace.notifier.journal.changes import Changes
from millrace.notifier.journal.file_store import LOG_NAME, Store
from millrace.notifier.journal.memories import FILE_NAME, Memories
from millrace.notifier.journal.recent import encode
from millrace.notifier.journal.rows import JournalUnusable, event_row, row_of
from millrace.notifier.rules.dedup import Block, State

from ..journal_files import log_files
from .test_file_store import tell
from .test_store import fill

VERSION_1 = """
PRAGMA page_size = 8192; PRAGMA application_id = 0x6D696C6C; PRAGMA user_version = 1;
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, shard INTEGER NOT NULL, marks INTEGER NOT NULL,
    message_id TEXT NOT NULL, received_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, size INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE INDEX events_sizes ON events (size);
CREATE TABLE blocks (
    shard INTEGER NOT NULL, hash BLOB NOT NULL, generation INTEGER NOT NULL, state INTEGER NOT NULL, nonce INTEGER,
    digest BLOB NOT NULL, first_sequence INTEGER NOT NULL, announced INTEGER NOT NULL, held_since INTEGER NOT NULL,
    PRIMARY KEY (shard, hash)) WITHOUT ROWID;
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce);
CREATE INDEX blocks_by_age ON blocks (first_sequence);
CREATE INDEX blocks_waiting ON blocks (held_since) WHERE held_since > 0;
CREATE TABLE contents (
    topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (topic, shard, digest)) WITHOUT ROWID;
CREATE INDEX contents_by_age ON contents (sequence);
CREATE TABLE latest (topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic, shard));
CREATE TABLE shards (shard INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, saved_ms INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO facts VALUES ('origin', 1000), ('next', 1001);
"""


VERSION_2 = """
PRAGMA page_size = 2048; PRAGMA application_id = 0x6D696C6C; PRAGMA user_version = 2;
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, shard INTEGER NOT NULL, marks INTEGER NOT NULL,
    message_id TEXT NOT NULL, received_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, size INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE blocks (
    shard INTEGER NOT NULL, hash BLOB NOT NULL, generation INTEGER NOT NULL, state INTEGER NOT NULL, nonce INTEGER,
    digest BLOB NOT NULL, first_sequence INTEGER NOT NULL, announced INTEGER NOT NULL, held_since INTEGER NOT NULL,
    PRIMARY KEY (shard, hash)) WITHOUT ROWID;
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce) WHERE nonce IS NOT NULL;
CREATE INDEX blocks_waiting ON blocks (held_since) WHERE held_since > 0;
CREATE TABLE contents (
    topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, sequence INTEGER NOT NULL,
    PRIMARY KEY (topic, shard, digest)) WITHOUT ROWID;
CREATE TABLE latest (topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic, shard));
CREATE TABLE shards (shard INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, saved_ms INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO facts VALUES ('origin', 1000), ('next', 1001), ('counted', 0), ('bytes', 0);
"""


VERSION_3 = """
PRAGMA page_size = 2048; PRAGMA application_id = 0x6D696C6C; PRAGMA user_version = 3;
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, topic TEXT NOT NULL, shard INTEGER NOT NULL, marks INTEGER NOT NULL,
    message_id TEXT NOT NULL, received_ms INTEGER NOT NULL, checksum INTEGER NOT NULL, size INTEGER NOT NULL,
    payload BLOB NOT NULL);
CREATE TABLE latest (topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (topic, shard));
CREATE TABLE shards (shard INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, saved_ms INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE changes (id INTEGER PRIMARY KEY, change BLOB NOT NULL);
CREATE TABLE blocks (
    era INTEGER NOT NULL, shard INTEGER NOT NULL, hash BLOB NOT NULL, generation INTEGER NOT NULL,
    state INTEGER NOT NULL, nonce INTEGER, digest BLOB NOT NULL, first_sequence INTEGER NOT NULL,
    announced INTEGER NOT NULL, held_since INTEGER NOT NULL, PRIMARY KEY (era, shard, hash)) WITHOUT ROWID;
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce) WHERE nonce IS NOT NULL;
CREATE INDEX blocks_waiting ON blocks (held_since) WHERE held_since > 0;
CREATE TABLE contents (
    era INTEGER NOT NULL, topic TEXT NOT NULL, shard INTEGER NOT NULL, digest BLOB NOT NULL,
    sequence INTEGER NOT NULL, PRIMARY KEY (era, topic, shard, digest)) WITHOUT ROWID;
INSERT INTO facts VALUES ('horizon', 1001), ('origin', 1000), ('next', 1001), ('counted', 0), ('bytes', 0);
"""
SCHEMAS = {1: VERSION_1, 2: VERSION_2, 3: VERSION_3}
FIRST = 1_700_000_000_001


@pytest.fixture(params=SCHEMAS)
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Store]:
    """A folder with a journal of an earlier version, and one of today with the same content."""
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    monkeypatch.setattr(takeover, "_COMMIT_EVENTS", 3)
    new = Store(tmp_path / "new")
    tell(new, 7, 600)
    new.begin()
    new.swap_latest("Settings", 1, b"digest")
    new.commit()
    fill(new, 8, size=4000)
    version = request.param
    directory = tmp_path / "old"
    directory.mkdir()
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.executescript(SCHEMAS[version])
        rows = [event_row(entry) for entry in new.read(0, 10**9)[0]]
        db.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)", rows)
        db.execute("UPDATE facts SET value = ? WHERE name = 'origin'", (new.origin,))
        recent = new.recent
        changes = Changes()
        changes.blocks, changes.contents = recent.blocks, recent.contents
        changes.latest, changes.nonces = recent.latest, recent.nonces
        if version == 3:
            db.execute("INSERT INTO changes (change) VALUES (?)", (encode(changes),))
        else:
            blocks = [(*key, *row_of(block)) for key, block in recent.blocks.items()]
            db.executemany("INSERT INTO blocks VALUES (?,?,?,?,?,?,?,?,?)", blocks)
            db.executemany("INSERT INTO contents VALUES (?,?,?,?)", [(*k, n) for k, n in recent.contents.items()])
            db.executemany("INSERT INTO latest VALUES (?,?,?)", [(*key, d) for key, d in recent.latest.items()])
            db.executemany("INSERT INTO shards VALUES (?,?,?)", [(s, *told) for s, told in recent.nonces.items()])
        if version > 1:
            # A block of which nothing is left but its memory, in the table.
            era = [FIRST >> 16] if version == 3 else []
            gone = (*era, 0, b"\7" * 32, *row_of(Block(1, State.FINAL, 3, b"d", FIRST)))
            db.execute(f"INSERT INTO blocks VALUES ({','.join('?' * len(gone))})", gone)
        db.commit()
    return directory, new


def check(store: Store, new: Store) -> None:
    """The journal that was taken over holds what the other does."""
    mine, other = store.read(0, 10**9), new.read(0, 10**9)
    assert not mine[1], "all checksums are right"
    assert [e.__dict__ for e in mine[0]] == [e.__dict__ for e in other[0]] != []
    for name in ("origin", "oldest", "next_sequence", "payload_bytes"):
        assert getattr(store, name) == getattr(new, name), name
    assert [entry.sequence for entry in store.newest] == [entry.sequence for entry in other[0]][-len(store.newest) :]
    assert store.newest
    assert store.shards() == new.shards() != {}
    assert store.live_at(0, 7) == new.live_at(0, 7) != []
    for key, block in new.recent.blocks.items():
        assert store.block(*key) == block
    store.begin()
    assert not any(store.add_content(*key) for key in new.recent.contents)
    assert not any(store.swap_latest(*key, digest) for key, digest in new.recent.latest.items())
    store.rollback()


def test_journals_of_earlier_versions(old: tuple[Path, Store]) -> None:
    """All events and memories are there, under their sequences, and the journal goes on behind them."""
    directory, new = old
    for _ in range(2):
        store = Store(directory)
        check(store, new)
        assert {path.name for path in directory.iterdir()} - {f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"} == {
            FILE_NAME,
            LOG_NAME,
        }
        fill(store, 1)
        fill(new, 1)
        store.close()
    new.close()


STEPS = [
    (takeover, "_append"), (takeover, "create"), (Memories, "move"), (Path, "rename"), (Path, "replace"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "name"), STEPS, ids=lambda step: step if isinstance(step, str) else "")
def test_an_interruption_loses_nothing(
    old: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    """Wherever the process dies, the next start takes all over."""
    directory, new = old

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, die)
        with pytest.raises(KeyboardInterrupt):
            Store(directory)
    store = Store(directory)
    check(store, new)
    store.close()
    new.close()


def test_tables_that_stayed_in_their_log(old: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """When closing the new tables cannot empty their own log, as on a full disk, nothing is left behind in it."""
    directory, new = old
    close = Memories.close

    def close_in_vain(memories: Memories) -> None:
        paths = [path for path in memories.path.parent.glob(f"{FILE_NAME}*") if not path.name.endswith("-shm")]
        before = [(path, path.read_bytes()) for path in paths]
        close(memories)
        for path, content in before:
            path.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(Memories, "close", close_in_vain)
        takeover.take_over(directory, LOG_NAME)
    store = Store(directory)
    check(store, new)
    store.close()
    new.close()


def test_an_old_journal_that_went_on_meanwhile(old: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over that was interrupted at its very end begins anew: an earlier version may have written since."""
    directory, new = old

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            Store(directory)
    fill(new, 1)
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)", event_row(new.read(new.next_sequence - 2, 1)[0][0]))
        db.commit()
    store = Store(directory)
    check(store, new)
    store.close()
    new.close()


def test_no_room_for_a_copy(old: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk too full for both refuses the start with the reason, and leaves the old journal as it is."""
    directory, new = old
    before = (directory / FILE_NAME).read_bytes()
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(takeover, "_append", refuse)
        with pytest.raises(JournalUnusable, match=r"No space left.*Make room for a copy"):
            Store(directory)
    assert (directory / FILE_NAME).read_bytes() == before
    new.close()


def test_an_old_journal_beside_a_new_log(old: tuple[Path, Store]) -> None:
    """A database of an earlier version put back beside a later log is refused: we cannot say which counts."""
    directory, new = old
    (directory / LOG_NAME).mkdir()
    with pytest.raises(JournalUnusable, match=r"earlier version.*move one of them away"):
        Store(directory)
    new.close()


def test_damaged_events_are_told_as_before(old: tuple[Path, Store]) -> None:
    """An old event that fails its checksum is left out, and whoever reads there is told that it is damaged."""
    directory, new = old
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        db.execute("UPDATE events SET payload = 'damage' WHERE sequence = ?", (new.oldest + 1,))
        db.commit()
    store = Store(directory)
    entries, corrupt = store.read(0, 10**9)
    assert corrupt == [new.oldest + 1]
    assert [e.sequence for e in entries] == [n for n in range(new.oldest, new.next_sequence) if n not in corrupt]
    store.close()
    assert log_files(directory)
    new.close()
