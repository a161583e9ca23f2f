"""What a submission is on its way: its transactions, how far they are, and what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from millrace.chain.transaction import Transaction
from millrace.relayer.ledger.inflight import Entry
from millrace.relayer.protocol import reasons
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.stages import Origin, Reserved


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """A transaction the relayer stands for."""

    tx: Transaction
    client_hash: bytes
    chain_hash: bytes
    """Empty while it is pending: journalled, and not signed yet, as the signing process is being replaced."""
    sdk_hash: bytes = b""


Result = Accepted | Reason
Announce = Callable[[Entry], None]
GivenUp = Callable[[], Reason | None]


class Batch:
    """A submission between `take` and `finish`; its last part is to be finished then, earlier ones are on their way."""

    def __init__(self, origin: Origin, size: int, announce: Announce | None, given_up: GivenUp = lambda: None) -> None:
        self.origin = origin
        self.announce = announce
        self.given_up = given_up
        """Why what is not in the journal yet is worth no work any more: its client has gone, or has waited too long."""
        self.unserved = 0
        """How many were given up as they waited too long, or their client has gone: the service is no faster for it."""
        self.results: list[Result | None] = [None] * size
        self.taken: list[Taken] = []
        """Of the last part, …"""
        self.stretch = 1
        """… which may be so many times longer than usual."""
        self.under_way: list[asyncio.Task[None]] = []
        self.simulated = 0.0
        """Seconds it has waited for simulations."""

    def answers(self) -> list[Result]:
        """One result per transaction, in order; nothing else is kept."""
        self.taken = []  # each of which names this batch
        assert all(result is not None for result in self.results)
        return [result for result in self.results if result is not None]

    def count_given_up(self, reason: Reason, number: int) -> None:
        """So many were given up for this reason."""
        if reason.code == reasons.BUSY.code:
            self.unserved += number


class Taken(msgspec.Struct, frozen=True, eq=False):
    """A transaction after `take`: reserved anew, or one that was submitted before."""

    position: int
    entry: Entry
    reserved: Reserved
    is_new: bool
    batch: Batch
    """The submission it came with."""

    def answer(self, result: Result) -> None:
        """Say what became of it."""
        self.batch.results[self.position] = result
