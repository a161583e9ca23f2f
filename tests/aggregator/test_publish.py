"""One fetch for many machines: an aggregator hands its document on, and those who have it from there are its equals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
from aiohttp import web

from millrace.aggregator.feed import Feed
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder, Snapshot
from millrace.dex.document import Block, encode
from millrace.runtime.http import HttpServer
from servers.aggregator_service import MARKET, Service, end, start
from synthetic import WRAPPED

QUOTE = {"from": WRAPPED, "to": "USDC-c76f1f", "amountIn": "1000000000000000000"}


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Service, Service]]:
    """One that fetches, and one on another machine that has the market from it."""
    first = await start()
    await first[0].until("/health", 200)
    second = await start(pools_url=first[0].operators + "/pools")
    await second[0].until("/health", 200)
    yield first[0], second[0]
    await end(*second)
    await end(*first)


async def quoted(service: Service) -> tuple[bytes, str]:
    async with service.session.get(service.base + "/api/v1/quote", params=QUOTE) as answer:
        assert answer.status == 200
        return await answer.read(), answer.headers["X-Snapshot-Id"]


async def test_machines_answer_with_the_same_bytes(pair: tuple[Service, Service]) -> None:
    """Under one snapshot id, also of the next market, which the upstream is asked for by one of them alone."""
    first, second = pair
    assert await quoted(first) == await quoted(second)
    assert second.upstream.served == 0
    first.upstream.body = encode(msgspec.structs.replace(MARKET, block=Block(12, 12, 12)))
    _, old = await quoted(second)
    async with asyncio.timeout(20):
        while (await quoted(second))[1] == old:
            await asyncio.sleep(0.01)
    assert await quoted(first) == await quoted(second)


async def test_a_shrunk_market_is_judged_where_it_is_fetched(pair: tuple[Service, Service]) -> None:
    """What one holds back the other never sees; what it has believed the other takes at once."""
    first, second = pair
    first.upstream.body = encode(msgspec.structs.replace(MARKET, pools=MARKET.pools[:20]))
    async with asyncio.timeout(20):
        while (await second.get("/health"))[1]["pools"] != 20:
            await asyncio.sleep(0.01)
    async with second.session.get(second.operators + "/metrics") as answer:
        text = await answer.text()
    assert "aggregator_documents_held_back_total 0.0" in text
    assert "aggregator_losses_taken_total 0.0" in text
    async with first.session.get(first.operators + "/metrics") as answer:
        assert "aggregator_losses_taken_total 1.0" in await answer.text()


async def test_the_market_is_as_old_as_where_it_comes_from(pair: tuple[Service, Service]) -> None:
    """A source whose own source is away passes nothing off as fresh."""
    first, second = pair
    first.upstream.status = 500
    async with asyncio.timeout(20):
        while (await second.get("/health"))[1]["snapshotAgeSeconds"] < 0.5:
            await asyncio.sleep(0.01)
    theirs = (await first.get("/health"))[1]["snapshotAgeSeconds"]
    ours = (await second.get("/health"))[1]["snapshotAgeSeconds"]
    assert ours >= 0.5
    assert ours == pytest.approx(theirs, abs=0.5)


async def test_who_has_the_document_is_told_when_it_was_seen_again(pair: tuple[Service, Service]) -> None:
    """The whole document goes to who has none or another; who has it waits for the next look at the upstream."""
    first, _ = pair
    url = first.operators + "/pools"
    async with first.session.get(url) as answer:
        assert await answer.read() == first.upstream.body
        tag = answer.headers["ETag"]
        assert answer.headers["X-Snapshot-Block"] == str(MARKET.block.nonce)
        assert float(answer.headers["X-Snapshot-Age"]) >= 0.0
    for known in (tag, "W/" + tag, f'"other", {tag}'):  # a balancer that packs makes it weak
        async with first.session.get(url, headers={"If-None-Match": known}) as answer:
            assert (answer.status, "Preference-Applied" in answer.headers) == (304, False)
    served = first.upstream.served
    for _ in range(2):  # the first look may have been under way already
        async with first.session.get(url, headers={"If-None-Match": tag, "Prefer": "wait=20"}) as answer:
            assert (answer.status, answer.headers["Preference-Applied"]) == (304, "wait")
    assert first.upstream.served > served
    async with first.session.get(url, headers={"If-None-Match": '"another"', "Prefer": "wait=20"}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("age", ["-1", "nan", "inf", "yesterday"])
async def test_an_age_that_is_none_is_a_failed_refresh(age: str) -> None:
    """A document whose age cannot be told is not taken for fresh."""

    async def pools(_: web.Request) -> web.Response:
        return web.Response(body=encode(MARKET), headers={"Age": age})

    app = web.Application()
    app.router.add_get("/pools", pools)
    server = HttpServer(app)
    port = await server.start("127.0.0.1", 0)
    feed: Feed[Snapshot] = Feed(AggregatorSettings(pools_url=f"http://127.0.0.1:{port}/pools"), Builder())
    async with aiohttp.ClientSession() as session:
        await feed.refresh(session)
    assert (feed.snapshot, feed.failures) == (None, 1)
    feed.close()
    await server.stop()


async def test_nobody_goes_back_to_an_older_block() -> None:
    """Of two sources behind one address one is behind; a chain that begins anew is believed once ours is too old."""
    nonce, now = 9, 0.0

    async def pools(_: web.Request) -> web.Response:
        body = encode(msgspec.structs.replace(MARKET, block=Block(nonce, nonce, 9)))
        return web.Response(body=body, headers={"X-Snapshot-Age": "0", "X-Snapshot-Block": str(nonce)})

    app = web.Application()
    app.router.add_get("/pools", pools)
    server = HttpServer(app)
    port = await server.start("127.0.0.1", 0)
    settings = AggregatorSettings(pools_url=f"http://127.0.0.1:{port}/pools")
    feed = Feed[Snapshot](settings, Builder(), clock=lambda: now)
    async with aiohttp.ClientSession() as session:
        await feed.refresh(session)
        nonce, now = 8, 5.0
        await feed.refresh(session)
        assert feed.snapshot is not None
        assert feed.snapshot.document.block.nonce == 9
        assert feed.last_error == "the source has block 8, and had block 9 before"
        assert feed.age() == 5.0
        now = settings.max_snapshot_age_seconds + 1.0
        await feed.refresh(session)
        assert feed.snapshot.document.block.nonce == 8
    feed.close()
    await server.stop()
