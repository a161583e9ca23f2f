"""The log under a disk that refuses at a bad moment, a reader who is overtaken, and folders that are not whole."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from millrace.chain.proto.hub_pb2 import Gap
from millrace.notifier.journal import file_store
from millrace.notifier.journal import log as log_module
from millrace.notifier.journal.file_store import LOG_NAME, Store
from millrace.notifier.journal.log import LogReader
from millrace.notifier.journal.memories import FILE_NAME
from millrace.notifier.journal.rows import JournalUnusable
from millrace.runtime import files

from ..helpers import notifier, peers, save_block
from ..journal_files import log_files
from .test_file_store import copy_of, save
from .test_store import fill


def test_what_a_start_found_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose process died before its sync is synced by the start: whoever repeats it is answered at once."""
    with closing(Store(tmp_path / "first")) as store:
        fill(store, 5)
        directory = copy_of(tmp_path / "first", tmp_path / "copy")
    synced = set()
    with monkeypatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda of: synced.add(str(Path(f"/proc/self/fd/{of}").readlink())))
        again = Store(directory)
        assert str(log_files(directory)[-1]) in synced
    again.close()


class BadSectors:
    """Makes the disk refuse to read some bytes of a file, as it does where its surface is damaged."""

    def __init__(self, patch: pytest.MonkeyPatch, path: Path, bad: range) -> None:
        real = os.preadv
        self.refused = 0

        def read(descriptor: int, buffers: list[memoryview], offset: int) -> int:
            if Path(f"/proc/self/fd/{descriptor}").readlink() == path:
                size = sum(map(len, buffers))
                if bad.start <= offset < bad.stop:
                    self.refused += 1
                    raise OSError(errno.EIO, "bad sector")
                if offset < bad.start < offset + size:  # the system gives what comes before
                    return real(descriptor, [buffers[0][: bad.start - offset]], offset)
            return real(descriptor, buffers, offset)

        patch.setattr(os, "preadv", read)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_bad_sector_costs_the_events_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """What the disk cannot read is told to be damaged, once, and all else of the file is read; retention goes on."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 40_000)
    with closing(Store(tmp_path)) as store:
        for number in range(60):
            store.begin()
            save(store, number, 2000)
            store.commit()
        first, path = store.oldest, log_files(tmp_path)[0]
        BadSectors(monkeypatch, path, range(4096 * at, 4096 * (at + 1)))
        reader = LogReader(store.log)
        entries, damaged = reader.read(0, 10**9, 10**6)
        assert sorted([entry.sequence for entry in entries] + damaged) == list(range(first, first + 60))
        assert 1 <= len(damaged) <= 4, "a sector holds parts of three events at most, and a head of a commit"
        store.begin()
        assert store.prune(0, 10_000, 10**6) >= 50
        store.commit()


def test_a_dying_disk_does_not_fill_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many sectors cannot be read, and however often they are asked for, the log says it now and then."""
    with closing(Store(tmp_path)) as store:
        for number in range(60):
            store.begin()
            save(store, number, 2000)
            store.commit()
        bad = BadSectors(monkeypatch, log_files(tmp_path)[0], range(4096, 1 << 20))
        for _ in range(3):
            LogReader(store.log).read(0, 10**9, 10**6)
        said = [record for record in caplog.records if "cannot read" in record.message]
        assert bad.refused > 60 and len(said) < 10


async def test_a_bad_sector_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers are told of the gap; while the disk takes no writes either they wait, as it may be away for a while."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    async with notifier(tmp_path, tail_bytes=1) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(30):
            await node.save(save_block(0, nonce))
        first, path = running.journal.oldest, log_files(tmp_path)[0]
        with monkeypatch.context() as patch:
            bad = BadSectors(patch, path, range(4096, 8192))
            running.journal.failing = "no device"
            waiting = asyncio.create_task(running.journal.read(first - 1, 10**6))
            while bad.refused < 10:  # twice an attempt
                await asyncio.sleep(0.001)
            assert not waiting.done() and not running.metrics.corrupt._value.get()
        assert len(await waiting) == 30, "it is back"
        running.journal.failing = ""
        BadSectors(monkeypatch, path, range(4096, 8192))
        consumer = await connect.consumer()
        await consumer.subscribe(resume_after=0)
        told = [await consumer.event()]
        while told[-1].counter < first + 29:
            told.append(await consumer.event())
        gaps = [Gap.FromString(message.payload) for message in told if message.topic == "gap"]
        lost = {number for gap in gaps for number in range(gap.first, gap.last + 1)}
        came = {message.counter for message in told if message.topic != "gap"}
        assert came | lost == set(range(first, first + 30)) and not came & lost and gaps
        assert running.metrics.corrupt._value.get() == len(lost)


@pytest.mark.parametrize("pruned", [False, True])
def test_a_new_file_that_was_made_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pruned: bool) -> None:
    """A new file that is whole, but could not be synced, does not bar the start of what went on in the one before."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1000)
    store = Store(tmp_path)
    fill(store, 12)

    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, "no sync")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", refuse)
        store.begin()
        store.append("SaveBlock", 1, 0, "SaveBlock:1:aa:1", 5, b"refused")
        with pytest.raises(OSError, match="no sync"):
            store.commit()
        store.rollback()
    assert len(log_files(tmp_path)) == 2
    kept = 12
    if pruned:
        store.begin()
        assert store.prune(0, 1000, 10**6) == 2
        store.commit()
        kept = 20
        fill(store, 10)
    store.close()
    for count in (kept, kept + 12):
        store = Store(tmp_path)
        assert len(store.read(0, 10**6)[0]) == count
        fill(store, 12)
        store.close()


def test_a_file_that_ends_with_what_was_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was written whole, not synced and not taken away at once is gone before a new file begins."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1000)
    store = Store(tmp_path)
    fill(store, 12)

    def refuse(*_: int) -> None:
        raise OSError(errno.EIO, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        patch.setattr(os, "ftruncate", refuse)
        store.begin()
        store.prune(0, 1000, 10**6)
        with pytest.raises(OSError, match="refused"):
            store.commit()
        store.rollback()
    fill(store, 3)
    assert len(log_files(tmp_path)) == 2
    store.close()
    with closing(Store(tmp_path)) as store:
        assert len(store.read(0, 10**6)[0]) == 15


def test_tables_moved_away_alone(tmp_path: Path) -> None:
    """A log without its tables refuses the start, again and again, and stays as it is."""
    store = Store(tmp_path)
    fill(store, 5)
    store.close()
    tables = (tmp_path / FILE_NAME).rename(tmp_path / "aside")
    before = [(path.name, path.read_bytes()) for path in log_files(tmp_path)]
    for _ in range(2):
        with pytest.raises(JournalUnusable, match=r"belong to other tables.*and the folder events away"):
            Store(tmp_path)
    assert [(path.name, path.read_bytes()) for path in log_files(tmp_path)] == before
    tables.replace(tmp_path / FILE_NAME)
    with closing(Store(tmp_path)) as store:
        assert len(store.read(0, 10**6)[0]) == 5


@pytest.mark.parametrize("rows", [1, 30])
def test_a_reader_overtaken_by_the_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Events that leave while they are read are gone, not damaged."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(file_store, "NEWEST_EVENTS", 1)
    store = Store(tmp_path)
    for _ in range(5):
        fill(store, 20)
    first, head = store.oldest, store.next_sequence - 1
    reader = LogReader(store.log)
    with closing(reader.events(0)) as events:
        read = [next(events) for _ in range(rows)]
        for _ in range(4):
            store.begin()
            store.prune(0, 300, 10**6)
            store.commit()
        assert not log_files(tmp_path)[0].name.endswith(f"{first:020}.log"), "files went"
        read += events
    assert all(entry for _, entry in read), "none is told as damaged"
    assert [sequence for sequence, _ in read][-3:] == [head - 2, head - 1, head]
    store.close()


def test_an_end_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    """What a transaction had done when the process ended counts for nothing."""
    store = Store(tmp_path)
    fill(store, 3)
    store.begin()
    save(store, 7, 500)
    store.prune(100, 10**9, 10**6)
    store.close()
    with closing(Store(tmp_path)) as store:
        assert (len(store.read(0, 10**6)[0]), store.payload_bytes) == (3, 300)


def test_bytes_on_the_disk_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log knows how long its files are, through commits, refusals, new files, old ones that go, and starts."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 3000)
    monkeypatch.setattr(file_store, "NEWEST_EVENTS", 1)
    files = 0
    for _ in range(3):
        with closing(Store(tmp_path)) as store:
            for _ in range(12):
                fill(store, 9)
                store.begin()
                store.prune(0, 4000, 10**6)
                store.commit()
                paths = log_files(tmp_path)
                files = max(files, len(paths))
                assert store.disk_bytes == sum(path.stat().st_size for path in paths) > 0
    assert files > 2 and len(log_files(tmp_path)) <= files
    assert not (tmp_path / LOG_NAME / f"{1:020}-{store.origin + 1:020}.log").exists()
