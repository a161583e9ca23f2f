"""Who has spent how much: reserve before signing, settle when the real fee is known, refund what was not run.

One account per relayer key, and one per sender, IP address and receiver. A reservation is taken from all of them or
from none, without a moment between check and taking. Times are monotonic seconds; nothing here is lost on restart,
since open and recent reservations are replayed from the audit log.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import Generic, TypeVar

import msgspec

from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import Budget, Quotas

K = TypeVar("K")

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
UNDECIDED_SECONDS = 900.0
"""A transaction of which nobody has said by then that it failed counts as one that did not."""


class Spender(msgspec.Struct, frozen=True, gc=False):
    """Who a reservation is for."""

    key: bytes
    """The relayer key that pays."""
    sender: bytes
    ip: str | None = None
    """The client as limits name it: its address, or its /64 network; `None` where it is not known any more."""
    receiver: bytes | None = None


class _Charge(msgspec.Struct, eq=False, gc=False):
    """An amount that counts in the windows from `time` on; it shrinks when settled, to 0 when refunded."""

    amount: int
    time: float


class _Window:
    """The charges of the last `seconds`; `total` is their sum once what has left is dropped."""

    __slots__ = ("charges", "leaves", "seconds", "total")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.charges: deque[_Charge] = deque()
        self.leaves = math.inf
        """When the oldest charge leaves."""
        self.total = 0

    def add(self, charge: _Charge) -> None:
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

    def shrink(self, charge: _Charge, by: int, now: float) -> None:
        """A charge has become smaller; it only counts here while it has not left."""
        self.drop(now)
        if charge.time > now - self.seconds:
            self.total -= by

    def wait(self, now: float) -> float:
        """Seconds until the oldest charge leaves."""
        return self.charges[0].time + self.seconds - now if self.charges else self.seconds


class _KeyAccount:
    __slots__ = ("at_risk", "at_risk_sign_only", "losses", "undecided", "windows")

    def __init__(self) -> None:
        self.windows = (_Window(MINUTE), _Window(HOUR), _Window(DAY))
        self.at_risk = 0
        self.at_risk_sign_only = 0
        self.undecided = _Window(UNDECIDED_SECONDS)
        """Fees of transactions that a block has, and of which it is not known whether they fail."""
        self.losses = _Window(HOUR)

    @property
    def may_be_lost(self) -> int:
        """What failing transactions cost in the last hour, and what may still turn out to have failed."""
        return self.losses.total + self.undecided.total + self.at_risk


class _Quota:
    """What one sender, IP address or receiver had sponsored in the last hour, and holds signed only."""

    __slots__ = ("at_risk_sign_only", "window")

    def __init__(self) -> None:
        self.window = _Window(HOUR)
        self.at_risk_sign_only = 0


class _Purse(msgspec.Struct, eq=False, gc=False):
    """What reservations of one client for one sender take from, whoever receives."""

    account: _KeyAccount
    sender: _Quota
    ip: _Quota | None
    charged: tuple[_Window, ...]
    """Where a charge counts: in the key's windows and in those of the quotas."""
    key: bytes
    name: bytes
    """Of the sender."""
    address: str | None
    """Of the client."""

    def turn(self, now: float) -> None:
        """Drop from all windows what has left them by now, which is hardly ever anything."""
        for window in self.charged:
            if now >= window.leaves:
                window.drop(now)
        for window in (self.account.losses, self.account.undecided):
            if now >= window.leaves:
                window.drop(now)


class Reservation(msgspec.Struct, eq=False, gc=False):
    """What one transaction has taken. Ends by exactly one of `Budgets.settle` and `Budgets.refund`."""

    purse: _Purse
    receiver: _Quota | None
    charge: _Charge
    sign_only: bool
    is_open: bool = True


class Undecided(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The fee of a transaction that ran, until it is known whether it failed."""

    account: _KeyAccount
    charge: _Charge


class _Table(Generic[K]):
    """Quotas by name, at most `capacity`: the one unused for longest goes first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._quotas: OrderedDict[K, _Quota] = OrderedDict()

    def __len__(self) -> int:
        return len(self._quotas)

    def find(self, name: K) -> _Quota:
        """The quota of this name, or a new one, which is not remembered yet."""
        return self._quotas.get(name) or _Quota()

    def use(self, name: K, quota: _Quota) -> None:
        """Remember the quota as the one used last."""
        if name in self._quotas:
            self._quotas.move_to_end(name)
            return
        self._quotas[name] = quota
        if len(self._quotas) > self._capacity:
            self._quotas.popitem(last=False)


class Budgets:
    """The accounts of every key, sender, IP address and receiver.

    At most `capacity` of each of the latter are remembered; the one unused for longest is forgotten first, which
    can only matter to quotas, never to the budget of a key. Only what is granted is a use.
    """

    def __init__(self, capacity: int = 100_000) -> None:
        self._keys: dict[bytes, _KeyAccount] = {}
        self._senders: _Table[bytes] = _Table(capacity)
        self._ips: _Table[str] = _Table(capacity)
        self._receivers: _Table[bytes] = _Table(capacity)
        self._latest: _Purse | None = None
        """From which was granted last: transactions of a batch usually take from the same one."""

    def reserve(
        self, who: Spender, fee: int, now: float, budget: Budget, quotas: Quotas, *, sign_only: bool = False
    ) -> Reservation:
        """Take `fee` from the key's budget and every quota, or raise `Refused` and take nothing."""
        purse, receiver = self._admit(who, fee, now, budget, quotas, sign_only)
        return self._take(purse, who.receiver, receiver, fee, now, sign_only)

    def check(self, who: Spender, fee: int, now: float, budget: Budget, quotas: Quotas) -> None:
        """Raise `Refused` unless `reserve` would grant this now. Takes nothing, and is no use of a quota."""
        self._admit(who, fee, now, budget, quotas, sign_only=False)

    def _admit(
        self, who: Spender, fee: int, now: float, budget: Budget, quotas: Quotas, sign_only: bool
    ) -> tuple[_Purse, _Quota | None]:
        purse = self._purse_of(who)
        receiver = None if who.receiver is None else self._receivers.find(who.receiver)
        purse.turn(now)
        _check_budget(purse.account, fee, now, budget, sign_only)
        _check_quotas(purse, receiver, fee, now, quotas, sign_only)
        return purse, receiver

    def restore(self, who: Spender, fee: int, time: float, *, sign_only: bool) -> Reservation:
        """Take what the audit log says was taken at `time`, whatever the limits are now. Oldest first."""
        receiver = None if who.receiver is None else self._receivers.find(who.receiver)
        return self._take(self._purse_of(who), who.receiver, receiver, fee, time, sign_only)

    def settle(self, reservation: Reservation, actual: int, now: float) -> Undecided:
        """The transaction ran and cost `actual`; the rest is free again. It counts as lost until `decide` says not."""
        actual = max(0, min(actual, reservation.charge.amount))
        self._close(reservation, actual, now)
        return _undecided(reservation.purse.account, actual, now)

    def undecided(self, key: bytes, fee: int, now: float) -> Undecided:
        """Take over the fee of a transaction that ran before a restart, and of which the end is not known."""
        return _undecided(self._key(key), fee, now)

    def decide(self, fee: Undecided, now: float, *, failed: bool) -> None:
        """What became of a transaction that ran is known: its fee is lost, or well spent."""
        fee.account.undecided.shrink(fee.charge, fee.charge.amount, now)
        if failed:
            fee.account.losses.add(_Charge(fee.charge.amount, now))
        fee.charge.amount = 0

    def lose(self, key: bytes, fee: int, time: float) -> None:
        """Take over a loss from before a restart. Oldest first."""
        self._key(key).losses.add(_Charge(fee, time))

    def refund(self, reservation: Reservation, now: float) -> None:
        """The transaction was never signed, or can never run: all of it is free again."""
        self._close(reservation, 0, now)

    def left(self, key: bytes, now: float, budget: Budget) -> int:
        """What the key may still reserve now."""
        account = self._key(key)
        limits = (budget.per_minute, budget.per_hour, budget.per_day)
        lost = account.losses.sum(now) + account.undecided.sum(now) + account.at_risk
        rooms = [budget.at_risk - account.at_risk, budget.loss_per_hour - lost]
        for window, limit in zip(account.windows, limits, strict=True):
            rooms.append(limit - window.sum(now))
        return max(0, min(rooms))

    def at_risk(self, key: bytes) -> int:
        """What the key has signed and is not yet known to be over."""
        return self._key(key).at_risk

    def lost(self, key: bytes, now: float) -> int:
        """What failing transactions cost the key in the last hour."""
        return self._key(key).losses.sum(now)

    # ---- insides

    def _key(self, key: bytes) -> _KeyAccount:
        account = self._keys.get(key)
        if account is None:
            account = self._keys[key] = _KeyAccount()
        return account

    def _purse_of(self, who: Spender) -> _Purse:
        """What a reservation for them takes from; quotas that are new are not remembered yet."""
        latest = self._latest
        if latest is not None and (latest.key, latest.name, latest.address) == (who.key, who.sender, who.ip):
            return latest
        account, sender = self._key(who.key), self._senders.find(who.sender)
        ip = None if who.ip is None else self._ips.find(who.ip)
        charged = (*account.windows, sender.window) if ip is None else (*account.windows, sender.window, ip.window)
        return _Purse(account, sender, ip, charged, who.key, who.sender, who.ip)

    def _take(
        self, purse: _Purse, name: bytes | None, receiver: _Quota | None, fee: int, now: float, sign_only: bool
    ) -> Reservation:
        """Charge the purse and the receiver of this name, and remember whose quotas were used last."""
        if purse is not self._latest:  # else nobody has used another since
            self._senders.use(purse.name, purse.sender)
            if purse.address is not None and purse.ip is not None:
                self._ips.use(purse.address, purse.ip)
            self._latest = purse
        charge, account = _Charge(fee, now), purse.account
        for window in purse.charged:
            window.add(charge)
        if name is not None and receiver is not None:
            self._receivers.use(name, receiver)
            receiver.window.add(charge)
        account.at_risk += fee
        if sign_only:
            account.at_risk_sign_only += fee
            purse.sender.at_risk_sign_only += fee
            if purse.ip is not None:
                purse.ip.at_risk_sign_only += fee
        return Reservation(purse, receiver, charge, sign_only)

    def _close(self, reservation: Reservation, actual: int, now: float) -> None:
        if not reservation.is_open:
            raise ValueError("a reservation ends once")
        reservation.is_open = False
        charge, purse = reservation.charge, reservation.purse
        purse.account.at_risk -= charge.amount
        if reservation.sign_only:
            purse.account.at_risk_sign_only -= charge.amount
            purse.sender.at_risk_sign_only -= charge.amount
            if purse.ip is not None:
                purse.ip.at_risk_sign_only -= charge.amount
        for window in purse.charged:
            window.shrink(charge, charge.amount - actual, now)
        if reservation.receiver is not None:
            reservation.receiver.window.shrink(charge, charge.amount - actual, now)
        charge.amount = actual


def _undecided(account: _KeyAccount, fee: int, now: float) -> Undecided:
    charge = _Charge(fee, now)
    account.undecided.add(charge)
    return Undecided(account, charge)


def _check_budget(account: _KeyAccount, fee: int, now: float, budget: Budget, sign_only: bool) -> None:
    """Raise `Refused` unless the key may reserve so much; its windows have turned."""
    minute, hour, day = account.windows
    if minute.total + fee > budget.per_minute:
        raise _exhausted(minute, now)
    if hour.total + fee > budget.per_hour:
        raise _exhausted(hour, now)
    if day.total + fee > budget.per_day:
        raise _exhausted(day, now)
    if account.at_risk + fee > budget.at_risk or (
        sign_only and account.at_risk_sign_only + fee > budget.at_risk_sign_only
    ):
        raise Refused(reasons.BUDGET_EXHAUSTED.but("too much is signed and not yet executed", 10_000))
    if account.may_be_lost + fee > budget.loss_per_hour:
        raise Refused(reasons.BUDGET_EXHAUSTED.but("too much went to transactions that failed, or may", 10_000))


def _check_quotas(
    purse: _Purse, receiver: _Quota | None, fee: int, now: float, quotas: Quotas, sign_only: bool
) -> None:
    """Raise `Refused` unless sender, IP address and receiver may have so much sponsored; the purse has turned."""
    sender, ip = purse.sender, purse.ip
    if sender.window.total + fee > quotas.sender_per_hour:
        raise _spent(sender, now)
    if ip is not None and ip.window.total + fee > quotas.ip_per_hour:
        raise _spent(ip, now)
    if receiver is not None and receiver.window.sum(now) + fee > quotas.receiver_per_hour:
        raise _spent(receiver, now)
    if sign_only and (
        sender.at_risk_sign_only + fee > quotas.sender_at_risk_sign_only
        or (ip is not None and ip.at_risk_sign_only + fee > quotas.ip_at_risk_sign_only)
    ):
        raise Refused(reasons.QUOTA_EXHAUSTED.but("broadcast what was signed before, or let its nonce pass", 10_000))


def _exhausted(window: _Window, now: float) -> Refused:
    return Refused(reasons.BUDGET_EXHAUSTED.but("try later", _ms(window.wait(now))))


def _spent(quota: _Quota, now: float) -> Refused:
    return Refused(reasons.QUOTA_EXHAUSTED.but("try later", _ms(quota.window.wait(now))))


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
