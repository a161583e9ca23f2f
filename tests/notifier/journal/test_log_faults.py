"""The journal under refusals and deaths at any call to the system: what was acknowledged is there, once and whole.

`MILLRACE_FAULT_ROUNDS` sets the number of deaths, `MILLRACE_FAULT_SEED` where it begins.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from millrace.notifier.journal import file_store
from millrace.notifier.journal import log as log_module
from millrace.notifier.journal.file_store import Store
from millrace.notifier.journal.memories import Memories
from millrace.notifier.journal.rows import JournalUnusable
from millrace.notifier.rules.entry import Entry
from millrace.runtime import files

from ..journal_files import log_files
from .test_file_store import copy_of, save

ROUNDS = int(os.environ.get("MILLRACE_FAULT_ROUNDS", "40"))
SEED = int(os.environ.get("MILLRACE_FAULT_SEED", "1"))
CALLS = [
    (os, "pwritev"), (os, "fdatasync"), (os, "fsync"), (os, "ftruncate"), (Path, "unlink"), (Memories, "_write"),
    (files, "sync"),
]  # fmt: skip


class Death(BaseException):
    """The process ends here."""


class Faults:
    """Makes calls refuse, or be the last ones; before or after they have done their work, writes in the middle too."""

    def __init__(self, patch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.refusals = self.deaths = 0.0
        self.seen: Counter[tuple[str, bool]] = Counter()
        self._rng = rng
        for owner, name in CALLS:
            patch.setattr(owner, name, self._wrapped(getattr(owner, name), name))

    def none(self) -> None:
        self.refusals = self.deaths = 0.0

    def _wrapped(self, real, name):  # type: ignore[no-untyped-def]
        def call(*arguments, **options):  # type: ignore[no-untyped-def]
            chance = self._rng.random()
            if chance >= self.refusals + self.deaths:
                return real(*arguments, **options)
            if self._rng.random() < 0.5:
                real(*arguments, **options)
            elif name == "pwritev":
                descriptor, parts, offset = arguments
                data = b"".join(parts)
                os.pwrite(descriptor, data[: self._rng.randrange(len(data) + 1)], offset)
            dies = chance < self.deaths
            self.seen[name, dies] += 1
            if dies:
                raise Death
            raise sqlite3.OperationalError("refused") if name == "_write" else OSError(errno.EIO, "refused")

        return call


class Told:
    """What a writer knows: the events that were acknowledged, and those that may be there or not."""

    def __init__(self) -> None:
        self.sure: dict[int, Entry] = {}
        self.doubtful: list[Entry] = []
        self._count = 0

    def write(self, store: Store, rng: random.Random) -> None:
        """A commit of some events, and at times a look at what is too old."""
        store.begin()
        for _ in range(rng.randrange(4)):
            save(store, self._count, rng.randrange(400))
            self._count += 1
        self.doubtful = list(store._changes.events)
        if commit(store):
            self.sure.update((entry.sequence, entry) for entry in self.doubtful)
            self.doubtful = []
        if rng.random() < 0.4:
            store.begin()
            try:
                store.prune(0, rng.choice((3000, 20_000)), 10**6)
            except (OSError, sqlite3.OperationalError):
                store.rollback()
            else:
                commit(store)

    def check(self, store: Store) -> None:
        """A journal that was opened again has this and no more."""
        entries, corrupt = store.read(0, 10**9, 10**6)
        found = {entry.sequence: (entry.message_id, entry.payload) for entry in entries}
        for known in (self.sure, {entry.sequence: entry for entry in self.doubtful}):
            left = {number: (e.message_id, e.payload) for number, e in known.items() if number >= store.oldest}
            if known is self.sure or left.keys() <= found.keys():
                assert {number: found.pop(number, None) for number in left} == left
        assert not found and not corrupt
        self.sure = {entry.sequence: entry for entry in entries}
        self.doubtful = []
        assert store.payload_bytes == sum(len(entry.payload) for entry in entries)
        assert store.disk_bytes == sum(path.stat().st_size for path in log_files(store.path.parent))
        assert all(store.block(0, bytes.fromhex(entry.message_id.split(":")[2])) for entry in entries)


def commit(store: Store) -> bool:
    try:
        store.commit()
    except (OSError, sqlite3.OperationalError):
        store.rollback()
        return False
    return True


def opened(directory: Path, faults: Faults, rng: random.Random) -> Store:
    """As often as the start dies or is refused, it is tried again; with a sound disk it succeeds."""
    while True:
        faults.refusals, faults.deaths = rng.choice([(0.0, 0.0), (0.1, 0.0), (0.0, 0.1)])
        sound = not faults.refusals
        try:
            return Store(directory)
        except Death:
            pass
        except JournalUnusable:
            if sound:
                raise
        finally:
            faults.none()


def test_refusals_and_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever calls fail, wherever the process dies: the next start has all that was acknowledged, and goes on."""
    monkeypatch.setattr(log_module, "SEGMENT_BYTES", 6000)
    monkeypatch.setattr(file_store, "_MAX_RECENT", 17)
    monkeypatch.setattr(file_store, "NEWEST_EVENTS", 6)
    rng = random.Random(SEED)
    with monkeypatch.context() as patch:
        faults, told = Faults(patch, rng), Told()
        directory = tmp_path / "0"
        store = Store(directory)
        for number in range(ROUNDS):
            faults.refusals, faults.deaths = rng.choice([(0.0, 0.02), (0.1, 0.02), (0.3, 0.02), (0.05, 0.005)])
            try:
                for _ in range(rng.randrange(60)):
                    told.write(store, rng)
                if rng.random() < 0.4:
                    faults.deaths = 0.0
                    store.close()
            except Death:
                pass
            faults.none()
            left = tmp_path / str(number + 1)
            left.mkdir()
            copy_of(directory, left)
            store._release()
            shutil.rmtree(directory)
            directory = left
            store = opened(directory, faults, rng)
            told.check(store)
        store.close()
    assert {name for name, dies in faults.seen if not dies} == {name for _, name in CALLS}
    assert sum(count for (_, dies), count in faults.seen.items() if dies) > ROUNDS // 3
