"""Asks the chain API how long a round is: at the start, now and then, and when it may have become another."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.network.chain_api import ChainApi, ChainApiError

log = logging.getLogger(__name__)

USUAL_SECONDS = 600.0
"""A change of the network's configuration shows in its headers, too: this is for who reads none."""
RETRY_SECONDS = 10.0
"""After a failure, and between two questions however often headers cast doubt: an epoch has minutes at least."""


class RoundLength:
    """Keeps `Rounds` told. Nobody waits for it: until it is answered the length stays what it was."""

    def __init__(self, api: ChainApi, rounds: Rounds) -> None:
        self._api = api
        self._rounds = rounds
        self._doubted = asyncio.Event()
        rounds.on_doubt = self._doubted.set
        self.problem = ""
        """Why the length may be another one; empty while nothing says so."""

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            is_confirmed = await self.ask()
            await asyncio.sleep(RETRY_SECONDS)
            if is_confirmed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(USUAL_SECONDS):
                        await self._doubted.wait()

    async def ask(self) -> bool:
        """Ask once; whether there was an answer, and no header contradicts it."""
        self._doubted.clear()
        try:
            self._rounds.said(await self._api.round_ms())
        except (ChainApiError, ValueError) as error:
            self._found(f"the chain API does not say how long a round is: {error}")
            return False
        is_confirmed = not self._rounds.is_contradicted
        self._found("" if is_confirmed else "headers show another length than the chain API says")
        return is_confirmed

    def _found(self, problem: str) -> None:
        """Say what is wrong, once as long as it stays so."""
        if problem and not self.problem:
            rounds = self._rounds
            log.warning(
                "the length of a round is not confirmed",
                extra={"problem": problem, "ms": rounds.ms, "source": rounds.source},
            )
        self.problem = problem
