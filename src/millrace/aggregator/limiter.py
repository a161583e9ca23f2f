"""The rate limit: an exact sliding window of one second per IP address, in bounded memory."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Iterable

WINDOW = 1.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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


class ClientAddress:
    """Finds the client's address behind trusted proxies."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._trusted: list[Network] = [ipaddress.ip_network(text, strict=False) for text in trusted]

    def of(self, peer: str, forwarded: str | None) -> str:
        """The address to count: `peer`, or the last hop of `X-Forwarded-For` that is no trusted proxy."""
        if not self._trusted or not forwarded or not self._is_trusted(peer):
            return peer
        client = peer
        for hop in reversed(forwarded.split(",")):
            text = hop.strip()
            try:
                ipaddress.ip_address(text)
            except ValueError:
                return client
            client = text
            if not self._is_trusted(text):
                return text
        return client

    def _is_trusted(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._trusted)
