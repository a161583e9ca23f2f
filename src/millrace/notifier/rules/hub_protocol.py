"""The conversation with one consumer, without sockets: subscriptions, acknowledgements, the window."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.hub_pb2 import Gap, SubscribeEvent, SubscribeReply
from millrace.notifier.rules.filters import Filter, FilterError, parse
from millrace.notifier.rules.places import Place, mark_of

SUBSCRIBE, UNSUBSCRIBE, GAP = "subscribe", "unsubscribe", "gap"
DEFAULT_ID = "default"

_MAX_ID = 256
_MAX_HANDLED = 1024  # ids in a subscription: some sixty of each of 17 shards
_CONTROLS = 256  # subscribe and unsubscribe messages in a period
_CONTROL_PERIOD = 5.0  # seconds
MOST_TRACES = 64  # of one event


class ProtocolViolation(Exception):
    """The consumer must be disconnected: `code` is the close code, the text its reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Position(NamedTuple):
    """Where the journal stands."""

    origin: int
    """No sequence of this journal is so small."""
    oldest: int
    head: int
    journal: str
    """Name of its present run."""


class Changes(NamedTuple):
    """What a message of the consumer asks the shell to do."""

    reply: bytes = b""
    """A `WsMessage` to send; empty: none."""
    ack: bytes = b""
    """A `WsMessage` to send before it; empty: none."""
    added: Filter | None = None
    removed: Filter | None = None
    start: int | None = None
    """Deliver what follows this sequence; given with the first subscription."""
    place: Place | None = None
    """Deliver what follows this place instead, which is to be found first."""
    resumes: bool = False
    """The consumer may have been given what came before, on another connection."""
    done: int = 0
    """Sequence that the consumer has taken in, where it says …"""
    traces: Sequence[str] = ()
    """… that it belongs to these traces."""


_NOTHING = Changes()


class Consumer:
    """One connection on `/hub/ws`."""

    def __init__(self, window_frames: int, window_bytes: int, max_subscriptions: int) -> None:
        self._window_frames = window_frames
        self._window_bytes = window_bytes
        self._max_subscriptions = max_subscriptions
        self._in_flight: deque[tuple[int, int]] = deque()
        self._in_flight_bytes = 0
        self._controls: deque[float] = deque()
        self.subscriptions: dict[str, Filter] = {}
        self.started = False
        """Whether anything was ever subscribed to on this connection."""

    def receive(self, message: bytes, position: Position, now: float) -> Changes:
        """Take one binary message. Raises `ProtocolViolation`."""
        try:
            envelope = outport.decode_envelope(message)
        except outport.OutportError:
            raise ProtocolViolation(1007, "not a WsMessage") from None
        if envelope.type == outport.ACK:
            self.acknowledge(envelope.counter)
            return Changes(done=envelope.counter, traces=envelope.traces[:MOST_TRACES]) if envelope.traces else _NOTHING
        # A client that leaves the type out means a payload.
        if envelope.type not in (0, outport.PAYLOAD) or envelope.topic not in (SUBSCRIBE, UNSUBSCRIBE):
            raise ProtocolViolation(1008, "expected subscribe, unsubscribe or an acknowledgement")
        self._count_control(now)
        changes = self._control(envelope, position)
        if envelope.withAcknowledge:
            return changes._replace(ack=outport.ack_envelope(envelope.counter))
        return changes

    def _control(self, envelope: pb.WsMessage, position: Position) -> Changes:
        try:
            wish = SubscribeEvent.FromString(envelope.payload)
        except DecodeError:
            return _reply(envelope.topic, "", position, "the payload is not a SubscribeEvent")
        if envelope.topic == SUBSCRIBE:
            return self._subscribe(wish, position)
        return self._unsubscribe(wish, position)

    def _count_control(self, now: float) -> None:
        while self._controls and self._controls[0] <= now - _CONTROL_PERIOD:
            self._controls.popleft()
        self._controls.append(now)
        if len(self._controls) > _CONTROLS:
            raise ProtocolViolation(1008, "too many control messages")

    def _subscribe(self, wish: SubscribeEvent, position: Position) -> Changes:
        name = wish.subscription_id or DEFAULT_ID
        try:
            wanted = parse(wish)
            place = _place(wish)
            start = self._start(wish, place, position)
            self._check_room(name)
        except FilterError as error:
            return _reply(SUBSCRIBE, name, position, str(error))
        removed = self.subscriptions.get(name)
        self.subscriptions[name] = wanted
        self.started = True
        return Changes(
            _reply(SUBSCRIBE, name, position).reply,
            added=wanted,
            removed=None if removed is None or removed in self.subscriptions.values() else removed,
            start=start,
            place=place,
            resumes=place is not None or wish.HasField("resume_after"),
        )

    def _start(self, wish: SubscribeEvent, place: Place | None, position: Position) -> int | None:
        """The sequence after which delivery begins, for the first subscription only."""
        if place is None and not wish.HasField("resume_after"):
            return None if self.started else position.head
        if self.started:
            raise FilterError("resume_after belongs to the first subscription: open another connection")
        if place is not None:
            return position.head
        if wish.resume_after > position.head:
            raise FilterError(
                f"resume_after {wish.resume_after} is beyond the newest event {position.head}: this journal never"
                " had it; subscribe with an older one, or without for what comes from now on"
            )
        return max(wish.resume_after, position.origin) if wish.resume_after == 0 else wish.resume_after

    def _check_room(self, name: str) -> None:
        if len(name) > _MAX_ID:
            raise FilterError(f"a subscription_id has at most {_MAX_ID} characters")
        if name not in self.subscriptions and len(self.subscriptions) >= self._max_subscriptions:
            raise FilterError(f"at most {self._max_subscriptions} subscriptions per connection")

    def _unsubscribe(self, wish: SubscribeEvent, position: Position) -> Changes:
        name = wish.subscription_id or DEFAULT_ID
        removed = self.subscriptions.pop(name, None)
        if removed is None:
            return _reply(UNSUBSCRIBE, name, position, "no such subscription")
        still = removed in self.subscriptions.values()
        return Changes(_reply(UNSUBSCRIBE, name, position).reply, removed=None if still else removed)

    # The window.

    @property
    def has_room(self) -> bool:
        """Whether one more frame may be sent before older ones are acknowledged."""
        return len(self._in_flight) < self._window_frames and self._in_flight_bytes < self._window_bytes

    def sent(self, sequence: int, size: int) -> None:
        """An event went out."""
        self._in_flight.append((sequence, size))
        self._in_flight_bytes += size

    def acknowledge(self, sequence: int) -> None:
        """The consumer has everything up to `sequence`."""
        while self._in_flight and self._in_flight[0][0] <= sequence:
            self._in_flight_bytes -= self._in_flight.popleft()[1]


def _place(wish: SubscribeEvent) -> Place | None:
    """Where the consumer is, if it says so by more than a sequence. Raises `FilterError` for what is no id."""
    if not wish.resume_id and not wish.handled and not (wish.resume_journal and wish.resume_after):
        return None
    if len(wish.handled) > _MAX_HANDLED:
        raise FilterError(f"handled: at most {_MAX_HANDLED} ids")
    try:
        marks = tuple(mark_of(handled.id, handled.since) for handled in wish.handled)
    except ValueError:
        raise FilterError("handled: an id is <topic>:<shard>:<hash>:<generation>, as it came with the event") from None
    return Place(wish.resume_after, wish.resume_id, wish.resume_journal, marks)


def gap(origin: int, first: int, last: int, resumes_after: int | None = None) -> bytes:
    """The `Gap` that says which sequences are gone for good, and where delivery goes on if not behind them.

    What begins at the journal's `origin` or before is more than that: another journal told what came before, and nobody
    here knows how much of it is missing.
    """
    return Gap(first=first, last=last, resumes_after=resumes_after, uncounted=first <= origin).SerializeToString()


def gap_message(origin: int, first: int, last: int, resumes_after: int | None = None) -> bytes:
    """The `WsMessage` with a gap."""
    return _message(GAP, gap(origin, first, last, resumes_after))


def _reply(topic: str, name: str, position: Position, reason: str = "") -> Changes:
    reply = SubscribeReply(
        subscription_id=name,
        ok=not reason,
        reason=reason,
        head=position.head,
        oldest=position.oldest,
        journal=position.journal,
    )
    return Changes(_message(topic, reply.SerializeToString()))


def _message(topic: str, payload: bytes) -> bytes:
    return pb.WsMessage(type=outport.PAYLOAD, topic=topic, payload=payload, version=outport.VERSION).SerializeToString()
