"""A server as a process of the tests' own: ended with the tests, killable, and started again with its data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from millrace.system.ports import free_ports

START_SECONDS = 30.0


class Server:
    """A command that listens on `port` and keeps its data in `directory`."""

    def __init__(self, directory: Path, prefix: tuple[str, ...] = ()) -> None:
        self._directory = directory
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_ports(1)[0]

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        """What to run; subclasses say."""
        raise NotImplementedError

    def accepts(self) -> bool:
        """Whether it answers; subclasses may ask more than that a connection opens."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False

    def start(self) -> None:
        """Return once it answers; raises `TimeoutError` with its output after 30 s."""
        self._launch()
        self._wait()

    async def restart(self) -> None:
        """The same without blocking the event loop."""
        self._launch()  # not in a thread: the kernel ends what a thread started when that thread ends
        await asyncio.to_thread(self._wait)

    def ensure(self) -> None:
        """Start it unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """End it and all its children as a loss of power would; none is left when this returns."""
        if self._process is not None:
            family = self._signal(signal.SIGKILL)
            self._process.wait(10)
            deadline = time.monotonic() + START_SECONDS
            while any(map(_runs, family)):
                assert time.monotonic() < deadline, f"{family} do not end"
                time.sleep(0.005)
            self._process = None

    def pause(self) -> None:
        """Stop it and its children; sockets stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> list[int]:
        """Send a signal to the server and its children (which may have left its group); returns their ids."""
        assert self._process is not None
        parent = self._process.pid
        children: list[int] = []
        with contextlib.suppress(OSError):
            children = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
        for pid in (parent, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return children

    def _launch(self) -> None:
        with (self._directory / "console").open("ab") as console:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._prefix, *self.command()],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    def _wait(self) -> None:
        process, deadline = self._process, time.monotonic() + START_SECONDS
        assert process is not None
        while not self.accepts():
            if process.poll() is not None or time.monotonic() > deadline:
                output = (self._directory / "console").read_text(errors="replace")[-2000:]
                raise TimeoutError(f"{process.args} does not answer on port {self.port}:\n{output}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)


def _runs(pid: int) -> bool:
    """Whether a process has not ended; one that only waits for its parent to look has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
