"""How a thread of slow work steps aside for quotes.

Python runs one thread at a time: next to a thread that never rests a quote would have to win its turn back several
times, and take a few times as long. So slow work asks here at every step whether to rest: not at all while nobody asks
for quotes, and for most of the time while quotes are computed.
"""

from __future__ import annotations

import math
import time

SLICE = 0.0004
"""Seconds of work between two looks. Each rest costs some 0.1 ms of the processor, as what was at hand is gone: with
half as much a snapshot of 1,000 pools takes 58 ms of it instead of 43, with twice as much no less."""
REST = 0.001
"""Seconds of rest while quotes are asked for: slow work then gets a quarter of the time, so it always ends."""
RECENT = 0.05
"""Seconds after a quote in which the next one is expected: in between the loop reads and writes requests, waits
for the processor, or for what is computed in another thread."""


class Pace:
    """One per process. The loop says when a quote begins and ends; the slow thread calls `pause` at every step."""

    def __init__(self) -> None:
        self.rests = 0
        """How often slow work has stepped aside."""
        self._computing = False
        self._computed = -math.inf  # when the last quote was
        self._looked = -math.inf

    def begin(self) -> None:
        """A quote is being computed from now on."""
        self._computing = True

    def end(self) -> None:
        """It is done."""
        self._computing = False
        self._computed = time.perf_counter()

    def seen(self) -> None:
        """A quote is computed in another thread than the loop's."""
        self._computed = time.perf_counter()

    def pause(self) -> None:
        """Rest for a moment if a slice of work is done, and a quote is being computed or was a moment ago."""
        now = time.perf_counter()
        if now - self._looked < SLICE:
            return
        if self._computing or now - self._computed < RECENT:
            self.rests += 1
            time.sleep(REST)
        self._looked = time.perf_counter()


def never() -> None:
    """The pause of work that need not step aside."""
