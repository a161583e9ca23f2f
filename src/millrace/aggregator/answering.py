"""Where answers are computed: quick ones at once on the event loop, all others in one thread behind a bounded queue.

A plain forward quote takes a fraction of a millisecond. Reverse quotes, quotes with LP tokens, ladders, batches and
the graph of a filter not asked for before take many. So do forward quotes in large markets with mispricing, and those
of so little that only whole units decide what it pays: that shows when they are under way. They wait for their
turn in the thread, at most so many at a time, and their deadline runs while they wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from millrace.aggregator import errors, quote
from millrace.aggregator.pace import Pace
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Filter, Snapshot
from millrace.routing.exactpath import NeedsTime
from millrace.routing.planner import Planner

T = TypeVar("T")

FILTER_WEIGHT = 5
"""Requests that a new combination of filters counts for besides itself in the rate limit."""
SEARCH_WEIGHT = 3
"""The same of a forward quote that turns out to take long."""


class Prepared(NamedTuple):
    """A question that can be answered: the graph it needs is held here, whatever the snapshot forgets meanwhile."""

    snapshot: Snapshot
    question: QuoteRequest
    planner: Planner
    long: bool
    """Whether it is one for the thread."""
    charge: Callable[[int], None] | None
    """Told how many requests the question counts for besides itself, if it turns out to take long."""


class Answering:
    """Answers questions, on the loop or in the thread."""

    def __init__(self, settings: AggregatorSettings, pace: Pace) -> None:
        self._settings = settings
        self._pace = pace
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quotes")
        self._building: dict[tuple[str, Filter], asyncio.Future[Planner]] = {}
        self.waiting = 0
        """Jobs in the thread or before it."""
        self.refused = 0
        """Jobs turned away because too many were waiting, or because their turn came too late."""

    async def prepare(
        self, snapshot: Snapshot, question: QuoteRequest, charge: Callable[[int], None] | None = None, items: int = 1
    ) -> Prepared:
        """Find, or build, the graph for a question (or for `items` of its kind). Raises `ApiError`.

        `charge` is told how many requests it counts for besides itself, before the work is done.
        """
        quote.require_known(snapshot, question)
        chosen = quote.filter_of(question)
        planner = snapshot.find(chosen)
        if planner is None:
            if charge is not None:
                charge(FILTER_WEIGHT)
            planner = await self._built(snapshot, chosen)
        liquidity = quote.about_liquidity(snapshot, planner, question)
        weight = quote.weight(question, liquidity=liquidity)
        if charge is not None and weight:
            charge(items * weight)
        return Prepared(snapshot, question, planner, weight > 0 or planner.router.slow, charge)

    async def answer(self, asked: Prepared) -> QuoteResponse:
        """The answer to a question. Raises `ApiError`."""
        snapshot, question, planner, long, charge = asked
        if not long:
            self._pace.busy = True
            try:
                return quote.answer(snapshot, question, self._settings, planner=planner, hurry=True)
            except NeedsTime:
                if charge is not None:
                    charge(SEARCH_WEIGHT)
            finally:
                self._pace.busy = False
        return await self.run(
            lambda deadline: quote.answer(snapshot, question, self._settings, deadline, snapshot.twin(planner))
        )

    async def _built(self, snapshot: Snapshot, chosen: Filter) -> Planner:
        """Build the graph of a filter; whoever asks at the same time waits for the same."""
        key = (snapshot.id, chosen)
        building = self._building.get(key)
        if building is None:
            building = self._building[key] = asyncio.ensure_future(self._build(snapshot, chosen))
            building.add_done_callback(lambda _: self._building.pop(key, None))
        return await asyncio.shield(building)

    async def _build(self, snapshot: Snapshot, chosen: Filter) -> Planner:
        planner = await self.run(lambda _: snapshot.make(chosen))
        snapshot.keep(chosen, planner)
        return planner

    async def run(self, job: Callable[[float], T]) -> T:
        """Run a job in the thread; its argument is the time (monotonic) by which it should be done.

        Raises `ApiError` (503) when too many are waiting already, or when its turn comes after that time.
        """
        if self.waiting >= self._settings.max_waiting_quotes:
            self.refused += 1
            raise errors.busy()
        deadline = time.monotonic() + self._settings.quote_deadline_seconds

        def in_time() -> T:
            if time.monotonic() > deadline:
                raise errors.busy()
            return job(deadline)

        loop = asyncio.get_running_loop()
        begun = self._thread.submit(in_time)
        self.waiting += 1
        # Not when the caller is gone: the thread goes on with what it has begun.
        begun.add_done_callback(lambda _: _on_loop(loop, self._done))
        try:
            return await asyncio.wrap_future(begun)
        except errors.Busy:
            self.refused += 1
            raise

    def _done(self) -> None:
        self.waiting -= 1

    def close(self) -> None:
        """Stop the thread after what it is at."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call something soon on a loop, unless the loop has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
