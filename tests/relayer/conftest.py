"""A whole relayer in the test's event loop, between a stand-in hub and a stand-in chain API."""

from __future__ import annotations

import asyncio
import importlib.util
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
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
edges = _shared("edges")
damage = _shared("damage", "journal")

from millrace.relayer.app import Service  # noqa: E402
from millrace.runtime.settings import Secret  # noqa: E402
from servers.postgres import Postgres  # noqa: E402


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
        self._running = asyncio.create_task(service.run(self._stop))
        if service.settings.hub_url and self.hub.server is not None:
            async with asyncio.timeout(10):
                while not service.hub.connected:
                    await asyncio.sleep(0.005)
        return service

    async def stop(self) -> None:
        """Stop the relayer, not its surroundings."""
        service, self.service = self.service, None
        if self._running is not None:
            self._stop.set()
            await self._running
            self._running = None
        if service is not None:
            await service.stop()

    @property
    def gate(self) -> Service:
        """Who holds the clients' connections."""
        assert self.service is not None
        return self.service

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


class EdgeWorld(World):
    """The same, with an edge before the relayer under test: clients come to the edge."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.front = Front(folder / "edge")

    async def start(self, **changes: Any) -> Service:
        service = await super().start(**({"edges": ("127.0.0.0/8",)} | changes))
        told = {name: value for name, value in changes.items() if not name.startswith(KEPT_TO_THE_RELAYER)}
        hub = {} if service.settings.hub_url and self.hub.server is not None else {"hub_url": ""}
        await self.front.start([f"ws://127.0.0.1:{service.port}"], **(self.urls | told | hub))
        async with asyncio.timeout(10):
            while service.settings.hub_url and self.hub.server is not None and len(self.hub.links) < 2:
                await asyncio.sleep(0.01)
        return service

    async def stop(self) -> None:
        await self.front.stop()
        await super().stop()

    @property
    def gate(self) -> Service:
        assert self.front.service is not None
        return self.front.service

    @property
    def ws(self) -> str:
        return self.front.ws

    @property
    def http(self) -> str:
        return self.front.http


class SharingWorld(World):
    """The same, with its claims on PostgreSQL: the only one of those who share."""

    def __init__(self, folder: Path, server: Postgres) -> None:
        super().__init__(folder)
        name = f"claims_{secrets.token_hex(8)}"
        url = Secret(server.url)
        self._ours = {"claims_url": url, "claims_schema": name, "lease_schema": f"{name}_leases", "claims_seats": 1}

    async def start(self, **changes: Any) -> Service:
        return await super().start(**(self._ours | changes))


KEPT_TO_THE_RELAYER = "key_", "data_dir", "lease_", "policy_", "mark_path", "edges"


class Front:
    """An edge in the test's event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service: Service | None = None
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def start(self, forward_to: list[str], up: int | None = None, **changes: Any) -> Service:
        """Start it before relayers at these addresses, and wait until so many are there: all, unless it is said."""
        ours = {"key_files": (), "key_env": (), "forward_to": tuple(forward_to), "hub_url": "", "chain_api_url": ""}
        service = self.service = Service(support.settings(self.folder, **(ours | changes)))
        await service.start()
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(service.run(self._stop))
        await self.connected(len(forward_to) if up is None else up)
        return service

    async def connected(self, count: int) -> None:
        """Wait until so many relayers are there."""
        assert self.service is not None and self.service.signers is not None
        async with asyncio.timeout(10):
            while self.service.signers.up != count:
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Stop it."""
        service, self.service = self.service, None
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module that names `FRONTS` runs the tests of its `world` before each: a relayer, an edge, one that shares."""
    fronts = getattr(metafunc.module, "FRONTS", ())
    if fronts and "world" in metafunc.fixturenames:
        metafunc.parametrize("world", fronts, indirect=True)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for each module, which its tests may kill; what they keep there has schemas of its own."""
    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Surroundings of a relayer; tests start it with their settings."""
    front = getattr(request, "param", "relayer")
    if front == "sharing":
        made: World = SharingWorld(tmp_path, request.getfixturevalue("postgres"))
    else:
        made = EdgeWorld(tmp_path) if front == "edge" else World(tmp_path)
    try:
        yield made
    finally:
        await made.stop()
        await made.hub.stop()
        await made.api.stop()
