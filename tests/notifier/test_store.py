"""The journal's file: what is committed stays, what is damaged is noticed, what is old leaves."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.notifier.dedup import Block, State
from millrace.notifier.store import FILE_NAME, JournalUnusable, Store

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


def fill(store: Store, count: int, size: int = 100, now: int = 5) -> None:
    store.begin()
    for number in range(count):
        store.append("SaveBlock", 1, 0, f"SaveBlock:1:{number:02x}:1", now, bytes([number % 256]) * size)
    store.commit()


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


def corrupt_row(directory: Path, sequence: int) -> None:
    """Flip one bit of an event's payload, below the checksums' sight."""
    run_sql(
        directory,
        f"UPDATE events SET payload = cast(x'00' || substr(payload, 2) AS BLOB) WHERE sequence = {sequence}",
    )


def test_damage_at_the_end_refuses_to_start(tmp_path: Path, open_store: OpenStore) -> None:
    """A newest event that fails its checksum refuses the start and says what to do."""
    store = open_store(tmp_path)
    fill(store, 5)
    newest = store.next_sequence - 1
    store.close()
    corrupt_row(tmp_path, newest)
    with pytest.raises(JournalUnusable, match=f"event {newest} fails its checksum.*[Rr]estore it from a backup"):
        open_store(tmp_path)


def test_damage_further_back_is_reported(tmp_path: Path, open_store: OpenStore) -> None:
    """An old event that fails its checksum is left out of what is read, and named."""
    store = open_store(tmp_path)
    fill(store, 300)
    first = store.oldest
    store.close()
    corrupt_row(tmp_path, first + 3)
    entries, corrupt = open_store(tmp_path).read(first - 1, 10**6, max_rows=10)
    assert corrupt == [first + 3] and [e.sequence - first for e in entries] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def run_sql(directory: Path, *statements: str) -> None:
    """Change the file behind the store's back."""
    db = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("PRAGMA application_id = 1", "something else"),
        ("PRAGMA user_version = 9", "format 9"),
        ("DELETE FROM facts", "fact"),
        ("DROP TABLE events", "damaged"),
    ],
)
def test_unusable_files(tmp_path: Path, statement: str, words: str) -> None:
    """A file that is not a whole journal of this version refuses the start with the reason and a way out."""
    Store(tmp_path, writer=True).close()
    run_sql(tmp_path, statement)
    with pytest.raises(JournalUnusable, match=words):
        Store(tmp_path, writer=True)


def test_no_database_at_all(tmp_path: Path) -> None:
    """A file of something else under the journal's name is not touched."""
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(JournalUnusable, match="damaged"):
        Store(tmp_path, writer=True)
    assert (tmp_path / FILE_NAME).read_bytes() == b"not a database" * 100


def test_rollback_forgets_everything(tmp_path: Path, open_store: OpenStore) -> None:
    """After a rollback, whole or to a mark, events, memories and sequences are as before."""
    store = open_store(tmp_path)
    fill(store, 1)
    before = store.next_sequence, store.payload_bytes
    store.begin()
    mark = store.mark()
    store.append("SaveBlock", 0, 0, "x", 1, b"x")
    store.add_content("t", 0, b"d")
    store.back_to(mark)
    assert (store.next_sequence, store.payload_bytes) == before
    assert store.add_content("t", 0, b"d")
    store.append("SaveBlock", 0, 0, "x", 1, b"x")
    store.rollback()
    assert (store.next_sequence, store.payload_bytes) == before
    store.begin()
    assert store.add_content("t", 0, b"d")
    store.commit()


def test_retention(tmp_path: Path, open_store: OpenStore) -> None:
    """Events leave by age and by size, oldest first; sequences never start again, even when all have left."""
    store = open_store(tmp_path)
    fill(store, 10, size=100, now=1)
    fill(store, 10, size=100, now=50)
    first = store.oldest
    store.begin()
    assert store.prune(before_ms=2, max_bytes=10**6, dedup_window=10**6) == 10
    assert store.prune(before_ms=2, max_bytes=350, dedup_window=10**6) == 7
    store.commit()
    entries, _ = store.read(0, 10**6)
    assert [e.sequence - first for e in entries] == [17, 18, 19]
    assert (store.oldest, store.payload_bytes) == (first + 17, 300)
    store.begin()
    store.prune(before_ms=100, max_bytes=10**6, dedup_window=10**6)
    store.commit()
    following = store.next_sequence
    store.close()
    again = open_store(tmp_path)
    assert (again.next_sequence, again.oldest, again.payload_bytes) == (following, following, 0)


def test_memories_leave_behind_the_window(tmp_path: Path, open_store: OpenStore) -> None:
    """What was seen is forgotten once so many events followed; a mark still waiting is not."""
    store = open_store(tmp_path)
    store.begin()
    for name, held in ((b"old", 0), (b"held", 7)):
        store.put_block(0, name, Block(1, State.SAVED, 4, b"", store.next_sequence, bool(held), held))
    store.add_content("t", 0, b"old")
    store.commit()
    fill(store, 30)
    store.begin()
    store.put_block(0, b"new", Block(1, State.SAVED, 5, b"", store.next_sequence))
    store.prune(0, 10**9, dedup_window=20)
    store.commit()
    assert store.block(0, b"old") is None
    assert store.block(0, b"held") is not None and store.block(0, b"new") is not None
    assert store.add_content("t", 0, b"old")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples of a property."""
    store = Store(tmp_path_factory.mktemp("store"), writer=True)
    yield store
    store.close()


@settings(deadline=None)
@given(nonce=st.integers(0, 2**64 - 1))
def test_nonces_are_unsigned(shared: Store, nonce: int) -> None:
    """Any 64-bit nonce comes back as it was stored."""
    block = Block(1, State.FINAL, nonce, b"digest", 7, True, 9)
    shared.begin()
    shared.put_block(1, b"hash", block)
    shared.set_newest_nonce(1, nonce)
    assert (shared.block(1, b"hash"), shared.newest_nonce(1)) == (block, nonce)
    assert shared.live_at(1, nonce) == [b"hash"]
    shared.rollback()
