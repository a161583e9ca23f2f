"""What one address, one receiver or one function may take of a key's pools, so that nobody takes it all from others.

A share counts what its owner holds of each pool of one key: of the budgets of a minute, an hour and a day, of what is
at risk, of what is only signed, and of what may be lost to failing transactions.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from millrace.relayer.ledger.windows import DAY, HOUR, MINUTE, Window
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import Budget, CallName

Name = tuple[bytes, str | bytes | CallName]
"""The key whose pools they are, and whose share: an address's, a receiver's or a function's."""


class Share:
    """What one of them holds of one key's pools."""

    __slots__ = ("at_risk", "at_risk_sign_only", "losses", "windows")

    def __init__(self) -> None:
        self.windows = (Window(MINUTE), Window(HOUR), Window(DAY))
        self.losses = Window(HOUR)
        self.at_risk = 0
        self.at_risk_sign_only = 0

    def hold(self, fee: int, sign_only: bool) -> None:
        """A reservation, which counts in the windows, is at risk from now on; with a minus it is over."""
        self.at_risk += fee
        if sign_only:
            self.at_risk_sign_only += fee

    def check(self, whose: str, fee: int, now: float, limits: Limits, sign_only: bool) -> None:
        """Raise `Refused` unless it may hold so much more."""
        for window, most in zip(self.windows, limits.spent, strict=True):
            if now >= window.leaves:
                window.drop(now)
            if window.total + fee > most:
                wait = max(1, int(window.wait(now) * 1000))
                raise Refused(reasons.QUOTA_EXHAUSTED.but(f"{whose} is used up", wait))
        if self.at_risk + fee > limits.at_risk or (
            sign_only and self.at_risk_sign_only + fee > limits.at_risk_sign_only
        ):
            text = f"{whose} is signed and not yet executed"
            raise Refused(reasons.QUOTA_EXHAUSTED.but(text, 10_000))
        if self.losses.sum(now) + self.at_risk + fee > limits.lost:
            text = f"{whose} went to transactions that failed, or may"
            raise Refused(reasons.QUOTA_EXHAUSTED.but(text, 10_000))


class Limits(msgspec.Struct, frozen=True):
    """How large a share is."""

    spent: tuple[int, int, int]
    """In a minute, an hour and a day."""
    at_risk: int
    at_risk_sign_only: int
    lost: int

    @classmethod
    def of(cls, budget: Budget, percent: int = 100, least: int = 0) -> Limits:
        """So many percent of each pool, and `least` in any case: what the cap of fees says one transaction may cost."""

        def share(pool: int) -> int:
            return max(least, pool * percent // 100)

        spent = share(budget.per_minute), share(budget.per_hour), share(budget.per_day)
        return cls(spent, share(budget.at_risk), share(budget.at_risk_sign_only), share(budget.loss_per_hour))


class Shares:
    """At most `capacity` of them; the one unused for longest is forgotten first."""

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._shares: OrderedDict[Name, Share] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shares)

    def find(self, name: Name) -> Share:
        """The share of this name, or a new one, which is not remembered yet."""
        return self._shares.get(name) or Share()

    def use(self, name: Name, share: Share) -> None:
        """Remember it as the one used last."""
        if name in self._shares:
            self._shares.move_to_end(name)
            return
        self._shares[name] = share
        if len(self._shares) > self._capacity:
            self._shares.popitem(last=False)
