"""One thread for slow work, in which clients take turns: nobody waits for all that another one has asked."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from millrace.aggregator.shares import TimeShares

T = TypeVar("T")


class Turns:
    """A thread that does one job at a time, of the waiting client that has most of its share left.

    Of clients with as much left, the one that waits for longest; the jobs of one client in their order. What a job
    takes of the processor (by `clock`, in the thread) is taken off its client's share.
    """

    def __init__(self, name: str, shares: TimeShares, clock: Callable[[], float] = time.thread_time) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._shares = shares
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()

    def submit(self, client: str, job: Callable[[], T]) -> Future[T]:
        """Put a job behind the client's others. A future that is cancelled before its turn never runs."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(client, deque()).append((future, job))
        self._thread.submit(self._next)
        return future

    def _next(self) -> None:
        """In the thread: do one job of the client whose turn it is."""
        with self._lock:
            client = max(self._waiting, key=self._shares.left)  # the first of several
            jobs = self._waiting.pop(client)
            future, job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # behind all others
        if not future.set_running_or_notify_cancel():
            return
        begun = self._clock()
        try:
            result = job()
        except BaseException as error:
            self._shares.spend(client, self._clock() - begun)
            future.set_exception(error)
        else:
            self._shares.spend(client, self._clock() - begun)
            future.set_result(result)

    def close(self) -> None:
        """Stop the thread after what it is at; whatever waits is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for jobs in self._waiting.values():
                for future, _ in jobs:
                    future.cancel()
            self._waiting.clear()
