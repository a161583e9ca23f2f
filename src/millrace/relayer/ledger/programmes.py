"""What sponsoring programmes have left: a budget and, for each user, a count, both for as long as the programme lives.

The worst case is taken when a transaction is reserved; what it did cost stays once that is known. One that cost nothing
gives its count back, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from millrace.relayer.journal.allowances import Allowances
from millrace.relayer.journal.common_programmes import Limits
from millrace.relayer.journal.programmes import Charge, User
from millrace.relayer.rules.programmes import Matcher, Programme, matchers

MAX_USERS = 100_000
"""Of one programme; at the bound nobody new is paid for by it."""
FORGET_MS = 30 * 86_400_000
"""A programme is forgotten so long after the policy named it last, or it paid: a policy file that lacked it by mistake
for a day does not make it pay twice."""
NOTED_MS = 3_600_000
"""So often it is written down that the policy names it."""


class _Account:
    __slots__ = ("last_ms", "noted_ms", "spent", "users")

    def __init__(self) -> None:
        self.spent = 0
        """Fees known, and the worst case of what may still run."""
        self.users: Counter[bytes] = Counter()
        """Transactions of each sender, those that may still run included."""
        self.last_ms = 0
        """When it paid last, or the policy named it."""
        self.noted_ms = 0
        """The same, as the journal knows it."""


class _Rules(msgspec.Struct, frozen=True):
    """The programmes of the policy in force, made ready once."""

    source: Mapping[str, Programme]
    matchers: tuple[Matcher, ...]


class Programmes:
    """What each programme has paid and may have to pay. Synchronous, like all of the ledger."""

    def __init__(self, capacity: int = MAX_USERS) -> None:
        self._capacity = capacity
        self._accounts: dict[str, _Account] = {}
        self._open: dict[bytes, Charge] = {}
        """By client hash; as many as are in flight."""
        self._rules = _Rules({}, ())
        self.shared: Allowances | None = None
        """Where several relayers have our keys: the claims' server counts for all, and nothing is counted here."""

    def paying(
        self, rules: Mapping[str, Programme], sender: bytes, receiver: bytes, function: str, fee: int, now_ms: int
    ) -> str:
        """The first programme that pays such a transaction now; empty without one. Takes nothing."""
        if self._rules.source is not rules:
            self._rules = _Rules(rules, matchers(rules))
        for item in self._rules.matchers:
            if (
                now_ms < item.until_ms
                and item.matches(sender, receiver, function)
                and self._has_room(item.name, item.programme, sender, fee)
            ):
                return item.name
        return ""

    def take(self, charge: Charge, now_ms: int) -> None:
        """Charge a programme that `paying` has just named; where others count too, its claim does."""
        if self.shared is not None:
            return
        account = self._accounts.setdefault(charge.programme, _Account())
        account.spent += charge.fee
        account.users[charge.sender] += 1
        account.last_ms = max(account.last_ms, now_ms)
        self._open[charge.client_hash] = charge

    def close(self, client_hash: bytes, actual: int) -> int | None:
        """A transaction is over; what its programme paid, `None` where none was charged."""
        charge = self._open.pop(client_hash, None)
        if charge is None:
            return None
        cost = max(0, min(actual, charge.fee))
        account = self._accounts[charge.programme]
        account.spent -= charge.fee - cost
        if not cost:
            account.users[charge.sender] -= 1
            if not account.users[charge.sender]:
                del account.users[charge.sender]
        return cost

    def left(self, name: str, programme: Programme, now_ms: int) -> int:
        """What a programme may still pay; nothing after its end."""
        if now_ms >= programme.until_ms:
            return 0
        return max(0, programme.budget - self.spent(name))

    def spent(self, name: str) -> int:
        """What a programme has paid, and the worst case of what may still run."""
        if self.shared is not None:
            return self.shared.total(name).spent
        account = self._accounts.get(name)
        return 0 if account is None else account.spent

    def users(self, name: str) -> int:
        """How many senders a programme has paid for."""
        if self.shared is not None:
            return self.shared.total(name).users
        account = self._accounts.get(name)
        return 0 if account is None else len(account.users)

    def forget(self, rules: Mapping[str, Programme], now_ms: int) -> tuple[list[str], list[str]]:
        """Let go of programmes that the policy has not named for long; their names, and those to be noted as named."""
        named = []
        for name in rules.keys() & self._accounts.keys():
            account = self._accounts[name]
            account.last_ms = max(account.last_ms, now_ms)
            if now_ms - account.noted_ms >= NOTED_MS:
                account.noted_ms = now_ms
                named.append(name)
        in_use = {charge.programme for charge in self._open.values()}
        gone = [
            name
            for name, account in self._accounts.items()
            if name not in rules and name not in in_use and account.last_ms < now_ms - FORGET_MS
        ]
        for name in gone:
            del self._accounts[name]
        return gone, named

    def restore(self, charges: Iterable[Charge], users: Iterable[User], now_ms: int) -> None:
        """Take over what the journal says, whatever the limits are now."""
        for user in users:
            account = self._accounts.setdefault(user.programme, _Account())
            account.spent += user.spent
            account.users[user.sender] += user.transactions
            account.last_ms = account.noted_ms = max(account.last_ms, user.time_ms)
        for charge in charges:
            self.take(charge, now_ms)

    def _has_room(self, name: str, programme: Programme, sender: bytes, fee: int) -> bool:
        if self.shared is not None:
            return self.shared.has_room(name, Limits(programme.budget, programme.per_user), sender, fee)
        account = self._accounts.get(name)
        if account is None:
            return fee <= programme.budget and programme.per_user > 0
        if account.spent + fee > programme.budget or account.users[sender] >= programme.per_user:
            return False
        return sender in account.users or len(account.users) < self._capacity
