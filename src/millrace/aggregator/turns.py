"""One thread for slow work, in which clients take turns: nobody waits for all that another one has asked."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Turns:
    """A thread that does one job of each waiting client in rotation; the jobs of one client in their order."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
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
            client, jobs = self._waiting.popitem(last=False)
            future, job = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # behind all others
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = job()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def close(self) -> None:
        """Stop the thread after what it is at; whatever waits is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for jobs in self._waiting.values():
                for future, _ in jobs:
                    future.cancel()
            self._waiting.clear()
