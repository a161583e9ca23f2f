"""The clock of the server that keeps the claims, which counts for all that share them, whatever their own clocks say.

A relayer's times go to the server as the server would have told them, and come back as its own clock would have. So who
takes a seat knows what was spent within a minute, also where the clocks of two machines are minutes apart, or one of
them was set meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from millrace.relayer.journal.lease_keeper import seconds_since_boot

FINEST_MS = 1_000
"""How far clocks are apart is known no better: an answer takes a while. The shortest budget is a minute's."""


def wall_ms() -> int:
    """What our own clock says."""
    return time.time_ns() // 1_000_000


class ServerClock:
    """How far the server's clock is ahead of ours, in ms; as if they were one until the server has said a time."""

    def __init__(self, wall: Callable[[], int] = wall_ms, boot: Callable[[], float] = seconds_since_boot) -> None:
        """`boot`: seconds by a clock that nobody sets."""
        self._wall = wall
        self._boot = boot
        self._began: float | None = None
        """When the server's clock stood at nothing, by `boot`."""

    def asked(self) -> float:
        """For `answered`: when a question for the time was sent."""
        return self._boot()

    def answered(self, asked: float, server_ms: int) -> None:
        """The server's time, which it was not before it was asked for."""
        self._began = asked - server_ms / 1_000

    @property
    def ahead_ms(self) -> int:
        """To be added to a time of ours for the server's."""
        if self._began is None:
            return 0
        server_ms = (self._boot() - self._began) * 1_000
        return round((server_ms - self._wall()) / FINEST_MS) * FINEST_MS
