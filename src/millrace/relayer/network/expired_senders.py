"""What became of transactions that are sent no more: their senders are asked about in turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from millrace.relayer.ledger.inflight import InFlight
from millrace.relayer.network.account_source import AccountSource


class ExpiredSenders:
    """Senders of expired entries; everybody's turn comes before anybody's second, however many never move."""

    def __init__(
        self, inflight: InFlight, accounts: AccountSource, others: Callable[[], Iterable[bytes]] = lambda: ()
    ) -> None:
        self._inflight = inflight
        self._others = others
        """Further senders whose nonces are waited for."""
        self._accounts = accounts
        self._turns: deque[bytes] = deque()

    async def ask(self, most: int) -> None:
        """Have the next senders, `most` at a time, asked for at the chain API, which ends what their nonces passed.

        A round ends early when the API does not answer; the next one goes on behind the sender it failed for.
        """
        for _ in range(most):
            sender = self._next()
            if sender is None:
                return
            await self._accounts.refresh(sender)
            if self._accounts.is_silent:
                return

    def _next(self) -> bytes | None:
        """The sender whose turn it is; the list is made anew when all have had theirs, once in a round at most."""
        if not self._turns:
            expired = (entry.tx.sender for entry in self._inflight.entries() if entry.state == "expired")
            self._turns.extend(dict.fromkeys((*expired, *self._others())))
        return self._turns.popleft() if self._turns else None
