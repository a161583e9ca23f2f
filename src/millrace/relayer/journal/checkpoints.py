"""Copies what SQLite's write-ahead log has gathered into the database, beside the thread that commits.

A commit that has to copy the log first takes tens of milliseconds, and everybody who waits for the disk waits with it.
So a passive checkpoint of another connection copies while commits go on. What they add meanwhile, some pages, the
thread that commits copies itself between two of them: only when nothing is left over does the next commit begin the log
anew, and under load there is always something left over by the time a copy beside the commits is done. Else the log
would grow for as long as the load lasts.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

COMMITS = 500
"""Commits after which the log is copied …"""
ROWS = 5_000
"""… or submissions, if these come first: commits grow with the load, and each submission adds 2 to 8 KB to the log."""
TRIES = 4
"""How often at once: each try has only to copy what was committed during the one before …"""
FEW = 128
"""… until that is no more than so many pages, which take a millisecond or two."""


class Checkpoints:
    """A thread with a connection of its own. `start` it; `stop` it when nothing is committed any more.

    The connection belongs to the thread from when `committed` wakes it until it has set `_is_copied`, and else to the
    thread that commits.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], rows: Callable[[], int] = lambda: 0) -> None:
        """`rows` counts the submissions that were asked to be written."""
        self._connect = connect
        self._rows = rows
        self._copied_rows = 0
        self._is_asked = False
        self._connection: sqlite3.Connection | None = None
        self._commits = 0
        self._is_copied = False
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        """Begin to wait for commits."""
        self._thread.start()

    def committed(self) -> None:
        """One more commit, told by the one thread that commits when nobody waits for it any more."""
        if self._is_copied:
            self._is_copied = self._is_asked = False
            self._commits, self._copied_rows = 0, self._rows()
            self._copy(1)
        self._commits += 1
        if not self._is_asked and (self._commits >= COMMITS or self._rows() - self._copied_rows >= ROWS):
            self._is_asked = True
            self._wake.set()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._connection = self._connect()
        except sqlite3.Error as error:
            log.warning("the journal's log is copied by its commits", extra={"error": str(error)})
            return
        while not self._stopping:
            self._wake.wait()
            self._wake.clear()
            if not self._stopping:
                self._copy(TRIES)
                self._is_copied = True
        self._connection.close()

    def _copy(self, tries: int) -> None:
        """Copy the log, again until hardly anything was added meanwhile."""
        assert self._connection is not None
        before = 0
        try:
            for _ in range(tries):
                _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if pages - before <= FEW:
                    break
                before = pages
        except sqlite3.Error as error:  # a full disk, a lock: later commits copy themselves what is too much
            log.warning("the journal's log was not copied", extra={"error": str(error)})
