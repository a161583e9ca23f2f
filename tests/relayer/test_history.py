"""History: averages that are exact over every resolution, and survive a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from millrace.relayer.history import History, HistoryError, flatten

START = 1_700_000_400  # divisible by 300, not by 3600


def fill(history: History, seconds: range) -> None:
    for second in seconds:
        history.add((START + second) * 1000 + 250, {"currentTps": float(second), "connectedPeers": 4})


def test_rollups_are_exact_across_a_restart(tmp_path: Path) -> None:
    """Averages, minima and maxima of coarser points are those of their seconds, restart or not."""
    history = History(tmp_path / "h.sqlite")
    fill(history, range(305))
    history.close()
    history = History(tmp_path / "h.sqlite")
    fill(history, range(305, 601))
    for resolution in (10, 60, 300):
        points = history.query(START * 1000, (START + 599) * 1000, resolution, 0)["points"]
        assert [point["ts"] for point in points] == [(START + at) * 1000 for at in range(0, 600, resolution)]
        for place, point in enumerate(points):
            first = place * resolution
            assert point["currentTps"] == first + (resolution - 1) / 2
            assert (point["currentTpsMin"], point["currentTpsMax"]) == (first, first + resolution - 1)
            assert point["connectedPeers"] == 4 and "connectedPeersMin" not in point
    history.close()


def test_retention(tmp_path: Path) -> None:
    """Seconds older than an hour are forgotten, their roll-ups are not."""
    history = History(tmp_path / "h.sqlite")
    fill(history, range(15))
    fill(history, range(4_000, 4_015))
    assert history.query(START * 1000, (START + 100) * 1000, 1, 0)["points"] == []
    assert len(history.query(START * 1000, (START + 100) * 1000, 10, 0)["points"]) == 2
    history.close()


def test_questions(tmp_path: Path) -> None:
    """The default resolution fits the span; impossible questions say how to mend them."""
    history = History(tmp_path / "h.sqlite")
    assert history.query(0, 600_000, None, 0)["resolution"] == 1
    assert history.query(None, None, None, 10**12)["resolution"] == 10
    assert history.query(0, 10**12, None, 0)["resolution"] == 3600
    for question in ((5, 4, None), (0, 10, 7)):
        with pytest.raises(HistoryError):
            history.query(*question, 0)
    history.close()


def test_flat_names() -> None:
    """Numbers keep their names, nested ones get their group's; nulls and texts are left out."""
    data: dict[str, Any] = {
        "network": {"currentTps": 1.5, "connectedPeers": None},
        "blocks": {"latestShard": {"nonce": 7, "accumulatedFees": "5"}, "blockTimeMsP50ByShard": {"0": 600}},
        "validators": {"onlineByShard": {"meta": 3}},
    }
    expected = {"currentTps": 1.5, "latestShardNonce": 7, "blockTimeMsP50Shard0": 600, "onlineMeta": 3}
    assert flatten(data) == expected


async def test_endpoint(world: Any) -> None:
    """GET /v1/network-stats/history answers with points, and 400 with an error body for bad questions."""
    service = await world.start(key_files=())
    service.history.add(1_000_000, {"currentTps": 2.0})
    async with aiohttp.ClientSession(world.http) as http:
        async with http.get("/v1/network-stats/history?from=999000&to=1001000&resolution=1") as response:
            body = await response.json()
        assert body["resolution"] == 1
        assert body["points"] == [{"ts": 1000000, "currentTps": 2.0, "currentTpsMin": 2.0, "currentTpsMax": 2.0}]
        for query in ("from=x", "resolution=7", "from=5&to=4", "from=1e400", "from=" + "9" * 400):
            async with http.get(f"/v1/network-stats/history?{query}") as response:
                assert response.status == 400 and (await response.json())["error"]
