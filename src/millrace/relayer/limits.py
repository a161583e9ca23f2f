"""Limits over time. Time comes in as seconds of a clock that never goes back."""

from __future__ import annotations

import math
from collections import OrderedDict, deque

CONTROL_WINDOW = 5.0
"""Seconds of the sliding window for control messages (a limit of the public interface)."""


class SlidingWindow:
    """At most `limit` events in any window of `seconds`: exact, each event remembered until it leaves."""

    __slots__ = ("_limit", "_seconds", "_times")

    def __init__(self, limit: int, seconds: float = CONTROL_WINDOW) -> None:
        self._limit = limit
        self._seconds = seconds
        self._times: deque[float] = deque()

    def admit(self, now: float) -> float:
        """0 when the event is admitted, else the seconds until one would be; refused events do not count."""
        times = self._times
        while times and times[0] <= now - self._seconds:
            times.popleft()
        if len(times) < self._limit:
            times.append(now)
            return 0.0
        return max(times[0] + self._seconds - now, 0.001)


class TokenBuckets:
    """A bucket of `burst` tokens per name, filled at `rate` a second.

    At most `max_names` buckets are kept: the one unused for longest goes first. To forget a bucket is to fill
    it, so `max_names` should exceed the names that can be active while a bucket fills.
    """

    def __init__(self, rate: float, burst: float, max_names: int = 100_000) -> None:
        self._rate = rate
        self._burst = burst
        self._max_names = max_names
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, cost: float, now: float) -> float:
        """0 when `cost` tokens were taken, else the seconds until they would be there; then none is taken."""
        tokens, since = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        granted = tokens >= cost
        self._buckets[name] = (tokens - cost if granted else tokens, now)
        if len(self._buckets) > self._max_names:
            self._buckets.popitem(last=False)
        if granted:
            return 0.0
        return (cost - tokens) / self._rate if self._rate > 0 and cost <= self._burst else math.inf
