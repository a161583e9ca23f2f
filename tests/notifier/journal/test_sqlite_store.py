"""The SQLite file of the journal: what a crash leaves behind, and what is no journal at all."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.notifier.journal import sqlite_store
from millrace.notifier.journal.rows import JournalUnusable
from millrace.notifier.journal.sqlite_store import FILE_NAME, SCHEMA_VERSION, Store
from millrace.notifier.rules.dedup import Block, State

from .test_store import fill

OpenStore = Callable[[Path], Store]


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Opens journals for writing and closes them at the end of the test."""
    with ExitStack() as stack:

        def opened(directory: Path) -> Store:
            store = Store(directory, writer=True)
            stack.callback(store.close)
            return store

        yield opened


def test_survives_without_goodbye(tmp_path: Path, open_store: OpenStore) -> None:
    """What was committed is there for the next process though the first never closed the file."""
    store = open_store(tmp_path)
    fill(store, 5)
    store.begin()
    store.append("SaveBlock", 1, 0, "lost", 5, b"never committed")
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob("journal*"):
        shutil.copy(file, copy)
    again = open_store(copy)
    entries, corrupt = again.read(0, 10**6)
    assert [entry.payload[0] for entry in entries] == [0, 1, 2, 3, 4] and not corrupt
    assert again.next_sequence == entries[-1].sequence + 1
    store.rollback()


def test_commits_reach_the_disk(tmp_path: Path, open_store: OpenStore) -> None:
    """The database runs with a write-ahead log that is synced at every commit."""
    db = open_store(tmp_path)._db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"


def test_torn_tail_is_cut(tmp_path: Path, open_store: OpenStore) -> None:
    """A write-ahead log cut at any byte opens with all events up to some point, in order, and takes more."""
    store = open_store(tmp_path)
    for _ in range(6):
        fill(store, 2, size=3000)
    database, log = (tmp_path / FILE_NAME).read_bytes(), (tmp_path / f"{FILE_NAME}-wal").read_bytes()
    store.close()
    rng, counts = random.Random(1), set()
    for attempt in range(12):
        directory = tmp_path / f"torn{attempt}"
        directory.mkdir()
        (directory / FILE_NAME).write_bytes(database)
        # Below 60 KB the creation of the tables itself would be cut: that is no journal yet.
        (directory / f"{FILE_NAME}-wal").write_bytes(log[: rng.randrange(len(log) // 2, len(log))])
        torn = open_store(directory)
        entries, corrupt = torn.read(0, 10**6)
        counts.add(len(entries))
        assert not corrupt and len(entries) % 2 == 0, "a transaction is whole or absent"
        assert [e.sequence for e in entries] == list(range(torn.origin + 1, torn.origin + 1 + len(entries)))
        fill(torn, 1)
        torn.close()
    assert len(counts) > 2


def test_no_database_at_all(tmp_path: Path) -> None:
    """A file of something else under the journal's name is not touched."""
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(JournalUnusable, match="damaged"):
        Store(tmp_path, writer=True)
    assert (tmp_path / FILE_NAME).read_bytes() == b"not a database" * 100


def save(store: Store, number: int, size: int, state: State = State.SAVED) -> bytes:
    """What a saved block, or its mark, writes; returns its hash."""
    block_hash = hashlib.sha256(b"%d" % number).digest()
    topic = "SaveBlock" if state is State.SAVED else "FinalizedBlock"
    store.block(0, block_hash)
    if state is State.SAVED:
        store.set_newest_nonce(0, number)
    block = Block(generation=1, state=state, nonce=number, digest=block_hash[:16], first_sequence=store.next_sequence)
    store.put_block(0, block_hash, block)
    store.append(topic, 0, 0, f"{topic}:0:{block_hash.hex()}:1", 1, bytes(size))
    return block_hash


def tell(store: Store, number: int, size: int) -> None:
    """What a saved block, its mark and its round write, a commit each."""
    for state, length in ((State.SAVED, size), (State.FINAL, 40)):
        store.begin()
        block_hash = save(store, number, length, state)
        store.commit()
    store.begin()
    assert store.add_content("SaveRoundsInfo", 0, block_hash[16:])
    store.append("SaveRoundsInfo", 0, 0, f"SaveRoundsInfo:0:{block_hash[16:].hex()}:1", 1, bytes(250))
    store.commit()


@pytest.mark.parametrize("size", [600, 3900])
def test_small_commits_write_little(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Messages under 4 KB, one in a commit, write at most 12 KB each: on average, with all that is done later."""
    monkeypatch.setattr(sqlite_store, "_MAX_RECENT", 200)
    store = open_store(tmp_path)
    log = Path(f"{store.path}-wal")
    before = log.stat().st_size
    for number in range(300):
        tell(store, number, size)
    assert store._db.execute("SELECT count(*) FROM blocks").fetchone()[0] > 100, "memories were moved meanwhile"
    assert (log.stat().st_size - before) / 900 < 12_000


@pytest.mark.parametrize("size", [2000, 3900])
def test_commits_of_many_write_little(tmp_path: Path, open_store: OpenStore, size: int) -> None:
    """Sixteen blocks in a commit write at most twice their bytes, with all that is done later."""
    store = open_store(tmp_path)
    log = Path(f"{store.path}-wal")
    before = log.stat().st_size
    for number in range(0, 6400, 16):
        store.begin()
        for nonce in range(number, number + 16):
            save(store, nonce, size)
        store.commit()
    assert store._db.execute("SELECT count(*) FROM blocks").fetchone()[0] > 4000, "memories were moved meanwhile"
    assert log.stat().st_size - before < 2 * 6400 * size


def test_bytes_are_counted_across_restarts(tmp_path: Path) -> None:
    """However a process ended, the next one knows how many bytes the events have, without reading all of them."""
    expected = 0
    for sizes in ((10, 20), (5,) * 1200, (7,)):
        store = Store(tmp_path, writer=True)
        assert store.payload_bytes == expected
        store.begin()
        for size in sizes:
            store.append("SaveBlock", 0, 0, "id", 1, bytes(size))
        store.commit()
        store.begin()
        store.prune(0, 10**9, 10**6)
        store.commit()
        expected += sum(sizes)
        store.close()
    store = Store(tmp_path, writer=True)
    store.begin()
    gone = store.prune(0, expected - 25, 10**6)
    store.rollback()
    assert (gone, store.payload_bytes) == (2, expected)
    store.begin()
    assert store.prune(0, expected - 25, 10**6) == 2
    store.commit()
    store.close()
    store = Store(tmp_path, writer=True)
    assert store.payload_bytes == expected - 30
    store.close()


def test_old_memories_leave_by_eras(tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind the window is forgotten at once, and leaves the tables some rows at a time, era by era."""
    monkeypatch.setattr(sqlite_store, "_MAX_RECENT", 1)
    monkeypatch.setattr(sqlite_store, "ERA_BITS", 8)
    store = open_store(tmp_path)
    keys = [hashlib.sha256(b"%d" % number).digest() for number in range(3000)]
    store.begin()
    for number, key in enumerate(keys):
        store.append("SaveBlock", 0, 0, "id", 1, b"")
        store.add_content("SaveRoundsInfo", 0, key[:16])
        block = Block(generation=1, state=State.SAVED, nonce=number, digest=b"", first_sequence=store.next_sequence)
        store.put_block(0, key, block)
    store.commit()
    fill(store, 1)
    store.close()
    store = open_store(tmp_path)
    left = []
    for forgotten in range(2899, 2907):
        store.begin()
        store.prune(0, 10**9, 101)
        store.commit()
        assert [number for number, key in enumerate(keys) if store.block(0, key)] == list(range(forgotten, 3000))
        tables = ("blocks", "contents")
        left.append(max(store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables))
        fill(store, 1)
    assert left == sorted(left, reverse=True) and left[0] > 2000
    assert 3000 - 2906 <= left[-1] < 101 + 256, "what is known, and what an era begins with"


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


@pytest.mark.parametrize("schema", [VERSION_1, VERSION_2], ids=["1", "2"])
def test_journals_of_older_versions(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    """A journal of an older format is taken over with all it holds, once."""
    monkeypatch.setattr(sqlite_store, "_MAX_RECENT", 1)
    new = open_store(tmp_path / "new")
    tell(new, 7, 600)
    fill(new, 5)
    tables = ("events", "blocks", "contents", "shards")
    with sqlite3.connect(tmp_path / FILE_NAME) as old:
        old.executescript(schema)
        for table in tables:
            rows = new._db.execute(f"SELECT * FROM {table}").fetchall()
            if table in ("blocks", "contents"):
                rows = [row[1:] for row in rows]  # the era is new
            old.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
    old.close()
    for number in (8, 9):
        store = open_store(tmp_path)
        for table in tables:
            ask = f"SELECT * FROM {table}"
            assert store._db.execute(ask).fetchall() == new._db.execute(ask).fetchall() != []
        assert not store.read(0, 10**9)[1], "all checksums are right"
        assert (store.payload_bytes, store.next_sequence) == (new.payload_bytes, new.next_sequence)
        assert store.live_at(0, 7) == new.live_at(0, 7) != []
        made = "SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        assert store._db.execute(made).fetchall() == new._db.execute(made).fetchall()
        assert store._db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        with monkeypatch.context() as patch:
            patch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
            tell(store, number, 600)
            tell(new, number, 600)
            fill(store, 1)
            fill(new, 1)
        store.close()


def test_memories_in_rows_are_bounded(tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered waits in rows only up to the bound; moved or not, a reader and the next start know it."""
    monkeypatch.setattr(sqlite_store, "_MAX_RECENT", 20)
    store = open_store(tmp_path)
    reader = Store(tmp_path, writer=False)
    hashes, counts = [], []
    for number in range(50):
        tell(store, number, 10)
        hashes.append(hashlib.sha256(b"%d" % number).digest())
        counts.append(store._db.execute("SELECT count(*) FROM changes").fetchone()[0])
        found = reader.blocks([(0, name) for name in hashes])
        known = [found.get((0, name)) for name in hashes]
        assert [block and block.nonce for block in known] == list(range(number + 1))
        assert all(block and block.state is State.FINAL for block in known)
    reader.close()
    assert max(counts) <= 30, "a block has two memories, in three rows"
    assert counts != sorted(counts), "they were moved"
    store.close()
    again = open_store(tmp_path)
    assert [again.live_at(0, number) for number in range(50)] == [[name] for name in hashes]
    again.begin()
    assert not any(again.add_content("SaveRoundsInfo", 0, name[16:]) for name in hashes)
    again.rollback()
    assert again.newest_nonce(0) == 49


def test_damaged_memories_refuse_the_start(tmp_path: Path) -> None:
    """A row of memories that is none refuses the start and says what to do."""
    Store(tmp_path, writer=True).close()
    db = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    db.execute("INSERT INTO changes (change) VALUES (X'FF00')")
    db.close()
    with pytest.raises(JournalUnusable, match=r"remembered last cannot be read.*damaged.*backup"):
        Store(tmp_path, writer=True)


@pytest.mark.parametrize(
    ("code", "damaged"),
    [(sqlite3.SQLITE_FULL, False), (sqlite3.SQLITE_BUSY, False), (sqlite3.SQLITE_CORRUPT, True), (None, True)],
)
def test_a_full_disk_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, damaged: bool
) -> None:
    """What says nothing of the file's content does not advise to put the journal away; what does, does."""
    Store(tmp_path, writer=True).close()

    def refuse(_: Store) -> None:
        error = sqlite3.OperationalError("refused")
        if code is not None:
            error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(Store, "_read_newest", refuse)
    with pytest.raises(JournalUnusable) as raised:
        Store(tmp_path, writer=True)
    assert ("damaged" in str(raised.value)) == damaged
