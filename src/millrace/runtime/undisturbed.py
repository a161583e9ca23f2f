"""How an event loop keeps the GIL for the moment that it answers in, beside threads that compute.

A thread that waits for the GIL asks for it after the switch interval. A short one has threads hand it back to the loop
soon, but they, too, ask the loop for it so soon: a request of 0.3 ms then lost it four times and more, each time until
a thread had been woken, had had its turn and had woken the loop. So the interval is long while the loop answers.
"""

from __future__ import annotations

import sys
from types import TracebackType

PATIENT = 0.0008
"""Seconds, a few times what an answer at once takes. A thread that waited before the loop began takes the GIL from it
all the same, and the loop waits so long to have it back. Beside reverse LP quotes forward quotes took 3.0 ms in the
median with 0.03 ms, 2.7 with 0.3, 1.9 with 0.8, 1.8 with 5, where reverse quotes took longer."""


class Undisturbed:
    """Entered by the event loop only. Outside of it threads are asked for the GIL after `eager` seconds."""

    def __init__(self, eager: float) -> None:
        self._eager = eager
        sys.setswitchinterval(eager)

    def __enter__(self) -> None:
        sys.setswitchinterval(PATIENT)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setswitchinterval(self._eager)
