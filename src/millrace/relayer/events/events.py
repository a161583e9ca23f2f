"""From the event stream to what clients are told: statuses, account updates, and the end of what is in flight."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal, Protocol

import msgspec
from google.protobuf.message import DecodeError
from msgspec import UNSET

from millrace.chain import outport
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.times import milliseconds
from millrace.relayer.blocks.facts import BlockFacts, Unexecutable
from millrace.relayer.blocks.reader import read_accounts, read_block, read_result, time_of
from millrace.relayer.blocks.tracker import Outcome, Release, Tracker
from millrace.relayer.events import account_feed
from millrace.relayer.events.absent_accounts import AbsentAccounts
from millrace.relayer.events.account_feed import AccountFeed
from millrace.relayer.events.execution import ExecutionLag
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.ledger.followed import Followed
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.protocol import messages
from millrace.relayer.protocol.topics import TxStatusTopic
from millrace.runtime.measures import CHAIN_BUCKETS, Timings

log = logging.getLogger(__name__)

INCOMPLETE = 8
"""The notifier's mark (field `marks`) of an event from which results are missing for good."""
NOT_EXECUTABLE = "not executable in block"
MAX_KINDS = 64
"""Kinds of unreadable events that are named in the log, each once."""
BELIEVED_SECONDS = 86_400.0
"""A notifier keeps its events for about so long; a block that seems to be older was made by another clock than ours."""


class Publisher(account_feed.Publisher, Protocol):
    """Tells clients."""

    def tell_statuses(self, ends: Iterable[tuple[TxStatusTopic, Callable[[], bytes]]]) -> int:
        """Tell each open subscription of these transactions their ends; how many were told."""

    def when_told(self, then: Callable[[], None]) -> None:
        """Call when all that was told until now is on its way to clients."""


class Observer(Protocol):
    """Hears of everything for statistics."""

    def block_saved(self, block: BlockFacts, now: float, age: float) -> None:
        """A block was saved, final or not; `age` seconds ago, where it is read late."""

    def block_executed(self, block: BlockFacts, now: float, age: float) -> None:
        """What a block executed was told, final or not: with the block, or later."""

    def not_executable(self, tx_hash: bytes) -> None:
        """A final block proposed a transaction that could not be executed."""

    def block_final(self, block: BlockFacts, now: float, age: float) -> None:
        """A saved block became final, and what it executed with it; `age` as above."""

    def events_lost(self) -> None:
        """Between the events before and those to come some are lost."""

    def told(self, since: float) -> None:
        """Clients were told everything that followed from a block saved at `since`."""

    def validators(self, message: pb.ValidatorsPubKeys) -> None:
        """The validators of an epoch."""


class Events:
    """Takes the hub's events one after the other; nothing here waits."""

    def __init__(
        self,
        network: NetworkProfile,
        tracker: Tracker,
        book: AccountBook,
        lifecycle: Lifecycle,
        publisher: Publisher,
        observer: Observer,
        absent: AbsentAccounts | None = None,
        clock: Callable[[], float] = time.monotonic,
        followed: Followed | None = None,
        execution_lag: int = 20,
    ) -> None:
        """`execution_lag`: by how many blocks a shard's execution may be behind before somebody is told."""
        self._network = network
        self._followed = Followed() if followed is None else followed
        self._traces: tuple[str, ...] = ()
        """Of the event in hand."""
        self._tracker = tracker
        self._book = book
        self._lifecycle = lifecycle
        self._accounts = AccountFeed(book, lifecycle, publisher, absent)
        self._publisher = publisher
        self._observer = observer
        self._clock = clock
        self.taken = 0
        self._live = True
        """Whether the event in hand is news, and not read again after the relayer, or the hub, was away."""
        self._incomplete = False
        """Whether the event in hand is marked so."""
        self._behind = 0.0
        """Of an event that is not, how long ago it was."""
        self._read_late = -math.inf
        """When the last such event was read."""
        self.unreadable = 0
        self._lost = 0
        self._unreadable_kinds: set[str] = set()
        self.statuses_told = 0
        self.final_delays = Timings(CHAIN_BUCKETS)
        """From a transaction's acceptance, or its first broadcast, to the final block of its sender's shard."""
        self.gaps = 0
        self.incomplete = 0
        """Events from which results are missing for good."""
        self.head: Callable[[], int] = lambda: 0
        """The newest event that there was when reading (again) began: what comes up to it comes late."""
        self._started = clock()
        self.block_at: dict[int, float] = {}
        """When each shard's last block came."""
        self.on_unexecutable: Callable[[Outcome], None] = lambda outcome: None
        """Told of what was in flight here and could not be executed."""
        self.execution = ExecutionLag(execution_lag)

    def on_event(self, topic: str, payload: bytes, sequence: int, marks: int = 0) -> tuple[str, ...]:
        """One event of the stream; what cannot be read is counted and skipped. The traces of transactions in it."""
        self.taken += 1
        self._traces = ()
        self._live = sequence > self.head()
        self._incomplete = bool(marks & INCOMPLETE)
        if self._incomplete:
            self._is_incomplete()
        try:
            self._take(topic, payload, sequence)
        except (outport.OutportError, DecodeError, ValueError) as error:
            self.unreadable += 1
            kind = f"{topic}: {error}"[:200]
            if kind not in self._unreadable_kinds and len(self._unreadable_kinds) < MAX_KINDS:
                self._unreadable_kinds.add(kind)
                log.error("unreadable event", extra={"topic": topic, "sequence": sequence, "error": str(error)[:200]})
        self._notice_losses()
        return self._traces

    def silence(self) -> dict[int, float]:
        """For how many seconds no block came, by shard: since the start of those never heard of, once any was."""
        heard = dict.fromkeys(range(self._network.shards), self._started) | self.block_at if self.block_at else {}
        now = self._clock()
        return {shard: now - seen for shard, seen in heard.items()}

    def untold(self, shard: int, limit: float) -> str | None:
        """Why nobody could tell what becomes of a shard's transactions: it, or its execution, is silent for too long.

        `limit` is in seconds; what is not executed counts as the rounds it took to propose it.
        """
        silent = self._clock() - self.block_at.get(shard, self._started)
        if silent > limit:
            return f"no block of shard {shard} for {silent:.0f} s"
        behind = self.execution.blocks.get(shard, 0)
        seconds = behind * self._lifecycle.rounds.seconds
        if behind and seconds >= limit:  # a network proposes nothing more beyond 100 blocks, which are 60 s
            return f"shard {shard} executes {behind} blocks ({seconds:.0f} s) behind what it proposes"
        return None

    def on_gap(self, first: int, last: int) -> None:
        """Events are lost: what accounts were thought to be may be wrong now."""
        self.gaps += 1
        self._accounts.forget_told()
        self._observer.events_lost()
        self._forget()

    def _is_incomplete(self) -> None:
        """Results are missing for good."""
        self.incomplete += 1
        self._forget()

    def _forget(self) -> None:
        """What was known of accounts may be wrong now, and what ended meanwhile was not heard of."""
        self._book.forget_all()
        self._lifecycle.sponsor.balances.forget_all()
        self._lifecycle.events_lost()

    def _notice_losses(self) -> None:
        """What could not be read, was forgotten for want of room, or was told differently, may have ended something."""
        lost = self.unreadable + self._tracker.unheard + self._tracker.disputed
        if lost != self._lost:
            self._lost = lost
            self._lifecycle.events_lost()

    def _take(self, topic: str, payload: bytes, sequence: int) -> None:
        now = self._clock()
        if not self._live:
            self._read_late = now
        match topic:
            case outport.SAVE_BLOCK | outport.EXECUTED_BLOCK:
                message = pb.OutportBlock.FromString(payload)
                if message.carryingHeaderHash:  # under either name, see the notifier's `executed_topic`
                    self._executed(message, sequence, now)
                else:
                    self._saved(message, sequence, now)
            case outport.FINALIZED_BLOCK:
                mark = pb.FinalizedBlock.FromString(payload)
                self._release(self._tracker.finalise(mark.shardID, mark.headerHash, self._told_at(now)), now)
            case outport.REVERT_INDEXED_BLOCK:
                data = pb.BlockData.FromString(payload)
                if self._tracker.revert(data.shardID, data.headerHash):
                    self._accounts.revert(data.shardID, time_of(data))
                else:
                    self._accounts.forget_told()
                    log.critical("a final block was reverted", extra={"shard": data.shardID})
            case outport.SAVE_ACCOUNTS:
                accounts = pb.Accounts.FromString(payload)
                stamp = accounts.blockTimestampMs or milliseconds(accounts.blockTimestamp)
                facts = read_accounts(accounts.alteredAccounts.values())
                unfinished = self._tracker.chains.holds(accounts.shardID)
                self._accounts.announce(accounts.shardID, stamp, facts, unfinished=unfinished)
            case outport.SAVE_VALIDATORS_PUB_KEYS:
                self._observer.validators(pb.ValidatorsPubKeys.FromString(payload))

    def _saved(self, message: pb.OutportBlock, sequence: int, now: float) -> None:
        block = read_block(message, self._network, self._lifecycle.sponsor.balances.keys)
        self.block_at[block.shard] = now
        self._note_traces(block)
        age = self._age(block)
        self._observer.block_saved(block, now, age)
        if block.header is not None:
            self._lifecycle.rounds.header(block.shard, block.header.round, block.header.epoch, block.timestamp_ms)
        if block.last_executed is not None:
            executed, at_ms = block.last_executed, block.timestamp_ms
            self.execution.header(block.shard, block.nonce, executed, at_ms=at_ms, is_live=self._live)
        if not block.proposes:
            self._observer.block_executed(block, now, age)
        self._behind = age
        self._release(self._tracker.save(block, sequence, self._told_at(now)), now)

    def _executed(self, message: pb.OutportBlock, sequence: int, now: float) -> None:
        result = read_result(message, self._network, self._lifecycle.sponsor.balances.keys)
        if result.settled is None and not self._incomplete:
            self._is_incomplete()
        self._note_traces(result)
        self._behind = self._age(result)
        self._observer.block_executed(result, now, self._behind)
        self._release(self._tracker.execute(result, sequence, self._told_at(now)), now)

    def _note_traces(self, block: BlockFacts) -> None:
        if self._followed:
            self._traces = self._followed.in_block([*block.sent, *(fact.tx_hash for fact in block.transactions)])

    def _age(self, block: BlockFacts) -> float:
        """How long ago a block was made that is read after the relayer, or the hub, was away; 0 of any other."""
        return 0.0 if self._live else max(0.0, time.time() - block.timestamp_ms / 1000)

    def _told_at(self, now: float) -> float:
        """When the event in hand was told first: what has no end for long has none, however often it is read again."""
        return now if self._live or self._behind > BELIEVED_SECONDS else now - self._behind

    def _release(self, release: Release, now: float) -> None:
        """Something became final. First what is in flight, then the accounts, then the words to clients."""
        for item in release.included:
            if item.signature:
                self._lifecycle.seen_signed(item.client_hash, item.signature)
            entry = self._lifecycle.inflight.by_chain_hash(item.tx_hash) if self._live else None
            if entry is not None:
                self.final_delays.observe(max(0.0, time.time() - entry.created_ms / 1000))
            moved = self._lifecycle.included(item.tx_hash, item.fee, item.height, item.block, item.paid)
            if moved is not None:
                self._book.raise_nonce(*moved)
        for block in release.blocks:
            self._observer.block_final(block, now, self._age(block))
            self._accounts.final(block, now)
        outcomes = [self._with_names(outcome) for outcome in release.outcomes]
        for outcome in outcomes:
            self._lifecycle.sponsor.ended(outcome.tx_hash, failed=outcome.status == "fail")
            self._keep_end(outcome)
        self._tell(outcomes)
        for outcome in release.named:
            self._keep_end(outcome)
            self.tell_never({outcome.client_hash, outcome.sdk_hash}, outcome.reason, outcome.tx_hash)
        for missed in release.unexecutable:
            self._not_executable(missed)
        if release.blocks and self._live and release.saved_at >= self._read_late:  # else an outage is in between
            self._publisher.when_told(partial(self._observer.told, release.saved_at))

    def _with_names(self, outcome: Outcome) -> Outcome:
        """With the hashes its sender knows, where no block but the table of what is in flight has them."""
        entry = None if outcome.client_hash else self._lifecycle.inflight.by_chain_hash(outcome.tx_hash)
        if entry is None or entry.client_hash == outcome.tx_hash:
            return outcome
        return msgspec.structs.replace(outcome, client_hash=entry.client_hash, sdk_hash=entry.sdk_hash)

    def _keep_end(self, outcome: Outcome) -> None:
        self._lifecycle.fates.ended(
            outcome.tx_hash, outcome.status, outcome.reason, since=outcome.since, client_hash=outcome.client_hash
        )

    def _not_executable(self, item: Unexecutable) -> None:
        """No end on the chain, but one for those who ask: it is sent no more, unless its client sends it again."""
        self._observer.not_executable(item.tx_hash)
        entry = self._lifecycle.inflight.by_chain_hash(item.tx_hash)
        client_hash = self._lifecycle.not_executable(item.tx_hash, item.timestamp_ms, live=self._live)
        if not self._live and not client_hash:
            return  # read again and not in flight: it may have been executed since, which is still to be read
        if client_hash is not None:
            self._lifecycle.fates.ended(
                item.tx_hash, "fail", NOT_EXECUTABLE, is_final=False, client_hash=item.client_hash
            )
            sdk_hash = entry.sdk_hash if entry is not None else item.sdk_hash
            outcome = Outcome(item.tx_hash, client_hash or item.client_hash, "fail", NOT_EXECUTABLE, sdk_hash)
            self._tell([outcome])
            if entry is not None:
                self.on_unexecutable(outcome)

    def tell_refused(self, entry: Entry) -> None:
        """An accepted transaction will never run: nobody signed it, and nobody will."""
        reason = "" if entry.refusal is None else entry.refusal.reason
        self.tell_never({entry.client_hash, entry.sdk_hash} - {b""}, reason)

    def tell_never(self, hashes: Iterable[bytes], reason: str, chain_hash: bytes = b"") -> None:
        """What is known by these hashes failed, was not executable, or will never run."""
        self.statuses_told += self._publisher.tell_statuses(
            (TxStatusTopic(tx_hash), partial(_status, tx_hash, "fail", reason, chain_hash)) for tx_hash in hashes
        )

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        """Tell the subscribers of each hash; each hears the one it asked for."""
        self.statuses_told += self._publisher.tell_statuses(
            (TxStatusTopic(tx_hash), partial(_status, tx_hash, outcome.status, outcome.reason, outcome.tx_hash))
            for outcome in outcomes
            for tx_hash in {outcome.tx_hash, outcome.client_hash, outcome.sdk_hash} - {b""}
        )
        for outcome in outcomes if self._followed else ():
            self._followed.ended(outcome.tx_hash, outcome.status)


def _status(subscribed: bytes, status: Literal["success", "fail"], reason: str, chain_hash: bytes = b"") -> bytes:
    """The word of a transaction's end to who subscribed to this hash of it."""
    data = messages.StatusData(
        hash=subscribed.hex(),
        status=status,
        reason=reason or UNSET,
        chain_hash=UNSET if chain_hash in (b"", subscribed) else chain_hash.hex(),
    )
    return messages.encode(messages.StatusMessage(data))
