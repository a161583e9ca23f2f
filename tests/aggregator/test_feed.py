"""The feed asks for what is new, and only a document that was taken counts as known."""

from __future__ import annotations

import gzip
import threading
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
from aiohttp import web

from millrace.aggregator import feed as module
from millrace.aggregator.feed import Feed
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder
from millrace.dex.document import Block, encode
from millrace.runtime.http import HttpServer
from millrace.runtime.unpack import unpack
from servers.aggregator_service import MARKET, Upstream


class Bench:
    """A feed with a clock that the test moves, its upstream, and a session."""

    def __init__(self, upstream: Upstream, feed: Feed, session: aiohttp.ClientSession) -> None:
        self.upstream = upstream
        self.feed = feed
        self.session = session
        self.now = 0.0

    async def refresh(self, seconds: float = 5.0) -> None:
        self.now += seconds
        await self.feed.refresh(self.session)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    upstream, app = Upstream(), web.Application()
    app.router.add_get("/pools", upstream.pools)
    server = HttpServer(app)
    port = await server.start("127.0.0.1", 0)
    settings = AggregatorSettings(pools_url=f"http://127.0.0.1:{port}/pools", held_back_fetches=3)
    async with aiohttp.ClientSession() as session:
        made: list[Bench] = []
        feed = Feed(settings, Builder(), clock=lambda: made[0].now if made else 0.0)
        made.append(Bench(upstream, feed, session))
        yield made[0]
        feed.close()
    await server.stop()


async def test_a_document_that_is_known_is_not_sent_again(bench: Bench) -> None:
    """The snapshot is as fresh as if it had been; another tag brings another document."""
    bench.upstream.tag = '"one"'
    await bench.refresh()
    first = bench.feed.snapshot
    assert first is not None
    await bench.refresh()
    assert (bench.upstream.served, bench.upstream.unchanged) == (2, 1)
    assert bench.feed.snapshot is first
    assert (bench.feed.age(), bench.feed.last_error, bench.feed.refreshes) == (0.0, None, 2)
    bench.upstream.tag, bench.upstream.body = '"two"', encode(msgspec.structs.replace(MARKET, block=Block(9, 9, 9)))
    await bench.refresh()
    assert bench.feed.snapshot is not first
    await bench.refresh()
    assert bench.upstream.unchanged == 2


async def test_a_document_that_was_not_taken_is_asked_for_in_whole(bench: Bench) -> None:
    """One held back has to be seen again and again until it is believed; a broken one is never known."""
    bench.upstream.tag = '"one"'
    await bench.refresh()
    lost = msgspec.structs.replace(MARKET, pools=MARKET.pools[:20])
    bench.upstream.tag, bench.upstream.body = '"two"', encode(lost)
    for _ in range(2):
        await bench.refresh()
        assert "held back" in (bench.feed.last_error or "")
    await bench.refresh()
    assert bench.feed.snapshot is not None
    assert (len(bench.feed.snapshot.document.pools), bench.upstream.unchanged) == (20, 0)
    bench.upstream.tag, bench.upstream.body = '"three"', b"{"
    for failures in (3, 4):
        await bench.refresh()
        assert bench.feed.failures == failures
    assert bench.upstream.unchanged == 0
    # The document of the present snapshot is known still.
    bench.upstream.tag = '"two"'
    await bench.refresh()
    assert (bench.upstream.unchanged, bench.feed.age(), bench.feed.last_error) == (1, 0.0, None)


@pytest.mark.parametrize("tagged", [True, False])
async def test_a_good_fetch_in_between_begins_the_count_anew(bench: Bench, tagged: bool) -> None:
    """An upstream that answers now in whole and now not has its market stay whole, with entity tags or without."""
    shrunk = encode(msgspec.structs.replace(MARKET, pools=MARKET.pools[:20]))
    for _ in range(4):
        for tag, body in (('"one"', encode(MARKET)), ('"two"', shrunk)):
            bench.upstream.tag, bench.upstream.body = tag if tagged else "", body
            await bench.refresh()
            assert bench.feed.snapshot is not None
            assert len(bench.feed.snapshot.document.pools) == len(MARKET.pools)
    assert (bench.feed.losses.held_back, bench.feed.losses.taken) == (4, 0)


@pytest.mark.parametrize("tag", ["", '"' + "x" * 300 + '"'])
async def test_without_a_tag_worth_sending_all_of_it_is_fetched(bench: Bench, tag: str) -> None:
    """An upstream without entity tags, or with one as long as no tag has to be."""
    bench.upstream.tag = tag
    await bench.refresh()
    await bench.refresh()
    assert (bench.upstream.served, bench.upstream.unchanged, bench.feed.last_error) == (2, 0, None)


async def test_an_answer_of_nothing_new_without_a_question_for_it_is_a_fault(bench: Bench) -> None:
    """304 to who has nothing is no document."""
    bench.upstream.status = 304
    bench.upstream.body = b""
    await bench.refresh()
    assert bench.feed.snapshot is None
    assert bench.feed.last_error == "upstream answered HTTP 304"


@pytest.mark.parametrize(("said", "is_fault"), [('"one"', False), ('W/"one"', False), ('"two"', True)])
async def test_nothing_new_is_believed_of_the_known_document_only(bench: Bench, said: str, is_fault: bool) -> None:
    """304 for another tag than the one asked with is a fault, and what is asked next is the whole document."""
    bench.upstream.tag = '"one"'
    await bench.refresh()
    bench.upstream.headers = {"ETag": said}
    await bench.refresh()
    assert (bench.upstream.unchanged, bench.feed.age()) == (1, 5.0 if is_fault else 0.0)
    assert ("another document" in (bench.feed.last_error or "")) is is_fault
    bench.upstream.headers = {}
    await bench.refresh()
    assert (bench.upstream.unchanged, bench.feed.age()) == (1 if is_fault else 2, 0.0)


async def test_a_tag_alone_is_not_believed_for_ever(bench: Bench) -> None:
    """An upstream that keeps the tag when its document changes has the market wrong for `max_snapshot_age_seconds`."""
    bench.upstream.tag = '"one"'
    await bench.refresh()
    bench.upstream.body = encode(msgspec.structs.replace(MARKET, block=Block(9, 9, 9)))
    for _ in range(12):
        await bench.refresh()
        assert bench.feed.snapshot is not None and bench.feed.snapshot.document.block.nonce != 9
    await bench.refresh()
    assert bench.feed.snapshot.document.block.nonce == 9
    await bench.refresh()
    assert (bench.upstream.served, bench.upstream.unchanged) == (15, 13)


async def test_a_packed_document_is_the_same(bench: Bench) -> None:
    """A document that gzip has packed is taken, under the id of its plain bytes."""
    await bench.refresh()
    plain = bench.feed.snapshot
    bench.upstream.body, bench.upstream.headers = gzip.compress(bench.upstream.body), {"Content-Encoding": "gzip"}
    await bench.refresh()
    assert plain is bench.feed.snapshot
    assert (bench.feed.age(), bench.feed.last_error) == (0.0, None)


@pytest.mark.parametrize(
    ("body", "packing", "words"),
    [
        (gzip.compress(b" " * 64 * 1024 * 1024 + b"."), "gzip", "larger than 67108864 bytes"),
        (gzip.compress(encode(MARKET))[:-9], "gzip", "not all"),
        (encode(MARKET), "gzip", "not what gzip packs"),
        (encode(MARKET), "br", "'br', which was not asked for"),
    ],
    ids=["a bomb", "cut", "not packed", "not asked for"],
)
async def test_a_packed_document_that_is_none_changes_nothing(
    bench: Bench, body: bytes, packing: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bomb, half of one, what is not packed at all, and what was not asked for; nothing is unpacked on the loop."""
    await bench.refresh()
    bench.upstream.body, bench.upstream.headers = body, {"Content-Encoding": packing}
    threads = []

    def seen(packed: bytes, most: int) -> bytes:
        threads.append(threading.current_thread())
        return unpack(packed, most)

    monkeypatch.setattr(module, "unpack", seen)
    await bench.refresh()
    assert words in (bench.feed.last_error or "")
    assert bench.feed.age() == 5.0
    assert threading.main_thread() not in threads


async def test_a_reason_that_goes_on_is_logged_once_a_minute(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """However often a refresh fails, each reason is a line at once and another one a minute later; all are counted."""

    def told() -> list[tuple[str, int]]:
        return [(record.__dict__["reason"], record.__dict__["failures"]) for record in caplog.records]

    bench.upstream.status = 502
    for _ in range(300):  # 75 s of waiting for a first document
        await bench.refresh(0.25)
    assert told() == [("upstream answered HTTP 502", 1), ("upstream answered HTTP 502", 241)]
    caplog.clear()
    for status in (500, 502, 500):
        bench.upstream.status = status
        await bench.refresh()
    assert told() == [("upstream answered HTTP 500", 301)]
    assert bench.feed.failures == 303


async def test_a_defect_is_logged_with_its_trace_once_a_minute(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that something of ours breaks on fills no log either, and says where it broke."""

    def breaks(data: bytes) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "identify", breaks)
    for _ in range(3):
        await bench.refresh()
    (record,) = caplog.records
    assert (record.levelname, record.__dict__["reason"]) == ("ERROR", "internal error: ZeroDivisionError")
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError
