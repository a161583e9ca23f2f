"""What other relayers of our keys have written off and a key may still have to pay, as their claims on the server say.

It is in nobody's part of what may be at risk, so that each leaves alone what all others wrote off. What runs in the end
is paid before everybody has heard of its block: so a sum that falls counts for some time longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


class OthersWrittenOff:
    """The largest sum of each key that was heard of in a time, or in up to twice that."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since = clock()
        self._before: Mapping[bytes, int] = {}
        self._now: Mapping[bytes, int] = {}
        self._most: Mapping[bytes, int] = {}

    def hear(self, sums: Mapping[bytes, int]) -> None:
        """These are the sums by now."""
        if self._clock() - self._since >= self._seconds:
            self._since, self._before, self._now = self._clock(), self._now, {}
        self._now = _larger(self._now, sums)
        self._most = _larger(self._before, self._now)

    def of_key(self, key: bytes) -> int:
        """What a key may still have to pay for others."""
        return self._most.get(key, 0)


def _larger(one: Mapping[bytes, int], two: Mapping[bytes, int]) -> Mapping[bytes, int]:
    return {key: max(one.get(key, 0), two.get(key, 0)) for key in one.keys() | two.keys()}
