"""A RabbitMQ broker of the tests' own: free ports, one temporary directory, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import aio_pika

from millrace.system.ports import free_ports

START_SECONDS = 30.0
_DEBIAN = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one on PATH changes the user, and so cannot be killed by us


class Broker:
    """A broker that may be killed and started again with the same data and ports."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port, self._epmd_port, distribution_port = free_ports(3)
        self._command = _DEBIAN if Path(_DEBIAN).exists() else shutil.which("rabbitmq-server") or _DEBIAN
        name = f"millrace-{secrets.token_hex(4)}@localhost"
        (directory / "plugins").write_text("[].\n")
        (directory / "env.conf").write_text("")
        self._environment = {
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "env.conf"),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "RABBITMQ_ALLOW_INPUT": "1",  # replaces the shell by the broker, so that there is one process to kill
        }
        self._epmd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Return once it accepts connections; raises `TimeoutError` with its log after 30 s."""
        self._launch()
        self._wait()

    async def restart(self) -> None:
        """The same without blocking the event loop."""
        self._launch()  # not in a thread: the kernel ends what a thread started when that thread ends
        await asyncio.to_thread(self._wait)

    def _launch(self) -> None:
        if self._epmd is None:
            self._epmd = self._spawn("epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1")
            self._wait_for(self._epmd_port, self._epmd, time.monotonic() + START_SECONDS)
        self._server = self._spawn(self._command, "-noinput")

    def _wait(self) -> None:
        assert self._server is not None
        self._wait_for(self.port, self._server, time.monotonic() + START_SECONDS)

    def ensure(self) -> None:
        """Start it unless it runs."""
        if self._server is None or self._server.poll() is not None:
            self.start()

    async def settle(self) -> None:
        """Stop it in order and start it: RabbitMQ keeps queues declared just before a kill only by luck."""
        assert self._server is not None
        self._server.terminate()
        await asyncio.to_thread(self._server.wait, START_SECONDS)
        await self.restart()

    def kill(self) -> None:
        """End the broker as a loss of power would, and everything it started."""
        _kill_group(self._server)
        self._server = None

    def pause(self) -> None:
        """Stop its processes; its sockets stay open."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGCONT)

    def close(self) -> None:
        """Leave nothing running."""
        self.kill()
        _kill_group(self._epmd)
        self._epmd = None

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._directory / "console").open("ab") as console:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],  # also when the tests themselves are killed
                env=self._environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    def _wait_for(self, port: int, process: subprocess.Popen[bytes], deadline: float) -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return
            if process.poll() is not None or time.monotonic() > deadline:
                console = (self._directory / "console").read_text(errors="replace")[-2000:]
                raise TimeoutError(f"{process.args} does not answer on port {port}:\n{console}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)

    async def connect(self) -> aio_pika.abc.AbstractConnection:
        """A connection for a test."""
        return await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{self.port}/", timeout=10)


def _kill_group(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
