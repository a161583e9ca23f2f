"""A relayer process on a core of its own, and what the kernel says of a process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec

from millrace.relayer.journal import identity
from millrace.system.ports import free_ports

_libc = ctypes.CDLL(None)
SERVICE_CORE, CLIENT_CORE = 0, max(os.sched_getaffinity(0))


class Relayer(NamedTuple):
    """Where a running relayer is reached."""

    port: int
    http_port: int
    metrics_port: int
    pid: int

    async def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{self.metrics_port}/metrics") as response:
                lines = (await response.text()).splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


@contextlib.asynccontextmanager
async def relayer(folder: Path, **values: object) -> AsyncIterator[Relayer]:
    """A relayer on `SERVICE_CORE`, its data below `folder`, with these settings; yielded when it is ready."""
    port, http_port, metrics_port = free_ports(3)
    if not (folder / "data" / identity.FILE).exists():
        identity.make(folder / "data")
    settings = {
        "port": port, "http_port": http_port, "metrics_port": metrics_port,
        "hub_url": "", "chain_api_url": "", "gossip": "false",
        "data_dir": folder / "data", "lease_dir": folder / "leases", "max_connections": 20_000,
        "max_http_connections": 1_000,  # the files of a machine that allows 20,000 are for WebSockets
    } | values  # fmt: skip
    arguments = [item for name, value in settings.items() for item in ("--set", f"{name}={_text(value)}")]
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", str(SERVICE_CORE),
        sys.executable, "-m", "millrace", "relayer", "--log-level", "error", *arguments,
    )  # fmt: skip
    try:
        await _ready(process, http_port)
        yield Relayer(port, http_port, metrics_port, process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _ready(process: asyncio.subprocess.Process, port: int) -> None:
    async with aiohttp.ClientSession() as session:
        while process.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/ready") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)
    raise SystemExit("the relayer did not start")


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else str(value)


def allow_files(count: int) -> None:
    """Let this process and its children have as many files open, if the system allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
            return
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, by its own clock: `/proc` counts in hundredths of a second."""
    clock = ctypes.c_int()
    if _libc.clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessLookupError(f"there is no process {pid}")
    return time.clock_gettime(clock.value)


def cpu_seconds_of_all(pid: int) -> float:
    """The same of a process and its children (of the relayer: signing and gossip process)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(cpu_seconds(int(child)) for child in children)


def resident(pid: int) -> int:
    """Bytes of memory a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """Descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
