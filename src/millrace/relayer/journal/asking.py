"""Asking the claims' server: one question at a time, again until it is answered; and whether it answers."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from millrace.relayer.journal.claim_errors import ClaimDamaged, ClaimsError
from millrace.relayer.journal.seats import SeatError, Seats
from millrace.runtime.postgres import Damaged, Refused, Unavailable, Unfit

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS = 0.2
MAX_NOTED = 16
"""Failures of a server that are logged until it answers again, each once."""


class Asking:
    """One relayer's way to the server."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats
        self.turn = asyncio.Lock()
        """There is one connection."""
        self.failed: str | None = None
        """Why the server does not answer, until it does."""
        self._is_unfit = False
        """It does, and is not to be used."""
        self._noted: set[str] = set()
        """What was logged of that: it may be away first, and not what it was then."""
        self.failures = 0
        self.failed_at = -math.inf
        """When the server did not answer last."""
        self.on_return: Callable[[], None] = lambda: None
        """Told when it answers again."""

    def why_not(self) -> str | None:
        """Why nothing may be asked now: without the server's address and words, which the log has."""
        if self.failed is None:
            return None
        return f"the claims' server {'is not fit to be used' if self._is_unfit else 'does not answer'}"

    async def sure(self, work: Callable[[Seats], Awaitable[T]], *, makes_well: bool = True) -> T:
        """Ask what may be asked twice until it is answered. Raises `JournalError` where that will not help.

        `makes_well`: then others may ask, too.
        """
        while True:
            try:
                answer = await self.call(work)
            except Unavailable as error:
                self.note(error)
                await asyncio.sleep(RETRY_SECONDS)
            except Damaged as error:
                raise ClaimDamaged(str(error)) from error
            except (Refused, SeatError) as error:
                raise ClaimsError(str(error)) from error
            else:
                if makes_well:
                    self.answers()
                return answer

    def answers(self) -> None:
        """It did: others may ask, too."""
        if self.failed is None:
            return
        log.info("the claims' server answers again")
        self._noted.clear()
        self.failed = None
        self.on_return()

    def note(self, error: Exception) -> None:
        """It did not: nothing is accepted until it does."""
        self.failures += 1
        self.failed_at = asyncio.get_running_loop().time()
        self.failed, self._is_unfit = str(error), isinstance(error, Unfit)
        if self.failed not in self._noted and len(self._noted) < MAX_NOTED:
            self._noted.add(self.failed)
            log.error(f"{self.why_not()}: nothing is accepted", extra={"error": self.failed})

    async def call(self, work: Callable[[Seats], Awaitable[T]]) -> T:
        """Ask once, in turn. Raises `OSError` or `SeatError`."""
        async with self.turn:
            return await work(self._seats)
