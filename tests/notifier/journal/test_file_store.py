"""The journal in files: what a crash leaves behind, what is damaged, and what a commit costs."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.notifier.journal import file_store, memories, segments
from millrace.notifier.journal import log as log_module
from millrace.notifier.journal.file_store import LOG_NAME, Store
from millrace.notifier.journal.memories import FILE_NAME
from millrace.notifier.journal.rows import JournalUnusable
from millrace.notifier.journal.segments import events_of
from millrace.notifier.rules.dedup import Block, State

from ..journal_files import commits, flip, log_files
from .test_store import fill

OpenStore = Callable[[Path], Store]


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Opens journals for writing and closes them at the end of the test."""
    with ExitStack() as stack:

        def opened(directory: Path) -> Store:
            store = Store(directory)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log begins a new file after some commits."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 10_000)


def copy_of(directory: Path, target: Path) -> Path:
    """What a process that dies now leaves behind."""
    shutil.copytree(directory / LOG_NAME, target / LOG_NAME)
    for file in directory.glob(f"{FILE_NAME}*"):
        shutil.copy(file, target)
    return target


def test_survives_without_goodbye(tmp_path: Path, open_store: OpenStore) -> None:
    """What was committed is there for the next process though the first never closed the files."""
    store = open_store(tmp_path / "first")
    fill(store, 5)
    store.begin()
    store.append("SaveBlock", 1, 0, "lost", 5, b"never committed")
    again = open_store(copy_of(tmp_path / "first", tmp_path / "copy"))
    entries, corrupt = again.read(0, 10**6)
    assert [entry.payload[0] for entry in entries] == [0, 1, 2, 3, 4] and not corrupt
    assert again.next_sequence == entries[-1].sequence + 1
    store.rollback()


def test_commits_reach_the_disk(tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit returns when all its bytes are synced; a new file and its name are synced before it is used."""
    synced: dict[str, int] = {}

    def sync(descriptor: int) -> None:
        synced[str(Path(f"/proc/self/fd/{descriptor}").readlink())] = os.fstat(descriptor).st_size

    monkeypatch.setattr("os.fsync", sync)
    monkeypatch.setattr("os.fdatasync", sync)
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1000)
    store = open_store(tmp_path)
    db = store._memories._db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    for number in range(1, 5):
        synced.clear()
        fill(store, 12)
        files = log_files(tmp_path)
        assert len(files) == number
        assert synced[str(files[-1])] == files[-1].stat().st_size > 1200
        assert (str(tmp_path / LOG_NAME) in synced) == (number > 1)


def test_torn_tail_is_cut(tmp_path: Path, open_store: OpenStore, small_files: None) -> None:
    """A log cut at any byte of its newest file opens with the commits before, and takes more."""
    store = open_store(tmp_path / "whole")
    for _ in range(14):
        fill(store, 2, size=1000)
    rng, counts = random.Random(1), set()
    for attempt in range(40):
        directory = copy_of(tmp_path / "whole", tmp_path / f"torn{attempt}")
        newest = log_files(directory)[-1]
        size = rng.choice((newest.stat().st_size - rng.randrange(100), rng.randrange(48, newest.stat().st_size)))
        os.truncate(newest, size)
        if rng.random() < 0.5:  # with the length on the disk, and not the content
            os.truncate(newest, size + rng.randrange(5000))
        found = (events_of(file, offset, commit) for _, file, offset, commit in commits(directory))
        before = sum(2 for events in found if all(entry for _, entry in events))
        torn = Store(directory)
        entries, corrupt = torn.read(0, 10**6)
        counts.add(len(entries))
        assert not corrupt and len(entries) == before and len(entries) % 2 == 0, "a commit is whole or absent"
        assert [e.sequence for e in entries] == list(range(torn.origin + 1, torn.origin + 1 + len(entries)))
        fill(torn, 1)
        torn.close()
        again = Store(directory)
        assert len(again.read(0, 10**6)[0]) == before + 1
        again.close()
    assert len(counts) > 2


def test_a_file_that_was_never_finished(tmp_path: Path, open_store: OpenStore, small_files: None) -> None:
    """A newest file without a whole head is taken away if no commit can be in it, and else refuses the start."""
    store = open_store(tmp_path / "whole")
    fill(store, 3)
    directory = copy_of(tmp_path / "whole", tmp_path / "torn")
    following = directory / LOG_NAME / f"{store.log.end.number + 1:020}-{store.next_sequence:020}.log"
    following.write_bytes(log_files(directory)[0].read_bytes()[:30])
    torn = open_store(directory)
    assert len(torn.read(0, 10**6)[0]) == 3 and not following.exists()
    for _ in range(4):
        fill(torn, 30)
    assert len(log_files(directory)) > 1
    known = copy_of(directory, tmp_path / "known")
    os.truncate(log_files(known)[-1], 30)
    with pytest.raises(JournalUnusable, match="does not begin as a file of the log does"):
        Store(known)


@pytest.mark.parametrize("which", [0, -1])
def test_missing_files_refuse_the_start(tmp_path: Path, small_files: None, which: int) -> None:
    """When a file that a start needs is gone, oldest or newest, it says so and what to do."""
    store = Store(tmp_path)
    for _ in range(5):
        fill(store, 60)
    store.close()
    log_files(tmp_path)[which].unlink()
    with pytest.raises(
        JournalUnusable, match=r"of the log is missing.*backup, or move journal.sqlite3\* and the folder"
    ):
        Store(tmp_path)


@pytest.mark.parametrize("closed", [True, False])
def test_no_flipped_byte_is_believed(
    tmp_path: Path, small_files: None, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """Whatever byte of the log changes: the start is refused, or each event is whole, or told to be damaged.

    Only what a process wrote last and never closed goes in silence: it cannot be told from a write that was cut off.
    """
    monkeypatch.setattr(file_store, "_MAX_RECENT", 20)
    for name in ("NEWEST_EVENTS", "NEWEST_BYTES"):
        monkeypatch.setattr(file_store, name, 8)
    whole = Store(tmp_path / "whole")
    rng = random.Random(2)
    for number in range(120):
        whole.begin()
        for _ in range(rng.randrange(4)):
            save(whole, 4 * number + rng.randrange(4), rng.randrange(500))
        whole.commit()
    told = {entry.sequence: entry for entry in whole.read(0, 10**9, 10**6)[0]}
    if closed:
        whole.close()
    files = len(log_files(tmp_path / "whole"))
    outcomes = {"refused": 0, "damaged": 0, "cut": 0}
    for attempt in range(150):
        directory = copy_of(tmp_path / "whole", tmp_path / f"flipped{attempt}")
        file = rng.choice((rng.choice(log_files(directory)), log_files(directory)[-1]))
        at = rng.randrange(file.stat().st_size)
        flip(file, at)
        try:
            store = Store(directory)
        except JournalUnusable as error:
            outcomes["refused"] += 1
            assert "damaged" in str(error) and "start again" in str(error)
            continue
        entries, corrupt = store.read(0, 10**9, 10**6)
        for entry in entries:
            expected = told[entry.sequence]
            assert (entry.message_id, entry.payload) == (expected.message_id, expected.payload)
        found = sorted([entry.sequence for entry in entries] + corrupt)
        assert found == list(range(found[0], store.next_sequence)) and found[0] == min(told)
        cut = max(told) + 1 - store.next_sequence
        outcomes["damaged" if corrupt else "cut"] += 1
        assert corrupt or (not closed and cut <= 3 and file == log_files(directory)[-1])
        store.close()
        shutil.rmtree(directory)
    assert files > 5 and outcomes["refused"] and outcomes["damaged"] and bool(outcomes["cut"]) == (not closed)
    if not closed:
        whole.close()


def test_a_payload_is_never_taken_for_a_commit(tmp_path: Path, open_store: OpenStore) -> None:
    """Where the log is damaged, a payload that holds a commit of another log is passed over."""
    other = open_store(tmp_path / "other")
    fill(other, 1)
    forged = log_files(tmp_path / "other")[0].read_bytes()[segments.FILE_HEAD :]
    store = open_store(tmp_path / "mine")
    for payload in (b"first", forged, b"last"):
        store.begin()
        store.append("SaveBlock", 1, 0, "SaveBlock:1:aa:1", 5, payload)
        store.commit()
    (_, _, offset, _) = list(commits(tmp_path / "mine"))[1]
    flip(log_files(tmp_path / "mine")[0], offset + 5)
    entries, corrupt = store.read(0, 10**6)
    first = store.origin + 1
    assert [entry.payload for entry in entries] == [b"first", b"last"] and corrupt == [first + 1]
    with pytest.raises(JournalUnusable, match="is damaged at byte"):
        Store(copy_of(tmp_path / "mine", tmp_path / "copy"))


@pytest.mark.parametrize("failing", ["write", "sync", "roll", "move"])
def test_a_disk_that_refuses(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, small_files: None, failing: str
) -> None:
    """A commit that fails in the middle leaves nothing: not here, not for readers, not for the next process."""
    monkeypatch.setattr(file_store, "_MAX_RECENT", 13)
    store = open_store(tmp_path / "journal")
    reader = store.reader()
    rng = random.Random(3)
    write_all = segments.write_all

    def broken(descriptor: int, parts: Sequence[bytes], offset: int) -> None:
        data = b"".join(parts)
        write_all(descriptor, [data[: rng.randrange(len(data))] if failing == "write" else data], offset)
        raise OSError(errno.ENOSPC, "no space left")

    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("full") if failing == "move" else OSError(errno.ENOSPC, "no space left")

    name = {"roll": "segments.Segment.create", "move": "memories.Memories.move"}.get(failing, "segments.write_all")
    target = f"millrace.notifier.journal.{name}"
    kept, failed = 0, 0
    for attempt in range(60):
        with monkeypatch.context() as patch:
            if attempt % 3:
                patch.setattr(target, broken if failing in ("write", "sync") else refuse)
            store.begin()
            count = 4 if attempt % 3 else 3  # so that more was written in vain than is written then
            for number in range(count):
                save(store, 10 * attempt + number, 500)
            try:
                store.commit()
                kept += count
                assert log_files(tmp_path / "journal")[-1].stat().st_size == store.log.newest.size
            except (OSError, sqlite3.OperationalError):
                store.rollback()
                failed += 1
        for view in (store, reader):
            entries, corrupt = view.read(0, 10**9, 10**6)
            assert len(entries) == kept and not corrupt
        assert store.next_sequence == store.origin + 1 + kept and store.payload_bytes == 500 * kept
    assert failed > 5
    reader.close()
    again = open_store(copy_of(tmp_path / "journal", tmp_path / "copy"))
    # A commit that was written and not synced may be there: no node was answered, and it will send that again.
    assert len(again.read(0, 10**9, 10**6)[0]) in ((kept, kept + 4) if failing == "sync" else (kept,))


def test_no_database_at_all(tmp_path: Path) -> None:
    """A file of something else under the journal's name is not touched."""
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)
    with pytest.raises(JournalUnusable, match="damaged"):
        Store(tmp_path)
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


def written() -> int:
    """Bytes that this process has given to disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


@pytest.mark.parametrize("size", [600, 2000, 3900])
def test_small_commits_write_little(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Messages under 4 KB, one in a commit, give the disk at most 12 KB each, moves of memories included."""
    monkeypatch.setattr(file_store, "_MAX_RECENT", 200)
    store = open_store(tmp_path)
    before = written()
    for number in range(300):
        tell(store, number, size)
    assert store._memories._db.execute("SELECT count(*) FROM blocks").fetchone()[0] > 100, "memories were moved"
    if written() == before:
        pytest.skip("the file system is in memory")
    assert (written() - before) / 900 < 12_000


@pytest.mark.parametrize("size", [600, 2000, 3900])
def test_commits_of_many_write_little(tmp_path: Path, open_store: OpenStore, size: int) -> None:
    """Sixteen blocks in a commit give the disk at most three times their bytes, with all that is done later."""
    store = open_store(tmp_path)
    before = written()
    for number in range(0, 6400, 16):
        store.begin()
        for nonce in range(number, number + 16):
            save(store, nonce, size)
        store.commit()
    assert store._memories._db.execute("SELECT count(*) FROM blocks").fetchone()[0] > 4000, "memories were moved"
    if written() == before:
        pytest.skip("the file system is in memory")
    assert written() - before < 3 * 6400 * size


def test_bytes_are_counted_across_restarts(tmp_path: Path) -> None:
    """However a process ended, the next one knows how many bytes the events have, without reading all of them."""
    expected = 0
    for sizes in ((10, 20), (5,) * 1200, (7,)):
        store = Store(tmp_path)
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
    store = Store(tmp_path)
    store.begin()
    gone = store.prune(0, expected - 25, 10**6)
    store.rollback()
    assert (gone, store.payload_bytes) == (2, expected)
    store.begin()
    assert store.prune(0, expected - 25, 10**6) == 2
    store.commit()
    store.close()
    store = Store(tmp_path)
    assert store.payload_bytes == expected - 30
    store.close()


def test_old_memories_leave_by_eras(tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind the window is forgotten at once, and leaves the tables some rows at a time, era by era."""
    monkeypatch.setattr(file_store, "_MAX_RECENT", 1)
    monkeypatch.setattr(memories, "ERA_BITS", 8)
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
        left.append(max(store._memories._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables))
        fill(store, 1)
    assert left == sorted(left, reverse=True) and left[0] > 2000
    assert 3000 - 2906 <= left[-1] < 101 + 256, "what is known, and what an era begins with"


def test_memories_in_memory_are_bounded(tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered waits in memory only up to the bound; moved or not, a reader and the next start know it."""
    monkeypatch.setattr(file_store, "_MAX_RECENT", 20)
    store = open_store(tmp_path)
    reader = store.reader()
    hashes, counts = [], []
    for number in range(50):
        tell(store, number, 10)
        hashes.append(hashlib.sha256(b"%d" % number).digest())
        counts.append(len(store.recent))
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
    """Changes of a commit that are none refuse the start, which says what to do."""
    store = Store(tmp_path)
    store.log.append(store._commit(b"\xff\x00"), ())
    store.close()
    with pytest.raises(JournalUnusable, match=r"damaged.*backup"):
        Store(tmp_path)


def test_retention_deletes_files(tmp_path: Path, open_store: OpenStore, small_files: None) -> None:
    """Files of which nothing is kept go, once what only they remember is in the tables; a start knows it all."""
    store = open_store(tmp_path / "journal")
    reader = store.reader()
    hashes = []
    for number in range(600):
        store.begin()
        hashes.append(save(store, number, 1000))
        store.commit()
        if number % 5 == 0:
            store.begin()
            store.prune(0, 20_000, 10**6)
            store.commit()
            first = reader.read(0, 1)[0][0]
            assert first.sequence == store.oldest
    assert store.payload_bytes <= 26_000
    files = log_files(tmp_path / "journal")
    assert len(files) <= 3 + (256 * 1300) // 10_000, "files of the newest events, which a start reads, stay"
    again = open_store(copy_of(tmp_path / "journal", tmp_path / "copy"))
    assert (again.oldest, again.next_sequence, again.payload_bytes) == (
        store.oldest,
        store.next_sequence,
        store.payload_bytes,
    )
    assert all(again.block(0, name) for name in hashes)
    assert len(again.newest) == store.next_sequence - store.oldest
    reader.close()


@pytest.mark.parametrize(
    ("code", "damaged"),
    [(sqlite3.SQLITE_FULL, False), (sqlite3.SQLITE_BUSY, False), (sqlite3.SQLITE_CORRUPT, True), (None, True)],
)
def test_a_full_disk_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, damaged: bool
) -> None:
    """What says nothing of the file's content does not advise to put the journal away; what does, does."""
    Store(tmp_path).close()

    def refuse(_: Store) -> None:
        error = sqlite3.OperationalError("refused")
        if code is not None:
            error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(Store, "_read_newest", refuse)
    with pytest.raises(JournalUnusable) as raised:
        Store(tmp_path)
    assert ("damaged" in str(raised.value)) == damaged


def test_a_start_reads_a_bounded_log(tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many commits changed one memory again and again, a start reads no more of them than the bound."""
    monkeypatch.setattr(file_store, "_MAX_RECENT", 50)
    monkeypatch.setattr(file_store, "NEWEST_EVENTS", 5)
    store = open_store(tmp_path / "journal")
    for number in range(500):
        store.begin()
        store.swap_latest("Settings", 1, b"%d" % number)
        store.append("Settings", 1, 0, f"Settings:1:{number:02x}:1", 1, b"x")
        store.commit()
    directory = copy_of(tmp_path / "journal", tmp_path / "copy")
    read = []
    monkeypatch.setattr(Store, "_note", lambda self, place, commit: read.append(commit.number))
    again = open_store(directory)
    assert read[-1] == 500 and len(read) <= 50 + 5
    again.begin()
    assert not again.swap_latest("Settings", 1, b"499")
