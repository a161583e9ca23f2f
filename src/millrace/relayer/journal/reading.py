"""Connections that only read, of files that a relayer writes or wrote until it was killed."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

_LOOK = "SELECT 1 FROM sqlite_master"


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, not even the log. Raises `sqlite3.Error`.

    But a change that was cut off in a file without a log (a new one, or of a backup that was not started since) is
    undone first: SQLite shows nobody the file before, and only who may write can do it.
    """
    try:
        return _connect(path)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
            raise
    with contextlib.closing(sqlite3.connect(path)) as undoing:
        undoing.execute(_LOOK).fetchone()
    return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute(_LOOK).fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
