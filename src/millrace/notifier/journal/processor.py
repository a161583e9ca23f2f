"""From a node's payload to events in the open transaction: decode, compare, normalise, append."""

from __future__ import annotations

import logging
import sqlite3
from typing import NamedTuple

from google.protobuf.message import Message

from millrace.chain import outport
from millrace.chain.headers import read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.journal.dead_letters import DeadLetters
from millrace.notifier.journal.rows import JournalStore
from millrace.notifier.metrics import Metrics, Tally
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules import dedup, messages
from millrace.notifier.rules.dedup import CONFLICT, HISTORICAL, UNJOINED, Observer, Verdict
from millrace.notifier.rules.entry import Entry, now_ms
from millrace.notifier.rules.messages import Decoded, Undecodable
from millrace.notifier.rules.normalise import Memory, normalise

log = logging.getLogger(__name__)
_log_missing = OccasionalLog(log, logging.WARNING, "blocks are missing")
_log_fork = OccasionalLog(log, logging.WARNING, "two blocks have one nonce")
_log_dead_letter = OccasionalLog(log, logging.WARNING, "dead letter")

_WARMED_BY = 64  # blocks of the journal which the memory of earlier blocks is rebuilt from at start


class Arrival(NamedTuple):
    """One payload as a node sent it."""

    observer: Observer
    remote: str
    topic: str
    version: int
    payload: bytes
    received_ms: int


class Processor:
    """Works inside the transaction of its store; used by one thread."""

    def __init__(self, store: JournalStore, dead_letters: DeadLetters, metrics: Metrics) -> None:
        self._store = store
        self._dead = dead_letters
        self._metrics = metrics
        self.tally = Tally()
        """What the open transaction will have counted."""
        self._memory = Memory()
        for entry in store.read_back(outport.SAVE_BLOCK, _WARMED_BY):
            normalise(pb.OutportBlock.FromString(entry.payload), self._memory)

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
            self._store.release_mark()
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
        verdict = self._judge(decoded, arrival)
        self._count(decoded, verdict)
        entries = []
        for event in verdict.events:
            payload = b""
            if not event.alone:
                message = decoded.message
                if isinstance(message, pb.OutportBlock):
                    normalise(message, self._memory)
                payload = _serialize(message)
            entries.append(self._append(event, payload, arrival.received_ms))
        return entries

    def _judge(self, decoded: Decoded, arrival: Arrival) -> Verdict:
        store, shard, message = self._store, decoded.shard, decoded.message
        if isinstance(message, pb.OutportBlock):
            header = read_header(message.blockData)
            digest = messages.content_digest(message)
            nonce = None if header is None else header.nonce
            return dedup.save(store, arrival.observer, shard, decoded.block_hash, nonce, digest)
        if decoded.topic == outport.FINALIZED_BLOCK:
            return dedup.finalise(store, shard, decoded.block_hash, arrival.received_ms)
        if decoded.topic == outport.REVERT_INDEXED_BLOCK:
            return dedup.revert(store, arrival.observer, shard, decoded.block_hash)
        return dedup.other(store, decoded.topic, shard, messages.content_digest(message))

    def _append(self, event: dedup.Event, payload: bytes, received_ms: int) -> Entry:
        if event.alone:
            payload = pb.FinalizedBlock(shardID=event.shard, headerHash=event.subject).SerializeToString()
        shard = self._metrics.shard(event.shard)
        self.tally.add(self._metrics.events.labels(event.topic, shard))
        if event.topic == outport.REVERT_INDEXED_BLOCK:
            self.tally.add(self._metrics.reverts.labels(shard))
        for mark, counter in (
            (CONFLICT, self._metrics.conflicts),
            (HISTORICAL, self._metrics.historical),
            (UNJOINED, self._metrics.unjoined),
        ):
            if event.marks & mark:
                self.tally.add(counter.labels(shard))
        return self._store.append(event.topic, event.shard, event.marks, event.message_id, received_ms, payload)

    def _count(self, decoded: Decoded, verdict: Verdict) -> None:
        shard = self._metrics.shard(decoded.shard)
        if verdict.duplicate:
            self.tally.add(self._metrics.duplicates.labels(decoded.topic))
        if verdict.missing_blocks:
            self.tally.add(self._metrics.missing_blocks.labels(shard), verdict.missing_blocks)
            _log_missing(shard=decoded.shard, count=verdict.missing_blocks)
        if verdict.fork:
            self.tally.add(self._metrics.forks.labels(shard))
            _log_fork(shard=decoded.shard)

    def _bury(self, arrival: Arrival, reason: str) -> None:
        self.tally.add(self._metrics.dead_letters)
        self._dead.add(now_ms(), arrival.remote, arrival.topic, arrival.version, reason, arrival.payload)
        _log_dead_letter(topic=arrival.topic[:64], remote=arrival.remote, reason=reason)


def _serialize(message: Message) -> bytes:
    # Deterministic, so that consumers and tests see map entries in one order.
    return message.SerializeToString(deterministic=True)
