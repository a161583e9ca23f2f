"""Streams: no question waits for another one's slow answer, and a question many ask is answered once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from millrace.aggregator import answering as module
from millrace.aggregator import errors, stream
from millrace.aggregator.answering import Answer, Lane, Prepared
from millrace.aggregator.api import Api
from millrace.aggregator.feed import Feed
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.service import clients_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.shares import MOST_SAVED
from millrace.aggregator.snapshot import Builder, Snapshot, build
from millrace.chain.address import encode as encode_address
from millrace.dex.document import encode
from millrace.runtime.http import HttpServer
from synthetic import make_market

MARKET = make_market(40, seed=19)
QUICK = {"from": "EGLD", "to": "USDC-c76f1f", "amountIn": "1000000000000000000"}
SLOW = {"from": "EGLD", "to": "USDC-c76f1f", "amountOut": "1000000"}


class Service:
    """The REST interface over one snapshot, without an upstream."""

    def __init__(self, api: Api, feed: Feed[Snapshot], base: str, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.feed = feed
        self.settings = AggregatorSettings()
        self.base = base
        self.session = session

    async def first_event(self, query: dict[str, str]) -> bytes:
        async with self.session.get(self.base + "/api/v1/quote/stream", params=query) as answer:
            return await asyncio.wait_for(answer.content.readuntil(b"\n\n"), 20)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    settings = AggregatorSettings()
    feed: Feed[Snapshot] = Feed(settings, Builder())
    feed.snapshot = build(encode(MARKET), time.monotonic())
    api = Api(settings, feed, clients_of(settings))
    server = HttpServer(api.application())
    port = await server.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        yield Service(api, feed, f"http://127.0.0.1:{port}", session)
    api.close()
    await server.stop()
    feed.close()


async def test_a_slow_stream_delays_no_other(service: Service) -> None:
    """While a stream's long question waits for the thread, another stream's quick one is answered."""
    gate = threading.Event()
    busy = asyncio.ensure_future(service.api.answering.run(lambda _: gate.wait(30), "", Lane.QUICK))
    slow = asyncio.ensure_future(service.first_event(SLOW))
    while service.api.answering.waiting < 2:
        await asyncio.sleep(0)
    try:
        assert (await service.first_event(QUICK)).startswith(b"event: quote")
        assert not slow.done()
    finally:
        gate.set()
    await busy
    assert b"event:" in await slow


async def test_who_asks_anew_and_anew_is_not_refused_for_streams_that_it_left(service: Service) -> None:
    """A wallet opens a stream for each key that is pressed: only those that it still reads count."""
    most = AggregatorSettings().max_streams_per_client
    for _ in range(3 * most):
        assert (await service.first_event(QUICK)).startswith(b"event: quote")
    reading = [await service.session.get(service.base + "/api/v1/quote/stream", params=QUICK) for _ in range(most)]
    refused = await service.session.get(service.base + "/api/v1/quote/stream", params=QUICK)
    assert [answer.status for answer in (*reading, refused)] == [200] * most + [503]
    assert len(service.api.streams) == most
    for answer in (*reading, refused):
        answer.close()


async def test_a_question_of_many_streams_is_answered_once(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams with the same question get the same bytes, computed once per snapshot."""
    asked: list[object] = []
    answer = module.quote.answer
    monkeypatch.setattr(module.quote, "answer", lambda *a, **k: (asked.append(a), answer(*a, **k))[1])
    events = await asyncio.gather(*(service.first_event(QUICK) for _ in range(5)))
    assert len(set(events)) == len(asked) == 1


async def test_what_an_event_takes_is_taken_off_who_asks_first(service: Service) -> None:
    """A long question is computed once per snapshot however many streams ask it, in the time of the first."""
    snapshot, shares = service.api.usable(), service.api.answering.shares
    question = QuoteRequest(token_in="EGLD", token_out="USDC-c76f1f", amount_out=1_000_000)
    events = [await service.api.streams.event(snapshot, question, client) for client in "ab"]
    first = shares._clients.peek("a")  # what is left grows again meanwhile
    assert first is not None
    assert first.spent > 0.0
    assert shares.left("b") == MOST_SAVED
    assert events[0] == events[1]
    assert events[0].data.startswith(b"event: quote")


async def test_events_of_streams_that_left_are_bounded(service: Service) -> None:
    """On a market that stands still, too: whoever asks anew and anew pushes out the oldest events."""
    settings = AggregatorSettings(max_streams=8)
    streams = stream.Streams(settings, service.feed, service.api.answering, lambda *_: None)
    snapshot = service.api.usable()
    for number in range(20):
        question = QuoteRequest(token_in="EGLD", token_out="USDC-c76f1f", amount_in=10**18 + number)
        assert (await streams.event(snapshot, question, "a")).data.startswith(b"event: quote")
        assert len(streams._events) == min(number + 1, 8)
        assert question in streams._events


async def test_a_client_without_time_costs_others_no_event(service: Service) -> None:
    """Whose share is used up gets an error event; who asks the same at the same time gets the quote."""
    snapshot, shares = service.api.usable(), service.api.answering.shares
    question = QuoteRequest(token_in="EGLD", token_out="USDC-c76f1f", amount_out=1_000_000)
    shares.spend("over", 3.0)
    over, other = await asyncio.gather(
        service.api.streams.event(snapshot, question, "over"), service.api.streams.event(snapshot, question, "other")
    )
    assert over.data.startswith(b"event: error")
    assert b"service unavailable" in over.data
    assert other.data.startswith(b"event: quote")


async def test_what_was_cut_short_is_for_its_client_alone(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks the same with time left gets the whole answer; what was cut says so."""
    answering = service.api.answering
    answer = answering.answer

    async def cut_for_a(asked: Prepared) -> Answer:
        found = await answer(asked)
        if asked.client != "a":
            return found
        return Answer(msgspec.structs.replace(found.body, search_cut=True), False, by_share=True)

    monkeypatch.setattr(answering, "answer", cut_for_a)
    snapshot, question = service.api.usable(), QuoteRequest(token_in="EGLD", token_out="USDC-c76f1f", amount_in=10**18)
    first = [await service.api.streams.event(snapshot, question, client) for client in "aba"]
    assert [b'"searchCut":true' in event.data for event in first] == [True, False, False]


async def test_what_the_service_cut_short_is_for_all(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline that is the same for everybody is no reason to compute the same again."""
    answering = service.api.answering
    answer = answering.answer
    asked_by: list[str] = []

    async def cut(asked: Prepared) -> Answer:
        asked_by.append(asked.client)
        return Answer((await answer(asked)).body, False)

    monkeypatch.setattr(answering, "answer", cut)
    snapshot, question = service.api.usable(), QuoteRequest(token_in="EGLD", token_out="USDC-c76f1f", amount_in=10**18)
    events = [await service.api.streams.event(snapshot, question, client) for client in "abc"]
    assert len(set(events)) == 1 and asked_by == ["a"]


def moved(number: int, nonce: int) -> Snapshot:
    """The market at another block, its pool `number` with other reserves; -1: none."""
    pools = tuple(
        msgspec.structs.replace(pool, reserves=tuple(reserve // 2 for reserve in pool.reserves))
        if k == number
        else pool
        for k, pool in enumerate(MARKET.pools)
    )
    block = msgspec.structs.replace(MARKET.block, nonce=nonce)
    return build(encode(msgspec.structs.replace(MARKET, pools=pools, block=block)), time.monotonic())


async def next_events(answer: aiohttp.ClientResponse, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [await answer.content.readuntil(b"\n\n") for _ in range(count)]


async def next_said(answer: aiohttp.ClientResponse) -> bytes:
    """The next event that is more than a sign of life."""
    async with asyncio.timeout(20):
        while (event := await answer.content.readuntil(b"\n\n")) == b": keep-alive\n\n":
            pass
        return event


def id_of(event: bytes) -> str:
    (line,) = [line for line in event.decode().split("\n") if line.startswith("id: ")]
    return line.removeprefix("id: ")


async def test_an_answer_that_is_the_same_is_not_sent_again(service: Service) -> None:
    """A new snapshot without another answer is a comment; another answer is an event under another id."""
    feed = service.feed
    async with service.session.get(service.base + "/api/v1/quote/stream", params=QUICK) as answer:
        (first,) = await next_events(answer, 1)
        used = {(hop["address"], hop.get("pairId")) for path in quote_of(first)["paths"] for hop in path["swaps"]}
        names = [(encode_address(pool.address), getattr(pool, "pair_id", None)) for pool in MARKET.pools]
        number = next(k for k, name in enumerate(names) if name in used)
        await feed.swap_in(moved(-1, 7))
        (same,) = await next_events(answer, 1)
        assert feed.snapshot is not None
        assert same == f": unchanged in {feed.snapshot.id}\n\n".encode()
        await feed.swap_in(moved(number, 8))
        (other,) = await next_events(answer, 1)
    assert other.startswith(b"event: quote")
    assert id_of(other) != id_of(first)
    assert quote_of(other)["snapshot"]["blockNonce"] == 8


def quote_of(event: bytes) -> dict[str, Any]:
    (line,) = [line for line in event.split(b"\n") if line.startswith(b"data: ")]
    body: dict[str, Any] = msgspec.json.decode(line.removeprefix(b"data: "))
    return body


async def test_a_stream_does_not_begin_with_an_old_market(service: Service) -> None:
    """Who allows an age is refused a market that is older, in a stream as in a quote."""
    assert service.feed.snapshot is not None
    service.feed.snapshot.received -= 30.0
    url = service.base + "/api/v1/quote/stream"
    async with service.session.get(url, params=QUICK | {"maxAgeMs": "29000"}) as answer:
        assert answer.status == 503
        assert "more than maxAgeMs 29000" in (await answer.json())["error"]
    assert await service.first_event(QUICK | {"maxAgeMs": "600000"})


async def test_who_comes_back_is_told_what_has_changed_since(service: Service) -> None:
    """With the id of the event it has a client gets a comment while the answer is that, else the answer."""
    (first,) = [await service.first_event(QUICK)]
    for known, expected in ((id_of(first), b": unchanged"), ("0" * 16, b"event: quote"), ("x" * 99, b"event: quote")):
        headers = {"Last-Event-ID": known}
        url = service.base + "/api/v1/quote/stream"
        async with service.session.get(url, params=QUICK, headers=headers) as answer:
            (event,) = await next_events(answer, 1)
        assert event.startswith(expected)


@pytest.mark.parametrize("returns", [True, False])
async def test_a_market_that_becomes_too_old_is_told(
    service: Service, monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    """What `/api/v1/quote` would say, once, and again the quote as soon as the market has been seen, changed or not."""
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.05)
    feed = service.feed
    assert feed.snapshot is not None
    async with service.session.get(service.base + "/api/v1/quote/stream", params=QUICK) as answer:
        first = await next_said(answer)
        assert first.startswith(b"event: quote")
        feed.snapshot.received = time.monotonic() - service.settings.max_snapshot_age_seconds + 0.2
        await feed.confirm(0.0)
        event = await next_said(answer)
        assert event.startswith(b"event: error")
        assert b'{"error":"service unavailable"}' in event
        assert await next_events(answer, 2) == [b": keep-alive\n\n"] * 2
        if returns:
            await feed.confirm(time.monotonic())
        else:
            await feed.swap_in(moved(-1, 7))
        event = await next_said(answer)
        assert (id_of(event), event.startswith(b"event: quote")) == (id_of(first), True)


@pytest.mark.parametrize("cut", [True, False])
async def test_who_had_no_time_is_answered_with_the_next_sign_of_life(
    service: Service, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """On a market that stands still, too: refused or cut short, then the whole answer, and after it nothing new."""
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.05)
    answering, asked_by = service.api.answering, []
    answer_of = answering.answer

    async def late(asked: Prepared) -> Answer:
        asked_by.append(asked.client)
        found = await answer_of(asked)
        if len(asked_by) > 2:
            return found
        if cut:
            return Answer(msgspec.structs.replace(found.body, search_cut=True), False, by_share=True)
        raise errors.share_used_up(1.0)

    monkeypatch.setattr(answering, "answer", late)
    async with service.session.get(service.base + "/api/v1/quote/stream", params=QUICK) as answer:
        first, same, last, *after = await next_events(answer, 5)
    assert first.startswith(b"event: quote" if cut else b"event: error")
    assert (b"searchCut" in first) is cut
    assert same.startswith(b": unchanged in ")
    assert last.startswith(b"event: quote") and b"searchCut" not in last
    assert after == [b": keep-alive\n\n"] * 2
    assert len(asked_by) == 3
