"""Sessions of /ws and /ws/stats.

Each connection has two lanes in one socket. Replies, statuses and account updates must be delivered: they are
always written, and a reader so slow that more than `MUST_DELIVER_BYTES` wait is closed with 4008. Statistics are
conflated: while anything waits they are left out, and the next one, which is newer, goes instead.
"""

from __future__ import annotations

from millrace.relayer.gateway.limits import LEAST_REST, REST_SECONDS, SlidingWindow, milliseconds
from millrace.relayer.gateway.shared import Lane, Shared
from millrace.relayer.gateway.submission_lane import SubmissionLane
from millrace.relayer.gateway.traffic import Meter
from millrace.relayer.protocol import large_messages, messages, reasons, strict_json, topics
from millrace.relayer.protocol.messages import Broadcast, Relay, Request, Subscribe
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.runtime import websocket
from millrace.runtime.client_address import is_local

MUST_DELIVER_BYTES = 4 * 1024 * 1024
FLOOD_MESSAGES, FLOOD_SECONDS = 256, 5.0
"""So many refused messages in so many seconds close a connection with 1008."""
MAX_POSTPONED = 1_024
"""Messages that were on their way when a connection began to rest; more can only be tiny ones."""
PART_BYTES = 64
"""What a part of an unfinished message takes beside its own bytes."""


class _Listener(websocket.Session):
    """A session with the two lanes, counted for its client."""

    max_buffered = MUST_DELIVER_BYTES

    def __init__(self, shared: Shared, forwarded: str | None) -> None:
        super().__init__()
        self._shared = shared
        self._forwarded = forwarded
        self.client = ""
        """Whom limits count, see `ClientAddress`."""
        self.meter: Meter | None = None
        """Of what the client is sent, unless it is on this machine."""
        self.held: list[bytes] = []
        """See `Deliveries`."""
        self.first = b""
        """Said at once, if anything: it came while clients are sent away."""

    def on_open(self) -> None:
        self.limit_send_buffer(0)  # whatever waits puts the connection behind
        self.client = self._shared.clients.of(self.remote, self._forwarded)
        if not is_local(self.client):
            self.meter = self._shared.egress.enter(self.client)
        if not self._shared.doors.enter(self.client, self._shared.clock()):
            self.close(websocket.POLICY_VIOLATION, "too many connections from this address", abort=True)
        elif self.first:
            self.send_frames(self.first)

    def on_close(self) -> None:
        self._leave_audiences()
        self._shared.doors.leave(self.client)
        if self.meter is not None:
            self.meter.connections -= 1

    def send_frames(self, frames: bytes) -> None:
        if self.held:
            frames = b"".join((*self.held, frames)) if frames or len(self.held) > 1 else self.held[0]
            self.held.clear()
        if self.meter is not None:
            self.meter.spent += len(frames)
        super().send_frames(frames)

    def close(self, code: int = 1000, reason: str = "", *, abort: bool = False) -> None:
        self._leave_audiences()  # nothing follows the close frame
        super().close(code, reason, abort=abort)

    def on_full(self) -> None:
        for audience in self._shared.audiences.values():
            audience.fall_behind(self)

    def on_writable(self) -> None:
        for audience in self._shared.audiences.values():
            audience.catch_up(self)

    def _leave_audiences(self) -> None:
        for audience in self._shared.audiences.values():
            audience.leave(self)


class StatsSession(_Listener):
    """A connection to /ws/stats: it only listens."""

    max_message_size = 4096
    in_pieces = True

    def on_open(self) -> None:
        super().on_open()
        if self.closed:
            return
        self._shared.stats_sessions.add(self)
        self._shared.audiences[topics.NETWORK_STATS].join(self)
        snapshot = self._shared.snapshots.get(topics.NETWORK_STATS)
        if snapshot is not None:
            self.send_frames(snapshot())

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        """This stream is read-only; whatever is sent to it means nothing, and is paid for all the same."""
        self._pay(len(data))

    def on_part(self, size: int) -> bool:
        return False

    def on_thrown_away(self) -> None:
        self._pay(0)

    def _pay(self, size: int) -> None:
        cost = max(size, websocket.SHORT_PART)
        if self._shared.bytes.take(self.client, cost, self._shared.clock()):
            self.note_idle()

    def on_close(self) -> None:
        super().on_close()
        self._shared.stats_sessions.discard(self)


class PublicSession(_Listener):
    """A connection to /ws."""

    in_pieces = True

    def __init__(self, shared: Shared, forwarded: str | None) -> None:
        super().__init__(shared, forwarded)
        self.max_message_size = shared.settings.max_message_bytes
        self.authorization: str | None = None
        """What the client said of itself when it connected."""
        self._held = 0
        """Bytes of an unfinished message, …"""
        self._postponed_bytes = 0
        """… and of those that wait until this connection is read again."""
        self._control = SlidingWindow(shared.settings.max_control_messages)
        self._flood = SlidingWindow(FLOOD_MESSAGES, FLOOD_SECONDS)
        self._lane: Lane | None = None
        """Made with the first submission: most connections only listen."""

    # ---- in

    def on_part(self, size: int) -> bool:
        short = websocket.SHORT_PART - size
        if short > 0 and self._shared.bytes.take(self.client, short, self._shared.clock()):
            self._let_go()
            return False
        if not self._shared.unfinished.take(self.client, size + PART_BYTES):
            self._let_go()
            return False
        self._held += size + PART_BYTES
        return True

    def on_thrown_away(self) -> None:
        self.refuse(None, reasons.RATE_LIMIT.but("too many bytes in unfinished messages", 1_000), None)

    def _let_go(self) -> None:
        if self._held:
            self._shared.unfinished.give(self.client, self._held)
            self._held = 0

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        if self._held:
            self._let_go()
        if self.meter is not None and self.meter.is_over:
            self._shared.egress.skipped += 1
            self.refuse(None, reasons.RATE_LIMIT.but("too many bytes are sent to this address", 1_000), None)
            self.slow_down(1.0)
            return
        is_large = kind == "text" and len(data) > large_messages.LARGE
        marked = 0 if is_large else strict_json.marks(data)
        if not self.charge(strict_json.cost(data, marked)):
            return
        if is_large:
            self._submissions().read_later(data)
            return
        try:
            if kind != "text":
                raise Refused(reasons.INVALID_MESSAGE.but("send text, not binary"))
            request = self._shared.decode(data, self._shared.settings.max_batch, marked)
        except Refused as refusal:
            self.refuse_unread(data if kind == "text" else b"", refusal.reason)
            return
        if isinstance(request, Relay | Broadcast):
            self._submissions().add(request, data, marked)
        else:
            self.control_message(request)

    def _submissions(self) -> Lane:
        if self._lane is None:
            forward = self._shared.forward
            self._lane = SubmissionLane(self._shared, self) if forward is None else forward(self)
        return self._lane

    def answer(self, reply: messages.SubmissionReply) -> None:
        """Send the reply to a submission."""
        self.send_text(messages.encode(reply))

    def charge(self, cost: float) -> bool:
        """Take what reading costs from the client's bucket; otherwise it is told when to come again."""
        wait = self._shared.bytes.take(self.client, cost, self._shared.clock())
        if wait:
            self.refuse(None, reasons.RATE_LIMIT.but("too many bytes from this address", milliseconds(wait)), None)
            self.slow_down(wait)
        return not wait

    def slow_down(self, wait: float) -> None:
        """Read nothing for a while from who has been told that its address is beyond a rate, and does not heed it."""
        if self._shared.told.take(self.client, 1, self._shared.clock()):
            self.rest(min(max(wait, LEAST_REST), REST_SECONDS))

    def on_postponed(self, size: int) -> bool:
        if self.postponed > MAX_POSTPONED or not self._shared.unfinished.take(self.client, size + PART_BYTES):
            return False
        self._postponed_bytes += size + PART_BYTES
        return True

    def on_handed_on(self, size: int) -> None:
        self._shared.unfinished.give(self.client, size + PART_BYTES)
        self._postponed_bytes -= size + PART_BYTES

    def refuse_unread(self, data: bytes, reason: Reason, number: int | None = None) -> None:
        """Answer a message that could not be read; it counts as a control message."""
        action, request_id = messages.decode_envelope(data)
        self.refuse(action, self._over_control_limit(1) or reason, request_id)

    def on_close(self) -> None:
        super().on_close()
        self._let_go()
        if self._postponed_bytes:
            self._shared.unfinished.give(self.client, self._postponed_bytes)
            self._postponed_bytes = 0
        self._shared.subscriptions.drop(self)
        if self._lane is not None:
            self._lane.clear()

    def _over_control_limit(self, topics: int) -> Reason | None:
        """Why a control message of so many topics is too much, of this connection or of its address."""
        return self._shared.over_control_limit(self._control, self.client, topics)

    def refuse(
        self,
        action: str | None,
        reason: Reason,
        request_id: messages.RequestId | None,
        topic: str | None = None,
    ) -> None:
        """Answer first; only whoever keeps sending what is refused loses the connection."""
        self.tell_refused(action, reason, request_id, topic)
        self._count_refused()

    def _count_refused(self) -> None:
        """A message was refused."""
        if self._flood.admit(self._shared.clock()):
            self.close(websocket.POLICY_VIOLATION, "too many refused messages")

    def tell_refused(
        self,
        action: str | None,
        reason: Reason,
        request_id: messages.RequestId | None,
        topic: str | None = None,
    ) -> None:
        """Answer that a message is refused, as who asks may be for the service's own reasons."""
        self.send_text(messages.fail_reply(action, self._shared.count(reason), request_id, topic))

    # ---- subscriptions

    def subscribe(self, topic: topics.Topic) -> bool:
        """Tell this session of the end of what is accepted, and again if it was told of one. Raises `Refused`."""
        return self._shared.subscriptions.subscribe(self, topic, self._shared.clock(), again=True)

    def control_message(self, request: Request) -> None:
        """Carry out a subscribe or unsubscribe, topic by topic."""
        assert not isinstance(request, Relay | Broadcast)
        action = "subscribe" if isinstance(request, Subscribe) else "unsubscribe"
        texts = messages.topics_of(request)
        limited = self._over_control_limit(len(texts))
        if limited is not None:
            self.refuse(action, limited, request.request_id, request.topic)
            return
        subscriptions, is_refused = self._shared.subscriptions, False
        for text in texts:
            if self.closed:
                return
            is_new = False
            try:
                topic = topics.parse(text)
                if isinstance(request, Subscribe):
                    is_new = subscriptions.subscribe(self, topic, self._shared.clock())
                else:
                    subscriptions.unsubscribe(self, topic)
                    if text in self._shared.audiences:
                        self._shared.audiences[text].leave(self)
            except Refused as refusal:
                self.tell_refused(action, refusal.reason, request.request_id, text)
                is_refused = True
                continue
            self.send_text(messages.topic_reply(action, text, request.request_id))
            if is_new and text in self._shared.audiences and not self.closed:
                self._shared.audiences[text].join(self)
            if is_new and text in self._shared.snapshots:  # whoever had it already has what the snapshot says
                self.send_frames(self._shared.snapshots[text]())
        if is_refused:
            self._count_refused()
