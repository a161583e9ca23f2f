"""The kernels with their scratch memory: a question goes in, lists of trades come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millrace.routing.calls import call
from millrace.routing.candidates import Search
from millrace.routing.find import LENGTH, SLOTS, SPLIT, find, find_paths
from millrace.routing.moves import Moves, make_moves
from millrace.routing.net import Floats, Graph, Ints
from millrace.routing.pathsearch import MAX_HOPS, PathWork, make_path_work
from millrace.routing.solve import LEVEL, UPPER, UPPER_ONCE
from millrace.routing.venue import Trade
from millrace.routing.work import MAX_EDGES, Work, make_work

CHUNKS = 24
FLOW_ALONE = -1  # instead of chunks


class Limits(NamedTuple):
    """What a route may use: pools, paths, pools per path, and LP units as tokens between others."""

    pools: int = 64
    paths: int = 5
    hops: int = 10
    liquidity: bool = False


class Flow(NamedTuple):
    """Trades in execution order, their edges and inputs, scaled; none if the limits leave no flow."""

    trades: list[Trade]
    edges: Ints
    inputs: Floats


class Split(NamedTuple):
    """Paths and the part of the amount that each takes."""

    paths: list[list[Trade]]
    parts: list[float]


class Found(NamedTuple):
    """What one search has found, and the bound on the output of any plan; amounts are scaled.

    `level` is the kernels' pruning level, `upper_path` bounds what a single path pays, `paid` is what the flow is
    thought to pay. There is a single path only if it pays nearly as much, and a split only if it could pay more.
    """

    upper: float
    level: float
    upper_path: float
    paid: float
    flow: Flow
    single: list[Trade]
    split: Split


class KernelSearch:
    """Searches one graph, one thread at a time. Its scratch memory is made when it is first used."""

    def __init__(self, graph: Graph, trades: Sequence[Trade]) -> None:
        self._net = graph.net
        self.trades = [trades[k] for k in graph.original.tolist()]
        """The trade of each edge of the net."""
        self._scratch: tuple[Work, Moves, PathWork] | None = None
        self._edges = np.zeros(MAX_EDGES, np.int32)
        self._flows = np.zeros(MAX_EDGES)
        self._report = np.zeros(SLOTS)

    def find(self, search: Search, limits: Limits, nearly: float, *, split: bool) -> Found:
        """The dual's flow within the limits, and what else could be better: a single path, and a split if wanted.

        Single paths that pay less than the part `nearly` of what the flow does are not looked for.
        """
        _, _, path_work = self._memory()
        within = *_within(limits), CHUNKS if split else 0, nearly
        count = self._find(search, within)
        upper, level, upper_path, _, paid, length, parts = self._report.tolist()
        flow, single = self._flow(count), self._list(path_work.single[: int(length)])
        return Found(upper, level, upper_path, paid, flow, single, self._split(path_work, int(parts), search))

    def flow(self, search: Search, limits: Limits) -> Flow:
        """The dual's flow alone, also for several sources."""
        return self._flow(self._find(search, (*_within(limits), FLOW_ALONE, 0.0)))

    def _find(self, search: Search, within: tuple[int, int, int, int, float]) -> int:
        """Run the whole search; the number of the flow's trades."""
        return call(find, self._net, *self._memory(), search, *within, self._edges, self._flows, self._report)

    def paths(self, search: Search, limits: Limits, floor: float, *, split: bool) -> tuple[list[Trade], Split]:
        """The best single path that pays more than `floor` (scaled), and the greedy split, over all of the net."""
        _, _, work = self._memory()
        within = *_within(limits), CHUNKS if split else 0, floor
        call(find_paths, self._net, work, search, *within, self._report)
        single = self._list(work.single[: int(self._report[LENGTH])])
        return single, self._split(work, int(self._report[SPLIT]), search)

    def bound(self, *, once: bool = False) -> tuple[float, float]:
        """The bound (scaled) and the pruning level of the flow found last; `once`: of plans with one trade per edge."""
        return float(self._report[UPPER_ONCE if once else UPPER]), float(self._report[LEVEL])

    def _memory(self) -> tuple[Work, Moves, PathWork]:
        if self._scratch is None:
            work = make_work(self._net.core.size, self._net.src.size)
            self._scratch = work, make_moves(), make_path_work(self._net)
        return self._scratch

    def _flow(self, count: int) -> Flow:
        edges = self._edges[:count].copy()
        return Flow(self._list(edges), edges, self._flows[:count].copy())

    def _split(self, work: PathWork, count: int, search: Search) -> Split:
        if count == 0:
            return Split([], [])
        lengths = work.length[:count].tolist()
        edges = work.paths[:count, : max(lengths)].tolist()
        paths = [[self.trades[e] for e in row[:length]] for row, length in zip(edges, lengths, strict=True)]
        amount = float(search.amounts[0])
        return Split(paths, [flow / amount for flow in work.flow[:count].tolist()])

    def _list(self, edges: Ints) -> list[Trade]:
        return [*map(self.trades.__getitem__, edges.tolist())]


def _within(limits: Limits) -> tuple[int, int, int]:
    """Pools, paths, and pools on one path."""
    return limits.pools, limits.paths, min(limits.hops, limits.pools, MAX_HOPS)
