"""How much time for long questions each client has: a share of every second, saved up to a second's worth.

Requests are counted alike, whatever they ask; what they cost is measured in the threads that answer them and taken off
here. Within its share a client's questions are answered in full; past it they end with the best found so far; and with
a second's share of debt there is no turn at all until it is paid off.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_SAVED = 1.0
"""Seconds a client can save up: what one question may take by default (`quote_deadline_seconds`)."""


class TimeShares:
    """Seconds of processor time of each client. Any thread may ask.

    `share` is what a client gets a second. Remembers `max_clients`; beyond, the one idle for longest is forgotten.
    """

    def __init__(self, share: float, max_clients: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._max_clients = max_clients
        self._clock = clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What was left, and when that was."""

    def left(self, client: str) -> float:
        """Seconds that a client has; below 0 what it has taken too much."""
        with self._lock:
            return self._now(client, self._clock())

    def _now(self, client: str, now: float) -> float:
        left, then = self._left.get(client, (MOST_SAVED, now))
        return min(MOST_SAVED, left + (now - then) * self._share)

    def spend(self, client: str, seconds: float) -> None:
        """Take off what a turn of a client has cost."""
        with self._lock:
            now = self._clock()
            self._left[client] = self._now(client, now) - seconds, now
            self._left.move_to_end(client)
            while len(self._left) > self._max_clients:
                self._left.popitem(last=False)

    def wait(self, client: str) -> float:
        """0.0, or the seconds until a client whose debt is a second's share has none."""
        left = self.left(client)
        return -left / self._share if left <= -self._share else 0.0

    def __len__(self) -> int:
        return len(self._left)
