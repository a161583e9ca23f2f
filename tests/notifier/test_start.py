"""A start loads what nodes need, and all else once they are answered."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from millrace.notifier import app
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import websocket

from .helpers import WAIT, peers, save_block

CODE = """
import asyncio, json, sys
from contextlib import AsyncExitStack
from pathlib import Path
from millrace import cli
from millrace.notifier.app import Notifier
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import websocket

seen = {}

async def main():
    running = Notifier(NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=Path(sys.argv[1])))
    listen = running._serve_websockets

    async def serve():
        server = await listen()
        seen["listening"] = sorted(sys.modules)
        return server

    running._serve_websockets = serve
    async with AsyncExitStack() as stack:
        await running.start(stack)
        seen["ready"] = sorted(sys.modules)

asyncio.run(main())
print(json.dumps(seen))
"""
LATE = ["aiohttp", "millrace.notifier.operators"]
NOT_AT_ALL = ["asyncpg", "aio_pika", "aiormq", "azure", "redis", "Crypto", "numpy", "uvloop"]


def test_modules_of_a_start(tmp_path: Path) -> None:
    """When the nodes' port opens, no web framework is loaded; libraries of brokers and servers not used never are."""
    done = subprocess.run([sys.executable, "-c", CODE, tmp_path], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert [name for name in (*LATE, *NOT_AT_ALL) if name in seen["listening"]] == []
    assert [name for name in LATE if name not in seen["ready"]] == []
    assert [name for name in NOT_AT_ALL if name in seen["ready"]] == []


@pytest.mark.parametrize("comes", [True, False])
async def test_the_first_node_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes: bool) -> None:
    """What nodes do not need is started once one was answered, or when none comes."""
    listening: asyncio.Future[app.Notifier] = asyncio.get_running_loop().create_future()
    others: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    class Watched(app.Notifier):
        async def listen(self, stack: AsyncExitStack) -> None:
            await super().listen(stack)
            listening.set_result(self)

        async def start_others(self, stack: AsyncExitStack) -> None:
            others.set_result(self.ingest.answered.is_set())
            await super().start_others(stack)

    monkeypatch.setattr(app, "Notifier", Watched)
    monkeypatch.setattr(app, "_FIRST_SECONDS", 2 * WAIT if comes else 0)
    stop = asyncio.Event()
    settings = NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=tmp_path)
    running = asyncio.create_task(app.run(settings, stop))
    notifier = await asyncio.wait_for(listening, WAIT)
    async with peers(notifier.port) as opened:
        if comes:
            assert not others.done()
            await (await opened.node()).save(save_block(0, 1))
        assert await asyncio.wait_for(others, WAIT) == comes
    stop.set()
    await asyncio.wait_for(running, WAIT)


async def test_nodes_in_server_mode_are_called_at_once(tmp_path: Path) -> None:
    """What nodes do not need waits for those that the notifier calls, too: they are called before it."""
    called = asyncio.Event()

    def node(_: websocket.Request) -> websocket.Session:
        called.set()
        return websocket.Session()

    server = await websocket.serve(node, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.port}"
    settings = NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=tmp_path, node_urls=(url,))
    async with AsyncExitStack() as stack:
        await app.Notifier(settings).listen(stack)
        await asyncio.wait_for(called.wait(), WAIT)
    await server.close()
