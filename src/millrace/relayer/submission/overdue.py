"""What was only signed and nobody has sent: sent once its time is over, so that what may be kept signed is not hoarded.

Senders have their turns. Of the one whose turn it is everything goes that can run now: from the account's nonce on
without a gap, as far ahead as nodes take it, while its balance does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.network.account_source import AccountSource
from millrace.relayer.protocol.reasons import Refused

ROUND_SECONDS = 10.0
ASKED_AT_ONCE = 32
"""Senders in a round of whom the chain API has to be asked …"""
SENT_AT_ONCE = 1_000
"""… and transactions that it may send, which is as soon as gossip takes them."""
SENDERS_IN_A_ROW = 16
"""Whoever else there is has a turn after so many senders."""
NONCES_AHEAD = 100
"""Nodes take nothing that is further ahead of its account."""


class Overdue:
    """Everybody's turn comes before anybody's second, however many can never run."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        accounts: AccountSource,
        send: Callable[[Entry], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._lifecycle = lifecycle
        self._accounts = accounts
        self._send = send
        self._now_ms = now_ms
        self._turns: deque[bytes] = deque()

    async def run(self) -> None:
        """Every ten seconds, for ever."""
        while True:
            await self.work()
            await asyncio.sleep(ROUND_SECONDS)

    async def work(self) -> None:
        """One round, which ends early when the chain API does not answer."""
        before_ms = self._before_ms()
        if not self._turns:
            self._turns.extend(dict.fromkeys(entry.tx.sender for entry in self._lifecycle.overdue(before_ms)))
        asked = sent = 0
        for turn in range(len(self._turns)):
            if asked == ASKED_AT_ONCE or sent >= SENT_AT_ONCE:
                return
            if turn % SENDERS_IN_A_ROW == SENDERS_IN_A_ROW - 1:
                await asyncio.sleep(0)
            sender = self._turns.popleft()
            # Without the whole stream of events what is known may be old, and what ran is told by nobody else.
            is_deaf = self._lifecycle.may_have_missed(sender)
            if is_deaf or self._accounts.known(sender) is None:
                asked += 1
                if is_deaf:
                    await self._accounts.refresh(sender)
            try:
                account = await self._accounts.know(sender)
            except Refused:  # the next round asks the next one
                return
            for entry in self._that_can_run(sender, account.nonce, account.balance, before_ms):
                self._send(entry)
                sent += 1

    def _before_ms(self) -> int:
        seconds = self._lifecycle.sponsor.policy.strangers.sign_only_seconds
        return self._now_ms() - int(seconds * 1000)

    def _that_can_run(self, sender: bytes, nonce: int, balance: int, before_ms: int) -> list[Entry]:
        """A sender's overdue transactions from its account's nonce on, behind what is on its way already."""
        entries, found = self._lifecycle.inflight.of_sender(sender), list[Entry]()
        for at in range(nonce, nonce + NONCES_AHEAD):
            entry = entries.get(at)
            if entry is None:
                break
            balance -= entry.cost_to_sender
            is_overdue = self._lifecycle.is_overdue(entry, before_ms)
            if balance < 0 or not (is_overdue or entry.sending):
                break
            if is_overdue:
                found.append(entry)
        return found
