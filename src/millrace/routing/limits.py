"""How much of one transaction the trades of a plan take, and how much there is: the limits in the search's terms.

Four limits of the network and one of the caller hold at once: gas, built-in calls, transfers, storage reads, pools. A
trade's share is the largest part that it takes of any of them; a plan whose shares come to at most one holds them all.
For today's costs built-in calls are what every trade takes most of, so that the shares are exact; where the limits mix,
they are on the safe side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

import numpy as np

from millrace.dex.steps import in_steps
from millrace.routing.costs import FEE_PER_LEG, PROCESSING_DISCOUNT, Cost, Table
from millrace.routing.net import Floats
from millrace.routing.shares import WHOLE, Room
from millrace.routing.venue import Trade
from millrace.routing.work import MAX_HOPS

BOUNDLESS: Final = Cost(*[1 << 60] * 5)
_LEGS, _GAS = Cost._fields.index("legs"), Cost._fields.index("gas")
_KEPT = 32  # limits of which the shares are remembered


class Limits(NamedTuple):
    """What a route may use: pools, paths, pools per path, and LP units as tokens between others.

    `budget` is what its trades may take of the transaction, `planned`. `toll` is the worth of a unit of gas at the full
    price, in smallest units of the output: what earns less than it adds to the fee is left out. At 0 fees do not count.
    `bps` is what the contract takes of all that comes back, which decides how much of a cycle pays.
    """

    pools: int = 64
    paths: int = 5
    hops: int = 10
    liquidity: bool = False
    budget: Cost = BOUNDLESS
    toll: float = 0.0
    bps: tuple[int, int] = (0, 0)

    def less(self, cost: Cost) -> Limits:
        """What is left besides a step that takes so much."""
        left = self.budget.plus(cost, -1)
        return self._replace(pools=self.pools - cost.legs, hops=self.hops - 1, budget=left)

    def shared(self, parts: int) -> Limits:
        """An equal part of them, as if for one of so many routes; at least a path."""
        budget = Cost(*[limit // parts for limit in self.budget])
        return self._replace(paths=max(1, self.paths // parts), pools=self.pools // parts, budget=budget)

    def admit(self, cost: Cost) -> bool:
        """Whether pools and budget hold for a plan that takes so much, `planned`."""
        return cost.legs <= self.pools and cost.within(self.budget)


class Rooms:
    """The shares of a graph's edges under the limits asked for last. `costs` is by edge."""

    def __init__(self, costs: Floats) -> None:
        self._known = lru_cache(maxsize=_KEPT)(partial(_find, costs, fees_of(costs)))

    def of(self, limits: Limits) -> Room:
        """The room that limits leave: a strict one if a single path could be too long for them."""
        return self._known(limits.pools, path_hops(limits), limits.budget)


def _find(costs: Floats, fees: Floats, pools: int, hops: int, budget: Cost) -> Room:
    whole = budget._replace(legs=min(pools, budget.legs))
    parts = np.array([1.0 / limit if limit > 0 else 1e300 for limit in whole])
    share = (costs * parts).max(axis=1, initial=0.0)
    return Room(share, float(share.max(initial=0.0)) * hops > WHOLE, fees)


def fees_of(costs: Floats) -> Floats:
    """The gas that trades add to the fee, each."""
    return costs[:, _LEGS] * FEE_PER_LEG + costs[:, _GAS] / PROCESSING_DISCOUNT


def path_hops(limits: Limits) -> int:
    """Most pools on one path."""
    return min(limits.hops, limits.pools, MAX_HOPS)


def costs_of(trades: Sequence[Trade], table: Table, pause: Callable[[], None] = lambda: None) -> Floats:
    """What each trade takes, `planned`: (trade, field of `Cost`)."""
    rows: dict[Cost, int] = {}  # most trades take the same as many others
    chosen = [rows.setdefault(trade.cost(table), len(rows)) for trade in in_steps(trades, pause)]
    return np.array([table.planned(cost) for cost in rows], np.float64).reshape(-1, len(Cost._fields))[chosen]
