"""Edges as a relayer that signs sees them: their clients' submissions come in, replies and refusals go out.

Who an edge speaks for is believed of the networks in `edges` alone: then every limit counts the client, over all edges,
as if it had come itself. A client of an edge has a lane of its own, as if it were connected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from millrace.relayer.blocks.tracker import Outcome
from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.wire import Hello, Outbox, Refusal, Submitted, WireError
from millrace.relayer.gateway.limits import LEAST_REST, REST_SECONDS, SlidingWindow, milliseconds
from millrace.relayer.gateway.sessions import FLOOD_MESSAGES, FLOOD_SECONDS
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.gateway.submission_lane import SubmissionLane
from millrace.relayer.gateway.subscriptions import STATUS_SECONDS
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.protocol import large_messages, messages, reasons, strict_json, topics
from millrace.relayer.protocol.messages import Broadcast, Relay, SubmissionReply
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.runtime import websocket
from millrace.runtime.client_address import ClientAddress

log = logging.getLogger(__name__)

MUST_DELIVER_BYTES = 64 * 1024 * 1024
"""Replies that may wait for one edge: some 80 000. One that reads so slowly is closed and asks again."""
LOOK_SECONDS = 0.5
"""Between two looks whether this relayer has other keys than it said."""
NO_EDGE = "not an edge of this relayer: see its setting edges"
MAX_REFUSALS = 10_000
"""Refusals kept for edges that come again, for as long as a subscription lives at most."""


class _Told(NamedTuple):
    at: float
    number: int
    record: bytes


class Edges:
    """The edges that are connected to this relayer."""

    def __init__(self, shared: Shared, hello: Callable[[], Hello]) -> None:
        """`hello`: who this relayer is now."""
        self._shared = shared
        self._networks = ClientAddress(shared.settings.edges)
        self._hello = hello
        self._said: Hello | None = None
        self._sessions: set[EdgeSession] = set()
        self._refusals: deque[_Told] = deque(maxlen=MAX_REFUSALS)
        self._number = 0
        self.turned_away = 0
        """Connections from elsewhere than the networks of edges, since the start."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def clients(self) -> int:
        """Clients of edges that have submitted something."""
        return sum(len(session.clients) for session in self._sessions)

    def session(self, request: websocket.Request) -> EdgeSession:
        """What a connection to `/ws/edge` becomes."""
        return EdgeSession(self, self._shared, request.headers)

    def enter(self, session: EdgeSession, heard: str, forwarded: str | None) -> bool:
        """Greet an edge, and tell it what was refused since it `heard` of something; False: it is none."""
        if not is_edge(self._networks, session.remote, forwarded):
            self.turned_away += 1
            level = logging.WARNING if self.turned_away == 1 else logging.DEBUG  # whoever likes can connect: no flood
            log.log(level, "no edge of ours", extra={"client": session.remote, "forwarded": forwarded})
            return False
        said = self._hello()
        session.outbox.put(wire.hello(said))
        run, _, number = heard.rpartition(":")
        last = int(number) if run == said.run and number.isdecimal() and len(number) < 20 else self._number
        since = self._shared.clock() - STATUS_SECONDS
        for told in self._refusals:
            if told.number > last and told.at >= since:
                session.outbox.put(told.record)
        self._sessions.add(session)
        return True

    def leave(self, session: EdgeSession) -> None:
        """An edge has gone."""
        self._sessions.discard(session)

    async def run(self) -> None:
        """Say who this relayer is whenever that changes."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.say_changes()

    def say_changes(self) -> None:
        """Say who this relayer is when that is not what was said last."""
        said = self._hello()
        if said != self._said:
            self._said = said
            for session in self._sessions:
                session.outbox.put(wire.hello(said))

    def tell_refused(self, entry: Entry) -> None:
        """An accepted transaction will never run, which only the relayer that took it knows."""
        reason = "" if entry.refusal is None else entry.refusal.reason
        self._tell_never({entry.client_hash, entry.sdk_hash}, reason)

    def tell_unexecutable(self, outcome: Outcome) -> None:
        """What was accepted could not be executed. Where no node names it, only who took it knows all its hashes."""
        hashes = {outcome.tx_hash, outcome.client_hash, outcome.sdk_hash}
        self._tell_never(hashes, outcome.reason, outcome.tx_hash)

    def _tell_never(self, hashes: set[bytes], reason: str, chain_hash: bytes = b"") -> None:
        self._number += 1
        names = sorted(each.hex() for each in hashes - {b""})
        record = wire.refused(Refusal(self._number, names, reason, chain_hash.hex()))
        self._refusals.append(_Told(self._shared.clock(), self._number, record))
        for session in self._sessions:
            session.outbox.put(record)


class EdgeSession(websocket.Session):
    """The connection of one edge."""

    max_buffered = MUST_DELIVER_BYTES

    def __init__(self, edges: Edges, shared: Shared, headers: dict[str, str]) -> None:
        super().__init__()
        self.max_message_size = shared.settings.max_message_bytes + wire.HEAD_BYTES
        self.outbox = Outbox(self.send_binary)
        self.clients: dict[int, EdgeClient] = {}
        """By channel."""
        self._edges, self._shared, self._headers = edges, shared, headers

    def on_open(self) -> None:
        if not self._edges.enter(self, self._headers.get(wire.HEARD, ""), self._headers.get("x-forwarded-for")):
            self.close(websocket.POLICY_VIOLATION, NO_EDGE, abort=True)

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        try:
            for record in wire.records(data):
                self._take(record)
        except WireError as error:
            log.error("an edge is not understood", extra={"edge": self.remote, "reason": str(error)})
            self.close(websocket.UNSUPPORTED_DATA, str(error), abort=True)

    def on_close(self) -> None:
        self._edges.leave(self)
        for client in self.clients.values():
            client.gone()
        self.clients.clear()

    def _take(self, record: bytes) -> None:
        if record.startswith(wire.SUBMIT):
            submitted = wire.read_submit(record)
            client = self.clients.get(submitted.channel)
            if client is None:
                client = self._enter(submitted)
            client.submit(submitted)
        elif record.startswith(wire.LEFT):
            client = self.clients.pop(wire.read_channel(record), None)
            if client is not None:
                client.gone()
        elif record == wire.DEPART:
            self._shared.gathering.depart()
        # Anything else is of a later version, which says it beside what this one knows.

    def _enter(self, submitted: Submitted) -> EdgeClient:
        client = EdgeClient(self, self._shared, submitted)
        if len(self.clients) < self._shared.settings.max_connections:
            self.clients[submitted.channel] = client
        else:
            client.is_full = True
        return client


class EdgeClient:
    """A client of an edge, as a submission lane sees a session. The edge's numbers take the place of request ids."""

    def __init__(self, edge: EdgeSession, shared: Shared, first: Submitted) -> None:
        self.client = first.client
        self.authorization: str | None = first.authorization or None
        self.closed = False
        self.is_full = False
        """There are too many clients: nothing is taken from this one."""
        self._edge, self._shared, self._channel = edge, shared, first.channel
        self._control = SlidingWindow(shared.settings.max_control_messages)
        self._flood = SlidingWindow(FLOOD_MESSAGES, FLOOD_SECONDS)
        self._lane = SubmissionLane(shared, self)

    def gone(self) -> None:
        """Nobody waits any more."""
        self.closed = True
        self._lane.clear()

    def submit(self, submitted: Submitted) -> None:
        """Take a message, whose reading its client pays for here, too: it may come through several edges."""
        if self.is_full:
            self.tell_refused(None, reasons.BUSY.but("too many clients of edges", 1_000), submitted.number)
            return
        body, marked = submitted.body, submitted.marked
        wait = self._shared.bytes.take(self.client, strict_json.cost(body, marked), self._shared.clock())
        if wait:
            reason = reasons.RATE_LIMIT.but("too many bytes from this address", milliseconds(wait))
            self.refuse(None, reason, submitted.number)
            self.slow_down(wait)
        elif len(body) > large_messages.LARGE:
            self._lane.read_later(body, submitted.number)
        else:
            try:
                request = messages.decode_request(body, self._shared.settings.max_batch, marked)
            except Refused as refusal:
                self.refuse_unread(body, refusal.reason, submitted.number)
                return
            request = msgspec.structs.replace(request, request_id=submitted.number)
            if isinstance(request, Relay | Broadcast):
                self._lane.add(request)
            else:
                self.control_message(request)

    # ---- what the lane calls

    def charge(self, cost: float) -> bool:
        """All of it was paid for when it came."""
        return True

    def control_message(self, request: messages.Request) -> None:
        """A message is none that edges forward."""
        self.refuse(None, reasons.INVALID_MESSAGE.but("edges forward relay and broadcast"), request.request_id)

    def answer(self, reply: SubmissionReply) -> None:
        """A submission is answered."""
        self._send(reply.request_id, messages.encode(msgspec.structs.replace(reply, request_id=UNSET)))

    def refuse(self, action: str | None, reason: Reason, request_id: messages.RequestId | None) -> None:
        """A message is refused; whoever keeps sending such ones loses the connection."""
        self.tell_refused(action, reason, request_id)
        if self._flood.admit(self._shared.clock()):
            self.close(websocket.POLICY_VIOLATION, "too many refused messages")

    def tell_refused(self, action: str | None, reason: Reason, request_id: messages.RequestId | None) -> None:
        """A message is refused, as who asks may be for the service's own reasons."""
        self._send(request_id, messages.fail_reply(action, self._shared.count(reason)))

    def refuse_unread(self, data: bytes, reason: Reason, number: int | None = None) -> None:
        """A message could not be read; it counts as a control message."""
        action, _ = messages.decode_envelope(data)
        limited = self._shared.over_control_limit(self._control, self.client, 1)
        self.refuse(action, limited or reason, number)

    def slow_down(self, wait: float) -> None:
        """Have the edge read nothing for a while from who was told, and does not heed it."""
        if self._shared.told.take(self.client, 1, self._shared.clock()):
            self._edge.outbox.put(wire.rest(self._channel, min(max(wait, LEAST_REST), REST_SECONDS)))

    def subscribe(self, topic: topics.Topic) -> bool:
        """Subscriptions are the edge's; it hears of the hash before the transaction leaves this process."""
        assert isinstance(topic, topics.TxStatusTopic)
        self._edge.outbox.put(wire.announce(self._channel, topic.tx_hash))
        return True

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Have the edge close the client's connection."""
        self._edge.outbox.put(wire.close(self._channel, code, reason))

    def _send(self, number: object, body: bytes) -> None:
        if not self.closed and isinstance(number, int):
            self._edge.outbox.put(wire.reply(self._channel, number, body))


def is_edge(networks: ClientAddress, remote: str, forwarded: str | None) -> bool:
    """Whether an edge is connected, and nobody else through a proxy that is where edges are."""
    hops = forwarded.split(",") if forwarded is not None else ()
    return all(networks.is_proxy(hop.strip()) for hop in (remote, *hops))


def new_run() -> str:
    """The name of this run."""
    return f"{time.time_ns():x}"
