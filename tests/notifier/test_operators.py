"""What operators see: /health, /ready, /metrics, and how a start can fail."""

from __future__ import annotations

import asyncio
import base64
import resource
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from millrace.chain import outport
from millrace.chain.shard import METACHAIN
from millrace.notifier import app
from millrace.notifier import operators as operators_module
from millrace.notifier.app import Notifier
from millrace.notifier.journal.dead_letters import DeadLetters
from millrace.notifier.journal.rows import JournalUnusable
from millrace.notifier.metrics import Metrics
from millrace.notifier.operators import Operators
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import websocket
from millrace.runtime.settings import Secret

from .helpers import event, notifier, peers, save_block
from .journal_files import log_files


async def get(running: Notifier, path: str, *, public: bool = False) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{running.http_port if public else running.metrics_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        json = answer.content_type == "application/json"
        return answer.status, await (answer.json() if json else answer.text())


async def test_health_and_ready(tmp_path: Path) -> None:
    """Health says that the process lives; ready that every known shard had a block lately, across a restart."""
    async with notifier(tmp_path, ready_max_age=30) as running, peers(running) as connect:
        status, body = await get(running, "/health")
        assert (status, body["status"]) == (200, "ok")
        status, body = await get(running, "/ready")
        assert (status, body["reasons"]) == (503, ["no block yet"])
        await (await connect.node()).save(save_block(1, 1))
        status, body = await get(running, "/ready")
        assert (status, list(body["secondsSinceBlock"]), body["nodes"]) == (200, ["1"], 1)
        running.journal.last_block_ms[1] -= 31_000
        running.journal.failing = "disk full"
        status, body = await get(running, "/ready")
        assert status == 503 and "no block of shard 1 for 31 s" in body["reasons"][0]
        assert "disk full" in body["reasons"][1]
    async with notifier(tmp_path) as running:
        assert (await get(running, "/ready"))[0] == 200


async def test_a_block_that_names_two_shards_speaks_for_none(tmp_path: Path) -> None:
    """It neither makes a shard known, of which nothing else would ever come, nor one look alive that is silent."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        for shard in (0, 2):
            await node.save(save_block(shard, 1))
        running.journal.last_block_ms[2] -= 31_000
        for nonce, shard in enumerate((77, 2), 2):
            block = save_block(0, nonce)
            block.shardID = block.blockData.shardID = shard
            await node.save(block)
        unknown = save_block(1, 1)
        unknown.blockData.headerType = "HeaderV9"
        await node.save(unknown)
        _, body = await get(running, "/ready")
        assert list(body["secondsSinceBlock"]) == ["0", "1", "2"], "of an unknown format is a block all the same"
        assert body["secondsSinceBlock"]["2"] >= 31


async def test_metrics_have_a_port_of_their_own(tmp_path: Path) -> None:
    """The public port says how the service is, and shows no metrics; the operators' port both."""
    async with notifier(tmp_path) as running:
        for public in (True, False):
            statuses = [(await get(running, path, public=public))[0] for path in ("/health", "/ready", "/metrics")]
            assert statuses == [200, 503, 404 if public else 200]


async def test_metrics(tmp_path: Path) -> None:
    """The counters tell what happened."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        node = await connect.node()
        block = save_block(0, 5, events=[event(b"\1" * 32, "x")])
        await node.save(block)
        await node.save(block)
        await node.save(save_block(0, 9))
        await node.save(save_block(0, 9, "fork"))
        await node.revert(block)
        await node.tell(outport.SAVE_BLOCK, b"\xff")
        await node.tell("Other", b"")
        await consumer.events(4)
        _, text = await get(running, "/metrics")
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        expected = {
            'notifier_node_messages_total{topic="SaveBlock"}': 5,
            'notifier_node_messages_total{topic="unknown"}': 1,
            'notifier_duplicates_total{topic="SaveBlock"}': 1,
            'notifier_events_total{shard="0",topic="SaveBlock"}': 3,
            'notifier_missing_blocks_total{shard="0"}': 3,
            'notifier_duplicate_nonces_total{shard="0"}': 1,
            'notifier_conflicts_total{shard="0"}': 1,
            'notifier_reverts_total{shard="0"}': 1,
            "notifier_dead_letters_total": 1,
            "notifier_unknown_topics_total": 1,
            "notifier_journal_head": running.journal.head,
            "notifier_journal_disk_bytes": sum(file.stat().st_size for file in log_files(tmp_path)),
            "notifier_hub_consumers": 1,
            "notifier_hub_frames_total": 4,
            "notifier_hub_lag_events": 0,
            "notifier_queued_bytes": 0,
        }
        assert {name: float(lines[name]) for name in expected} == expected


def test_shard_labels_are_bounded() -> None:
    """However many shards nodes claim, metrics have a few labels; the metachain has its name."""
    metrics = Metrics()
    labels = {metrics.shard(shard) for shard in range(1000)}
    assert len(labels) == 17 and "other" in labels
    assert metrics.shard(METACHAIN) == "meta"


async def test_unknown_path(tmp_path: Path) -> None:
    """Any other path on the WebSocket port is refused."""
    async with notifier(tmp_path) as running:
        with pytest.raises(websocket.CONNECT_ERRORS):
            await websocket.connect(f"ws://127.0.0.1:{running.port}/other", websocket.Session())


@pytest.mark.parametrize("field", ["port", "http_port", "metrics_port"])
async def test_taken_port(tmp_path: Path, field: str) -> None:
    """A taken port fails the start and leaves the journal free for the next one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ports = {"port": 0, "http_port": 0, "metrics_port": 0} | {field: listener.getsockname()[1]}
        with pytest.raises(OSError, match="address already in use"):
            await app.run(NotifierSettings(data_dir=tmp_path, **ports), asyncio.Event())
    async with notifier(tmp_path):
        pass


async def test_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """A data directory that is none fails the start with its name."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnusable, match="choose a data_dir that can be written"):
        await app.run(
            NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=tmp_path / "file"), asyncio.Event()
        )


async def test_stop_answers_what_was_sent(tmp_path: Path) -> None:
    """A stop while nodes send writes and answers what had arrived, tells consumers, and closes all with 1001."""
    stop = asyncio.Event()
    running = Notifier(NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=tmp_path))
    async with app.AsyncExitStack() as stack:
        await running.start(stack)
        async with peers(running) as connect:
            node, consumer = await connect.node(), await connect.consumer()
            await consumer.subscribe()
            counter = node.post(outport.SAVE_BLOCK, save_block(0, 1).SerializeToString())
            while not running.ingest.metrics.received_bytes._value.get():
                await asyncio.sleep(0)
            stop.set()
            await running.work(stop)
            await stack.aclose()
            await node.acked(counter)
            assert (await consumer.event()).topic == outport.SAVE_BLOCK
            await node.ended.wait()
            await consumer.ended.wait()
            assert (node.close_code, consumer.close_code) == (1001, 1001)


async def test_real_limit_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the operating system takes no more bytes, nodes wait unanswered; when it does again, nothing is lost."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        await consumer.subscribe()
        big = event(b"\1" * 32, "big", data=b"x" * 200_000)
        await node.save(save_block(0, 1, events=[big]))
        size = log_files(tmp_path)[-1].stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, hard))
        try:
            counter = node.post(outport.SAVE_BLOCK, save_block(0, 2, events=[big]).SerializeToString())
            while not running.journal.failing:
                await asyncio.sleep(0.005)
            assert node.inbox.empty()
            assert (await get(running, "/ready"))[0] == 503
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await node.acked(counter)
        await node.save(save_block(0, 3))
        received = await consumer.events(3)
        assert [m.counter - running.journal.oldest for m in received] == [0, 1, 2]
    async with notifier(tmp_path) as running:
        assert running.journal.head - running.journal.oldest == 2


async def test_a_dead_letter_is_looked_at_and_sent_again(tmp_path: Path) -> None:
    """What was buried is listed and shown; once it is understood it becomes an event, and otherwise a letter again."""
    token = "a token of operators"
    headers = {"Authorization": f"Bearer {token}"}
    settings = {"operators_token": Secret(token)}
    block = save_block(1, 1).SerializeToString()
    async with notifier(tmp_path, **settings) as running, peers(running) as connect:
        node = await connect.node()
        await node.tell(outport.SAVE_BLOCK, b"\xff nonsense")
        letters = DeadLetters(tmp_path, 1 << 30)
        letters.add(1, "node", outport.SAVE_BLOCK, 1, "as an earlier version did not know it", block)
        letters.keep()
        letters.close()
        base = f"http://127.0.0.1:{running.metrics_port}"
        async with aiohttp.ClientSession(base, headers=headers) as http:

            async def get(path: str) -> Any:
                async with http.get(path) as response:
                    return await response.json()

            async def replay(name: str, status: int = 200) -> Any:
                async with http.post("/control/replay-dead-letter", json={"id": name}) as response:
                    assert response.status == status
                    return await response.json()

            known, unknown = (await get("/v1/dead-letters"))["letters"]
            shown = await get(f"/v1/dead-letters/{unknown['id']}")
            assert base64.b64decode(shown["payload"]) == b"\xff nonsense" and shown["whole"]
            before = running.journal.head
            assert await replay(known["id"]) == {"before": before, "head": before + 1}
            assert await replay(known["id"]) == {"before": before + 1, "head": before + 1}, "it is known by now"
            assert await replay(unknown["id"]) == {"before": before + 1, "head": before + 1}
            newest = (await get("/v1/dead-letters"))["letters"][0]
            assert newest["remote"].startswith("replay of ") and newest["topic"] == outport.SAVE_BLOCK
            await replay("0-1", 404)
        async with aiohttp.ClientSession(base) as http, http.post("/control/replay-dead-letter", json={}) as response:
            assert response.status == 401


def test_a_silent_shard_is_silent_by_any_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the clock was set back a shard's age counts from the next look on: it is not young for an hour."""
    journal = SimpleNamespace(last_block_ms={0: 7_200_000})
    asked = cast(Operators, SimpleNamespace(_journal=journal))
    ages = []
    for now_ms in (7_201_000, 3_600_000, 3_660_000):
        monkeypatch.setattr(operators_module, "now_ms", lambda now_ms=now_ms: now_ms)
        ages.append(Operators._block_ages(asked)[0])
    assert ages == [1.0, 0.0, 60.0]
