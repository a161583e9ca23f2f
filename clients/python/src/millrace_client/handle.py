"""A transaction that was handed to a relayer, and what becomes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Protocol

from millrace_client.errors import ClientError, OutcomeUnknown, Refused
from millrace_client.link import ConnectionLost
from millrace_client.messages import Outcome, Push, TxStatus
from millrace_client.transaction import Transaction

_ASK_SECONDS = 5.0  # between questions for what a lost connection may have cost; pushes are what is waited for
_LIFETIME = 61.0  # a subscription of a status ends after 60 s


class Source(Protocol):
    """What a handle asks of its relayer."""

    async def outcome(self, tx_hash: str, chain_hash: str | None = None) -> Outcome | None:
        """What is known of a transaction."""

    async def listen(self, topic: str, handle: Handle) -> None:
        """Subscribe."""

    def leave_later(self, topic: str, handle: Handle) -> None:
        """Unsubscribe, without anybody waiting for it."""


class Handle:
    """One submitted transaction. `await handle.final()` says how it ended."""

    def __init__(self, transaction: Transaction, source: Source) -> None:
        self.transaction = transaction
        """As it was signed here."""
        self.client_hash = transaction.client_hash()
        """The hash that is known before it is sent; the relayer knows the transaction by it."""
        self.hash = self.client_hash
        """The chain's hash, as soon as the relayer has told it."""
        self.accepted: bool | None = None
        """Whether the relayer accepted it; None: its answer was lost, and nobody could say."""
        self.last = Outcome(hash=self.client_hash, state="pending")
        """The newest that is known."""
        self._source = source
        self._changed = asyncio.Event()
        self._subscribed_at = time.monotonic()
        self._trouble = ""

    @property
    def topic(self) -> str:
        """The topic on which its status is told."""
        return f"tx-status/{self.client_hash}"

    async def final(self, timeout: float = 120.0) -> Outcome:
        """How it ended: `state` is `success`, `fail` (with a `reason`), `superseded`, `dropped` or `written off`.

        Raises `OutcomeUnknown` when that could not be found out within `timeout` seconds.
        """
        outcome = self.last
        async for outcome in self.progress(timeout):  # noqa: B007
            pass
        return outcome

    async def progress(self, timeout: float = 120.0) -> AsyncIterator[Outcome]:
        """Every state as it becomes known, the final one last. Raises `OutcomeUnknown` as `final` does."""
        end = time.monotonic() + timeout
        told = ""
        while True:
            if self.last.state != told:
                told = self.last.state
                yield self.last
                continue  # who reads may have taken his time: it may have gone on meanwhile
            if self.last.has_ended:
                return
            left = end - time.monotonic()
            if left <= 0:
                why = self._trouble or f"no status within {timeout:g} s"
                raise OutcomeUnknown(self.hash, self._state(), self.accepted, why)
            await self._wait(min(left, _ASK_SECONDS))

    def _state(self) -> str:
        return "sent, its acceptance not known" if self.accepted is None else self.last.state

    async def _wait(self, seconds: float) -> None:
        """Wait for a push, or for a reason to ask; then ask."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()
        if self.last.has_ended:
            return
        try:
            known = await self._source.outcome(self.client_hash, self.hash)
            if known is not None:
                self.accepted = True
                self._learn(known)
                return
            self._trouble = (
                "the relayer tells nothing of it" if self.accepted else "nobody knows it: it may not have arrived"
            )
            if time.monotonic() - self._subscribed_at > _LIFETIME:
                self._subscribed_at = time.monotonic()
                await self._source.listen(self.topic, self)
        except (ClientError, ConnectionLost, TimeoutError) as error:
            self._trouble = str(error)

    def _learn(self, known: Outcome) -> None:
        if self.last.has_ended:
            return
        self.last = known
        self.hash = known.chain_hash or self.hash
        if known.has_ended:
            self._changed.set()
            self._source.leave_later(self.topic, self)

    # ---- listener of its topic

    def heard(self, message: Push) -> None:
        """Its status came."""
        if isinstance(message, TxStatus):
            self.accepted = True
            data = message.data
            self._learn(
                Outcome(
                    hash=data.hash,
                    state=data.status,
                    reason=data.reason,
                    chain_hash=data.chain_hash,
                    client_hash=self.client_hash,
                )
            )

    def lost(self, since: float, until: float) -> None:
        """A status is told once, perhaps while the connection was away: it has to be asked for."""
        self._changed.set()

    def ended(self, error: Refused) -> None:
        """No status will be told; asking goes on."""
        self._trouble = str(error)
        self._changed.set()

    def __repr__(self) -> str:
        return f"Handle({self.hash}, {self._state()})"
