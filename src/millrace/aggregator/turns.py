"""One thread for slow work, in which clients take turns: nobody waits for all that another one has asked.

Python runs one thread at a time. Two that compute take turns by its switch interval, and each takes twice as long: a
question of 4 ms beside one of 100 ms takes 8. So a thread of long jobs rests between their steps while the one ahead of
it, of quick jobs, is at work, and works on for as long as it has rested before it rests again.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from millrace.aggregator.shares import TimeShares
from millrace.aggregator.until import Until

T = TypeVar("T")

MEMORY = 5.0
"""Seconds after which a third of what a client has taken counts."""
REMEMBERED = 1024
"""Clients whose use of the thread is remembered. Of more the one that was there longest ago is forgotten."""
LITTLE = 0.1
"""Seconds of late, a fiftieth of the time, that count as none: else each of some who are new would take as much before
it is the turn of one who asks a little all the time."""
FAR = 2.0
"""A job steps aside for a client that has taken so many times less than its own …"""
AHEAD = 0.01
"""… and so many seconds on top: clients that ask for much of the same do not step aside for each other."""
MOST_REST = 0.02
"""Most seconds of a rest: some quick jobs of 4 to 8 ms each."""
MOST_ASIDE = 3
"""Jobs that have stepped aside at a time. Each holds the memory of a search. The last place is for no stranger: else
some who ask for much step aside for each other until none is left."""
STRANGER = 0.5
"""Seconds that a stranger counts as having taken on top, held against who is none. As he has taken nothing yet, each of
four who came at once and asked for reverse LP quotes took as much as who asked a little all the time before it was his
turn: 0.4 to 0.8 s. Up to a twentieth of the time is a little."""


@dataclass(slots=True)
class _Running:
    """A job at work, by the thread's clock not charged for since `begun`."""

    client: str
    begun: float


class _Use(NamedTuple):
    """What a client has taken, when that was so much, and since when it has asked again and again."""

    taken: float
    at: float
    since: float


class Turns:
    """A thread that does one job at a time, of the waiting client that has taken least of its time of late.

    Of clients that have taken as little, or next to nothing, the one that waits for longest; the jobs of one client in
    their order. A job that calls `step_aside` in between lets a client go first that has taken far less, and if it is a
    stranger's, one that asks a little all the time. What a job takes of the processor (by `clock`, in the thread) is
    also taken off its client's share. `now` says how long ago something was. While there is work `ahead`, in another
    thread, this one rests, half of the time at most.
    """

    def __init__(
        self,
        name: str,
        shares: TimeShares,
        clock: Callable[[], float] = time.thread_time,
        now: Callable[[], float] = time.monotonic,
        ahead: Turns | None = None,
    ) -> None:
        self._ahead = ahead
        self.idle = threading.Event()
        """Set while there is nothing to do."""
        self.idle.set()
        self._works_until = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._shares = shares
        self._clock = clock
        self._now = now
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._running: list[_Running] = []
        """The last one is at work, those before it have stepped aside for the one behind them."""
        self._taken: OrderedDict[str, _Use] = OrderedDict()
        self.stepped = 0
        """Jobs done while another one stepped aside for them."""
        self.kept = 0
        """Times a job would have stepped aside, but as many had as may."""
        self.rests = 0
        """Times this thread rested for the one ahead of it."""
        self.forgotten = 0
        """Clients whose use of the thread was forgotten for want of room."""

    @property
    def aside(self) -> int:
        """In the thread: how many jobs have stepped aside for the one at work."""
        return max(0, len(self._running) - 1)

    def until(self, client: str, latest: float) -> Until:
        """For a job of a client, in the thread: by when it should be done with what is left of its client's share."""

        def used() -> bool:
            uncharged = self._clock() - self._running[-1].begun
            return self._shares.left(client) <= uncharged

        return Until(latest, used)

    def submit(self, client: str, job: Callable[[], T]) -> Future[T]:
        """Put a job behind the client's others. A future that is cancelled before its turn never runs."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(client, deque()).append((future, job))
            self.idle.clear()
        self._thread.submit(self._turn)
        return future

    def step_aside(self) -> None:
        """In the thread, by a job: first do those of clients that have taken far less than this job's."""
        if not self._running:
            return
        self._rest()
        running = self._running[-1]
        while self._waiting:
            self._charge(running)
            with self._lock:
                first = self._far_below(running.client)
            if first is None:
                return
            self.stepped += 1
            self._do(first)
            running.begun = self._clock()

    def _far_below(self, client: str) -> str | None:
        """With the lock: the waiting client for whom the one at work steps aside, if there is one and a place left."""
        taken, at_work = self._taken_by(client), self._is_stranger(client)
        far = []
        for name in self._waiting:
            is_stranger, has = self._is_stranger(name), self._taken_by(name)
            if is_stranger != at_work:
                has += STRANGER if is_stranger else -STRANGER
            if taken >= LITTLE + min(has, 0.0) and FAR * has + AHEAD <= taken:
                far.append((is_stranger, has, name))
        if far and len(self._running) >= MOST_ASIDE:
            is_last = len(self._running) == MOST_ASIDE
            far = [found for found in far if is_last and not found[0]]
            self.kept += not far
        return min(far)[-1] if far else None

    def _rest(self) -> None:
        """In the thread: let the one ahead do its work first, unless this one owes work for an earlier rest."""
        if self._ahead is None or self._ahead.idle.is_set():
            return
        begun = self._now()
        if begun < self._works_until:
            return
        self.rests += 1
        self._ahead.idle.wait(MOST_REST)
        ended = self._now()
        self._works_until = ended + (ended - begun)

    def _turn(self) -> None:
        """In the thread: do one job, unless there is none left."""
        self._rest()
        self._next()
        with self._lock:
            if not self._waiting:
                self.idle.set()

    def _next(self) -> None:
        """In the thread: do one job of the client whose turn it is, unless it was done while another stepped aside."""
        with self._lock:
            if not self._waiting:
                return
            client = min(self._waiting, key=lambda name: max(self._taken_by(name), LITTLE))  # the first of several
        self._do(client)

    def _do(self, client: str) -> None:
        """In the thread: do the next job of a client."""
        with self._lock:
            jobs = self._waiting.pop(client, None)
            if jobs is None:  # closed meanwhile
                return
            future, job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # behind all others
        if not future.set_running_or_notify_cancel():
            return
        running = _Running(client, self._clock())
        self._running.append(running)
        try:
            result = job()
        except BaseException as error:
            self._done(running)
            future.set_exception(error)
        else:
            self._done(running)
            future.set_result(result)

    def _done(self, running: _Running) -> None:
        """A job has ended."""
        self._running.pop()
        self._charge(running)

    def _charge(self, running: _Running) -> None:
        """The client of a job pays for what it has taken since it was last charged."""
        now = self._clock()
        seconds, running.begun = now - running.begun, now
        self._shares.spend(running.client, seconds)
        with self._lock:
            client, now = running.client, self._now()
            use = self._taken.get(client)
            since = use.since if use is not None and now - use.at <= MEMORY else now
            self._taken[client] = _Use(self._taken_by(client) + seconds, now, since)
            self._taken.move_to_end(client)
            if len(self._taken) > REMEMBERED:
                self._taken.popitem(last=False)
                self.forgotten += 1

    def _taken_by(self, client: str) -> float:
        """Seconds that a client has taken of late."""
        use = self._taken.get(client)
        return use.taken * math.exp((use.at - self._now()) / MEMORY) if use is not None and use.taken else 0.0

    def _is_stranger(self, client: str) -> bool:
        """Whether a client has not asked again and again for as long as what it has taken counts."""
        use, now = self._taken.get(client), self._now()
        return use is None or now - use.at > MEMORY or now - use.since < MEMORY

    def close(self) -> None:
        """Stop the thread after what it is at; whatever waits is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for jobs in self._waiting.values():
                for future, _ in jobs:
                    future.cancel()
            self._waiting.clear()
            self.idle.set()
