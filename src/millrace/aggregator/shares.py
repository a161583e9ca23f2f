"""How much time for long questions each client has: a share of every second, saved up to a second's worth.

Requests are counted alike, whatever they ask; what they cost is measured in the threads that answer them, of all
workers, and taken off here. Within its share a client's questions are answered in full; past it they end with the best
found so far; and with a second's share of debt there is no turn at all until it is paid off.
"""

from __future__ import annotations

import time

from millrace.aggregator.clients import Clients, Clock, Slot

MOST_SAVED = 1.0
"""Seconds a client can save up: what one question may take by default (`quote_deadline_seconds`)."""


class TimeShares:
    """Seconds of processor time of each client. Any thread of any worker may ask.

    `share` is what a client gets a second.
    """

    def __init__(self, share: float, clients: Clients, clock: Clock = time.monotonic) -> None:
        self._share = share
        self._clients = clients
        self._clock = clock

    def left(self, client: str) -> float:
        """Seconds that a client has; below 0 what it has taken too much."""
        slot = self._clients.peek(client)
        return MOST_SAVED if slot is None else left_of(slot, self._share, self._clock())

    def spend(self, client: str, seconds: float) -> None:
        """Take off what a turn of a client has cost."""
        clients = self._clients
        at = clients.enter(client)
        try:
            now, slot = self._clock(), Slot._make(clients.read(at))
            left = left_of(slot, self._share, now) - seconds
            clients.write(at, slot._replace(seen=now, left=left, left_at=now, spent=slot.spent + seconds))
            clients.tell(at)
        finally:
            clients.leave()

    def wait(self, client: str) -> float:
        """0.0, or the seconds until a client whose debt is a second's share has none."""
        left = self.left(client)
        return -left / self._share if left <= -self._share else 0.0


def left_of(slot: Slot, share: float, now: float) -> float:
    """Seconds that a client has who gets a `share` of every second."""
    return min(MOST_SAVED, slot.left + (now - slot.left_at) * share)
