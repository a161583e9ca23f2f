"""Who may wait: what would be answered later than its client is likely to wait for is refused at once instead.

A queue that only grows serves nobody: its work is done when those who asked for it have gone. How long something would
wait follows from what waits already and how fast that has been served lately, see `Admission`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

WINDOW_SECONDS = 0.1
"""Service is measured in windows of this length; at the end of each the level is found anew."""
SATURATED = 32
"""Transactions that wait at every moment of a window when its service was as fast as it goes: some parts of a batch for
each of loop, signing process and journal. With fewer the clients' pace is measured and not the service's."""
STANDING_SECONDS = 0.25
"""A queue that has not been short for so long is no burst. Until then the usual pace is believed, not the latest."""
FIRST_PACE = 2_000.0
"""Transactions a second, until a crowd has shown how many it really is."""
_NEWEST = 0.3
"""Weight of the newest window."""
_USUAL_LEFT = 0.995
"""What is left of the usual pace after a window that was slower: half of it after 14 s of such windows."""


class Admission:
    """Counts what is admitted and not answered, by client, and foretells waits.

    Clients are served in turn (`Shares`), so one with `own` transactions waits until each other has been served as
    many, or all it has. The level is the `own` at which that takes `limit` seconds: up to it a client is admitted
    however much others have waiting. Who came in and is overtaken by so many that it waits longer than the limit all
    the same is refused by the submitter, when its turn comes.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._of: Counter[str] = Counter()
        self.waiting = 0
        """Transactions admitted and not answered."""
        self.refused = 0
        """Transactions that would have waited too long, since the start."""
        self._window_since = self._short_at = clock()
        self._least = 0
        """The fewest that waited in this window, …"""
        self._served = 0
        """… and how many were served in it."""
        self._pace = self._usual = FIRST_PACE
        """Transactions a second, of late and usually."""
        self._is_measured = False
        self._level: float | None = None
        """Not known until somebody has to wait longer than the limit."""

    def wait(self, client: str, size: int) -> float:
        """Seconds that `size` transactions more of a client would wait beyond the limit; 0: they may come in."""
        now = self._clock()
        if now - self._window_since >= WINDOW_SECONDS:
            self._end_window(now)
        expected = (self.waiting + size) / self._believed(now)
        if expected <= self._limit or self.waiting < SATURATED:
            return 0.0
        if self._level is None:
            self._level = _level(self._of.values(), self._limit * self._believed(now))
        if self._of.get(client, 0) + size <= self._level:
            return 0.0
        self.refused += size
        return expected - self._limit

    @property
    def expected(self) -> float:
        """Seconds that what waits now takes to be served."""
        return self.waiting / self._believed(self._clock())

    def enter(self, client: str, size: int) -> None:
        """Count what was admitted; `leave` is due when it is answered, or given up."""
        self._of[client] += size
        self.waiting += size

    def leave(self, client: str, size: int, unserved: int = 0) -> None:
        """Count what was answered, `unserved` of it without work."""
        self._of[client] -= size
        if not self._of[client]:
            del self._of[client]
        self.waiting -= size
        self._served += size - unserved
        if self.waiting < self._least:
            self._least = self.waiting
            if self.waiting < SATURATED:
                self._short_at = self._clock()

    def _believed(self, now: float) -> float:
        pace = self._pace if now - self._short_at >= STANDING_SECONDS else max(self._pace, self._usual)
        return max(pace, 2 * SATURATED / self._limit)  # less than it takes to measure would never be measured again

    def _end_window(self, now: float) -> None:
        if self._least >= SATURATED and not self._served:
            pass  # a stall says nothing of the pace
        elif self._least >= SATURATED:
            pace = max(1.0, self._served / (now - self._window_since))
            self._pace = (1 - _NEWEST) * self._pace + _NEWEST * pace if self._is_measured else pace
            self._usual = max(pace, _USUAL_LEFT * self._usual) if self._is_measured else pace
            self._is_measured = True
        else:
            self._short_at = now
        self._window_since, self._served, self._least, self._level = now, 0, self.waiting, None


def _level(waiting: Iterable[int], room: float) -> float:
    """The most that each may have so that all together have no more than `room`, where some have less.

    Where all fit it is what the one with most would have if it took the rest of the room.
    """
    ordered = sorted(waiting)
    for index, own in enumerate(ordered):
        fair = room / (len(ordered) - index)
        if own >= fair:
            return fair
        room -= own
    return room + (ordered[-1] if ordered else 0)
