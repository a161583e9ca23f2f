"""Where answers are computed: quick ones at once on the event loop, all others in one thread behind a bounded queue.

A plain forward quote takes a fraction of a millisecond. Reverse quotes, quotes with LP tokens, ladders, batches and
the graph of a filter not asked for before take many: they wait for their turn in the thread, at most so many at a
time, and their deadline runs while they wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millrace.aggregator import errors, quote
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Filter, Snapshot

T = TypeVar("T")


class Answering:
    """Answers questions, on the loop or in the thread."""

    def __init__(self, settings: AggregatorSettings) -> None:
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="quotes")
        self._building: dict[tuple[str, Filter], asyncio.Future[None]] = {}
        self.waiting = 0
        """Jobs in the thread or before it."""
        self.refused = 0
        """Jobs turned away because too many were waiting, or because their turn came too late."""

    async def quote(self, snapshot: Snapshot, question: QuoteRequest) -> QuoteResponse:
        """The answer to a question. Raises `ApiError`."""
        quote.require_known(snapshot, question)
        await self.prepare(snapshot, quote.filter_of(question))
        if not quote.takes_long(snapshot, question, self._settings):
            return quote.answer(snapshot, question, self._settings)
        return await self.run(lambda deadline: quote.answer(snapshot.behind(), question, self._settings, deadline))

    async def prepare(self, snapshot: Snapshot, chosen: Filter) -> None:
        """Build the graph of a filter, if it is not there; whoever asks at the same time waits for the same."""
        if snapshot.has(chosen):
            return
        key = (snapshot.id, chosen)
        building = self._building.get(key)
        if building is None:
            building = self._building[key] = asyncio.ensure_future(self._build(snapshot, chosen))
            building.add_done_callback(lambda _: self._building.pop(key, None))
        await asyncio.shield(building)

    async def _build(self, snapshot: Snapshot, chosen: Filter) -> None:
        snapshot.keep(chosen, await self.run(lambda _: snapshot.make(chosen)))

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

        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, in_time)
        except errors.Busy:
            self.refused += 1
            raise
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Stop the thread after what it is at."""
        self._thread.shutdown(wait=False, cancel_futures=True)
