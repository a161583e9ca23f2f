"""Where answers are computed: quick ones at once on the event loop, all others in two threads behind a bounded queue.

A plain forward quote takes a fraction of a millisecond. Reverse quotes take some, as do forward quotes in large markets
with mispricing: one thread is for them. Quotes and pairs with LP tokens, cycles, ladders, batches, the graph of a
filter not asked for before, and forward quotes of so little that whole units decide what it pays, where many trades
have to be made in Python to tell (that shows when they are under way), take up to some hundred: the other one is for
these, so that nobody's reverse quote waits for them. A bounded number of questions waits for both, and their deadline
runs while they do.

Clients take turns: the one that has taken least of late is next, a search under way steps aside for one that has taken
far less, and ladders and batches are done one item a turn (`turns.py`). What each may take in all is its share of the
time (`shares.py`). So whoever asks for much delays himself.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from enum import Enum, auto
from typing import Any, NamedTuple, TypeVar

import msgspec

from millrace.aggregator import errors, quote
from millrace.aggregator.errors import Busy
from millrace.aggregator.pace import Pace
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.shares import TimeShares
from millrace.aggregator.snapshot import Filter, Snapshot
from millrace.aggregator.turns import Turns
from millrace.aggregator.until import too_late
from millrace.routing.exactpath import NeedsTime
from millrace.routing.planner import Planner

T = TypeVar("T")


class Lane(Enum):
    """Where a question is answered."""

    LOOP = auto()
    """At once."""
    QUICK = auto()
    """In the thread for those that take some milliseconds."""
    LONG = auto()
    """In the thread for all others."""


EVERYBODY = ""
"""The client that the catalogue's time is taken off: there is one a snapshot, whoever asks first."""
MOST_FOR_EVERYBODY = 4
"""Jobs for everybody that find room beside `max_waiting_quotes`, and may take their time: lists are asked for also
while dear questions wait. More of them have fallen behind by so many snapshots, and wait like others."""
THREADS = {Lane.QUICK: "quotes", Lane.LONG: "quotes-long"}


class Prepared(NamedTuple):
    """A question that can be answered: the graph it needs is held here, whatever the snapshot forgets meanwhile."""

    snapshot: Snapshot
    question: QuoteRequest
    planner: Planner
    lane: Lane
    client: str


class Answer(NamedTuple):
    """What a question is answered with."""

    body: QuoteResponse
    whole: bool
    """Whether the search came to its end; else its deadline cut it short, and with more time there may be a better."""
    by_share: bool = False
    """Whether it was cut for want of its client's share: others have more time."""


class Answering:
    """Answers questions, on the loop or in the thread."""

    def __init__(self, settings: AggregatorSettings, pace: Pace, shares: TimeShares) -> None:
        self._settings = settings
        self._pace = pace
        self.shares = shares
        """What each client has left of its time in the threads."""
        quick = Turns(THREADS[Lane.QUICK], shares)
        self._threads = {Lane.QUICK: quick, Lane.LONG: Turns(THREADS[Lane.LONG], shares, ahead=quick)}
        self._of_client: Counter[str] = Counter()
        self._making: dict[Hashable, asyncio.Future[Any]] = {}
        self.waiting = 0
        """Jobs in the threads or before them."""
        self.refused = 0
        """Jobs turned away: too many were waiting, their turn came too late, or their client's share was used up."""
        self.cut = 0
        """Questions answered with the best found when their client's share was used up."""

    @property
    def threads(self) -> Iterable[Turns]:
        """Those in which questions wait."""
        return self._threads.values()

    def adopt(self, settings: AggregatorSettings) -> None:
        """Answer by other settings; threads and their bounds stay."""
        self._settings = settings

    def ready(self, snapshot: Snapshot, question: QuoteRequest, client: str = "") -> Prepared | None:
        """A question with the graph it needs; None if that has to be built (`prepare`). Raises `ApiError`."""
        quote.require_known(snapshot, question)
        planner = snapshot.find(quote.filter_of(question))
        return None if planner is None else _prepared(snapshot, question, planner, client)

    async def prepare(self, snapshot: Snapshot, question: QuoteRequest, client: str = "") -> Prepared:
        """The same, and the graph is built if it has to be."""
        asked = self.ready(snapshot, question, client)
        if asked is None:
            planner = await self.planner(snapshot, quote.filter_of(question), client)
            asked = _prepared(snapshot, question, planner, client)
        return asked

    async def answer(self, asked: Prepared) -> Answer:
        """The answer to a question. Raises `ApiError`."""
        return self.at_once(asked) or await self.in_thread(asked)

    def at_once(self, asked: Prepared) -> Answer | None:
        """The answer to a question that takes a moment only; None for others. Raises `ApiError`."""
        if asked.lane is not Lane.LOOP:
            return None
        self._pace.begin()
        try:
            deadline = time.monotonic() + self._settings.quote_deadline_seconds
            body = quote.answer(asked.snapshot, asked.question, self._settings, deadline, asked.planner, hurry=True)
            return _in_time(deadline, body)
        except NeedsTime:
            return None
        finally:
            self._pace.end()

    async def in_thread(self, asked: Prepared) -> Answer:
        """The answer to a question that takes long. Raises `ApiError`."""
        snapshot, question, planner, lane, client = asked
        lane = Lane.LONG if lane is Lane.LOOP else lane  # it was tried there, and takes too long

        latest = self._admit(client)

        def job() -> Answer:
            self._pace.seen()
            turns = self._threads[lane]
            twin = snapshot.twin(planner, f"{lane.name} {turns.aside}", turns.step_aside)
            deadline = turns.until(client, latest)
            try:
                found = _in_time(deadline, quote.answer(snapshot, question, self._settings, deadline, twin))
            except errors.SimulationFailed:
                if time.monotonic() <= deadline:
                    raise
                raise too_late(deadline) from None
            finally:
                self.cut += deadline.cut
            return found._replace(by_share=deadline.cut)

        return await self._turn(job, client, latest, lane)

    async def planner(self, snapshot: Snapshot, chosen: Filter, client: str) -> Planner:
        """The graph of a filter, built if it has to be. Raises `ApiError` (503)."""
        found = snapshot.find(chosen)
        if found is None:
            found = await self.once((snapshot.id, chosen), lambda: self._build(snapshot, chosen, client))
        return found

    async def once(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """What is made in a thread; whoever asks for the same at the same time waits for the same.

        Where the client who asked first is refused, the next one's turn is taken.
        """
        while True:
            making: asyncio.Future[T] | None = self._making.get(key)
            first = making is None
            if making is None:
                making = self._making[key] = asyncio.ensure_future(make())
                making.add_done_callback(lambda _: self._making.pop(key, None))
            try:
                return await asyncio.shield(making)
            except Busy:
                if first:
                    raise

    async def _build(self, snapshot: Snapshot, chosen: Filter, client: str) -> Planner:
        planner = await self.run(lambda _: snapshot.make(chosen), client)
        snapshot.keep(chosen, planner)
        return planner

    async def run(self, job: Callable[[float], T], client: str, lane: Lane = Lane.LONG) -> T:
        """Run a job in a thread; its argument is the time (monotonic) by which it should be done.

        Raises `ApiError` (503) when too many are waiting already, when its turn comes too late, or when its client has
        taken too much time by now.
        """
        latest = self._admit(client)

        def done() -> T:
            deadline = self._threads[lane].until(client, latest)
            try:
                return job(deadline)
            finally:
                self.cut += deadline.cut

        return await self._turn(done, client, latest, lane)

    async def run_in_turns(self, parts: Callable[[float], Generator[None, None, T]], client: str) -> T:
        """Run a job that is made of parts, one a turn. It must itself look to the deadline. Raises like `run`."""
        latest = self._admit(client)
        deadline = self._threads[Lane.LONG].until(client, latest)
        work: list[Generator[None, None, T]] = []

        def advance() -> tuple[T] | None:
            self._pace.seen()
            if not work:
                work.append(parts(deadline))
            return _advance(work[0])

        try:
            done = await self._turn(advance, client, latest, Lane.LONG)
            while done is None:
                done = await self._turn(advance, client, math.inf, Lane.LONG)
            return done[0]
        finally:
            self.cut += deadline.cut

    def _admit(self, client: str) -> float:
        """By when a new job should be done. Raises `ApiError` when too many are waiting, or half of them this
        client's, or when its share of the time is used up."""
        if client == EVERYBODY and self._of_client[client] < MOST_FOR_EVERYBODY:
            return math.inf
        most = self._settings.max_waiting_quotes
        if self.waiting >= most:
            self.refused += 1
            raise errors.busy()
        if self._of_client[client] >= max(1, most // 2):
            self.refused += 1
            raise errors.too_many_of_one()
        wait = self.shares.wait(client)
        if wait > 0.0:
            self.refused += 1
            raise errors.share_used_up(wait)
        return time.monotonic() + self._settings.quote_deadline_seconds

    def _late(self, client: str) -> Busy:
        """What a client is told whose time is over: who has used his share up is himself the cause."""
        return errors.too_many_of_one() if self.shares.left(client) <= 0.0 else errors.busy()

    async def _turn(self, job: Callable[[], T], client: str, latest: float, lane: Lane) -> T:
        def in_time() -> T:
            if time.monotonic() > latest:
                raise self._late(client)
            return job()

        loop = asyncio.get_running_loop()
        begun = self._threads[lane].submit(client, in_time)
        self.waiting += 1
        self._of_client[client] += 1
        # Not when the caller is gone: the thread goes on with what it has begun.
        begun.add_done_callback(lambda _: _on_loop(loop, lambda: self._done(client)))
        try:
            return await asyncio.wrap_future(begun)
        except Busy:
            self.refused += 1
            raise

    def _done(self, client: str) -> None:
        self.waiting -= 1
        self._of_client[client] -= 1
        if not self._of_client[client]:
            del self._of_client[client]

    def close(self) -> None:
        """Stop the threads after what they are at."""
        for thread in self._threads.values():
            thread.close()


def _prepared(snapshot: Snapshot, question: QuoteRequest, planner: Planner, client: str) -> Prepared:
    """A question with its graph, and where it is answered."""
    lane = Lane.LOOP
    if quote.about_liquidity(snapshot, planner, question):
        lane = Lane.LONG
    elif question.amount_in is None:
        lane = Lane.QUICK
    elif planner.router.slow(question.token_in, question.token_out):
        lane = Lane.LONG if question.token_in == question.token_out else Lane.QUICK
    return Prepared(snapshot, question, planner, lane, client)


def _in_time(deadline: float, body: QuoteResponse) -> Answer:
    """An answer that is there now. Searches look at the clock: one that is done in time has left nothing out."""
    if time.monotonic() <= deadline:
        return Answer(body, True)
    return Answer(msgspec.structs.replace(body, search_cut=True), False)


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
