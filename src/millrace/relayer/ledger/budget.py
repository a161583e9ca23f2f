"""Who has spent how much: reserve before signing, settle when the real fee is known, refund what was not run.

One account per relayer key, and one per sender, IP address and receiver. A reservation is taken from all of them or
from none, without a moment between check and taking. Times are monotonic seconds; nothing here is lost on restart,
since open and recent reservations are replayed from the audit log.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec

from millrace.relayer.ledger.fair_shares import Limits, Share, Shares, check_address, fits_easily
from millrace.relayer.ledger.windows import HOUR, MINUTE, Charge, Window, add_to_all, shrink_in_all
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules.policy import SUMS, Budget, CallName, Quotas, Strangers
from millrace.relayer.rules.strangers import Parts

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
    """… and has this budget instead of shares, and of the quotas of addresses and receivers. No `ip` is named then."""


class _KeyAccount(Share):
    """What everybody holds of a key's pools."""

    __slots__ = ("pending", "people")

    def __init__(self) -> None:
        super().__init__()
        self.pending = _Pending()
        self.people: Share | None = None
        """What known people hold of them, once there was one: the rest is strangers'."""


class _Pending(Window):
    """Fees of transactions that a block has, until it is known whether they fail, or for `UNDECIDED_SECONDS`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(UNDECIDED_SECONDS)

    def drop(self, now: float) -> None:
        """Drop what has left the window, here and from whose it was."""
        since = now - self.seconds
        for fee in itertools.takewhile(lambda charge: charge.time <= since, self.charges):
            assert isinstance(fee, Undecided)
            fee.count(-fee.amount)
        super().drop(now)


_NOBODY = Share()
"""What people hold where there are none."""


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
    share: Share | None
    """Of an address, its share of the key's pools; of a person, their own budget; `None` where nobody knows who."""
    people: Share | None
    """For a person: what all known people hold of the key's pools."""
    charged: tuple[Window, ...]
    """Where a charge counts: in the windows of the key, of the quotas and of shares."""
    key: bytes
    name: bytes
    """Of the sender."""
    address: str | None
    """Of the client."""
    person: str
    is_known: bool = False
    turns: float = -math.inf
    """Nothing leaves a window before; found out for who comes again."""

    def turn(self, now: float) -> None:
        """Drop from all windows what has left them by now, which is hardly ever anything."""
        if now < self.turns:
            return
        account, share = self.account, self.share
        for window in self.charged:
            if now >= window.leaves:
                window.drop(now)
        for window in (account.losses, account.pending):
            if now >= window.leaves:
                window.drop(now)
        if share is not None and now >= share.losses.leaves:
            share.losses.drop(now)
        if self.is_known:
            others = (account.losses, account.pending, account.losses if share is None else share.losses)
            # What comes from now on stays for a minute at least.
            self.turns = min(now + MINUTE, min([window.leaves for window in self.charged + others]))
        self.is_known = True


class Reservation(msgspec.Struct, eq=False, gc=False):
    """What one transaction has taken. Ends by exactly one of `Budgets.settle` and `Budgets.refund`."""

    purse: _Purse
    receiver: _Quota | None
    charge: Charge
    sign_only: bool
    by_receiver: Share | None
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


class Undecided(Charge, eq=False, gc=False):
    """The fee of a transaction that ran, until it is known whether it failed."""

    account: _KeyAccount
    share: Share | None
    """The client's, which a loss counts against."""
    people: Share | None
    """What all known people hold of the key, for one of them."""

    def count(self, fee: int) -> None:
        """So much more may be lost, or less."""
        self.account.undecided += fee
        if self.share is not None:
            self.share.undecided += fee
        if self.people is not None:
            self.people.undecided += fee


class _Bounds(NamedTuple):
    """What strangers may take of a budget; made once for a policy."""

    budget: Budget
    strangers: Strangers
    least: int
    parts: Parts
    receiver: Limits | None
    function: Limits | None

    @classmethod
    def of(cls, budget: Budget, strangers: Strangers, least: int) -> _Bounds:
        parts = Parts.of(budget, strangers.together_percent, strangers.address_percent, least)
        receiver, function = (
            Limits.of(budget, percent, least) if percent < 100 else None
            for percent in (strangers.receiver_percent, strangers.function_percent)
        )
        return cls(budget, strangers, least, parts, receiver, function)


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
        self._people: dict[str, Share] = {}
        """Budgets of those whom the policy knows, which nobody else's traffic pushes out."""
        self._bounds: dict[int, _Bounds] = {}
        """By the identity of what the policy says of strangers, of one budget."""
        self._latest: _Purse | None = None
        """From which was granted last: transactions of a batch usually take from the same one."""
        self.refused_at = -math.inf
        """When an address got nothing as its part, or all strangers', was used up, last."""

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
        account, share, strangers = purse.account, purse.share, who.strangers
        bounds = None
        if strangers is not None:
            bounds = self._bounds.get(id(strangers))
            if bounds is None or bounds.budget is not budget or bounds.least != who.least:
                bounds = self._bound(budget, strangers, who.least)
        # What fits into an address's share easily fits into the budget, of which that is a part.
        easy = bounds is not None and share is not None and fits_easily(share, account, fee, bounds.parts, sign_only)
        if not easy:
            _check_budget(account, fee, now, budget, sign_only)
        _check_quotas(purse, receiver, fee, now, quotas, sign_only)
        if who.own is not None:
            assert share is not None
            share.check(f"the budget of {who.person}", fee, now, Limits.of(who.own), sign_only)
            return purse, receiver, None, None
        by_receiver = None if who.receiver is None else self._shares.find((who.key, who.receiver))
        by_function = None if who.call is None else self._shares.find((who.key, who.call))
        if bounds is None:
            return purse, receiver, by_receiver, by_function
        if not easy and share is not None:
            people = account.people or _NOBODY
            people.turn(now)
            try:
                check_address(share, account, people, fee, now, bounds.parts, sign_only)
            except Refused:
                self.refused_at = now
                raise
        if by_receiver is not None and bounds.receiver is not None:
            by_receiver.check("the share of this receiver", fee, now, bounds.receiver, sign_only)
        if by_function is not None and bounds.function is not None:
            by_function.check("the share of this function", fee, now, bounds.function, sign_only)
        return purse, receiver, by_receiver, by_function

    def restore(self, who: Spender, fee: int, time: float, *, sign_only: bool) -> Reservation:
        """Take what the audit log says was taken at `time`, whatever the limits are now. Oldest first."""
        receiver = None if who.receiver is None else self._receivers.find(who.receiver)
        reservation = self._take(self._purse_of(who), who, receiver, fee, time, sign_only, None, None)
        self._latest = None  # what came before leaves before: the next one looks
        return reservation

    def settle(self, reservation: Reservation, actual: int, now: float) -> Undecided:
        """The transaction ran and cost `actual`; the rest is free again. It counts as lost until `decide` says not."""
        actual = max(0, min(actual, reservation.charge.amount))
        self._close(reservation, actual, now)
        purse = reservation.purse
        return _undecided(Undecided(actual, now, purse.account, purse.share, purse.people))

    def undecided(self, key: bytes, fee: int, now: float, who: Spender) -> Undecided:
        """Take over the fee of a transaction that ran before a restart, and of which the end is not known."""
        return _undecided(Undecided(fee, now, *self._holders(key, who)))

    def decide(self, fee: Undecided, now: float, *, failed: bool) -> None:
        """What became of a transaction that ran is known: its fee is lost, or well spent."""
        amount, pending = fee.amount, fee.account.pending
        if fee.time > now - UNDECIDED_SECONDS:
            pending.total -= amount
            fee.count(-amount)
        else:  # it has left, or leaves with this
            pending.drop(now)
        if failed:
            add_to_all(_losses_of(fee.account, fee.share, fee.people), Charge(amount, now))
        fee.amount = 0

    def lose(self, key: bytes, fee: int, time: float, who: Spender) -> None:
        """Take over a loss from before a restart, and whose it was, as far as that is known. Oldest first."""
        add_to_all(_losses_of(*self._holders(key, who)), Charge(fee, time))

    def _holders(self, key: bytes, who: Spender) -> tuple[_KeyAccount, Share | None, Share | None]:
        """Where their losses count: the key, their share, what known people hold. A share is used by this."""
        self._latest = None  # what came before leaves before: the next one looks
        account = self._key(key)
        if who.own is not None:
            return account, self._people.setdefault(who.person, Share()), _people_of(account)
        if who.ip is None:  # nobody knows who
            return account, None, None
        share = self._shares.find((key, who.ip))
        self._shares.use((key, who.ip), share)
        return account, share, None

    def refund(self, reservation: Reservation, now: float) -> None:
        """The transaction was never signed, or can never run: all of it is free again."""
        self._close(reservation, 0, now)

    def rooms(self, key: bytes, now: float, budget: Budget) -> dict[str, int]:
        """What is left of each sum of the key's budget."""
        used = zip(SUMS, _used_of_key(self._key(key), now), strict=True)
        return {name: max(0, getattr(budget, name) - amount) for name, amount in used}

    def left(self, key: bytes, now: float, budget: Budget) -> int:
        """What the key may still reserve now, for what is broadcast."""
        return min(room for name, room in self.rooms(key, now, budget).items() if name != "at_risk_sign_only")

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
        return [_used_of_key(account, now) for account in self._keys.values()]

    def used_by_person(self, name: str, now: float) -> tuple[int, ...]:
        """The same of a person known by an API key."""
        share = self._people.get(name) or _NOBODY
        return _used(share, share.losses.sum(now), now)

    def standing_of_person(self, name: str, now: float) -> Standing:
        """What a person known by an API key has used of theirs."""
        return _standing(self._people.get(name) or _NOBODY, now)

    def forget_people(self, named: Container[str], now: float) -> None:
        """Let go of budgets of those whom the policy names no more, once nothing counts in them."""
        for name in [name for name in self._people if name not in named]:
            self._people[name].turn(now)
            if self._people[name].is_empty:
                del self._people[name]
                self._latest = None

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

    def _bound(self, budget: Budget, strangers: Strangers, least: int) -> _Bounds:
        """What strangers may take, of which nothing is known yet."""
        if any(bounds.budget is not budget for bounds in self._bounds.values()) or len(self._bounds) > 1:
            self._bounds.clear()
        bounds = self._bounds[id(strangers)] = _Bounds.of(budget, strangers, least)
        return bounds

    def _purse_of(self, who: Spender) -> _Purse:
        """What a reservation for them takes from; quotas that are new are not remembered yet."""
        latest = self._latest
        if latest is not None and (latest.key, latest.name, latest.address, latest.person) == (
            who.key, who.sender, who.ip, who.person,
        ):  # fmt: skip
            return latest
        account, sender = self._key(who.key), self._senders.find(who.sender)
        share: Share | None = None
        people: Share | None = None
        ip: _Quota | None = None
        charged: tuple[Window, ...]
        if who.ip is not None:
            ip, share = self._ips.find(who.ip), self._shares.find((who.key, who.ip))
            charged = (*account.windows, sender.window, ip.window, *share.windows)
        elif who.own is not None:
            share, people = self._people.get(who.person) or Share(), _people_of(account)
            charged = (*account.windows, sender.window, *share.windows, *people.windows)
        else:  # nobody knows who
            charged = (*account.windows, sender.window)
        return _Purse(account, sender, ip, share, people, charged, who.key, who.sender, who.ip, who.person)

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
            self._remember(purse)
        charge = Charge(fee, now)
        add_to_all(_windows(purse, receiver, by_receiver, by_function), charge)
        if who.receiver is not None and receiver is not None:
            self._receivers.use(who.receiver, receiver)
            if by_receiver is not None:
                self._shares.use((who.key, who.receiver), by_receiver)
        if who.call is not None and by_function is not None:
            self._shares.use((who.key, who.call), by_function)
        _hold(purse, by_receiver, by_function, fee, sign_only)
        return Reservation(purse, receiver, charge, sign_only, by_receiver, by_function)

    def _remember(self, purse: _Purse) -> None:
        """Its quotas and its share are those used last."""
        self._senders.use(purse.name, purse.sender)
        if purse.address is not None and purse.ip is not None:
            self._ips.use(purse.address, purse.ip)
            if purse.share is not None:
                self._shares.use((purse.key, purse.address), purse.share)
        elif purse.share is not None:
            self._people[purse.person] = purse.share
        self._latest = purse

    def _close(self, reservation: Reservation, actual: int, now: float) -> None:
        if not reservation.is_open:
            raise ValueError("a reservation ends once")
        reservation.is_open = False
        charge, purse = reservation.charge, reservation.purse
        by_receiver, by_function = reservation.by_receiver, reservation.by_function
        windows = _windows(purse, reservation.receiver, by_receiver, by_function)
        shrink_in_all(windows, charge, charge.amount - actual, now)
        _hold(purse, by_receiver, by_function, -charge.amount, reservation.sign_only)
        charge.amount = actual


def _people_of(account: _KeyAccount) -> Share:
    """What known people hold of a key's pools."""
    if account.people is None:
        account.people = Share()
    return account.people


def _hold(purse: _Purse, by_receiver: Share | None, by_function: Share | None, fee: int, sign_only: bool) -> None:
    """So much more is at risk, or less, for all whom that concerns."""
    purse.account.at_risk += fee
    for share in (purse.share, purse.people, by_receiver, by_function):
        if share is not None:
            share.at_risk += fee
    if not sign_only:
        return
    for holder in (purse.account, purse.share, purse.people, by_receiver, by_function, purse.sender, purse.ip):
        if holder is not None:
            holder.at_risk_sign_only += fee


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


def _used_of_key(account: _KeyAccount, now: float) -> tuple[int, ...]:
    return _used(account, account.pending.sum(now) + account.losses.sum(now), now)


def _used(account: _KeyAccount | Share, lost: int, now: float) -> tuple[int, ...]:
    spent = (window.sum(now) for window in account.windows)
    return (*spent, account.at_risk, account.at_risk_sign_only, lost + account.at_risk)


def _standing(account: _KeyAccount | Share, now: float) -> Standing:
    minute, hour, day = (window.sum(now) for window in account.windows)
    return Standing(minute, hour, day, account.at_risk, account.at_risk_sign_only, account.losses.sum(now))


def _undecided(fee: Undecided) -> Undecided:
    add_to_all((fee.account.pending,), fee)
    fee.count(fee.amount)
    return fee


def _losses_of(account: _KeyAccount, share: Share | None, people: Share | None) -> list[Window]:
    """Where the fee of what failed counts."""
    return [holder.losses for holder in (account, share, people) if holder is not None]


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
