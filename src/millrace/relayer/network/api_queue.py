"""Transactions on their way to the chain API: of several senders at once, of each one by one in the order of nonces."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from millrace.relayer.ledger.inflight import Entry
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

SENDERS_AT_ONCE = 16
"""Half of what the chain API is asked at once: questions for accounts, for which clients wait, need room too."""


class ApiQueue:
    """Senders take turns, one transaction each.

    `submit` hands an entry over and says whether the sender's next may follow it; if not, `postpone` is told of each
    that waits behind it, as a later nonce is worth nothing without it. Holds every entry in flight once at most.
    """

    def __init__(self, submit: Callable[[Entry], Awaitable[bool]], postpone: Callable[[Entry], None]) -> None:
        self._submit = submit
        self._postpone = postpone
        self._lanes: dict[bytes, list[tuple[int, int, Entry]]] = {}
        """Of each sender a heap of what waits, by nonce; also of one whose entry is being handed over."""
        self._turns: deque[bytes] = deque()
        """Senders of whom nothing is being handed over, the next one first."""
        self._workers: set[asyncio.Task[None]] = set()
        self._busy = 0
        """Workers that will look for a turn again: a task is counted among the others for a moment longer."""
        self._order = itertools.count()

    def __len__(self) -> int:
        """Entries that wait for their turn."""
        return sum(map(len, self._lanes.values()))

    def put(self, entries: Iterable[Entry]) -> None:
        """Hand these over in their turn."""
        for entry in entries:
            sender = entry.tx.sender
            if sender not in self._lanes:
                self._lanes[sender] = []
                self._turns.append(sender)
            heapq.heappush(self._lanes[sender], (entry.tx.nonce, next(self._order), entry))
        for _ in range(min(len(self._turns), SENDERS_AT_ONCE - self._busy)):
            self._busy += 1
            worker = asyncio.create_task(self._work(), name="chain-api")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    def take_back(self) -> list[Entry]:
        """Everything that waits, as there is a better way now; what is being handed over is not among it."""
        entries = [item[2] for lane in self._lanes.values() for item in sorted(lane)]
        for lane in self._lanes.values():
            lane.clear()
        return entries

    async def stop(self) -> None:
        """Hand nothing over any more."""
        await end_tasks(self._workers)

    async def _work(self) -> None:
        """Serve one sender after the other while any waits."""
        while self._turns:
            sender = self._turns.popleft()
            lane = self._lanes[sender]
            if lane and not await self._may_follow(heapq.heappop(lane)[2]):
                while lane:
                    self._postpone(heapq.heappop(lane)[2])
            if lane:
                self._turns.append(sender)
            else:
                del self._lanes[sender]
        self._busy -= 1

    async def _may_follow(self, entry: Entry) -> bool:
        try:
            return await self._submit(entry)
        except Exception:  # a defect with one must not stop the others
            log.exception("a transaction was not handed to the chain API")
            self._postpone(entry)
            return False
