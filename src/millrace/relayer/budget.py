"""Who has spent how much: reserve before signing, settle when the real fee is known, refund what was not run.

One account per relayer key, per sender and per IP address. A reservation is taken from all of them or from
none, without a moment between check and taking. Times are monotonic seconds; nothing here is lost on restart,
since open and recent reservations are replayed from the journal.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TypeVar

from millrace.relayer import reasons
from millrace.relayer.policy import Budget, Quotas
from millrace.relayer.reasons import Refused

K = TypeVar("K")

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


class _Charge:
    """An amount that counts in the windows from `time` on; it shrinks when settled, to 0 when refunded."""

    __slots__ = ("amount", "time")

    def __init__(self, amount: int, time: float) -> None:
        self.amount = amount
        self.time = time


class _Window:
    """The sum of the charges of the last `seconds`."""

    __slots__ = ("_charges", "_seconds", "total")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._charges: deque[_Charge] = deque()
        self.total = 0

    def add(self, charge: _Charge) -> None:
        self._charges.append(charge)
        self.total += charge.amount

    def forget(self, now: float) -> None:
        """Drop what has left the window."""
        while self._charges and self._charges[0].time <= now - self._seconds:
            self.total -= self._charges.popleft().amount

    def shrink(self, charge: _Charge, by: int, now: float) -> None:
        """A charge has become smaller; it only counts here while it has not left."""
        self.forget(now)
        if charge.time > now - self._seconds:
            self.total -= by

    def wait(self, now: float) -> float:
        """Seconds until the oldest charge leaves."""
        return self._charges[0].time + self._seconds - now if self._charges else self._seconds


class _KeyAccount:
    __slots__ = ("at_risk", "at_risk_sign_only", "windows")

    def __init__(self) -> None:
        self.windows = (_Window(MINUTE), _Window(HOUR), _Window(DAY))
        self.at_risk = 0
        self.at_risk_sign_only = 0


class Reservation:
    """What one transaction has taken. Ends by exactly one of `Ledger.settle` and `Ledger.refund`."""

    __slots__ = ("account", "charge", "is_open", "sign_only", "windows")

    def __init__(self, account: _KeyAccount, windows: tuple[_Window, ...], charge: _Charge, sign_only: bool) -> None:
        self.account = account
        self.windows = windows
        self.charge = charge
        self.sign_only = sign_only
        self.is_open = True


class Ledger:
    """The accounts of every key, sender and IP address.

    At most `capacity` senders and as many IP addresses are remembered; the one unused for longest is forgotten
    first, which can only matter to quotas, never to the budget of a key.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._capacity = capacity
        self._keys: dict[bytes, _KeyAccount] = {}
        self._senders: OrderedDict[bytes, _Window] = OrderedDict()
        self._ips: OrderedDict[str, _Window] = OrderedDict()

    def reserve(
        self,
        key: bytes,
        sender: bytes,
        ip: str,
        fee: int,
        now: float,
        budget: Budget,
        quotas: Quotas,
        *,
        sign_only: bool = False,
    ) -> Reservation:
        """Take `fee` from the key's budget and both quotas, or raise `Refused` and take nothing."""
        account = self._key(key)
        limits = (budget.per_minute, budget.per_hour, budget.per_day)
        for window, limit in zip(account.windows, limits, strict=True):
            window.forget(now)
            if window.total + fee > limit:
                raise Refused(reasons.BUDGET_EXHAUSTED.but("try later", _ms(window.wait(now))))
        if account.at_risk + fee > budget.at_risk or (
            sign_only and account.at_risk_sign_only + fee > budget.at_risk_sign_only
        ):
            raise Refused(reasons.BUDGET_EXHAUSTED.but("too much is signed and not yet executed", 10_000))
        of_sender = _touch(self._senders, sender, self._capacity)
        of_ip = _touch(self._ips, ip, self._capacity)
        for window, limit in ((of_sender, quotas.sender_per_hour), (of_ip, quotas.ip_per_hour)):
            window.forget(now)
            if window.total + fee > limit:
                raise Refused(reasons.QUOTA_EXHAUSTED.but("try later", _ms(window.wait(now))))
        return self._take(key, sender, ip, fee, now, sign_only)

    def restore(self, key: bytes, sender: bytes, ip: str, fee: int, time: float, *, sign_only: bool) -> Reservation:
        """Take what the journal says was taken at `time`, whatever the limits are now. Oldest first."""
        return self._take(key, sender, ip, fee, time, sign_only)

    def settle(self, reservation: Reservation, actual: int, now: float) -> None:
        """The transaction ran and cost `actual`; the rest is free again."""
        self._close(reservation, min(actual, reservation.charge.amount), now)

    def refund(self, reservation: Reservation, now: float) -> None:
        """The transaction was never signed, or can never run: all of it is free again."""
        self._close(reservation, 0, now)

    def left(self, key: bytes, now: float, budget: Budget) -> int:
        """What the key may still reserve now."""
        account = self._key(key)
        limits = (budget.per_minute, budget.per_hour, budget.per_day)
        rooms = [budget.at_risk - account.at_risk]
        for window, limit in zip(account.windows, limits, strict=True):
            window.forget(now)
            rooms.append(limit - window.total)
        return max(0, min(rooms))

    def at_risk(self, key: bytes) -> int:
        """What the key has signed and is not yet known to be over."""
        return self._key(key).at_risk

    def _key(self, key: bytes) -> _KeyAccount:
        return self._keys.setdefault(key, _KeyAccount())

    def _take(self, key: bytes, sender: bytes, ip: str, fee: int, now: float, sign_only: bool) -> Reservation:
        charge = _Charge(fee, now)
        account = self._key(key)
        of_sender = _touch(self._senders, sender, self._capacity)
        of_ip = _touch(self._ips, ip, self._capacity)
        windows = (*account.windows, of_sender, of_ip)
        for window in windows:
            window.add(charge)
        account.at_risk += fee
        account.at_risk_sign_only += fee if sign_only else 0
        return Reservation(account, windows, charge, sign_only)

    def _close(self, reservation: Reservation, actual: int, now: float) -> None:
        if not reservation.is_open:
            raise ValueError("a reservation ends once")
        reservation.is_open = False
        charge, account = reservation.charge, reservation.account
        account.at_risk -= charge.amount
        account.at_risk_sign_only -= charge.amount if reservation.sign_only else 0
        for window in reservation.windows:
            window.shrink(charge, charge.amount - actual, now)
        charge.amount = actual


def _touch(windows: OrderedDict[K, _Window], name: K, capacity: int) -> _Window:
    window = windows.get(name)
    if window is None:
        window = windows[name] = _Window(HOUR)
        if len(windows) > capacity:
            windows.popitem(last=False)
    windows.move_to_end(name)
    return window


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
