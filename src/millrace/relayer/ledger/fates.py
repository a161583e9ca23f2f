"""What became of the transactions that were accepted here: told to who waits for it, and kept for who asks later.

What may still run is asked of the table of what is in flight; what is over, of the file. In between, from the block of
the sender's shard to the end of everything the transaction caused, it is followed here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.journal.fates import MAX_OPEN, UNSEEN, Fate, Fates, Place, State
from millrace.relayer.ledger.inflight import End, Entry, InFlight
from millrace.relayer.protocol import reasons

MAX_WAITERS = 1_000
"""Futures that wait for an end, of all clients; who comes when there are so many is told what is known at once."""
CLIENT_PART = 10
"""Of these one client address may have as much as the total divided by this."""

_ENDED: dict[str, State] = {
    "finished": "included",
    "superseded": "superseded",
    "unseen": "superseded",
    "dropped": "dropped",
    "written off": "written off",
}
"""What a row's state means to who asks; `unseen`: superseded, as far as is known."""


class FateBook:
    """In the lifecycle's event loop; without a file only what is in flight can be asked for."""

    def __init__(self, inflight: InFlight, wall_ms: Callable[[], int]) -> None:
        self.store: Fates | None = None
        self._inflight = inflight
        self._wall_ms = wall_ms
        self._open: OrderedDict[bytes, Fate] = OrderedDict()
        """By chain hash: in flight no more, and not ended as far as is known."""
        self._early: dict[bytes, int] = {}
        """By chain hash of what has ended before its sender's shard was heard of it: the event from which on that would
        have to be read again."""
        self._waiting: dict[bytes, list[asyncio.Future[Fate]]] = {}
        """By client hash."""
        self._elsewhere: dict[bytes, Fate] = {}
        """By client hash what somebody waits for that another relayer of our keys has: its end is all that is told."""
        self.waiters = 0
        self._waiters_of: Counter[str] = Counter()
        """Of each client address."""

    @property
    def followed(self) -> int:
        """In flight no more, and not ended as far as is known."""
        return len(self._open)

    @property
    def low_water(self) -> int | None:
        """The oldest event of which only memory has what it told of an end."""
        return min(self._early.values(), default=None)

    def restore(self, fates: Iterable[Fate]) -> None:
        """Go on following these."""
        for fate in fates:
            if fate.may_end:
                self._follow(fate)

    # ---- what happens

    def over(self, entry: Entry, how: str, fee: int | None, block: BlockFacts | None) -> None:
        """An entry is in flight no more: its row's new state, and as far as known what it cost and in which block."""
        self._early.pop(entry.chain_hash, None)
        if entry.refusal is not None and not entry.broadcast:
            return  # never accepted, or only to be signed
        place = None if block is None else Place(block.shard, block.nonce, block.block_hash, block.timestamp_ms)
        state, reason = _ENDED[how], UNSEEN if how == "unseen" else ""
        if entry.refusal is not None:
            reason = entry.refusal.reason
            state = state if entry.refusal.code == reasons.NONCE_TOO_LOW.code else "dropped"
        fate = self._fate(entry, state, reason, fee, place)
        if how == "finished" and entry.end is not None and entry.end.is_final:
            fate = msgspec.structs.replace(fate, state=entry.end.status, reason=entry.end.reason)
        if fate.may_end:
            self._follow(fate)
        self._keep(fate)

    def ended(
        self,
        tx_hash: bytes,
        status: Literal["success", "fail"],
        reason: str,
        *,
        is_final: bool = True,
        since: int | None = None,
        client_hash: bytes = b"",
    ) -> None:
        """The chain says how a transaction ended; not `is_final` where it may be sent again and end otherwise.

        `since`: the event from which on who starts again would read of it; `client_hash`: of what a relayer signed.
        """
        known = self._open.get(tx_hash)
        if known is not None:
            if not is_final:
                return  # given up already, and followed on
            del self._open[tx_hash]
            self._keep(msgspec.structs.replace(known, state=status, reason=reason, time_ms=self._wall_ms()))
            return
        entry = self._inflight.by_chain_hash(tx_hash)
        if entry is not None:
            entry.end = End(status, reason, is_final)
            if since is not None:
                self._early[tx_hash] = since
            self._tell(self.of(entry))
        elif (fate := self._elsewhere.get(client_hash)) is not None:
            now_ms = self._wall_ms()
            self._tell(msgspec.structs.replace(fate, chain_hash=tx_hash, state=status, reason=reason, time_ms=now_ms))

    # ---- who asks

    def of(self, entry: Entry) -> Fate:
        """What is known of an entry in flight."""
        end = entry.end
        return self._fate(
            entry, "pending" if end is None else end.status, "" if end is None else end.reason, None, None
        )

    async def find(self, tx_hash: bytes) -> tuple[Fate, Entry | None] | None:
        """What is known of a transaction by any of its hashes, and its entry if it is in flight.

        Raises `FatesUnavailable`.
        """
        entry = self._inflight.by_any_hash(tx_hash)
        if entry is not None:
            return self.of(entry), entry
        fate = self._open.get(tx_hash)
        if fate is None and self.store is not None:
            fate = await self.store.find(tx_hash)
        return None if fate is None else (fate, None)

    def wait(self, entry: Entry, client: str) -> asyncio.Future[Fate] | None:
        """A future of the end of a transaction, `None` when too many wait, of this client address or of all.

        Give it back with `forget`.
        """
        client_hash = entry.client_hash
        if self.waiters >= MAX_WAITERS or self._waiters_of[client] * CLIENT_PART >= MAX_WAITERS:
            return None
        self._waiters_of[client] += 1
        future: asyncio.Future[Fate] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client_hash, []).append(future)
        if entry.state == "over":
            self._elsewhere[client_hash] = self.of(entry)
        self.waiters += 1
        return future

    def forget(self, client_hash: bytes, client: str, future: asyncio.Future[Fate]) -> None:
        """Nobody waits for this future any more."""
        waiting = self._waiting[client_hash]
        waiting.remove(future)
        self.waiters -= 1
        self._waiters_of[client] -= 1
        if not self._waiters_of[client]:
            del self._waiters_of[client]
        if not waiting:
            del self._waiting[client_hash]
            self._elsewhere.pop(client_hash, None)

    # ---- insides

    def _fate(self, entry: Entry, state: State, reason: str, fee: int | None, place: Place | None) -> Fate:
        return Fate(
            client_hash=entry.client_hash,
            sdk_hash=entry.sdk_hash,
            chain_hash=entry.chain_hash,
            sender=entry.tx.sender,
            nonce=entry.tx.nonce,
            kind=entry.kind,
            relayer=entry.tx.relayer,
            max_fee=str(entry.fee),
            state=state,
            reason=reason,
            fee=None if fee is None else str(fee),
            place=place,
            time_ms=self._wall_ms(),
        )

    def _follow(self, fate: Fate) -> None:
        self._open[fate.chain_hash] = fate
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def _keep(self, fate: Fate) -> None:
        if self.store is not None:
            self.store.put(fate)
        if fate.is_over:
            self._tell(fate)

    def _tell(self, fate: Fate) -> None:
        for future in self._waiting.get(fate.client_hash, ()):
            if not future.done():
                future.set_result(fate)
