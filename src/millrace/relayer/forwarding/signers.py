"""The relayers that sign for an edge: who takes what, and what happens to it when one of them goes away.

A transaction goes to a relayer that has the key it names, among several always to the same one for a sender (highest
random weight, so that one that comes or goes moves only what is its own). One that says that it is not ready, as it has
lost the claims' server, say, gets nothing new while another that has the key is: whose a nonce is the claims decide,
not the way there. What was sent and not answered when a connection ends goes, the same bytes, to another that has the
key, or to the same one when it is back: bytes that were accepted are answered as they were then, and of one key there
are several holders only where they share their claims. Nobody else is asked: a relayer without the key would say of
what may run that it never will.

Where submissions come close together they wait for each other here, and not at their relayer: what it takes to tell it
of them, and to hear of them, is spent once for all.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from millrace.relayer.forwarding import wire
from millrace.relayer.forwarding.parts import Routed, Taken
from millrace.relayer.forwarding.upstream import Owner, Pending, Upstream
from millrace.relayer.forwarding.wire import Refusal
from millrace.relayer.gateway.gathering import LONG, Gathering
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.settings import RelayerSettings

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""Between two looks whether something has waited too long for a connection."""
AWAY = reasons.BUSY.but("the relayer that signs for it cannot be reached; send the same bytes again", 1_000)
"""Of what was sent to nobody."""
UNKNOWN = reasons.BUSY.but(
    "the relayer that signs for it went away before its answer, so whether it was accepted is not known: send the same"
    " bytes again, or ask GET /v1/transactions/{hash}",
    1_000,
)
"""Of what was sent."""
SILENT = reasons.BUSY.but(
    "the relayer that signs for it does not answer, so whether it was accepted is not known: send the same bytes again,"
    " or ask GET /v1/transactions/{hash}",
    1_000,
)
"""Of what a relayer has kept for too long."""
ANSWER_SECONDS = 75.0
"""A relayer answers within `max_wait` and `sign_wait`, in seconds. As long as over HTTP, where an end is waited for."""
FULL = reasons.BUSY.but("too much waits for the relayer that signs for it", 500)


class Client(Owner, Protocol):
    """A connection of a client that submits."""

    def announced(self, tx_hash: bytes) -> None:
        """A transaction of it was accepted and is about to leave."""

    def rest(self, seconds: float) -> None:
        """Read nothing from it for so long."""

    def close(self, code: int, reason: str) -> None:
        """Close its connection."""


class Signers:
    """All relayers that this edge forwards to."""

    def __init__(
        self,
        settings: RelayerSettings,
        on_refusal: Callable[[Refusal], None],
        clock: Callable[[], float] = time.monotonic,
        on_taken: Callable[[Sequence[Taken]], None] = lambda items: None,
    ) -> None:
        """`on_refusal` hears that an accepted transaction will never run, `on_taken` of those that are accepted.

        Whoever gets an answer tells `on_taken`.
        """
        self.on_taken = on_taken
        chain_id = settings.network().chain_id
        self.all = [Upstream(url, self, clock, chain_id) for url in settings.forward_to]
        self.only = self.all[0] if len(self.all) == 1 else None
        """Who takes everything, where there is no choice."""
        self.forwarded = 0
        """Transactions forwarded since the start, …"""
        self.again = 0
        """… those sent once more as a connection was lost, …"""
        self.refused = 0
        """… and those refused for want of room or of a relayer, or of its answer."""
        self.gathering: Gathering[Upstream] = Gathering(depart, clock)
        self._most, self._patience = settings.forward_waiting, settings.forward_wait
        self._on_refusal, self._clock = on_refusal, clock
        self._numbers = itertools.count(1)
        self._channels = itertools.count(1)
        self._clients: dict[int, Client] = {}

    @property
    def is_up(self) -> bool:
        """Whether there is any of them."""
        return self.up > 0

    @property
    def up(self) -> int:
        """How many there are now."""
        return sum(upstream.is_up for upstream in self.all)

    @property
    def losses(self) -> int:
        """Connections lost since the start."""
        return sum(upstream.losses for upstream in self.all)

    @property
    def waiting(self) -> int:
        """Transactions forwarded, or to be, and not answered."""
        return sum(upstream.transactions for upstream in self.all)

    def state(self) -> dict[str, str]:
        """What `/health` says of each."""
        return {upstream.url: _state_of(upstream) for upstream in self.all}

    async def run(self) -> None:
        """Keep all connections, and let nothing wait for one for too long."""
        await asyncio.gather(self._look(), *(upstream.run() for upstream in self.all))

    # ---- clients

    def enter(self, client: Client) -> int:
        """A channel for a client."""
        channel = next(self._channels)
        self._clients[channel] = client
        return channel

    def leave(self, channel: int, numbers: Iterable[int]) -> None:
        """A client has gone, and nobody waits for answers under these numbers."""
        self._clients.pop(channel, None)
        gone = list(numbers)
        for upstream in self.all:
            for number in gone:
                upstream.forget(number)
            upstream.left(channel)

    def next_number(self) -> int:
        """Under which a submission, or a part of one, is answered."""
        return next(self._numbers)

    # ---- who takes what

    def choose(self, item: Routed) -> Upstream:
        """Who takes a transaction: ready to sign it if any that may is, or else up."""
        if self.only is not None:
            return self.only
        return _nearest(item.sender, _best(self.holders(item.relayer)))

    def holders(self, relayer: str) -> Sequence[Upstream]:
        """Who may take what names this relayer, or none."""
        if not relayer:
            return self.all
        holders = [each for each in self.all if relayer in each.addresses]
        # While one has never said who it is it may be that one; when all have, any of them says why not.
        return holders or [each for each in self.all if each.said is None] or self.all

    def send(self, pending: Pending, upstream: Upstream) -> Reason | None:
        """Forward a submission; why not, where there is no room."""
        size = pending.size
        if upstream.transactions + size > self._most or upstream.is_full:
            self.refused += size
            return FULL
        self.forwarded += size
        pending.until = self._clock() + ANSWER_SECONDS
        upstream.send(pending)
        if size < LONG:
            pending.owner.seen = self.gathering.join(size, pending.owner.seen, upstream)
        else:
            upstream.set_out()
        return None

    # ---- what relayers say

    def heard(self, upstream: Upstream, record: bytes) -> None:
        """A record of a relayer. Raises `WireError`."""
        kind = record[:1]
        if kind == wire.ANNOUNCE:
            channel, tx_hash = wire.read_announce(record)
            if channel in self._clients:
                self._clients[channel].announced(tx_hash)
        elif kind == wire.REST:
            channel, seconds = wire.read_rest(record)
            if channel in self._clients:
                self._clients[channel].rest(seconds)
        elif kind == wire.CLOSE:
            channel, code, reason = wire.read_close(record)
            if channel in self._clients:
                self._clients[channel].close(code, reason)
        elif kind == wire.REFUSED:
            self._on_refusal(wire.read_refused(record))

    def found(self, upstream: Upstream) -> None:
        """A relayer is there (again): it is sent what waits for it."""
        for pending in list(upstream.waiting.values()):
            self.again += pending.size if pending.sent else 0
            upstream.send(pending)
        upstream.set_out()

    def lost(self, upstream: Upstream) -> None:
        """A relayer is gone: what it has not answered goes to another that has the key, or waits."""
        for pending in list(upstream.waiting.values()):
            other = self._other(pending, upstream)
            if other is not None:
                upstream.forget(pending.number)
                self.again += pending.size
                other.send(pending)
                other.set_out()

    def _other(self, pending: Pending, lost: Upstream) -> Upstream | None:
        named = {item.relayer for item in pending.items} - {""}
        known = frozenset(address for each in self.all for address in each.addresses)
        if named - known:  # a part that nobody pays for is refused in the right words by whoever pays for the others
            named &= known
        able = [each for each in self.all if each is not lost and each.accepts and named <= each.addresses]
        return _nearest(pending.items[0].sender, _best(able)) if able else None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.give_up()

    def give_up(self) -> None:
        """Answer what has waited too long, for a connection or for its answer: what is known of it, and what is not."""
        now = self._clock()
        before = now - self._patience
        for upstream in self.all:
            for pending in list(upstream.waiting.values()):
                is_away = pending.since is not None and pending.since <= before
                if not is_away and now < pending.until:
                    continue
                upstream.forget(pending.number)
                self.refused += pending.size
                lost = UNKNOWN if is_away else SILENT
                pending.owner.answered(pending, lost if pending.sent else AWAY)


def depart(upstreams: Iterable[Upstream]) -> None:
    """What was sent to these has waited for company, and leaves now."""
    for upstream in set(upstreams):
        upstream.depart()


def _state_of(upstream: Upstream) -> str:
    if not upstream.is_up:
        return "stands by" if upstream.stands_by else "away"
    return "leaving" if upstream.is_leaving else "ok" if upstream.is_ready else "not ready"


def _best(among: Sequence[Upstream]) -> Sequence[Upstream]:
    """Those that are ready; without any those that are up, whose refusals say why; without any all of them."""
    return [each for each in among if each.is_ready] or [each for each in among if each.accepts] or among


def _nearest(sender: str, among: Sequence[Upstream]) -> Upstream:
    """The one with the highest weight for a sender."""
    if len(among) == 1:
        return among[0]
    return max(among, key=lambda each: hashlib.blake2b(f"{sender} {each.url}".encode(), digest_size=8).digest())
