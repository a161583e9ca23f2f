"""The best single path in exact integers: what no answer may pay less than.

The kernels' search weighs paths in floating point. Where a unit is worth something (tokens of few decimals, tiny
amounts, tabulated pools) the path that looks best need not be the one that pays most after rounding, and may pay
nothing at all. Here whole integer amounts travel over the graph, always the one on that could become most at spot
rates; the search ends when none could become more than the best path pays (`unitsearch.py`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np

from millrace.routing.net import Floats, Graph
from millrace.routing.scratch import make
from millrace.routing.tables import Tables
from millrace.routing.unitsearch import (
    FOUND,
    INFINITE,
    LABEL,
    LAST,
    LATE,
    SPARE,
    START,
    Field,
    Looks,
    Quest,
    look,
)
from millrace.routing.venue import Trade
from millrace.routing.wide import words

NO_SHARES = np.zeros(0)
BUDGET = 20_000  # trades evaluated in one search; past it the best so far is the answer
MARGIN = 1.0 + 1e-6  # spot rates of tabulated pools are this good
TOO_MUCH = 1 << 126  # units: a trade that pays as many is left out, where a unit more or less is worth nothing


class NeedsTime(Exception):
    """The search is not done within what a caller in a hurry allows."""


class PathFinder:
    """Searches one graph. One thread at a time; a `twin` has memory of its own. `fees` is the gas of each edge."""

    def __init__(self, graph: Graph, trades: Sequence[Trade], fees: Floats, tables: Tables) -> None:
        net = graph.net
        self._scale = graph.scale
        regular = net.src.size - net.astray.size
        self._src, self._dst = net.src[:regular], net.dst[:regular]
        starts = np.searchsorted(self._src, np.arange(len(graph.scale) + 1)).astype(np.int32)
        self.trades = [trades[k] for k in graph.original.tolist()]
        """The trade of each edge of the net."""
        rate = net.rate * self._scale[net.src] / self._scale[net.dst]
        many = np.array([len(trade.pool.tokens) > 2 for trade in self.trades], np.bool_)
        self._field = Field(
            starts, net.dst, rate, fees, tables.terms, tables.pool, many, float(fees.min(initial=INFINITE))
        )
        self._made: Looks | None = None

    def twin(self) -> PathFinder:
        """The same for another thread."""
        other = copy.copy(self)
        other._made = None
        return other

    def _memory(self) -> Looks:
        if self._made is None:
            widest = int(np.diff(self._field.starts).max(initial=0))
            self._made = make(
                Looks, tokens=len(self._scale), edges=len(self.trades), widest=widest, labels=2 * BUDGET + 1
            )
        return self._made

    def best(
        self,
        source: int,
        sink: int,
        amount: int,
        hops: int,
        floor: float,
        behind: Floats,
        toll: float,
        budget: int = BUDGET,
        *,
        allowed: int = BUDGET,
        share: Floats = NO_SHARES,
    ) -> list[Trade] | None:
        """The path of at most `hops` pools that pays most for `amount`, less its fee at `toll`; None up to `floor`.

        `behind` are the best spot rates of all tokens to the sink (scaled). With `source == sink` it is the
        best cycle. No token and no pool is visited twice. It ends after `budget` trades (or, as a hub's trades are
        looked at together, at most twice as many); `NeedsTime` is raised where it goes on after `allowed` ones that no
        kernel knows. With the edges' `share` of a transaction, paths that take more than one are left out.
        """
        worth = behind * self._scale / self._scale[sink] * MARGIN  # of a smallest unit, in units of the sink
        least = self.least_shares(sink, share, hops) if share.size else NO_SHARES
        quest = Quest(
            source, sink, float(amount + SPARE), hops, worth, toll, min(budget, BUDGET), allowed, share, least
        )
        x, edge = self._memory(), START
        x.amount[0] = words(min(amount, TOO_MUCH))
        x.best[:] = words(0 if floor == -math.inf else min(max(int(floor) + TOO_MUCH, 0), 2 * TOO_MUCH))
        x.floor[0] = floor
        while (edge := look(x, self._field, quest, edge)) >= 0:
            label = int(x.at[LABEL])
            paid = self.trades[edge].pays(int(x.amount[label, 0]) << 64 | int(x.amount[label, 1]) if label else amount)
            x.paid[:] = words(paid if paid < TOO_MUCH else 0)
        if edge == LATE:
            raise NeedsTime
        return self._path(x) or None

    def _path(self, x: Looks) -> list[Trade]:
        """The best path, as the kernel has left it."""
        edges = []
        label, edge = x.at[[FOUND, LAST]].tolist()
        while edge >= 0:
            edges.append(edge)
            label, edge = int(x.before[label]), int(x.edge[label])
        return [self.trades[e] for e in reversed(edges)]

    def least_shares(self, sink: int, share: Floats, hops: int) -> Floats:
        """By token: the least share that a path of at most `hops` pools to the sink takes; infinite without one.

        Of the sink it is that of a cycle.
        """
        least = np.full(len(self._scale), np.inf)
        known = np.full(len(self._scale), np.inf)
        known[sink] = 0.0
        for _ in range(hops):
            before = least.copy()
            np.minimum.at(least, self._src, share[: self._src.size] + known[self._dst])
            known = least.copy()
            known[sink] = 0.0
            if np.array_equal(before, least):
                break
        return least


def needed(path: Sequence[Trade], wanted: int) -> int:
    """The smallest input with which the path pays at least `wanted`. Raises `PoolError` where it cannot."""
    for trade in reversed(path):
        wanted = trade.needs(wanted)
    return wanted
