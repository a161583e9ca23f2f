"""A start loads what nodes need, and all else once they are answered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
