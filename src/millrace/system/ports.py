"""Ports for what runs only for a while: demonstrations, tests, benchmarks."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
_LOWEST = 10_000  # above the ports of well-known services
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_EPHEMERAL = 32_768  # where Linux begins unless told otherwise
_ATTEMPTS = 1_000
_part = (0, 1)
"""Which of how many equal parts of these ports this process hands out."""
_last = 0
"""The port that was tried last."""


class NoFreePort(OSError):
    """Nearly every port of this machine is taken."""


def confine(part: int, parts: int) -> None:
    """From now on hand out ports of one of so many equal parts only.

    For processes that start servers side by side: a server that is down for a moment finds its port free when it comes
    back, as no other process can have been given it.
    """
    global _part
    _part = (part, parts)


def free_ports(count: int) -> list[int]:
    """So many different ports of loopback on which nobody listens.

    They lie below those that the system hands out by itself: a port of those could be given to any outgoing
    connection between this call and the moment when the process that wants it listens. For the same reason a port that
    was handed out comes again only after all others. Raises `NoFreePort`.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(_ATTEMPTS):
            if len(found) == count:
                return found
            port = _following()
            try:
                held.enter_context(socket.create_server((HOST, port)))
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
            else:
                found.append(port)
    if len(found) == count:
        return found
    lowest, highest = _bounds()
    raise NoFreePort(f"no {count} free ports between {lowest} and {highest}")


def _following() -> int:
    """The port after the last one; the first is random, as another process begins elsewhere."""
    global _last
    lowest, highest = _bounds()
    if not lowest <= _last <= highest:
        _last = random.randint(lowest, highest)
    else:
        _last = _last + 1 if _last < highest else lowest
    return _last


def _bounds() -> tuple[int, int]:
    """The lowest and the highest port that this process hands out."""
    part, parts = _part
    size = (_first_ephemeral() - _LOWEST) // parts
    return _LOWEST + part * size, _LOWEST + (part + 1) * size - 1


def is_free(port: int) -> bool:
    """Whether nobody listens on this port of loopback."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _first_ephemeral() -> int:
    """Where the ports begin that the system hands out; if that leaves nothing below, as if it were the usual."""
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = _USUAL_EPHEMERAL
    return first if first > 2 * _LOWEST else _USUAL_EPHEMERAL
