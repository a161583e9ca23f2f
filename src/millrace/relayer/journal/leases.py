"""Who may sign with a key: one holder at a time, of the newest copy of one data directory.

Here are the rule and the leases of one machine: files of a folder that all its relayers share. Those of several
machines are rows of a PostgreSQL server (`postgres_leases`).
"""

from __future__ import annotations

import fcntl
import math
import os
import socket
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Protocol

import msgspec

from millrace.chain import address
from millrace.relayer.journal.durable import NotWhole, read_sealed, write_sealed


class LeaseError(Exception):
    """The key may not be used by this folder; the text says who has it and what to do."""


class LeaseHeld(LeaseError):
    """Somebody holds it now, and for so many seconds at least unless it gives it back."""

    def __init__(self, text: str, seconds: float = math.inf) -> None:
        super().__init__(text)
        self.seconds = seconds


class Held(msgspec.Struct, frozen=True):
    """What is remembered of a key: by which folder it was held last, and how far that had come."""

    id: str
    epoch: int
    position: int
    """Reservations that its journal had: one with fewer of the same epoch has lost some."""
    place: str
    """Host, folder and process, for people."""
    held_ms: int = 0
    """When it was held last, by the clock of who keeps the leases."""
    used_ms: int = 0
    """The same by the clock of its holder, which wrote the rows of its journal; 0: an earlier version said nothing."""
    set_back_ms: int = 0
    """By how much that clock was set back in all while the key was in use …"""
    set_back_at_ms: int = 0
    """… and what it had come to by then: a row of a later time was written after that."""


class LeaseStore(Protocol):
    """Where leases are kept. For one thread at a time, which may wait; what cannot be reached raises `OSError`."""

    seconds: float
    """Of a whole lease: so long after a renewal its holder may count on it."""

    def remembered(self, keys: Collection[bytes]) -> dict[bytes, Held]:
        """What is known of these keys."""

    def take(self, keys: Collection[bytes], mine: Held, *, force: bool = False) -> float:
        """Hold these keys besides those held already; all or none, on disk when this returns. Raises `LeaseError`.

        For so many seconds, from the question on, nobody else gets them. `force` asks nothing of the past: what is
        alive is refused all the same.
        """

    def renew(self, mine: Held) -> float:
        """Go on holding, and remember how far we have come; for how many seconds. Raises `LeaseError` when another has
        taken one."""

    def give_back(self, keys: Collection[bytes], mine: Held) -> None:
        """Hold these no more."""

    def close(self) -> None: ...


def check(key: bytes, remembered: Held | None, mine: Held) -> None:
    """The rule. Raises `LeaseError` unless the key is new, or its last holder is what we are a continuation of."""
    if remembered is None:
        return
    last = f"{remembered.place} (epoch {remembered.epoch}, last held {when(remembered.held_ms)})"
    advice = "start that one; if it is lost, `millrace relayer recover` says how to start safely without it"
    name = address.encode(key)
    if mine.id != remembered.id:
        raise LeaseError(f"{name} was last used by another folder, {last}: {advice}")
    if mine.epoch < remembered.epoch:
        raise LeaseError(
            f"this folder (epoch {mine.epoch}) is an older copy: {name} was later used by {last}: {advice}"
        )
    if mine.epoch == remembered.epoch and mine.position < remembered.position:
        raise LeaseError(
            f"this folder is an older copy: its journal ends at reservation {mine.position}, and {name} was used up to "
            f"reservation {remembered.position} by {last}: {advice}"
        )


def when(time_ms: int) -> str:
    """A time for people, UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time_ms / 1000)) + " UTC"


def place_of(data_dir: Path) -> str:
    """Where a folder is, for people."""
    return f"{socket.gethostname()}:{data_dir.resolve()} (process {os.getpid()})"


def default_folder(environment: Mapping[str, str]) -> Path:
    """Of this user: `$XDG_STATE_HOME/millrace/leases`, by default below `~/.local/state`. Raises `LeaseError`."""
    state = environment.get("XDG_STATE_HOME", "")
    try:
        return (Path(state) if state else Path.home() / ".local" / "state") / "millrace" / "leases"
    except RuntimeError:
        raise LeaseError("this user has no home folder: set `lease_dir`") from None


class FileLeases:
    """Two files a key: one that is locked by its holder's process for as long as that lives, one with its words."""

    seconds = 9.0
    """The lock does not end with them; but who signed on where its words are not written would be remembered as it was
    ever longer ago, and an older copy pass for the newest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[bytes, IO[bytes]] = {}

    def remembered(self, keys: Collection[bytes]) -> dict[bytes, Held]:
        return {key: held for key in keys if (held := self._read(key)) is not None}

    def take(self, keys: Collection[bytes], mine: Held, *, force: bool = False) -> float:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LeaseError(
                f"{self._folder}: {error.strerror}: set `lease_dir` to a folder that all relayers of this machine "
                "share and this user can write"
            ) from None
        fresh = sorted(set(keys) - self._locks.keys())
        try:
            for key in fresh:
                self._locks[key] = self._lock(key)
            for key in fresh:
                if not force:
                    check(key, self._read(key), mine)
            for key in fresh:
                self._write(key, mine)
        except BaseException:
            self._unlock(fresh)
            raise
        return self.seconds

    def renew(self, mine: Held) -> float:
        for key, lock in self._locks.items():
            if not _is_still(lock, self._path(key, "lock")):
                raise LeaseError(
                    f"the lease of {address.encode(key)} was removed from {self._folder} while it was held"
                )
            self._write(key, mine)
        return self.seconds

    def give_back(self, keys: Collection[bytes], mine: Held) -> None:
        held = [key for key in keys if key in self._locks]
        try:
            for key in held:
                self._write(key, mine)
        finally:
            self._unlock(held)

    def close(self) -> None:
        self._unlock(list(self._locks))

    def _path(self, key: bytes, kind: str) -> Path:
        return self._folder / f"{key.hex()}.{kind}"

    def _lock(self, key: bytes) -> IO[bytes]:
        path = self._path(key, "lock")
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            held = self._read(key)
            by = held.place if held is not None else "another relayer"
            raise LeaseHeld(f"{address.encode(key)} is in use by {by}: stop that one first ({path})") from None
        if not _is_still(file, path):  # its folder was emptied meanwhile
            file.close()
            raise LeaseHeld(f"{path} was removed while it was taken: start again")
        return file

    def _unlock(self, keys: Collection[bytes]) -> None:
        for key in keys:
            lock = self._locks.pop(key, None)
            if lock is not None:
                lock.close()

    def _read(self, key: bytes) -> Held | None:
        path = self._path(key, "held")
        try:
            return read_sealed(path, Held)
        except FileNotFoundError:
            return None
        except NotWhole as error:
            raise LeaseError(
                f"{error}: who used {address.encode(key)} last is not known. If it was this folder, and it was not put "
                f"back from a copy since, delete {path}; else do so and make a safe start (`millrace relayer recover`)"
            ) from None

    def _write(self, key: bytes, mine: Held) -> None:
        write_sealed(self._path(key, "held"), msgspec.structs.replace(mine, held_ms=time.time_ns() // 1_000_000))


def _is_still(file: IO[bytes], path: Path) -> bool:
    """Whether the file that is open is the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
