"""A transaction from its reservation to its end: what it takes, what of it is written down, and what becomes of it.

Everything here is synchronous and in one event loop, and so are the checks before it (`approvals.py`): between a check
and the reservation that follows from it nothing else can run, so no two can both have the last of anything.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence

from millrace.chain.network import NetworkProfile
from millrace.chain.transaction import TransactionError, early_hashes, from_proto
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.journal import at_risk, programmes
from millrace.relayer.journal.claim_rows import Claimed
from millrace.relayer.journal.journal import Journal, drop_write_off, transaction_of
from millrace.relayer.journal.submissions import MAX_NONCE, Record, origin_of, origin_text
from millrace.relayer.journal.writer import JournalError, Write
from millrace.relayer.ledger.approvals import Approvals
from millrace.relayer.ledger.fates import FateBook
from millrace.relayer.ledger.inflight import Entry, InFlight, next_step
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.ledger.written_off import WrittenOffFee
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.policy import target_of
from millrace.relayer.rules.stages import Approved

log = logging.getLogger(__name__)


APART_MS = 2_500
"""So far ours may be ahead of the chain's, and what is read again still counts as of what was sent last."""
_NEVER_RAN = "cost = iif(EXISTS (SELECT 1 FROM signatures WHERE signatures.id = submissions.id), '0', cost)"
"""Of a row that keeps its nonce: one without a signature gives way once it cost nothing."""
LATE_MS = 1_000
"""Who waited longer for its signature (it takes milliseconds, where there is a signing process that does not refuse it)
has its time on the network from then on."""


class Lifecycle:
    """Entries in flight, and through its sponsor budgets, reputations and the policy that governs them."""

    def __init__(
        self,
        network: NetworkProfile,
        journal: Journal,
        *,
        max_nonce_gap: int = 0,
        clock: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        rounds: Rounds | None = None,
    ) -> None:
        self.rounds = Rounds() if rounds is None else rounds
        self.inflight = InFlight()
        self.fates = FateBook(self.inflight, wall_ms)
        self.sponsor = Sponsor(network, journal, clock, wall_ms, self.rounds)
        self.approvals = Approvals(network, self.inflight, self.sponsor, max_nonce_gap)
        self._network = network
        self._journal = journal
        self._wall_ms = wall_ms
        self.on_refused: Callable[[Entry], None] = lambda entry: None
        """Told of each journalled entry that ends without a co-signature, see its `refusal`: it will never run."""
        self._untold: set[Entry] = set()
        """Refused by the signing process, and it is not known yet whether a start finds them."""
        self._refused: dict[bytes, Entry] = {}
        """By client hash those of which nobody who listens has heard so: claimed before disk or server went."""
        self._doubted: dict[Entry, Reason] = {}
        """Those of them that neither is known to have heard of, and why they were refused."""
        self.is_blind = False
        """Whether there is no stream of events at all."""
        self._losses = 0
        """How often events were lost."""

    def reserve(self, approved: Approved) -> Entry:
        """Take (sender, nonce), budget and quotas: all of them, or none and `Refused`."""
        entry = Entry.of(approved.authenticated.examined, approved.fee, self._wall_ms(), self._losses)
        if approved.origin.is_sponsored:
            self.sponsor.reserve(entry)
        self.inflight.add(entry)
        return entry

    # ---- after

    def journalled(self, entry: Entry) -> None:
        """The entry's row is on disk."""
        self._refused.pop(entry.client_hash, None)  # the same bytes are judged anew
        if entry.state == "reserved":
            entry.state = "journalled"
            entry.broadcast = entry.kind != "sign"
        if entry.waiters:
            _tell(entry)

    async def decided(self, entry: Entry) -> Reason | None:
        """Wait until an entry is journalled or released; why it was released, if it was."""
        if entry.state == "reserved":
            await next_step(entry)
        return entry.refusal

    def release(self, entry: Entry, reason: Reason) -> None:
        """The entry did not get to the disk: nothing was promised."""
        self.inflight.remove(entry)
        self.sponsor.give_back(entry)
        entry.state, entry.refusal = "over", reason
        _tell(entry)

    def withdraw(self, entry: Entry) -> bool:
        """The signing process refused a journalled entry; whether it is given back, and nobody was told: `withdrawn`.

        It is given back only when no other question can have been answered with a signature, which may have left: else
        it keeps (sender, nonce) and its fee at risk until the chain is past it.
        """
        if entry.sign_requests or entry.state != "journalled":
            return False
        entry.refusal = reasons.IN_DOUBT
        self._untold.add(entry)
        self._refused[entry.client_hash] = entry
        self._end(entry, "superseded", 0, is_unsure=True, tells=False)
        self._journal.unclaim(entry.tx.sender, entry.tx.nonce, entry.client_hash)
        return True

    async def withdrawn(self, refused: Mapping[Entry, Reason]) -> None:
        """Tell why these will never run, once no start finds them any more; where one may, they stay in doubt."""
        try:
            await self._journal.unclaimed({(entry.tx.sender, entry.tx.nonce) for entry in refused})
        except JournalError as error:
            log.warning("what was refused may be found by a start", extra={"error": str(error), "count": len(refused)})
            self._doubted.update(refused)
        else:
            for entry, reason in refused.items():
                entry.refusal = reason
                if self._refused.get(entry.client_hash) is entry:
                    del self._refused[entry.client_hash]
                    self.fates.over(entry, "superseded", None, None)
                    self.on_refused(entry)
        finally:
            self._untold.difference_update(refused)
            for entry in refused:
                _tell(entry)

    def doubted(self) -> Mapping[Entry, Reason]:
        """What is to be told once more, see `withdrawn`: disk or server were away."""
        doubted, self._doubted = self._doubted, {}
        return {entry: reason for entry, reason in doubted.items() if self._refused.get(entry.client_hash) is entry}

    def is_untold(self, entry: Entry) -> bool:
        """Whether an entry was refused, and `told` has to wait for what that means."""
        return entry in self._untold

    async def told(self, entry: Entry) -> None:
        """Wait until it is known what the refusal of an entry means, if it was refused."""
        if entry in self._untold:
            await next_step(entry)

    def complete(self, entry: Entry) -> None:
        """The entry came with all its signatures; its row says so already."""
        self.inflight.signed(entry)

    def cosigned(self, signatures: Sequence[tuple[Entry, bytes]]) -> None:
        """Entries have got their relayer's signature; nothing changes where one is over, or has it already."""
        rows, late_ms = [], self._wall_ms() - LATE_MS
        for entry, signature in signatures:
            if entry.chain_hash or entry.state == "over":
                continue
            self.inflight.signed(entry, signature)
            if entry.broadcast and entry.created_ms < late_ms:
                self._begin_now(entry)
            self.sponsor.signed(entry)
            if entry.waiters:
                _tell(entry)
            rows.append((entry.tx.sender, entry.tx.nonce, signature))
            self._share_signature(entry, signature)
        if rows:
            self._journal.cosigned(rows)

    def seen_signed(self, client_hash: bytes, signature: bytes) -> None:
        """A final block has what a key of ours signed: so it was signed, also where a kill kept that from the disk."""
        entry = self.inflight.by_client_hash(client_hash)
        if entry is not None and entry.state == "journalled" and entry.kind != "broadcast":
            self.cosigned([(entry, signature)])

    def want_broadcast(self, entry: Entry) -> bool:
        """The entry is to be broadcast from now on; whether its row has yet to say so."""
        if entry.state == "over" or (entry.broadcast and entry.state != "expired"):
            return False
        entry.recovered = False
        entry.end = None
        entry.broadcast, entry.state = True, "signed"
        self._begin_now(entry, "broadcast = 1, state = 'signed', ")
        if entry.kind == "sign" and self._journal.sharing is not None:
            self._journal.sharing.sent(entry.tx.sender, entry.tx.nonce)
        return True

    def on_its_way(self, entry: Entry) -> None:
        """The broadcaster has the entry."""
        self.want_broadcast(entry)
        entry.sending = True

    def expire(self, entry: Entry) -> None:
        """Stop broadcasting. A co-signed transaction can still run, so it keeps its (sender, nonce)."""
        if entry.kind == "broadcast":
            self._end(entry, "dropped", None)
        else:
            self._give_up(entry)

    def not_executable(self, tx_hash: bytes, at_ms: int, *, live: bool = True) -> bytes | None:
        """A final block, made at `at_ms`, proposed the transaction, and it could not be executed: it is sent no more.

        Neither its nonce nor its fee is used, and whoever has it may send it again: it keeps its (sender, nonce), and
        its fee at risk, until the chain is past it. Its client hash, empty if it is not in flight; `None` where it was
        sent anew since then, so that this is old news, as only what is read again can be: not `live`. The chain's
        clock may be far from ours, so news are not judged by it.
        """
        entry = self.inflight.by_chain_hash(tx_hash)
        if entry is None:
            return b""
        # A block bears the time its round began, and may hold what came during it; and clocks differ by a little.
        if not live and at_ms < entry.created_ms - max(self.rounds.ms_at(at_ms), APART_MS):
            return None
        if entry.state == "signed":
            self._give_up(entry)
        return entry.client_hash

    def overdue(self, before_ms: int) -> list[Entry]:
        """What was only signed, and nobody has broadcast since before a time."""
        return [entry for entry in self.inflight.only_signed() if self.is_overdue(entry, before_ms)]

    def is_overdue(self, entry: Entry, before_ms: int) -> bool:
        """Whether an entry was only signed before a time, for a stranger who has it, and nobody has broadcast it."""
        is_kept = entry.kind == "sign" and entry.state == "signed" and entry.handed_out and not entry.broadcast
        return is_kept and not entry.person and entry.created_ms < before_ms

    def may_have_missed(self, sender: bytes) -> bool:
        """Whether the end of something that the sender has in flight may be known to the chain API alone."""
        return self.is_blind or any(entry.losses != self._losses for entry in self.inflight.of_sender(sender).values())

    def drop_given_up(self, before_ms: int) -> None:
        """Let go of given-up transactions that nobody here signed and that began before `before_ms`."""
        for entry in self.inflight.entries():
            if entry.kind == "broadcast" and entry.state == "expired" and entry.created_ms < before_ms:
                self._end(entry, "dropped", None)

    def is_wanted(self, entry: Entry) -> bool:
        """Whether an entry is still to be broadcast."""
        return entry.state == "signed" and self.inflight.by_client_hash(entry.client_hash) is entry

    async def claim_elsewhere(self, sender: bytes, nonce: int, client_hash: bytes) -> Claimed | None:
        """What another relayer of our keys has, or had, for a nonce; see `Sharing.kept_elsewhere`. Raises
        `JournalError`."""
        if self._journal.sharing is None or nonce > MAX_NONCE:
            return None
        return await self._journal.sharing.kept_elsewhere(sender, nonce, client_hash)

    async def ask_elsewhere(self, sender: bytes, nonce: int) -> dict[int, Claimed]:
        """Learn what other relayers of our keys have in flight of a sender from a nonce on; all their claims of it.

        Raises `JournalError`.
        """
        if self._journal.sharing is None or nonce > MAX_NONCE:
            return {}
        claims = await self._journal.sharing.elsewhere(sender, nonce, MAX_NONCE)
        self.inflight.know_elsewhere(sender, {at: _value(item) for at, item in claims.items() if item.tx is not None})
        return claims

    def included(
        self,
        tx_hash: bytes,
        fee: int | None,
        height: int | None = None,
        block: BlockFacts | None = None,
        paid: tuple[bytes, int] | None = None,
    ) -> tuple[bytes, int] | None:
        """A final block has the transaction: its fee is settled, its nonce is the chain's business now.

        `height` is that of the header that brought its result, `paid` the key of ours that pays, and how much at most.
        The sender and the nonce it has at least now, if the transaction was in flight.
        """
        entry = self.inflight.by_chain_hash(tx_hash)
        if entry is None:
            written_off = self.sponsor.written_off.take(tx_hash)
            if written_off is not None:
                self.sponsor.balances.paid(written_off.key, written_off.fee, height)
                self._written_off_is_over(written_off, "finished")
            elif paid is not None:  # by another relayer of our keys, or signed before a safe start, or given up here
                self.sponsor.balances.paid(*paid, height)
            return None
        cost = entry.fee if fee is None else fee
        if entry.kind == "broadcast" and entry.tx.relayer:  # of a key of ours, if it ever came to that
            self.sponsor.balances.paid(entry.tx.relayer, cost, height)
        self._end(entry, "finished", cost, height=height)
        self.fates.over(entry, "finished", fee, block)
        return entry.tx.sender, entry.tx.nonce + 1

    def nonce_moved(self, sender: bytes, nonce: int) -> None:
        """The chain is at `nonce`: entries below it were superseded, and can never run any more.

        They cost nothing, as no final block had them; but where events were lost since they began nobody knows that,
        and their fee counts as spent.
        """
        for entry in [item for at, item in self.inflight.of_sender(sender).items() if at < nonce]:
            # What is not signed here may have been signed, sent and run by another relayer of our keys: who claimed
            # what was taken over, who took our seat, or who was given the same bytes. Or here, before a kill kept that
            # from the disk, and in one of the blocks that were not seen.
            is_unseen = entry.losses != self._losses
            is_unsure = self._journal.sharing is not None and not entry.chain_hash
            if not entry.chain_hash and not is_unsure and not (is_unseen and entry.sign_requests):
                entry.refusal = reasons.NONCE_TOO_LOW
            is_ours = is_unseen or (is_unsure and entry.handed_out)
            self._end(entry, "superseded", entry.fee if is_ours else 0, is_unsure=is_unsure)
            if entry.refusal is not None:
                self.on_refused(entry)
        is_surely_another = not self._losses
        for item in self.sponsor.nonce_used(sender, nonce, surely_another=is_surely_another):
            self._written_off_is_over(item, never_ran=is_surely_another)

    def waits_below(self, sender: bytes, nonce: int) -> bool:
        """Whether anything of the sender's ends when the chain is at this nonce."""
        of_sender = self.inflight.of_sender(sender)
        return any(at < nonce for at in of_sender) or self.sponsor.written_off.waits_below(sender, nonce)

    def events_lost(self) -> None:
        """Events are missing from the stream: what ends from now on without them ends for all it can have cost."""
        self._losses += 1
        self._journal.keep_loss(self._wall_ms())

    async def pause(self, shards: frozenset[int]) -> None:
        """These shards' keys pay for nobody until told otherwise, over restarts, too. Raises `JournalError`.

        A pause holds at once; it ends once that is on the disk.
        """
        self.sponsor.paused |= shards
        self._journal.keep_pause(shards)
        await self._journal.written()
        self.sponsor.paused = shards

    def nonce_heard(self, sender: bytes, nonce: int) -> None:
        """The chain API is at `nonce`, maybe by a block not yet final: only what is not being sent is let go.

        While the stream of events is whole it will tell, and also whether a block had it.
        """
        for entry in [item for at, item in self.inflight.of_sender(sender).items() if at < nonce]:
            is_unsent = entry.state == "expired" or (entry.state == "signed" and not entry.broadcast)
            if is_unsent and (self.is_blind or entry.losses != self._losses):
                self._end(entry, "superseded", entry.fee)
        if self.is_blind or self._losses:
            for item in self.sponsor.nonce_used(sender, nonce, surely_another=False):
                self._written_off_is_over(item)

    def write_off(self, client_hash: bytes) -> bool:
        """Its operator says that a transaction will not run, or that it does not matter; whether that was done.

        Its fee counts as spent, and nothing else is ever signed for its (sender, nonce): it may still run. The request
        is forgotten in the same commit; that of one which is over is forgotten alone, that of one not written waits.
        """
        entry = self.inflight.by_client_hash(client_hash)
        if entry is None:
            self._journal.forget_write_off(client_hash)
            return False
        if entry.state == "reserved" or self.sponsor.written_off.is_full:
            return False
        self._end(entry, "superseded", entry.fee, written_off=True)
        return True

    # ---- restart

    def restore(self, records: Sequence[Record]) -> None:
        """Take over the entries that may still run, and what was written off and may."""
        try:
            self.sponsor.paused = self._journal.paused_shards()
        except JournalError as error:
            log.error("all shards are paused", extra={"reason": str(error)})
            self.sponsor.pause_all()
        lost_ms = self._lost_ms()
        self._losses = 0 if lost_ms is None else 1
        for item in at_risk.written_off(self._journal.read):
            chain_hash = item.chain_hash or b""
            self.sponsor.written_off.add(
                WrittenOffFee(item.relayer or b"", item.sender, item.nonce, chain_hash, item.fee)
            )
        for record in records:
            entry = self._entry(record)
            entry.losses = self._losses if lost_ms is None or record.created_ms > lost_ms else -1
            self.inflight.add(entry)
            if entry.chain_hash and entry.kind != "broadcast":
                self.sponsor.signed(entry)
                self._share_signature(entry, entry.tx.relayer_signature)  # who was killed may not have told it

    def _share_signature(self, entry: Entry, signature: bytes) -> None:
        """Whoever of our keys' relayers is asked for the same bytes tells what was only to be signed."""
        if entry.kind == "sign" and self._journal.sharing is not None:
            self._journal.sharing.signed(entry.tx.sender, entry.tx.nonce, signature)

    def _lost_ms(self) -> float | None:
        """When events were lost last, if they ever were. One that cannot be read is later than all that is there."""
        try:
            return self._journal.lost_ms()
        except ValueError as error:
            log.error(
                "when events were lost cannot be read: all in flight may cost its fee", extra={"error": str(error)}
            )
            return math.inf

    def _entry(self, record: Record) -> Entry:
        tx = transaction_of(record)
        ip, person = origin_of(record.ip)
        return Entry(
            tx=tx,
            proto=record.tx,
            client_hash=record.client_hash,
            kind=record.kind,  # type: ignore[arg-type]
            sender_shard=self._network.shard_of(tx.sender),
            receiver_shard=self._network.receiver_shard_of(tx.receiver, tx.sender),
            fee=record.fee,
            created_ms=record.created_ms,
            target=None if record.kind == "broadcast" else target_of(tx),
            ip=ip,
            person=person,
            sdk_hash=early_hashes(tx)[1],
            chain_hash=record.chain_hash or b"",
            state="signed" if record.kind == "broadcast" and record.state == "journalled" else record.state,  # type: ignore[arg-type]
            broadcast=record.broadcast,
            sign_requests=1,  # its row says nothing of signatures that left a moment before the process died
            handed_out=True,
            recovered=True,
        )

    # ---- insides

    def _end(
        self,
        entry: Entry,
        state: str,
        cost: int | None,
        *,
        height: int | None = None,
        written_off: bool = False,
        is_unsure: bool = False,
        tells: bool = True,
    ) -> None:
        """The entry is over, for `cost` where one of our keys paid; what became of it is told unless that is unsure.

        `tells`: whoever waits for its next step.
        """
        self.inflight.remove(entry)
        entry.state = "over"
        if tells:
            _tell(entry)
        line = self.sponsor.close(entry, cost, height=height, written_off=written_off)
        charged, at = self.sponsor.programmes.close(entry.client_hash, cost or 0), self._wall_ms()
        if state != "finished" and not is_unsure:
            how = "written off" if written_off else "unseen" if state == "superseded" and cost else state
            self.fates.over(entry, how, None, None)
        # What was written off may still run: as it has not ended, its row is never pruned and keeps its nonce taken.
        ended = None if written_off else at
        end = (*_row(entry), state, None if cost is None else str(cost), ended)
        further: list[Write] = []
        if charged is not None:
            further.append(lambda connection: programmes.end(connection, entry.client_hash, charged, at))
        if written_off:
            further.append(lambda connection: drop_write_off(connection, entry.client_hash))
        self._journal.ended([end], [] if line is None else [line], *further)

    def _written_off_is_over(self, item: WrittenOffFee, state: str = "superseded", *, never_ran: bool = False) -> None:
        """Its nonce is used: its row may be forgotten like any other."""
        now, row = self._wall_ms(), (item.sender, item.nonce)
        assignments = f"ended_ms = ?, state = ?{f', {_NEVER_RAN}' if never_ran else ''}"

        def write(connection: sqlite3.Connection) -> None:
            values = now, state, *row
            connection.execute(f"UPDATE submissions SET {assignments} WHERE sender = ? AND nonce = ?", values)

        self._journal.change(write)
        if self._journal.sharing is not None:
            self._journal.sharing.written_off_is_over(*row, state, "0" if never_ran else None, now)

    def _give_up(self, entry: Entry) -> None:
        entry.state = "expired"
        entry.sending = False
        self._update(entry, "state = 'expired'")

    def _begin_now(self, entry: Entry, assignments: str = "") -> None:
        """Its time on the network begins now, not when it was accepted."""
        entry.created_ms = self._wall_ms()
        self._update(entry, f"{assignments}created_ms = ?", entry.created_ms)

    def _update(self, entry: Entry, assignments: str, *values: object) -> None:
        row = _row(entry)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(f"UPDATE submissions SET {assignments} WHERE {_ROW}", (*values, *row))

        self._journal.change(write)


def record_of(entry: Entry) -> Record:
    """The journal's row for an entry."""
    return Record(
        sender=entry.tx.sender,
        nonce=entry.tx.nonce,
        client_hash=entry.client_hash,
        chain_hash=None,  # not written
        tx=entry.proto,
        kind=entry.kind,
        relayer=entry.tx.relayer if entry.kind != "broadcast" else None,
        fee=entry.fee,
        cost=None,
        ip=origin_text(entry.ip, entry.person),
        created_ms=entry.created_ms,
        state="journalled",
        broadcast=entry.kind != "sign",
    )


def charge_of(entry: Entry) -> programmes.Charge:
    """What the journal keeps of an entry that a programme pays for."""
    return programmes.Charge(entry.client_hash, entry.programme, entry.tx.sender, entry.fee)


def _value(claimed: Claimed) -> int:
    """What a claim of others can take from its sender's balance."""
    try:
        return from_proto(claimed.tx or b"").value
    except TransactionError as error:
        raise JournalError(f"a claim of another relayer cannot be read: {error}") from None


_ROW = "sender = ? AND nonce = ? AND client_hash = ?"


def _row(entry: Entry) -> tuple[bytes, int, bytes]:
    """What `_ROW` asks for."""
    return entry.tx.sender, entry.tx.nonce, entry.client_hash


def _tell(entry: Entry) -> None:
    for waiter in entry.waiters:
        if not waiter.done():
            waiter.set_result(None)
    entry.waiters = ()
