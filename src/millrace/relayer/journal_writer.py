"""Group commit: one thread takes every change that waits and commits them together, in their order.

So a disk that syncs 500 times a second still takes thousands of records. Who commits waits for the disk and hears of
its failure; a change nobody waits for goes along with the next group, or a moment later by itself.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

log = logging.getLogger(__name__)

MAX_WAITING = 20_000
RETRY_SECONDS = 0.5
LAZY_SECONDS = 0.01
"""A change nobody waits for is written with the next group, or after so long."""

Write = Callable[[sqlite3.Connection], None]


class JournalError(Exception):
    """The journal cannot be opened or written; nothing may be signed."""


class JournalFull(JournalError):
    """More records wait than the disk takes; try later."""


class NonceTaken(JournalError):
    """A row of a (sender, nonce) is there that does not give way."""


class _DiskError(JournalError):
    """The file cannot be written now: the disk is full or fails, or somebody else holds the file."""


class _Change(NamedTuple):
    write: Write
    done: asyncio.Future[None] | None
    """Who waits for it; what nobody waits for is tried again when the disk fails."""


class Writer:
    """The thread and its queue; `connection` is its own from now on. `close` it last.

    What the disk does not take is kept and tried again, in order, as far as nobody was told that it failed. There is
    never more of that than ends what is in flight: while the disk fails nothing new is accepted.
    """

    def __init__(self, connection: sqlite3.Connection, on_commit: Callable[[], None] = lambda: None) -> None:
        self._connection = connection
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Condition()
        self._queue: list[_Change] = []
        self._kept: list[_Change] = []
        self._due = False
        """Whether somebody waits for a change in the queue, or one has waited long enough."""
        self._closing = False
        self._lazy: asyncio.TimerHandle | None = None
        self.failed: str | None = None
        """Why the disk did not take the last commit, until it takes one."""
        self.waiting = 0
        """Changes not yet on disk."""
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    async def commit(self, write: Write) -> None:
        """Make a change; returns when it is on disk. Raises `JournalError`, then none of it is there."""
        if self.waiting >= MAX_WAITING:
            raise JournalFull("the journal's disk is too slow")
        done = self._loop.create_future()
        self._enqueue(_Change(write, done))
        await done

    def change(self, write: Write) -> None:
        """Make a change with the next group; the caller does not wait for the disk. Never refused."""
        self._enqueue(_Change(write, None))
        if self._lazy is None:
            self._lazy = self._loop.call_later(LAZY_SECONDS, self._write_lazy)

    async def close(self) -> None:
        """Write what waits, then close the file."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    # ---- the thread

    def _enqueue(self, change: _Change) -> None:
        with self._wake:
            self._queue.append(change)
            self.waiting += 1
            if change.done is not None:
                self._due = True
                self._wake.notify()

    def _write_lazy(self) -> None:
        self._lazy = None
        with self._wake:
            self._due = True
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._due and not self._closing:
                    self._wake.wait(RETRY_SECONDS if self._kept else None)
                queue, self._queue, self._due = self._queue, [], False
                closing = self._closing
            group = [*self._kept, *queue]
            if group:
                self._write(group)
            if closing and not self._queue:
                break
        if self._kept:
            log.error("changes of the journal are lost: the disk fails", extra={"count": len(self._kept)})
        self._connection.close()

    def _write(self, group: list[_Change]) -> None:
        """Commit a group; if it fails as a whole, each alone, so that a bad one fails alone. Keep what can wait."""
        error = _try(self._connection, [change.write for change in group])
        results: list[JournalError | None] = [error] * len(group)
        if error is not None and len(group) > 1:
            results = self._one_by_one(group)
        self._note([result for result in results if result is not None and not isinstance(result, NonceTaken)])
        pairs = list(zip(group, results, strict=True))
        self._kept = [change for change, result in pairs if change.done is None and isinstance(result, _DiskError)]
        with self._wake:
            self.waiting -= len(group) - len(self._kept)
        told = [(change.done, result) for change, result in pairs if change.done is not None]
        if told and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_tell, told)
        self._on_commit()

    def _one_by_one(self, group: list[_Change]) -> list[JournalError | None]:
        """Each change alone. Once the disk fails nothing further is tried, or later ones would pass earlier ones."""
        results: list[JournalError | None] = []
        for change in group:
            last = results[-1] if results else None
            results.append(last if isinstance(last, _DiskError) else _try(self._connection, [change.write]))
        return results

    def _note(self, errors: list[JournalError]) -> None:
        self.commits += 1
        for text in dict.fromkeys(str(error) for error in errors):
            if text != self.failed:
                log.error("journal commit failed", extra={"error": text})
        self.failed = next((str(error) for error in errors if isinstance(error, _DiskError)), None)


def _try(connection: sqlite3.Connection, writes: Sequence[Write]) -> JournalError | None:
    """Commit changes, all or none of them; the error if it failed."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for write in writes:
            write(connection)
        connection.execute("COMMIT")
    except Exception as error:  # whatever a change does, the thread that writes everybody's must live on
        _roll_back(connection)
        if isinstance(error, NonceTaken):
            return error
        # `SQLITE_ERROR` is wrong SQL, and other classes are wrong values: a defect, which time does not mend.
        is_disk = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname != "SQLITE_ERROR"
        return (_DiskError if is_disk else JournalError)(str(error) or repr(error))
    return None


def _roll_back(connection: sqlite3.Connection) -> None:
    """Undo an unfinished change; some failures of the disk have done so already, or prevent even that for now."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        log.error("journal rollback failed", extra={"error": str(error)})


def _tell(waiting: list[tuple[asyncio.Future[None], JournalError | None]]) -> None:
    for done, error in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
