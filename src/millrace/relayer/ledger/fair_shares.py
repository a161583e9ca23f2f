"""What one address, one receiver or one function may take of a key's pools, so that nobody takes it all from others.

A share counts what its owner holds of each pool of one key: of the budgets of a minute, an hour and a day, of what is
at risk, of what is only signed, and of what may be lost to failing transactions.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from millrace.relayer.ledger.windows import DAY, HOUR, MINUTE, Charge, Window, add_to_all, shrink_in_all
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

    def take(self, charge: Charge, sign_only: bool) -> None:
        """A reservation holds so much from now on."""
        add_to_all(self.windows, charge)
        self.at_risk += charge.amount
        if sign_only:
            self.at_risk_sign_only += charge.amount

    def close(self, charge: Charge, actual: int, now: float, sign_only: bool) -> None:
        """The reservation is over, and cost `actual`."""
        shrink_in_all(self.windows, charge, charge.amount - actual, now)
        self.at_risk -= charge.amount
        if sign_only:
            self.at_risk_sign_only -= charge.amount

    def check(self, whose: str, fee: int, now: float, rule: Rule, sign_only: bool) -> None:
        """Raise `Refused` unless it may hold so much more."""
        budget = rule.budget
        for window, pool in zip(self.windows, (budget.per_minute, budget.per_hour, budget.per_day), strict=True):
            if window.sum(now) + fee > rule.of(pool):
                wait = max(1, int(window.wait(now) * 1000))
                raise Refused(reasons.QUOTA_EXHAUSTED.but(f"{whose} is used up", wait))
        if self.at_risk + fee > rule.of(budget.at_risk) or (
            sign_only and self.at_risk_sign_only + fee > rule.of(budget.at_risk_sign_only)
        ):
            text = f"{whose} is signed and not yet executed"
            raise Refused(reasons.QUOTA_EXHAUSTED.but(text, 10_000))
        if self.losses.sum(now) + self.at_risk + fee > rule.of(budget.loss_per_hour):
            text = f"{whose} went to transactions that failed, or may"
            raise Refused(reasons.QUOTA_EXHAUSTED.but(text, 10_000))


class Rule(msgspec.Struct, frozen=True):
    """How large a share is."""

    budget: Budget
    percent: int
    """Of each pool; 100 is all of it."""
    least: int
    """And so much in any case: one transaction may always cost as much as the cap of fees says."""

    def of(self, pool: int) -> int:
        """The share of a pool."""
        return max(self.least, pool * self.percent // 100)


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
