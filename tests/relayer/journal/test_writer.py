"""Group commit while the disk fails: who waits is told, nothing else is lost, and the order stays."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.relayer.journal import chain
from millrace.relayer.journal import writer as writer_module
from millrace.relayer.journal.chain import Chain, Chained, Kind, Link
from millrace.relayer.journal.mark import NOTHING, Mark
from millrace.relayer.journal.writer import JournalError, JournalFull, NonceTaken, Rows, Write, Writer

WRITER = "ab" * 16
KINDS = (Kind("word", "words", (), ("{}id", "{}word")),)


class Disk:
    """A file with one table and its writer; another connection can hold the file so that nothing can be written."""

    def __init__(self, path: Path) -> None:
        self._other = sqlite3.connect(path, isolation_level=None)
        self._other.execute("PRAGMA journal_mode = WAL")
        self._other.execute("CREATE TABLE IF NOT EXISTS words (id INTEGER PRIMARY KEY, word TEXT UNIQUE)")
        self._other.execute("DELETE FROM words")
        self._other.execute(chain.SCHEMA)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.0, factory=Chained)
        self.mark = Mark(path.with_name("mark"), WRITER)
        self.mark.make(NOTHING)
        self.mark.open()
        self.writer = Writer(connection, Chain(connection, KINDS, WRITER, self._begin()), self.mark)

    def _begin(self) -> Link:
        link = chain.begin(self._other, KINDS, WRITER)
        self.mark.write(link)
        return link

    def fail(self) -> None:
        self._other.execute("BEGIN IMMEDIATE")

    def mend(self) -> None:
        self._other.execute("COMMIT")

    def words(self) -> list[str]:
        return [row[0] for row in self._other.execute("SELECT word FROM words ORDER BY id")]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.writer.close()
        self.mark.close()
        self._other.close()


def word(text: str) -> Callable[[sqlite3.Connection], None]:
    return lambda connection: connection.execute("INSERT INTO words (word) VALUES (?)", (text,)).close()


@pytest.fixture
async def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Disk]:
    monkeypatch.setattr(writer_module, "RETRY_SECONDS", 0.001)
    made = Disk(tmp_path / "file.sqlite")
    try:
        yield made
    finally:
        await made.close()


async def test_row_48_changes_outlive_a_full_disk(disk: Disk) -> None:
    """While the disk fails who waits is told at once; what nobody waits for is made when it works again, in order."""
    disk.fail()
    disk.writer.change(word("first"))
    with pytest.raises(JournalError, match="locked"):
        await disk.writer.commit(word("refused"))
    disk.writer.change(word("second"))
    assert disk.writer.failed == "database is locked" and disk.writer.waiting == 2
    disk.mend()
    await disk.until(lambda: disk.writer.failed is None)
    await disk.writer.commit(word("third"))
    assert disk.words() == ["first", "second", "third"] and disk.writer.waiting == 0


async def test_row_48_nothing_passes_what_the_disk_did_not_take(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fails for a moment, what comes later waits behind what it did not take, though it could be made."""
    monkeypatch.setattr(writer_module, "LAZY_SECONDS", 3600.0)
    failures = ["alone", "with its group"]

    def first(connection: sqlite3.Connection) -> None:
        if failures:
            error = sqlite3.OperationalError(failures.pop())
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        word("first")(connection)

    disk.writer.change(first)
    disk.writer.change(word("second"))
    with pytest.raises(JournalError, match="alone"):
        await disk.writer.commit(word("refused"))
    await disk.until(lambda: disk.writer.waiting == 0)
    assert disk.words() == ["first", "second"] and disk.writer.failed is None


async def test_who_waits_takes_along_what_nobody_waits_for(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others commit, no commit is made for what goes along with theirs; the last of it is written by itself."""
    monkeypatch.setattr(writer_module, "LAZY_SECONDS", 3600.0)
    writer = disk.writer
    writer.change(word("a"))
    await writer.commit(word("b"))
    writer.change(word("c"))
    writer._look()  # the time of "a" is over, which is written; that of "c" is not
    assert writer._timer is not None and writer.commits == 1 and writer.waiting == 1
    writer._later_since -= 3600.0
    writer._look()
    await disk.until(lambda: writer.waiting == 0)
    assert disk.words() == ["a", "b", "c"] and writer.commits == 2
    writer._look()  # nothing waits: nothing is to be done, and none to wait for
    assert writer._timer is None and writer.commits == 2


async def test_a_taken_nonce_is_no_trouble_of_the_disk(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """Who asks for a nonce that is taken is told so; nobody else hears of it, and the log is not filled with it."""

    def taken(_: sqlite3.Connection) -> None:
        raise NonceTaken("taken")

    results = await asyncio.gather(
        disk.writer.commit(word("a")), disk.writer.commit(taken), disk.writer.commit(word("b")), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), NonceTaken, type(None)]
    assert disk.words() == ["a", "b"] and disk.writer.failed is None and not caplog.records


async def test_a_defect_is_not_tried_for_ever(disk: Disk) -> None:
    """A change that can never be made fails alone and is dropped; those around it are made."""

    def impossible(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO nothing VALUES (1)")

    def broken(_: sqlite3.Connection) -> None:
        raise KeyError("defect")

    for change in (word("a"), impossible, word("a"), broken, word("b")):
        disk.writer.change(change)
    await disk.writer.commit(word("c"))
    assert disk.words() == ["a", "b", "c"] and disk.writer.waiting == 0 and disk.writer.failed is None


async def test_the_queue_is_bounded_for_who_waits(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a commit is refused at once; a change is not, and neither is one that ends what is in flight."""
    monkeypatch.setattr(writer_module, "MAX_WAITING", 2)
    disk.fail()
    for text in ("a", "b", "c"):
        disk.writer.change(word(text))
    with pytest.raises(JournalFull):
        await disk.writer.commit(word("d"))
    disk.mend()
    await disk.until(lambda: disk.writer.waiting == 0)
    assert disk.words() == ["a", "b", "c"]


async def test_closing_while_the_disk_fails(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """Closing tries once more, then says how much is lost instead of waiting for ever."""
    disk.fail()
    disk.writer.change(word("a"))
    await disk.writer.close()
    assert "lost" in caplog.text
    disk.mend()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["change", "commit", "fail", "mend"]), max_size=30))
async def test_order_in_any_interleaving(tmp_path: Path, steps: list[str]) -> None:
    """Whatever the disk does every change is made once, in order, and so is every commit that was told to be there."""
    disk = Disk(tmp_path / "file.sqlite")
    writer_module.RETRY_SECONDS, usual = 0.001, writer_module.RETRY_SECONDS
    failing, changed, commits = False, [], []
    try:
        for number, step in enumerate(steps):
            text = f"{step}{number}"
            if step == "change":
                disk.writer.change(word(text))
                changed.append(text)
            elif step == "commit":
                commits.append((text, asyncio.ensure_future(disk.writer.commit(word(text)))))
                await asyncio.sleep(0)
            elif (step == "fail") != failing:
                failing = step == "fail"
                disk.fail() if failing else disk.mend()
        if failing:
            disk.mend()
        answers: list[Any] = await asyncio.gather(*(task for _, task in commits), return_exceptions=True)
        await disk.until(lambda: disk.writer.waiting == 0)
        await disk.writer.commit(word("last"))
        words = disk.words()
        assert [text for text in words if text.startswith("change")] == changed
        told = [text for (text, _), answer in zip(commits, answers, strict=True) if answer is None]
        assert [text for text in words if text.startswith("commit")] == told
    finally:
        writer_module.RETRY_SECONDS = usual
        await disk.close()


async def test_a_change_nobody_waits_for_makes_no_commit_of_its_own(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes along with what somebody waits for, in its place; without that it is written a moment later."""
    monkeypatch.setattr(writer_module, "LAZY_SECONDS", 3600.0)
    disk.writer.change(word("first"))
    disk.writer.change(word("second"))
    await disk.writer.commit(word("third"))
    assert disk.words() == ["first", "second", "third"] and disk.writer.commits == 1
    await disk.writer.close()
    assert disk.writer.waiting == 0


async def test_a_change_is_written_though_nobody_waits_for_anything(disk: Disk) -> None:
    """The moment is short."""
    disk.writer.change(word("alone"))
    await disk.until(lambda: disk.words() == ["alone"])


async def test_nothing_is_acknowledged_before_the_mark_says_so(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while the mark cannot be written waits for it; nothing new is taken, nothing is done twice."""
    really, failing = disk.mark.write, True

    def write(link: Link) -> None:
        if failing:
            raise OSError(5, "disk error")
        really(link)

    monkeypatch.setattr(disk.mark, "write", write)
    before = disk.mark.read()
    waiting = asyncio.create_task(disk.writer.commit(word("a")))
    await disk.until(lambda: disk.writer.is_stuck)
    assert disk.words() == ["a"] and not waiting.done() and disk.mark.read() == before
    assert disk.writer.failed is not None and str(disk.mark.path) in disk.writer.failed
    with pytest.raises(JournalError, match="mark"):
        await disk.writer.commit(word("b"))
    disk.writer.change(word("c"))
    failing = False
    await waiting
    await disk.writer.commit(word("d"))
    assert disk.words() == ["a", "c", "d"] and disk.writer.failed is None
    assert disk.mark.read().sequence == chain.sequence(disk._other, WRITER)


async def test_closing_while_the_mark_cannot_be_written(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer ends; who waits is told that it is not known, and the journal is one commit past its mark."""

    def write(link: Link) -> None:
        raise OSError(5, "disk error")

    monkeypatch.setattr(disk.mark, "write", write)
    waiting = asyncio.create_task(disk.writer.commit(word("a")))
    await disk.until(lambda: disk.writer.is_stuck)
    disk.writer.change(word("b"))
    disk.writer.change(word("c"))
    await disk.writer.close()
    assert disk.words() == ["a"]
    with pytest.raises(JournalError, match="mark"):
        await waiting
    assert chain.sequence(disk._other, WRITER) == disk.mark.read().sequence + 1


async def test_row_48_while_the_disk_hangs_nothing_new_is_taken(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it goes on waiting, and is made once it answers; whoever comes later is told at once."""
    monkeypatch.setattr(writer_module, "HANG_SECONDS", 0.05)
    answers, really = threading.Event(), disk.mark.write
    monkeypatch.setattr(disk.mark, "write", lambda link: (answers.wait(), really(link)))
    waiting = asyncio.create_task(disk.writer.commit(word("a")))
    await disk.until(lambda: disk.writer.failed is not None)
    with pytest.raises(JournalError, match="not answered"):
        await disk.writer.commit(word("b"))
    assert not waiting.done() and disk.writer.waiting == 1
    answers.set()
    await waiting
    await disk.until(lambda: disk.writer.failed is None)
    await disk.writer.commit(word("c"))
    assert disk.words() == ["a", "c"]


async def test_one_write_of_the_mark_for_a_group(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many changes go together, the mark is written once for them, and not at all where nothing changed."""
    written: list[int] = []
    really = disk.mark.write

    def write(link: Link) -> None:
        written.append(link.sequence)
        really(link)

    monkeypatch.setattr(disk.mark, "write", write)
    for text in "abcdefg":
        disk.writer.change(word(text))
    await disk.writer.commit(word("h"))
    assert disk.words() == list("abcdefgh") and len(written) == 1
    await disk.writer.commit(lambda _: None)
    assert len(written) == 1


def put(connection: sqlite3.Connection, rows: list[str]) -> None:
    connection.executemany("INSERT INTO words (word) VALUES (?)", [(word,) for word in rows])


def shout(connection: sqlite3.Connection, rows: list[str]) -> None:
    connection.executemany("UPDATE words SET word = upper(word) WHERE word = ?", [(word,) for word in rows])


async def test_rows_go_in_together(disk: Disk) -> None:
    """Rows of one statement are written at once, in their order, but for what another change has to find or to miss."""
    calls: list[list[str]] = []

    def note(_: sqlite3.Connection, rows: list[str]) -> None:
        calls.append(rows)

    def rows(*texts: str) -> Rows:
        return Rows(note, "notes", texts)

    for text in "abc":
        disk.writer.change(Rows(put, "words", [text]), rows(text))
    disk.writer.change(word("d"))
    disk.writer.change(rows("d"), rows("e"))
    await disk.writer.commit(rows("f"))
    assert disk.words() == list("abcd") and calls == [["a", "b", "c"], ["d", "e", "f"]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["put", "shout", "other"]), st.sampled_from("abc")), max_size=12))
async def test_together_or_one_by_one_is_the_same(tmp_path: Path, steps: list[tuple[str, str]]) -> None:
    """Whatever goes together, a statement finds of its table what came before it, and nothing of what came later."""
    seen = []
    for together in (True, False):
        disk = Disk(tmp_path / "file.sqlite")
        writes: list[Write] = []
        for step, letter in steps:
            part = Rows(put if step == "put" else shout, "words", [letter])
            writes.append(
                (lambda c, w=letter: c.execute("DELETE FROM words WHERE word = ?", w)) if step == "other" else part
            )  # type: ignore[misc]
        try:
            for change in [writes] if together else [[write] for write in writes]:
                await disk.writer.commit(*change)
        except JournalError:
            seen.append(None)  # a word that is there already: none of them together, the others one by one
        else:
            seen.append(disk.words())
        await disk.close()
    assert seen[0] == seen[1]


async def test_a_journal_that_another_process_writes_is_left_alone(disk: Disk) -> None:
    """Whoever finds a link that is not its own last one writes no more, keeps what nobody waits for, and says why."""
    await disk.writer.commit(word("ours"))
    disk._other.execute("UPDATE chain SET sequence = sequence + 1")
    before = disk.mark.read()
    disk.writer.change(word("kept"))
    for _ in range(2):
        with pytest.raises(JournalError, match="another process"):
            await disk.writer.commit(word("refused"))
    assert disk.writer.failed is not None and disk.writer.waiting == 1
    assert disk.words() == ["ours"] and disk.mark.read() == before


DOUBTFUL = """
import asyncio, ctypes, errno, os, platform, struct, sys
from pathlib import Path
from tests.relayer.journal.test_writer import Disk, word

SYNCS = {"x86_64": (74, 75), "aarch64": (82, 83)}[platform.machine()]  # fsync and fdatasync
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
LOAD, IS_EQUAL, RETURN, ALLOW, REFUSE = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000

class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

def fail_syncs(_):
    steps = [(LOAD, 0, 0, 0), (IS_EQUAL, 2, 0, SYNCS[0]), (IS_EQUAL, 1, 0, SYNCS[1])]
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE | errno.EIO)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    kept = ctypes.create_string_buffer(code, len(code))
    libc = ctypes.CDLL(None)
    assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert libc.prctl(SECCOMP, FILTER, ctypes.byref(Program(len(steps), ctypes.addressof(kept))), 0, 0) == 0

async def main():
    disk = Disk(Path(sys.argv[1]))
    writer = disk.writer
    await writer.commit(word("acknowledged"))
    waiting = [asyncio.create_task(writer.commit(*some)) for some in [(fail_syncs, word("doubtful")), (word("too"),)]]
    await disk.until(lambda: writer.is_stuck)
    print(*(task.done() for task in waiting), flush=True)
    if sys.argv[2] == "end":
        await writer.close()
        await asyncio.wait(waiting)
        print(*(task.cancelled() for task in waiting), flush=True)
    os._exit(0)  # as `kill -9` does

asyncio.run(main())
"""


@pytest.mark.parametrize(("end", "told"), [("kill", "False False\n"), ("end", "False False\nTrue True\n")])
async def test_nobody_is_refused_what_a_start_may_find(tmp_path: Path, end: str, told: str) -> None:
    """While no sync succeeds a commit may be in the log, so nobody is told that it failed."""
    path = tmp_path / "file.sqlite"
    command = [sys.executable, "-c", DOUBTFUL, str(path), end]
    done = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
    assert done.stdout == told
    with contextlib.closing(sqlite3.connect(path)) as connection:
        words = [word for (word,) in connection.execute("SELECT word FROM words")]
        known = Mark(path.with_name("mark"), WRITER).read().sequence
        assert (words[:1], chain.sequence(connection, WRITER) - known) in [(["acknowledged"], 0), (["acknowledged"], 1)]


async def test_who_waits_for_a_commit_in_doubt_is_told_once_it_is_taken_back(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a start may still find a commit that failed, nobody hears that it failed, and nothing new is taken."""
    really, sealed, failing = Chain.repeat, Chain.seal, True

    def fail(name: str) -> None:
        error = sqlite3.OperationalError(name)
        error.sqlite_errorname = name
        raise error

    def repeat(self: Chain) -> None:
        return fail("SQLITE_IOERR_LOCK") if failing else really(self)

    def seal(self: Chain) -> bool:
        done = sealed(self)
        if failing:
            fail("SQLITE_IOERR_FSYNC")  # of the COMMIT that comes next
        return done

    monkeypatch.setattr(Chain, "repeat", repeat)
    monkeypatch.setattr(Chain, "seal", seal)
    waiting = asyncio.create_task(disk.writer.commit(word("a")))
    await disk.until(lambda: disk.writer.is_stuck)
    assert not waiting.done()
    with pytest.raises(JournalError, match="taken back"):
        await disk.writer.commit(word("b"))
    failing = False
    with pytest.raises(JournalError, match="FSYNC"):
        await waiting
    await disk.writer.commit(word("c"))
    assert disk.words() == ["c"] and disk.writer.failed is None


async def test_what_failed_before_it_was_written_is_told_at_once(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that fails before anything was to be written leaves nothing to be taken back."""
    monkeypatch.setattr(Chain, "repeat", lambda self: pytest.fail("nothing is in the log"))

    def fail(_: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("SQLITE_IOERR_LOCK")
        error.sqlite_errorname = "SQLITE_IOERR_LOCK"
        raise error

    with pytest.raises(JournalError, match="LOCK"):
        await disk.writer.commit(fail)
    await disk.writer.commit(word("next"))
    assert disk.words() == ["next"]
