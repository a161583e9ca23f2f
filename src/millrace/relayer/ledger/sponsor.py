"""The money side of the lifecycle: may a relayer key pay for this, what it has taken, and what became of it."""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from millrace.chain import address
from millrace.chain.fees import initially_paid_fee
from millrace.chain.network import NetworkProfile
from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.journal import audit, outcomes
from millrace.relayer.journal import programmes as programme_rows
from millrace.relayer.journal.audit import Spent
from millrace.relayer.journal.journal import Journal, transaction_of
from millrace.relayer.journal.outcomes import Outcome
from millrace.relayer.journal.portions import Need
from millrace.relayer.journal.submissions import Record, origin_of, origin_text
from millrace.relayer.journal.writer import Rows
from millrace.relayer.ledger.balances import LAG_SECONDS, Balances
from millrace.relayer.ledger.budget import Budgets, Reservation, Spender, Standing, Undecided
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.programmes import Programmes
from millrace.relayer.ledger.reputation import Reputation
from millrace.relayer.ledger.windows import HOUR
from millrace.relayer.ledger.written_off import WrittenOff, WrittenOffFee
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import policy
from millrace.relayer.rules.policy import MOST, SUMS, Budget, Person, Policy, Strangers, Target
from millrace.relayer.rules.stages import Examined
from millrace.runtime.clocks import UnhurriedClock

MAX_REMEMBERED = 200_000
MAX_RECEIVERS = 10_000
"""Receivers whose fees are counted; at the bound those that cost least are forgotten."""
OUTCOMES_MS = int(HOUR * 1000)


class _Sponsored(msgspec.Struct, eq=False, gc=False):
    """A transaction one of our keys signed, until it is known how it ended."""

    client_hash: bytes
    nonce: int
    who: Spender
    target: Target
    cost: int
    """The most its relayer pays, or what it paid once that is known."""
    undecided: Undecided | None = None


Condition = Literal["ok", "paused", "short of funds", "unknown balance"]


SHORT_SECONDS = 2.0
"""So long a refusal counts: it is asked about each second."""


class _Shares(NamedTuple):
    """What a policy says of strangers, made ready once."""

    source: Policy
    usual: Strangers
    free: Strangers
    """Of what the relayer is run for, or a programme pays."""
    listed: frozenset[bytes]
    """Whom the relayer is run for."""

    @classmethod
    def of(cls, rules: Policy) -> _Shares:
        usual = msgspec.structs.replace(rules.strangers, together_percent=rules.together_percent)
        free = msgspec.structs.replace(usual, receiver_percent=100, function_percent=100)
        listed = map(address.decode, rules.lists.allow_receivers + rules.lists.allow_contracts)
        return cls(rules, usual, free, frozenset(listed))


class KeyState(NamedTuple):
    """Whether a relayer key pays."""

    condition: Condition
    spendable: int | None
    """What it can surely pay beyond its floor and what is under way; less than nothing when it lacks so much."""
    missing: int
    """What it lacks to pay for the cheapest transaction."""
    seconds_to_empty: float
    """Until what it can spend is gone at the present rate; infinite while it spends nothing, or nothing is known."""
    is_low: bool
    """It holds less than the policy's `alert_balance`."""
    runs_out: bool
    """It will be empty before the policy's `alert_seconds` are over."""


class KeyStanding(NamedTuple):
    """A relayer key's money, as operators see it; atomic units."""

    state: KeyState
    balance: int | None
    """At least; `None` while it is not known."""
    left: int
    """What it may still reserve now, by all windows and by what is at risk."""
    used: Standing
    written_off: int
    """Here, or by others of its relayers."""


class Sponsor:
    """Policy, budgets and reputations; everything here is synchronous, in the lifecycle's event loop."""

    def __init__(
        self,
        network: NetworkProfile,
        journal: Journal,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        rounds: Rounds | None = None,
    ) -> None:
        self._rounds = Rounds() if rounds is None else rounds
        self.budgets = Budgets()
        self.reputation = Reputation()
        self.policy = Policy()
        self.p90: Callable[[int], int | None] = lambda shard: None
        """The gas price nine in ten transactions of a shard stay below, if known."""
        self.untold: Callable[[int], str | None] = lambda shard: None
        """Why a shard is not sponsored, if so: nobody could tell what became of its transactions."""
        self.why_not: Callable[[], str | None] = lambda: None
        """Why nothing may be sponsored now, if so."""
        self.owed_elsewhere: Callable[[bytes], int] = lambda key: 0
        """What a key may have to pay for what other relayers wrote off."""
        self.paused: frozenset[int] = frozenset()
        """Shards that an operator paused, beside those of the policy; see `Lifecycle.pause`."""
        self.balances = Balances(clock, self._rounds)
        """What the relayer keys hold at least."""
        self.fees_by_receiver: Counter[bytes] = Counter()
        """What was paid for transactions to each receiver, in atomic units."""
        self._network = network
        self._journal = journal
        self._clock = clock
        self._wall_ms = wall_ms
        self._unhurried_ms = UnhurriedClock(wall_ms, clock)
        self._shares = _Shares.of(self.policy)
        self._reservations: dict[bytes, Reservation] = {}
        self._sponsored: OrderedDict[bytes, _Sponsored] = OrderedDict()
        self.written_off = WrittenOff()
        self.programmes = Programmes()

    def pause_all(self) -> None:
        """Nobody is paid for until an operator says otherwise."""
        self.paused = frozenset(range(self._network.shards))

    # ---- before it is signed

    def check(self, examined: Examined, owed: int = 0) -> int:
        """The most the transaction can cost the key that is to pay. Raises `Refused` when the policy says no.

        `owed` is what the key may have to pay beside all that is known here.
        """
        tx, target, shard = examined.parsed.tx, examined.target, examined.sender_shard
        assert target is not None
        rules = self.policy
        reason = self.why_not()
        if reason is not None:
            raise Refused(reasons.NOT_READY.but(reason, 5_000))
        if shard in self.paused:
            raise Refused(reasons.SHARD_PAUSED.but("its operator paused sponsoring", 60_000))
        untold = self.untold(shard)
        if untold is not None:
            raise Refused(reasons.NOT_READY.but(f"{untold}: what became of it could not be told", 5_000))
        fee = policy.check_caps(tx, rules, self._network)
        if tx.gas_price > rules.caps.gas_price_floor:
            policy.check_gas_price(tx, rules, self.p90(shard))
        policy.check_lists(tx, target, rules.lists)
        parsed, call = examined.parsed, outcomes.call_of(target)
        is_sent = parsed.origin.kind == "relay"  # nobody knows when the others will run
        simulated = parsed.client_hash if is_sent else b""
        client = parsed.origin.person or parsed.origin.ip
        self.reputation.check(tx.sender, call, self._clock(), rules.quotas, simulated, client)
        self._check_balance(tx.relayer, fee, owed)
        return fee

    def _check_balance(self, key: bytes, fee: int, owed: int) -> None:
        """Raise `Refused` unless the key can surely pay so much more, whatever becomes of all it signed before."""
        spendable = self.spendable(key)
        if spendable is None:
            raise Refused(reasons.ACCOUNT_UNAVAILABLE.but("what the relayer's key holds is not known yet", 1_000))
        if spendable - owed >= fee:
            return
        self.balances.want(key)  # a reading in its place may know of more
        if spendable + self.committed(key) + self.owed_elsewhere(key) >= fee:
            text = "what it holds may be needed for transactions under way"
            next_block_ms = max(1_000, self._rounds.ms)  # it may settle what is under way; nobody asks more often
            raise Refused(reasons.RELAYER_BALANCE_LOW.but(text, next_block_ms))
        raise Refused(reasons.RELAYER_BALANCE_LOW.but("its operator has to refill it", 60_000))

    def check_room(self, entry: Entry) -> None:
        """Raise `Refused` unless `reserve` would take this entry now. Takes nothing."""
        who = self._spender(entry, self._programme_of(entry))
        self.budgets.check(who, entry.fee, self._clock(), self.policy.budget, self.policy.quotas)

    # ---- what keys hold

    def committed(self, key: bytes) -> int:
        """What the key may still have to pay for what it signed, or was asked to sign."""
        return self.budgets.at_risk(key) + self.written_off.of_key(key)

    def spendable(self, key: bytes) -> int | None:
        """What the key can surely pay beyond all that and its floor; less than nothing when it lacks so much."""
        bound = self.balances.lower_bound(key)
        if bound is None:
            return None
        return bound - self.committed(key) - self.owed_elsewhere(key) - self.policy.budget.floor_balance

    def state_of(self, key: bytes) -> KeyState:
        """Whether a key pays now, and what it lacks."""
        spendable, budget, gas = self.spendable(key), self.policy.budget, self._network.gas
        cheapest = (gas.min_gas_limit + gas.extra_relayed) * gas.min_gas_price
        empty = self._seconds_to_empty(key, spendable)
        missing = 0 if spendable is None else max(0, cheapest - spendable)
        condition: Condition = "ok"
        if (shard := self._network.shard_of(key)) in self.policy.paused_shards or shard in self.paused:
            condition = "paused"
        elif spendable is None:
            condition = "unknown balance"
        elif missing:
            condition = "short of funds"
        bound = self.balances.lower_bound(key)
        is_low = bound is not None and bound < budget.alert_balance
        return KeyState(condition, spendable, missing, empty, is_low, empty < budget.alert_seconds)

    def need(self, whole: Policy, portions: int) -> Need:
        """Of so many portions of every sum of a policy, how many cover what was used here."""
        now, needed, keeps = self._clock(), 0, False
        used: list[tuple[Budget | Person, tuple[int, ...]]] = [
            (whole.budget, item) for item in self.budgets.used_by_keys(now)
        ]
        used += [(person, self.budgets.used_by_person(name, now)) for name, person in whole.people.items()]
        for budget, amounts in used:
            for name, amount in zip(SUMS, amounts, strict=True):
                limit = getattr(budget, name)
                needed = max(needed, -(-amount * portions // limit) if limit else 0)
                keeps = keeps or (amount > 0 and not limit)
        # Of all sums, also of a key that has used nothing so far.
        least = min(getattr(budget, name) or MOST for budget in (whole.budget, *whole.people.values()) for name in SUMS)
        return Need(min(needed, portions), least // portions, keeps, now - self.budgets.refused_at < SHORT_SECONDS)

    def standing_of(self, key: bytes) -> KeyStanding:
        """What a key has, and what of its budget is used."""
        now = self._clock()
        left, used = self.budgets.left(key, now, self.policy.budget), self.budgets.standing(key, now)
        balance, written_off = self.balances.lower_bound(key), self.written_off.of_key(key) + self.owed_elsewhere(key)
        return KeyStanding(self.state_of(key), balance, left, used, written_off)

    def rooms_of(self, key: bytes) -> dict[str, int]:
        """What is left of each sum of a key's budget."""
        return self.budgets.rooms(key, self._clock(), self.policy.budget)

    def _seconds_to_empty(self, key: bytes, spendable: int | None) -> float:
        """For how long what the key can spend lasts if it goes on as in the last minute, or hour if that was more."""
        rate = self.budgets.spent_a_second(key, self._clock())
        return math.inf if spendable is None or rate <= 0 else max(0, spendable) / rate

    def reserve(self, entry: Entry) -> None:
        """Take the entry's fee from budget, quotas and programme: from all of them, or from none and `Refused`."""
        entry.programme = self._programme_of(entry)
        self._reservations[entry.client_hash] = self.budgets.reserve(
            self._spender(entry, entry.programme),
            entry.fee,
            self._clock(),
            self.policy.budget,
            self.policy.quotas,
            sign_only=entry.kind == "sign",
        )
        if entry.programme:
            charge = programme_rows.Charge(entry.client_hash, entry.programme, entry.tx.sender, entry.fee)
            self.programmes.take(charge, self._wall_ms())

    def programme_for(self, examined: Examined) -> str:
        """Which programme would pay for it now; empty without one. Takes nothing."""
        if not self.policy.programmes:
            return ""
        return self._programme_of(Entry.of(examined, initially_paid_fee(examined.parsed.tx, self._network.gas), 0))

    def _programme_of(self, entry: Entry) -> str:
        """The same of an entry. Who is known by an API key has a budget of their own, and is in no programme."""
        rules = self.policy
        if not rules.programmes or entry.person in rules.people:
            return ""
        assert entry.target is not None
        target = entry.target
        return self.programmes.paying(
            rules.programmes, entry.tx.sender, target.receiver, target.function, entry.fee, self._wall_ms()
        )

    def _spender(self, entry: Entry, programme: str) -> Spender:
        """Whom the entry's fee is charged to."""
        tx = entry.tx
        assert entry.target is not None
        target, rules = entry.target, self.policy
        call = outcomes.call_of(target)
        if call is not None:
            call = self.reputation.name_of(call)
        strangers = self._strangers(target, is_paid=bool(programme))
        person = rules.people.get(entry.person)
        if person is None:
            return Spender(tx.relayer, tx.sender, entry.ip, target.receiver, call, strangers, rules.caps.fee)
        return Spender(tx.relayer, tx.sender, None, None, person=entry.person, own=person.budget)

    def _strangers(self, target: Target, *, is_paid: bool) -> Strangers:
        """The shares of whoever sends this; what the relayer is run for, or a programme pays, has none of its own."""
        if self._shares.source is not self.policy:
            self._shares = _Shares.of(self.policy)
        return self._shares.free if is_paid or target.receiver in self._shares.listed else self._shares.usual

    # ---- after

    def signed(self, entry: Entry) -> None:
        """One of our keys has signed it: from now on it is followed to its end."""
        assert entry.target is not None
        who = self._spender_of(entry.tx.relayer, entry.tx.sender, origin_text(entry.ip, entry.person))
        self._follow(entry.chain_hash, _Sponsored(entry.client_hash, entry.tx.nonce, who, entry.target, entry.fee))

    def _follow(self, chain_hash: bytes, followed: _Sponsored) -> None:
        self._sponsored[chain_hash] = followed
        if len(self._sponsored) > MAX_REMEMBERED:
            self._sponsored.popitem(last=False)

    def give_back(self, entry: Entry) -> None:
        """The entry did not get to the disk: nothing was promised, and the audit log never heard of it."""
        reservation = self._reservations.pop(entry.client_hash, None)
        if reservation is not None:
            self.budgets.refund(reservation, self._clock())
        self.programmes.close(entry.client_hash, 0)

    def close(
        self, entry: Entry, cost: int | None, *, height: int | None = None, written_off: bool = False
    ) -> audit.Line | None:
        """The entry is over, for `cost` if that is known, in a final block brought by the header of this `height`.

        The line for the audit log, if our key paid.
        """
        reservation = self._reservations.pop(entry.client_hash, None)
        if reservation is None or cost is None:
            return None
        if written_off:
            tx = entry.tx
            self.written_off.add(WrittenOffFee(tx.relayer, tx.sender, tx.nonce, entry.chain_hash, entry.fee))
        else:
            self.balances.paid(entry.tx.relayer, cost, height)
        undecided = self.budgets.settle(reservation, cost, self._clock())
        followed = self._sponsored.get(entry.chain_hash)
        if followed is not None and cost:
            followed.cost = cost
            self._count_fee(followed.target.receiver, cost)
        if followed is None or not cost or written_off:  # what was given up is no loss before it runs, and fails
            self.budgets.decide(undecided, self._clock(), failed=False)
        else:
            followed.undecided = undecided
        event: audit.Event = "write-off" if written_off else "settle" if cost else "refund"
        tx = entry.tx
        return self._wall_ms(), event, tx.relayer, tx.sender, tx.nonce, entry.client_hash, cost or entry.fee

    def ended(self, tx_hash: bytes, *, failed: bool) -> None:
        """A transaction has come to its end: reputations and losses follow, if we sponsored it."""
        followed = self._sponsored.pop(tx_hash, None)
        if followed is None:
            return
        now = self._clock()
        call = outcomes.call_of(followed.target)
        who = followed.who
        outcome = Outcome(
            followed.client_hash, self._wall_ms(), who.key, who.sender, followed.nonce, call, followed.cost, failed
        )
        self.reputation.learn(outcome.sender, outcome.call, failed, now, self.policy.quotas, outcome.client_hash)
        if followed.undecided is not None:
            self.budgets.decide(followed.undecided, now, failed=failed)
        elif failed:  # the receiver's shard was heard of first: what its sender's will charge is lost already
            self.budgets.lose(outcome.relayer, outcome.cost, now, who)
        self._journal.change(Rows(outcomes.write, "outcomes", [outcome]))
        if failed:
            self._journal.tell_failed(outcome.sender, followed.nonce)

    def nonce_used(self, sender: bytes, nonce: int, *, surely_another: bool) -> list[WrittenOffFee]:
        """The chain is past a nonce: what was written off below it cannot run any more.

        Unless it was `surely_another` transaction that used it, the key may have paid.
        """
        over = self.written_off.take_below(sender, nonce)
        for item in over:
            if not surely_another:
                self.balances.paid(item.key, item.fee, None)
        return over

    def prune(self) -> None:
        """Forget outcomes that count nowhere any more, and programmes long gone."""
        now_ms = self._unhurried_ms()  # what is forgotten lets a programme pay anew: no set clock does that
        before = now_ms - OUTCOMES_MS
        self.budgets.forget_people(self.policy.people, self._clock())
        gone, named = self.programmes.forget(self.policy.programmes, now_ms)

        def write(connection: sqlite3.Connection) -> None:
            outcomes.prune(connection, before)
            programme_rows.tidy(connection, gone, named, now_ms)

        self._journal.change(write)

    def _count_fee(self, receiver: bytes, cost: int) -> None:
        self.fees_by_receiver[receiver] += cost
        if len(self.fees_by_receiver) > MAX_RECEIVERS:
            self.fees_by_receiver = Counter(dict(self.fees_by_receiver.most_common(MAX_RECEIVERS // 2)))

    # ---- restart

    def restore(
        self,
        records: Sequence[Record],
        spent: Sequence[Spent],
        origins: Mapping[bytes, str],
        ended: Sequence[Outcome],
        undecided: Sequence[Record],
    ) -> None:
        """Take over what counts in budgets, quotas and reputations.

        `records` may still run. What was spent comes from the audit log, which is never pruned; `origins` says
        who asked, by client hash, as far as that is still known. `ended` are the outcomes of the last hour, `undecided`
        what ran in that time and has none yet.
        """
        opened = {record.client_hash: record for record in records if record.relayer is not None}
        known = {item.client_hash for item in spent if item.cost is None}
        older = [
            Spent(record.relayer or b"", record.sender, client_hash, record.created_ms, record.fee)
            for client_hash, record in opened.items()
            if client_hash not in known
        ]
        for item in sorted([*older, *spent], key=lambda item: item.time_ms):
            self._take_over(item, opened.get(item.client_hash) if item.cost is None else None, origins)
        self._restore_programmes(opened)
        for outcome in ended:
            at = self._monotonic(outcome.time_ms)
            self.reputation.learn(outcome.sender, outcome.call, outcome.failed, at, self.policy.quotas)
            if outcome.failed:
                who = self._spender_of(outcome.relayer, outcome.sender, origins.get(outcome.client_hash))
                self.budgets.lose(outcome.relayer, outcome.cost, at, who)

        recently = self._wall_ms() - int(LAG_SECONDS * 1000)
        for time_ms, key, amount in audit.paid_since(self._journal.read, recently):
            self.balances.paid_at(key, amount, self._monotonic(time_ms))

        for record in undecided:
            cost = record.fee if record.cost is None else record.cost
            tx = transaction_of(record)
            who = self._spender_of(tx.relayer, record.sender, record.ip)
            fee = self.budgets.undecided(tx.relayer, cost, self._clock(), who)
            followed = _Sponsored(record.client_hash, record.nonce, who, policy.target_of(tx), cost, fee)
            self._follow(record.chain_hash or b"", followed)

    def _restore_programmes(self, opened: Container[bytes]) -> None:
        """A charge of what a safe start has ended stays, as nobody knows whether it ran."""
        if self.programmes.shared is not None:
            return
        charges, now_ms = programme_rows.charges(self._journal.read), self._wall_ms()
        self.programmes.restore(charges, programme_rows.users(self._journal.read), now_ms)
        over = [charge for charge in charges if charge.client_hash not in opened]
        for charge in over:
            self.programmes.close(charge.client_hash, charge.fee)

        def write(connection: sqlite3.Connection) -> None:
            for charge in over:
                programme_rows.end(connection, charge.client_hash, charge.fee, now_ms)

        if over:
            self._journal.change(write)

    def _spender_of(self, key: bytes, sender: bytes, origin: str | None) -> Spender:
        """Whom something of before the restart is charged to; who the policy names no more is a stranger now."""
        ip, name = (None, "") if origin is None else origin_of(origin)
        person = self.policy.people.get(name)
        if person is None:
            return Spender(key, sender, ip)
        return Spender(key, sender, None, None, person=name, own=person.budget)

    def _take_over(self, item: Spent, record: Record | None, origins: Mapping[bytes, str]) -> None:
        sign_only = record is not None and record.kind == "sign"
        origin = record.ip if record is not None else origins.get(item.client_hash)
        who = self._spender_of(item.relayer, item.sender, origin)
        reservation = self.budgets.restore(who, item.fee, self._monotonic(item.time_ms), sign_only=sign_only)
        if record is not None:
            self._reservations[item.client_hash] = reservation
        else:
            now = self._clock()
            cost = item.fee if item.cost is None else item.cost
            self.budgets.decide(self.budgets.settle(reservation, cost, now), now, failed=False)

    def _monotonic(self, time_ms: int) -> float:
        """When something was, on the clock that is never set; what lies in the future was now."""
        return self._clock() - max(0.0, (self._wall_ms() - time_ms) / 1000)
