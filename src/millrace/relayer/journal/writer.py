"""Group commit: one thread takes every change that waits and commits them together, in their order.

So a disk that syncs 500 times a second still takes thousands of records. Who commits waits for the disk and hears of
its failure; a change nobody waits for goes along with the next group, or a moment later by itself.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from millrace.relayer.journal.chain import Chain, may_be_in_log, roll_back
from millrace.relayer.journal.mark import Mark

log = logging.getLogger(__name__)

MAX_WAITING = 20_000
RETRY_SECONDS = 0.5
HANG_SECONDS = 5.0
"""A disk that answers so late hangs, busy or not: whoever asks is told so; what waits for it goes on waiting."""
LAZY_SECONDS = 0.01
"""A change nobody waits for is written with the next group, or by itself when none was written for so long."""


class Rows(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Rows for a table; those of all changes of a commit go in together: each statement is a turn with the interpreter.

    They wait for the end of the commit, for another statement about the same table, or for a change that is no `Rows`.
    Those of different tables may not depend on each other.
    """

    write: Callable[[sqlite3.Connection, list[Any]], object]
    """A function of a module: what is the same function is one statement."""
    table: str
    rows: Sequence[Any]


Write = Callable[[sqlite3.Connection], object] | Rows


class JournalError(Exception):
    """The journal cannot be opened or written; nothing may be signed."""


class JournalFull(JournalError):
    """More records wait than the disk takes; try later."""


class NonceTaken(JournalError):
    """A row of a (sender, nonce) is there that does not give way."""


class _DiskError(JournalError):
    """The file cannot be written now: the disk is full or fails, or somebody else holds the file."""


class _InDoubt(_DiskError):
    """The end came before it could be seen to that no start finds the changes: nobody is told that they failed."""


class _Change(msgspec.Struct, frozen=True, eq=False, gc=False):
    writes: tuple[Write, ...]
    done: asyncio.Future[None] | None
    """Who waits for it; what nobody waits for is tried again when the disk fails."""


class Writer:
    """The thread and its queue; `connection` is its own from now on. `close` it last.

    What the disk does not take is kept and tried again, in order, as far as nobody was told that it failed. There is
    never more of that than ends what is in flight: while the disk fails nothing new is accepted.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        chain: Chain,
        mark: Mark,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection = connection
        self._chain = chain
        self._mark = mark
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[list[_Change] | None] = SimpleQueue()
        """What the thread is to write, in order; `None` is the end."""
        self._kept: list[_Change] = []
        self._later: list[_Change] = []
        """Changes of this turn of the loop, and such that nobody waits for; they go along with the next that somebody
        does."""
        self._hands_over_soon = False
        self._later_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._made = self._over = 0
        """Changes asked for, and those that are written or given up; the latter belongs to the thread."""
        self._failed: str | None = None
        """Why the disk did not take the last commit, until it takes one."""
        self._began: float | None = None
        """Since when, by the loop's clock, the thread has been at what it writes now."""
        self.is_stuck = False
        """Whether something was committed that the mark does not say yet, or failed and may be found by a start."""
        self._closing = threading.Event()
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Changes not yet on disk."""
        return self._made - self._over

    @property
    def failed(self) -> str | None:
        """Why nothing can be written: the disk refuses, until it takes a commit, or has not answered for long."""
        began = self._began
        if self._failed is None and began is not None and self._loop.time() - began > HANG_SECONDS:
            return f"the disk has not answered for more than {HANG_SECONDS:.0f} s"
        return self._failed

    async def commit(self, *writes: Write) -> None:
        """Make a change, in parts; returns when all is on disk. Raises `JournalError`, then none of it is there.

        Where that cannot be said of a failed change until the end, whoever waits for it is cancelled.
        """
        if self.waiting >= MAX_WAITING:
            raise JournalFull("the journal's disk is too slow")
        failed = self.failed
        if self.is_stuck or (failed is not None and self._failed is None):
            raise JournalError(failed or "the mark cannot be written")
        done = self._loop.create_future()
        self._made += 1
        self._later.append(_Change(writes, done))
        if not self._hands_over_soon:
            self._hands_over_soon = True
            self._loop.call_soon(self._hand_over)  # with what others change in the same moment: each wakes the thread
        await done

    def change(self, *writes: Write) -> None:
        """Make a change, in parts, with the next group; the caller does not wait for the disk. Never refused."""
        if not self._later:
            self._later_since = self._loop.time()
            if self._timer is None:
                self._timer = self._loop.call_later(LAZY_SECONDS, self._look)
        self._made += 1
        self._later.append(_Change(writes, None))

    async def close(self) -> None:
        """Write what waits, then close the file."""
        if self._timer is not None:
            self._timer.cancel()
        self._hand_over()
        self._closing.set()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _hand_over(self) -> None:
        self._hands_over_soon = False
        if self._later:
            later, self._later = self._later, []
            self._queue.put(later)

    def _look(self) -> None:
        """Have written what nobody waits for, if it has waited long enough."""
        self._timer = None
        if not self._later:
            return
        left = self._later_since + LAZY_SECONDS - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._hand_over()

    # ---- the thread

    def _run(self) -> None:
        closing = False
        while not closing:
            group, closing = self._take()
            if group:
                self._began = self._loop.time()
                self._write(group)
                self._began = None
        if self._kept:
            log.error("changes of the journal are lost: the disk fails", extra={"count": len(self._kept)})
        self._connection.close()

    def _take(self) -> tuple[list[_Change], bool]:
        """All that waits, as soon as there is anything or it is time to try again; whether it is the last."""
        group, self._kept = self._kept, []
        try:
            changes = self._queue.get(timeout=RETRY_SECONDS if group else None)
            while changes is not None:
                group += changes
                changes = self._queue.get_nowait()
        except Empty:
            return group, False
        return group, True

    def _write(self, group: list[_Change]) -> None:
        """Commit a group; if it fails as a whole, each alone, so that a bad one fails alone. Keep what can wait."""
        error = self._try([write for change in group for write in change.writes])
        results: list[JournalError | None] = [error] * len(group)
        if error is not None and len(group) > 1 and not isinstance(error, _InDoubt):
            results = self._one_by_one(group)
        self._note([result for result in results if result is not None and not isinstance(result, NonceTaken)])
        pairs = list(zip(group, results, strict=True))
        self._kept = [change for change, result in pairs if change.done is None and isinstance(result, _DiskError)]
        self._over += len(group) - len(self._kept)
        told = [(change.done, result) for change, result in pairs if change.done is not None]
        if told and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_tell, told)
        self._on_commit()

    def _one_by_one(self, group: list[_Change]) -> list[JournalError | None]:
        """Each change alone. Once the disk fails nothing further is tried, or later ones would pass earlier ones."""
        results: list[JournalError | None] = []
        for change in group:
            last = results[-1] if results else None
            results.append(last if isinstance(last, _DiskError) else self._try(change.writes))
        return results

    def _try(self, writes: Sequence[Write]) -> JournalError | None:
        """Commit changes, all or none of them, and have the mark say so; the error if it failed."""
        connection = self._connection
        if self.is_stuck:  # given up at the end: the journal may be one commit past the mark, and no more
            return JournalError(self._failed or "the mark cannot be written")
        is_written = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._chain.begin()
            _make(connection, writes)
            is_written = True
            is_sealed = self._chain.seal()
            connection.execute("COMMIT")
        except Exception as error:  # whatever a change does, the thread that writes everybody's must live on
            roll_back(connection)
            if isinstance(error, NonceTaken):
                return error
            # `SQLITE_ERROR` is wrong SQL, and other classes are wrong values: a defect, which time does not mend.
            is_disk = isinstance(error, sqlite3.OperationalError) and error.sqlite_errorname != "SQLITE_ERROR"
            if is_written and may_be_in_log(error) and not self._take_back():
                return _InDoubt(str(error) or repr(error))
            return (_DiskError if is_disk else JournalError)(str(error) or repr(error))
        return self._remember() if is_sealed else None

    def _take_back(self) -> bool:
        """Take a commit that failed out of the log; whether that is on disk.

        Tried until it is, or the end: who is told of the failure may sign something else for its nonce.
        """
        while True:
            try:
                self._chain.take_back()
            except Exception as error:  # of memory, say; the thread must live on
                text = f"a commit that failed cannot be taken back: {error!r}"
                if text != self._failed:
                    log.error("journal commit is in doubt", extra={"error": text})
                self._failed, self.is_stuck = text, True
                if self._closing.wait(RETRY_SECONDS):
                    return False
            else:
                self.is_stuck = False
                return True

    def _remember(self) -> JournalError | None:
        """Have the mark say what was committed, which nobody hears of before; tried until it does, or the end."""
        link = self._chain.committed()
        while True:
            try:
                self._mark.write(link)
            except OSError as error:
                text = f"the mark {self._mark.path} cannot be written: {error}"
                if text != self._failed:
                    log.error("journal commit is not acknowledged", extra={"error": text})
                self._failed, self.is_stuck = text, True
                if self._closing.wait(RETRY_SECONDS):
                    return JournalError(text)
            else:
                self.is_stuck = False
                return None

    def _note(self, errors: list[JournalError]) -> None:
        self.commits += 1
        for text in dict.fromkeys(str(error) for error in errors):
            if text != self._failed:
                log.error("journal commit failed", extra={"error": text})
        self._failed = next((str(error) for error in errors if isinstance(error, _DiskError)), None)


def _make(connection: sqlite3.Connection, writes: Iterable[Write]) -> None:
    """Make changes in their order, as far as it matters."""
    gathered: dict[str, tuple[Callable[[sqlite3.Connection, list[Any]], object], list[Any]]] = {}

    def put() -> None:
        for write_rows, rows in gathered.values():
            write_rows(connection, rows)
        gathered.clear()

    for write in writes:
        if not isinstance(write, Rows):
            put()
            write(connection)
            continue
        there = gathered.get(write.table)
        if there is not None and there[0] is not write.write:
            put()
            there = None
        if there is None:
            there = gathered[write.table] = (write.write, [])
        there[1].extend(write.rows)
    put()


def _tell(waiting: list[tuple[asyncio.Future[None], JournalError | None]]) -> None:
    for done, error in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        elif isinstance(error, _InDoubt):
            done.cancel()
        else:
            done.set_exception(error)
