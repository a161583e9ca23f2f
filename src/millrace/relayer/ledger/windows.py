"""Sums over the last minute, hour and day. Times are monotonic seconds, and come in."""

from __future__ import annotations

import math
from collections import deque

import msgspec

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


class Charge(msgspec.Struct, eq=False, gc=False):
    """An amount that counts in the windows from `time` on; it shrinks when settled, to 0 when refunded."""

    amount: int
    time: float


class Window:
    """The charges of the last `seconds`; `total` is their sum once what has left is dropped."""

    __slots__ = ("charges", "leaves", "seconds", "total")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.charges: deque[Charge] = deque()
        self.leaves = math.inf
        """When the oldest charge leaves."""
        self.total = 0

    def add(self, charge: Charge) -> None:
        charges = self.charges
        if not charges:
            self.leaves = charge.time + self.seconds
        charges.append(charge)
        self.total += charge.amount

    def sum(self, now: float) -> int:
        """What counts now."""
        if now >= self.leaves:
            self.drop(now)
        return self.total

    def drop(self, now: float) -> None:
        """Drop what has left the window."""
        charges, since = self.charges, now - self.seconds
        while charges and charges[0].time <= since:
            self.total -= charges.popleft().amount
        self.leaves = charges[0].time + self.seconds if charges else math.inf

    def shrink(self, charge: Charge, by: int, now: float) -> None:
        """A charge has become smaller; it only counts here while it has not left."""
        self.drop(now)
        if charge.time > now - self.seconds:
            self.total -= by

    def wait(self, now: float) -> float:
        """Seconds until the oldest charge leaves."""
        return self.charges[0].time + self.seconds - now if self.charges else self.seconds
