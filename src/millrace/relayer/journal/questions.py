"""Questions of what is claimed: one statement for all that wait, and the next one when that is answered.

However many clients have something asked, a claim waits for ten statements of theirs at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from millrace.relayer.journal.claim_rows import Claimed
from millrace.relayer.journal.seats import SeatError, Seats
from millrace.relayer.journal.writer import JournalFull
from millrace.runtime.postgres import Damaged, Unavailable

AT_ONCE = 100
"""Questions of one statement: an answer has all that their senders have in flight."""
MAX_WAITING = 1_000
"""Questions that wait; beyond it new ones are refused."""


class _Question:
    """Of a sender's claims within two nonces."""

    def __init__(self, sender: bytes, first: int, last: int) -> None:
        self.asked = sender, first, last
        self.claims: dict[int, Claimed] | None = None
        self.error: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self.claims is None and self.error is None


class Questions:
    """Asked by many tasks; `turn` is the server's connection, which is there for one at a time."""

    def __init__(self, seats: Seats, turn: asyncio.Lock) -> None:
        self._seats = seats
        self._turn = turn
        self._waiting: list[_Question] = []

    async def about(self, sender: bytes, first: int, last: int) -> dict[int, Claimed]:
        """Who has which of these nonces, none left out. Raises `OSError`, `SeatError` or `JournalFull`."""
        if len(self._waiting) >= MAX_WAITING:
            raise JournalFull("the claims' server is too slow")
        mine = _Question(sender, first, last)
        self._waiting.append(mine)
        try:
            async with self._turn:
                if mine.is_open:  # then it is the oldest that is
                    await self._answer(self._waiting[:AT_ONCE])
        finally:
            self._waiting = [item for item in self._waiting if item.is_open and item is not mine]
        if mine.claims is None:
            raise mine.error or SeatError("it was not asked")
        return mine.claims

    async def _answer(self, group: Collection[_Question]) -> None:
        try:
            found = await self._seats.claimed({item.asked for item in group})
        except (OSError, SeatError) as error:
            if isinstance(error, Damaged) and len(group) > 1:  # one of them
                for item in group:
                    if item.is_open:
                        await self._answer([item])
                return
            # Of a server that is away nobody who waits hears more: each group would wait for its patience anew.
            for item in [*group, *self._waiting] if isinstance(error, Unavailable) else group:
                if item.is_open:
                    item.error = error
            return
        for item in group:
            sender, first, last = item.asked
            item.claims = {at: claimed for at, claimed in found.get(sender, {}).items() if first <= at <= last}
