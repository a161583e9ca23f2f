"""Asks the chain API what relayer keys hold: a new key at once, each now and then, and when the ledger wants to know.

What the ledger makes of the answers is told by `ledger/balances.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from millrace.relayer.ledger.balances import Reading
from millrace.relayer.ledger.sponsor import Sponsor
from millrace.relayer.network.chain_api import ChainApi, ChainApiError

log = logging.getLogger(__name__)

BALANCE_SECONDS = 15.0
"""Between two questions for a key whose ledger misses nothing: what nobody told of comes to light by then."""
RETRY_SECONDS = 1.0
"""Between two questions for a key that the ledger wants to know of."""
GUARDIAN_SECONDS = 60.0


class KeyBalances:
    """One task; `refresh` may be awaited by others, as when keys were replaced."""

    def __init__(
        self,
        api: ChainApi | None,
        sponsor: Sponsor,
        by_shard: Callable[[], Mapping[int, bytes]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._sponsor = sponsor
        self._by_shard = by_shard
        self._clock = clock
        self._asked_at: dict[bytes, float] = {}
        self._guardian_at: dict[bytes, float] = {}
        self._news = asyncio.Event()
        self._alarms: set[tuple[int, str]] = set()
        sponsor.balances.on_wanted = self._news.set

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.refresh()
            self._alarm()
            self._news.clear()
            wanted = bool(self._sponsor.balances.wanted)
            try:
                async with asyncio.timeout(RETRY_SECONDS):
                    await (asyncio.Event().wait() if wanted else self._news.wait())
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Ask for the keys that are due, all at once."""
        by_shard = dict(self._by_shard())
        self._sponsor.balances.watch(by_shard)
        if self._api is not None:
            await asyncio.gather(*(self._ask(self._api, shard, key) for shard, key in by_shard.items()))

    async def _ask(self, api: ChainApi, shard: int, key: bytes) -> None:
        now, balances = self._clock(), self._sponsor.balances
        since = now - self._asked_at.get(key, float("-inf"))
        if since < (RETRY_SECONDS / 2 if key in balances.wanted else BALANCE_SECONDS):
            return
        self._asked_at[key] = now
        try:
            found = await api.balance(key)
            balances.read(key, Reading(found.balance, now, found.height, found.block_hash, found.nonce))
            if now - self._guardian_at.get(key, float("-inf")) >= GUARDIAN_SECONDS:
                self._guardian_at[key] = now
                if (await api.account(key)).guardian:
                    log.error(
                        "this relayer's account is guarded: nodes refuse what it pays for", extra={"shard": shard}
                    )
        except ChainApiError:
            balances.want(key)

    def _alarm(self) -> None:
        """Tell once, and again only after it was better, what a key lacks."""
        for shard, key in self._by_shard().items():
            state = self._sponsor.state_of(key)
            for name, is_so in (
                ("relayer balance is low", state.is_low),
                ("relayer key runs out of funds soon", state.runs_out),
                ("relayer key cannot pay", state.condition == "short of funds"),
            ):
                if is_so and (shard, name) not in self._alarms:
                    self._alarms.add((shard, name))
                    log.warning(name, extra={"shard": shard, "spendable": str(state.spendable)})
                elif not is_so:
                    self._alarms.discard((shard, name))
