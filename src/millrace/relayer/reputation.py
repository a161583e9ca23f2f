"""Senders whose sponsored transactions keep failing wait, longer each time. Bounded; time comes in."""

from __future__ import annotations

from collections import OrderedDict

from millrace.relayer import reasons
from millrace.relayer.policy import Quotas
from millrace.relayer.reasons import Refused


class Reputation:
    """Failures in a row of up to `capacity` senders; the one that failed longest ago is forgiven first."""

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._failures: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def learn(self, sender: bytes, failed: bool, now: float, quotas: Quotas) -> None:
        """A sponsored transaction of `sender` ended; a success clears its name."""
        if not failed:
            self._failures.pop(sender, None)
            return
        count = self._failures.pop(sender, (0, 0.0))[0] + 1
        excess = count - quotas.failures
        ban = min(quotas.first_ban_seconds * 2.0 ** min(excess, 60), quotas.longest_ban_seconds)
        self._failures[sender] = (count, now + ban if excess >= 0 else 0.0)
        if len(self._failures) > self._capacity:
            self._failures.popitem(last=False)

    def check(self, sender: bytes, now: float) -> None:
        """Raise `Refused` while a sender has to wait."""
        until = self._failures.get(sender, (0, 0.0))[1]
        if until > now:
            wait = int((until - now) * 1000)
            raise Refused(reasons.SENDER_THROTTLED.but("its sponsored transactions keep failing", wait))
