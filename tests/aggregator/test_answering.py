"""Long questions are answered one after the other in a thread, at most so many at a time, and never too late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import cache

import pytest

from millrace.aggregator.answering import Answering
from millrace.aggregator.errors import ApiError, Busy
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer, takes_long, weight
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Filter, Snapshot, build
from millrace.dex.document import encode
from millrace.routing.synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
MARKET = make_market(40, seed=19, traded_lp=2)
SETTINGS = AggregatorSettings(max_waiting_quotes=2)


@cache
def snapshot() -> Snapshot:
    return build(encode(MARKET), 0.0)


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    made = Answering(SETTINGS)
    yield made
    made.close()


async def test_no_more_than_the_bound_wait(answering: Answering) -> None:
    """While the thread is busy the loop goes on; what is over the bound gets 503 at once and is counted."""
    gate = threading.Event()
    first = asyncio.ensure_future(answering.run(lambda _: gate.wait(30)))
    second = asyncio.ensure_future(answering.run(lambda _: "second"))
    await asyncio.sleep(0)
    assert answering.waiting == 2
    with pytest.raises(Busy) as refused:
        await answering.run(lambda _: "third")
    assert (refused.value.status, refused.value.retry_after) == (503, 1.0)
    assert "service unavailable" in refused.value.text
    gate.set()
    assert [await first, await second] == [True, "second"]
    assert (answering.waiting, answering.refused) == (0, 1)


async def test_a_turn_that_comes_too_late_is_refused() -> None:
    """A job whose deadline has passed while it waited is not begun."""
    answering = Answering(AggregatorSettings(quote_deadline_seconds=-1.0))
    begun: list[float] = []
    with pytest.raises(Busy):
        await answering.run(begun.append)
    assert (begun, answering.refused) == ([], 1)
    answering.close()


async def test_a_graph_is_built_once_for_all_who_ask(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many questions with the same new filter build its graph once, in the thread."""
    built: list[str] = []
    make = Snapshot.make

    def counted(self: Snapshot, chosen: Filter) -> object:
        built.append(threading.current_thread().name)
        return make(self, chosen)

    monkeypatch.setattr(Snapshot, "make", counted)
    fresh = build(encode(MARKET), 0.0)
    chosen = Filter(without_pools=(MARKET.pools[0].id,))
    await asyncio.gather(*(answering.prepare(fresh, chosen) for _ in range(5)))
    assert fresh.has(chosen)
    assert len(built) == 1
    assert built[0].startswith("quotes")


@pytest.mark.parametrize(
    ("change", "long", "requests"),
    [
        ({"amount_in": 10**18}, False, 0),
        ({"amount_out": 10**6}, True, 1),
        ({"amount_in": 10**18, "include_lp_routes": True}, True, 3),
        ({"amount_in": 10**18, "token_out": MARKET.pools[0].lp_token}, True, 3),
        ({"amount_out": 10**6, "token_in": MARKET.pools[1].lp_token}, True, 9),
    ],
)
async def test_what_takes_long_runs_in_the_thread_and_counts_for_more(
    answering: Answering, change: dict[str, object], long: bool, requests: int
) -> None:
    """Reverse quotes and quotes about LP tokens leave the loop; the answer is the same; the rate limit weighs it."""
    question = QuoteRequest(**({"token_in": WRAPPED, "token_out": USDC} | change))  # type: ignore[arg-type]
    assert takes_long(snapshot(), question, SETTINGS) is long
    assert weight(snapshot(), question, SETTINGS) == requests
    assert await answering.quote(snapshot(), question) == answer(snapshot(), question, SETTINGS)


async def test_refusals_cost_no_turn(answering: Answering) -> None:
    """A question about tokens that do not exist is refused before it waits."""
    with pytest.raises(ApiError, match="unknown token_in"):
        await answering.quote(snapshot(), QuoteRequest(token_in="NONE-123456", token_out=USDC, amount_out=5))
    assert (answering.waiting, answering.refused) == (0, 0)
