"""Reads events from the notifier's hub, resuming after the last one that was taken, for ever."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from millrace.chain import outport
from millrace.chain.proto import hub_pb2
from millrace.runtime import websocket

log = logging.getLogger(__name__)

SUBSCRIBE, GAP = "subscribe", "gap"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_PING_SECONDS = 10.0
MAX_EVENT = 256 * 1024 * 1024
MOST_TRACES = 64
"""Named in one acknowledgement: transactions of one block that are traced."""


class EventSink(Protocol):
    """Takes events in their order."""

    def on_event(self, topic: str, payload: bytes, sequence: int, marks: int) -> Sequence[str]:
        """One event of the stream; `marks` is what the notifier has to say about it. The traces that it belongs to."""

    def on_gap(self, first: int, last: int) -> None:
        """These events are lost for good."""


class _Link(websocket.Session):
    """One connection to the hub."""

    max_message_size = MAX_EVENT

    def __init__(self, hub: HubClient) -> None:
        super().__init__()
        self._hub = hub

    def on_open(self) -> None:
        self.send_binary(self._hub.subscription())

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        if kind == "binary":
            self._hub.take(self, data)


class HubClient:
    """Keeps one subscription to all events; `last` is the newest sequence taken."""

    def __init__(self, url: str, sink: EventSink, last: int | None) -> None:
        self._url = url
        self._sink = sink
        self.last = last
        self.head = 0
        """Newest sequence the hub spoke of."""
        self.connected = False
        self.reconnects = 0
        self.on_connection: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Connect, read until the connection ends, and again."""
        pause = _FIRST_PAUSE
        while True:
            link = _Link(self)
            try:
                await websocket.connect(self._url, link, ping_interval=_PING_SECONDS)
                await link.wait_closed()
            except websocket.CONNECT_ERRORS as error:
                log.debug("the hub cannot be reached", extra={"error": str(error)[:200]})
            if self.connected:
                log.warning("the hub is gone, connecting again", extra={"last": self.last})
                self.connected = False
                pause = _FIRST_PAUSE
            self.reconnects += 1
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def subscription(self) -> bytes:
        """The frame that asks for everything after `last`."""
        wish = hub_pb2.SubscribeEvent(event_type="All", subscription_id="relayer")
        if self.last is not None:
            wish.resume_after = self.last
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
            gap = hub_pb2.Gap.FromString(envelope.payload)
            log.error("events are lost", extra={"first": gap.first, "last": gap.last})
            self._sink.on_gap(gap.first, gap.last)
            self.last = max(self.last or 0, gap.last)
        else:
            self._event(link, envelope.topic, envelope.payload, envelope.counter, envelope.marks)

    def _subscribed(self, link: websocket.Session, reply: hub_pb2.SubscribeReply) -> None:
        if not reply.ok:
            # The hub's journal is another one than ours was: begin anew, and trust nothing known before.
            log.error("the hub refused to resume", extra={"reason": reply.reason, "after": self.last})
            if self.last is not None:
                self._sink.on_gap(self.last + 1, reply.head)
                self.last = None
                link.send_binary(self.subscription())
            return
        self.head = reply.head
        if self.last is None:
            self.last = reply.head
        self.connected = True
        log.info("reading events", extra={"after": self.last, "head": reply.head})
        self.on_connection()

    def _event(self, link: websocket.Session, topic: str, payload: bytes, sequence: int, marks: int) -> None:
        traces: Sequence[str] = ()
        if self.last is None or sequence > self.last:
            try:
                traces = self._sink.on_event(topic, payload, sequence, marks)
            except Exception:
                # A defect, or an event nobody foresaw: the next ones must still be read.
                log.exception("an event was not understood", extra={"topic": topic, "sequence": sequence})
            self.last = sequence
            self.head = max(self.head, sequence)
        link.send_binary(outport.ack_envelope(sequence, traces[:MOST_TRACES]))
