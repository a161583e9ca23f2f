"""Delivery to consumers on `/hub/ws`.

A consumer is either live, and gets events as they are committed, or behind, and has a task of its own that reads
the journal at the consumer's pace until it has caught up. Nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from millrace.chain import outport
from millrace.notifier.journal.journal import Journal
from millrace.notifier.journal.tail import Tail
from millrace.notifier.metrics import Metrics
from millrace.notifier.rules.block_events import BLOCKS, BlockEvents
from millrace.notifier.rules.dedup import INCOMPLETE
from millrace.notifier.rules.entry import Entry, event_frame, now_ms
from millrace.notifier.rules.filters import ALL, Filter, FilterIndex
from millrace.notifier.rules.hub_protocol import Consumer, Position, ProtocolViolation, gap_message
from millrace.notifier.rules.places import Place, floors
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import websocket
from millrace.runtime.tasks import end_tasks
from millrace.runtime.tracing import Tracer

log = logging.getLogger(__name__)

_SOCKET_HIGH = 1024 * 1024  # bytes that may wait in a consumer's socket before delivery pauses
_READ_BYTES = _SOCKET_HIGH  # of the journal at a time: what has no room in the socket is read again
_READ_EVENTS = 256
_REMEMBERED_BLOCKS = 1024  # of each consumer: some hundred of each shard, where finality takes one or two, however long
# rounds are. Of what is forgotten marks are told rather too often.
_RENDERED_EVENTS = 32  # decoded for filters and kept, for consumers who catch up side by side
_TURN = 0.005  # seconds one consumer's catching up may take before others have their turn
_FILTERED_TOPICS = frozenset((outport.FINALIZED_BLOCK, outport.REVERT_INDEXED_BLOCK))


class _Rendered:
    """One event, its frames for every combination of filters that some consumer has."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._events: BlockEvents | None = None
        self._frames: dict[tuple[int, ...], bytes] = {}

    @property
    def events(self) -> BlockEvents:
        if self._events is None:
            self._events = BlockEvents(self.entry.payload)
        return self._events

    def reduced(self, matches: Iterable[list[int]]) -> bytes:
        """The frame with the events at all these positions, each once."""
        lists = list(matches)
        positions = tuple(lists[0] if len(lists) == 1 else sorted(set().union(*lists)))
        frame = self._frames.get(positions)
        if frame is None:
            frame = self._frames[positions] = event_frame(self.entry, self.events.reduced(positions))
        return frame


class HubSession(websocket.Session):
    """One consumer's connection."""

    max_message_size = 256 * 1024
    max_buffered = 2 * _SOCKET_HIGH  # and the newest event: half is for answers and gaps, which nothing holds back

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        settings = hub.settings
        self.hub = hub
        self.consumer = Consumer(settings.window_frames, settings.window_bytes, settings.max_subscriptions)
        self.filters: FilterIndex[None] = FilterIndex()
        self.wants_all = False
        self.live = False
        self.start = 0
        """Nothing up to this sequence was looked at for this consumer."""
        self.floors: dict[int, int] = {}
        """Of shards that have a place of their own: nothing up to this sequence is delivered."""
        self.resumed = False
        """Whether it may have been given earlier events on another connection."""
        self.cursor = 0
        """Everything up to this sequence was delivered or filtered out; not kept while live."""
        self.told: OrderedDict[str, None] = OrderedDict()
        """Blocks that were delivered through filters, and those that brought them."""
        self.executions: OrderedDict[str, None] = OrderedDict()
        """Those of them that are executions."""
        self.progress = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def on_open(self) -> None:
        self.limit_send_buffer(_SOCKET_HIGH)
        self.hub.sessions.add(self)

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        if kind == "text":
            self.close(websocket.UNSUPPORTED_DATA, "binary frames only")
            return
        try:
            changes = self.consumer.receive(data, self.hub.position(), asyncio.get_running_loop().time())
        except ProtocolViolation as violation:
            self.close(violation.code, str(violation), abort=True)
            return
        self.progress.set()
        if changes.traces:
            self.hub.traced(changes.done, changes.traces)
        for message in (changes.ack, changes.reply):
            if message:
                self.send_binary(message)
        if self.closed:  # it does not read its answers
            self.hub.note_cut(self)
            return
        if changes.removed is not None:
            self.hub.unsubscribe(self, changes.removed)
        if changes.added is not None:
            self.resumed = self.resumed or changes.resumes
            self.hub.subscribe(self, changes.added, changes.start, changes.place)

    def on_writable(self) -> None:
        self.progress.set()

    def on_close(self) -> None:
        self.hub.leave(self)

    def has_room(self) -> bool:
        """Whether one more event may be sent now."""
        return self.consumer.has_room and self.buffered < _SOCKET_HIGH and not self.closed

    def deliver(self, entry: Entry, frame: bytes) -> None:
        self.consumer.sent(entry.sequence, len(frame))
        self.max_buffered = 2 * _SOCKET_HIGH + len(frame)
        self.send_frames(frame)
        self.hub.count_sent(frame)

    def remember(self, block_hash: str, carrying: str) -> None:
        """A block was delivered; `carrying`: the one that brought it, if it is an execution, else empty. Hex hashes."""
        _keep(self.told, block_hash)
        if carrying:
            _keep(self.told, carrying)
            _keep(self.executions, block_hash)

    def knows_one_of(self, executed: frozenset[str]) -> bool:
        """Whether one of these executions was delivered: a block that lists it decides over its finality."""
        return not self.executions.keys().isdisjoint(executed)


def _keep(known: OrderedDict[str, None], block_hash: str) -> None:
    known[block_hash] = None
    if len(known) > _REMEMBERED_BLOCKS:
        known.popitem(last=False)


class Hub:
    """All consumers of this notifier."""

    def __init__(self, settings: NotifierSettings, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self.settings = settings
        self._tracer = Tracer(settings) if tracer is None else tracer
        self.sessions: set[HubSession] = set()
        self._metrics = metrics
        self._journal: Journal
        self._published = 0
        self._executed_topic = settings.executed_topic
        self._tail = Tail(settings.tail_bytes)
        self._live_all: dict[HubSession, None] = {}
        self._live_filtered: dict[HubSession, None] = {}
        self._filters: FilterIndex[HubSession] = FilterIndex()
        self._saved_at: OrderedDict[str, int] = OrderedDict()
        self._rendered: OrderedDict[int, _Rendered] = OrderedDict()
        self._stopping = False

    def start(self, journal: Journal) -> None:
        """Begin at the journal's head."""
        self._journal = journal
        self._published = journal.head

    async def stop(self) -> None:
        """End every delivery; the sockets are closed by their server."""
        self._stopping = True
        tasks = [session.task for session in self.sessions if session.task is not None]
        await end_tasks(tasks)

    def position(self) -> Position:
        """Where the journal stands, as consumers see it."""
        return Position(self._journal.origin, self._journal.oldest, self._published, self._journal.runs.present.name)

    def lag(self) -> int:
        """Sequences between the newest event and the consumer who is furthest behind."""
        behind = (self._published - s.cursor for s in self.sessions if s.consumer.started and not s.live)
        return max(behind, default=0)

    def seconds_behind(self, cursor: int) -> float:
        """How long the oldest event beyond a sequence has been here; at least, where it is not in memory any more."""
        entries = self._tail.after(max(cursor, self._tail.oldest - 1), 1)
        return max(0.0, (now_ms() - entries[0].received_ms) / 1000) if entries else 0.0

    @property
    def filter_count(self) -> int:
        """Distinct filters of the consumers who are not behind."""
        return len(self._filters)

    def count_sent(self, frame: bytes) -> None:
        self._metrics.frames_sent.inc()
        self._metrics.bytes_sent.inc(len(frame))

    def traced(self, sequence: int, traceparents: Sequence[str]) -> None:
        """A consumer followed transactions into an event: what was done with it belongs to their traces."""
        if not self._tracer.on or not 0 < sequence <= self._published:
            return
        for entry in self._tail.after(sequence - 1, 1) or ():
            for traceparent in traceparents:
                waited = max(0.0, (now_ms() - entry.received_ms) / 1000)
                trace = self._tracer.begin("block", (traceparent,), waited=waited)
                if trace is not None:
                    trace.end(
                        {"topic": entry.told_as, "shard": entry.shard, "block": entry.block_hash}, entry.published_ns
                    )

    # Subscriptions.

    def subscribe(self, session: HubSession, wanted: Filter, start: int | None, place: Place | None = None) -> None:
        """`session` wants more; `start`, and `place` of one that comes from elsewhere, with its first subscription."""
        if wanted == ALL:
            session.wants_all = True
        else:
            session.filters.add(wanted, None)
        if start is not None:
            session.start = session.cursor = start
            self._go_on(session, place)
        elif session.live:
            self._enlist(session)

    def unsubscribe(self, session: HubSession, unwanted: Filter) -> None:
        """`session` wants less."""
        if unwanted == ALL:
            session.wants_all = False
        else:
            session.filters.remove(unwanted, None)
            self._filters.remove(unwanted, session)
        if session.live:
            self._enlist(session)

    def leave(self, session: HubSession) -> None:
        """The connection is gone."""
        self.sessions.discard(session)
        self._retire(session, 0)
        if session.task is not None:
            session.task.cancel()

    def _enlist(self, session: HubSession) -> None:
        """Put a live session where its present subscriptions belong."""
        session.live = True
        self._live_all.pop(session, None)
        self._live_filtered.pop(session, None)
        if session.wants_all:
            self._live_all[session] = None
        elif session.consumer.subscriptions:
            self._live_filtered[session] = None
            for wanted in session.consumer.subscriptions.values():
                self._filters.add(wanted, session)

    def _retire(self, session: HubSession, cursor: int) -> None:
        """Take a session out of live delivery; `cursor` is the last sequence it is done with."""
        session.live = False
        session.cursor = cursor
        self._live_all.pop(session, None)
        self._live_filtered.pop(session, None)
        for wanted in session.consumer.subscriptions.values():
            self._filters.remove(wanted, session)

    # Live delivery.

    def publish(self, entries: list[Entry]) -> None:
        """New events are on disk."""
        now_ns = time.time_ns()
        for entry in self._named(entries):
            self._tail.append(entry)
            self._published = entry.sequence
            entry.published_ns = now_ns
            self._note_save(entry)
            for session in list(self._live_all):
                self._push(session, entry, entry.frame)
            if self._live_filtered:
                self._publish_filtered(entry)
            self._metrics.lag.observe(max(0.0, (now_ms() - entry.received_ms) / 1000))

    def _publish_filtered(self, entry: Entry) -> None:
        if entry.topic in _FILTERED_TOPICS:
            for session in [s for s in self._live_filtered if self._concerns(s, entry)]:
                self._push(session, entry, entry.frame)
            return
        if entry.topic not in BLOCKS:
            return
        rendered = self._render(entry)
        wishes: dict[HubSession, list[list[int]]] = {}
        for wanted, positions in self._filters.match(rendered.events.keys).items():
            for session in self._filters.owners(wanted):
                wishes.setdefault(session, []).append(positions)
        for session in self._live_filtered if entry.marks & INCOMPLETE or rendered.events.executed else ():
            if self._matters(session, entry, rendered.events.executed):
                wishes.setdefault(session, [])
        for session, lists in wishes.items():
            if not session.wants_all:
                session.remember(entry.block_hash, rendered.events.carrying)
                self._push(session, entry, rendered.reduced(lists))

    def _render(self, entry: Entry) -> _Rendered:
        rendered = self._rendered.get(entry.sequence)
        if rendered is None:
            rendered = self._rendered[entry.sequence] = _Rendered(entry)
            if len(self._rendered) > _RENDERED_EVENTS:
                self._rendered.popitem(last=False)
        return rendered

    def _push(self, session: HubSession, entry: Entry, frame: bytes) -> None:
        if session.has_room():
            session.deliver(entry, frame)
        else:
            self._retire(session, entry.sequence - 1)
            self._go_on(session)

    def _note_save(self, entry: Entry) -> None:
        if entry.topic == outport.SAVE_BLOCK:
            self._saved_at.setdefault(entry.block_hash, entry.sequence)
            if len(self._saved_at) > _REMEMBERED_BLOCKS:
                self._saved_at.popitem(last=False)

    def _concerns(self, session: HubSession, entry: Entry) -> bool:
        """Whether a finalised or reverted block may have had events for a consumer with filters."""
        return entry.block_hash in session.told or self._told_before(session, entry.block_hash, entry.shard)

    def _matters(self, session: HubSession, entry: Entry, executed: frozenset[str]) -> bool:
        """Whether a block matters to a consumer with filters by more than its events.

        It does if something before it was never told here, which may have had events for anybody; and if it lists an
        execution that the consumer was given, or may have been given before it resumed.
        """
        return bool(
            entry.marks & INCOMPLETE
            or session.knows_one_of(executed)
            or (session.resumed and any(self._told_before(session, name, entry.shard) for name in executed))
        )

    def _told_before(self, session: HubSession, block_hash: str, shard: int) -> bool:
        """Whether a consumer may have been given a block on an earlier connection; so if it is not remembered."""
        saved = self._saved_at.get(block_hash)
        return saved is None or saved <= session.floors.get(shard, session.start)

    def note_cut(self, session: HubSession) -> None:
        """A consumer is cut off for being slow."""
        self._metrics.consumers_cut.inc()
        log.warning("consumer cut off: too slow", extra={"remote": session.remote, "cursor": session.cursor})

    # Delivery to those behind.

    def _go_on(self, session: HubSession, place: Place | None = None) -> None:
        if session.task is None and not session.closed and not self._stopping:
            session.task = asyncio.create_task(self._catch_up(session, place))
            session.task.add_done_callback(functools.partial(_close_after_defect, session))

    async def _find(self, session: HubSession, place: Place) -> None:
        """Set a session to where its consumer is, which may have been served by another notifier."""
        shared = self._journal.runs.shared(place.journal, place.after)
        if shared is not None and shared <= self._published:
            session.start = session.cursor = max(shared, self._journal.origin)
            if shared < place.after:  # it was put back to an earlier state, and has lost what followed, known or not
                session.send_binary(gap_message(self._journal.origin, shared + 1, place.after, shared))
                self._metrics.gaps.inc()
            return
        heard = await self._journal.first_heard([mark.key for mark in place.marks])
        found = floors(place.marks, heard, self._journal.origin, self._journal.last_block_ms)
        session.floors = {shard: floor for shard, floor in found.items() if floor is not None}
        if None not in found.values() and found:
            session.start = session.cursor = min(session.floors.values())
            return
        # What came between the consumer's last event and the oldest one here, nobody here can know.
        session.start, session.cursor = 0, self._journal.origin - 1
        self._tell_gap(session, self._journal.oldest - 1)

    async def _catch_up(self, session: HubSession, place: Place | None) -> None:
        """Deliver from the journal until the consumer is at its head."""
        if place is not None:
            await self._find(session, place)
        while not session.closed:
            session.progress.clear()
            if not session.has_room():  # on_message and on_writable tell of progress
                await self._wait_for_progress(session)
                continue
            if session.cursor >= self._published:
                session.task = None
                self._enlist(session)
                return
            turn_ends = 0.0
            for entry in await self._next_entries(session):
                if asyncio.get_running_loop().time() > turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = asyncio.get_running_loop().time() + _TURN
                if not session.has_room():
                    break
                if entry.sequence > session.cursor + 1:
                    self._tell_gap(session, entry.sequence - 1)
                self._deliver_late(session, entry)

    async def _next_entries(self, session: HubSession) -> list[Entry]:
        published = self._published
        entries = self._tail.after(session.cursor, _READ_EVENTS)
        if entries is None:
            entries = self._named(await self._journal.read(session.cursor, _READ_BYTES))
            if not entries:
                self._tell_gap(session, published)
        # What is committed but not yet announced to the hub would otherwise come twice.
        return [entry for entry in entries if entry.sequence <= self._published]

    def _named(self, entries: list[Entry]) -> list[Entry]:
        """The same entries, under the topics that consumers see."""
        for entry in entries:
            if entry.topic == outport.EXECUTED_BLOCK:
                entry.told_as = self._executed_topic
        return entries

    def _tell_gap(self, session: HubSession, last: int) -> None:
        session.send_binary(gap_message(self._journal.origin, session.cursor + 1, last))
        session.cursor = last
        self._metrics.gaps.inc()

    def _deliver_late(self, session: HubSession, entry: Entry) -> None:
        frame = b""
        if entry.sequence <= session.floors.get(entry.shard, 0):
            pass
        elif session.wants_all:
            frame = entry.frame
        elif entry.topic in BLOCKS and len(session.filters):
            self._note_save(entry)
            rendered = self._render(entry)
            matches = session.filters.match(rendered.events.keys)
            if matches or self._matters(session, entry, rendered.events.executed):
                frame = rendered.reduced(matches.values())
                session.remember(entry.block_hash, rendered.events.carrying)
        elif entry.topic in _FILTERED_TOPICS and len(session.filters) and self._concerns(session, entry):
            frame = entry.frame
        session.cursor = entry.sequence
        if frame:
            session.deliver(entry, frame)

    async def _wait_for_progress(self, session: HubSession) -> None:
        try:
            async with asyncio.timeout(self.settings.consumer_timeout):
                await session.progress.wait()
        except TimeoutError:
            self.note_cut(session)
            session.close(websocket.SLOW_READER, "too slow: acknowledge what you have", abort=True)


def _close_after_defect(session: HubSession, task: asyncio.Task[None]) -> None:
    """Who is delivered nothing any more is not left waiting: it asks again, or another notifier."""
    if not task.cancelled() and task.exception() is not None:
        log.error("delivery to a consumer failed", exc_info=task.exception())
        session.close(1011, "what follows cannot be read: ask again, or another notifier", abort=True)
