"""What lanes of submissions know of their session, and do the same way: room for one more, reading a large one."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from millrace.relayer.gateway.shared import Shared
from millrace.relayer.protocol import large_messages, messages, reasons, strict_json, topics
from millrace.relayer.protocol.messages import Broadcast, Relay
from millrace.relayer.protocol.reasons import Reason, Refused

MAX_WAITING = 64
"""Submissions of one connection that may be under way; further ones are refused."""


class Unread(NamedTuple):
    """A large message that waits to be read."""

    data: bytes
    number: int | None = None
    """Under which an edge is answered, whatever its client's own request id is."""


class Submitting(Protocol):
    """What a lane knows of the session it works for."""

    client: str
    authorization: str | None
    closed: bool

    def charge(self, cost: float) -> bool: ...
    def control_message(self, request: messages.Request) -> None: ...
    def refuse(self, action: str | None, reason: Reason, request_id: messages.RequestId | None) -> None: ...
    def tell_refused(self, action: str | None, reason: Reason, request_id: messages.RequestId | None) -> None: ...
    def refuse_unread(self, data: bytes, reason: Reason, number: int | None = None) -> None: ...
    def slow_down(self, wait: float) -> None: ...
    def subscribe(self, topic: topics.Topic) -> bool: ...
    def answer(self, reply: messages.SubmissionReply) -> None: ...
    def close(self, code: int = 1000, reason: str = "") -> None: ...


def has_room(
    session: Submitting,
    shared: Shared,
    under_way: int,
    request: Relay | Broadcast | None = None,
    request_id: messages.RequestId | None = None,
) -> bool:
    """Whether a submission may wait for its turn beside so many others; otherwise it is refused."""
    reason = None
    if shared.stopping:
        reason = reasons.NOT_READY.but("shutting down", 1_000)
    elif under_way >= MAX_WAITING:
        reason = reasons.BUSY.but("wait for earlier replies", 100)
    if reason is None:
        return True
    if request is None:
        session.refuse(None, reason, request_id)
    else:
        session.refuse(messages.action_of(request), reason, request.request_id)
    return False


async def read_large(unread: Unread, session: Submitting, shared: Shared) -> Relay | Broadcast | None:
    """The submission in a large message; anything else is answered here."""
    data, number = unread
    marked = await large_messages.marks(data)
    if not session.charge(strict_json.cost(b"", marked)):
        return None
    max_batch = shared.settings.max_batch
    typed = partial(messages.typed_request, max_batch=max_batch)
    try:
        request = await large_messages.decode(data, marked, messages.max_marks(max_batch), typed)
    except Refused as refusal:
        session.refuse_unread(data, refusal.reason, number)
        return None
    if number is not None:
        request = msgspec.structs.replace(request, request_id=number)
    if isinstance(request, Relay | Broadcast):
        return request
    session.control_message(request)
    return None
