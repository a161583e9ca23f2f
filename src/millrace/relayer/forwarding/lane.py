"""The submissions of one connection to an edge: read in their order, forwarded, answered as the relayers answer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

import msgspec

from millrace.relayer.forwarding import parts
from millrace.relayer.forwarding.parts import Piece, Routed
from millrace.relayer.forwarding.signers import Signers
from millrace.relayer.forwarding.upstream import Pending, Upstream
from millrace.relayer.forwarding.wire import HEAD_BYTES
from millrace.relayer.gateway.limits import milliseconds
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.gateway.submitting import Submitting, has_room, read_large
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


class _Whole:
    """A submission as its client knows it; its parts are with one relayer or with several."""

    __slots__ = ("action", "left", "pieces", "request_id", "since", "size")

    def __init__(self, request: Relay | Broadcast, size: int, since: float) -> None:
        self.action = messages.action_of(request)
        self.request_id = request.request_id
        self.size, self.since = size, since
        self.left = 0
        """Parts that are not answered."""
        self.pieces: list[Piece] = []


class ForwardLane:
    """Made by a session for itself; `clear` it when the connection is gone."""

    def __init__(self, signers: Signers, shared: Shared, session: Session) -> None:
        self._signers, self._shared, self._session = signers, shared, session
        self.client, self.authorization = session.client, session.authorization or ""
        self.channel = signers.enter(self)
        self._under_way: dict[int, _Whole] = {}
        """By the number of each part."""
        self._submissions = 0
        self._unread: deque[Relay | Broadcast | bytes] = deque()
        """Large messages that wait to be read, and what came after them."""
        self._reader: asyncio.Task[None] | None = None
        self._refused_topics: dict[str, Reason] = {}

    # ---- what the session calls

    def add(self, request: Relay | Broadcast) -> None:
        """Forward a submission in its turn, or refuse it."""
        if not self._has_room(messages.action_of(request), request.request_id):
            return
        if self._reader is None:
            self._forward(request)
        else:
            self._unread.append(request)

    def read_later(self, data: bytes) -> None:
        """Read a large message, whose bytes are paid for, in its turn, or refuse it."""
        if self._has_room(None, None):
            self._unread.append(data)
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

    def _has_room(self, action: str | None, request_id: messages.RequestId | None) -> bool:
        under_way = self._submissions + len(self._unread)
        return has_room(self._session, self._shared, under_way, action, request_id)

    async def _read(self) -> None:
        try:
            while self._unread and not self._session.closed:
                item = self._unread.popleft()
                request = item if not isinstance(item, bytes) else await read_large(item, self._session, self._shared)
                if request is not None and not self._session.closed:
                    self._forward(request)
        except Exception:
            log.exception("a submission was not forwarded")
            self._session.close(1011, "internal error")
        finally:
            self._reader = None

    def _forward(self, request: Relay | Broadcast) -> None:
        """Send a submission to whoever signs for it; a batch that is for several relayers in parts."""
        transactions = messages.transactions_of(request)
        size = len(transactions)
        wait = self._shared.submissions.take(self.client, size, self._shared.clock())
        if wait:
            reason = reasons.RATE_LIMIT.but("too many transactions from this address", milliseconds(wait))
            self._session.refuse(messages.action_of(request), reason, request.request_id)
            self._session.slow_down(wait)
            return
        items = [parts.routed(raw) for raw in transactions]
        targets = parts.divided(items, self._signers.choose)
        whole = _Whole(request, size, self._shared.clock())
        self._submissions += 1
        self._shared.under_way += 1
        whole.left = len(targets)
        for upstream, positions in targets.items():
            part = request
            if len(targets) > 1:
                chosen = [transactions[position] for position in positions]
                part = msgspec.structs.replace(request, tx=msgspec.UNSET, txs=chosen)
            self._send(whole, part, [items[position] for position in positions], positions, upstream)

    def _send(
        self,
        whole: _Whole,
        part: Relay | Broadcast,
        items: list[Routed],
        positions: list[int],
        upstream: Upstream,
    ) -> None:
        number = self._signers.next_number()
        body = messages.encode(msgspec.structs.replace(part, request_id=number))
        self._under_way[number] = whole
        pending = Pending(number, self, items, positions, strict_json.marks(body), body)
        reason: Reason | None = reasons.MESSAGE_TOO_LARGE
        if len(body) + len(self.authorization) < self._shared.settings.max_message_bytes + HEAD_BYTES // 2:
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
        whole.pieces.append(Piece(pending.positions, answer))
        whole.left -= 1
        if whole.left:
            return
        self._submissions -= 1
        self._shared.under_way -= 1
        self._shared.answers.observe(self._shared.clock() - whole.since)
        self._session.send_text(parts.with_request_id(self._reply(whole), whole.request_id))

    def _reply(self, whole: _Whole) -> bytes:
        try:
            if len(whole.pieces) > 1:
                body = parts.joined(whole.pieces, whole.action)
            else:
                body = parts.checked(whole.pieces[0].answer)
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
