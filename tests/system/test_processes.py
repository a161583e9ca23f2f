"""Processes are started, awaited and ended; nothing outlives the one that started them."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rich.console import Console

from millrace.system.demo import start
from millrace.system.plan import Plan, Ports, relayer_keys, services, wallet_in_shard
from millrace.system.processes import Processes, Service, ServiceDied
from millrace.system.story import Story


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_service_runs_and_is_ended(tmp_path: Path) -> None:
    """A started service answers on its health URL; after the context its process is gone."""
    ports = Ports.free()
    service = Service(
        "notifier",
        f"http://127.0.0.1:{ports.notifier_http}/health",
        {
            "port": ports.notifier,
            "http_port": ports.notifier_http,
            "metrics_port": 0,
            "data_dir": tmp_path / "notifier",
        },
    )
    async with Processes(tmp_path / "logs") as processes:
        await processes.start(service)
        await processes.wait_ready(service, 30)
        pid = processes.pid("notifier")
        assert alive(pid)
    assert not alive(pid)


async def test_a_service_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    """A service that ends at once raises ServiceDied with the reason from its log."""
    service = Service("notifier", "http://127.0.0.1:1/health", {"no_such_setting": 1})
    async with Processes(tmp_path / "logs") as processes:
        await processes.start(service)
        with pytest.raises(ServiceDied, match="unknown setting 'no_such_setting'"):
            await processes.wait_ready(service, 30)


async def test_a_stranger_on_its_port_is_not_believed(tmp_path: Path) -> None:
    """A port that somebody else has, who answers 200 for health: the service that could not have it is reported."""

    async def healthy(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    stranger = web.Application()
    stranger.router.add_get("/health", healthy)
    async with TestServer(stranger) as server:
        plan = Plan(replace(Ports.free(), notifier_http=server.port), tmp_path)
        assert plan.ports.taken() == {"notifier_http": server.port}
        (service,) = (service for service in services(plan) if service.name == "notifier")
        async with Processes(tmp_path / "logs") as processes:
            await processes.start(service)
            with pytest.raises(ServiceDied, match=r"notifier ended with exit code 1[\s\S]*in use"):
                await processes.wait_ready(service, 30)


async def test_ports_in_use_are_named_before_anything_starts(tmp_path: Path) -> None:
    """The whole system is not begun where a port is taken; the text names it and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan = Plan(replace(Ports.free(), console=taken.getsockname()[1]), tmp_path)
        async with Processes(tmp_path / "logs") as processes:
            with pytest.raises(ServiceDied, match=r"\(console\).*--port console=NUMBER"):
                await start(plan, processes, Story(Console(quiet=True)))
            assert list((tmp_path / "logs").iterdir()) == []


async def test_a_crash_is_noticed(tmp_path: Path) -> None:
    """While the system runs, the end of any process is raised by the watcher."""
    ports = Ports.free()
    service = Service(
        "notifier",
        f"http://127.0.0.1:{ports.notifier_http}/health",
        {
            "port": ports.notifier,
            "http_port": ports.notifier_http,
            "metrics_port": 0,
            "data_dir": tmp_path / "notifier",
        },
    )
    async with Processes(tmp_path / "logs") as processes:
        await processes.start(service)
        await processes.wait_ready(service, 30)
        watcher = asyncio.ensure_future(processes.watch())
        os.kill(processes.pid("notifier"), 9)
        with pytest.raises(ServiceDied, match="notifier ended with exit code -9"):
            await asyncio.wait_for(watcher, 10)


def test_relayer_keys_live_in_their_shards(tmp_path: Path) -> None:
    """There is one key per shard, in owner-only files, and the same keys come back the next time."""
    plan = Plan(Ports(), tmp_path)
    keys = relayer_keys(plan)
    assert [plan.network.shard_of(key.public) for key in keys.values()] == list(keys) == [0, 1, 2]
    for file in plan.key_directory.iterdir():
        assert file.stat().st_mode & 0o077 == 0
    assert [key.public for key in relayer_keys(plan).values()] == [key.public for key in keys.values()]
    assert plan.network.shard_of(wallet_in_shard(1, plan.network).public) == 1
