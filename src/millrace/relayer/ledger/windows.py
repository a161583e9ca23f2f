"""Sums over the last minute, hour and day. Times are monotonic seconds, and come in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

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
        add_to_all((self,), charge)

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
        shrink_in_all((self,), charge, by, now)

    def wait(self, now: float) -> float:
        """Seconds until the oldest charge leaves."""
        return self.charges[0].time + self.seconds - now if self.charges else self.seconds


def add_to_all(windows: Iterable[Window], charge: Charge) -> None:
    """Count a charge in windows: a transaction has a dozen, and a call for each would take longer than all the rest."""
    time, amount = charge.time, charge.amount
    for window in windows:
        if not window.charges:
            window.leaves = time + window.seconds
        window.charges.append(charge)
        window.total += amount


def shrink_in_all(windows: Iterable[Window], charge: Charge, by: int, now: float) -> None:
    """A charge has become smaller, see `Window.shrink`."""
    time = charge.time
    for window in windows:
        charges, since = window.charges, now - window.seconds
        if charges and charges[0].time <= since:
            window.drop(now)
        if time > since:
            window.total -= by
