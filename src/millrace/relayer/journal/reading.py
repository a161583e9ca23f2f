"""Connections that only read, of files that a relayer writes or wrote until it was killed."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

POLICY = "policy"
"""Entry of a journal's table `meta`: the checksum of the last good policy."""
SHARED = "shared"
"""The same: the id of those with whom claims are shared."""

RESERVATIONS = "SELECT coalesce(max(id), 0) FROM audit"
"""How many there are: a row is written with each, in its commit, and none is ever taken back."""

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


def meta(journal: Path, name: str) -> str | None:
    """An entry of the table `meta` of a journal; `None` where there is no such. Raises `sqlite3.Error`."""
    found = _first(journal, "meta", "SELECT value FROM meta WHERE name = ?", (name,))
    return None if found is None else str(found)


def reservations(journal: Path) -> int:
    """How many reservations a journal has. Raises `sqlite3.Error`."""
    return int(_first(journal, "audit", RESERVATIONS) or 0)


def _first(journal: Path, table: str, sql: str, values: tuple[str, ...] = ()) -> Any:
    """The first value that is found; `None` without one, or without the table or the file."""
    if not journal.exists():
        return None
    with contextlib.closing(read_only(journal)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            return None
        found = connection.execute(sql, values).fetchone()
        return found[0] if found else None


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute(_LOOK).fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
