"""Asks the chain API what a transaction would come to, before one of our keys pays for who keeps failing.

What it says holds for a moment only, and whoever is bent on it can make a contract that behaves while it is tried. So
it lets in one transaction of a sender at a time, and who fails all the same is not believed again (`Reputation`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.network.chain_api import ChainApi, ChainApiError
from millrace.relayer.rules.stages import Parsed

AT_ONCE = 8
"""Questions under way: a fourth of what the chain API is asked at once, the rest is for accounts and transactions."""
AT_ONCE_PER_CLIENT = 2
KEPT = 10_000
SILENT_SECONDS = 0.5
"""After a failure nothing is asked for so long."""


class Simulator:
    """`would_run` asks; `said_so` is what was answered a moment ago. At most `KEPT` answers, the oldest go first."""

    def __init__(
        self,
        api: ChainApi,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        rounds: Rounds | None = None,
    ) -> None:
        self._rounds = Rounds() if rounds is None else rounds
        self.seconds = seconds
        """What one submission may spend on questions, however many they are."""
        self.counts: Counter[str] = Counter()
        """Questions by answer: `success`, `fail`, `unanswered`, and `busy` where none was asked."""
        self._api = api
        self._clock = clock
        self._answers: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()
        """By client hash, with the time until which it is taken."""
        self._under_way: Counter[str] = Counter()
        self._silent_until = 0.0

    @property
    def valid_seconds(self) -> float:
        """So long an answer is taken for the same bytes: a round, as the next block may change it.

        It is not heard before its submission has asked for the last time.
        """
        return self._rounds.seconds + self.seconds

    def said_so(self, client_hash: bytes) -> bool:
        """Whether this transaction was found to run, a moment ago."""
        return self._known(client_hash) is True

    async def would_run(self, parsed: Parsed, seconds: float) -> bool:
        """Whether it would succeed now; `False` also when nobody says so within that time."""
        known = self._known(parsed.client_hash)
        if known is not None:
            return known
        client = parsed.origin.ip
        if (
            seconds <= 0
            or self._clock() < self._silent_until
            or self._under_way.total() >= AT_ONCE
            or self._under_way[client] >= AT_ONCE_PER_CLIENT
        ):
            self.counts["busy"] += 1
            return False
        self._under_way[client] += 1
        try:
            async with asyncio.timeout(seconds):
                verdict = await self._api.simulate(parsed.tx)
        except (ChainApiError, TimeoutError):
            self._silent_until = self._clock() + SILENT_SECONDS
            self.counts["unanswered"] += 1
            return False
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]
        self.counts["success" if verdict else "fail"] += 1
        self._answers[parsed.client_hash] = (verdict, self._clock() + self.valid_seconds)
        if len(self._answers) > KEPT:
            self._answers.popitem(last=False)
        return verdict

    def _known(self, client_hash: bytes) -> bool | None:
        verdict, until = self._answers.get(client_hash, (False, 0.0))
        return verdict if self._clock() < until else None
