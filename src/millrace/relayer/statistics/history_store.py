"""Where the points of the history are kept: a SQLite file, or a PostgreSQL server. Both hold the same."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from millrace.relayer.journal.replaceable import is_damage, put_aside
from millrace.runtime.postgres import Connection, Postgres
from millrace.runtime.settings import Secret

log = logging.getLogger(__name__)

T = TypeVar("T")

STORE_ERRORS = (sqlite3.Error, OSError)
"""What a store may raise; the text is for the log."""


class Point(NamedTuple):
    """The numbers of one span of time."""

    resolution: int
    """Length of the span, seconds."""
    ts: int
    """Its beginning, Unix seconds."""
    body: bytes


class Points(Protocol):
    """A store of points. All methods raise `STORE_ERRORS`; what is read may be damaged, see `history.Checked`."""

    put_aside: int
    """How often what was stored could be used no more, and was begun anew."""

    def read(self, resolution: int, start: int, end: int, limit: int) -> list[tuple[int, bytes]]:
        """(ts, body) of the first `limit` points with `start` <= ts < `end` (seconds), in order of time."""

    def rolled(self) -> dict[int, int]:
        """Resolution -> every point before this second is made."""

    def write(self, points: Sequence[Point], rolled: Mapping[int, int], oldest: Mapping[int, int]) -> None:
        """Store points, note how far each resolution is made, forget points before `oldest`: all or nothing."""

    def close(self) -> None: ...


class SqlitePoints:
    """A file, opened when it is needed first; for several threads, one after the other.

    A kill loses nothing that was written; a loss of power at most the last seconds. One that is damaged is put aside
    and begun anew; one that cannot be used for another reason is tried again with each call.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self.put_aside = 0

    def read(self, resolution: int, start: int, end: int, limit: int) -> list[tuple[int, bytes]]:
        sql = "SELECT ts, body FROM points WHERE resolution = ? AND ts >= ? AND ts < ? ORDER BY ts LIMIT ?"
        return self._do(lambda db: db.execute(sql, (resolution, start, end, limit)).fetchall())

    def rolled(self) -> dict[int, int]:
        return dict(self._do(lambda db: db.execute("SELECT resolution, ts FROM rolled").fetchall()))

    def write(self, points: Sequence[Point], rolled: Mapping[int, int], oldest: Mapping[int, int]) -> None:
        self._do(lambda db: _write(db, points, rolled, oldest))

    def close(self) -> None:
        with self._lock:
            self._close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                return work(self._opened())
            except sqlite3.Error as error:
                if not is_damage(error, self._path):
                    raise
                self._close()
                aside = put_aside(self._path)
                self.put_aside += 1
                text = {"file": str(self._path), "error": str(error), "kept": str(aside)}
                log.error("the history's file is damaged and begun anew", extra=text)
                return work(self._opened())

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=10.0)
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._db.executescript(
                    "CREATE TABLE IF NOT EXISTS points (resolution INTEGER, ts INTEGER, body BLOB,"
                    " PRIMARY KEY (resolution, ts)) WITHOUT ROWID;"
                    "CREATE TABLE IF NOT EXISTS rolled (resolution INTEGER PRIMARY KEY, ts INTEGER NOT NULL);"
                )
            except BaseException:
                self._close()
                raise
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _write(
    db: sqlite3.Connection, points: Sequence[Point], rolled: Mapping[int, int], oldest: Mapping[int, int]
) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.executemany("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", points)
        db.executemany("INSERT OR REPLACE INTO rolled VALUES (?, ?)", rolled.items())
        db.executemany("DELETE FROM points WHERE resolution = ? AND ts < ?", oldest.items())
        db.execute("COMMIT")
    except sqlite3.Error:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


class PostgresPoints:
    """Tables in a schema of a server, made when they are missing. The server need not be there at the start.

    One object per thread.
    """

    put_aside = 0

    def __init__(self, url: Secret, schema: str) -> None:
        self._schema = schema
        self._db = Postgres(url, "millrace relayer history", self._on_connect)

    async def _on_connect(self, connection: Connection) -> None:
        schema = '"' + self._schema.replace('"', '""') + '"'
        known = await connection.fetchval("SELECT true FROM pg_namespace WHERE nspname = $1", self._schema)
        if not known:
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        await connection.execute(f"SET search_path TO {schema}")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS points (resolution BIGINT, ts BIGINT, body BYTEA NOT NULL,"
            " PRIMARY KEY (resolution, ts));"
            "CREATE TABLE IF NOT EXISTS rolled (resolution BIGINT PRIMARY KEY, ts BIGINT NOT NULL);"
        )

    def read(self, resolution: int, start: int, end: int, limit: int) -> list[tuple[int, bytes]]:
        rows = self._db.fetch(
            "SELECT ts, body FROM points WHERE resolution = $1 AND ts >= $2 AND ts < $3 ORDER BY ts LIMIT $4",
            resolution,
            start,
            end,
            limit,
        )
        return [(row[0], row[1]) for row in rows]

    def rolled(self) -> dict[int, int]:
        return {row[0]: row[1] for row in self._db.fetch("SELECT resolution, ts FROM rolled")}

    def write(self, points: Sequence[Point], rolled: Mapping[int, int], oldest: Mapping[int, int]) -> None:
        async def send(connection: Connection) -> None:
            async with connection.transaction():
                await connection.executemany(
                    "INSERT INTO points VALUES ($1, $2, $3) ON CONFLICT (resolution, ts) DO UPDATE SET body = $3",
                    points,
                )
                await connection.executemany(
                    "INSERT INTO rolled VALUES ($1, $2) ON CONFLICT (resolution) DO UPDATE SET ts = $2",
                    list(rolled.items()),
                )
                await connection.executemany(
                    "DELETE FROM points WHERE resolution = $1 AND ts < $2", list(oldest.items())
                )

        self._db.run(send)

    def close(self) -> None:
        self._db.close()
