"""Short submissions that come close together set out together, while there are many.

Each that sets out by itself wakes signing process, journal and event loop, twice and more: at a thousand a second that
takes more of the processor than what is done for it. So while submissions are accepted at a pace at which some come
within a few milliseconds, each waits for the next departure. Nobody waits for company that is not there: at a lower
pace everybody sets out at once, and so does a group that has everybody in it who has lately submitted anything. What
has waited at an edge waits for nobody here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from millrace.relayer.rules.slices import PART

INTERVAL = 0.010
"""Seconds from the first of a group to its departure, at most: a full group takes as long to come at 1,600 a second."""
FULL = 2 * PART
"""Transactions with which a group departs at once."""
LONG = PART // 2
"""Transactions that are company enough for themselves: they would be answered late for little."""
WINDOW_SECONDS = 0.1
"""The pace is measured in windows of this length, and holds for the next one."""
BUSY_PACE = 300.0
"""Accepted submissions a second from which on others come within an interval. What is refused does not count: who
sends only that makes nobody wait."""


class Leaving(Protocol):
    """What sets out, at once unless others are waited for."""

    def set_out(self) -> None: ...


L = TypeVar("L", bound=Leaving)


class Gathering(Generic[L]):
    """The next departure, and who waits for it."""

    def __init__(
        self, set_out_together: Callable[[Sequence[L]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._set_out_together = set_out_together
        self._clock = clock
        self._since = clock()
        self._window = 1
        """The number of this window."""
        self._accepted = 0
        """Short submissions in it, …"""
        self._connections = 0
        """… and connections that began with one."""
        self._is_busy = False
        self._connections_before = 0
        """What the window before was like."""
        self._waiting: list[L] = []
        self._size = 0
        self._departure: asyncio.TimerHandle | None = None

    def accepted(self, size: int) -> None:
        """A connection's submission of `size` transactions was answered, and something of it was accepted."""
        if size < LONG:
            self._accepted += 1

    def join(self, size: int, seen: int, lane: L) -> int:
        """Have what waits on a connection set out with the next departure, or now if it need not wait.

        Returns what the connection's next one is to show as `seen`; 0 at first.
        """
        if size >= LONG:
            self._set_out_together([lane])
            return seen
        window = self._look(seen)
        if not self._is_busy:
            lane.set_out()
            return window
        self._waiting.append(lane)
        self._size += size
        if self._size >= FULL or len(self._waiting) >= self._connections_before:
            self.depart()
        elif self._departure is None:
            self._departure = asyncio.get_running_loop().call_later(INTERVAL, self.depart)
        return window

    def _look(self, seen: int) -> int:
        """The window now, in which a connection has something that it did not have in the window `seen`."""
        now = self._clock()
        if now - self._since >= WINDOW_SECONDS:
            self._is_busy = self._accepted >= BUSY_PACE * (now - self._since)
            self._connections_before = self._connections
            self._accepted = self._connections = 0
            self._since = now
            self._window += 1
        if seen != self._window:
            self._connections += 1
        return self._window

    def depart(self) -> None:
        """Have everybody who waits set out."""
        if self._departure is not None:
            self._departure.cancel()
        waiting, self._waiting = self._waiting, []
        self._size, self._departure = 0, None
        self._set_out_together(waiting)
