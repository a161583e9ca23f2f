"""Route search over one market: questions in tokens and integers, answers as executed plans."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing import net as nets
from millrace.routing.columns import Search
from millrace.routing.execution import Walked, execute, execute_paths
from millrace.routing.net import Floats
from millrace.routing.pathsearch import MAX_HOPS, MAX_PATHS, PathWork, make_path_work, split_greedy
from millrace.routing.plan import Execution, PlanError
from millrace.routing.potential import potentials, source_rate
from millrace.routing.solve import UPPER, solve
from millrace.routing.venue import CurveCache, Trade, list_edges
from millrace.routing.work import MAX_EDGES, Work, make_work

Algorithm = Literal["greedy", "lagrangian", "hybrid"]
CHUNKS = 24
_LABELS_KEPT = 4096


class NoRoute(Exception):
    """The tokens are not connected, or no cycle earns anything."""


class Limits(NamedTuple):
    """What a route may use: pools, paths, and pools per path."""

    pools: int = 64
    paths: int = 5
    hops: int = 10


class Route(NamedTuple):
    """An executed plan. `gap` bounds how far (relative) any split over the market could be above it."""

    execution: Execution
    spot_rate: float  # best spot rate, output per input in smallest units
    gap: float | None


class _Ask(NamedTuple):
    """One forward question in both languages: identifiers and integers, indices and scaled floats."""

    token_in: str
    token_out: str
    amount_in: int
    search: Search
    limits: Limits


class Router:
    """Finds routes over a set of pools. One thread at a time; the scratch memory is reused."""

    def __init__(self, pools: Iterable[Pool], market: DictMarket, curves: CurveCache | None = None) -> None:
        self._market = market
        chosen = list(pools)
        names = dict.fromkeys(token for pool in chosen for token in pool.tokens)
        self.index = {token: k for k, token in enumerate(names)}
        edges, self._trades = list_edges(chosen, market, self.index, curves or CurveCache())
        self._graph = nets.build(len(self.index), edges)
        self._work: Work | None = None
        self._path_work: PathWork | None = None
        self._labels: dict[tuple[int, bool], Floats] = {}
        self._rates: dict[tuple[int, int], float] = {}
        self._edges = np.zeros(MAX_EDGES, np.int32)
        self._flows = np.zeros(MAX_EDGES)
        self._report = np.zeros(4)

    def knows(self, token: str) -> bool:
        """Whether any pool holds the token."""
        return token in self.index

    def connected(self, token_in: str, token_out: str) -> bool:
        """Whether a route exists at all."""
        if not (self.knows(token_in) and self.knows(token_out)):
            return False
        return self._rate(self.index[token_in], self.index[token_out]) > 0.0

    def depth(self, token: str) -> int:
        """The largest reserve of a token in any pool one can sell it to; 0 if there is none."""
        return max((trade.pool.reserves[trade.i] for trade in self._trades if trade.token_in == token), default=0)

    def warm(self) -> None:
        """Run every kernel once, so that later calls neither compile nor allocate."""
        if len(self._trades) == 0:
            return
        trade = self._trades[0]
        amount = max(1, trade.pool.reserves[trade.i] // 100)
        with contextlib.suppress(NoRoute, PlanError):
            self.forward(trade.token_in, trade.token_out, amount, Limits(paths=1), "greedy")

    def forward(
        self,
        token_in: str,
        token_out: str,
        amount_in: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float = math.inf,
    ) -> Route:
        """The best plan that sells `amount_in`; with `token_in == token_out` the most profitable cycles.

        Raises `NoRoute`, or `PlanError` if no plan executes. `deadline` is on `time.monotonic`: past it
        the best plan so far is the answer.
        """
        if not self.connected(token_in, token_out):
            raise NoRoute("no path between tokens")
        search = self._search(token_in, token_out, amount_in)
        if search.cycle and search.top <= 1.0:
            raise NoRoute("no profitable cycle")
        ask = _Ask(token_in, token_out, amount_in, search, limits)
        best, upper = None, math.inf
        if algorithm != "greedy":
            best, upper = self._by_flow(ask)
            if best is not None and best.amount_out + 1 > upper:  # no other plan can pay a unit more
                return self._proven(ask, best, upper)
        # One chunk is the best single path: the floor of every algorithm.
        for chunks in (1,) if algorithm == "lagrangian" else (1, CHUNKS):
            if best is None or time.monotonic() < deadline:
                best = _better(best, self._by_paths(ask, chunks))
        if search.cycle and (best is None or best.amount_out <= amount_in):
            raise NoRoute("no profitable cycle")
        if best is None and self._distance(token_in, token_out) > limits.hops:
            raise NoRoute("no path between tokens within the hop limit")
        if best is None:
            raise PlanError("no plan executes this amount")
        if algorithm == "greedy":
            upper = self._by_flow(ask)[1]
        return self._proven(ask, best, upper)

    def _distance(self, token_in: str, token_out: str) -> int:
        """Pools on the shortest path (breadth first); more than any limit if there is none."""
        net, sink = self._graph.net, self.index[token_out]
        seen = {self.index[token_in]}
        level = list(seen)
        for hops in range(1, len(self.index) + 1):
            following = []
            for token in level:
                for k in range(net.pptr[token], net.pptr[token + 1]):
                    v = int(net.pdst[k])
                    if net.prate[k] > 0.0 and v == sink:
                        return hops
                    if net.prate[k] > 0.0 and v not in seen:
                        seen.add(v)
                        following.append(v)
            level = following
        return len(self.index) + 1

    def _by_flow(self, ask: _Ask) -> tuple[Walked | None, float]:
        """The dual's plan within the limits (if it has one), and the bound on the output of any plan."""
        trades, flows = self._flow(ask.search, ask.limits)
        upper = float(self._report[UPPER] / self._graph.scale[ask.search.sink])
        if not trades or _longest(trades) > ask.limits.hops:
            return None, upper
        whole = float(ask.search.amounts[0]) if ask.search.cycle else None
        try:
            return execute(trades, flows, ask.token_in, ask.token_out, ask.amount_in, whole), upper
        except PlanError:
            return None, upper

    def _by_paths(self, ask: _Ask, chunks: int) -> Walked | None:
        """The greedy split in `chunks` (1: the best single path), or None."""
        paths, flows = self._greedy(ask, chunks)
        try:
            return execute_paths(paths, flows, ask.token_in, ask.token_out, ask.amount_in)
        except PlanError:
            return None

    def _greedy(self, ask: _Ask, chunks: int) -> tuple[list[list[Trade]], list[float]]:
        """Paths of a split in equal chunks, with the part of the amount each takes."""
        if self._path_work is None:
            self._path_work = make_path_work(len(self.index), len(self._trades))
        work, search = self._path_work, ask.search
        count = split_greedy(
            self._graph.net,
            work,
            int(search.sources[0]),
            search.sink,
            float(search.amounts[0]),
            search.behind,
            min(ask.limits.hops, ask.limits.pools, MAX_HOPS),
            chunks,
            min(ask.limits.paths, MAX_PATHS - 1),
            ask.limits.pools,
        )
        original = self._graph.original
        paths = [[self._trades[e] for e in original[work.paths[k, : work.length[k]]].tolist()] for k in range(count)]
        return paths, (work.flow[:count] / search.amounts[0]).tolist()

    def _proven(self, ask: _Ask, done: Walked, upper: float) -> Route:
        gap = max(0.0, 1.0 - done.amount_out / upper) if 0.0 < upper < math.inf else None
        return Route(done.execution(), self._spot(ask.search), gap)

    def find_paths(
        self, token_in: str, token_out: str, amount_in: int, limits: Limits
    ) -> list[tuple[list[Trade], float]]:
        """Greedy paths for an amount with the part each takes (summing to 1). Raises `PlanError` if none."""
        if not self.connected(token_in, token_out) or token_in == token_out:
            raise PlanError(f"no path from {token_in} to {token_out}")
        ask = _Ask(token_in, token_out, amount_in, self._search(token_in, token_out, amount_in), limits)
        paths, flows = self._greedy(ask, CHUNKS)
        whole = sum(flows)
        if whole <= 0.0:
            raise PlanError(f"no path from {token_in} to {token_out}")
        return [(path, flow / whole) for path, flow in zip(paths, flows, strict=True) if flow > 0.0]

    def spot_rate(self, token_in: str, token_out: str) -> float:
        """Best output per input of a very small trade, in smallest units; 0 if there is no route."""
        if not self.connected(token_in, token_out):
            return 0.0
        return self._spot(self._search(token_in, token_out, 1))

    def _spot(self, search: Search) -> float:
        scale = self._graph.scale
        return float(search.top * scale[search.sources[0]] / scale[search.sink])

    def _search(self, token_in: str, token_out: str, amount_in: int) -> Search:
        source, sink = self.index[token_in], self.index[token_out]
        cycle = source == sink
        behind = self._potential(sink, backward=True)
        return Search(
            np.array([source], np.int32),
            np.array([amount_in * self._graph.scale[source]]),
            sink,
            cycle,
            -1 if cycle else sink,
            -1 if cycle else source,
            self._potential(source, backward=False),
            behind,
            self._rate(source, sink),
        )

    def _flow(self, search: Search, limits: Limits) -> tuple[list[Trade], list[float]]:
        """The dual's flow within the limits, as trades in execution order."""
        if self._work is None:
            self._work = make_work(len(self.index), len(self._trades))
        count = solve(
            self._graph.net,
            self._work,
            search,
            limits.pools,
            limits.paths,
            self._edges,
            self._flows,
            self._report,
        )
        original = self._graph.original[self._edges[:count]].tolist()
        return [self._trades[e] for e in original], self._flows[:count].tolist()

    def _rate(self, source: int, sink: int) -> float:
        """Best spot rate between two tokens over at least one pool; the last ones are remembered."""
        rate = self._rates.get((source, sink))
        if rate is None:
            if len(self._rates) >= _LABELS_KEPT:
                self._rates.clear()
            behind = self._potential(sink, backward=True)
            rate = self._rates[source, sink] = source_rate(self._graph.net, source, behind)
        return rate

    def _potential(self, token: int, *, backward: bool) -> Floats:
        """Best spot rates from or to a token, computed once per market."""
        key = (token, backward)
        labels = self._labels.get(key)
        if labels is None:
            if len(self._labels) >= _LABELS_KEPT:
                self._labels.clear()
            labels = self._labels[key] = potentials(self._graph.net, token, backward)
        return labels


def _better(one: Walked | None, other: Walked | None) -> Walked | None:
    """The plan that pays more; the first when they are equal."""
    if one is None or (other is not None and other.amount_out > one.amount_out):
        return other
    return one


def _longest(trades: Sequence[Trade]) -> int:
    """Pools on the longest path through trades in execution order."""
    depth: dict[str, int] = {}
    longest = 0
    for trade in trades:
        reached = depth.get(trade.token_in, 0) + 1
        depth[trade.token_out] = max(depth.get(trade.token_out, 0), reached)
        longest = max(longest, reached)
    return longest
