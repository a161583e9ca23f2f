"""How many requests one client may make: an exact sliding window of one second, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.aggregator.clients import MOST_MARKS, Clients

WINDOW = 1.0


def group_of(limit: int) -> int:
    """So many requests are remembered by one moment, that of the first: one, unless the limit is very high."""
    return -(-limit // MOST_MARKS)


def marks_of(limit: int) -> int:
    """Moments that the limit needs of each client."""
    return -(-limit // group_of(limit))


class RateLimiter:
    """At most `limit` requests per client within any `WINDOW` seconds, whichever worker he asks.

    `clients` needs as many moments as `marks_of` says.
    """

    def __init__(self, limit: int, clients: Clients) -> None:
        self._marks = marks_of(limit)
        self._group = group_of(limit)
        self._clients = clients

    def admit(self, client: str, now: float) -> float:
        """Count a request at `now` (seconds). Returns 0.0, or the seconds to wait if it is one too many."""
        clients, marks = self._clients, self._marks
        at = clients.enter(client)
        try:
            _, position, grouped, asked, heard, left, left_at, spent = clients.read(at)
            position %= marks
            if grouped:
                grouped -= 1
            else:
                oldest = clients.moment(at, position)
                if now - oldest < WINDOW:
                    clients.write(at, (now, position, grouped, asked, heard, left, left_at, spent))
                    clients.tell(at)
                    return WINDOW - (now - oldest)
                clients.set_moment(at, position, now)
                position, grouped = (position + 1) % marks, self._group - 1
            clients.write(at, (now, position, grouped, asked + 1, heard, left, left_at, spent))
            clients.tell(at)
            return 0.0
        finally:
            clients.leave()

    def hear(self, client: str, moments: Sequence[float], period: int) -> None:
        """Count what other machines have admitted as well: requests at these moments, up to a period.

        What is more than the limit counts as of when it would have been admitted, which is later: it is paid back.
        """
        clients = self._clients
        at = clients.enter(client)
        try:
            seen, position, grouped, asked, _, left, left_at, spent = clients.read(at)
            if moments:
                clients.set_moments(at, self._in_turn([*clients.moments(at), *moments[:: self._group]]))
                position = 0
            clients.write(at, (seen, position, grouped, asked, period, left, left_at, spent))
        finally:
            clients.leave()

    def _in_turn(self, moments: list[float]) -> list[float]:
        """The last moments, in order, each no earlier than the limit allows by those before it.

        Moved so, those of a client who kept to the limit are no later than he asked, even where they are given as
        earlier than he did.
        """
        moments.sort()
        for number in range(self._marks, len(moments)):
            moments[number] = max(moments[number], moments[number - self._marks] + WINDOW)
        return moments[-self._marks :]
