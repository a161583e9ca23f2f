"""Where answers are computed: quick ones at once on the event loop, all others in one thread behind a bounded queue.

A plain forward quote takes a fraction of a millisecond. Reverse quotes, quotes with LP tokens, ladders, batches and
the graph of a filter not asked for before take many. So do forward quotes in large markets with mispricing, and those
of so little that only whole units decide what it pays: that shows when they are under way. They wait for their
turn in the thread, at most so many at a time, and their deadline runs while they wait. Clients take turns, and ladders
and batches are done one item a turn: whoever asks for much delays himself.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from millrace.aggregator import errors, quote
from millrace.aggregator.pace import Pace
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Filter, Snapshot
from millrace.aggregator.turns import Turns
from millrace.routing.exactpath import NeedsTime
from millrace.routing.planner import Planner

T = TypeVar("T")

FILTER_WEIGHT = 5
"""Requests that a new combination of filters counts for besides itself in the rate limit."""
SEARCH_WEIGHT = 3
"""The same of a forward quote that turns out to take long."""


class Asker(NamedTuple):
    """Who asks. `charge` is told how many requests a question counts for besides itself; it may raise `ApiError`."""

    client: str
    charge: Callable[[int], None]


NOBODY = Asker("", lambda _: None)


class Prepared(NamedTuple):
    """A question that can be answered: the graph it needs is held here, whatever the snapshot forgets meanwhile."""

    snapshot: Snapshot
    question: QuoteRequest
    planner: Planner
    long: bool
    """Whether it is one for the thread."""
    asker: Asker


class Answer(NamedTuple):
    """What a question is answered with."""

    body: QuoteResponse
    whole: bool
    """Whether the search came to its end; else its deadline cut it short, and with more time there may be a better."""


class Answering:
    """Answers questions, on the loop or in the thread."""

    def __init__(self, settings: AggregatorSettings, pace: Pace) -> None:
        self._settings = settings
        self._pace = pace
        self._thread = Turns("quotes")
        self._of_client: Counter[str] = Counter()
        self._building: dict[tuple[str, Filter], asyncio.Future[Planner]] = {}
        self.waiting = 0
        """Jobs in the thread or before it."""
        self.refused = 0
        """Jobs turned away because too many were waiting, or because their turn came too late."""

    def ready(
        self, snapshot: Snapshot, question: QuoteRequest, asker: Asker = NOBODY, items: int = 1
    ) -> Prepared | None:
        """A question (or `items` of its kind) with the graph it needs; None if that has to be built (`prepare`).

        What it counts for besides itself is charged. Raises `ApiError`.
        """
        quote.require_known(snapshot, question)
        planner = snapshot.find(quote.filter_of(question))
        return None if planner is None else self._ready(snapshot, question, planner, asker, items)

    async def prepare(
        self, snapshot: Snapshot, question: QuoteRequest, asker: Asker = NOBODY, items: int = 1
    ) -> Prepared:
        """The same, and the graph is built if it has to be. What it counts for is charged before the work is done."""
        asked = self.ready(snapshot, question, asker, items)
        if asked is None:
            asker.charge(FILTER_WEIGHT)
            planner = await self._built(snapshot, quote.filter_of(question), asker.client)
            asked = self._ready(snapshot, question, planner, asker, items)
        return asked

    def _ready(
        self, snapshot: Snapshot, question: QuoteRequest, planner: Planner, asker: Asker, items: int
    ) -> Prepared:
        liquidity = quote.about_liquidity(snapshot, planner, question)
        weight = quote.weight(question, liquidity=liquidity)
        if weight:
            asker.charge(items * weight)
        return Prepared(
            snapshot, question, planner, weight > 0 or planner.router.slow(question.token_in, question.token_out), asker
        )

    async def answer(self, asked: Prepared) -> Answer:
        """The answer to a question. Raises `ApiError`."""
        return self.at_once(asked) or await self.in_thread(asked)

    def at_once(self, asked: Prepared) -> Answer | None:
        """The answer to a question that takes a moment only; None for others. Raises `ApiError`."""
        if asked.long:
            return None
        self._pace.begin()
        try:
            deadline = time.monotonic() + self._settings.quote_deadline_seconds
            body = quote.answer(asked.snapshot, asked.question, self._settings, deadline, asked.planner, hurry=True)
            return _in_time(deadline, body)
        except NeedsTime:
            asked.asker.charge(SEARCH_WEIGHT)
            return None
        finally:
            self._pace.end()

    async def in_thread(self, asked: Prepared) -> Answer:
        """The answer to a question that takes long. Raises `ApiError`."""
        snapshot, question, planner, _, asker = asked

        def job(deadline: float) -> Answer:
            self._pace.seen()
            twin = snapshot.twin(planner)
            return _in_time(deadline, quote.answer(snapshot, question, self._settings, deadline, twin))

        return await self.run(job, asker.client)

    async def _built(self, snapshot: Snapshot, chosen: Filter, client: str) -> Planner:
        """Build the graph of a filter; whoever asks at the same time waits for the same."""
        key = (snapshot.id, chosen)
        building = self._building.get(key)
        if building is None:
            building = self._building[key] = asyncio.ensure_future(self._build(snapshot, chosen, client))
            building.add_done_callback(lambda _: self._building.pop(key, None))
        return await asyncio.shield(building)

    async def _build(self, snapshot: Snapshot, chosen: Filter, client: str) -> Planner:
        planner = await self.run(lambda _: snapshot.make(chosen), client)
        snapshot.keep(chosen, planner)
        return planner

    async def run(self, job: Callable[[float], T], client: str) -> T:
        """Run a job in the thread; its argument is the time (monotonic) by which it should be done.

        Raises `ApiError` (503) when too many are waiting already, or when its turn comes after that time.
        """
        deadline = self._admit(client)
        return await self._turn(lambda: job(deadline), client, deadline)

    async def run_in_turns(self, parts: Callable[[float], Generator[None, None, T]], client: str) -> T:
        """Run a job that is made of parts, one a turn. It must itself look to the deadline. Raises like `run`."""
        deadline = self._admit(client)
        work = parts(deadline)

        def advance() -> tuple[T] | None:
            self._pace.seen()
            return _advance(work)

        done = await self._turn(advance, client, deadline)
        while done is None:
            done = await self._turn(advance, client, math.inf)
        return done[0]

    def _admit(self, client: str) -> float:
        """The deadline of a new job. Raises `ApiError` when too many are waiting, or half of them this client's."""
        most = self._settings.max_waiting_quotes
        if self.waiting >= most or self._of_client[client] >= max(1, most // 2):
            self.refused += 1
            raise errors.busy()
        return time.monotonic() + self._settings.quote_deadline_seconds

    async def _turn(self, job: Callable[[], T], client: str, latest: float) -> T:
        def in_time() -> T:
            if time.monotonic() > latest:
                raise errors.busy()
            return job()

        loop = asyncio.get_running_loop()
        begun = self._thread.submit(client, in_time)
        self.waiting += 1
        self._of_client[client] += 1
        # Not when the caller is gone: the thread goes on with what it has begun.
        begun.add_done_callback(lambda _: _on_loop(loop, lambda: self._done(client)))
        try:
            return await asyncio.wrap_future(begun)
        except errors.Busy:
            self.refused += 1
            raise

    def _done(self, client: str) -> None:
        self.waiting -= 1
        self._of_client[client] -= 1
        if not self._of_client[client]:
            del self._of_client[client]

    def close(self) -> None:
        """Stop the thread after what it is at."""
        self._thread.close()


def _in_time(deadline: float, body: QuoteResponse) -> Answer:
    """An answer that is there now. Searches look at the clock: one that is done in time has left nothing out."""
    return Answer(body, time.monotonic() <= deadline)


def _advance(work: Generator[None, None, T]) -> tuple[T] | None:
    """Do the next part of a job; its result after the last one."""
    try:
        next(work)
    except StopIteration as end:
        return (end.value,)
    return None


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call something soon on a loop, unless the loop has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
