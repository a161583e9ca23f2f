"""Copies what SQLite's write-ahead log has gathered into the database, beside the thread that commits.

A commit that has to copy the log first takes tens of milliseconds, and everybody who waits for the disk waits with it.
A passive checkpoint of another connection copies while commits go on; when one of them has left nothing over, the next
commit begins the log anew.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

COMMITS = 500
"""Commits after which the log is copied."""
TRIES = 4
"""How often at once: each try has only to copy what was committed during the one before."""


class Checkpoints:
    """A thread with a connection of its own. `start` it; `stop` it when nothing is committed any more."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._commits = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        """Begin to wait for commits."""
        self._thread.start()

    def committed(self) -> None:
        """One more commit, told by the one thread that commits."""
        self._commits += 1
        if self._commits >= COMMITS:
            self._commits = 0
            self._wake.set()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except sqlite3.Error as error:
            log.warning("the journal's log is copied by its commits", extra={"error": str(error)})
            return
        while not self._stopping:
            self._wake.wait()
            self._wake.clear()
            try:
                for _ in range(TRIES):
                    _, frames, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                    if self._stopping or frames == copied:
                        break
            except sqlite3.Error as error:  # a full disk, a lock: later commits copy themselves what is too much
                log.warning("the journal's log was not copied", extra={"error": str(error)})
        connection.close()
