"""How much of a key's pools is strangers', and how much of that one address's.

What strangers may hold together has a bound of its own, so that known people find the rest. An address's share of it
shrinks once others leave too little: it may take at most half of what is free, and the less the smaller the free part
is (`HALF` of its square). So after n addresses that took all they may one after the other the next one finds at least
as much free as an even part of n + 1. Nothing is taken back from who came first; but as it leaves the windows, those
who hold more than their share is by now get nothing more, and those who ask all the time come to have the same.
"""

from __future__ import annotations

import math

import msgspec

from millrace.relayer.rules.policy import Budget

HALF = 50
"""Percent of what others leave that one address may take at most, unless its share is larger by the policy."""


class Part(msgspec.Struct, frozen=True):
    """What strangers may hold of one pool: together, and each address."""

    together: int
    alone: int
    """What an address may while others hold no more than `quiet`."""
    quiet: int
    steep: int
    """Beyond that: in percent of the square of what they leave, of a pool of 1."""
    least: int
    """What it may whatever others hold, as long as there is so much."""

    @classmethod
    def of(cls, pool: int, together_percent: int, percent: int, least: int) -> Part:
        """The part of a pool; an address of which 100 percent are said has no bound of its own."""
        together, share = pool * together_percent // 100, pool * percent // 100
        if percent >= 100:
            return cls(together, pool, together, 100, least)
        steep = max(percent, HALF)
        # As long as others leave so much that `steep` of its square is a whole share, to the unit.
        square = -(-100 * together * share // steep)
        needed = math.isqrt(square - 1) + 1 if square else 0
        return cls(together, max(share, least), together - needed, steep, least)

    def most(self, others: int) -> int:
        """What an address may hold while other strangers hold so much; rounded down, so the bound is exact."""
        if others <= self.quiet:
            return self.alone
        free = self.together - others
        return max(self.least, self.steep * free * free // (100 * self.together)) if free > 0 else 0

    def has_room(self, held: int, strangers: int, fee: int) -> bool:
        """Whether an address that holds so much may hold the fee, too, where all strangers hold so much with it."""
        return strangers + fee <= self.together and held + fee <= self.most(strangers - held)


class Parts(msgspec.Struct, frozen=True):
    """What strangers may hold of each pool."""

    spent: tuple[Part, Part, Part]
    """In a minute, an hour and a day."""
    at_risk: Part
    at_risk_sign_only: Part
    lost: Part

    @classmethod
    def of(cls, budget: Budget, together_percent: int, percent: int, least: int) -> Parts:
        """`percent`: of an address; `least`: of one, whatever others hold."""

        def part(pool: int) -> Part:
            return Part.of(pool, together_percent, percent, least)

        spent = part(budget.per_minute), part(budget.per_hour), part(budget.per_day)
        return cls(spent, part(budget.at_risk), part(budget.at_risk_sign_only), part(budget.loss_per_hour))
