"""Accounts that a final block changed without telling how they are now: asked for at the chain API, a few at a time.

Nodes leave out the relayers that pay for others. A busy one is in every block, so it is asked for once a turn at most,
and only where somebody wants to know. The chain API may be behind the block that changed it, so it is asked once more
when it can be so no longer, and what it says then is told if it is something else.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from millrace.relayer.network.account_source import LAG_SECONDS, AccountSource

TURN_SECONDS = 1.0
PER_TURN = 16
"""Questions in a turn: far below what public chain APIs answer to one client, some 50 a second."""
MAX_WANTED = 4096


class Where(msgspec.Struct, frozen=True):
    """Where in the chain an account changed."""

    shard: int
    timestamp_ms: int
    block_hash: bytes = b""
    since: float = 0.0
    """When that was heard, on the clock that nobody sets."""
    block_nonce: int | None = None
    """Of the block, where it is known which one it was."""


class AbsentAccounts:
    """At most `MAX_WANTED` accounts wait, each for its newest block; the one that waited longest comes first."""

    def __init__(self, accounts: AccountSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._accounts = accounts
        self._clock = clock
        self._wanted: OrderedDict[bytes, Where] = OrderedDict()
        self._again: OrderedDict[bytes, tuple[float, Where, tuple[int, int]]] = OrderedDict()
        """Accounts that were told, to be asked for once more: from when on, their newest block, and what was told."""
        self.forgotten = 0
        """Left out for want of room: their next block asks again."""
        self.on_answer: Callable[[bytes, int, int, Where], None] = lambda pubkey, nonce, balance, where: None
        """Told of every answer: nonce and balance."""

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, pubkey: bytes, where: Where) -> None:
        """Ask for an account in one of the next turns."""
        self._wanted[pubkey] = where
        if len(self._wanted) > MAX_WANTED:
            self._wanted.popitem(last=False)
            self.forgotten += 1

    async def run(self) -> None:
        """A turn every second, for ever."""
        while True:
            await asyncio.sleep(TURN_SECONDS)
            await self.turn()

    async def turn(self) -> None:
        """Ask for those that wait longest. What the chain API does not answer waits behind the others."""
        due = [self._wanted.popitem(last=False) for _ in range(min(PER_TURN, len(self._wanted)))]
        now = self._clock()
        again: list[tuple[bytes, tuple[float, Where, tuple[int, int]]]] = []
        while self._again and len(due) + len(again) < PER_TURN and next(iter(self._again.values()))[0] <= now:
            again.append(self._again.popitem(last=False))
        await asyncio.gather(
            *(self._ask(pubkey, where) for pubkey, where in due),
            *(self._ask_again(pubkey, where, told) for pubkey, (_, where, told) in again),
        )

    async def _ask(self, pubkey: bytes, where: Where) -> None:
        await self._accounts.refresh(pubkey)
        account = self._accounts.book.get(pubkey)
        if account is not None and account.fetched >= where.since:
            self.on_answer(pubkey, account.nonce, account.balance, where)
            self._again.pop(pubkey, None)
            self._again[pubkey] = where.since + LAG_SECONDS, where, (account.nonce, account.balance)
            if len(self._again) > MAX_WANTED:
                self._again.popitem(last=False)
                self.forgotten += 1
        elif pubkey not in self._wanted:
            self.want(pubkey, where)

    async def _ask_again(self, pubkey: bytes, where: Where, told: tuple[int, int]) -> None:
        """Tell an account whose answer was of before its block; what is not answered is as it was told."""
        if pubkey in self._wanted:
            return  # a newer block changed it
        await self._accounts.refresh(pubkey)
        account = self._accounts.book.get(pubkey)
        if account is None or (account.nonce, account.balance) == told:
            return
        self.on_answer(pubkey, account.nonce, account.balance, where)
