"""The wall clock where something ends by it that cannot be had back."""

from __future__ import annotations

import time
from collections.abc import Callable

UNSET_MS = 1_735_689_600_000
"""The first of 2025: a clock behind it has not been set yet, as on a machine without a battery that has just begun."""


def wall_ms() -> int:
    """Milliseconds since 1970, by a clock that may be set."""
    return time.time_ns() // 1_000_000


class UnhurriedClock:
    """The wall clock, but no further on than time has passed since the process began: a clock that is set forward by a
    day, rightly or not, makes nothing a day old. Behind a clock that is set back it goes on there. One that was not set
    at all is believed once it is.
    """

    def __init__(self, wall: Callable[[], int] = wall_ms, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._ahead_ms = 0.0
        self._believe()

    def _believe(self) -> None:
        # Whole milliseconds are told, and less than one has passed of the next.
        self._ahead_ms = self._wall() + 1 - self._steady() * 1000

    def __call__(self) -> int:
        """Milliseconds since 1970."""
        wall = self._wall()
        if self._steady() * 1000 + self._ahead_ms < UNSET_MS <= wall:
            self._believe()
        return min(wall, int(self._steady() * 1000 + self._ahead_ms))
