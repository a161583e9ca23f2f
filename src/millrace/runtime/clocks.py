"""The wall clock where something ends by it that cannot be had back."""

from __future__ import annotations

import time
from collections.abc import Callable


def wall_ms() -> int:
    """Milliseconds since 1970, by a clock that may be set."""
    return time.time_ns() // 1_000_000


class UnhurriedClock:
    """The wall clock, but no further on than time has passed since the process began: a clock that is set forward by a
    day, rightly or not, makes nothing a day old. Behind a clock that is set back it goes on there.
    """

    def __init__(self, wall: Callable[[], int] = wall_ms, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._ahead_ms = wall() + 1 - steady() * 1000  # whole ones are told, and less than one has passed of the next

    def __call__(self) -> int:
        """Milliseconds since 1970."""
        return min(self._wall(), int(self._steady() * 1000 + self._ahead_ms))
