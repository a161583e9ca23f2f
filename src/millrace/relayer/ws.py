"""The public WebSocket: sessions of /ws and /ws/stats, and the fan-out to them.

Each connection has two lanes in one socket. Replies, statuses and account updates must be delivered: they are
always written, and a reader so slow that more than `MUST_DELIVER_BYTES` wait is closed with 4008. Statistics are
conflated: while anything waits they are left out, and the next one, which is newer, goes instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from millrace.relayer import large_messages, messages, reasons, strict_json, topics
from millrace.relayer.audience import Audience
from millrace.relayer.limits import Connections, SlidingWindow, TokenBuckets, milliseconds
from millrace.relayer.messages import Broadcast, Relay, Request, Subscribe
from millrace.relayer.reasons import Reason, Refused
from millrace.relayer.submission import Submitter
from millrace.relayer.submission_lane import SubmissionLane
from millrace.relayer.subscriptions import Subscriptions
from millrace.relayer.topics import AddressTopic, StreamTopic, TxStatusTopic
from millrace.relayer.traffic import Egress, HeldBytes, Meter
from millrace.runtime import websocket
from millrace.runtime.client_address import ClientAddress, is_local
from millrace.runtime.doors import Doors
from millrace.runtime.websocket import text_frame

if TYPE_CHECKING:
    from millrace.relayer.settings import RelayerSettings

log = logging.getLogger(__name__)

MUST_DELIVER_BYTES = 4 * 1024 * 1024
FLOOD_MESSAGES, FLOOD_SECONDS = 256, 5.0
"""So many refused messages in so many seconds close a connection with 1008."""
DRAIN_SECONDS = 5.0
"""What is under way at a shutdown may take so long to be answered."""
PART_BYTES = 64
"""What a part of an unfinished message takes beside its own bytes."""
DRAIN_EGRESS_SECONDS = 0.25

Snapshot = Callable[[], bytes]


class Gateway:
    """Everything the sessions share."""

    def __init__(
        self,
        settings: RelayerSettings,
        submitter: Submitter,
        snapshots: dict[str, Snapshot],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.submitter = submitter
        self.snapshots = snapshots
        """What a new subscriber of a stream gets right after the acknowledgement: joined frames."""
        self.clock = clock
        self.subscriptions: Subscriptions[PublicSession] = Subscriptions(settings.max_topics)
        self.submissions = TokenBuckets(settings.submit_rate, max(settings.submit_burst, settings.max_batch))
        self.bytes = TokenBuckets(settings.receive_rate, max(settings.receive_burst, settings.max_message_bytes))
        self.unfinished = HeldBytes(
            int(max(settings.receive_burst, 2 * settings.max_message_bytes)), settings.unfinished_bytes
        )
        self.control = TokenBuckets(settings.control_rate, settings.control_burst)
        self.egress = Egress(settings.send_rate, settings.send_burst, clock())
        self.clients = ClientAddress(settings.trusted_proxies)
        self.doors = Connections(settings.max_connections_per_client, settings.connect_rate)
        self.stats_sessions: set[StatsSession] = set()
        self.refused: dict[str, int] = {}
        self.audiences = {name: Audience(self.egress) for name in (topics.GAS_STATS, topics.NETWORK_STATS)}
        """Who hears each stream of statistics, by its topic."""
        self.stopping = False
        self.under_way = 0
        """Submissions not yet answered, of all connections."""
        self._server: websocket.WsServer | None = None

    async def start(self, doors: Doors | None = None) -> int:
        """Listen, and count connections at the doors before they have brought a handshake; the port."""
        settings = self.settings
        self._server = await websocket.serve(
            self._session,
            settings.host,
            settings.port,
            max_message_size=settings.max_message_bytes,
            max_sessions=settings.max_connections,
            ping_interval=settings.ping_interval,
            pong_timeout=settings.pong_timeout,
            doors=doors,
        )
        return self._server.port

    async def run(self) -> None:
        """Let what clients were sent run out of their meters, for ever."""
        while True:
            await asyncio.sleep(DRAIN_EGRESS_SECONDS)
            self.egress.drain(self.clock())

    async def stop(self) -> None:
        """Answer what is under way, say goodbye to everyone and close."""
        if self._server is None:
            return
        self.stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.under_way:
                    await asyncio.sleep(0.01)
        goodbye = text_frame(messages.encode(messages.ShutdownMessage()))
        for session in list(self._server.sessions):
            session.send_frames(goodbye)
        await self._server.close(websocket.GOING_AWAY, "server shutting down")

    @property
    def connections(self) -> int:
        """Open connections, of both kinds."""
        return 0 if self._server is None else len(self._server.sessions)

    @property
    def conflated(self) -> int:
        """Statistics left out for readers who were behind, or whose address was sent too much."""
        return sum(audience.left_out for audience in self.audiences.values())

    @property
    def turned_away(self) -> int:
        """Connections reset for want of a file since the start."""
        return 0 if self._server is None else self._server.turned_away

    def _session(self, request: websocket.Request) -> websocket.Session:
        forwarded = request.headers.get("x-forwarded-for")
        if request.path == "/ws":
            return PublicSession(self, forwarded)
        if request.path == "/ws/stats":
            return StatsSession(self, forwarded)
        raise websocket.Refuse(404, "WebSocket endpoints are /ws and /ws/stats")

    def count(self, reason: Reason) -> Reason:
        """Count a refusal by its code, which is one of a fixed set."""
        self.refused[reason.code] = self.refused.get(reason.code, 0) + 1
        return reason

    # ---- fan-out

    def tell_status(self, topic: TxStatusTopic, make: Callable[[], bytes]) -> int:
        """Tell the end of a transaction to each subscription that has not heard it."""
        if not self.subscriptions.has(topic):
            return 0
        sessions = self.subscriptions.deliver(topic, self.clock())
        if sessions:
            frame = text_frame(make())
            for session in sessions:
                session.send_frames(frame)
        return len(sessions)

    def hears(self, topic: AddressTopic) -> bool:
        """Whether anybody would be told of an account."""
        return self.subscriptions.has(topic) or self.subscriptions.has(StreamTopic(topics.ACCOUNTS))

    def tell_account(self, topic: AddressTopic, make: Callable[[], bytes]) -> None:
        """Tell an account's new state to its subscribers and to those of all accounts."""
        everyone = StreamTopic(topics.ACCOUNTS)
        sessions = [*self.subscriptions.clients(topic), *self.subscriptions.clients(everyone)]
        if sessions:
            frame = text_frame(make())
            for session in dict.fromkeys(sessions):
                session.send_frames(frame)


class _Listener(websocket.Session):
    """A session with the two lanes, counted for its client."""

    max_buffered = MUST_DELIVER_BYTES

    def __init__(self, gateway: Gateway, forwarded: str | None) -> None:
        super().__init__()
        self._gateway = gateway
        self._forwarded = forwarded
        self.client = ""
        """Whom limits count, see `ClientAddress`."""
        self.meter: Meter | None = None
        """Of what the client is sent, unless it is on this machine."""

    def on_open(self) -> None:
        self.limit_send_buffer(0)  # whatever waits puts the connection behind
        self.client = self._gateway.clients.of(self.remote, self._forwarded)
        if not is_local(self.client):
            self.meter = self._gateway.egress.enter(self.client)
        if not self._gateway.doors.enter(self.client, self._gateway.clock()):
            self.close(websocket.POLICY_VIOLATION, "too many connections from this address", abort=True)

    def on_close(self) -> None:
        self._leave_audiences()
        self._gateway.doors.leave(self.client)
        if self.meter is not None:
            self.meter.connections -= 1

    def send_frames(self, frames: bytes) -> None:
        if self.meter is not None:
            self.meter.spent += len(frames)
        super().send_frames(frames)

    def close(self, code: int = 1000, reason: str = "", *, abort: bool = False) -> None:
        self._leave_audiences()  # nothing follows the close frame
        super().close(code, reason, abort=abort)

    def on_full(self) -> None:
        for audience in self._gateway.audiences.values():
            audience.fall_behind(self)

    def on_writable(self) -> None:
        for audience in self._gateway.audiences.values():
            audience.catch_up(self)

    def _leave_audiences(self) -> None:
        for audience in self._gateway.audiences.values():
            audience.leave(self)


class StatsSession(_Listener):
    """A connection to /ws/stats: it only listens."""

    max_message_size = 4096
    in_pieces = True

    def on_open(self) -> None:
        super().on_open()
        if self.closed:
            return
        self._gateway.stats_sessions.add(self)
        self._gateway.audiences[topics.NETWORK_STATS].join(self)
        snapshot = self._gateway.snapshots.get(topics.NETWORK_STATS)
        if snapshot is not None:
            self.send_frames(snapshot())

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        """This stream is read-only; whatever is sent to it means nothing."""

    def on_close(self) -> None:
        super().on_close()
        self._gateway.stats_sessions.discard(self)


class PublicSession(_Listener):
    """A connection to /ws."""

    in_pieces = True

    def __init__(self, gateway: Gateway, forwarded: str | None) -> None:
        super().__init__(gateway, forwarded)
        self.max_message_size = gateway.settings.max_message_bytes
        self._held = 0
        """Bytes of an unfinished message."""
        self._control = SlidingWindow(gateway.settings.max_control_messages)
        self._flood = SlidingWindow(FLOOD_MESSAGES, FLOOD_SECONDS)
        self._lane: SubmissionLane | None = None
        """Made with the first submission: most connections only listen."""

    # ---- in

    def on_part(self, size: int) -> bool:
        if not self._gateway.unfinished.take(self.client, size + PART_BYTES):
            self._let_go()
            return False
        self._held += size + PART_BYTES
        return True

    def on_thrown_away(self) -> None:
        self.refuse(None, reasons.RATE_LIMIT.but("too many bytes in unfinished messages", 1_000), None)

    def _let_go(self) -> None:
        if self._held:
            self._gateway.unfinished.give(self.client, self._held)
            self._held = 0

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self._let_go()
        if self.meter is not None and self.meter.is_over:
            self._gateway.egress.skipped += 1
            self.refuse(None, reasons.RATE_LIMIT.but("too many bytes are sent to this address", 1_000), None)
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
            request = messages.decode_request(data, self._gateway.settings.max_batch, marked)
        except Refused as refusal:
            self.refuse_unread(data if kind == "text" else b"", refusal.reason)
            return
        if isinstance(request, Relay | Broadcast):
            self._submissions().add(request)
        else:
            self.control_message(request)

    def _submissions(self) -> SubmissionLane:
        if self._lane is None:
            self._lane = SubmissionLane(self._gateway, self)
        return self._lane

    def charge(self, cost: float) -> bool:
        """Take what reading costs from the client's bucket; otherwise it is told when to come again."""
        wait = self._gateway.bytes.take(self.client, cost, self._gateway.clock())
        if wait:
            self.refuse(None, reasons.RATE_LIMIT.but("too many bytes from this address", milliseconds(wait)), None)
        return not wait

    def refuse_unread(self, data: bytes, reason: Reason) -> None:
        """Answer a message that could not be read; it counts as a control message."""
        action, request_id = messages.decode_envelope(data)
        self.refuse(action, self._over_control_limit(1) or reason, request_id)

    def on_close(self) -> None:
        super().on_close()
        self._let_go()
        self._gateway.subscriptions.drop(self)
        if self._lane is not None:
            self._lane.clear()

    def _over_control_limit(self, topics: int) -> Reason | None:
        """Why a control message of so many topics is too much, of this connection or of its address."""
        gateway, now = self._gateway, self._gateway.clock()
        wait = self._control.admit(now)
        if wait:
            return reasons.RATE_LIMIT.but("too many control messages", milliseconds(wait))
        wait = 0.0 if is_local(self.client) else gateway.control.take(self.client, topics, now)
        return reasons.RATE_LIMIT.but("too many topics from this address", milliseconds(wait)) if wait else None

    def refuse(
        self,
        action: str | None,
        reason: Reason,
        request_id: messages.RequestId | None,
        topic: str | None = None,
    ) -> None:
        """Answer first; only whoever keeps sending what is refused loses the connection."""
        self.send_text(messages.fail_reply(action, self._gateway.count(reason), request_id, topic))
        if self._flood.admit(self._gateway.clock()):
            self.close(websocket.POLICY_VIOLATION, "too many refused messages")

    # ---- subscriptions

    def control_message(self, request: Request) -> None:
        """Carry out a subscribe or unsubscribe, topic by topic."""
        assert not isinstance(request, Relay | Broadcast)
        action = "subscribe" if isinstance(request, Subscribe) else "unsubscribe"
        texts = messages.topics_of(request)
        limited = self._over_control_limit(len(texts))
        if limited is not None:
            self.refuse(action, limited, request.request_id, request.topic)
            return
        for text in texts:
            if self.closed:
                return
            is_new = False
            try:
                topic = topics.parse(text)
                if isinstance(request, Subscribe):
                    is_new = self._gateway.subscriptions.subscribe(self, topic, self._gateway.clock())
                else:
                    self._gateway.subscriptions.unsubscribe(self, topic)
                    if text in self._gateway.audiences:
                        self._gateway.audiences[text].leave(self)
            except Refused as refusal:
                self.refuse(action, refusal.reason, request.request_id, text)
                continue
            self.send_text(messages.topic_reply(action, text, request.request_id))
            if is_new and text in self._gateway.audiences and not self.closed:
                self._gateway.audiences[text].join(self)
            if is_new and text in self._gateway.snapshots:  # whoever had it already has what the snapshot says
                self.send_frames(self._gateway.snapshots[text]())
