"""The submissions of one connection: read and taken in their order, finished as disk and signer allow."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from millrace.relayer.gateway.limits import GONE, milliseconds, overloaded
from millrace.relayer.gateway.replies import submission_reply, told_of
from millrace.relayer.gateway.shared import Shared
from millrace.relayer.gateway.submitting import Submitting, Unread, has_room, read_large
from millrace.relayer.gateway.together import Short
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.protocol import messages, reasons, topics
from millrace.relayer.protocol.messages import Broadcast, Relay
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.protocol.topics import TxStatusTopic
from millrace.relayer.rules.slices import PART, cost
from millrace.relayer.rules.stages import Origin
from millrace.relayer.submission.batch import Announce, Batch, Result
from millrace.runtime.tracing import UNTRACED

log = logging.getLogger(__name__)


class SubmissionLane:
    """Made by a session for itself; `clear` it when the connection is gone."""

    def __init__(self, shared: Shared, session: Submitting) -> None:
        self._shared = shared
        self._session = session
        self._waiting: deque[tuple[float, int, Relay | Broadcast | Unread]] = deque()
        """Submissions, and large messages not read yet: each with its time, and how many transactions it has."""
        self._under_way = 0
        self._seen = 0
        """See `Gathering`."""
        self._gathers = False
        """Whether what waits sets out with the next departure."""
        self._apart = 0
        """So many of those at the front were in company, and go by themselves."""
        self._worker: asyncio.Task[None] | None = None
        self._finishing: set[asyncio.Task[None]] = set()

    def add(self, request: Relay | Broadcast, data: bytes = b"", marked: int = 0) -> None:
        """Take a submission in its turn, or refuse it; the bytes it came in matter at an edge alone."""
        if has_room(self._session, self._shared, self._under_way, request) and self._admit(request):
            self._queue(request, len(messages.transactions_of(request)))

    def read_later(self, data: bytes, number: int | None = None) -> None:
        """Read a large message, whose bytes are paid for, in its turn, or refuse it; an edge gave it a number."""
        if has_room(self._session, self._shared, self._under_way, request_id=number):
            self._queue(Unread(data, number), 0)

    def clear(self) -> None:
        """Nobody waits for what was not begun."""
        while self._waiting:
            size = self._waiting.popleft()[1]
            self._done(size, size)

    async def _read(self, unread: Unread) -> Relay | Broadcast | None:
        """The submission in a large message, let in; anything else is answered here."""
        request = await read_large(unread, self._session, self._shared)
        if request is None or not self._admit(request):
            return None
        self._shared.submitter.admission.enter(self._session.client, len(messages.transactions_of(request)))
        return request

    def _admit(self, request: Relay | Broadcast) -> bool:
        """Take a submission from the client's rate.

        What is beyond it, or would wait too long, hears when to come again; a wrong key that it is wrong.
        """
        try:
            self._shared.submitter.person_of(self._session.authorization)
        except Refused as refusal:
            self._session.refuse(messages.action_of(request), refusal.reason, request.request_id)
            return False
        size = len(messages.transactions_of(request))
        wait = self._shared.submitter.admission.wait(self._session.client, size)
        if wait:  # its own doing or not: to ask is no offence
            self._session.tell_refused(messages.action_of(request), overloaded(wait), request.request_id)
            return False
        wait = self._shared.submissions.take(self._session.client, size, self._shared.clock())
        if wait:
            reason = reasons.RATE_LIMIT.but("too many transactions from this address", milliseconds(wait))
            self._session.refuse(messages.action_of(request), reason, request.request_id)
            self._session.slow_down(wait)
        return not wait

    def _queue(self, item: Relay | Broadcast | Unread, size: int) -> None:
        """A submission of `size` transactions, or a large message to be read, waits for its turn on this connection."""
        self._shared.submitter.admission.enter(self._session.client, size)
        self._under_way += 1
        self._shared.under_way += 1
        self._waiting.append((self._shared.clock(), size, item))
        if self._worker is None and not self._gathers:
            self._gather()

    def _gather(self) -> None:
        """Have what waits set out, if anybody still waits for it: with the next departure if it is short.

        What has others behind it is as long as all of them: it does not wait for every departure to take a few along.
        """
        if not self._waiting:
            return
        _, size, item = self._waiting[0]
        if isinstance(item, Unread) or self._apart:
            self.set_out()
        else:
            self._gathers = True
            size = max(size, min(len(self._waiting), PART))
            self._seen = self._shared.gathering.join(size, self._seen, self)

    def set_out(self) -> None:
        """Begin with what waits, if anybody still waits for it."""
        self._gathers = False
        if self._waiting:
            self._worker = asyncio.create_task(self._work())

    # ---- in company

    @property
    def client(self) -> str:
        """Whose submissions they are, as limits name it."""
        return self._session.client

    @property
    def has_several(self) -> bool:
        """Whether more than one waits."""
        return len(self._waiting) > 1

    def next_shorts(self) -> list[Short]:
        """What is to set out and can go with others; after it nothing does before `go_on`. Empty if it is to go alone.

        No more than goes through the stages together.
        """
        shorts: list[Short] = []
        while self._waiting and len(shorts) < PART and not self._shared.tracer.on:
            since, _, item = self._waiting[0]
            transactions = messages.transactions_of(item) if isinstance(item, Relay) else []
            if len(transactions) != 1 or cost(len(memoryview(transactions[0]))) > 1:
                break
            assert isinstance(item, Relay)
            self._waiting.popleft()
            subscribed: dict[bytes, str | Reason] = {}
            batch = Batch(
                self._origin(item, since), 1, self._announce(item, subscribed), partial(self._given_up, since)
            )
            shorts.append(Short(self, item, since, transactions[0], batch, subscribed))
        return shorts

    def go_on(self, apart: Sequence[Short]) -> None:
        """What had set out was taken, but for those that are to be by themselves, before what has come meanwhile."""
        self._gathers = False
        self._waiting.extendleft((short.since, 1, short.request) for short in reversed(apart))
        self._apart = len(apart)
        self._gather()

    def finish_alone(self, short: Short) -> None:
        """Finish what was taken in company."""
        self._keep(asyncio.create_task(self._finish(short.request, short.batch, short.subscribed, short.since)))

    def answer(self, short: Short) -> None:
        """The submission was finished in company."""
        self._done(1, short.batch.unserved)
        try:
            self._answer(short.request, short.batch, short.batch.answers(), short.subscribed, short.since)
        except Exception:
            log.exception("a submission was not answered")
            self._session.close(1011, "internal error")

    def fail(self) -> None:
        """A defect kept a submission from its answer."""
        self._done(1, 1)
        self._session.close(1011, "internal error")

    # ---- alone

    async def _work(self) -> None:
        """Take this connection's next submission, and finish it as disk and signer allow.

        What comes behind it goes on as soon as it is taken.
        """
        last: Coroutine[Any, Any, None] | None = None
        if not self._waiting:  # the connection has gone since this was begun
            self._worker = None
            return
        since, size, item = self._waiting.popleft()
        self._apart = max(0, self._apart - 1)
        try:
            request = await self._read(item) if isinstance(item, Unread) else item
            if request is not None:
                size = len(messages.transactions_of(request))
            if request is None or self._session.closed:
                self._done(size, size)
            else:
                last = await self._take(request, since)
        except Exception:
            log.exception("a submission was not taken")
            self._done(size, size)
            self._session.close(1011, "internal error")
        finally:
            worker, self._worker = self._worker, None
        self._gather()
        if last is not None:
            assert worker is not None
            self._keep(worker)
            await last

    async def _take(self, request: Relay | Broadcast, since: float) -> Coroutine[Any, Any, None]:
        """Take a submission; what is left is to finish it."""
        subscribed: dict[bytes, str | Reason] = {}
        origin, announce = self._origin(request, since), self._announce(request, subscribed)
        with origin.trace or UNTRACED:
            transactions = messages.transactions_of(request)
            batch = await self._shared.submitter.take(origin, transactions, announce, partial(self._given_up, since))
        return self._finish(request, batch, subscribed, since)

    def _origin(self, request: Relay | Broadcast, since: float) -> Origin:
        """What a submission asks for, and for whom."""
        try:
            person = self._shared.submitter.person_of(self._session.authorization)
        except Refused:  # its key was taken away since it was admitted
            person = ""
        action, tracer, waited = messages.action_of(request), self._shared.tracer, self._shared.clock() - since
        trace = tracer.begin(action, request.traceparents, waited=waited, sample=True) if tracer.on else None
        return Origin(action, self._session.client, person, trace=trace)

    def _announce(self, request: Relay | Broadcast, subscribed: dict[bytes, str | Reason]) -> Announce | None:
        """Whom to tell of what is accepted."""
        return partial(self._auto_subscribe, into=subscribed) if request.auto_subscribe else None

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task that finishes a submission until it has: the event loop alone does not."""
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _finish(
        self, request: Relay | Broadcast, batch: Batch, subscribed: dict[bytes, str | Reason], since: float
    ) -> None:
        trace = batch.origin.trace
        try:
            with trace or UNTRACED:
                results = await self._shared.submitter.finish(batch)
        except Exception:
            log.exception("a submission was not finished")
            self._session.close(1011, "internal error")
            return
        finally:
            self._done(len(batch.results), batch.unserved)
        self._answer(request, batch, results, subscribed, since)
        if trace is not None:
            trace.end(told_of(results))

    def _answer(
        self,
        request: Relay | Broadcast,
        batch: Batch,
        results: list[Result],
        subscribed: dict[bytes, str | Reason],
        since: float,
    ) -> None:
        self._shared.judged(self._session.client, results, since)
        refused = [result for result in results if isinstance(result, Reason)]
        for reason in refused:
            self._shared.count(reason)
        if len(refused) < len(results):
            self._shared.gathering.accepted(len(results))
        reply = submission_reply(batch.origin.kind, results, request.request_id, subscribed)
        self._session.answer(reply)

    def _given_up(self, since: float) -> Reason | None:
        """Why a submission that came at this time is worth no work any more, if so."""
        if self._session.closed:
            return GONE
        now = self._shared.clock()
        owed = self._shared.submissions.owes(self._session.client, now)
        if owed:
            return reasons.RATE_LIMIT.but("too many wrong signatures from this address", milliseconds(owed))
        return overloaded(now - since) if now - since > self._shared.settings.max_wait else None

    def _done(self, size: int, unserved: int) -> None:
        """A submission of so many transactions is answered, `unserved` of them without work."""
        self._shared.submitter.admission.leave(self._session.client, size, unserved)
        self._under_way -= 1
        self._shared.under_way -= 1

    def _auto_subscribe(self, entry: Entry, into: dict[bytes, str | Reason]) -> None:
        """Subscribe to the fate of an accepted transaction; its result says why not, where there is no room."""
        if self._session.closed:
            return
        tx_hash = entry.chain_hash or entry.client_hash
        topic = TxStatusTopic(tx_hash)
        try:
            self._session.subscribe(topic)
            into[tx_hash] = topics.text_of(topic)
        except Refused as refusal:
            into[tx_hash] = refusal.reason
