"""Limits over time. Time comes in as seconds of a clock that never goes back."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque

from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason
from millrace.runtime.client_address import is_local

DEAREST = 100
"""Transactions of an address's rate that a wrong signature costs at most: then 500 a second are five."""
LEAST_REST, REST_SECONDS = 1.0, 5.0
"""Nothing is read for so long at least, and at most, from who goes on beyond a rate of its address."""
TOLD, TOLD_RATE = 8, 1.0
"""So often an address may be beyond its rates, and once a second more, before nothing is read from it for a while: who
is told once or twice, and heeds it, is read as ever."""
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

    def charge(self, name: str, cost: float, now: float) -> None:
        """Take `cost` tokens also where there are fewer: then as many are owed, a whole burst at most."""
        tokens, since = self._buckets.pop(name, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        self._buckets[name] = max(-self._burst, tokens - cost), now
        if len(self._buckets) > self._max_names:
            self._buckets.popitem(last=False)

    def owes(self, name: str, now: float) -> float:
        """Seconds until nothing is owed any more."""
        tokens, since = self._buckets.get(name, (0.0, now))
        return max(0.0, -tokens / self._rate - (now - since)) if tokens < 0 and self._rate > 0 else 0.0


class Wrong:
    """What each client's wrong signatures cost it: the more of them in a row, the more.

    To check one takes as long as to relay a transaction, and brings nothing. What was right takes back as much.
    """

    def __init__(self, max_names: int = 100_000) -> None:
        self._max_names = max_names
        self._prices: OrderedDict[str, int] = OrderedDict()
        """The price of the next one, in transactions; the client whose last was longest ago is forgotten first."""

    def __len__(self) -> int:
        return len(self._prices)

    def cost(self, client: str, wrong: int, right: int) -> int:
        """The tokens a client owes for what came out wrong, beside those it paid for all of it when it asked."""
        if not wrong and client not in self._prices:
            return 0
        price = self._prices.pop(client, 0)
        total = 0
        for _ in range(wrong):
            total += price
            price = min(price + 1, DEAREST)
        price = max(0, price - right)
        if price:
            self._prices[client] = price
            if len(self._prices) > self._max_names:
                self._prices.popitem(last=False)
        return total


GONE = reasons.BUSY.but("its client has gone; send the same bytes again", 100)
"""Of what is given up because nobody waits for it; heard by another submission of the same bytes, if there is one."""


def overloaded(wait: float) -> Reason:
    """Why nobody is let in who would wait so much longer than the limit; then there may be room."""
    return reasons.BUSY.but("too much is waiting", max(100, milliseconds(wait)))


def milliseconds(seconds: float) -> int:
    """A wait as replies tell it: from 1 ms to an hour."""
    return max(1, int(seconds * 1000)) if seconds < 3600 else 3_600_000
