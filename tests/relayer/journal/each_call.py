"""A work on a data directory, once for each call to the system that it makes: that call fails, or is its last.

`python each_call.py WORK FOLDER`, with `faults.c` preloaded, prints what was wrong, as JSON. Each time a child process
of a folder's copy does the work and tells what it was promised; then it is looked at what the next ones make of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import itertools
import json
import logging
import os
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import relayer.conftest  # noqa: F401  makes the shared modules known

# isort: split
from relayer_damage import charge, row
from relayer_support import with_identity

from millrace.relayer.journal import backup, claims, identity, memory, moving, recovery
from millrace.relayer.journal import writer as writer_module
from millrace.relayer.journal.backup import BackupError
from millrace.relayer.journal.claims import ClaimsError
from millrace.relayer.journal.identity import IdentityError
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.leases import FileLeases, Held, LeaseError
from millrace.relayer.journal.recovery import RecoveryError
from millrace.relayer.journal.writer import JournalError, NonceTaken

KEY = b"k" * 32
KEPT = range(100, 103)
"""Nonces of a folder before the work."""
TOLD = (JournalError, BackupError, ClaimsError, RecoveryError, IdentityError, LeaseError)
NEVER = 2**40
FEW = 25
"""Works of so few calls are refused each of them."""
PATIENCE = 0.2
"""Seconds that are waited for a commit in doubt, which nobody is told of as long as the disk fails."""

Say = Callable[..., None]
Said = list[list[Any]]
libc = ctypes.CDLL(None)
libc.faults_seen.restype = ctypes.c_long


def arm(folder: Path | None, first: int = NEVER, last: int = NEVER, error: int = 0) -> None:
    """From the `first` to the `last` call that changes something in the folder from now on, each fails."""
    name = b"" if folder is None else str(folder).encode()
    libc.faults_arm(name, ctypes.c_long(first), ctypes.c_long(last), error)


async def append(journal: Journal, nonces: range, say: Say) -> None:
    """Have rows written, and say what their clients are told."""
    for nonce in nonces:
        try:
            await asyncio.wait_for(journal.append([row(nonce)], [charge(nonce)]), PATIENCE)
            say("accepted", nonce)
        except JournalError:
            say("refused", nonce)
        except TimeoutError:
            return


async def run(folder: Path, nonces: range, say: Say = lambda *_: None) -> None:
    """A relayer's start, some rows, and its stop."""
    journal = Journal(folder / "journal.sqlite")
    try:
        journal.open()
        await append(journal, nonces, say)
    finally:
        await journal.close()


async def wrong_with(folder: Path, said: Said) -> Iterator[str]:
    """What of a folder is not as was said: it starts, has what was accepted and not what was refused."""
    found = []
    journal = Journal(folder / "journal.sqlite")
    try:
        journal.open()
        there = {nonce for (nonce,) in journal.read("SELECT nonce FROM submissions")}
        for nonce in (item[1] for item in said if item[0] == "accepted"):
            if nonce not in there:
                found.append(f"{nonce} was accepted and is lost")
            with contextlib.suppress(NonceTaken):
                await journal.append([row(nonce, b"other")])
                found.append(f"{nonce} has a second payload")
        found += [f"{item[1]} was refused and is there" for item in said if item[0] == "refused" and item[1] in there]
        await journal.append([row(5000)])
    except (*TOLD, sqlite3.Error) as error:
        found.append(f"it does not start: {error}")
    finally:
        await journal.close()
    return iter(found)


def may_start(folder: Path) -> bool:
    """Whether a relayer would try to."""
    with contextlib.suppress(IdentityError):
        identity.check_may_start(folder, identity.read(folder))
        return True
    return False


# ---- what is done: `make` without faults, `do` with them, `look` afterwards


class Start:
    """The first start of a folder, or a later one."""

    def __init__(self, *, is_first: bool) -> None:
        self._is_first = is_first

    def make(self, place: Path) -> None:
        with_identity(place / "data")
        if not self._is_first:
            asyncio.run(run(place / "data", KEPT))

    def do(self, place: Path, say: Say) -> None:
        asyncio.run(run(place / "data", range(2), say))

    def look(self, place: Path, said: Said) -> Iterator[str]:
        return asyncio.run(wrong_with(place / "data", said))


class Move:
    """A folder that has lived elsewhere since."""

    def make(self, place: Path) -> None:
        with_identity(place / "data")
        asyncio.run(run(place / "data", KEPT))

    def do(self, place: Path, say: Say) -> None:
        with contextlib.closing(FileLeases(place / "leases")) as store:
            moving.move(place / "data", place / "new", [KEY], store)
        say("done")

    def look(self, place: Path, said: Said) -> Iterator[str]:
        old, new = may_start(place / "data"), may_start(place / "new")
        if old and new:
            yield "both may start"
        if ["done"] in said and not new:
            yield "it is done, and the new one may not start"
        if not new:
            if old:  # a copy that is half made has to be deleted first
                shutil.rmtree(place / "new", ignore_errors=True)
            self.do(place, lambda *_: None)
        yield from asyncio.run(wrong_with(place / "new", [["accepted", nonce] for nonce in KEPT]))


class Recover:
    """The safe start of a backup."""

    def make(self, place: Path) -> None:
        Move().make(place)
        backup.backup(place / "data", place / "backup")
        backup.restore(place / "backup", place / "restored")
        store, held = FileLeases(place / "leases"), Held(identity.read(place / "data").id, 1, len(KEPT), "here")
        store.take([KEY], held)
        store.give_back([KEY], held)

    def do(self, place: Path, say: Say) -> None:
        store, folder = FileLeases(place / "leases"), place / "restored"
        with contextlib.closing(store), backup.stopped(folder):
            plan = recovery.prepare(folder, [KEY], store, wait_seconds=0, ahead=3, charges=True)
            recovery.make(folder, [KEY], store, plan, place="here", mark_path="")
        say("done")

    def look(self, place: Path, said: Said) -> Iterator[str]:
        folder = place / "restored"
        if may_start(folder) and recovery.read(folder, identity.read(folder), 0) is None:
            yield "it starts, and not safely"
        if not may_start(folder):
            if ["done"] in said:
                yield "it is done, and does not start"
            self.do(place, lambda *_: None)
        ours = identity.read(folder)
        with contextlib.closing(FileLeases(place / "leases")) as store:
            store.take([KEY], Held(ours.id, ours.epoch, len(KEPT), "here"))
        yield from asyncio.run(wrong_with(folder, [["accepted", nonce] for nonce in KEPT]))


class Import:
    """Claims of another folder."""

    def make(self, place: Path) -> None:
        Move().make(place)
        claims.export(place / "data", place / "claims", "local")
        with_identity(place / "other")
        asyncio.run(run(place / "other", range(0)))

    def do(self, place: Path, say: Say) -> None:
        claims.import_(place / "other", place / "claims", "local")
        say("done")

    def look(self, place: Path, said: Said) -> Iterator[str]:
        with contextlib.closing(sqlite3.connect(place / "other" / "journal.sqlite")) as journal:
            (count,) = journal.execute("SELECT count(*) FROM imported_claims").fetchone()
        is_refused = any(item[0] == "error" and "may be there or not" not in item[1] for item in said)
        if count != 1 and ["done"] in said:
            yield "claims are lost"
        if count and is_refused:
            yield "it was refused, and is there"
        yield from asyncio.run(wrong_with(place / "other", []))


WORKS = {
    "first start": Start(is_first=True), "start": Start(is_first=False), "move": Move(), "recover": Recover(),
    "import": Import(),
}  # fmt: skip
FAULTS = {
    "killed": (0, False), "refused once": (errno.EIO, False), "refused from then on": (errno.EIO, True),
    "full": (errno.ENOSPC, True),
}  # fmt: skip


def once(work: Any, place: Path, first: int, last: int, error: int) -> Said:
    """What a child says that does the work with this fault; at its end how many calls it made."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)

        def say(*words: Any) -> None:
            os.write(writing, json.dumps(words).encode() + b"\n")

        arm(place, first, last, error)
        try:
            work.do(place, say)
        except TOLD as told:
            say("error", str(told))
        except BaseException:
            say("crash", traceback.format_exc())
        say("calls", libc.faults_seen())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = [json.loads(line) for line in lines]
    os.waitpid(child, 0)
    return said


def main(name: str, place: Path, step: int) -> None:
    """Print what was wrong with which fault at which call: killed at each, refused every `step`."""
    logging.disable()
    writer_module.RETRY_SECONDS = memory.TRY_SECONDS = 0.01
    work, kept, scratch = WORKS[name], place / "kept", place / "scratch"
    kept.mkdir()
    work.make(kept)
    shutil.copytree(kept, scratch)
    calls = dict(once(work, scratch, NEVER, NEVER, 0)[-1:])["calls"]
    wrong = []
    for fault, number in itertools.product(FAULTS, range(1, calls + 1)):
        if fault != "killed" and calls > FEW and number % step:
            continue
        error, stays = FAULTS[fault]
        shutil.rmtree(scratch)
        shutil.copytree(kept, scratch)
        said = once(work, scratch, number, NEVER if stays else number, error)
        found = [item[1] for item in said if item[0] == "crash"]
        try:
            found += work.look(scratch, said)
        except TOLD as told:
            found.append(str(told))
        wrong += [f"{fault} at call {number}: {text}" for text in found]
    print(json.dumps({"calls": calls, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
