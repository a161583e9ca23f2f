"""What the start makes of a folder: begun once, brought up to date, accepted after a safe start, else refused."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from relayer_damage import charge, contents, make, row
from relayer_support import killed_now, start, submit, transfer, wallet, with_identity

from millrace.relayer.journal import backup, chain, identity, journal, memory, programmes, writer
from millrace.relayer.journal.advice import advice
from millrace.relayer.journal.backup import BackupError
from millrace.relayer.journal.identity import Identity, State
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.mark import NOTHING, Mark
from millrace.relayer.journal.memory import MemoryLost
from millrace.relayer.journal.writer import JournalError, NonceTaken

ALICE = wallet(1)


def opened(path: Path) -> Journal:
    made = Journal(path)
    made.open()
    return made


def set_state(folder: Path, state: State) -> None:
    """Put the identity of a folder into another state."""
    owner = identity.read(folder)
    identity.write(folder, Identity(owner.id, owner.epoch, state))


async def test_a_new_folder_is_begun_once(tmp_path: Path) -> None:
    """The first start makes journal and mark; from then on both must be there."""
    folder = with_identity(tmp_path / "data")
    path = folder / "journal.sqlite"
    assert identity.read(folder).state == "new"
    await opened(path).close()
    assert identity.read(folder).state == "ready" and (folder / "mark").exists()
    shutil.copytree(folder, tmp_path / "kept")
    for names in (["mark"], ["journal.sqlite"], ["mark", "journal.sqlite"]):
        for name in names:
            (folder / name).unlink()
        with pytest.raises(JournalError, match="missing"):
            Journal(path).open()
        for name in names:
            shutil.copy(tmp_path / "kept" / name, folder / name)
    await opened(path).close()


@pytest.mark.parametrize("killed_after", ["mark", "journal", "second mark"])
async def test_killed_while_it_is_begun(tmp_path: Path, killed_after: str) -> None:
    """A process that ends while it begins a folder is followed by one that begins it, with nothing lost."""
    path = with_identity(tmp_path) / "journal.sqlite"
    owner = identity.read(tmp_path)
    mark = Mark(tmp_path / "mark", owner.id)
    assert memory.recall(path, mark, owner) is None
    if killed_after != "mark":
        connection = journal._connect(path, chain.Chained)
        assert isinstance(connection, chain.Chained)
        link = journal._begin(connection, owner, None)
        connection.close()
        if killed_after == "second mark":
            mark.open()
            mark.write(link)
            mark.close()
    again = opened(path)
    await again.append([row(1)])
    await again.close()
    assert identity.read(tmp_path).state == "ready"


async def test_a_folder_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    """A journal without a chain gets one over what is there; beside a mark it is an older copy, and refused."""
    folders = await make(tmp_path)
    before, old = contents(folders.now), tmp_path / "old"
    shutil.copytree(folders.now, old)
    connection = sqlite3.connect(old / "journal.sqlite")
    connection.executescript("DROP TABLE chain; UPDATE meta SET value = '3' WHERE name = 'schema'")
    connection.close()
    (old / "mark").unlink()
    shutil.copytree(old, tmp_path / "copy")
    set_state(old, "new")
    await opened(old / "journal.sqlite").close()
    assert contents(old) == before
    shutil.copy(tmp_path / "copy" / "journal.sqlite", old)
    with pytest.raises(JournalError, match="of a time before its mark"):
        Journal(old / "journal.sqlite").open()


async def test_a_folder_is_had_by_one_whatever_is_deleted(tmp_path: Path) -> None:
    """A second process is refused, also where somebody removed the file that is locked."""
    path = with_identity(tmp_path) / "journal.sqlite"
    first = opened(path)
    for removed in (False, True):
        if removed:
            (tmp_path / "lock").unlink()
        with pytest.raises(JournalError, match="in use"):
            Journal(path).open()
        with pytest.raises(BackupError, match="in use"), backup.stopped(tmp_path):
            pass
    await first.append([row(0)])
    await first.close()
    await opened(path).close()


async def test_one_database_in_two_folders(tmp_path: Path) -> None:
    """Where a link leads two folders to one file the first may not write once the other has; nothing is damaged."""
    first, second, place = with_identity(tmp_path / "first"), tmp_path / "second", tmp_path / "place"
    place.mkdir()
    (first / "journal.sqlite").symlink_to(place / "journal.sqlite")
    one = opened(first / "journal.sqlite")
    await one.append([row(0)])
    shutil.copytree(first, second, symlinks=True)
    two = opened(second / "journal.sqlite")
    await two.append([row(1)])
    with pytest.raises(JournalError, match="another process"):
        await one.append([row(2)])
    with pytest.raises(NonceTaken):
        await two.append([row(0, b"other")])
    await one.close()
    await two.close()
    again = opened(second / "journal.sqlite")
    assert again.read("SELECT nonce FROM submissions ORDER BY nonce") == [(0,), (1,)]
    await again.append([row(3)])
    await again.close()
    with pytest.raises(JournalError, match="the mark is an older copy"):
        Journal(first / "journal.sqlite").open()


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%41b", "a b"])
async def test_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """What means something in the address of a file means nothing in a folder's name."""
    path = with_identity(tmp_path / name) / "journal.sqlite"
    for nonce in range(2):
        made = opened(path)
        await made.append([row(nonce)])
        await made.close()
    backup.backup(path.parent, tmp_path / f"{name} backup")
    assert contents(tmp_path / f"{name} backup") == contents(path.parent)


async def test_what_a_safe_start_accepts(tmp_path: Path) -> None:
    """After a safe start a folder is taken as it is, and keeps what it knows; from then on it may lose nothing."""
    folder = (await make(tmp_path)).now
    path, owner = folder / "journal.sqlite", identity.read(folder)
    (folder / "journal.sqlite-wal").unlink()
    with pytest.raises(JournalError, match="was acknowledged"):
        Journal(path).open()
    kept = contents(folder)
    memory.accept(path, Mark(folder / "mark", owner.id), owner)
    again = opened(path)
    with pytest.raises(NonceTaken):
        await again.append([row(0, b"other")])
    await again.close()
    assert contents(folder) == kept
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM submissions WHERE nonce = 0")
    other.close()
    with pytest.raises(JournalError, match="not those that were written"):
        Journal(path).open()


async def test_a_safe_start_accepts_no_damaged_file(tmp_path: Path) -> None:
    """What cannot be read as a whole is refused, and its mark stays."""
    folder = (await make(tmp_path)).now
    (folder / "journal.sqlite-wal").unlink()
    data = (folder / "journal.sqlite").read_bytes()
    (folder / "journal.sqlite").write_bytes(data[: len(data) // 2])
    owner, before = identity.read(folder), (folder / "mark").read_bytes()
    with pytest.raises(sqlite3.Error):
        memory.accept(folder / "journal.sqlite", Mark(folder / "mark", owner.id), owner)
    assert (folder / "mark").read_bytes() == before


async def test_amended_beside_no_relayer(tmp_path: Path) -> None:
    """What a command writes is in the chain, an error leaves nothing, a folder that lost something is not amended."""
    path = with_identity(tmp_path) / "journal.sqlite"
    await opened(path).close()
    owner = identity.read(tmp_path)
    mark = Mark(tmp_path / "mark", owner.id)
    with memory.amended(path, mark, owner) as connection:
        connection.execute("INSERT INTO meta VALUES ('word', 'a')")
    with pytest.raises(ZeroDivisionError), memory.amended(path, mark, owner) as connection:
        connection.execute("UPDATE meta SET value = 'b' WHERE name = 'word'")
        raise ZeroDivisionError
    again = opened(path)
    assert again.read("SELECT value FROM meta WHERE name = 'word'") == [("a",)]
    await again.close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE meta SET value = 'c' WHERE name = 'word'")
    other.close()
    with pytest.raises(MemoryLost), memory.amended(path, mark, owner):
        pass


@pytest.mark.parametrize("name", ["SQLITE_FULL", "SQLITE_IOERR_WRITE", "ENOSPC", "EFBIG"])
def test_row_48_a_full_disk_is_no_reason_to_lose_the_journal(name: str) -> None:
    """Whoever has no room is told to make some, and to leave the files where they are."""
    error: Any = OSError(getattr(errno, name), "x") if name.startswith("E") else sqlite3.OperationalError("x")
    if not name.startswith("E"):
        error.sqlite_errorname = name
    text = advice(error)
    assert "room" in text and "where they are" in text and "restore" not in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (sqlite3.OperationalError("database is locked"), "Another process"),
        (FileExistsError(17, "File exists"), "Name another"),
    ],
)
def test_what_is_no_damage_is_not_told_as_such(error: Any, words: str) -> None:
    """Whoever finds a file in use, or in the way, is not sent to restore an older copy."""
    if isinstance(error, sqlite3.Error):
        error.sqlite_errorname = "SQLITE_BUSY"
    assert words in advice(error) and "restore" not in advice(error)


START = """
import asyncio, resource, signal, sys
from pathlib import Path
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.writer import JournalError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
async def main(limit):
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    journal = Journal(Path(sys.argv[1]))
    try:
        journal.open()
    except JournalError as error:
        return print(error)
    print("open")
    await journal.close()
asyncio.run(main(int(sys.argv[2])))
"""


def test_row_48_a_start_without_room(tmp_path: Path) -> None:
    """A start that cannot write is refused with that advice, and the next one with room goes on from there."""
    path = with_identity(tmp_path) / "journal.sqlite"

    def run(limit: int) -> str:
        command = [sys.executable, "-c", START, str(path), str(limit)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert "Make room" in run(1)
    assert "Make room" in run(16_384)
    assert run(0) == "open\n"


@pytest.mark.parametrize("harm", ["log deleted", "journal emptied", "journal deleted", "older", "mark older"])
async def test_row_53_a_whole_relayer(world: Any, harm: str) -> None:
    """A relayer that was killed and lost something does not start, and says what to do."""
    live, mark = world.folder / "relayer", world.folder / "elsewhere"
    await start(world, mark_path=str(mark))
    assert await submit(world, transfer(ALICE, 0)) == ["ok"]
    older = await killed_now(world, live)
    for nonce in range(1, 11):
        assert await submit(world, transfer(ALICE, nonce)) == ["ok"]
    killed = await killed_now(world, live)
    acknowledged = mark.read_bytes()
    await world.stop()
    shutil.rmtree(live)
    shutil.copytree((older if harm == "older" else killed) / live.name, live)
    mark.write_bytes(acknowledged)
    if harm == "log deleted":
        (live / "journal.sqlite-wal").unlink()
    elif harm == "journal emptied":
        (live / "journal.sqlite").write_bytes(b"")
    elif harm == "journal deleted":
        (live / "journal.sqlite").unlink()
    elif harm == "mark older":
        Mark(mark, identity.read(live).id).make(NOTHING)
    with pytest.raises(JournalError, match="millrace relayer re") as error:
        await start(world, mark_path=str(mark))
    assert str(live / "journal.sqlite") in str(error.value) and "move" not in str(error.value)


async def test_row_48_a_whole_relayer_whose_disk_hangs(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not ready, and says so to whoever comes; what was asked before has its answer once the disk answers."""
    monkeypatch.setattr(writer, "HANG_SECONDS", 0.2)
    await start(world)
    answers, really = threading.Event(), Mark.write
    monkeypatch.setattr(Mark, "write", lambda mark, link: (answers.wait(), really(mark, link)))
    try:
        waiting = asyncio.create_task(submit(world, transfer(ALICE, 0)))
        async with asyncio.timeout(20), aiohttp.ClientSession(world.http) as http:
            while True:
                async with http.get("/ready") as answer:
                    if answer.status == 503:
                        break
                await asyncio.sleep(0.01)
            assert await submit(world, transfer(wallet(1, 1), 0)) == ["not ready"]
            async with http.get("/health") as answer:
                assert "not answered" in (await answer.json())["journal"]
        assert not waiting.done()
    finally:
        answers.set()
    assert await waiting == ["ok"]


async def test_row_53_a_whole_relayer_that_was_killed(world: Any) -> None:
    """One that lost nothing starts, gives the same answers, and signs no second payload."""
    live, leases = world.folder / "relayer", world.folder / "leases"
    await start(world)
    sent = [transfer(ALICE, nonce) for nonce in range(3)]
    assert await submit(world, *sent) == ["ok"] * 3
    killed = await killed_now(world, leases, live)
    await world.stop()
    for folder in (leases, live):  # whose end raised the epoch, which a kill does not
        shutil.rmtree(folder)
        (killed / folder.name).rename(folder)
    await start(world)
    assert await submit(world, *sent) == ["ok"] * 3
    for nonce in range(3):
        assert await submit(world, transfer(ALICE, nonce, data=b"x")) != ["ok"]


async def test_a_journal_without_programmes_gets_their_tables(tmp_path: Path) -> None:
    """A chained journal of version 4 is whole without them, may be amended, and goes on in the same chain with them."""
    folder = (await make(tmp_path)).now
    path, owner = folder / "journal.sqlite", identity.read(folder)
    connection = sqlite3.connect(path)
    connection.executescript(
        "DROP TABLE programme_charges; DROP TABLE programme_users; UPDATE meta SET value = '4' WHERE name = 'schema'"
    )
    connection.close()
    mark = Mark(memory.mark_place(path, ""), owner.id)
    memory.accept(path, mark, owner)
    with memory.amended(path, mark, owner) as changed:
        changed.execute("INSERT INTO imported_claims VALUES (x'01', 5, x'02')")
    before = memory.recall(path, mark, owner)
    assert before is not None
    for nonce in (200, 201):  # the second time nothing is left to be done
        again = opened(path)
        assert again.read("SELECT value FROM meta WHERE name = 'schema'") == [("6",)]
        assert len(programmes.charges(again.read)) == nonce - 200
        await again.append([row(nonce)], [charge(nonce)])
        await again.close()
    after = memory.recall(path, mark, owner)
    assert after is not None and after.sequence > before.sequence


async def test_a_lost_table_of_programmes_is_told(tmp_path: Path) -> None:
    """Who takes a whole table out of the file is found out like who takes out a row."""
    folder = (await make(tmp_path)).now
    connection = sqlite3.connect(folder / "journal.sqlite")
    connection.execute("DROP TABLE programme_charges")
    connection.close()
    with pytest.raises(JournalError, match="changed, lost or put in"):
        Journal(folder / "journal.sqlite").open()


async def killed_before_its_mark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal of version 4 of a folder whose relayer was killed between a commit and the mark's write."""
    path, owner = folder / "journal.sqlite", identity.read(folder)
    connection = sqlite3.connect(path)
    connection.executescript(
        "DROP TABLE programme_charges; DROP TABLE programme_users; UPDATE meta SET value = '4' WHERE name = 'schema'"
    )
    connection.close()
    mark = Mark(memory.mark_place(path, ""), owner.id)
    memory.accept(path, mark, owner)
    with monkeypatch.context() as killed, memory.amended(path, mark, owner) as changed:
        killed.setattr(mark, "write", lambda link: None)
        changed.execute("INSERT INTO imported_claims VALUES (x'01', 5, x'02')")
    return path


@pytest.mark.parametrize("cut_at", [1, 2])
async def test_an_upgrade_that_is_cut_behind_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_at: int
) -> None:
    """However a start ends behind a kill, the journal is one commit past its mark at most, and the next one opens."""
    path = await killed_before_its_mark((await make(tmp_path)).now, monkeypatch)
    real, writes = Mark.write, 0

    def write(self: Mark, link: chain.Link) -> None:
        nonlocal writes
        writes += 1
        if writes == cut_at:
            raise OSError(errno.EIO, "cut here")
        real(self, link)

    with monkeypatch.context() as failing:
        failing.setattr(Mark, "write", write)
        cut = Journal(path)
        with pytest.raises(JournalError, match="cut here"):
            cut.open()
        await cut.close()
    await opened(path).close()


async def test_what_is_amended_without_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not write the mark amends nothing, however often: the journal stays one that opens."""
    folder = (await make(tmp_path)).now
    path, owner = folder / "journal.sqlite", identity.read(folder)
    before = contents(folder)

    def refused(self: Mark) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    with monkeypatch.context() as failing:
        failing.setattr(Mark, "open", refused)
        for _ in range(3):
            with (
                pytest.raises(PermissionError),
                memory.amended(path, Mark(folder / "mark", owner.id), owner) as connection,
            ):
                connection.execute("INSERT INTO imported_claims VALUES (x'01', 5, x'02')")
    assert contents(folder) == before
    await opened(path).close()


async def test_amended_where_the_first_start_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that was begun is amended in its chain, also while the identity does not say so yet."""
    folder = with_identity(tmp_path)
    path, owner = folder / "journal.sqlite", identity.read(folder)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as failing:
        failing.setattr(identity, "write", full)
        cut = Journal(path)
        with pytest.raises(JournalError, match="no room"):
            cut.open()
        await cut.close()
    assert identity.read(folder).state == "new"
    with memory.amended(path, Mark(folder / "mark", owner.id), owner) as connection:
        connection.execute("INSERT INTO imported_claims VALUES (x'01', 5, x'02')")
    again = opened(path)
    assert again.read("SELECT nonce FROM imported_claims") == [(5,)]
    await again.close()
