"""The money side of the lifecycle: may a relayer key pay for this, what it has taken, and what became of it."""

from __future__ import annotations

import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import Transaction
from millrace.relayer.journal import audit, outcomes
from millrace.relayer.journal.audit import Spent
from millrace.relayer.journal.journal import Journal, transaction_of
from millrace.relayer.journal.outcomes import Outcome
from millrace.relayer.journal.submissions import Record
from millrace.relayer.ledger.budget import HOUR, Budgets, Reservation, Spender, Undecided
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.reputation import Reputation
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Refused
from millrace.relayer.rules import policy
from millrace.relayer.rules.policy import Policy, Target
from millrace.relayer.rules.stages import Examined

MAX_REMEMBERED = 200_000
MAX_RECEIVERS = 10_000
"""Receivers whose fees are counted; at the bound those that cost least are forgotten."""
OUTCOMES_MS = int(HOUR * 1000)


class _Sponsored(msgspec.Struct, eq=False, gc=False):
    """A transaction one of our keys signed, until it is known how it ended."""

    client_hash: bytes
    relayer: bytes
    sender: bytes
    target: Target
    cost: int
    """The most its relayer pays, or what it paid once that is known."""
    undecided: Undecided | None = None


class Sponsor:
    """Policy, budgets and reputations; everything here is synchronous, in the lifecycle's event loop."""

    def __init__(
        self, network: NetworkProfile, journal: Journal, clock: Callable[[], float], wall_ms: Callable[[], int]
    ) -> None:
        self.budgets = Budgets()
        self.reputation = Reputation()
        self.policy = Policy()
        self.p90: Callable[[int], int | None] = lambda shard: None
        """The gas price nine in ten transactions of a shard stay below, if known."""
        self.silence: Callable[[int], float | None] = lambda shard: None
        """For how many seconds a shard has sent no block, when that is too long to go on sponsoring."""
        self.balances: dict[bytes, int] = {}
        """Balances of the relayer keys, as far as known."""
        self.fees_by_receiver: Counter[bytes] = Counter()
        """What was paid for transactions to each receiver, in atomic units."""
        self._network = network
        self._journal = journal
        self._clock = clock
        self._wall_ms = wall_ms
        self._reservations: dict[bytes, Reservation] = {}
        self._sponsored: OrderedDict[bytes, _Sponsored] = OrderedDict()

    # ---- before it is signed

    def check(self, examined: Examined) -> int:
        """The most the transaction can cost the key that is to pay. Raises `Refused` when the policy says no."""
        tx, target, shard = examined.parsed.tx, examined.target, examined.sender_shard
        assert target is not None
        rules = self.policy
        silence = self.silence(shard)
        if silence is not None:
            text = f"no block of shard {shard} for {silence:.0f} s: what became of it could not be told"
            raise Refused(reasons.NOT_READY.but(text, 5_000))
        fee = policy.check_caps(tx, rules, self._network)
        if tx.gas_price > rules.caps.gas_price_floor:
            policy.check_gas_price(tx, rules, self.p90(shard))
        policy.check_lists(tx, target, rules.lists)
        self.reputation.check(tx.sender, outcomes.call_of(target), self._clock(), rules.quotas)
        balance = self.balances.get(tx.relayer)
        if balance is not None:
            needed = self.budgets.at_risk(tx.relayer) + fee + rules.budget.floor_balance
            if balance < needed:
                raise Refused(reasons.RELAYER_BALANCE_LOW.but("its operator has to refill it", 60_000))
        return fee

    def check_room(self, entry: Entry) -> None:
        """Raise `Refused` unless `reserve` would take this entry now. Takes nothing."""
        tx = entry.tx
        assert entry.target is not None
        who = Spender(tx.relayer, tx.sender, entry.ip, entry.target.receiver)
        self.budgets.check(who, entry.fee, self._clock(), self.policy.budget, self.policy.quotas)

    def reserve(self, entry: Entry) -> None:
        """Take the entry's fee from budget and quotas: from all of them, or from none and `Refused`."""
        tx = entry.tx
        assert entry.target is not None
        who = Spender(tx.relayer, tx.sender, entry.ip, entry.target.receiver)
        self._reservations[entry.client_hash] = self.budgets.reserve(
            who, entry.fee, self._clock(), self.policy.budget, self.policy.quotas, sign_only=entry.kind == "sign"
        )

    # ---- after

    def signed(self, entry: Entry) -> None:
        """One of our keys has signed it: from now on it is followed to its end."""
        assert entry.target is not None
        self._follow(entry.chain_hash, entry.client_hash, entry.tx, entry.target, entry.fee)

    def _follow(self, chain_hash: bytes, client_hash: bytes, tx: Transaction, target: Target, cost: int) -> _Sponsored:
        followed = self._sponsored[chain_hash] = _Sponsored(client_hash, tx.relayer, tx.sender, target, cost)
        if len(self._sponsored) > MAX_REMEMBERED:
            self._sponsored.popitem(last=False)
        return followed

    def give_back(self, entry: Entry) -> None:
        """The entry did not get to the disk: nothing was promised, and the audit log never heard of it."""
        reservation = self._reservations.pop(entry.client_hash, None)
        if reservation is not None:
            self.budgets.refund(reservation, self._clock())

    def close(self, entry: Entry, cost: int | None, *, written_off: bool = False) -> audit.Line | None:
        """The entry is over, for `cost` if that is known; the line for the audit log, if our key paid."""
        reservation = self._reservations.pop(entry.client_hash, None)
        if reservation is None or cost is None:
            return None
        undecided = self.budgets.settle(reservation, cost, self._clock())
        followed = self._sponsored.get(entry.chain_hash)
        if followed is None or cost == 0:
            self.budgets.decide(undecided, self._clock(), failed=False)
        else:
            followed.undecided = undecided
            followed.cost = cost
            self._count_fee(followed.target.receiver, cost)
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
        outcome = Outcome(
            followed.client_hash, self._wall_ms(), followed.relayer, followed.sender, call, followed.cost, failed
        )
        self.reputation.learn(outcome.sender, outcome.call, failed, now, self.policy.quotas)
        if followed.undecided is not None:
            self.budgets.decide(followed.undecided, now, failed=failed)
        elif failed:  # the receiver's shard was heard of first: what its sender's will charge is lost already
            self.budgets.lose(outcome.relayer, outcome.cost, now)
        self._journal.change(lambda connection: outcomes.write(connection, outcome))

    def prune(self) -> None:
        """Forget outcomes that count nowhere any more."""
        before = self._wall_ms() - OUTCOMES_MS

        def write(connection: sqlite3.Connection) -> None:
            outcomes.prune(connection, before)

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
        ips: Mapping[bytes, str],
        ended: Sequence[Outcome],
        undecided: Sequence[Record],
    ) -> None:
        """Take over what counts in budgets, quotas and reputations.

        `records` may still run. What was spent comes from the audit log, which is never pruned; `ips` says from
        where, by client hash, as far as that is still known. `ended` are the outcomes of the last hour, `undecided`
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
            self._take_over(item, opened.get(item.client_hash) if item.cost is None else None, ips)
        for outcome in ended:
            at = self._monotonic(outcome.time_ms)
            self.reputation.learn(outcome.sender, outcome.call, outcome.failed, at, self.policy.quotas)
            if outcome.failed:
                self.budgets.lose(outcome.relayer, outcome.cost, at)

        for record in undecided:
            cost = record.fee if record.cost is None else record.cost
            tx = transaction_of(record)
            followed = self._follow(record.chain_hash or b"", record.client_hash, tx, policy.target_of(tx), cost)
            followed.undecided = self.budgets.undecided(record.relayer or b"", cost, self._clock())

    def _take_over(self, item: Spent, record: Record | None, ips: Mapping[bytes, str]) -> None:
        sign_only = record is not None and record.kind == "sign"
        who = Spender(item.relayer, item.sender, record.ip if record is not None else ips.get(item.client_hash))
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
