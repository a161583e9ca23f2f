"""The SQLite file of the journal: what a crash leaves behind, and what is no journal at all."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.notifier.journal.rows import JournalUnusable
from millrace.notifier.journal.sqlite_store import FILE_NAME, Store

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
