"""Copies of a data directory: a backup beside the running relayer, and its restore. A move is one, too (`moving`).

A copy is whole when its manifest is there, which is written last and names every file with its checksum. Of databases
SQLite's own backup takes a snapshot while others write; all other files are copied as they are. What nothing hangs on
(`replaceable`) is left out where it is damaged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from millrace.relayer.journal import identity, memory, replaceable
from millrace.relayer.journal.advice import told
from millrace.relayer.journal.alone import LOCK, FolderLock
from millrace.relayer.journal.durable import NotWhole, read_sealed, write_sealed
from millrace.relayer.journal.identity import Identity, IdentityError
from millrace.relayer.journal.leases import when
from millrace.relayer.journal.reading import read_only
from millrace.runtime import files

MANIFEST = "manifest"
_SQLITE_HEAD = b"SQLite format 3\0"
_ENDINGS = ("-wal", "-shm", "-journal", ".new", replaceable.ASIDE)
"""Of files whose content is in their database's snapshot, that were never finished, or that are damaged."""
_LEFT_OUT = {LOCK, MANIFEST, identity.FILE}
_CHUNK = 1 << 20


class BackupError(Exception):
    """The copy cannot be made or used; the text says why and what to do."""


class CopiedFile(msgspec.Struct, frozen=True):
    """One file of a copy."""

    name: str
    """Below the folder, with `/`."""
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a copy consists of, and of which folder and time it is."""

    id: str
    epoch: int
    made_ms: int
    files: tuple[CopiedFile, ...]
    left_out: tuple[str, ...] = ()
    """Files that are damaged, and why; none that anything hangs on."""


def backup(data_dir: Path, destination: Path, mark_path: str = "") -> Manifest:
    """Copy a folder, also a running relayer's, to one that is new or empty. Raises `BackupError`."""
    with _told():
        ours = ready(data_dir, mark_path)
        with filling(destination, data_dir):
            return copy(data_dir, destination, ours)


def restore(source: Path, data_dir: Path) -> Manifest:
    """Put a backup into a folder that is new or empty. Raises `BackupError`.

    The folder does not start yet: what was signed since the backup is not in it. Its epoch is above the backup's, so
    that the folder the backup was made of is the older one as soon as this one is used.
    """
    with _told():
        manifest = verified(source)
        note = f"from a backup of {when(manifest.made_ms)}"
        with filling(data_dir, source):
            for item in manifest.files:
                _copy_file(source / item.name, data_dir / item.name)
            _require_same(data_dir, manifest.files)
            files.sync(data_dir)
            made = identity.raised(Identity(manifest.id, manifest.epoch), state="restored", note=note)
            identity.write(data_dir, made)
        return manifest


def verified(copy: Path) -> Manifest:
    """The manifest of a copy whose files are as they were made. Raises `BackupError`."""
    try:
        manifest = read_sealed(copy / MANIFEST, Manifest)
    except FileNotFoundError:
        raise BackupError(f"{copy} is no whole backup: its file `{MANIFEST}` is missing; use another") from None
    except NotWhole as error:
        raise BackupError(f"{error}: the backup is damaged; use another") from None
    _require_same(copy, manifest.files)
    return manifest


@contextlib.contextmanager
def stopped(data_dir: Path) -> Iterator[None]:
    """Have a folder alone, as a relayer that runs on it would; errors meanwhile are told as `BackupError`."""
    with _told(), _alone(data_dir):
        yield


# ---- copying


def copy(data_dir: Path, destination: Path, ours: Identity) -> Manifest:
    """Copy this folder, also a running relayer's, to one that is empty; its manifest is written last."""
    made_ms = time.time_ns() // 1_000_000
    copied, left_out = [], []
    for name in _names(data_dir):
        source, target = data_dir / name, destination / name
        try:
            _copy_one(source, target)
        except (OSError, sqlite3.Error, BackupError) as error:
            if name not in replaceable.NAMES or not _is_of(source, error):
                raise
            target.unlink(missing_ok=True)
            left_out.append(f"{name}: {error}")
            continue
        copied.append(CopiedFile(name, target.stat().st_size, _sha256(target)))
    files.sync(destination)
    manifest = Manifest(ours.id, ours.epoch, made_ms, tuple(copied), tuple(left_out))
    write_sealed(destination / MANIFEST, manifest)
    return manifest


def _copy_one(source: Path, target: Path) -> None:
    if _is_database(source):
        _snapshot(source, target)
    else:
        _copy_file(source, target)


def _is_of(source: Path, error: Exception) -> bool:
    """Whether it is the file that is wrong, and not the place it is copied to."""
    if isinstance(error, OSError):
        return str(error.filename) == str(source)
    return isinstance(error, BackupError) or replaceable.is_damage(error, source)


def _names(folder: Path) -> list[str]:
    """The files that a copy of a folder consists of; the journal last, which knows of the others."""
    names = (
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in _LEFT_OUT and not path.name.endswith(_ENDINGS)
    )
    return sorted(names, key=lambda name: (name == identity.JOURNAL, name))


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEAD)) == _SQLITE_HEAD


def _snapshot(source: Path, target: Path) -> None:
    """All in one step: in several it would begin anew with each commit of the relayer, and never end under load."""
    _make_folder(target.parent)
    with contextlib.closing(read_only(source)) as reader:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as writer:
            reader.backup(writer)
            (found,) = writer.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise BackupError(f"{source} is damaged: {found}")
            writer.execute("PRAGMA journal_mode = DELETE")  # one file, not three; the relayer changes it back
    files.sync(target)


def _copy_file(source: Path, target: Path) -> None:
    _make_folder(target.parent)
    with source.open("rb") as reader, os.fdopen(_new_file(target), "wb") as writer:
        shutil.copyfileobj(reader, writer, _CHUNK)
        writer.flush()
        os.fsync(writer.fileno())


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- what must hold


def ready(data_dir: Path, mark_path: str) -> Identity:
    """The identity of a folder that may start, and has all that was acknowledged. Raises `IdentityError` or
    `MemoryLost`."""
    ours = identity.read(data_dir)
    identity.check_may_start(data_dir, ours)
    memory.require_end(data_dir, ours, mark_path)
    return ours


@contextlib.contextmanager
def filling(folder: Path, source: Path, is_done: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Fill a folder that is new or empty, and not within its source. What fails leaves it so, unless it is done all the
    same: once the disk has room the same command comes through."""
    is_there = folder.exists()
    if is_there and (not folder.is_dir() or any(folder.iterdir())):
        raise BackupError(f"{folder} is not empty: name a folder that is new or empty")
    if folder.resolve().is_relative_to(source.resolve()):
        raise BackupError(f"{folder} lies in {source}: choose a folder elsewhere")
    _make_folder(folder)
    try:
        yield
    except BaseException as error:
        if not isinstance(error, FileExistsError) and not is_done():  # else somebody else fills it
            _empty(folder, is_there=is_there)
        raise


def _empty(folder: Path, *, is_there: bool) -> None:
    """As it was."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if not is_there:
            folder.rmdir()


def _require_same(folder: Path, files: tuple[CopiedFile, ...]) -> None:
    for item in files:
        path = folder / item.name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise BackupError(f"{folder / MANIFEST} names a file outside of its folder: use another backup")
        if not path.is_file() or path.stat().st_size != item.size or _sha256(path) != item.sha256:
            raise BackupError(f"{path} is not as it was copied: the copy is damaged; use another")


@contextlib.contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """The lock that a running relayer has."""
    if not data_dir.is_dir():
        raise BackupError(f"{data_dir} is not there")
    lock = FolderLock()
    try:
        lock.take(data_dir)
        yield
    except BlockingIOError:
        raise BackupError(f"{data_dir} is in use by a relayer: stop it first") from None
    finally:
        lock.give_back()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Errors of disk, database and identity in words of ours."""
    try:
        yield
    except (IdentityError, memory.MemoryLost) as error:
        raise BackupError(str(error)) from error
    except (OSError, sqlite3.Error) as error:
        if isinstance(error, OSError) and error.errno is None:  # of a server, in its own words
            raise
        raise BackupError(told(error)) from error
