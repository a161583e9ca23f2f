"""How many connections may be open, in all and of each client, from the moment the kernel has them."""

from __future__ import annotations

import resource
import sys
from collections import Counter

from millrace.runtime.client_address import ClientAddress, is_local

SPARE_FILES = 64
"""Files that a process may have open besides its connections."""


def room_for_connections() -> int:
    """How many connections the files that this process may open leave room for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else max(1, files - SPARE_FILES)


class Doors:
    """Lets in at most `most` connections, and at most `per_client` of each client. One too many is closed at once.

    Never more than there is room for. Clients of this machine and trusted proxies count in all only.
    """

    def __init__(self, most: int, per_client: int, clients: ClientAddress) -> None:
        self._most = min(most, room_for_connections())
        self._per_client = per_client
        self._clients = clients
        self._open: Counter[str] = Counter()
        self.open = 0
        """Connections at present, those that are being refused included."""
        self.refused = 0
        """Connections refused since the start."""

    def enter(self, peer: str) -> bool:
        """Count a new connection; False when it is one too many. Either way `leave` is due when it ends."""
        client = self._clients.of(peer)
        self.open += 1
        self._open[client] += 1
        shared = is_local(client) or self._clients.is_proxy(peer)
        if self.open <= self._most and (shared or self._open[client] <= self._per_client):
            return True
        self.refused += 1
        return False

    def leave(self, peer: str) -> None:
        """A counted connection ended."""
        client = self._clients.of(peer)
        self.open -= 1
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]
