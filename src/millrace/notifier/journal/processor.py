"""From a node's payload to events in the open transaction: decode, compare, normalise, append."""

from __future__ import annotations

import logging
import sqlite3
from collections import defaultdict
from functools import partial
from typing import NamedTuple

from google.protobuf.message import Message

from millrace.chain import outport
from millrace.chain.headers import Header, hash_matches, proposes, read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedBlock
from millrace.chain.shard import METACHAIN
from millrace.notifier.journal.dead_letters import DeadLetters
from millrace.notifier.journal.rows import JournalStore
from millrace.notifier.metrics import Metrics, Tally, one_of
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules import dedup, messages, results, slices
from millrace.notifier.rules.block_events import BLOCKS, read_block
from millrace.notifier.rules.comparing import Comparing, Digests
from millrace.notifier.rules.dedup import CONFLICT, HISTORICAL, INCOMPLETE, UNJOINED, Observer, Verdict
from millrace.notifier.rules.earlier import Memory
from millrace.notifier.rules.entry import Entry, now_ms
from millrace.notifier.rules.messages import Decoded, Undecodable
from millrace.notifier.rules.normalise import Splitter, facts_of, normalise
from millrace.notifier.rules.results import Brought

log = logging.getLogger(__name__)
_HINT_NEWER = 'upgrade the notifier, or set MarshallerType = "gogo protobuf" at the node'
_log_missing = OccasionalLog(log, logging.WARNING, "blocks are missing")
_log_fork = OccasionalLog(log, logging.WARNING, "two blocks have one nonce")
_log_dead_letter = OccasionalLog(log, logging.WARNING, "dead letter")


class Arrival(NamedTuple):
    """One payload as a node sent it."""

    observer: Observer
    remote: str
    topic: str
    version: int
    payload: bytes
    received_ms: int
    unknown: tuple[str, ...] = ()
    """Names in a header that came as JSON: without them it does not hash to its hash."""


class _Told(NamedTuple):
    """A block that brings executions, with what was found out about it."""

    decoded: Decoded
    message: pb.OutportBlock
    sliced: SlicedBlock
    header: Header
    digests: Digests
    newest: int | None
    """The newest nonce of the shard before it."""


class Processor:
    """Works inside the transaction of its store; used by one thread."""

    def __init__(self, store: JournalStore, dead_letters: DeadLetters, metrics: Metrics, shards: int) -> None:
        self._store = store
        self._shards = shards
        self._dead = dead_letters
        self._metrics = metrics
        self.tally = Tally()
        """What the open transaction will have counted."""
        self.blocks_ms: dict[int, int] = {}
        """Shard -> when (ms) a block of it came that is news of the open transaction."""
        self._memory = Memory()
        self._comparing = Comparing()
        text = "a block breaks a rule and is passed on as it came"
        self._log_irregular: dict[str, OccasionalLog] = defaultdict(lambda: OccasionalLog(log, logging.WARNING, text))
        """A log for each rule: where several are broken at once, each is named."""

    def remember_newest(self) -> None:
        """What the next blocks need to know of those that are in the journal; comes before the first `process`."""
        for entry in self._store.newest:
            if entry.topic in BLOCKS:
                block = read_block(entry.payload)
                if block.HasField("transactionPool"):
                    pool = SlicedBlock.FromString(entry.payload).transactionPool
                    normalise(pool, facts_of(block.shardID, pool, block.blockData.body), self._memory)
        self._store.newest.clear()

    def process(self, arrival: Arrival) -> list[Entry]:
        """Append the events of one payload, if it has news. Never raises for what the payload says.

        Raises `sqlite3.Error` or `OSError` when the disk refuses.
        """
        if arrival.topic not in outport.PAYLOADS:
            self.tally.add(self._metrics.unknown_topics)
            return []
        mark, tally_mark = self._store.mark(), self.tally.mark()
        try:
            entries = self._append_news(arrival)
        except Undecodable as error:
            reason = str(error)
        except (sqlite3.Error, OSError):
            raise
        except Exception as error:
            # A defect of ours must neither stop the node nor lose its message.
            log.exception("message could not be processed", extra={"topic": arrival.topic})
            reason = f"defect: {type(error).__name__}: {error}"[:500]
        else:
            return entries
        self._store.back_to(mark)
        self.tally.back_to(tally_mark)
        self._bury(arrival, reason)
        return []

    def release_overdue(self, before_ms: int) -> list[Entry]:
        """Append the finalised marks that waited too long for their block."""
        return [self._append(event, b"", before_ms) for event in dedup.release(self._store, before_ms)]

    def _append_news(self, arrival: Arrival) -> list[Entry]:
        decoded = messages.decode(arrival.topic, arrival.payload)
        if self._shards <= decoded.shard != METACHAIN:
            raise Undecodable(
                f"shard {decoded.shard}: the network has {self._shards}, and the metachain (setting shards)"
            )
        message, agreed = decoded.message, True
        if isinstance(message, pb.OutportBlock):
            entries, agreed = self._append_block(decoded, message, arrival)
        elif isinstance(message, pb.UnreadBlock):
            self._note_irregular("keys_are_no_text", decoded)
            unread = slices.digest(arrival.payload)
            verdict = dedup.save(self._store, arrival.observer, decoded.shard, decoded.block_hash, None, unread)
            entries = self._append_all(decoded, verdict, arrival, arrival.payload)
        else:
            return self._append_all(decoded, self._judge(decoded, arrival), arrival, message)
        if entries and agreed:
            self.blocks_ms[decoded.shard] = arrival.received_ms
        return entries

    def _append_block(self, decoded: Decoded, message: pb.OutportBlock, arrival: Arrival) -> tuple[list[Entry], bool]:
        """The events of a block, and whether its parts agree on its shard."""
        sliced, payload, contract_results = slices.cut(arrival.payload, message)
        header, agreed = self._header(decoded, message, arrival)
        digests = self._comparing.digests(message, sliced, payload)
        if proposes(message.blockData.headerType):
            return self._append_proposal(decoded, message, sliced, header, digests, arrival), agreed
        verdict = self._save(decoded, arrival, header, digests)
        if message.blockData.headerType not in outport.HEADERS:  # what its parts mean is not known either
            return self._append_all(decoded, verdict, arrival, arrival.payload), agreed
        if any(not event.alone for event in verdict.events):
            facts = facts_of(message.shardID, sliced.transactionPool, message.blockData.body, contract_results)
            normalise(sliced.transactionPool, facts, self._memory)
        return self._append_all(decoded, verdict, arrival, sliced), agreed

    def _append_all(
        self, decoded: Decoded, verdict: Verdict, arrival: Arrival, content: Message | bytes
    ) -> list[Entry]:
        """Append what a verdict says; `content` is the payload of its events, or the message to make it from."""
        self._count(decoded, verdict)
        payload = b""
        if any(not event.alone for event in verdict.events):
            payload = content if isinstance(content, bytes) else outport.canonical(content)
        return [self._append(event, payload, arrival.received_ms) for event in verdict.events]

    def _header(self, decoded: Decoded, message: pb.OutportBlock, arrival: Arrival) -> tuple[Header | None, bool]:
        """The header of a block, if it is one of its shard, and whether nothing says otherwise; faults are counted."""
        data = message.blockData
        header = read_header(data)
        if data.headerType not in outport.HEADERS:
            self._note_irregular("format_unknown", decoded, format=data.headerType[:64])
        elif (header is None or not hash_matches(data)) and arrival.unknown:
            names = ", ".join(arrival.unknown)
            self._note_irregular("header_newer", decoded, node=arrival.remote, unknown=names, hint=_HINT_NEWER)
        elif header is None or not hash_matches(data):
            self._note_irregular("header_unreadable", decoded)
        if proposes(data.headerType) and message.transactionPool.ListFields():
            self._note_irregular("proposal_with_pool", decoded)
        if data.shardID != decoded.shard or (header is not None and header.shard != decoded.shard):
            self._note_irregular("shard_contradicted", decoded)
            return None, False
        return header, True

    def _append_proposal(
        self,
        decoded: Decoded,
        message: pb.OutportBlock,
        sliced: SlicedBlock,
        header: Header | None,
        digests: Digests,
        arrival: Arrival,
    ) -> list[Entry]:
        """A block that only proposes, as it came, and behind it the executions of earlier headers that it brings.

        A mark of its finality that came first follows them all: it is theirs too.
        """
        brought = Brought(()) if header is None else results.brought(message.blockData, header)
        newest = self._store.newest_nonce(decoded.shard)
        verdict = self._save(decoded, arrival, header, digests)
        self._count(decoded, verdict)
        self._check(decoded, brought)
        entries = []
        incomplete = INCOMPLETE if brought.missing or brought.contradicted else 0
        for event in verdict.events:
            if not event.alone:
                marked = event._replace(marks=event.marks | incomplete)
                entries.append(self._append(marked, arrival.payload, arrival.received_ms))
        if header is not None:
            told = _Told(decoded, message, sliced, header, digests, newest)
            entries += self._append_executions(told, brought, arrival.received_ms)
        marks = [event for event in verdict.events if event.alone]
        return entries + [self._append(event, b"", arrival.received_ms) for event in marks]

    def _check(self, decoded: Decoded, brought: Brought) -> None:
        """Count which rules break what a block brings."""
        for kind, broken in (
            ("result_unlisted", brought.unlisted),
            ("results_disordered", brought.disordered),
            ("result_missing", brought.missing),
            ("result_impossible", brought.impossible),
            ("result_contradicted", brought.contradicted),
        ):
            if broken:
                self._note_irregular(kind, decoded)

    def _append_executions(self, told: _Told, brought: Brought, received_ms: int) -> list[Entry]:
        """Append those executions that are news; what their splitting makes is bounded for all together."""
        entries = []
        decoded, sliced = told.decoded, told.sliced
        slices_of = {entry.key.decode(): entry.value for entry in sliced.blockData.results}
        splitter = Splitter()
        for execution in brought.executions:
            key = execution.block_hash.hex()
            verdict = dedup.execute(
                self._store, decoded.shard, execution.block_hash, execution.nonce,
                told.digests.results[key], partial(told.digests.closer, key),
            )  # fmt: skip
            self._count(decoded, verdict, outport.EXECUTED_BLOCK)
            if verdict.unheard and told.newest is not None and execution.nonce <= told.newest:
                self._note_irregular("result_unheard", decoded)
            for event in verdict.events:
                block = results.executed_block(sliced, slices_of[key], decoded.block_hash, told.header, execution)
                facts = facts_of(block.shardID, block.transactionPool, told.message.blockData.results[key].body)
                normalise(block.transactionPool, facts, self._memory, splitter)
                entries.append(self._append(event, block.SerializeToString(), received_ms))
        return entries

    def _save(self, decoded: Decoded, arrival: Arrival, header: Header | None, digests: Digests) -> Verdict:
        nonce, shard = None if header is None else header.nonce, decoded.shard
        return dedup.save(
            self._store, arrival.observer, shard, decoded.block_hash, nonce, digests.whole, digests.closer
        )  # fmt: skip

    def _judge(self, decoded: Decoded, arrival: Arrival) -> Verdict:
        store, shard, message = self._store, decoded.shard, decoded.message
        if decoded.topic == outport.FINALIZED_BLOCK:
            return dedup.finalise(store, shard, decoded.block_hash, arrival.received_ms)
        if decoded.topic == outport.REVERT_INDEXED_BLOCK:
            return dedup.revert(store, arrival.observer, shard, decoded.block_hash)
        return dedup.other(store, decoded.topic, shard, messages.content_digest(message))

    def _append(self, event: dedup.Event, payload: bytes, received_ms: int) -> Entry:
        if event.alone:
            payload = pb.FinalizedBlock(shardID=event.shard, headerHash=event.subject).SerializeToString()
        shard = self._metrics.shard(event.shard)
        self.tally.add(one_of(self._metrics.events, event.topic, shard))
        if event.topic == outport.REVERT_INDEXED_BLOCK:
            self.tally.add(self._metrics.reverts.labels(shard))
        for mark, counter in (
            (CONFLICT, self._metrics.conflicts),
            (HISTORICAL, self._metrics.historical),
            (UNJOINED, self._metrics.unjoined),
            (INCOMPLETE, self._metrics.incomplete),
        ):
            if event.marks & mark:
                self.tally.add(counter.labels(shard))
        return self._store.append(event.topic, event.shard, event.marks, event.message_id, received_ms, payload)

    def _note_irregular(self, kind: str, decoded: Decoded, **more: str) -> None:
        self.tally.add(self._metrics.irregular.labels(kind))
        self._log_irregular[kind](kind=kind, shard=decoded.shard, block=decoded.block_hash.hex(), **more)

    def _count(self, decoded: Decoded, verdict: Verdict, topic: str = "") -> None:
        topic = topic or decoded.topic
        shard = self._metrics.shard(decoded.shard)
        if verdict.duplicate:
            self.tally.add(one_of(self._metrics.duplicates, topic))
        if verdict.missing_blocks:
            executions = topic == outport.EXECUTED_BLOCK
            missing = self._metrics.missing_executions if executions else self._metrics.missing_blocks
            self.tally.add(missing.labels(shard), verdict.missing_blocks)
            _log_missing(shard=decoded.shard, count=verdict.missing_blocks, of="executions" if executions else "blocks")
        if verdict.fork:
            self.tally.add(self._metrics.forks.labels(shard))
            _log_fork(shard=decoded.shard)

    def _bury(self, arrival: Arrival, reason: str) -> None:
        self.tally.add(self._metrics.dead_letters)
        self._dead.add(now_ms(), arrival.remote, arrival.topic, arrival.version, reason, arrival.payload)
        _log_dead_letter(topic=arrival.topic[:64], remote=arrival.remote, reason=reason)
