"""History: averages that are exact over every resolution, survive a restart, and are asked off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from millrace.relayer.journal.replaceable import opened
from millrace.relayer.statistics import history
from millrace.relayer.statistics.history import (
    MAX_POINTS,
    MAX_QUESTIONS,
    Checked,
    History,
    HistoryError,
    Recorder,
    flatten,
    query,
)
from millrace.relayer.statistics.history_store import Point, Points, PostgresPoints, SqlitePoints
from millrace.runtime.postgres import Unavailable
from millrace.runtime.settings import Secret
from servers.postgres import Postgres

START = 1_700_000_400  # divisible by 300, not by 3600


class Place:
    """Where one history is kept, of either kind."""

    def __init__(self, folder: Path, postgres: Postgres | None) -> None:
        self._folder = folder
        self._postgres = postgres
        self._opened: list[Points] = []

    def open(self) -> Points:
        store: Points
        if self._postgres is None:
            store = SqlitePoints(self._folder / "h.sqlite")
        else:
            store = PostgresPoints(Secret(self._postgres.url), self._folder.name)
        self._opened.append(store)
        return store

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for a history; every rule holds in both."""
    made = Place(tmp_path, request.getfixturevalue("postgres") if request.param == "postgresql" else None)
    yield made
    made.close()


def fill(store: Points, seconds: range) -> None:
    recorder = Recorder(Checked(store))
    for second in seconds:
        recorder.add((START + second) * 1000 + 250, {"currentTps": float(second), "connectedPeers": 4})


def ask(store: Points, start: int | None, end: int | None, resolution: int | None, now_ms: int = 0) -> Any:
    return msgspec.json.decode(query(Checked(store), start, end, resolution, now_ms))


def test_row_44_a_clock_that_was_ahead(place: Place) -> None:
    """After a moment in the future, or a step back, points are rolled up, found and forgotten as before."""
    store = place.open()
    for second in (0, 10**9, *range(1, 25), 18, 19, *range(20, 31)):
        fill(store, range(second, second + 1))
    points = ask(store, START * 1000, (START + 29) * 1000, 10)["points"]
    assert [(point["ts"] // 1000 - START, point["currentTps"]) for point in points] == [
        (0, 4.5),
        (10, 14.5),
        (20, 24.5),
    ]
    fill(store, range(7200, 7221))
    assert store.read(1, START, START + 100, 100) == [], "seconds are kept for an hour"


def test_names_and_places_in_the_chain_are_not_averaged(place: Place) -> None:
    """Of shards, heights, rounds and times a coarser point tells the last, also across a restart and half a span."""

    def fill_blocks(store: Points, seconds: range) -> None:
        recorder = Recorder(Checked(store))
        for second in seconds:
            place_in_chain = {"latestShardShardId": second % 3, "latestShardNonce": 7 * second, "latestMetaEpoch": 1}
            recorder.add((START + second) * 1000, {**place_in_chain, "latestShardTxCount": second})

    fill_blocks(place.open(), range(47))
    place.close()
    store = place.open()
    fill_blocks(store, range(47, 125))
    for resolution, ends in ((1, range(125)), (10, [*range(9, 120, 10), 124]), (60, [59, 119, 124])):
        points = ask(store, START * 1000, (START + 124) * 1000, resolution)["points"]
        assert [(point["latestShardShardId"], point["latestShardNonce"]) for point in points] == [
            (end % 3, 7 * end) for end in ends
        ]
        assert {type(point["latestShardNonce"]) for point in points} == {int}
        assert points[0]["latestShardTxCount"] == (resolution - 1) / 2, "counts are still averaged"


def test_a_point_of_an_earlier_version_tells_its_highest(place: Place) -> None:
    """What was stored without a last value has the highest in its place, which of a height is the same."""
    store = place.open()
    old = msgspec.msgpack.encode({"latestShardNonce": [21.0, 3, 6.0, 8.0]})
    store.write([Point(10, START, old)], {10: START + 10}, {})
    (point,) = ask(store, START * 1000, (START + 9) * 1000, 10)["points"]
    assert point["latestShardNonce"] == 8


def test_rollups_are_exact_across_a_restart(place: Place) -> None:
    """Averages, minima and maxima of coarser points are those of their seconds, restart or not."""
    fill(place.open(), range(305))
    place.close()
    store = place.open()
    fill(store, range(305, 601))
    for resolution in (10, 60, 300):
        points = ask(store, START * 1000, (START + 599) * 1000, resolution)["points"]
        assert [point["ts"] for point in points] == [(START + at) * 1000 for at in range(0, 600, resolution)]
        for spot, point in enumerate(points):
            first = spot * resolution
            assert point["currentTps"] == first + (resolution - 1) / 2
            assert (point["currentTpsMin"], point["currentTpsMax"]) == (first, first + resolution - 1)
            assert point["connectedPeers"] == 4 and "connectedPeersMin" not in point


@pytest.mark.parametrize("seconds", [1, 9, 10, 61, 299, 301, 1_231])
def test_spans_that_are_not_over(place: Place, seconds: int) -> None:
    """The newest point of every resolution is of what has come of its span: no second is missing, none counts twice."""
    store = place.open()
    fill(store, range(seconds))
    for resolution in (10, 60, 300, 3600):
        span = (START + seconds - 1) // resolution * resolution
        newest = ask(store, (START - 3600) * 1000, (START + seconds) * 1000, resolution)["points"][-1]
        assert newest["ts"] == span * 1000
        first = max(0, span - START)
        assert newest["currentTps"] == pytest.approx((first + seconds - 1) / 2, abs=1e-9)
        assert (newest["currentTpsMin"], newest["currentTpsMax"]) == (first, seconds - 1)


def test_retention(place: Place) -> None:
    """Seconds older than an hour are forgotten, their roll-ups are not."""
    store = place.open()
    fill(store, range(15))
    fill(store, range(4_000, 4_015))
    assert ask(store, START * 1000, (START + 100) * 1000, 1)["points"] == []
    assert len(ask(store, START * 1000, (START + 100) * 1000, 10)["points"]) == 2


def test_questions(place: Place) -> None:
    """The default resolution fits the span; impossible questions say how to mend them."""
    store = place.open()
    assert ask(store, 0, 600_000, None) == {"resolution": 1, "points": []}
    assert ask(store, None, None, None, 10**12)["resolution"] == 10
    assert [ask(store, 0, end, None)["resolution"] for end in (1_000_999, 1_001_000)] == [1, 10]
    assert ask(store, 0, 10**12, None)["resolution"] == 3600
    fill(store, range(2))
    moment = (START + 1) * 1000
    assert [point["ts"] for point in ask(store, moment, moment, 1)["points"]] == [moment]
    assert ask(store, moment + 1, moment + 1, 1)["points"] == []
    assert ask(store, moment, moment, 10)["points"] == [], "its span began before"
    assert ask(store, 0, 10**15 - 1, None)["resolution"] == 3600
    for question in ((5, 4, None), (0, 10, 7)):
        with pytest.raises(HistoryError):
            query(Checked(store), *question, 0)


def test_answers_are_bounded(place: Place) -> None:
    """An answer has at most 2000 points; a question for more is told to ask for less."""
    store = place.open()
    body = msgspec.msgpack.encode({"currentTps": [1.0, 1, 1.0, 1.0]})
    store.write([Point(1, second, body) for second in range(MAX_POINTS + 1)], {}, {})
    assert len(ask(store, 0, (MAX_POINTS - 1) * 1000, 1)["points"]) == MAX_POINTS == 2000
    with pytest.raises(HistoryError, match="more than 2000 points: ask for a shorter span or a coarser resolution"):
        query(Checked(store), 0, MAX_POINTS * 1000, 1, 0)


class Failing:
    """A store that counts what it is given, and may refuse it."""

    def __init__(self, store: Points) -> None:
        self._store = store
        self.read, self.rolled, self.close = store.read, store.rolled, store.close
        self.put_aside = 0
        self.refuses = False
        self.written: list[list[int]] = []

    def write(self, points: Sequence[Point], rolled: Mapping[int, int], oldest: Mapping[int, int]) -> None:
        self.written.append([point.ts - START for point in points if point.resolution == 1])
        if self.refuses:
            raise OSError("away")
        self._store.write(points, rolled, oldest)


def test_a_second_is_written_once(tmp_path: Path) -> None:
    """What the store took is not given to it again; what it did not take is, for ten minutes."""
    store = Failing(SqlitePoints(tmp_path / "h.sqlite"))
    recorder = Recorder(Checked(store))
    for second in range(3):
        recorder.add((START + second) * 1000, {"currentTps": 1.0})
    assert store.written == [[0], [1], [2]]
    store.refuses = True
    for second in range(3, 903):
        with pytest.raises(OSError, match="away"):
            recorder.add((START + second) * 1000, {"currentTps": 1.0})
    assert store.written[-1] == list(range(303, 903))
    store.refuses = False
    recorder.add((START + 903) * 1000, {"currentTps": 1.0})
    recorder.add((START + 904) * 1000, {"currentTps": 1.0})
    assert store.written[-2:] == [list(range(304, 904)), [904]]
    assert len(ask(store, START * 1000, (START + 904) * 1000, 1)["points"]) == 3 + 601
    store.close()


def test_bounds_are_of_the_whole_span(tmp_path: Path) -> None:
    """Averages and bounds of a span do not depend on where in it the highest and the lowest second were."""
    store = SqlitePoints(tmp_path / "h.sqlite")
    recorder = Recorder(Checked(store))
    numbers = [5.0, 9.0, 1.0, 7.0, 3.0, 3.0, 8.0, 2.0, 6.0, 6.0]
    for second, number in enumerate([*numbers, 0.0]):
        recorder.add((START + second) * 1000, {"currentTps": number})
    for resolution, values in ((10, numbers), (60, [*numbers, 0.0])):
        (point,) = ask(store, START * 1000, (START + len(values) - 1) * 1000, resolution)["points"]
        assert point["currentTps"] == pytest.approx(sum(values) / len(values), abs=1e-12)
        assert (point["currentTpsMin"], point["currentTpsMax"]) == (min(values), max(values))
    store.close()


async def test_questions_and_failures_one_after_the_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A question that was answered takes no room from later ones; a store that fails is a line of the log each time."""
    stores: list[Failing] = []

    def open_store() -> Points:
        stores.append(Failing(SqlitePoints(tmp_path / "h.sqlite")))
        return stores[-1]

    kept = History(open_store)
    for refuses in (False, True, True, False, True):
        stores[0].refuses = refuses
        await kept.add(START * 1000, {"currentTps": 1.0})
    assert [record.message for record in caplog.records] == ["the history is not written"] * 2
    for _ in range(3 * MAX_QUESTIONS):
        body = await kept.query(START * 1000, START * 1000, 1, START * 1000)
        assert len(msgspec.json.decode(body)["points"]) == 1
        with pytest.raises(HistoryError):
            await kept.query(5, 4, 1, 0)
    await kept.close()


def test_database_away(postgres: Postgres, tmp_path: Path) -> None:
    """Seconds that the server did not take are stored when it is back, and rolled up as if nothing had been."""
    store = PostgresPoints(Secret(postgres.url), tmp_path.name)
    try:
        recorder = Recorder(Checked(store))
        for second in range(40):
            if second == 15:
                postgres.kill()
            if second == 25:
                postgres.start()
            try:
                recorder.add((START + second) * 1000, {"currentTps": float(second)})
            except Unavailable:
                assert 15 <= second <= 25
            else:
                assert second < 15 or second >= 25
        postgres.ensure()
        points = ask(store, START * 1000, (START + 29) * 1000, 10)["points"]
        assert [point["currentTps"] for point in points] == [4.5, 14.5, 24.5]
        assert len(ask(store, START * 1000, (START + 39) * 1000, 1)["points"]) == 40
    finally:
        store.close()
        postgres.ensure()


@pytest.mark.parametrize("sealed", [True, False], ids=["this version's", "an earlier version's"])
def test_row_53_a_point_with_a_bit_turned_over(place: Place, sealed: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It is left out of answers and of what is rolled up, and told once; of an earlier version's only rubbish shows."""
    store = place.open()
    fill(store, range(25))
    (ts, body) = store.read(1, START + 12, START + 13, 1)[0]
    if not sealed:
        body = opened(body, b"1 %d" % ts) or b""
    for at in range(len(body)):
        changed = body[:at] + bytes([body[at] ^ 1 << at % 8]) + body[at + 1 :]
        store.write([Point(1, ts, changed)], {}, {})
        points = ask(store, START * 1000, (START + 24) * 1000, 1)["points"]
        assert not sealed or [point["currentTps"] for point in points] == [*range(12), *range(13, 25)]
    store.write([Point(1, ts, b"\xc3")], {10: START + 10}, {})
    checked = Checked(store)
    Recorder(checked).add((START + 25) * 1000, {"currentTps": 25.0})
    assert checked.left_out == 1 and "damaged and left out" in caplog.text
    assert ask(store, (START + 10) * 1000, (START + 19) * 1000, 10)["points"][0]["currentTps"] == (145 - 12) / 9


def test_row_53_a_point_under_another_time(place: Place) -> None:
    """A whole point that is found under a time or a resolution that is not its own is left out."""
    store = place.open()
    fill(store, range(3))
    (_, body) = store.read(1, START, START + 1, 1)[0]
    store.write([Point(1, START + 7, body), Point(3600, START // 3600 * 3600, body)], {}, {})
    assert len(ask(store, START * 1000, (START + 9) * 1000, 1)["points"]) == 3
    assert ask(store, START * 1000 - 3_600_000, START * 1000, 3600)["points"][0]["currentTps"] == 0.0


@pytest.mark.parametrize(
    "damaged", [{10: START + 10 + 2**20}, {10: START + 10 - 2**30}, {11: START, 10: None}, {10: "x"}]
)
def test_row_53_how_far_it_is_rolled_up_is_damaged(tmp_path: Path, damaged: dict[int, Any]) -> None:
    """Points go on being made, from then on; none that is there is made again from a part of its seconds."""
    store = SqlitePoints(tmp_path / "h.sqlite")
    fill(store, range(31))
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "h.sqlite")) as connection, connection:
        connection.execute("DELETE FROM points WHERE resolution = 1 AND ts < ?", (START + 5,))
        connection.execute("DELETE FROM rolled WHERE resolution = 10")
        for resolution, ts in damaged.items():
            if ts is not None:
                connection.execute("INSERT INTO rolled VALUES (?, ?)", (resolution, ts))
    assert ask(store, START * 1000, (START + 40) * 1000, 10)["points"][0]["currentTps"] == 4.5
    fill(store, range(31, 51))
    points = ask(store, START * 1000, (START + 49) * 1000, 10)["points"]
    assert points[0]["currentTps"] == 4.5 and points[-1]["currentTps"] == 44.5
    store.close()


def damage_file(file: Path, what: str) -> None:
    """Each way to damage it."""
    match what:
        case "head":
            file.write_bytes(b"\xff" + file.read_bytes()[1:])
        case "rubbish":
            file.write_bytes(b"rubbish" * 1000)
        case "empty":
            file.write_bytes(b"")
        case "folder":
            file.unlink()
            file.mkdir()
        case "folder for its log":
            Path(f"{file}-wal").mkdir()
        case _:
            data, old = file.read_bytes(), b"points (resolution" if what == "table" else b"ts INTEGER, body"
            assert old in data
            file.write_bytes(data.replace(old, bytes([old[0] ^ 1]) + old[1:]))


def asides(folder: Path) -> set[str]:
    """What was put aside, folders among it out of the way."""
    found = [path for path in folder.iterdir() if ".damaged" in path.name]
    for path in found:
        if path.is_dir():
            path.rmdir()
    return {path.name for path in found}


@pytest.mark.parametrize("what", ["head", "rubbish", "empty", "folder", "folder for its log", "table", "column"])
async def test_row_53_a_file_that_is_damaged(tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is put aside with a word in the log, and the history begins anew; what was put aside before gives way."""
    file = tmp_path / "h.sqlite"
    for _ in range(2):
        file.unlink(missing_ok=True)
        store = SqlitePoints(file)
        fill(store, range(3))
        store.close()
        damage_file(file, what)
        store = SqlitePoints(file)
        kept = History(lambda store=store: store)
        for second in range(5, 8):
            await kept.add((START + second) * 1000, {"currentTps": 1.0})
        answer = msgspec.json.decode(await kept.query(START * 1000, (START + 9) * 1000, 1, 0))
        assert len(answer["points"]) >= 3
        assert kept.put_aside == (what != "empty"), caplog.text
        await kept.close()
        if kept.put_aside:
            assert "damaged and begun anew" in caplog.text
            assert asides(tmp_path) == {
                f"h.sqlite.damaged{'-wal' * (what == 'folder for its log')}",
                "h.sqlite.damaged",
            }


def test_flat_names() -> None:
    """Numbers keep their names, nested ones get their group's; nulls and texts are left out."""
    data: dict[str, Any] = {
        "network": {"currentTps": 1.5, "connectedPeers": None},
        "blocks": {"latestShard": {"nonce": 7, "accumulatedFees": "5"}, "blockTimeMsP50ByShard": {"0": 600}},
        "validators": {"onlineByShard": {"meta": 3}},
    }
    expected = {"currentTps": 1.5, "latestShardNonce": 7, "blockTimeMsP50Shard0": 600, "onlineMeta": 3}
    assert flatten(data) == expected


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_endpoint(world: Any, kind: str, request: pytest.FixtureRequest) -> None:
    """GET /v1/network-stats/history answers with points, and 400 with an error body for bad questions."""
    settings = {}
    if kind == "postgresql":
        settings["history_url"] = Secret(request.getfixturevalue("postgres").url)
    service = await world.start(key_files=(), **settings)
    await service.history.add(1_000_000, {"currentTps": 2.0})
    async with aiohttp.ClientSession(world.http) as http:
        async with http.get("/v1/network-stats/history?from=999000&to=1001000&resolution=1") as response:
            assert response.content_type == "application/json"
            body = await response.json()
        assert body["resolution"] == 1
        assert body["points"] == [{"ts": 1000000, "currentTps": 2.0, "currentTpsMin": 2.0, "currentTpsMax": 2.0}]
        for query in ("from=x", "resolution=7", "from=5&to=4", "from=1e400", "from=" + "9" * 400):
            async with http.get(f"/v1/network-stats/history?{query}") as response:
                assert response.status == 400 and (await response.json())["error"]


async def test_slow_answers_hold_up_nobody(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While questions wait for a slow database the service goes on; beyond eight of them the answer is 503."""
    service = await world.start(key_files=())
    go_on = threading.Event()

    def slow(*arguments: Any) -> bytes:
        assert go_on.wait(20)
        return query(*arguments)

    monkeypatch.setattr(history, "query", slow)
    async with aiohttp.ClientSession(world.http) as http:

        async def status(path: str) -> int:
            async with http.get(path) as response:
                await response.read()
                return response.status

        try:
            waiting = [asyncio.create_task(status("/v1/network-stats/history")) for _ in range(MAX_QUESTIONS)]
            while service.history._asked < MAX_QUESTIONS:
                await asyncio.sleep(0)
            assert await status("/v1/network-stats/history") == 503
            assert await status("/health") == 200
            await service.history.add(1_000_000, {"currentTps": 2.0})
        finally:
            go_on.set()
        assert await asyncio.gather(*waiting) == [200] * MAX_QUESTIONS
