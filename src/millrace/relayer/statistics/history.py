"""History of the network statistics: one point a second, rolled up to 10 s, 1 min, 5 min and 1 h.

A coarser point is made from the finer ones that are stored, when its time is over; what a restart interrupted
is rolled up at the next start. So nothing is kept only in memory but the current second, and those which a
database that is away has not taken yet.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import msgspec

from millrace.relayer.journal.replaceable import is_sealed, opened, seal
from millrace.relayer.statistics.history_store import STORE_ERRORS, Point, Points

RETENTION_SECONDS = {1: 3_600, 10: 6 * 3_600, 60: 2 * 86_400, 300: 14 * 86_400, 3_600: 400 * 86_400}
"""How long points of each resolution (seconds) are kept: at most 9 600 points of each. Times of the public interface,
in rounds of any length."""
RESOLUTIONS = tuple(RETENTION_SECONDS)
DEFAULT_POINTS = 1_000
MAX_POINTS = 2_000
"""Most points of one answer."""
MAX_QUESTIONS = 8
"""Most questions that wait for their answer at once."""
_KEPT_SECONDS = 600  # while the database is away; older ones are lost
_ENCODED_AT_ONCE = 50  # points: the interpreter's lock is free in between
DEFAULT_SPAN_MS = 3_600_000
_WITH_BOUNDS = "Tps"
_LAST = re.compile(r"latest(Shard|Meta)(ShardId|Nonce|Round|Epoch|TimestampMs)")
"""Names and places in the chain: of several the last is told, as their average means nothing."""

log = logging.getLogger(__name__)


class _Sum(msgspec.Struct, array_like=True):
    """A field over a span: enough to average it, and to join it with other spans."""

    total: float
    count: int
    low: float
    high: float
    last: float | None = None
    """Unknown of what an earlier version stored."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, _Sum])
_json = msgspec.json.Encoder()


class HistoryError(ValueError):
    """A question about the history makes no sense; the text says how to mend it."""


class HistoryUnavailable(Exception):
    """No answer now; asking again later makes sense."""


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


class Checked:
    """A store whose points have checksums: what was changed since it was written is left out, and told of no more.

    For one thread.
    """

    def __init__(self, store: Points) -> None:
        self._store = store
        self.left_out = 0
        """Points that were damaged when they were read."""
        self.close = store.close

    @property
    def put_aside(self) -> int:
        """How often the store was begun anew."""
        return self._store.put_aside

    def read(self, resolution: int, start: int, end: int, limit: int) -> list[tuple[int, bytes]]:
        """(ts, body) of points that are whole, see `Points.read`."""
        found = []
        for ts, data in self._store.read(resolution, start, end, limit):
            body = opened(data, _name(resolution, ts))
            if body is not None and (is_sealed(data) or _is_possible(ts, body)):
                found.append((ts, body))
            else:
                self._tell(resolution, ts)
        return found

    def rolled(self) -> dict[int, int | None]:
        """Resolution -> every point before this second is made; `None` where that is damaged, 0 in a new store.

        A bit that is turned over makes no multiple of 10, 60, 300 or 3600 another one.
        """
        found = self._store.rolled()
        if not found:
            return dict.fromkeys(RESOLUTIONS[1:], 0)
        whole = {step: found.get(step) for step in RESOLUTIONS[1:]}
        return {step: ts if isinstance(ts, int) and ts % step == 0 else None for step, ts in whole.items()}

    def write(self, points: Iterable[Point], rolled: Mapping[int, int], oldest: Mapping[int, int]) -> None:
        """See `Points.write`."""
        sealed = [Point(step, ts, seal(body, _name(step, ts))) for step, ts, body in points]
        self._store.write(sealed, rolled, oldest)

    def _tell(self, resolution: int, ts: object) -> None:
        if not self.left_out:
            log.error("points of the history are damaged and left out", extra={"resolution": resolution, "ts": str(ts)})
        self.left_out += 1


def _name(resolution: int, ts: object) -> bytes:
    return f"{resolution} {ts}".encode()[:64]  # as long as the key of a checksum may be


def _is_possible(ts: object, body: bytes) -> bool:
    """Whether a point of an earlier version, which had no checksums, may be one."""
    try:
        parts = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    numbers = [number for part in parts.values() for number in (part.total, part.low, part.high, part.last or 0)]
    return isinstance(ts, int) and all(map(math.isfinite, numbers)) and all(part.count > 0 for part in parts.values())


class Recorder:
    """Stores seconds and rolls them up. For one thread."""

    def __init__(self, store: Checked) -> None:
        self._store = store
        self._waiting: deque[Point] = deque(maxlen=_KEPT_SECONDS)

    def add(self, ts_ms: int, numbers: dict[str, float]) -> None:
        """Store the numbers of the second that `ts_ms` lies in, and roll up what is complete before it.

        Raises `STORE_ERRORS`; the numbers are then stored by a later call.
        """
        second = ts_ms // 1000
        body = _encoder.encode({name: _Sum(number, 1, number, number, number) for name, number in numbers.items()})
        self._waiting.append(Point(1, second, body))
        fresh = {(point.resolution, point.ts): point for point in self._waiting}
        rolled = self._store.rolled()
        made: dict[int, int] = {}
        oldest: dict[int, int] = {}
        for finer, coarser in pairwise(RESOLUTIONS):
            complete, noted = second // coarser * coarser, rolled[coarser]
            done = complete if noted is None else noted
            if complete != noted:
                if complete > done:  # else the clock was ahead: from here on points are made again
                    self._roll_up(fresh, finer, coarser, done, complete)
                made[coarser] = complete
                for resolution in (finer, coarser):
                    # Not by this second alone, which a clock set forward for a moment would have named.
                    oldest[resolution] = min(second, done) - RETENTION_SECONDS[resolution]
        self._store.write(list(fresh.values()), made, oldest)
        self._waiting.clear()

    def _roll_up(self, fresh: dict[tuple[int, int], Point], finer: int, coarser: int, done: int, complete: int) -> None:
        """Add the coarser points from second `done` to `complete` to what is to be stored."""
        parts = dict(self._store.read(finer, done, complete, complete // finer))
        parts |= {ts: point.body for (resolution, ts), point in fresh.items() if resolution == finer}
        spans: dict[int, list[bytes]] = {}
        for ts, body in sorted(parts.items()):
            if done <= ts < complete:
                spans.setdefault(ts // coarser * coarser, []).append(body)
        for ts, bodies in spans.items():
            fresh[coarser, ts] = Point(coarser, ts, _join(bodies))


def query(store: Checked, start_ms: int | None, end_ms: int | None, resolution: int | None, now_ms: int) -> bytes:
    """The JSON answer with the points from `start_ms` to `end_ms`. Raises `HistoryError` or `STORE_ERRORS`.

    By default the last hour, in the finest resolution that makes at most 1000 points. The newest point of a coarse
    resolution tells of its span as far as that has come.
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
    first, behind = -(-start // 1000), end // 1000 + 1
    # The other way round a span that is rolled up in between would be in neither.
    unfinished = _unfinished(store, resolution, behind)
    found = dict(store.read(resolution, first, behind, MAX_POINTS + 1))
    rows = sorted(({ts: body for ts, body in unfinished.items() if ts >= first} | found).items())
    if len(rows) > MAX_POINTS:
        raise HistoryError(f"more than {MAX_POINTS} points: ask for a shorter span or a coarser resolution")
    parts = []
    for first in range(0, len(rows), _ENCODED_AT_ONCE):
        points = [_point(ts, body) for ts, body in rows[first : first + _ENCODED_AT_ONCE]]
        parts.append(_json.encode(points)[1:-1])
    return b'{"resolution":%d,"points":[%s]}' % (resolution, b",".join(parts))


def _unfinished(store: Checked, resolution: int, behind: int) -> dict[int, bytes]:
    """The points that are not rolled up yet, as far as their time has come: made from all finer ones."""
    rolled = {step: behind if ts is None else ts for step, ts in store.rolled().items()}
    since = rolled.get(resolution, 0)
    spans: dict[int, list[bytes]] = {}
    for finer in reversed(RESOLUTIONS[: RESOLUTIONS.index(resolution)]):
        for ts, body in store.read(finer, since, behind, MAX_POINTS):
            spans.setdefault(ts // resolution * resolution, []).append(body)
        since = max(since, rolled.get(finer, 0))
    return {ts: _join(bodies) for ts, bodies in spans.items()}


class History:
    """The history as the service uses it: a thread for writing, another for reading. Nothing of it stops a service."""

    def __init__(self, open_store: Callable[[], Points]) -> None:
        """`open_store` gives a store for each thread."""
        self._write_store, self._read_store = Checked(open_store()), Checked(open_store())
        self._recorder = Recorder(self._write_store)
        self._writer = ThreadPoolExecutor(1, "history-write")
        self._reader = ThreadPoolExecutor(1, "history-read")
        self._asked = 0
        self._failing = ""

    @property
    def left_out(self) -> int:
        """Points that were damaged when they were read."""
        return self._write_store.left_out + self._read_store.left_out

    @property
    def put_aside(self) -> int:
        """How often what was stored could be used no more, and was begun anew."""
        return self._write_store.put_aside

    async def open(self) -> None:
        """Look at what is stored: what can be used no more is put aside now, and not when somebody asks."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._write_store.rolled)
        except STORE_ERRORS as error:
            log.error("the history cannot be read", extra={"error": str(error)})

    async def add(self, ts_ms: int, numbers: dict[str, float]) -> None:
        """Store the numbers of a second; while the database is away the last ten minutes are kept for it."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._recorder.add, ts_ms, numbers)
        except STORE_ERRORS as error:
            if not self._failing:
                log.error("the history is not written", extra={"error": str(error)})
            self._failing = str(error)
        else:
            self._failing = ""

    async def query(self, start_ms: int | None, end_ms: int | None, resolution: int | None, now_ms: int) -> bytes:
        """See the function `query`. Raises `HistoryError`, or `HistoryUnavailable` under too many questions."""
        if self._asked >= MAX_QUESTIONS:
            raise HistoryUnavailable("too many questions about the history: ask again later")
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._reader, query, self._read_store, start_ms, end_ms, resolution, now_ms
            )
        except STORE_ERRORS as error:
            log.error("the history cannot be read", extra={"error": str(error)})
            raise HistoryUnavailable("the history cannot be read now: ask again later") from None
        finally:
            self._asked -= 1

    async def close(self) -> None:
        """Wait for what is under way, then close both connections."""
        for executor, store in ((self._writer, self._write_store), (self._reader, self._read_store)):
            await asyncio.get_running_loop().run_in_executor(executor, store.close)
            executor.shutdown()


def _join(bodies: Iterable[bytes]) -> bytes:
    """Spans that follow each other as one."""
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
                whole.last = part.last
    return _encoder.encode(joined)


def _point(ts: int, body: bytes) -> dict[str, float]:
    point: dict[str, float] = {"ts": ts * 1000}
    for name, part in _decoder.decode(body).items():
        if _LAST.fullmatch(name):
            point[name] = int(part.high if part.last is None else part.last)
            continue
        point[name] = part.total / part.count
        if _WITH_BOUNDS in name:
            point[f"{name}Min"], point[f"{name}Max"] = part.low, part.high
    return point
