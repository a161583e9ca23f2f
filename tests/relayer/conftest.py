"""A whole relayer in the test's event loop, between a stand-in hub and a stand-in chain API."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest


def _shared(name: str, folder: str = "") -> Any:
    """Tests are imported by file, so their shared modules are made known by name here."""
    path = Path(__file__).parent / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"relayer_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


support = _shared("support")
later = _shared("later")
quiet = _shared("quiet")
damage = _shared("damage", "journal")

from millrace.relayer.app import Service  # noqa: E402
from millrace.runtime.process import wait_first  # noqa: E402


class World:
    """The relayer under test and its surroundings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub = support.FakeHub()
        self.api = support.FakeChainApi()
        self.service: Service | None = None
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.urls: dict[str, str] = {}

    async def start(self, **changes: Any) -> Service:
        """Start the relayer; surroundings are started the first time."""
        if not self.urls:
            self.urls = {
                "hub_url": f"ws://127.0.0.1:{await self.hub.start()}/hub/ws",
                "chain_api_url": await self.api.start(),
            }
        service = Service(support.settings(self.folder, **(self.urls | changes)))
        self.service = service
        await service.start()
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(wait_first(self._stop, *service.endless()))
        if service.settings.hub_url and self.hub.server is not None:
            await asyncio.wait_for(self.hub.subscribed.wait(), 10)
        return service

    async def stop(self) -> None:
        """Stop the relayer, not its surroundings."""
        service, self.service = self.service, None
        self.hub.subscribed.clear()
        if self._running is not None:
            self._stop.set()
            await self._running
            self._running = None
        if service is not None:
            await service.stop()

    @property
    def ws(self) -> str:
        assert self.service is not None
        return f"ws://127.0.0.1:{self.service.port}/ws"

    @property
    def http(self) -> str:
        assert self.service is not None
        return f"http://127.0.0.1:{self.service.http_port}"

    @property
    def operators(self) -> str:
        assert self.service is not None
        return f"http://127.0.0.1:{self.service.metrics_port}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Surroundings of a relayer; tests start it with their settings."""
    made = World(tmp_path)
    try:
        yield made
    finally:
        await made.stop()
        await made.hub.stop()
        await made.api.stop()
