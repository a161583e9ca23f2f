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
from millrace.relayer.rules.strangers import Part, Parts

_NOT_EXECUTED = "is signed and not yet executed"
_LOST = "went to transactions that failed, or may"

Name = tuple[bytes, str | bytes | CallName]
"""The key whose pools they are, and whose share: an address's, a receiver's or a function's."""


class Share:
    """What one of them holds of one key's pools, or a key's own account: what all hold."""

    __slots__ = ("at_risk", "at_risk_sign_only", "losses", "undecided", "windows")

    def __init__(self) -> None:
        self.windows = (Window(MINUTE), Window(HOUR), Window(DAY))
        self.losses = Window(HOUR)
        self.undecided = 0
        """Fees of transactions that a block has, and of which it is not known whether they fail."""
        self.at_risk = 0
        self.at_risk_sign_only = 0

    @property
    def may_be_lost(self) -> int:
        """What failing transactions cost in the last hour, and what may still turn out to have failed."""
        return self.losses.total + self.undecided + self.at_risk

    @property
    def is_empty(self) -> bool:
        """Whether nothing counts in it, as far as its windows have turned."""
        return not (self.at_risk or self.losses.charges or any(window.charges for window in self.windows))

    def turn(self, now: float) -> None:
        """Drop from all windows what has left them by now."""
        for window in (*self.windows, self.losses):
            if now >= window.leaves:
                window.drop(now)

    def check(self, whose: str, fee: int, now: float, limits: Limits, sign_only: bool) -> None:
        """Raise `Refused` unless it may hold so much more."""
        minute, hour, day = self.windows
        for window in self.windows:
            if now >= window.leaves:
                window.drop(now)
        in_minute, in_hour, in_day = limits.spent
        if minute.total + fee > in_minute:
            raise _used_up(whose, minute, now)
        if hour.total + fee > in_hour:
            raise _used_up(whose, hour, now)
        if day.total + fee > in_day:
            raise _used_up(whose, day, now)
        if self.at_risk + fee > limits.at_risk or (
            sign_only and self.at_risk_sign_only + fee > limits.at_risk_sign_only
        ):
            raise Refused(reasons.QUOTA_EXHAUSTED.but(f"{whose} {_NOT_EXECUTED}", 10_000))
        if self.losses.sum(now) + self.at_risk + fee > limits.lost:
            raise Refused(reasons.QUOTA_EXHAUSTED.but(f"{whose} {_LOST}", 10_000))


def _used_up(whose: str, window: Window, now: float) -> Refused:
    return Refused(reasons.QUOTA_EXHAUSTED.but(f"{whose} is used up", max(1, int(window.wait(now) * 1000))))


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


ADDRESS = "the share of this address"
STRANGERS = "what strangers may have"


def fits_easily(own: Share, account: Share, fee: int, parts: Parts, sign_only: bool) -> bool:
    """Whether an address may surely hold so much more, and the key, too: no bound is near, as hardly ever one is.

    Then `check_address` says the same, and takes twice as long.
    """
    for mine, total, part in zip(own.windows, account.windows, parts.spent):  # noqa: B905  `strict` is slow
        held, everybody = mine.total, total.total
        if everybody + fee > part.together or held + fee > part.alone or everybody - held > part.quiet:
            return False
    part, held, everybody = parts.at_risk, own.at_risk, account.at_risk
    if everybody + fee > part.together or held + fee > part.alone or everybody - held > part.quiet:
        return False
    if sign_only:
        part, held, everybody = parts.at_risk_sign_only, own.at_risk_sign_only, account.at_risk_sign_only
        if everybody + fee > part.together or held + fee > part.alone or everybody - held > part.quiet:
            return False
    part, held, everybody = parts.lost, own.may_be_lost, account.may_be_lost
    return everybody + fee <= part.together and held + fee <= part.alone and everybody - held <= part.quiet


def check_address(
    own: Share, account: Share, people: Share, fee: int, now: float, parts: Parts, sign_only: bool
) -> None:
    """Raise `Refused` unless an address of strangers may hold so much more, and all of them may.

    `account` is what everybody holds of the key's pools, `people` what known people do; all windows have turned.
    """
    for mine, total, known, part in zip(own.windows, account.windows, people.windows, parts.spent, strict=True):
        strangers = total.total - known.total
        if not part.has_room(mine.total, strangers, fee):
            ends = (mine if mine.charges else total).wait(now)
            raise _refused(part, strangers, fee, "is used up", max(1, int(ends * 1000)))
    strangers = account.at_risk - people.at_risk
    if not parts.at_risk.has_room(own.at_risk, strangers, fee):
        raise _refused(parts.at_risk, strangers, fee, _NOT_EXECUTED)
    if sign_only:
        strangers, part = account.at_risk_sign_only - people.at_risk_sign_only, parts.at_risk_sign_only
        if not part.has_room(own.at_risk_sign_only, strangers, fee):
            raise _refused(part, strangers, fee, _NOT_EXECUTED)
    strangers = account.may_be_lost - people.may_be_lost
    if not parts.lost.has_room(own.may_be_lost, strangers, fee):
        raise _refused(parts.lost, strangers, fee, _LOST)


def _refused(part: Part, strangers: int, fee: int, why: str, wait_ms: int = 10_000) -> Refused:
    """It is the address's own share that does not do, or what all strangers have."""
    if strangers + fee > part.together:
        return Refused(reasons.BUDGET_EXHAUSTED.but(f"{STRANGERS} {why}", wait_ms))
    return Refused(reasons.QUOTA_EXHAUSTED.but(f"{ADDRESS} {why}", wait_ms))


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
