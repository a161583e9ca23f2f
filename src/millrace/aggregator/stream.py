"""Quotes pushed over server-sent events: one per snapshot, the latest only.

A question that many streams ask is answered once per snapshot. Answers computed on the loop take turns with other
requests; those computed in the thread for long questions delay no other stream.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
from aiohttp import web

from millrace.aggregator.answering import NOBODY, Answering
from millrace.aggregator.errors import ApiError
from millrace.aggregator.feed import Feed
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot

KEEP_ALIVE_SECONDS = 15.0
WRITE_SECONDS = 10.0


class Streams:
    """Open quote streams, bounded in number. A reader that takes nothing for 10 s is disconnected."""

    def __init__(self, settings: AggregatorSettings, feed: Feed, answering: Answering) -> None:
        self._settings = settings
        self._feed = feed
        self._answering = answering
        self._open: set[asyncio.Task[object]] = set()
        self._by_client: Counter[str] = Counter()
        self._turn = asyncio.Lock()
        self._events: dict[QuoteRequest, asyncio.Task[bytes]] = {}
        self._events_of = ""
        """The snapshot that `_events` belong to; there are at most as many as streams."""

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, request: web.Request, question: QuoteRequest, client: str) -> web.StreamResponse:
        """Send `quote` (or `error`) events until the client (its address) leaves or the service stops."""
        if self._by_client[client] >= self._settings.max_streams_per_client:
            raise ApiError("rate limit exceeded: too many streams", 429, retry_after=5.0)
        if len(self._open) >= self._settings.max_streams:
            raise ApiError("service unavailable: too many streams", 503, retry_after=5.0)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self._by_client[client] += 1
        try:
            await response.prepare(request)
            await self._push(response, question, client)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]
        return response

    async def _push(self, response: web.StreamResponse, question: QuoteRequest, client: str) -> None:
        known = ""
        while True:
            try:
                snapshot = await asyncio.wait_for(self._feed.wait_change(known), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                event = b": keep-alive\n\n"
            else:
                known = snapshot.id
                event = await asyncio.shield(self._event(snapshot, question, client))
            await asyncio.wait_for(response.write(event), WRITE_SECONDS)

    def _event(self, snapshot: Snapshot, question: QuoteRequest, client: str) -> asyncio.Task[bytes]:
        """The event that answers a question on a snapshot; the same bytes for everybody who asks it."""
        if self._events_of != snapshot.id:
            self._events_of, self._events = snapshot.id, {}
        event = self._events.get(question)
        if event is None:
            event = self._events[question] = asyncio.create_task(self._answered(snapshot, question, client))
        return event

    async def _answered(self, snapshot: Snapshot, question: QuoteRequest, client: str) -> bytes:
        kind = b"quote"
        try:
            asked = await self._answering.prepare(snapshot, question, NOBODY._replace(client=client))
            if asked.long:
                body = msgspec.json.encode(await self._answering.answer(asked))
            else:
                async with self._turn:
                    await asyncio.sleep(0)
                    body = msgspec.json.encode(await self._answering.answer(asked))
        except ApiError as error:
            kind, body = b"error", msgspec.json.encode({"error": error.text})
        return b"event: %s\nid: %s\ndata: %s\n\n" % (kind, snapshot.id.encode(), body)

    def close(self) -> None:
        """End every stream."""
        for task in list(self._open):
            task.cancel()
