"""The one place where it is decided whether a transaction may go on, and where what it takes is kept.

Everything here is synchronous and in one event loop: between a check and the reservation that follows from it
nothing else can run, so no two transactions can both have the last of anything.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from millrace.chain.fees import initially_paid_fee
from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import from_proto
from millrace.relayer import audit, policy, reasons
from millrace.relayer.accounts import Account
from millrace.relayer.audit import Spent
from millrace.relayer.budget import Ledger, Reservation
from millrace.relayer.inflight import Entry, InFlight
from millrace.relayer.journal import Journal, Record
from millrace.relayer.policy import Policy
from millrace.relayer.reasons import Reason, Refused
from millrace.relayer.reputation import Reputation
from millrace.relayer.stages import Approved, Authenticated

MAX_REMEMBERED = 200_000


class Desk:
    """Entries in flight, budgets and reputations, and the policy that governs them."""

    def __init__(
        self,
        network: NetworkProfile,
        journal: Journal,
        *,
        max_nonce_gap: int = 0,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.inflight = InFlight()
        self.ledger = Ledger()
        self.reputation = Reputation()
        self.policy = Policy()
        self.p90: Callable[[int], int | None] = lambda shard: None
        """The gas price nine in ten transactions of a shard stay below, if known."""
        self.balances: dict[bytes, int] = {}
        """Balances of the relayer keys, as far as known."""
        self._network = network
        self._journal = journal
        self._max_nonce_gap = max_nonce_gap
        self._clock = clock
        self._wall_ms = wall_ms
        self._reservations: dict[bytes, Reservation] = {}
        self._sponsored: OrderedDict[bytes, bytes] = OrderedDict()

    # ---- before

    def existing(self, item: Authenticated) -> Entry | None:
        """The entry of the same bytes. Raises `Refused` when others hold its (sender, nonce)."""
        entry = self.inflight.of_sender(item.tx.sender).get(item.tx.nonce)
        if entry is None or entry.client_hash == item.parsed.client_hash:
            return entry
        known = (entry.chain_hash or entry.client_hash).hex()
        raise Refused(reasons.CONFLICTING.but(f"nonce {item.tx.nonce} is held by {known}, which may still run"))

    def approve_again(self, item: Authenticated, entry: Entry) -> Approved:
        """The same bytes as an entry's: what was approved stays approved."""
        return Approved(item, entry.fee)

    def approve(self, item: Authenticated, account: Account) -> Approved:
        """Check nonce, balance and, for what a relayer key is to pay, the policy. Raises `Refused`."""
        tx = item.tx
        if tx.nonce < account.nonce:
            raise Refused(reasons.NONCE_TOO_LOW.but(f"the next nonce is {account.nonce}"))
        expected = self.inflight.expected_nonce(tx.sender, account.nonce)
        if tx.nonce > expected + self._max_nonce_gap:
            raise Refused(reasons.NONCE_TOO_HIGH.but(f"the next nonce is {expected}"))
        if self.inflight.is_full:
            raise Refused(reasons.BUSY.but("too many transactions are in flight", 1_000))
        if len(self.inflight.of_sender(tx.sender)) >= self.policy.quotas.sender_in_flight:
            raise Refused(reasons.TOO_MANY_IN_FLIGHT.but("wait for earlier ones", 1_000))
        fee = initially_paid_fee(tx, self._network.gas)
        cost = tx.value + (0 if tx.is_relayed else fee)
        if cost + self.inflight.committed(tx.sender, account.nonce) > account.balance:
            raise Refused(reasons.INSUFFICIENT_BALANCE.but(f"it needs {cost}, the account has {account.balance}"))
        if item.parsed.origin.is_sponsored:
            fee = self._check_policy(item)
        return Approved(item, fee)

    def _check_policy(self, item: Authenticated) -> int:
        tx = item.tx
        fee = policy.check_caps(tx, self.policy, self._network)
        policy.check_gas_price(tx, self.policy, self.p90(item.sender_shard))
        policy.check_lists(tx, self.policy.lists)
        self.reputation.check(tx.sender, self._clock())
        balance = self.balances.get(tx.relayer)
        if balance is not None:
            needed = self.ledger.at_risk(tx.relayer) + fee + self.policy.budget.floor_balance
            if balance < needed:
                raise Refused(reasons.RELAYER_BALANCE_LOW.but("its operator has to refill it", 60_000))
        return fee

    def reserve(self, approved: Approved) -> Entry:
        """Take (sender, nonce), budget and quotas: all of them, or none and `Refused`."""
        item = approved.authenticated
        origin = approved.origin
        entry = Entry(
            tx=item.tx,
            proto=item.parsed.proto,
            client_hash=item.parsed.client_hash,
            kind=origin.kind,
            sender_shard=item.sender_shard,
            receiver_shard=item.receiver_shard,
            fee=approved.fee,
            created_ms=self._wall_ms(),
            ip=origin.ip,
        )
        if origin.is_sponsored:
            self._reservations[entry.client_hash] = self.ledger.reserve(
                entry.tx.relayer,
                entry.tx.sender,
                origin.ip,
                approved.fee,
                self._clock(),
                self.policy.budget,
                self.policy.quotas,
                sign_only=origin.kind == "sign",
            )
        self.inflight.add(entry)
        return entry

    # ---- after

    def journalled(self, entry: Entry) -> None:
        """The entry's row is on disk."""
        if entry.state == "reserved":
            entry.state = "journalled"
            entry.broadcast = entry.kind != "sign"
        _tell(entry)

    async def decided(self, entry: Entry) -> Reason | None:
        """Wait until an entry is journalled or released; why it was released, if it was."""
        if entry.state == "reserved":
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            entry.waiters.append(waiter)
            await waiter
        return entry.refusal

    def release(self, entry: Entry, reason: Reason) -> None:
        """The entry did not get to the disk: nothing was promised."""
        self.inflight.remove(entry)
        reservation = self._reservations.pop(entry.client_hash, None)
        if reservation is not None:
            self.ledger.refund(reservation, self._clock())
        entry.state, entry.refusal = "over", reason
        _tell(entry)

    def withdraw(self, entry: Entry, reason: Reason) -> None:
        """The signing process refused a journalled entry.

        It is given back only when this was the first time anybody asked: else its signature may have left, and it
        keeps (sender, nonce) and its fee at risk until the chain is past it.
        """
        if entry.sign_requests == 1 and entry.state == "journalled":
            entry.refusal = reason
            self._end(entry, "superseded", 0)

    def complete(self, entry: Entry) -> None:
        """The entry came with all its signatures; its row says so already."""
        self.inflight.signed(entry)

    def cosigned(self, signatures: Sequence[tuple[Entry, bytes]]) -> None:
        """Entries have got their relayer's signature."""
        rows = []
        for entry, signature in signatures:
            self.inflight.signed(entry, signature)
            self._sponsored[entry.chain_hash] = entry.tx.sender
            if len(self._sponsored) > MAX_REMEMBERED:
                self._sponsored.popitem(last=False)
            rows.append((entry.proto, entry.chain_hash, entry.client_hash))
        if not rows:
            return

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE submissions SET tx = ?, chain_hash = ?, state = 'signed' WHERE client_hash = ?", rows
            )

        self._journal.change(write)

    def on_its_way(self, entry: Entry) -> None:
        """The entry is to be broadcast from now on."""
        if entry.state == "expired":
            entry.created_ms = self._wall_ms()
        changed = not entry.broadcast or entry.state == "expired"
        entry.broadcast, entry.state, entry.sending = True, "signed", True
        if changed:
            self._update(entry, "broadcast = 1, state = 'signed'")

    def expire(self, entry: Entry) -> None:
        """Stop broadcasting. A co-signed transaction can still run, so it keeps its (sender, nonce)."""
        entry.state = "expired"
        entry.sending = False
        if entry.kind == "broadcast":
            self._end(entry, "dropped", None)
        else:
            self._update(entry, "state = 'expired'")

    def is_wanted(self, entry: Entry) -> bool:
        """Whether an entry is still to be broadcast."""
        return entry.state == "signed" and self.inflight.by_hash(entry.client_hash) is entry

    def included(self, tx_hash: bytes, fee: int | None) -> None:
        """A final block has the transaction: its fee is settled, its nonce is the chain's business now."""
        entry = self.inflight.by_hash(tx_hash)
        if entry is not None:
            one_shard = entry.sender_shard == entry.receiver_shard
            self._end(entry, "finished", fee if one_shard and fee is not None else entry.fee)

    def nonce_moved(self, sender: bytes, nonce: int) -> None:
        """The chain is at `nonce`: entries below it were superseded, and can never run any more.

        Their fee counts as spent: after a gap in the events it is not known whether a block had them.
        """
        for entry in [item for at, item in self.inflight.of_sender(sender).items() if at < nonce]:
            if not entry.chain_hash:
                entry.refusal = reasons.NONCE_TOO_LOW
            self._end(entry, "superseded", entry.fee)

    def nonce_heard(self, sender: bytes, nonce: int) -> None:
        """The chain API is at `nonce`, maybe by a block not yet final: only what is sent no more is let go."""
        for entry in [item for at, item in self.inflight.of_sender(sender).items() if at < nonce]:
            if entry.state == "expired":
                self._end(entry, "superseded", entry.fee)

    def ended(self, tx_hash: bytes, *, failed: bool) -> None:
        """A transaction has come to its end: its sender's reputation follows, if we sponsored it."""
        sender = self._sponsored.pop(tx_hash, None)
        if sender is not None:
            self.reputation.learn(sender, failed, self._clock(), self.policy.quotas)

    # ---- restart

    def restore(self, records: Sequence[Record], spent: Sequence[Spent], ips: Mapping[bytes, str]) -> None:
        """Take over what the journal knows: entries that may still run, and all that counts in the budget.

        What was spent comes from the audit log, which is never pruned; `ips` says from where, by client hash.
        """
        now, wall = self._clock(), self._wall_ms()
        opened = {record.client_hash: record for record in records if record.relayer is not None}
        known = {item.client_hash for item in spent if item.cost is None}
        older = [
            Spent(record.relayer or b"", record.sender, record.client_hash, record.created_ms, record.fee)
            for record in opened.values() if record.client_hash not in known
        ]  # fmt: skip
        for item in sorted([*spent, *older], key=lambda item: item.time_ms):
            record = opened.get(item.client_hash) if item.cost is None else None
            age = max(0.0, (wall - item.time_ms) / 1000)
            reservation = self.ledger.restore(
                item.relayer, item.sender, record.ip if record else ips.get(item.client_hash, ""), item.fee, now - age,
                sign_only=record is not None and record.kind == "sign",
            )  # fmt: skip
            if record is not None:
                self._reservations[item.client_hash] = reservation
            else:
                self.ledger.settle(reservation, item.fee if item.cost is None else item.cost, now)
        for row in records:
            self.inflight.add(self._entry(row))

    def _entry(self, record: Record) -> Entry:
        tx = from_proto(record.tx)
        return Entry(
            tx=tx,
            proto=record.tx,
            client_hash=record.client_hash,
            kind=record.kind,  # type: ignore[arg-type]
            sender_shard=self._network.shard_of(tx.sender),
            receiver_shard=self._network.receiver_shard_of(tx.receiver, tx.sender),
            fee=record.fee,
            created_ms=record.created_ms,
            ip=record.ip,
            chain_hash=record.chain_hash or b"",
            state="signed" if record.kind == "broadcast" and record.state == "journalled" else record.state,  # type: ignore[arg-type]
            broadcast=record.broadcast,
            sign_requests=1,  # its row says nothing of signatures that left a moment before the process died
        )

    # ---- insides

    def _end(self, entry: Entry, state: str, cost: int | None) -> None:
        """The entry is over, for `cost` where one of our keys paid."""
        self.inflight.remove(entry)
        entry.state = "over"
        _tell(entry)
        reservation = self._reservations.pop(entry.client_hash, None)
        if reservation is not None and cost is not None:
            self.ledger.settle(reservation, cost, self._clock())
        sponsored = reservation is not None
        ended, client = self._wall_ms(), entry.client_hash
        relayer, sender, nonce = entry.tx.relayer, entry.tx.sender, entry.tx.nonce
        event: audit.Event = "settle" if cost else "refund"
        amount = cost or entry.fee

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE submissions SET state = ?, cost = ?, ended_ms = ? WHERE client_hash = ?",
                (state, None if cost is None else str(cost), ended, client),
            )
            if sponsored and cost is not None:
                audit.write(connection, [(ended, event, relayer, sender, nonce, client, amount)])

        self._journal.change(write)

    def _update(self, entry: Entry, assignments: str, *values: object) -> None:
        client = entry.client_hash

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(f"UPDATE submissions SET {assignments} WHERE client_hash = ?", (*values, client))

        self._journal.change(write)


def _tell(entry: Entry) -> None:
    for waiter in entry.waiters:
        if not waiter.done():
            waiter.set_result(None)
    entry.waiters = []
