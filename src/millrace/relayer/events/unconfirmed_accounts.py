"""Accounts announced before their block is final: held until a final block is as late, dropped when theirs is reverted.

`SaveAccounts` names no block, only a shard and a time, which is that of the block it belongs to.
"""

from __future__ import annotations

from collections import OrderedDict

from millrace.relayer.blocks.facts import AccountFact

MAX_HELD = 100_000
"""Accounts held in all; beyond it those that waited longest are forgotten: the chain API still knows them."""
MAX_REVERTED = 4096

Announced = tuple[int, tuple[AccountFact, ...]]
"""A time in ms, and the accounts as they were then."""


class UnconfirmedAccounts:
    """What is announced and not final, by shard and time."""

    def __init__(self, capacity: int = MAX_HELD) -> None:
        self._capacity = capacity
        self._held: OrderedDict[tuple[int, int], tuple[AccountFact, ...]] = OrderedDict()
        self._final: dict[int, int] = {}
        """Time in ms of each shard's latest final block."""
        self._reverted: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._count = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return self._count

    def announce(
        self, shard: int, time_ms: int, accounts: tuple[AccountFact, ...], *, unfinished: bool
    ) -> tuple[AccountFact, ...]:
        """Accounts of a block; those that can be believed at once, which is all or none.

        Believed is what is no later than the shard's last final block. Of a shard without one yet it is believed too,
        as at genesis, unless some of its blocks wait to become final (`unfinished`).
        """
        final = self._final.get(shard)
        if time_ms <= final if final is not None else not unfinished:
            return accounts
        key = (shard, time_ms)
        if key not in self._reverted:
            self._held[key] = (*self._held.pop(key, ()), *accounts)
            self._count += len(accounts)
            while self._count > self._capacity:
                self._count -= len(self._held.popitem(last=False)[1])
                self.forgotten += 1
        return ()

    def finalise(self, shard: int, time_ms: int) -> list[Announced]:
        """A block of this time is final: everything announced up to it, oldest first."""
        self._final[shard] = max(time_ms, self._final.get(shard, 0))
        due = sorted(at for of, at in self._held if of == shard and at <= time_ms)
        released = [(at, self._held.pop((shard, at))) for at in due]
        self._count -= sum(len(accounts) for _, accounts in released)
        return released

    def revert(self, shard: int, time_ms: int) -> None:
        """The block of this time was rolled back: what was announced with it never was, also if it comes late."""
        self._count -= len(self._held.pop((shard, time_ms), ()))
        self._reverted[(shard, time_ms)] = None
        if len(self._reverted) > MAX_REVERTED:
            self._reverted.popitem(last=False)
