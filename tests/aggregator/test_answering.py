"""Long questions are answered in threads, at most so many at a time, never too late, each in its client's time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator
from functools import cache

import msgspec
import pytest

from millrace.aggregator import errors, quote
from millrace.aggregator.answering import EVERYBODY, MOST_FOR_EVERYBODY, Answering, Lane
from millrace.aggregator.clients import Clients
from millrace.aggregator.errors import ApiError, Busy, OverShare
from millrace.aggregator.pace import Pace
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer, filter_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.shares import MOST_SAVED, TimeShares
from millrace.aggregator.snapshot import FILTERS_KEPT, Filter, Snapshot, build
from millrace.dex.document import encode
from millrace.routing import answers
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
MARKET = make_market(40, seed=19, traded_lp=2)
MINTED = next(pool for pool in MARKET.pools if pool.exchange != "Jex")
SETTINGS = AggregatorSettings(max_waiting_quotes=2)


def shares() -> TimeShares:
    """By a clock that stands: what a client has spent it does not save up again while a test looks."""
    return TimeShares(SETTINGS.client_search_seconds, Clients(10, 1), lambda: 0.0)


@cache
def snapshot() -> Snapshot:
    return build(encode(MARKET), 0.0)


@pytest.fixture
async def answering() -> AsyncIterator[Answering]:
    made = Answering(SETTINGS, Pace(), shares())
    yield made
    made.close()


async def test_no_more_than_the_bound_wait(answering: Answering) -> None:
    """While the thread is busy the loop goes on; what is over the bound gets 503 at once and is counted."""
    gate = threading.Event()
    first = asyncio.ensure_future(answering.run(lambda _: gate.wait(30), "a"))
    second = asyncio.ensure_future(answering.run(lambda _: "second", "b"))
    await asyncio.sleep(0)
    assert answering.waiting == 2
    with pytest.raises(Busy) as refused:
        await answering.run(lambda _: "third", "c")
    assert (type(refused.value), refused.value.status, refused.value.retry_after) == (Busy, 503, 1.0)
    assert "service unavailable" in refused.value.text
    gate.set()
    assert [await first, await second] == [True, "second"]
    assert (answering.waiting, answering.refused) == (0, 1)


async def test_what_is_for_everybody_stands_in_no_queue(answering: Answering) -> None:
    """While dear questions fill the queue what all ask for is still made; how often that may be is bounded, too."""
    gate = threading.Event()

    def made() -> Generator[None, None, str]:
        yield
        return "made"

    jobs = [asyncio.ensure_future(answering.run(lambda _: gate.wait(30), client)) for client in "ab"]
    await asyncio.sleep(0)
    for _ in range(MOST_FOR_EVERYBODY):
        jobs.append(asyncio.ensure_future(answering.run_in_turns(lambda _: made(), EVERYBODY)))
        await asyncio.sleep(0)
    for client in (EVERYBODY, "c"):
        with pytest.raises(Busy):
            await answering.run_in_turns(lambda _: made(), client)
    gate.set()
    assert await asyncio.gather(*jobs) == [True, True] + ["made"] * MOST_FOR_EVERYBODY
    assert (answering.waiting, answering.cut) == (0, 0)


async def test_a_client_does_not_wait_for_all_of_another_one(answering: Answering) -> None:
    """A job made of parts lets another client's job in between; its result is that of the last part."""
    done: list[str] = []
    gate = threading.Event()

    def parts(_: float) -> Generator[None, None, str]:
        gate.wait(30)
        for k in range(3):
            done.append(f"part {k}")
            yield
        return "ladder"

    ladder = asyncio.ensure_future(answering.run_in_turns(parts, "a"))
    await asyncio.sleep(0)
    single = asyncio.ensure_future(answering.run(lambda _: done.append("single"), "b"))
    await asyncio.sleep(0)
    gate.set()
    assert await ladder == "ladder"
    await single
    assert done == ["part 0", "single", "part 1", "part 2"]


async def test_a_client_has_half_of_the_room(answering: Answering) -> None:
    """One client's jobs leave room for those of others."""
    gate = threading.Event()
    first = asyncio.ensure_future(answering.run(lambda _: gate.wait(30), "a"))
    await asyncio.sleep(0)
    with pytest.raises(OverShare):
        await answering.run(lambda _: None, "a")
    second = asyncio.ensure_future(answering.run(lambda _: "other", "b"))
    await asyncio.sleep(0)
    gate.set()
    assert [await first, await second] == [True, "other"]
    assert await answering.run(lambda _: "again", "a") == "again"


async def test_a_turn_that_comes_too_late_is_refused() -> None:
    """A job whose deadline has passed while it waited is not begun."""
    answering = Answering(AggregatorSettings(quote_deadline_seconds=-1.0), Pace(), shares())
    begun: list[float] = []
    with pytest.raises(Busy) as refused:
        await answering.run(begun.append, "a")
    assert (type(refused.value), begun, answering.refused) == (Busy, [], 1)
    answering.close()


async def test_what_runs_still_counts_when_nobody_waits_for_it(answering: Answering) -> None:
    """A job whose asker has gone is counted until the thread is done with it; one that has not begun never runs."""
    gate, begun = threading.Event(), threading.Event()
    ran: list[float] = []

    def running(_: float) -> None:
        begun.set()
        gate.wait(30)

    first = asyncio.ensure_future(answering.run(running, "a"))
    await asyncio.get_running_loop().run_in_executor(None, begun.wait)
    second = asyncio.ensure_future(answering.run(ran.append, "b"))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await asyncio.sleep(0)
    assert answering.waiting == 1
    gate.set()
    assert await answering.run(lambda _: "next", "c") == "next"
    assert (answering.waiting, answering.refused, ran) == (0, 0, [])


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which graphs have been built."""
    names: list[str] = []
    make = Snapshot.make

    def counted(self: Snapshot, chosen: Filter) -> object:
        names.append(threading.current_thread().name)
        return make(self, chosen)

    monkeypatch.setattr(Snapshot, "make", counted)
    return names


FILTERED = QuoteRequest(token_in=WRAPPED, token_out=USDC, amount_in=10**18, without_pools=(MARKET.pools[0].id,))


async def test_a_graph_is_built_once_for_all_who_ask(answering: Answering, built: list[str]) -> None:
    """Many questions with the same new filter build its graph once, in the thread."""
    fresh = build(encode(MARKET), 0.0)
    built.clear()
    prepared = await asyncio.gather(*(answering.prepare(fresh, FILTERED, "a") for _ in range(5)))
    assert len({id(asked.planner) for asked in prepared}) == 1
    assert fresh.find(filter_of(FILTERED)) is prepared[0].planner
    assert len(built) == 1
    assert built[0].startswith("quotes-long")
    assert answering.shares.left("a") < MOST_SAVED


async def test_a_graph_is_built_for_whom_it_is_left_to(answering: Answering) -> None:
    """Where the client who asks first has no time left, the one who asks at the same time gets the graph."""
    fresh = build(encode(MARKET), 0.0)
    answering.shares.spend("over", 3.0)
    over, other = await asyncio.gather(
        answering.prepare(fresh, FILTERED, "over"), answering.prepare(fresh, FILTERED, "other"), return_exceptions=True
    )
    assert isinstance(over, Busy)
    assert not isinstance(other, BaseException)
    assert fresh.find(filter_of(FILTERED)) is other.planner


@pytest.mark.parametrize("change", [{}, {"amount_in": None, "amount_out": 10**6}])
async def test_a_graph_that_is_forgotten_meanwhile_is_not_built_again(
    answering: Answering, built: list[str], monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    """A question keeps the graph it was prepared with, though others push it out before the answer is computed."""
    fresh = build(encode(MARKET), 0.0)
    monkeypatch.setattr(Snapshot, "keep", lambda *_: None)  # as if sixteen others had come in between
    built.clear()
    asked = await answering.prepare(fresh, msgspec.structs.replace(FILTERED, **change))
    await answering.answer(asked)
    assert len(built) == 1
    assert built[0].startswith("quotes")


def test_a_snapshot_remembers_so_many_filters() -> None:
    """Beyond the bound the filter unused for longest is forgotten; that of all pools never is."""
    fresh = build(encode(MARKET), 0.0)
    filters = [Filter(without_pools=(str(k),)) for k in range(FILTERS_KEPT + 2)]
    for chosen in filters:
        assert fresh.find(chosen) is None
        fresh.keep(chosen, fresh.main)
        fresh.find(filters[0])
    assert [fresh.find(chosen) is None for chosen in filters] == [False, True, True, *[False] * (FILTERS_KEPT - 1)]
    assert fresh.find(Filter()) is fresh.main


@pytest.mark.parametrize(
    ("change", "lane"),
    [
        ({"amount_in": 10**18}, Lane.LOOP),
        ({"amount_out": 10**6}, Lane.QUICK),
        ({"amount_in": 10**18, "include_lp_routes": True}, Lane.LONG),
        ({"amount_in": 10**18, "token_out": MINTED.lp_token}, Lane.LONG),
        ({"amount_out": 10**6, "token_in": MARKET.pools[1].lp_token}, Lane.LONG),
    ],
)
async def test_what_takes_long_runs_in_a_thread(answering: Answering, change: dict[str, object], lane: Lane) -> None:
    """Reverse quotes and quotes about LP tokens leave the loop; the answer is the same."""
    question = QuoteRequest(**({"token_in": WRAPPED, "token_out": USDC} | change))  # type: ignore[arg-type]
    asked = await answering.prepare(snapshot(), question, "a")
    assert asked.lane is lane
    assert (await answering.answer(asked)).body == answer(snapshot(), question, SETTINGS)


async def test_nobody_waits_for_the_longest(answering: Answering) -> None:
    """While the longest kind keeps its thread, a plain reverse quote is answered in another."""
    gate = threading.Event()
    longest = asyncio.ensure_future(answering.run(lambda _: gate.wait(30), "a"))
    question = QuoteRequest(token_in=WRAPPED, token_out=USDC, amount_out=10**6)
    try:
        assert await answering.answer(await answering.prepare(snapshot(), question, "b"))
        assert not longest.done()
    finally:
        gate.set()
        await longest


async def test_a_long_search_rests_while_a_quick_question_is_answered(answering: Answering) -> None:
    """The processor is the quick one's; a quick one that takes long itself holds nobody up for good."""
    gate = threading.Event()
    quick = asyncio.ensure_future(answering.run(lambda _: gate.wait(30), "a", Lane.QUICK))
    await asyncio.sleep(0)
    try:
        assert await answering.answer(await answering.prepare(snapshot(), DEAR, "b"))
        assert not quick.done()
    finally:
        gate.set()
        await quick
    assert sum(turns.rests for turns in answering.threads) > 0


DEAR = QuoteRequest(token_in=WRAPPED, token_out=USDC, amount_out=10**6, include_lp_routes=True)


async def test_past_its_share_a_client_gets_the_best_found(answering: Answering) -> None:
    """Without time left an answer is the first that executes: it pays what was asked for, and is not remembered."""
    answering.shares.spend("a", 1.25)
    asked = await answering.prepare(snapshot(), DEAR, "a")
    found = await answering.answer(asked)
    assert int(found.body.amount_out) >= 10**6
    assert (found.whole, answering.cut) == (False, 1)
    whole = await answering.answer(await answering.prepare(snapshot(), DEAR, "b"))
    assert (whole.whole, answering.cut) == (True, 1)
    assert int(whole.body.amount_in) <= int(found.body.amount_in)


async def test_past_a_seconds_debt_a_client_is_refused(answering: Answering) -> None:
    """It gets 503 and is told when to come back; others are answered."""
    answering.shares.spend("a", 2.0)
    with pytest.raises(OverShare) as refused:
        await answering.answer(await answering.prepare(snapshot(), DEAR, "a"))
    assert refused.value.status == 503
    assert refused.value.retry_after == pytest.approx(2.0, abs=0.5)
    assert answering.refused == 1
    assert await answering.answer(await answering.prepare(snapshot(), DEAR, "b"))


async def test_what_its_share_leaves_no_time_to_find_is_no_fault_of_the_question(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing was found past the share the client is to come again; with time, the documented words."""
    fails = errors.simulation_failed

    def nothing(*_: object) -> object:
        raise fails()

    monkeypatch.setattr(quote, "answer", nothing)
    asked = await answering.prepare(snapshot(), DEAR, "a")
    with pytest.raises(errors.SimulationFailed):
        await answering.answer(asked)
    answering.shares.spend("a", 1.25)
    with pytest.raises(OverShare):
        await answering.answer(asked)


async def test_so_little_that_it_pays_nothing_is_searched_in_the_thread(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward quote that turns out to take long leaves the loop, and is answered as ever."""
    monkeypatch.setattr(answers, "HASTY_LOOKS", 1)
    question = QuoteRequest(token_in=WRAPPED, token_out=USDC, amount_in=10**6)
    asked = await answering.prepare(snapshot(), question, "a")
    assert asked.lane is Lane.LOOP
    with pytest.raises(ApiError) as expected:
        answer(snapshot(), question, SETTINGS)
    with pytest.raises(ApiError) as found:
        await answering.answer(asked)
    assert found.value.text == expected.value.text
    assert answering.shares.left("a") < MOST_SAVED


async def test_whole_units_are_looked_for_at_once(answering: Answering) -> None:
    """Where hundreds of trades have to be looked at in whole units, compiled code does it on the loop."""
    market = build(encode(make_market(300, seed=1)), 0.0)
    question = QuoteRequest(token_in="TK76X-98d1e9", token_out="TK94X-8d9ed5", amount_in=629310479069946576896)
    found = answering.at_once(await answering.prepare(market, question, "a"))
    assert found is not None
    assert found.body == answer(market, question, SETTINGS)


async def test_mispriced_markets_are_searched_in_the_threads(answering: Answering) -> None:
    """Where many cycles gain, a swap takes milliseconds, and the best cycles more: each has its thread."""
    noisy = build(encode(make_market(230, seed=19, noise=0.02)), 0.0)
    for target, lane in ((USDC, Lane.QUICK), (WRAPPED, Lane.LONG)):
        question = QuoteRequest(token_in=WRAPPED, token_out=target, amount_in=10**20)
        asked = await answering.prepare(noisy, question, "a")
        assert asked.lane is lane
        assert (await answering.answer(asked)).body == answer(noisy, question, SETTINGS)


async def test_refusals_cost_no_turn(answering: Answering) -> None:
    """A question about tokens that do not exist is refused before it waits."""
    with pytest.raises(ApiError, match="unknown token_in"):
        await answering.prepare(snapshot(), QuoteRequest(token_in="NONE-123456", token_out=USDC, amount_out=5))
    assert (answering.waiting, answering.refused) == (0, 0)
