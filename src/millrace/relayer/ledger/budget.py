"""Who has spent how much: reserve before signing, settle when the real fee is known, refund what was not run.

One account per relayer key, and one per sender, IP address and receiver. A reservation is taken from all of them or
from none, without a moment between check and taking. Times are monotonic seconds; nothing here is lost on restart,
since open and recent reservations are replayed from the audit log.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from millrace.relayer.ledger.fair_shares import Limits, Share, Shares
from millrace.relayer.ledger.windows import DAY, HOUR, MINUTE, Charge, Window, add_to_all, shrink_in_all
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import Budget, CallName, Quotas, Strangers

K = TypeVar("K")

UNDECIDED_SECONDS = 900.0
"""A transaction of which nobody has said by then that it failed counts as one that did not: the tracker follows it no
longer, see `PENDING_SECONDS` there."""


class Spender(msgspec.Struct, frozen=True, gc=False):
    """Who a reservation is for."""

    key: bytes
    """The relayer key that pays."""
    sender: bytes
    ip: str | None = None
    """The client as limits name it: its address, or its /64 network; `None` where it is not known any more."""
    receiver: bytes | None = None
    call: CallName | None = None
    """The function of a contract that is called, if it is one."""
    strangers: Strangers | None = None
    """How large a stranger's shares are; `None` for whom they do not bound."""
    least: int = 0
    """No share is smaller."""
    person: str = ""
    """Who is known by an API key …"""
    own: Budget | None = None
    """… and has this budget instead of shares, and of the quotas of addresses and receivers."""


class _KeyAccount:
    __slots__ = ("at_risk", "at_risk_sign_only", "losses", "undecided", "windows")

    def __init__(self) -> None:
        self.windows = (Window(MINUTE), Window(HOUR), Window(DAY))
        self.at_risk = 0
        self.at_risk_sign_only = 0
        self.undecided = Window(UNDECIDED_SECONDS)
        """Fees of transactions that a block has, and of which it is not known whether they fail."""
        self.losses = Window(HOUR)

    @property
    def may_be_lost(self) -> int:
        """What failing transactions cost in the last hour, and what may still turn out to have failed."""
        return self.losses.total + self.undecided.total + self.at_risk


class _Quota:
    """What one sender, IP address or receiver had sponsored in the last hour, and holds signed only."""

    __slots__ = ("at_risk_sign_only", "window")

    def __init__(self) -> None:
        self.window = Window(HOUR)
        self.at_risk_sign_only = 0


class _Purse(msgspec.Struct, eq=False, gc=False):
    """What reservations of one client for one sender take from, whoever receives."""

    account: _KeyAccount
    sender: _Quota
    ip: _Quota | None
    charged: tuple[Window, ...]
    """Where a charge counts: in the key's windows, and in those of the quotas and of the client's share."""
    key: bytes
    name: bytes
    """Of the sender."""
    address: str | None
    """Of the client."""
    share: Share | None
    """The client's of the key's pools."""

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
    charge: Charge
    sign_only: bool
    by_receiver: Share | None
    """The receiver's share; of whom an API key made known, their own budget."""
    by_function: Share | None
    is_open: bool = True


class Standing(msgspec.Struct, frozen=True, gc=False):
    """What a key, or a person of their own budget, has used of each pool by now."""

    spent_minute: int
    spent_hour: int
    spent_day: int
    at_risk: int
    at_risk_sign_only: int
    lost_hour: int


class Undecided(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The fee of a transaction that ran, until it is known whether it failed."""

    account: _KeyAccount
    charge: Charge
    share: Share | None = None
    """The client's, which a loss counts against."""


class _Table(Generic[K]):
    """Quotas by name, at most `capacity`: the one unused for longest goes first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._quotas: OrderedDict[K, _Quota] = OrderedDict()

    def __len__(self) -> int:
        return len(self._quotas)

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._quotas)

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
        self._shares = Shares(capacity)
        self._limited: Budget | None = None
        self._limits_of: dict[tuple[int, int], Limits] = {}
        """What shares of that budget are, by percent and least, which are those of one policy."""
        self._latest: _Purse | None = None
        """From which was granted last: transactions of a batch usually take from the same one."""

    def reserve(
        self, who: Spender, fee: int, now: float, budget: Budget, quotas: Quotas, *, sign_only: bool = False
    ) -> Reservation:
        """Take `fee` from the key's budget and every quota, or raise `Refused` and take nothing."""
        purse, receiver, by_receiver, by_function = self._admit(who, fee, now, budget, quotas, sign_only)
        return self._take(purse, who, receiver, fee, now, sign_only, by_receiver, by_function)

    def check(self, who: Spender, fee: int, now: float, budget: Budget, quotas: Quotas) -> None:
        """Raise `Refused` unless `reserve` would grant this now. Takes nothing, and is no use of a quota."""
        self._admit(who, fee, now, budget, quotas, sign_only=False)

    def _admit(
        self, who: Spender, fee: int, now: float, budget: Budget, quotas: Quotas, sign_only: bool
    ) -> tuple[_Purse, _Quota | None, Share | None, Share | None]:
        """What the fee is to be taken from: purse, receiver's quota, shares of receiver (or person) and function."""
        purse = self._purse_of(who)
        receiver = None if who.receiver is None else self._receivers.find(who.receiver)
        purse.turn(now)
        _check_budget(purse.account, fee, now, budget, sign_only)
        _check_quotas(purse, receiver, fee, now, quotas, sign_only)
        if who.own is not None:
            person = self._shares.find((b"", who.person))
            person.check(f"the budget of {who.person}", fee, now, Limits.of(who.own), sign_only)
            return purse, receiver, person, None
        by_receiver = None if who.receiver is None else self._shares.find((who.key, who.receiver))
        by_function = None if who.call is None else self._shares.find((who.key, who.call))
        if who.strangers is not None:
            for whose, share, percent in (
                ("the share of this address", purse.share, who.strangers.address_percent),
                ("the share of this receiver", by_receiver, who.strangers.receiver_percent),
                ("the share of this function", by_function, who.strangers.function_percent),
            ):
                if share is not None and percent < 100:
                    share.check(whose, fee, now, self._limits(budget, percent, who.least), sign_only)
        return purse, receiver, by_receiver, by_function

    def restore(self, who: Spender, fee: int, time: float, *, sign_only: bool) -> Reservation:
        """Take what the audit log says was taken at `time`, whatever the limits are now. Oldest first."""
        receiver = None if who.receiver is None else self._receivers.find(who.receiver)
        own = None if who.own is None else self._shares.find((b"", who.person))
        return self._take(self._purse_of(who), who, receiver, fee, time, sign_only, own, None)

    def settle(self, reservation: Reservation, actual: int, now: float) -> Undecided:
        """The transaction ran and cost `actual`; the rest is free again. It counts as lost until `decide` says not."""
        actual = max(0, min(actual, reservation.charge.amount))
        self._close(reservation, actual, now)
        share = reservation.purse.share if reservation.purse.share is not None else reservation.by_receiver
        return _undecided(reservation.purse.account, actual, now, share)

    def undecided(self, key: bytes, fee: int, now: float, who: Spender) -> Undecided:
        """Take over the fee of a transaction that ran before a restart, and of which the end is not known."""
        return _undecided(self._key(key), fee, now, self._share_of(key, who))

    def decide(self, fee: Undecided, now: float, *, failed: bool) -> None:
        """What became of a transaction that ran is known: its fee is lost, or well spent."""
        fee.account.undecided.shrink(fee.charge, fee.charge.amount, now)
        if failed:
            lost = Charge(fee.charge.amount, now)
            fee.account.losses.add(lost)
            if fee.share is not None:
                fee.share.losses.add(lost)
        fee.charge.amount = 0

    def lose(self, key: bytes, fee: int, time: float, who: Spender) -> None:
        """Take over a loss from before a restart, and whose it was, as far as that is known. Oldest first."""
        lost = Charge(fee, time)
        self._key(key).losses.add(lost)
        share = self._share_of(key, who)
        if share is not None:
            share.losses.add(lost)

    def _share_of(self, key: bytes, who: Spender) -> Share | None:
        """The share that counts their losses, remembered as the one used last; `None` where nobody knows it."""
        if who.own is None and who.ip is None:
            return None
        name = (b"", who.person) if who.own is not None else (key, who.ip or "")
        share = self._shares.find(name)
        self._shares.use(name, share)
        return share

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

    def spent_a_second(self, key: bytes, now: float) -> float:
        """What the key spent a second in the last minute, or in the last hour if that was more."""
        minute, hour, _ = self._key(key).windows
        return max(minute.sum(now) / MINUTE, hour.sum(now) / HOUR)

    def standing(self, key: bytes, now: float) -> Standing:
        """What the key has used of its budget."""
        return _standing(self._key(key), now)

    def used_by_keys(self, now: float) -> list[tuple[int, ...]]:
        """What each key has used of the sums of its budget, in the order of `SUMS`."""
        return [
            _used(account, account.undecided.sum(now) + account.losses.sum(now), now) for account in self._keys.values()
        ]

    def used_by_person(self, name: str, now: float) -> tuple[int, ...]:
        """The same of a person known by an API key."""
        share = self._shares.find((b"", name))
        return _used(share, share.losses.sum(now), now)

    def standing_of_person(self, name: str, now: float) -> Standing:
        """What a person known by an API key has used of theirs."""
        return _standing(self._shares.find((b"", name)), now)

    def spent_by(self, sender: bytes, now: float) -> int:
        """What a sender had sponsored in the last hour."""
        return self._senders.find(sender).window.sum(now)

    def senders_of_late(self, most: int) -> list[bytes]:
        """The senders that were granted something last, newest first."""
        return list(itertools.islice(reversed(self._senders), most))

    # ---- insides

    def _key(self, key: bytes) -> _KeyAccount:
        account = self._keys.get(key)
        if account is None:
            account = self._keys[key] = _KeyAccount()
        return account

    def _limits(self, budget: Budget, percent: int, least: int) -> Limits:
        if budget is not self._limited:
            self._limited, self._limits_of = budget, {}
        limits = self._limits_of.get((percent, least))
        if limits is None:
            limits = self._limits_of[percent, least] = Limits.of(budget, percent, least)
        return limits

    def _purse_of(self, who: Spender) -> _Purse:
        """What a reservation for them takes from; quotas that are new are not remembered yet."""
        latest = self._latest
        if latest is not None and (latest.key, latest.name, latest.address) == (who.key, who.sender, who.ip):
            return latest
        account, sender = self._key(who.key), self._senders.find(who.sender)
        ip = None if who.ip is None else self._ips.find(who.ip)
        share = None if who.ip is None else self._shares.find((who.key, who.ip))
        charged: tuple[Window, ...] = (*account.windows, sender.window)
        if ip is not None:
            charged += (ip.window,)
        if share is not None:
            charged += share.windows
        return _Purse(account, sender, ip, charged, who.key, who.sender, who.ip, share)

    def _take(
        self,
        purse: _Purse,
        who: Spender,
        receiver: _Quota | None,
        fee: int,
        now: float,
        sign_only: bool,
        by_receiver: Share | None,
        by_function: Share | None,
    ) -> Reservation:
        """Charge the purse, the receiver and the shares, and remember whose were used last."""
        if purse is not self._latest:  # else nobody has used another since
            self._senders.use(purse.name, purse.sender)
            if purse.address is not None and purse.ip is not None:
                self._ips.use(purse.address, purse.ip)
                if purse.share is not None:
                    self._shares.use((purse.key, purse.address), purse.share)
            self._latest = purse
        charge, account = Charge(fee, now), purse.account
        add_to_all(_windows(purse, receiver, by_receiver, by_function), charge)
        if who.receiver is not None and receiver is not None:
            self._receivers.use(who.receiver, receiver)
        if by_receiver is not None:
            owner = (who.key, who.receiver) if who.own is None and who.receiver is not None else (b"", who.person)
            self._shares.use(owner, by_receiver)
        if who.call is not None and by_function is not None:
            self._shares.use((who.key, who.call), by_function)
        for share in (purse.share, by_receiver, by_function):
            if share is not None:
                share.hold(fee, sign_only)
        account.at_risk += fee
        if sign_only:
            account.at_risk_sign_only += fee
            purse.sender.at_risk_sign_only += fee
            if purse.ip is not None:
                purse.ip.at_risk_sign_only += fee
        return Reservation(purse, receiver, charge, sign_only, by_receiver, by_function)

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
        windows = _windows(purse, reservation.receiver, reservation.by_receiver, reservation.by_function)
        shrink_in_all(windows, charge, charge.amount - actual, now)
        for share in (purse.share, reservation.by_receiver, reservation.by_function):
            if share is not None:
                share.hold(-charge.amount, reservation.sign_only)
        charge.amount = actual


def _windows(
    purse: _Purse, receiver: _Quota | None, by_receiver: Share | None, by_function: Share | None
) -> tuple[Window, ...]:
    """Where a charge counts: one look at all of them takes less than one at each."""
    windows = purse.charged
    if receiver is not None:
        windows += (receiver.window,)
    if by_receiver is not None:
        windows += by_receiver.windows
    if by_function is not None:
        windows += by_function.windows
    return windows


def _used(account: _KeyAccount | Share, lost: int, now: float) -> tuple[int, ...]:
    spent = (window.sum(now) for window in account.windows)
    return (*spent, account.at_risk, account.at_risk_sign_only, lost + account.at_risk)


def _standing(account: _KeyAccount | Share, now: float) -> Standing:
    minute, hour, day = (window.sum(now) for window in account.windows)
    return Standing(minute, hour, day, account.at_risk, account.at_risk_sign_only, account.losses.sum(now))


def _undecided(account: _KeyAccount, fee: int, now: float, share: Share | None = None) -> Undecided:
    charge = Charge(fee, now)
    account.undecided.add(charge)
    return Undecided(account, charge, share)


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


def _exhausted(window: Window, now: float) -> Refused:
    return Refused(reasons.BUDGET_EXHAUSTED.but("try later", _ms(window.wait(now))))


def _spent(quota: _Quota, now: float) -> Refused:
    return Refused(reasons.QUOTA_EXHAUSTED.but("try later", _ms(quota.window.wait(now))))


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
