"""How many requests one client may make: an exact sliding window of one second, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict, deque

WINDOW = 1.0


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
