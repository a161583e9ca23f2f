"""The clock of the server that keeps the claims, which counts for all that share them, whatever their own clocks say.

A relayer's times go to the server as the server would have told them, and come back as its own clock would have. So who
takes a seat knows what was spent within a minute, also where the clocks of two machines are minutes apart, or one of
them was set meanwhile. How far they are apart is known but for as long as an answer takes: a time is rather too late
than too early on both ways, so that nothing that was spent leaves a budget too soon.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from millrace.relayer.journal.lease_keeper import seconds_since_boot

ROUNDED_MS = 2
"""Both clocks are told in whole milliseconds: ours may have been almost one later, the server's half a one earlier."""


def wall_ms() -> int:
    """What our own clock says."""
    return time.time_ns() // 1_000_000


class ServerClock:
    """How far the server's clock is ahead of ours, in ms; as if they were one until the server has said a time."""

    def __init__(self, wall: Callable[[], int] = wall_ms, boot: Callable[[], float] = seconds_since_boot) -> None:
        """`boot`: seconds by a clock that nobody sets."""
        self._wall = wall
        self._boot = boot
        self.set_by = 0.0
        """Seconds by which at least the server's clock was set, or another's is ahead, between its last two answers."""
        self._began: tuple[float, float] | None = None
        """When the server's clock stood at nothing, by `boot`: not before the first, and not after the second."""

    def asked(self) -> float:
        """For `answered`: when a question for the time was sent."""
        return self._boot()

    def answered(self, asked: float, server_ms: int) -> None:
        """The server's time, which it was not before it was asked for, and not after now."""
        before = self._began
        first, last = self._began = asked - server_ms / 1_000, self._boot() - server_ms / 1_000
        self.set_by = 0.0 if before is None else max(before[0] - last, 0.0) - max(first - before[1], 0.0)

    @property
    def most_ahead_ms(self) -> int:
        """To be added to a time of ours that is told."""
        return 0 if self._began is None else math.ceil(self._ahead_ms(self._began[0]))

    @property
    def least_ahead_ms(self) -> int:
        """To be taken off a time that was told, and added to one since when something is looked for."""
        return 0 if self._began is None else math.floor(self._ahead_ms(self._began[1])) - ROUNDED_MS

    def _ahead_ms(self, began: float) -> float:
        return (self._boot() - began) * 1_000 - self._wall()
