"""Copies of a data directory: whole or refused, and never two of them that may sign."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.relayer.journal import audit, identity, leases, moving
from millrace.relayer.journal import backup as copies
from millrace.relayer.journal.backup import BackupError
from millrace.relayer.journal.identity import Identity, IdentityError
from millrace.relayer.journal.leases import FileLeases, Held, LeaseError
from millrace.runtime import files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory with a database, a key and a file in a folder of its own."""
    made = tmp_path / "data"
    identity.make(made)
    with closing(_open(made / "journal.sqlite")) as connection:
        connection.execute("CREATE TABLE rows (n INTEGER)")
        connection.execute("INSERT INTO rows VALUES (1)")
    (made / "gossip.key").write_bytes(b"key")
    (made / "more").mkdir()
    (made / "more" / "mark").write_bytes(b"m" * 5000)
    (made / "lock").touch()
    (made / "half.new").touch()
    return made


KEY = b"k" * 32


def move(folder: Path, destination: Path) -> Identity:
    """With leases beside the folder, as by a command of its own."""
    with closing(FileLeases(folder.parent / "leases")) as store:
        return moving.move(folder, destination, [KEY], store)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    return connection


def _rows(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return [row[0] for row in connection.execute("SELECT n FROM rows ORDER BY n")]


def test_what_a_writer_has_committed_is_in_the_copy(folder: Path, tmp_path: Path) -> None:
    """A backup beside an open writer has what was committed, in the log or not, and not what was not."""
    with closing(_open(folder / "journal.sqlite")) as writer:
        writer.execute("INSERT INTO rows VALUES (2)")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO rows VALUES (3)")
        manifest = copies.backup(folder, tmp_path / "copy")
        writer.execute("COMMIT")
    assert _rows(tmp_path / "copy") == [1, 2] and _rows(folder) == [1, 2, 3]
    assert {file.name for file in manifest.files} == {"journal.sqlite", "gossip.key", "more/mark"}
    assert copies.verified(tmp_path / "copy") == manifest
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "copy").rglob("*"))


def test_a_restored_folder_is_newer_and_does_not_start(folder: Path, tmp_path: Path) -> None:
    """It has all files, a higher epoch, and asks for a safe start; the backup stays as it was."""
    copies.backup(folder, tmp_path / "copy")
    for name in ("a", "b/c"):
        copies.restore(tmp_path / "copy", tmp_path / name)
        assert _rows(tmp_path / name) == [1]
        assert (tmp_path / name / "more" / "mark").read_bytes() == b"m" * 5000
        restored = identity.read(tmp_path / name)
        assert restored.id == identity.read(folder).id and restored.epoch == 2
        with pytest.raises(IdentityError, match="millrace relayer recover"):
            identity.check_may_start(tmp_path / name, restored)
        with pytest.raises(BackupError, match="millrace relayer recover"):
            copies.backup(tmp_path / name, tmp_path / "other")
    copies.verified(tmp_path / "copy")


def test_only_into_an_empty_folder(folder: Path, tmp_path: Path) -> None:
    """What is there is never written over."""
    copies.backup(folder, tmp_path / "copy")
    for work in (
        lambda: copies.backup(folder, tmp_path / "copy"),
        lambda: copies.restore(tmp_path / "copy", folder),
        lambda: move(folder, tmp_path / "copy"),
        lambda: copies.backup(folder, folder / "gossip.key"),
    ):
        with pytest.raises(BackupError, match="empty"):
            work()
    with pytest.raises(BackupError, match="lies in"):
        copies.backup(folder, folder / "inside")
    assert identity.read(folder).state == "new" and _rows(folder) == [1]


def test_a_damaged_backup_is_refused_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    """Any changed, cut off or missing file of a backup is found, the manifest included."""
    copies.backup(folder, tmp_path / "copy")
    names = ["journal.sqlite", "gossip.key", "more/mark", "manifest"]
    for name in names:
        for change in ("bit", "cut", "gone"):
            bad = tmp_path / f"bad-{name.replace('/', '-')}-{change}"
            shutil.copytree(tmp_path / "copy", bad)
            data = (bad / name).read_bytes()
            if change == "gone":
                (bad / name).unlink()
            else:
                middle = len(data) // 2
                flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
                (bad / name).write_bytes(flipped if change == "bit" else data[:-3])
            with pytest.raises(BackupError, match="another"):
                copies.restore(bad, tmp_path / "target")
            assert not (tmp_path / "target").exists()


def test_a_damaged_database_is_not_backed_up(folder: Path, tmp_path: Path) -> None:
    """A backup of what cannot be read would be found out only when it is needed."""
    with closing(_open(folder / "journal.sqlite")) as connection:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO rows VALUES (?)", [(n,) for n in range(20_000)])
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((folder / "journal.sqlite").read_bytes())
    data[3 * 4096 : 5 * 4096] = b"\xff" * 2 * 4096
    (folder / "journal.sqlite").write_bytes(data)
    with pytest.raises(BackupError):
        copies.backup(folder, tmp_path / "copy")
    with pytest.raises(BackupError, match="no whole backup"):
        copies.verified(tmp_path / "copy")


def test_after_a_move_only_the_new_folder_starts(folder: Path, tmp_path: Path) -> None:
    """The old one says where to; the new one has the higher epoch and everything."""
    moved = move(folder, tmp_path / "new")
    assert moved.epoch == 2 and identity.read(tmp_path / "new") == moved and moved.state == "new"
    assert _rows(tmp_path / "new") == [1] and not (tmp_path / "new" / "manifest").exists()
    with pytest.raises(IdentityError, match=str(tmp_path / "new")):
        identity.check_may_start(folder, identity.read(folder))
    with pytest.raises(BackupError, match="moved to"):
        move(folder, tmp_path / "third")
    (tmp_path / "new" / "manifest").touch()  # as if the command had been killed just before its end
    assert move(folder, tmp_path / "new") == moved
    assert not (tmp_path / "new" / "manifest").exists()
    with pytest.raises(BackupError, match="moved to"):
        copies.backup(folder, tmp_path / "fourth")
    move(tmp_path / "new", tmp_path / "further")
    assert identity.read(tmp_path / "further").epoch == 3
    shutil.rmtree(tmp_path / "new")
    identity.make(tmp_path / "new")
    with pytest.raises(BackupError, match="another folder's"):
        move(folder, tmp_path / "new")


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(17))
def test_a_move_that_is_killed_never_leaves_two(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Killed before any of its writes at most one of both folders may start; done again it comes to its end."""
    steps = [step]

    def killing(function):  # type: ignore[no-untyped-def]
        def wrapped(*args, **options):  # type: ignore[no-untyped-def]
            if steps[0] == 0:
                raise _Killed
            steps[0] -= 1
            return function(*args, **options)

        return wrapped

    new = tmp_path / "new"
    with monkeypatch.context() as patch:
        for module, name in (
            (copies, "_snapshot"), (copies, "_copy_file"), (copies, "write_sealed"), (identity, "write_sealed"),
            (leases, "write_sealed"), (files, "sync"),
        ):  # fmt: skip
            patch.setattr(module, name, killing(getattr(module, name)))
        try:
            move(folder, new)
            assert steps[0] > 0, "it has fewer steps than that"
        except _Killed:
            pass
    starts = [path for path in (folder, new) if _may_start(path)]
    assert len(starts) <= 1
    if starts == [folder]:
        shutil.rmtree(new, ignore_errors=True)
        move(folder, new)
    elif not starts:
        move(folder, new)
    assert not _may_start(folder) and _may_start(new) and _rows(new) == [1]


@pytest.mark.parametrize("command", ["backup", "restore", "move"])
@pytest.mark.parametrize("is_there", [False, True])
def test_what_fails_leaves_the_destination_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, is_there: bool
) -> None:
    """Whichever write the disk refuses, the same command comes through once there is room."""
    copies.backup(folder, tmp_path / "copy")
    new, writes = tmp_path / "new", [0]
    if is_there:
        new.mkdir()

    def work() -> None:
        {"backup": copies.backup, "restore": lambda _, to: copies.restore(tmp_path / "copy", to), "move": move}[
            command
        ](folder, new)

    def refusing(function):  # type: ignore[no-untyped-def]
        def wrapped(*args, **options):  # type: ignore[no-untyped-def]
            writes[0] -= 1
            if writes[0] < 0:
                raise OSError(errno.ENOSPC, "no room")
            return function(*args, **options)

        return wrapped

    for count in range(20):
        writes[0] = count
        with monkeypatch.context() as patch:
            for module, name in (
                (copies, "_snapshot"), (copies, "_copy_file"), (copies, "write_sealed"), (identity, "write_sealed"),
                (files, "sync"),
            ):  # fmt: skip
                patch.setattr(module, name, refusing(getattr(module, name)))
            try:
                work()
                break
            except BackupError as error:
                assert "no room" in str(error)
        if identity.read(folder).state == "moved":
            work()  # what is left of it goes on
            break
        assert list(new.iterdir()) == [] if is_there else not new.exists()
    else:
        pytest.fail("it never came through")
    assert (new / "journal.sqlite").exists()


def _may_start(folder: Path) -> bool:
    try:
        identity.check_may_start(folder, identity.read(folder))
    except IdentityError:
        return False
    return True


def _signed(folder: Path, count: int) -> None:
    """As many further reservations in its journal."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection, connection:
        connection.executescript(audit.SCHEMA)
        audit.write(connection, [(1, "reserve", KEY, b"s" * 32, 0, bytes(32), 1)] * count)


def _held(folder: Path, position: int, epoch: int = 1) -> Held:
    return Held(identity.read(folder).id, epoch, position, str(folder))


def test_row_10_an_older_copy_is_not_moved(folder: Path, tmp_path: Path) -> None:
    """Who could not start with its keys is not moved either, and leaves nothing that starts."""
    _signed(folder, 1)
    shutil.copytree(folder, tmp_path / "old")
    _signed(folder, 3)
    with closing(FileLeases(tmp_path / "leases")) as store:
        store.take([KEY], _held(folder, 4))
        with pytest.raises(LeaseError, match="in use by"):
            move(tmp_path / "old", tmp_path / "new")
        store.give_back([KEY], _held(folder, 4))
        with pytest.raises(LeaseError, match="older copy"):
            move(tmp_path / "old", tmp_path / "new")
        assert not (tmp_path / "new").exists()
        store.take([KEY], _held(folder, 4))  # the true one goes on
    move(folder, tmp_path / "new")
    assert FileLeases(tmp_path / "leases").remembered([KEY])[KEY].position == 4


def test_row_10_who_was_superseded_by_another_safe_start_is_not_moved(folder: Path, tmp_path: Path) -> None:
    """However much it signed before that: its epoch is not raised beside the one that the leases know."""
    identity.write(folder, replace(identity.read(folder), epoch=3))
    _signed(folder, 5)
    with closing(FileLeases(tmp_path / "leases")) as store:
        store.take([KEY], _held(folder, 1, epoch=4))
    with pytest.raises(LeaseError, match="older copy"):
        move(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_row_10_a_folder_that_has_signed_is_not_moved_without_its_keys(folder: Path, tmp_path: Path) -> None:
    """Nobody could be asked whether it is the newest copy; one that never signed needs none."""
    with closing(FileLeases(tmp_path / "leases")) as store:
        moving.move(folder, tmp_path / "new", [], store)
        _signed(tmp_path / "new", 1)
        with pytest.raises(LeaseError, match="key_files"):
            moving.move(tmp_path / "new", tmp_path / "further", [], store)
    assert not (tmp_path / "further").exists()


def test_row_10_a_move_that_was_killed_is_not_finished_over_a_copy_that_signed_since(
    folder: Path, tmp_path: Path
) -> None:
    """A copy of before the move that went on is the newest: what was copied for the move lacks what it signed."""
    _signed(folder, 1)
    with closing(FileLeases(tmp_path / "leases")) as store:
        copies.copy(folder, tmp_path / "new", identity.read(folder))
        ours = identity.read(folder)
        identity.write(folder, replace(ours, state="moved", note=str((tmp_path / "new").resolve())))
        store.take([KEY], _held(folder, 2))
        store.give_back([KEY], _held(folder, 2))
        with pytest.raises(LeaseError, match="older copy"):
            move(folder, tmp_path / "new")
    assert not _may_start(tmp_path / "new")
