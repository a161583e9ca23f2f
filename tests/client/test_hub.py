"""The hub's consumer against the notifier's own message types: resume, gaps, acknowledgements, lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.chain import outport
from millrace.chain.proto import hub_pb2, outport_pb2
from millrace_client import Event, Hub, Missed, Refused

WAIT = 20.0


class Notifier:
    """Tells a journal of events from where the consumer resumes; ends each connection after `per_connection`."""

    def __init__(self) -> None:
        self.wishes: list[hub_pb2.SubscribeEvent] = []
        self.acknowledged: list[int] = []
        self.journal = [10, 11, 15]
        self.gap: tuple[int, int] | None = None
        self.resumes_after: int | None = None
        self.uncounted = False
        self.per_connection = 100
        self.refusal = ""

    async def take(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for frame in socket:
            envelope = outport.decode_envelope(frame.data)
            if envelope.type == outport.ACK:
                self.acknowledged.append(envelope.counter)
                continue
            wish = hub_pb2.SubscribeEvent.FromString(envelope.payload)
            self.wishes.append(wish)
            reply = hub_pb2.SubscribeReply(ok=not self.refusal, reason=self.refusal, head=self.journal[-1])
            reply.journal = "5d"
            await socket.send_bytes(outport.payload_envelope("subscribe", reply.SerializeToString(), 0))
            if self.refusal:
                continue
            if self.gap is not None:
                gap = hub_pb2.Gap(first=self.gap[0], last=self.gap[1], resumes_after=self.resumes_after)
                gap.uncounted = self.uncounted
                await socket.send_bytes(outport.payload_envelope("gap", gap.SerializeToString(), 0))
            after = wish.resume_after if wish.HasField("resume_after") else 0
            for sequence in [number for number in self.journal if number > after][: self.per_connection]:
                told = outport_pb2.WsMessage(
                    withAcknowledge=True,
                    counter=sequence,
                    type=2,
                    payload=b"x%d" % sequence,
                    topic="SaveBlock",
                    marks=8,
                )
                told.marks = 8
                await socket.send_bytes(told.SerializeToString())
            if self.per_connection < 100:
                await socket.close()
        return socket


@pytest.fixture
async def hub() -> AsyncIterator[tuple[Notifier, str]]:
    """A notifier and its address."""
    notifier = Notifier()
    app = web.Application()
    app.router.add_get("/hub/ws", notifier.take)
    async with TestServer(app) as server:
        yield notifier, str(server.make_url("/hub/ws"))


async def _all(hub: Hub, count: int) -> list[Event | Missed]:
    async with asyncio.timeout(WAIT):
        return [await anext(hub) for _ in range(count)]


async def test_events_with_their_place(hub: tuple[Notifier, str]) -> None:
    """Events come with topic, payload, sequence and marks; the hub is asked with filters and place."""
    notifier, url = hub
    consumer = Hub(url, resume_after=10, level="Topics", address="erd1a", identifier="swap", topics=("", "hex:00"))
    async with consumer:
        events = await _all(consumer, 2)
    assert events == [Event("SaveBlock", b"x11", 11, 8), Event("SaveBlock", b"x15", 15, 8)]
    wish = notifier.wishes[0]
    assert (wish.event_type, wish.address, wish.identifier) == ("Topics", "erd1a", "swap")
    assert (list(wish.topics), wish.resume_after) == (["", "hex:00"], 10)
    assert consumer.last == 11  # the newest was given, and not finished


async def test_every_event_once_over_lost_connections(hub: tuple[Notifier, str]) -> None:
    """When connections end after every event, the consumer goes on behind the last that came, and has each once."""
    notifier, url = hub
    notifier.per_connection = 1
    async with Hub(url, resume_after=0) as consumer:
        events = await _all(consumer, 3)
    assert [event.sequence for event in events if isinstance(event, Event)] == [10, 11, 15]
    assert [wish.resume_after for wish in notifier.wishes[:3]] == [0, 10, 11]


async def test_the_first_place_names_the_journal(hub: tuple[Notifier, str]) -> None:
    """Who was told no event yet says of which journal the sequence is at which it began; the beginning is of any."""
    notifier, url = hub
    notifier.per_connection = 0
    for begins in (None, 0):
        notifier.wishes.clear()
        async with Hub(url, resume_after=begins), asyncio.timeout(WAIT):
            while len(notifier.wishes) < 2:
                await asyncio.sleep(0.01)
        first, again = notifier.wishes[:2]
        assert not first.resume_journal
        assert (again.resume_after, again.resume_journal) == ((15, "5d") if begins is None else (0, ""))


@pytest.mark.parametrize("uncounted", [False, True])
async def test_gaps_are_said(hub: tuple[Notifier, str], uncounted: bool) -> None:
    """What is gone comes as a `Missed` with its bounds, and how many if that is known, and counts as handled."""
    notifier, url = hub
    notifier.gap, notifier.uncounted = (3, 9), uncounted
    async with Hub(url, resume_after=2) as consumer:
        gap, first, _ = await _all(consumer, 3)
        assert isinstance(gap, Missed) and (gap.since, gap.until) == (3, 9)
        assert gap.count == (None if uncounted else 7)
        assert isinstance(first, Event) and first.sequence == 10
    assert 10 in notifier.acknowledged


async def test_a_gap_without_a_count_is_handled(hub: tuple[Notifier, str]) -> None:
    """Reading went on behind a gap once the next item was asked for, also where nobody knows how many it is of."""
    notifier, url = hub
    notifier.gap, notifier.uncounted, notifier.journal = (3, 9), True, [9]
    async with Hub(url, resume_after=2) as consumer:
        await _all(consumer, 1)
        await consumer.handled()
        assert consumer.last == 9


@pytest.mark.parametrize("resumes_after", [None, 450])
async def test_a_connection_lost_behind_a_gap(hub: tuple[Notifier, str], resumes_after: int | None) -> None:
    """Who is told a gap and nothing more goes on behind it; in a journal that was put back, where that goes on."""
    notifier, url = hub
    notifier.per_connection, notifier.journal = 0, [500]
    notifier.gap, notifier.resumes_after = (451, 500), resumes_after
    async with Hub(url) as consumer, asyncio.timeout(WAIT):
        while len(notifier.wishes) < 2:
            await asyncio.sleep(0.01)
        assert isinstance(await anext(consumer), Missed)
    assert (notifier.wishes[1].resume_after, notifier.wishes[1].resume_journal) == (resumes_after or 500, "5d")


async def test_a_refused_subscription(hub: tuple[Notifier, str]) -> None:
    """A hub that refuses, as when its journal is another one, is an exception with its words."""
    notifier, url = hub
    notifier.refusal = "resume_after is beyond the head"
    async with Hub(url, resume_after=99) as consumer:
        with pytest.raises(Refused, match="beyond the head"):
            await _all(consumer, 1)
