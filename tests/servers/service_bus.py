"""A service bus of the tests' own: the real SDK connects to it, and it may be killed and started again."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from servers.process import Server
from servers.service_bus_store import FILE_NAME, decode

KEY_NAME = "notifier"
KEY = base64.b64encode(b"a key for tests only").decode()
MAX_MESSAGE_BYTES = 256 * 1024
_TESTS = Path(__file__).parents[1]


class Accepted(NamedTuple):
    """A message that the bus took, in the order of taking."""

    topic: str
    session: str
    message_id: str
    properties: dict[str, str]
    body: bytes


class Bus(Server):
    """A broker process with topics of the tests' choice. Each topic has the subscription `all`, with sessions."""

    def __init__(
        self,
        directory: Path,
        topics: Iterable[str],
        *,
        partitioned: bool = False,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory)
        topic = {"subscriptions": {"all": {"sessions": True}}, "partitioned": partitioned}
        config = {
            "key_name": KEY_NAME,
            "key": KEY,
            "topics": dict.fromkeys(topics, topic),
            "max_message_bytes": max_message_bytes,
        }
        (directory / "config.json").write_bytes(msgspec.json.encode(config))

    def connection_string(self, key: str = KEY) -> str:
        """As an operator gets it from the cloud; the last part says that there is no TLS."""
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName={KEY_NAME};SharedAccessKey={key};"
            "UseDevelopmentEmulator=true;"
        )

    def command(self) -> list[str]:
        program = [sys.executable, "-m", "servers.service_bus_broker", str(self._directory), str(self.port)]
        return ["env", f"PYTHONPATH={_TESTS}", *program]

    def console(self) -> str:
        """What the broker printed: nothing, unless it has a defect."""
        return (self._directory / "console").read_text(errors="replace")[-4000:]

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
        with contextlib.closing(sqlite3.connect(self._directory / FILE_NAME)) as db:
            rows = db.execute("SELECT topic, raw FROM messages ORDER BY sequence").fetchall()
        return [_accepted(topic, raw) for topic, raw in rows]


def _accepted(topic: str, raw: bytes) -> Accepted:
    message = decode(raw)
    return Accepted(topic, message.group_id, message.id, dict(message.properties or {}), bytes(message.body))
