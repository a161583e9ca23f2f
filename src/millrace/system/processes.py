"""Starts the services as processes, waits until each one serves, and ends all of them.

No process outlives this one: children ask the kernel for SIGTERM when their parent ends, and a normal stop
sends SIGTERM in reverse order of start, then SIGKILL to whoever is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
_STOP_SECONDS = 10.0
_TAIL_LINES = 15


class ServiceDied(Exception):
    """A service ended before or while it was needed; the text holds the end of its log."""


@dataclass(frozen=True)
class Service:
    """One process to start: `millrace <name>` with its settings."""

    name: str
    health_url: str
    """Answers 200 as soon as the service serves."""
    settings: Mapping[str, object] = field(default_factory=dict)


class Processes:
    """The running services. Use it as an async context manager: leaving it ends every process."""

    def __init__(self, log_directory: Path) -> None:
        self._log_directory = log_directory
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._unread: dict[str, int] = {}
        """Where in each log lines begin that were not read yet."""
        self._said_ready: set[str] = set()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Processes:
        self._log_directory.mkdir(parents=True, exist_ok=True)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0))
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.stop_all()
        finally:
            if self._session is not None:
                await self._session.close()

    def log_file(self, name: str) -> Path:
        """Where the output of the service `name` goes."""
        return self._log_directory / f"{name}.log"

    def pid(self, name: str) -> int:
        """Process id of a running service."""
        return self._running[name].pid

    async def start(self, service: Service) -> None:
        """Start one process and return at once; `wait_ready` tells when it serves."""
        arguments = [
            argument for name, value in service.settings.items() for argument in ("--set", f"{name}={_as_text(value)}")
        ]
        self._said_ready.discard(service.name)
        with self.log_file(service.name).open("ab") as output:
            self._unread[service.name] = output.tell()
            self._running[service.name] = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "millrace",
                service.name,
                "--parent",
                str(os.getpid()),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A session of its own: Ctrl-C reaches this process only, which then ends the others in order.
                start_new_session=True,
            )

    async def wait_ready(self, service: Service, timeout: float) -> None:
        """Wait until the service answers on its health URL, after it has said in its log that it listens.

        Before that another process may have its port, and answer.
        Raises `ServiceDied` when its process ends first or `timeout` seconds pass.
        """
        assert self._session is not None
        deadline = asyncio.get_running_loop().time() + timeout
        while asyncio.get_running_loop().time() < deadline:
            self.require_alive(service.name)
            if self._has_said_ready(service.name):
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with self._session.get(service.health_url) as response:
                        if response.status == 200:
                            return
            await asyncio.sleep(_POLL_SECONDS)
        raise ServiceDied(f"{service.name} was not ready within {timeout:.0f} s\n{self._tail(service.name)}")

    def require_alive(self, name: str) -> None:
        """Raise `ServiceDied` if the process of `name` has ended."""
        code = self._running[name].returncode
        if code is not None:
            raise ServiceDied(f"{name} ended with exit code {code}\n{self._tail(name)}")

    async def watch(self) -> None:
        """Return never; raise `ServiceDied` as soon as any process ends."""
        waits = {asyncio.ensure_future(process.wait()): name for name, process in self._running.items()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            self.require_alive(waits[done.pop()])
        finally:
            for wait in waits:
                wait.cancel()

    async def kill(self, name: str) -> None:
        """End one process with SIGKILL, as a crash would, and wait until it is gone."""
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    async def stop_all(self) -> None:
        """End every process, in reverse order of start; none is left when this returns."""
        for name in reversed(list(self._running)):
            process = self._running.pop(name)
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                try:
                    async with asyncio.timeout(_STOP_SECONDS):
                        await process.wait()
                except TimeoutError:
                    log.warning("killing a service that did not stop", extra={"service_name": name})
            # Whatever the service itself started lives in its process group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def _has_said_ready(self, name: str) -> bool:
        """Whether the process that runs now has logged `ready`, as each service does once all its ports are its own."""
        if name not in self._said_ready:
            with self.log_file(name).open("rb") as log_of_it:
                log_of_it.seek(self._unread[name])
                whole, _, _ = log_of_it.read().rpartition(b"\n")
            self._unread[name] += len(whole)
            if any(_is_ready(line) for line in whole.splitlines()):
                self._said_ready.add(name)
        return name in self._said_ready

    def _tail(self, name: str) -> str:
        with contextlib.suppress(OSError):
            lines = self.log_file(name).read_text(errors="replace").splitlines()[-_TAIL_LINES:]
            return "\n".join([f"the end of {self.log_file(name)}:", *lines])
        return "it left no log"


def _is_ready(line: bytes) -> bool:
    try:
        entry = msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return False  # what a process wrote before it had a log, or died with
    return isinstance(entry, dict) and entry.get("event") == "ready"


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return msgspec.json.encode(value).decode()
    return str(value)
