"""The aggregator's REST interface over one snapshot, in this process and without an upstream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from millrace.aggregator.api import Api
from millrace.aggregator.feed import Feed
from millrace.aggregator.service import clients_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder, Snapshot, build
from millrace.dex.document import PoolDocument, encode
from millrace.runtime.http import HttpServer


class Alone:
    """It, and what it is made of."""

    def __init__(self, api: Api, feed: Feed[Snapshot], base: str, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.feed = feed
        self.base = base
        self.session = session

    async def get(self, path: str, **query: str) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        async with self.session.get(self.base + path, params=query) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def alone(market: PoolDocument) -> AsyncIterator[Alone]:
    """One that serves this market."""
    settings = AggregatorSettings()
    feed: Feed[Snapshot] = Feed(settings, Builder())
    feed.snapshot = build(encode(market), time.monotonic())
    api = Api(settings, feed, clients_of(settings))
    server = HttpServer(api.application())
    port = await server.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        yield Alone(api, feed, f"http://127.0.0.1:{port}", session)
    api.close()
    await server.stop()
    feed.close()
