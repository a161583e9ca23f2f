"""How a thread of slow work steps aside for quotes.

Python runs one thread at a time, and a quote gives its turn away at every kernel it calls: next to a thread that never
rests it would have to win it back several times, and take a few times as long. So slow work asks here at every step
whether to rest: not at all while nobody asks for quotes, and for most of the time while quotes are computed.
"""

from __future__ import annotations

import time

SLICE = 0.0002
"""Seconds of work between two looks."""
REST = 0.001
"""Seconds of rest while quotes are computed: slow work then gets at least a tenth of the time, so it always ends."""


class Pace:
    """One per process. The loop says when it is `busy`; the slow thread calls `pause` at every step."""

    def __init__(self) -> None:
        self.busy = False
        """Whether the loop computes a quote at present."""
        self.rests = 0
        """How often slow work has stepped aside."""
        self._looked = 0.0

    def pause(self) -> None:
        """Rest for a moment if a slice of work is done and the loop is busy."""
        if time.perf_counter() - self._looked < SLICE:
            return
        if self.busy:
            self.rests += 1
            time.sleep(REST)
        self._looked = time.perf_counter()


def never() -> None:
    """The pause of work that need not step aside."""
