"""Processes are started, awaited and ended; nothing outlives the one that started them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from millrace.system.plan import Plan, Ports, relayer_keys, wallet_in_shard
from millrace.system.processes import Processes, Service, ServiceDied


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
