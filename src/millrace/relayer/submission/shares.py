"""Fair turns: how much of each client's work is under way at once, and whether others ask for anything."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping


class Shares:
    """How much of each client's work is under way at once: who has more to do waits for itself, not others for it.

    A queue that takes its work through shares of `most` never holds more than that of one client, so being first come,
    first served in it is being fair: nobody waits longer than `most` of each other client takes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    def __len__(self) -> int:
        """Clients with work under way; nothing is kept of others."""
        return len(self._used)

    async def take(self, client: str, size: int) -> None:
        """Room for work of this size, 1 at least, in the order of asking; what is larger than a share comes alone."""
        if self._try_take(client, size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(client, deque())
        waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came at the same moment
                self.give_back(client, size)
            raise

    async def take_together(self, sizes: Mapping[str, int]) -> set[str]:
        """Room for what clients do together: those who have none now, as nobody waits for another's.

        One alone waits for its own.
        """
        if len(sizes) > 1:
            return {client for client, size in sizes.items() if not self._try_take(client, size)}
        for client, size in sizes.items():
            await self.take(client, size)
        return set()

    def _try_take(self, client: str, size: int) -> bool:
        used = self._used.get(client, 0)
        if client in self._waiting or not self._fits(used, size):
            return False
        self._used[client] = used + size
        return True

    def give_back(self, client: str, size: int) -> None:
        """Work that room was taken for is done."""
        used = self._used.pop(client) - size
        waiting = self._waiting.get(client)
        while waiting and (waiting[0][1].cancelled() or self._fits(used, waiting[0][0])):
            wanted, turn = waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                used += wanted
        if not waiting:
            self._waiting.pop(client, None)
        if used:
            self._used[client] = used

    def _fits(self, used: int, size: int) -> bool:
        return not used or used + size <= self._most


class Company:
    """Whether a client has the service to itself: nobody else has asked for anything within `seconds`."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._latest = ""
        self._latest_at = self._other_at = -math.inf

    def is_alone(self, client: str) -> bool:
        """Whether this client, which asks for something now, has been alone."""
        now = self._clock()
        if client != self._latest:
            self._latest, self._other_at = client, self._latest_at
        self._latest_at = now
        return now - self._other_at >= self._seconds
