"""A Redis server of the tests' own: a free port, one temporary directory, nothing left behind."""

from __future__ import annotations

import contextlib
import shutil
import socket
from pathlib import Path

from servers.process import Server


class RedisServer(Server):
    """Redis without a password. `durable` keeps its data over a kill; otherwise it comes back empty."""

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        super().__init__(directory)
        self._durable = durable

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        keep = ["--appendonly", "yes", "--appendfsync", "always"] if self._durable else ["--appendonly", "no"]
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._directory)]
        return [shutil.which("redis-server") or "redis-server", *place, "--save", "", *keep]

    def accepts(self) -> bool:
        """Whether it answers a ping: while it loads its data it only takes connections."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(7) == b"+PONG\r\n"
        return False
