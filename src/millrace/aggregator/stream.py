"""Quotes pushed over server-sent events: one per snapshot, the latest only."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from millrace.aggregator import quote
from millrace.aggregator.errors import ApiError
from millrace.aggregator.feed import Feed
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.settings import AggregatorSettings

KEEP_ALIVE_SECONDS = 15.0
WRITE_SECONDS = 10.0


class Streams:
    """Open quote streams, bounded in number. A reader that takes nothing for 10 s is disconnected."""

    def __init__(self, settings: AggregatorSettings, feed: Feed) -> None:
        self._settings = settings
        self._feed = feed
        self._open: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, request: web.Request, question: QuoteRequest) -> web.StreamResponse:
        """Send `quote` (or `error`) events until the client leaves or the service stops."""
        if len(self._open) >= self._settings.max_streams:
            raise ApiError("service unavailable: too many streams", 503, retry_after=5.0)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await response.prepare(request)
            await self._push(response, question)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
        return response

    async def _push(self, response: web.StreamResponse, question: QuoteRequest) -> None:
        known = ""
        while True:
            try:
                snapshot = await asyncio.wait_for(self._feed.wait_change(known), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                event = b": keep-alive\n\n"
            else:
                known = snapshot.id
                chosen = quote.filter_of(question)
                if not snapshot.has(chosen):
                    snapshot.keep(chosen, await asyncio.to_thread(snapshot.make, chosen))
                try:
                    body = msgspec.json.encode(quote.answer(snapshot, question, self._settings))
                    event = b"event: quote\nid: %s\ndata: %s\n\n" % (known.encode(), body)
                except ApiError as error:
                    body = msgspec.json.encode({"error": error.text})
                    event = b"event: error\nid: %s\ndata: %s\n\n" % (known.encode(), body)
            await asyncio.wait_for(response.write(event), WRITE_SECONDS)

    def close(self) -> None:
        """End every stream."""
        for task in list(self._open):
            task.cancel()
