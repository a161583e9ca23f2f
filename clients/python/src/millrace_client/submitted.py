"""Submissions: the same bytes are sent until each transaction is accepted, refused, or cannot be found out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container
from typing import Any

import msgspec

from millrace_client.errors import ClientError, Refused, Unreachable
from millrace_client.handle import Handle
from millrace_client.http import Patience
from millrace_client.link import ConnectionLost, Reply, Unreadable
from millrace_client.messages import FailedItem, Outcome

_LATER = frozenset(
    {"rate_limit_exceeded", "relayer_busy", "account_state_unavailable", "not_ready", "signer_unavailable"}
)
"""Refusals that the same bytes may not meet again after the time they tell."""
_BUSY = "relayer_busy"
"""An edge says so, too, of what the relayer behind it may have accepted."""
_AFTER_A_LOSS = frozenset({"nonce_too_low", "conflicting_transaction"})
"""Refusals of what was sent again that may only mean that the first one arrived."""
_WORDS_AFTER_A_LOSS = frozenset({"nonce too low", "invalid nonce"})
"""The same at a deployment that tells no codes."""


class Submitted(msgspec.Struct, frozen=True):
    """What became of several transactions: `handles` of those accepted, and why the others were `refused`."""

    handles: list[Handle]
    refused: list[Refused]


def only(submitted: Submitted) -> Handle:
    if submitted.refused and not submitted.handles:
        raise submitted.refused[0]
    return submitted.handles[0]


Ask = Callable[[dict[str, Any], float], Awaitable[Reply]]
"""Sends a message over a connection, which may take so many seconds to come up; raises what `Link.request` does."""
Known = Callable[[str], Awaitable[Outcome | None]]
"""What is known of a transaction by its hash."""


class Submitting:
    """Transactions on their way; `body` goes with each message. `asks_chain`: what is not known did not arrive.

    The same bytes are accepted once, so what was lost, or only has to wait, is sent again.
    """

    def __init__(
        self, ask: Ask, known: Known, body: dict[str, Any], handles: list[Handle], patience: Patience, asks_chain: bool
    ) -> None:
        self._ask, self._known, self._body, self._handles = ask, known, body, handles
        self._patience, self._asks_chain = patience, asks_chain
        self._open = list(range(len(handles)))
        """The places of those that are sent next."""
        self._refused: dict[int, Refused] = {}
        self._lost: set[int] = set()
        """The places of those of which an answer was lost; what it said may not be."""

    async def told(self, timeout: float) -> Submitted:
        """What became of each; an answer takes at most `timeout` seconds. Raises `Refused` of all as a whole."""
        whole = await self._until_told(timeout)
        doubted = [index for index, told in self._refused.items() if index in self._lost or told.code == _BUSY]
        arrived = await asyncio.gather(*map(self._may_have_arrived, doubted))
        for index, may in zip(doubted, arrived, strict=True):
            if may:
                del self._refused[index]
        if whole is not None and len(self._refused) == len(self._handles):
            raise whole
        handles = [handle for index, handle in enumerate(self._handles) if index not in self._refused]
        return Submitted(handles, [self._refused[index] for index in sorted(self._refused)])

    async def _until_told(self, timeout: float) -> Refused | None:
        """Send until nothing has to wait any longer, or patience ends; the last refusal of all that were sent."""
        end = time.monotonic() + self._patience.seconds
        tried, waited, whole = 0, 0.0, None
        while True:
            try:
                reply = await self._reply(timeout, end)
            except Unreachable:
                if tried == 0:
                    raise
                return whole  # nothing more was sent: what was said stands
            if reply is None:
                for index in self._open:
                    self._refused.pop(index, None)
                return None
            whole = reply.refusal()
            self._take(reply, whole)
            later = [index for index in self._open if index in self._refused and self._refused[index].code in _LATER]
            waits = [told for index in later if (told := self._refused[index].retry_after) is not None]
            pause = self._patience.pause(tried, max(waits, default=None), waited) if later else None
            if pause is None:
                return whole
            tried, waited, self._open = tried + 1, waited + pause, later
            await asyncio.sleep(pause)

    async def _reply(self, timeout: float, end: float) -> Reply | None:
        """The next reply; None: it was lost or cannot be read, and the same bytes did not help in time.

        Raises `Unreachable` where nothing was sent.
        """
        transactions = [self._handles[index].transaction for index in self._open]
        body = self._body | ({"tx": transactions[0]} if len(transactions) == 1 else {"txs": transactions})
        while True:
            try:
                return await self._ask(body, max(0.0, end - time.monotonic()) if self._lost else timeout)
            except Unreachable:
                if self._lost:
                    return None
                raise
            except Unreadable:
                self._lost.update(self._open)
                return None
            except (ConnectionLost, TimeoutError):
                self._lost.update(self._open)
                if time.monotonic() > end:
                    return None

    def _take(self, reply: Reply, whole: Refused | None) -> None:
        """Note what a reply says of those it was asked of."""
        if whole is not None:
            told = dict.fromkeys(range(len(self._open)), whole)
        else:
            told = {item.index: _refusal(item) for item in reply.failed}
        hashes = _chain_hashes(reply, len(self._open), told.keys())
        for place, index in enumerate(self._open):
            handle, refused = self._handles[index], told.get(place)
            if refused is not None:
                self._refused[index] = _at(refused, index)
                continue
            self._refused.pop(index, None)
            if reply.status != "failed":  # else it contradicts itself: nothing is known of this one
                handle.accepted = True
                handle.hash = hashes.get(place, handle.hash)

    async def _may_have_arrived(self, index: int) -> bool:
        """Whether what is refused now may have been accepted before."""
        refused = self._refused[index]
        means_it = refused.code in _AFTER_A_LOSS or refused.reason in _WORDS_AFTER_A_LOSS
        try:
            known = await self._known(self._handles[index].client_hash)
        except ClientError:
            return True
        return known is not None or (means_it and not self._asks_chain)


def _refusal(item: FailedItem) -> Refused:
    after = None if item.retry_after_ms is None else item.retry_after_ms / 1000
    return Refused(item.reason, code=item.code, detail=item.detail, retry_after=after)


def _at(refused: Refused, index: int) -> Refused:
    """The same of the transaction at this place."""
    return Refused(
        refused.reason, code=refused.code, detail=refused.detail, retry_after=refused.retry_after, index=index
    )


def _chain_hashes(reply: Reply, count: int, refused: Container[int]) -> dict[int, str]:
    """The chain's hashes by place: as the reply links them, else in the order of what was accepted."""
    if reply.results:
        return {item.index: item.hash for item in reply.results}
    return dict(zip((place for place in range(count) if place not in refused), reply.hashes, strict=False))
