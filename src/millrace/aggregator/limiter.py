"""What one client may take: requests in an exact sliding window of one second, and connections. In bounded memory."""

from __future__ import annotations

import resource
from collections import Counter, OrderedDict, deque

from millrace.runtime.client_address import ClientAddress, is_local

WINDOW = 1.0
SPARE_FILES = 64
"""Files that a process may have open besides its connections."""


class RateLimiter:
    """At most `limit` requests per client within any `WINDOW` seconds.

    Remembers `max_clients` clients; when full, the one idle for longest is forgotten.
    """

    def __init__(self, limit: int, max_clients: int) -> None:
        self._limit = limit
        self._max_clients = max_clients
        self._clients: OrderedDict[str, deque[float]] = OrderedDict()

    def admit(self, client: str, now: float) -> float:
        """Count a request at `now` (seconds). Returns 0.0, or the seconds to wait if it is one too many."""
        seen = self._clients.get(client)
        if seen is None:
            while len(self._clients) >= self._max_clients:
                self._clients.popitem(last=False)
            seen = self._clients[client] = deque(maxlen=self._limit)
        else:
            self._clients.move_to_end(client)
        if len(seen) == self._limit and now - seen[0] < WINDOW:
            return WINDOW - (now - seen[0])
        seen.append(now)
        return 0.0

    def __len__(self) -> int:
        return len(self._clients)


class Doors:
    """How many connections are open, in all and of each client. One too many is closed at once.

    Never more than the files that the process may open, less some. Clients of this machine and trusted proxies count
    in all only.
    """

    def __init__(self, most: int, per_client: int, clients: ClientAddress) -> None:
        self._most = max(1, min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES))
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
