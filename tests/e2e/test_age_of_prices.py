"""How old prices are is told all the way from the collector to a quote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from millrace.aggregator.feed import Feed
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder
from millrace.collector.app import Served
from millrace.collector.collect import Collected
from millrace.collector.settings import CollectorSettings
from millrace.dex.document import encode
from servers.aggregator_service import MARKET, end, start

QUESTION = {"from": "EGLD", "to": "USDC-c76f1f", "amountIn": str(10**18)}


class Rounds:
    """Stands for a collector whose gateway tells the same again and again."""

    async def collect(self) -> Any:
        return Collected(MARKET, encode(MARKET), [], "digest")


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def collected() -> AsyncIterator[tuple[Clock, str]]:
    """The clock of a collector that has made one document, and where it serves it."""
    clock = Clock()
    served = Served(CollectorSettings(), clock)
    await served.round(Rounds())  # type: ignore[arg-type]
    server = TestServer(served.application())
    await server.start_server()
    yield clock, str(server.make_url("/pools"))
    await server.close()


@pytest.mark.parametrize("known", [False, True])
async def test_a_market_is_as_old_as_its_document(collected: tuple[Clock, str], known: bool) -> None:
    """The age counts from the collector's questions, whether the document is sent or called the same, rounded up."""
    clock, url = collected
    feed = Feed(AggregatorSettings(pools_url=url), Builder(), clock=clock)
    try:
        async with aiohttp.ClientSession() as session:
            if known:
                await feed.refresh(session)
                assert feed.age() == 0.0
            clock.now += 49.5
            await feed.refresh(session)
            assert (feed.age(), feed.last_error) == (49.5 if known else 50.0, None)
            async with session.get(url, headers={"If-None-Match": '"digest"'} if known else {}) as answer:
                assert (answer.status, answer.headers["Age"]) == (304 if known else 200, "50")
            clock.now += 11.0
            assert feed.usable() is None, "past the limit, though the collector was asked within it"
    finally:
        feed.close()


async def test_a_quote_from_old_prices_is_refused_to_who_wants_newer_ones(collected: tuple[Clock, str]) -> None:
    """The gateway stood still for 50 s before the aggregator asked: `maxAgeMs` and `X-Snapshot-Age` count them."""
    clock, url = collected
    clock.now += 50.0
    running, *rest = await start(pools_url=url, max_snapshot_age_seconds=3600.0)
    try:
        await running.until("/health", 200)
        status, body = await running.get("/api/v1/quote", **QUESTION, maxAgeMs="49000")
        assert (status, "more than maxAgeMs 49000" in body["error"]) == (503, True)
        async with running.session.get(
            running.base + "/api/v1/quote", params=QUESTION | {"maxAgeMs": "90000"}
        ) as answer:
            assert answer.status == 200
            assert float(answer.headers["X-Snapshot-Age"]) >= 50.0
    finally:
        await end(running, *rest)
