"""History of the network statistics: one point a second, rolled up to 10 s, 1 min, 5 min and 1 h, in SQLite.

A coarser point is made from the finer ones that are stored, when its time is over; what a restart interrupted
is rolled up at the next start. So nothing is kept only in memory but the current second.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

RETENTION_SECONDS = {1: 3_600, 10: 6 * 3_600, 60: 2 * 86_400, 300: 14 * 86_400, 3_600: 400 * 86_400}
"""How long points of each resolution (seconds) are kept: at most 9 600 points of each, so any answer is bounded."""
RESOLUTIONS = tuple(RETENTION_SECONDS)
DEFAULT_POINTS = 1_000
DEFAULT_SPAN_MS = 3_600_000
_WITH_BOUNDS = "Tps"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS points (resolution INTEGER, ts INTEGER, body BLOB, PRIMARY KEY (resolution, ts))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rolled (resolution INTEGER PRIMARY KEY, ts INTEGER NOT NULL);
"""


class _Sum(msgspec.Struct, array_like=True):
    """A field over a span: enough to average it, and to join it with other spans."""

    total: float
    count: int
    low: float
    high: float


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, _Sum])


class HistoryError(ValueError):
    """A question about the history makes no sense; the text says how to mend it."""


def flatten(data: dict[str, Any]) -> dict[str, float]:
    """The known numbers of a networkStats payload by a flat name; nulls and texts are left out."""
    flat: dict[str, float] = {}
    for group in data.values():
        for name, value in group.items():
            for inner, number in value.items() if isinstance(value, dict) else [("", value)]:
                if isinstance(number, int | float):
                    flat[_flat_name(name, inner)] = number
    return flat


def _flat_name(name: str, inner: str) -> str:
    """`currentTps`, `latestShardNonce`, `blockTimeMsP50Shard0`, `onlineMeta`."""
    if not inner:
        return name
    if name.endswith("ByShard"):
        return name.removesuffix("ByShard") + (f"Shard{inner}" if inner.isdigit() else inner.capitalize())
    return name + inner[0].upper() + inner[1:]


class History:
    """The file. Not for two threads at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, ts_ms: int, numbers: dict[str, float]) -> None:
        """Store the numbers of the second that `ts_ms` lies in, and roll up what is complete before it."""
        second = ts_ms // 1000
        body = _encoder.encode({name: _Sum(number, 1, number, number) for name, number in numbers.items()})
        self._db.execute("BEGIN")
        self._db.execute("INSERT OR REPLACE INTO points VALUES (1, ?, ?)", (second, body))
        for finer, coarser in pairwise(RESOLUTIONS):
            self._roll_up(finer, coarser, second)
        self._db.execute("COMMIT")

    def query(self, start_ms: int | None, end_ms: int | None, resolution: int | None, now_ms: int) -> dict[str, Any]:
        """Points from `start_ms` to `end_ms`. Raises `HistoryError`.

        By default the last hour, in the finest resolution that makes at most 1000 points.
        """
        end = now_ms if end_ms is None else end_ms
        start = end - DEFAULT_SPAN_MS if start_ms is None else start_ms
        if start > end:
            raise HistoryError("from lies behind to")
        span = (end - start) // 1000
        if resolution is None:
            fitting = [step for step in RESOLUTIONS if span // step <= DEFAULT_POINTS]
            resolution = fitting[0] if fitting else RESOLUTIONS[-1]
        if resolution not in RETENTION_SECONDS:
            raise HistoryError(f"resolution is one of {', '.join(map(str, RESOLUTIONS))} seconds")
        rows = self._db.execute(
            "SELECT ts, body FROM points WHERE resolution = ? AND ts >= ? AND ts <= ? ORDER BY ts",
            (resolution, -(-start // 1000), end // 1000),
        )
        return {"resolution": resolution, "points": [_point(ts, body) for ts, body in rows]}

    def _roll_up(self, finer: int, coarser: int, second: int) -> None:
        """Make every coarser point whose time is over, and forget points of both that are too old."""
        complete = second // coarser * coarser
        row = self._db.execute("SELECT ts FROM rolled WHERE resolution = ?", (coarser,)).fetchone()
        done = row[0] if row else 0
        if complete <= done:
            return
        rows = self._db.execute(
            "SELECT ts, body FROM points WHERE resolution = ? AND ts >= ? AND ts < ? ORDER BY ts",
            (finer, done, complete),
        )
        spans: dict[int, list[bytes]] = {}
        for ts, body in rows:
            spans.setdefault(ts // coarser * coarser, []).append(body)
        for ts, bodies in spans.items():
            self._db.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", (coarser, ts, _join(bodies)))
        self._db.execute("INSERT OR REPLACE INTO rolled VALUES (?, ?)", (coarser, complete))
        for resolution in (finer, coarser):
            oldest = second - RETENTION_SECONDS[resolution]
            self._db.execute("DELETE FROM points WHERE resolution = ? AND ts < ?", (resolution, oldest))


def _join(bodies: Iterable[bytes]) -> bytes:
    joined: dict[str, _Sum] = {}
    for body in bodies:
        for name, part in _decoder.decode(body).items():
            whole = joined.get(name)
            if whole is None:
                joined[name] = part
            else:
                whole.total += part.total
                whole.count += part.count
                whole.low = min(whole.low, part.low)
                whole.high = max(whole.high, part.high)
    return _encoder.encode(joined)


def _point(ts: int, body: bytes) -> dict[str, float]:
    point: dict[str, float] = {"ts": ts * 1000}
    for name, part in _decoder.decode(body).items():
        point[name] = part.total / part.count
        if _WITH_BOUNDS in name:
            point[f"{name}Min"], point[f"{name}Max"] = part.low, part.high
    return point
