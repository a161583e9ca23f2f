"""Listening TCP sockets that count whom they let in, from accept to close, and that go on when no files are left.

An event loop's server asks its socket for connections (`accept`) and closes them by `close`, so that is where they are
counted: also those that never bring a handshake, which no later layer sees. Who may not enter is reset at once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from millrace.runtime.doors import Doors

log = logging.getLogger(__name__)

_TURNED_AWAY_AT_ONCE = 64  # before other tasks get their turn
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing sends RST, and leaves nothing behind


class _Guest(socket.socket):
    """An accepted connection, which tells when it is closed."""

    on_close: Callable[[], None] | None = None

    def close(self) -> None:
        on_close, self.on_close = self.on_close, None
        super().close()
        if on_close is not None:
            on_close()


class Listener(socket.socket):
    """A listening socket; without doors everybody is let in.

    While the process has no file left for a connection, waiting ones are reset instead: a server that left them
    waiting would be woken for them again and again.
    """

    doors: Doors | None = None
    turned_away = 0
    """Connections reset for want of a file since the start."""
    _spare = -1
    """A file kept open, to have one when there is none left."""

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that may enter. Raises `BlockingIOError` when none waits, or for a pause."""
        if self._spare < 0:
            self.take_spare()
        for _ in range(_TURNED_AWAY_AT_ONCE):
            try:
                connection, peer = super().accept()
            except OSError as error:
                if error.errno not in _NO_ROOM or self._spare < 0:
                    raise
                self._turn_away()
                continue
            doors = self.doors
            if doors is None:
                return connection, peer
            guest = _Guest(connection.family, connection.type, connection.proto, fileno=connection.detach())
            name = str(peer[0])
            guest.on_close = partial(doors.leave, name)
            if doors.enter(name):
                return guest, peer
            _reset(guest)
        raise BlockingIOError(errno.EAGAIN, "others are waiting for their turn")

    def take_spare(self) -> None:
        """Open the spare file, if there is one to be had; it is closed with the listener."""
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        super().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def _turn_away(self) -> None:
        """Reset one waiting connection, in the place of the spare file."""
        os.close(self._spare)
        self._spare = -1
        with contextlib.suppress(OSError):
            connection, _ = super().accept()
            _reset(connection)
        self.take_spare()
        if not self.turned_away:
            log.error("no files are left for connections: raise `ulimit -n`, or allow fewer connections")
        self.turned_away += 1


def listen(host: str, port: int, backlog: int, doors: Doors | None = None) -> list[Listener]:
    """A listening socket for each address of `host`, all interfaces if it is empty. Raises `OSError`."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[Listener] = []
    for family, _, _, _, where in dict.fromkeys(found):
        try:
            plain = socket.create_server(where[:2], family=family, backlog=backlog)
        except OSError as error:
            for listener in listeners:
                listener.close()
            why = os.strerror(error.errno or 0).lower()
            raise OSError(
                error.errno or 0, f"cannot listen on {host or 'all interfaces'}, port {port}: {why}"
            ) from None
        listener = Listener(plain.family, plain.type, plain.proto, fileno=plain.detach())
        listener.setblocking(False)
        listener.doors = doors
        listener.take_spare()  # before the first connection, so that those leave nothing behind
        listeners.append(listener)
    return listeners


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
