"""Keeps the whole system running, on the documented ports or others, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millrace.system.demo import start
from millrace.system.plan import Plan, Ports
from millrace.system.processes import Processes, ServiceDied
from millrace.system.story import Story


async def main(*, data: Path, seed: int, profile: str, ports: Ports | None = None) -> int:
    """Run until Ctrl-C or SIGTERM (0), or until a service ends by itself or cannot start (1)."""
    console = Console(soft_wrap=not sys.stdout.isatty())
    try:
        with owned(data):
            return await _until_stopped(console, Plan(ports or Ports(), data, seed=seed, profile=profile))
    except FolderRefused as refused:
        console.print(f"[red]{data} {refused}[/red]; name another --data folder", highlight=False)
        return 1


class FolderRefused(Exception):
    """This data folder cannot be used, and why."""


@contextlib.contextmanager
def owned(data: Path) -> Iterator[None]:
    """Own the data folder, emptied of what services knew of an earlier chain: each start begins a new one.

    The relayer's keys stay. Raises `FolderRefused` when another process owns it, and for a folder with what somebody
    else keeps there: it may be a journal that must not be lost.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        if not (data / "lock").exists() and any(data.iterdir()):
            raise FolderRefused("holds what `millrace up` did not put there, and would be emptied")
        lock = (data / "lock").open("w")
    except OSError as error:
        raise FolderRefused(f"cannot be written: {error.strerror or error}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderRefused("is in use by another one that runs: stop it") from None
        for folder in ("notifier", "relayer", "relayer-leases"):
            shutil.rmtree(data / folder, ignore_errors=True)
        yield


async def _until_stopped(console: Console, plan: Plan) -> int:
    task = asyncio.ensure_future(_run(console, plan))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        console.print("stopped")
        return 0
    except ServiceDied as failure:
        console.print(f"[red]stopped:[/red] {failure}", highlight=False)
    return 1


async def _run(console: Console, plan: Plan) -> None:
    async with Processes(plan.data / "logs") as processes:
        await start(plan, processes, Story(console))
        console.print(_where(plan))
        if plan.ports != Ports():
            console.print("other commands look there, too, once their shell has read this:")
            for name, url in places(plan).items():
                console.print(f"  export {name}={url}", highlight=False, markup=False, soft_wrap=True)
        await processes.watch()


def places(plan: Plan) -> dict[str, str]:
    """The environment variables by which the other commands find these services."""
    ports = plan.ports
    return {
        "MILLRACE_AGGREGATOR_URL": f"http://127.0.0.1:{ports.aggregator}",
        "MILLRACE_RELAYER_URL": f"http://127.0.0.1:{ports.relayer_http}",
        "MILLRACE_RELAYER_WS_URL": plan.relayer_ws_url,
        "MILLRACE_RELAYER_OPERATORS_URL": f"http://127.0.0.1:{ports.relayer_metrics}",
        "MILLRACE_NOTIFIER_URL": f"http://127.0.0.1:{ports.notifier_http}",
        "MILLRACE_HUB_URL": plan.hub_url,
    }


def _where(plan: Plan) -> Table:
    ports = plan.ports
    table = Table("what", "where", title="Running; Ctrl-C stops everything")
    table.add_row("console", plan.console_url)
    table.add_row("aggregator", f"http://127.0.0.1:{ports.aggregator}/api/v1/quote")
    table.add_row("relayer", f"{plan.relayer_ws_url}   http://127.0.0.1:{ports.relayer_http}/v1/sign")
    table.add_row("notifier", f"{plan.hub_url}   http://127.0.0.1:{ports.notifier_http}")
    table.add_row("local chain", f"{plan.chain_url}/pools")
    metrics = (ports.aggregator_metrics, ports.relayer_metrics, ports.notifier_metrics, ports.console_metrics)
    table.add_row("metrics", "   ".join(f"http://127.0.0.1:{port}/metrics" for port in metrics))
    table.add_row("logs", str(plan.data / "logs"))
    return table
