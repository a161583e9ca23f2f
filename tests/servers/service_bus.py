"""A service bus of the tests' own: the real SDK connects to it, and it may be killed and started again."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
from proton import Message

START_SECONDS = 20.0
KEY_NAME = "notifier"
KEY = base64.b64encode(b"a key for tests only").decode()
MAX_MESSAGE_BYTES = 256 * 1024
_PROGRAM = Path(__file__).with_name("service_bus_broker.py")


class Accepted(NamedTuple):
    """A message that the bus took, in the order of taking."""

    topic: str
    session: str
    message_id: str
    properties: dict[str, str]
    body: bytes


class Bus:
    """A broker process with topics of the tests' choice. Each topic has the subscription `all`, with sessions."""

    def __init__(
        self,
        directory: Path,
        topics: Iterable[str],
        *,
        partitioned: bool = False,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(exist_ok=True)
        topic = {"subscriptions": {"all": {"sessions": True}}, "partitioned": partitioned}
        config = {
            "key_name": KEY_NAME,
            "key": KEY,
            "topics": dict.fromkeys(topics, topic),
            "max_message_bytes": max_message_bytes,
        }
        (directory / "config.json").write_bytes(msgspec.json.encode(config))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]

    def connection_string(self, key: str = KEY) -> str:
        """As an operator gets it from the cloud; the last part says that there is no TLS."""
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true;"
        )

    def start(self) -> None:
        """Return once it accepts connections; raises `TimeoutError` with its output after 20 s."""
        self._launch()
        self._wait()

    async def restart(self) -> None:
        """The same without blocking the event loop."""
        self._launch()  # not in a thread: the kernel ends what a thread started when that thread ends
        await asyncio.to_thread(self._wait)

    def _launch(self) -> None:
        with (self._directory / "console").open("ab") as console:
            self._process = subprocess.Popen(
                # The first word: to end also when the tests themselves are killed.
                ["setpriv", "--pdeathsig", "KILL", sys.executable, _PROGRAM, self._directory, str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )

    def _wait(self) -> None:
        process, deadline = self._process, time.monotonic() + START_SECONDS
        assert process is not None
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"no service bus on port {self.port}:\n{self.console()}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)

    def console(self) -> str:
        """What the broker printed: nothing, unless it has a defect."""
        return (self._directory / "console").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """End it as a loss of power would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    close = kill

    def pause(self) -> None:
        """Stop it; its sockets stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def refuse(self, *conditions: str) -> None:
        """Refuse the next transfers with these conditions, one each."""
        fresh = self._directory / "faults.new"
        fresh.write_text("\n".join(conditions))
        fresh.replace(self._directory / "faults")

    def refusals_left(self) -> int:
        """How many of them have not happened yet."""
        with contextlib.suppress(FileNotFoundError):
            return len((self._directory / "faults").read_text().splitlines())
        return 0

    def accepted(self) -> list[Accepted]:
        """Everything the bus ever took, whoever received it since."""
        with contextlib.closing(sqlite3.connect(self._directory / "bus.sqlite3")) as db:
            rows = db.execute("SELECT topic, raw FROM messages ORDER BY sequence").fetchall()
        return [_accepted(topic, raw) for topic, raw in rows]


def _accepted(topic: str, raw: bytes) -> Accepted:
    message = Message()
    message.decode(raw)
    return Accepted(topic, message.group_id, message.id, dict(message.properties or {}), bytes(message.body))
