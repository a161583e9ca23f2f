"""The pool document for other machines: one fetch of the upstream is enough for all of them.

They name this as their `pools_url`. Who has the present document already is held until the upstream has been seen
again: so its market is as new, and known to be as fresh, as this one's.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from millrace.aggregator.feed import AGE, BLOCK, ID, WAITS, Feed
from millrace.runtime.http import error_response

MOST_WAIT = 60.0
"""Seconds that anybody is held."""
_WAIT = re.compile(r"wait=([0-9]{1,3}(?:\.[0-9]{1,3})?)")


def document_handler(feed: Feed[Any]) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that serves the document of the present snapshot, with its id as entity tag."""

    async def document(request: web.Request) -> web.Response:
        if feed.snapshot is None:
            return error_response("service unavailable", 503, {"Retry-After": "1"})
        wanted = _WAIT.search(request.headers.get("Prefer", ""))
        known = {tag.value for tag in request.if_none_match or ()}  # weak ones, too: who packs a body makes them so
        waits = {WAITS: "wait"} if wanted else {}
        if wanted and feed.snapshot.id in known:
            try:
                async with asyncio.timeout(min(MOST_WAIT, float(wanted[1]))):
                    await feed.wait_news()
            except TimeoutError:
                pass  # the age says that there is none
        snapshot = feed.snapshot
        headers = {AGE: f"{snapshot.age(time.monotonic()):.3f}", ID: snapshot.id, "ETag": f'"{snapshot.id}"', **waits}
        if snapshot.id in known:
            return web.Response(status=304, headers=headers)
        headers[BLOCK] = str(snapshot.document.block.nonce)
        return web.Response(body=snapshot.data, headers={**headers, "Content-Type": "application/json"})

    return document
