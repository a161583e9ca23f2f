"""The submissions of one connection to an edge: read in their order, forwarded, answered as the relayers answer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Raw

from millrace.relayer.forwarding import parts
from millrace.relayer.forwarding.parts import Piece, Routed
from millrace.relayer.forwarding.signers import Signers
from millrace.relayer.forwarding.upstream import Pending, Upstream
from millrace.relayer.forwarding.wire import HEAD_BYTES
from millrace.relayer.gateway.limits import milliseconds
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.gateway.submitting import Submitting, Unread, has_room, read_large
from millrace.relayer.protocol import messages, reasons, strict_json
from millrace.relayer.protocol.messages import Broadcast, Relay
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.protocol.topics import TxStatusTopic

log = logging.getLogger(__name__)

MAX_REFUSED_TOPICS = 1_024
"""Subscriptions that could not be made and whose replies have not come; as many as 64 submissions may have."""


class Session(Submitting, Protocol):
    """What a forwarding lane knows of the session it works for."""

    def rest(self, seconds: float) -> None: ...
    def send_text(self, payload: bytes) -> None: ...


class _Came(NamedTuple):
    """A submission, and the bytes it came in."""

    request: Relay | Broadcast
    data: bytes
    marked: int
    """`strict_json.marks` of it."""
    has_good_keys: bool
    """Whether it was made sure that none stands twice."""


class _Whole:
    """A submission as its client knows it; its parts are with one relayer or with several."""

    __slots__ = ("action", "left", "pieces", "request_id", "since")

    def __init__(self, request: Relay | Broadcast, left: int, since: float) -> None:
        self.action = messages.action_of(request)
        self.request_id, self.since = request.request_id, since
        self.left = left
        """Parts that are not answered."""
        self.pieces: list[Piece] = []
        """Those that are, of a submission in several."""


class ForwardLane:
    """Made by a session for itself; `clear` it when the connection is gone."""

    def __init__(self, signers: Signers, shared: Shared, session: Session) -> None:
        self._signers, self._shared, self._session = signers, shared, session
        self.client, self.authorization = session.client, session.authorization or ""
        self.channel, self.seen = signers.enter(self), 0
        self._under_way: dict[int, _Whole] = {}
        """By the number of each part."""
        self._submissions = 0
        self._unread: deque[_Came | Unread] = deque()
        """Large messages that wait to be read, and what came after them."""
        self._reader: asyncio.Task[None] | None = None
        self._refused_topics: dict[str, Reason] = {}

    # ---- what the session calls

    def add(self, request: Relay | Broadcast, data: bytes, marked: int) -> None:
        """Forward a submission, the bytes it came in, in its turn, or refuse it."""
        if not has_room(self._session, self._shared, self._submissions + len(self._unread), request):
            return
        came = _Came(request, data, marked, False)
        if self._reader is None:
            self._forward(came)
        else:
            self._unread.append(came)

    def read_later(self, data: bytes) -> None:
        """Read a large message, whose bytes are paid for, in its turn, or refuse it."""
        if has_room(self._session, self._shared, self._submissions + len(self._unread)):
            self._unread.append(Unread(data))
            if self._reader is None:
                self._reader = asyncio.create_task(self._read())

    def clear(self) -> None:
        """Nobody waits any more."""
        self._unread.clear()
        self._signers.leave(self.channel, self._under_way)
        self._under_way.clear()
        self._shared.under_way -= self._submissions
        self._submissions = 0

    # ---- in

    async def _read(self) -> None:
        try:
            while self._unread and not self._session.closed:
                item = self._unread.popleft()
                if isinstance(item, Unread):
                    request = await read_large(item, self._session, self._shared)
                    if request is None or self._session.closed:
                        continue
                    item = _Came(request, item.data, strict_json.marks(item.data), True)
                self._forward(item)
        except Exception:
            log.exception("a submission was not forwarded")
            self._session.close(1011, "internal error")
        finally:
            self._reader = None

    def _forward(self, came: _Came) -> None:
        """Send a submission to whoever signs for it; a batch that is for several relayers in parts."""
        request = came.request
        transactions = messages.transactions_of(request)
        size = len(transactions)
        wait = self._shared.submissions.take(self.client, size, self._shared.clock())
        if wait:
            reason = reasons.RATE_LIMIT.but("too many transactions from this address", milliseconds(wait))
            self._session.refuse(messages.action_of(request), reason, request.request_id)
            self._session.slow_down(wait)
            return
        number, upstream = self._signers.next_number(), self._signers.only
        if upstream is not None:
            self._send(self._enter(request, 1), Pending(number, self, size, came.marked, came.data), upstream)
            return
        items = [parts.routed(raw) for raw in transactions]
        targets = parts.divided(items, self._signers.choose)
        if len(targets) == 1:
            (upstream,) = targets
            self._send(self._enter(request, 1), Pending(number, self, size, came.marked, came.data, items), upstream)
        else:
            self._divide(came, transactions, items, targets)

    def _divide(
        self, came: _Came, transactions: list[Raw], items: list[Routed], targets: dict[Upstream, list[int]]
    ) -> None:
        """Send the parts of a batch; what nobody but this edge sees whole is judged here."""
        try:
            if not came.has_good_keys:
                most = messages.max_marks(self._shared.settings.max_batch)
                strict_json.refuse_duplicate_keys(came.data, came.marked, most)
        except Refused as refusal:
            self._session.refuse_unread(came.data, refusal.reason)
            return
        whole = self._enter(came.request, len(targets))
        for upstream, positions in targets.items():
            chosen = [transactions[position] for position in positions]
            body = messages.encode(msgspec.structs.replace(came.request, tx=UNSET, txs=chosen))
            theirs = [items[position] for position in positions]
            number, marked = self._signers.next_number(), strict_json.marks(body)
            self._send(whole, Pending(number, self, len(chosen), marked, body, theirs, positions), upstream)

    def _enter(self, request: Relay | Broadcast, count: int) -> _Whole:
        """A submission of so many parts is under way."""
        self._submissions += 1
        self._shared.under_way += 1
        return _Whole(request, count, self._shared.clock())

    def _send(self, whole: _Whole, pending: Pending, upstream: Upstream) -> None:
        self._under_way[pending.number] = whole
        reason: Reason | None = reasons.MESSAGE_TOO_LARGE
        if len(pending.body) + len(self.authorization) < self._shared.settings.max_message_bytes + HEAD_BYTES // 2:
            reason = self._signers.send(pending, upstream)
        if reason is not None:
            self.answered(pending, reason)

    # ---- out

    def answered(self, pending: Pending, answer: bytes | Reason) -> None:
        """A part, mostly the whole, is answered by a relayer, or refused here."""
        whole = self._under_way.pop(pending.number, None)
        if whole is None:
            return
        if isinstance(answer, Reason):
            answer = messages.fail_reply(whole.action, self._shared.count(answer))
        else:
            taken = parts.taken(answer)
            if taken:
                self._signers.on_taken(taken)
                self._signers.gathering.accepted(len(taken))
        whole.left -= 1
        if whole.left or whole.pieces:
            whole.pieces.append(Piece(pending.positions, answer))
            if whole.left:
                return
        self._submissions -= 1
        self._shared.under_way -= 1
        self._shared.answers.observe(self._shared.clock() - whole.since)
        self._session.send_text(parts.with_request_id(self._reply(whole, answer), whole.request_id))

    def _reply(self, whole: _Whole, answer: bytes) -> bytes:
        """What the client is told: the answer, or what the answers to all parts come to."""
        try:
            body = parts.joined(whole.pieces, whole.action) if whole.pieces else parts.checked(answer)
            return parts.with_refused_topics(body, self._refused_topics) if self._refused_topics else body
        except parts.UNREADABLE as error:
            log.error("a relayer's answer is not understood", extra={"reason": str(error)})
            return messages.fail_reply(whole.action, reasons.INTERNAL)

    # ---- what relayers say of the client

    def announced(self, tx_hash: bytes) -> None:
        """Subscribe to the end of what is accepted, before it leaves the relayer."""
        try:
            self._session.subscribe(TxStatusTopic(tx_hash))
        except Refused as refusal:
            if len(self._refused_topics) < MAX_REFUSED_TOPICS:
                self._refused_topics[tx_hash.hex()] = refusal.reason

    def rest(self, seconds: float) -> None:
        """The client was told that it is beyond a rate, and does not heed it."""
        self._session.rest(seconds)

    def close(self, code: int, reason: str) -> None:
        """The client keeps sending what is refused."""
        self._session.close(code, reason)
