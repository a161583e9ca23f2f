"""The cluster's own processes, started again whenever they end, as a service manager does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

STOP_SECONDS = 15.0


class Service:
    """`millrace KIND` with its settings; `keep` it running in a task."""

    def __init__(self, name: str, kind: str, settings: Mapping[str, Any], folder: Path) -> None:
        self.name = name
        self.starts = 0
        self.log = folder / f"{name}.log"
        arguments = [item for key, value in settings.items() for item in ("--set", f"{key}={_as_text(value)}")]
        self._command = [sys.executable, "-m", "millrace", kind, "--parent", str(os.getpid()), *arguments]
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run it from now on."""
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End it in order, and for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def kill(self) -> None:
        """As a loss of power would; it is started again."""
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                self._process.kill()

    async def kill_child(self) -> None:
        """Of a process that has children kill one, as the one that signs."""
        if self._process is not None and (children := family(self._process.pid)[1:]):
            _send([children[0]], signal.SIGKILL)

    def freeze(self) -> None:
        """It stands still, with what it has started."""
        if self._process is not None:
            _send(family(self._process.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        if self._process is not None:
            _send(family(self._process.pid), signal.SIGCONT)

    async def _keep(self) -> None:
        while True:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    "setpriv", "--pdeathsig", "KILL", *self._command,
                    stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
            self.starts += 1
            await self._process.wait()


def family(pid: int) -> list[int]:
    """A process and all that it, and they, have started."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            found += [int(child) for child in Path(f"/proc/{each}/task/{each}/children").read_text().split()]
    return found


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return msgspec.json.encode(value).decode()
    return str(value)
