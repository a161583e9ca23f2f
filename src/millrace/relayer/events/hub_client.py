"""Reads events from a notifier's hub, or from another one's when that is away, resuming after the last one taken."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from millrace.chain import outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.runtime import websocket
from millrace_client.places import Place, Told

log = logging.getLogger(__name__)

SUBSCRIBE, GAP = "subscribe", "gap"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_PING_SECONDS = 10.0
_ATTEMPT_SECONDS = 10.0  # for a connection and its answer, before the next notifier is tried
MAX_EVENT = 256 * 1024 * 1024
MOST_TRACES = 64
"""Named in one acknowledgement: transactions of one block that are traced."""


class EventSink(Protocol):
    """Takes events in their order."""

    def on_event(self, topic: str, payload: bytes, sequence: int, marks: int) -> Sequence[str]:
        """One event of the stream; `marks` is what the notifier has to say about it. The traces that it belongs to.

        `sequence` ascends, also from one notifier to the next.
        """

    def on_gap(self, first: int, last: int) -> None:
        """These events are lost for good."""


class _Link(websocket.Session):
    """One connection to the hub."""

    max_message_size = MAX_EVENT

    def __init__(self, hub: HubClient) -> None:
        super().__init__()
        self._hub = hub
        self.answered = asyncio.Event()

    def on_open(self) -> None:
        self.send_binary(self._hub.subscription())

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self.answered.set()
        if kind == "binary" and not self.closed:
            self._hub.take(self, data)

    def on_close(self) -> None:
        self.answered.set()


class HubClient:
    """Keeps one subscription to all events; `last` is the number of the newest event taken.

    A number is the sequence in the notifier's journal, raised after a move to another notifier so that it ascends.
    """

    def __init__(self, urls: Sequence[str], sink: EventSink, place: Place | None) -> None:
        self._urls = urls
        self._at = 0
        self._sink = sink
        self._told = Told(place)
        self.last = None if place is None else place.after
        self._offset = 0
        """Of numbers against the sequences of the notifier …"""
        self._told_by: int | None = None if place is None or place.id else 0
        """… which told the events before; `None`: not known."""
        self._journal = "" if place is None or place.id else place.journal
        """What the present notifier's journal is known by."""
        self._lacking: set[int] = set()
        """Notifiers that lack an unknown number of events, by what they said since the newest event came."""
        self._late = 0
        """What the present notifier had when reading began, by its sequence."""
        self._resumes = False
        """Whether the present connection asked for what came after a place, …"""
        self._by_id = False
        """… told by an id, which a notifier of an earlier version does not read, …"""
        self._moved = False
        """… and by another notifier than the present one, which has told nothing yet."""
        self.head = 0
        """Number of the newest event the hub spoke of."""
        self.tells_ids = True
        """Whether events have ids, which those of notifiers of an earlier version do not."""
        self.connected = False
        self.reconnects = 0
        self.on_connection: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Connect, read until the connection ends, and again with the next notifier."""
        pause = _FIRST_PAUSE
        while True:
            link = _Link(self)
            try:
                async with asyncio.timeout(_ATTEMPT_SECONDS):
                    await websocket.connect(self._urls[self._at], link, ping_interval=_PING_SECONDS)
                    await link.answered.wait()
                await link.wait_closed()
            except websocket.CONNECT_ERRORS as error:
                link.abort()
                log.debug("the hub cannot be reached", extra={"error": str(error)[:200]})
            if self.connected:
                log.warning("the hub is gone, connecting again", extra={"last": self.last})
                self.connected = False
                pause = _FIRST_PAUSE
            self.reconnects += 1
            self._at = (self._at + 1) % len(self._urls)
            if self._at:  # there is another one to try at once
                continue
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def place(self, number: int) -> Place | None:
        """Where reading goes on behind the event `number`, for a later process; `None`: that cannot be said."""
        place = self._told.place(number)
        if place is not None and place.id:
            return place
        if len(self._urls) == 1:  # a notifier's own sequence is enough to go on with it
            return Place(number - self._offset, "", (), self._journal)
        return None

    @property
    def url(self) -> str:
        """Of the present notifier's hub."""
        return self._urls[self._at]

    @property
    def ids_kept(self) -> int:
        """Ids of events by which another notifier's repetitions are known."""
        return len(self._told)

    def subscription(self) -> bytes:
        """The frame that asks for everything after `last`."""
        wish = hub_pb2.SubscribeEvent(event_type="All", subscription_id="relayer")
        place = None if self.last is None else self._told.place(self.last)
        if place is not None and place.id:
            wish.resume_after, wish.resume_id, wish.resume_journal = place.after, place.id, place.journal
            for message_id, since in place.handled:
                wish.handled.add(id=message_id, since=since)
        elif self.last is not None and self._told_by == self._at:
            wish.resume_after, wish.resume_journal = self.last - self._offset, self._journal
        self._resumes, self._by_id = wish.HasField("resume_after"), bool(wish.resume_id)
        return outport.payload_envelope(SUBSCRIBE, wish.SerializeToString(), 0, with_acknowledge=False)

    def take(self, link: websocket.Session, data: bytes) -> None:
        """One frame of the hub."""
        try:
            envelope = outport.decode_envelope(data)
        except outport.OutportError:
            log.error("the hub sent something unreadable")
            return
        if envelope.type != outport.PAYLOAD:
            return
        if envelope.topic == SUBSCRIBE:
            self._subscribed(link, hub_pb2.SubscribeReply.FromString(envelope.payload))
        elif envelope.topic == GAP:
            self._gap(link, hub_pb2.Gap.FromString(envelope.payload))
        else:
            self._event(link, envelope)

    def _gap(self, link: websocket.Session, gap: hub_pb2.Gap) -> None:
        if gap.uncounted and self._by_id and len(self._urls) > 1 and self._at not in self._lacking:
            log.warning("this notifier lacks events, asking the next one", extra={"notifier": self._at})
            self._lacking.add(self._at)
            link.close(abort=True)
            return
        log.error("events are lost", extra={"first": gap.first, "last": gap.last})
        self._sink.on_gap(gap.first + self._offset, gap.last + self._offset)
        self.last = max(self.last or 0, gap.last + self._offset)
        if gap.HasField("resumes_after"):  # the journal gives the lost sequences out once more, to other events
            raised = self.last - gap.resumes_after - self._offset
            self._offset, self.head = self._offset + raised, self.head + raised

    def _subscribed(self, link: websocket.Session, reply: hub_pb2.SubscribeReply) -> None:
        if not reply.ok:
            # The hub's journal is another one than ours was: begin anew, and trust nothing known before.
            log.error("the hub refused to resume", extra={"reason": reply.reason, "after": self.last})
            if self.last is not None:
                self._sink.on_gap(self.last + 1, reply.head)
                self.last, self._told = None, Told(None)
                link.send_binary(self.subscription())
            return
        self._journal = reply.journal
        if self._told_by != self._at:  # whatever this journal has comes under numbers above all that were
            self._offset = 0 if self.last is None else max(0, self.last + 1 - reply.oldest)
            self._told_by, self._moved = self._at, len(self._urls) > 1
        self._late, self.head = reply.head, reply.head + self._offset
        if self.last is not None and not self._resumes:
            log.error("no event said where reading was when the hub went away", extra={"after": self.last})
            self._sink.on_gap(self.last + 1, self.head)
        if not self._resumes:
            self.last = self.head
        self.connected = True
        log.info("reading events", extra={"after": self.last, "head": self.head})
        self.on_connection()

    def _event(self, link: websocket.Session, told: pb.WsMessage) -> None:
        sequence, number = told.counter, told.counter + self._offset
        traces: Sequence[str] = ()
        self.tells_ids = bool(told.id)
        if self._by_id and not told.id:
            self._without_ids(number)
        self._moved = False
        if (told.id not in self._told) if told.id else (self.last is None or number > self.last):
            if self.last is not None and number <= self.last:
                number = self.last + 1  # of a journal that was put back to an earlier state
            if sequence <= self._late:
                self.head = max(self.head, number)
            try:
                traces = self._sink.on_event(told.topic, told.payload, number, told.marks)
            except Exception:
                # A defect, or an event nobody foresaw: the next ones must still be read.
                log.exception("an event was not understood", extra={"topic": told.topic, "sequence": sequence})
            self.last = number
            self.head = max(self.head, number)
            self._lacking.clear()
            if told.id:
                self._told.add(number, sequence, told.id, self._journal)
        link.send_binary(outport.ack_envelope(sequence, traces[:MOST_TRACES]))

    def _without_ids(self, number: int) -> None:
        """A notifier of an earlier version tells the event `number`: from now on its sequences alone say what is new.

        It took the sequence in a place for one of its own. If another one had told that, it went on anywhere.
        """
        if self._moved:
            log.error("a notifier of an earlier version cannot tell where reading was", extra={"after": self.last})
            self._sink.on_gap((self.last or 0) + 1, number)
        self._by_id, self._told = False, Told(None)
