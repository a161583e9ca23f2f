"""Limits over time. Time comes in as seconds of a clock that never goes back."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from millrace.runtime.client_address import is_local

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


class Connections:
    """How many connections each client has open, and how fast it opens them. Those of this machine only count."""

    def __init__(self, most: int, rate: float) -> None:
        self._most = most
        self._opened = TokenBuckets(rate, most)
        self._open: Counter[str] = Counter()
        self.refused = 0
        """Connections refused since the start."""

    def enter(self, client: str, now: float) -> bool:
        """Count a new connection; False when it is one too many. Either way `leave` is due when it ends."""
        self._open[client] += 1
        if is_local(client) or (self._open[client] <= self._most and not self._opened.take(client, 1, now)):
            return True
        self.refused += 1
        return False

    def leave(self, client: str) -> None:
        """A counted connection ended."""
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]


class Shares:
    """How much of each client's work is under way at once: who has more to do waits for itself, not others for it.

    A queue that takes its work through shares of `most` never holds more than that of one client, so being first come,
    first served in it is being fair: nobody waits longer than `most` of each other client takes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    def __len__(self) -> int:
        """Clients with work under way; nothing is kept of others."""
        return len(self._used)

    async def take(self, client: str, size: int) -> None:
        """Room for work of this size, 1 at least, in the order of asking; what is larger than a share comes alone."""
        used = self._used.get(client, 0)
        if client not in self._waiting and self._fits(used, size):
            self._used[client] = used + size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(client, deque())
        waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came at the same moment
                self.give_back(client, size)
            raise

    def give_back(self, client: str, size: int) -> None:
        """Work that room was taken for is done."""
        used = self._used.pop(client) - size
        waiting = self._waiting.get(client)
        while waiting and (waiting[0][1].cancelled() or self._fits(used, waiting[0][0])):
            wanted, turn = waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                used += wanted
        if not waiting:
            self._waiting.pop(client, None)
        if used:
            self._used[client] = used

    def _fits(self, used: int, size: int) -> bool:
        return not used or used + size <= self._most


class Company:
    """Whether a client has the service to itself: nobody else has asked for anything within `seconds`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._latest = ""
        self._latest_at = self._other_at = -math.inf

    def is_alone(self, client: str) -> bool:
        """Whether this client, which asks for something now, has been alone."""
        now = self._clock()
        if client != self._latest:
            self._latest, self._other_at = client, self._latest_at
        self._latest_at = now
        return now - self._other_at >= self._seconds


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


def milliseconds(seconds: float) -> int:
    """A wait as replies tell it: from 1 ms to an hour."""
    return max(1, int(seconds * 1000)) if seconds < 3600 else 3_600_000
