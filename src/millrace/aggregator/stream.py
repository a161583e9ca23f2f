"""Quotes pushed over server-sent events: whenever the answer has changed, the latest only.

A question that many streams ask is answered once per snapshot. Answers computed on the loop take turns with other
requests; those computed in the threads for long questions delay no other stream. What they take is taken off the share
of the client whose stream asks first. The id of an event is a digest of what it says apart from the snapshot: whoever
comes back with it (`Last-Event-ID`) and would be told the same is told nothing. A market that becomes too old is told
as an error, and who was refused or cut short for want of time is answered again with the next sign of life; who asked
with a referral, as soon as its fee is another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from aiohttp import web

from millrace.aggregator import errors
from millrace.aggregator.answering import Answer, Answering, Lane
from millrace.aggregator.errors import ApiError, Busy, OverShare
from millrace.aggregator.feed import Feed
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import SnapshotInfo, encode
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.runtime.http import origin_headers

KEEP_ALIVE_SECONDS = 15.0
WRITE_SECONDS = 10.0


ANY_SNAPSHOT = SnapshotInfo(id="", block_nonce=0, timestamp=0)


class Event(NamedTuple):
    """An event: its id, the same for all that say the same, and its bytes."""

    id: str
    data: bytes
    is_for_all: bool
    """Whether it says the same to whoever asks; else it was refused or cut short for want of one client's time."""


class _Event(NamedTuple):
    """An event under way, or sent, and whose time it takes."""

    client: str
    answer: asyncio.Task[Event]


def _quoted(answer: Answer) -> Event:
    """A quote as it is sent."""
    said = encode(msgspec.structs.replace(answer.body, snapshot=ANY_SNAPSHOT))
    return _event(b"quote", said, encode(answer.body), not answer.by_share)


def _failed(error: ApiError) -> Event:
    body = encode({"error": error.text})
    return _event(b"error", body, body, not isinstance(error, Busy))


def _event(kind: bytes, said: bytes, body: bytes, is_for_all: bool = True) -> Event:
    name = blake2b(kind + said, digest_size=8).hexdigest()
    return Event(name, b"event: %s\nid: %s\ndata: %s\n\n" % (kind, name.encode(), body), is_for_all)


class Streams:
    """Open quote streams, bounded in number. A reader that takes nothing for 10 s is disconnected.

    `note` is told of the referral of whatever is answered, and of the wrapped token.
    """

    def __init__(
        self,
        settings: AggregatorSettings,
        feed: Feed[Snapshot],
        answering: Answering,
        note: Callable[[int, str], None],
    ) -> None:
        self._settings = settings
        self._feed = feed
        self._answering = answering
        self._note = note
        self._open: dict[asyncio.Task[object], tuple[web.Request, str]] = {}
        """By its task: what a stream was asked with, and by whom."""
        self._by_client: Counter[str] = Counter()
        self._turn = asyncio.Lock()
        self._events: dict[QuoteRequest, _Event] = {}
        self._events_of = ""
        """The snapshot that `_events` belong to; there are at most as many as there may be streams. A market may stand
        still for long, and streams that have left leave their events."""
        self._waits: dict[asyncio.Timeout, QuoteRequest] = {}
        """Streams that have said all there was to say, by when they look again."""

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, request: web.Request, question: QuoteRequest, client: str) -> web.StreamResponse:
        """Send `quote` (or `error`) events until the client leaves or the service stops, and comments in between."""
        self._make_room(client)
        kind = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers={**kind, **origin_headers(request)})
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = request, client
        self._by_client[client] += 1
        try:
            await response.prepare(request)
            await self._push(response, question, client, request.headers.get("Last-Event-ID", ""))
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._forget(task)
        return response

    def _make_room(self, client: str) -> None:
        """Raises `ApiError` where there is none for another stream.

        Who has left is noticed when there is something to write. Who asks anew with every key that is pressed would
        be refused until then, so at a bound it is looked for.
        """
        for _ in range(2):
            too_many_of_it = self._by_client[client] >= self._settings.max_streams_per_client
            if not too_many_of_it and len(self._open) < self._settings.max_streams:
                return
            self._end_left()
        if too_many_of_it:
            raise OverShare("service unavailable: too many streams of this client", 503, retry_after=5.0)
        raise ApiError("service unavailable: too many streams", 503, retry_after=5.0)

    def _end_left(self) -> None:
        """End the streams whose connection is no more."""
        for task, (request, _) in list(self._open.items()):
            if request.transport is None or request.transport.is_closing():
                task.cancel()
                self._forget(task)

    def _forget(self, task: asyncio.Task[object]) -> None:
        found = self._open.pop(task, None)
        if found is None:
            return
        _, client = found
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]

    async def _push(self, response: web.StreamResponse, question: QuoteRequest, client: str, said: str) -> None:
        """`said`: the id of the event that the client has."""
        known, is_for_all, fees = "", True, (0, 0)
        while True:
            snapshot = None
            if not known or fees == self._fees(question):
                snapshot = await self._other(known, question)
            present = self._feed.usable()
            event = None
            if present is None:
                known, event = "", _failed(errors.unavailable())
            elif snapshot is not None or not is_for_all or fees != self._fees(question):
                # Another market, some time left by now for whoever had none, or another fee.
                fees = self._fees(question)
                known, event = present.id, await self.event(present, question, client)
            if event is None or (event.id == said and not known):
                sent = b": keep-alive\n\n"
            else:
                sent = b": unchanged in %s\n\n" % known.encode() if event.id == said else event.data
            if event is not None:
                said, is_for_all = event.id, event.is_for_all
            async with asyncio.timeout(WRITE_SECONDS):
                await response.write(sent)

    def _fees(self, question: QuoteRequest) -> tuple[int, int]:
        """What is taken off the answers to a question at present."""
        return self._settings.referral_bps(question.referral_id)

    async def _other(self, known: str, question: QuoteRequest) -> Snapshot | None:
        """A market other than `known`; None when it is time for a sign of life, when that one has become too old, or
        when the fees of a question are others."""
        left = self._feed.usable_for()
        wait = asyncio.timeout(min(KEEP_ALIVE_SECONDS, left) if left > 0.0 else KEEP_ALIVE_SECONDS)
        try:
            async with wait:
                self._waits[wait] = question
                return await self._feed.wait_usable(known)
        except TimeoutError:
            return None
        finally:
            self._waits.pop(wait, None)

    def adopt(self, settings: AggregatorSettings) -> None:
        """Take the fees of referrals from these settings: who asked with one whose fee is another now is answered
        again, and at once."""
        before, self._settings = self._settings, settings

        def is_other(question: QuoteRequest) -> bool:
            return before.referral_bps(question.referral_id) != self._fees(question)

        for question in filter(is_other, list(self._events)):
            del self._events[question]
        for wait, question in self._waits.items():
            if is_other(question) and not wait.expired():
                wait.reschedule(asyncio.get_running_loop().time())

    async def event(self, snapshot: Snapshot, question: QuoteRequest, client: str) -> Event:
        """The event that answers a question on a snapshot; the same bytes for everybody who asks it.

        Where the share of the client who asked first is used up, the next one asks; so does who would get what was cut
        short for another.
        """
        if self._events_of != snapshot.id:
            self._events_of, self._events = snapshot.id, {}
        events = self._events
        while True:
            event = events.get(question)
            if event is None:
                while len(events) >= self._settings.max_streams:
                    del events[next(iter(events))]
                event = events[question] = _Event(
                    client, asyncio.create_task(self._answered(snapshot, question, client))
                )
            sent = await asyncio.shield(event.answer)
            if sent.is_for_all:
                return sent
            if events.get(question) is event:
                del events[question]
            if event.client == client:
                return sent

    async def _answered(self, snapshot: Snapshot, question: QuoteRequest, client: str) -> Event:
        self._note(question.referral_id, snapshot.wrapped)
        try:
            asked = await self._answering.prepare(snapshot, question, client)
            if asked.lane is not Lane.LOOP:
                return _quoted(await self._answering.answer(asked))
            async with self._turn:
                await asyncio.sleep(0)
                return _quoted(await self._answering.answer(asked))
        except ApiError as error:
            return _failed(error)

    def close(self) -> None:
        """End every stream."""
        for task in list(self._open):
            task.cancel()
