"""Route search over one market: questions in tokens and integers, answers as executed plans."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing import net as nets
from millrace.routing.columns import Search
from millrace.routing.net import Floats
from millrace.routing.plan import Execution, PlanError, execute, shrink_input
from millrace.routing.potential import potentials, source_rate
from millrace.routing.solve import UPPER, solve
from millrace.routing.venue import Trade, list_edges
from millrace.routing.work import MAX_EDGES, Work, make_work

Algorithm = Literal["greedy", "lagrangian", "hybrid"]
REVERSE_ROUNDS = 24
MAX_AMOUNT = 10**78
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


class Router:
    """Finds routes over a set of pools. One thread at a time; the scratch memory is reused."""

    def __init__(self, pools: Iterable[Pool], market: DictMarket) -> None:
        self._market = market
        chosen = list(pools)
        names = dict.fromkeys(token for pool in chosen for token in pool.tokens)
        self.index = {token: k for k, token in enumerate(names)}
        edges, self._trades = list_edges(chosen, market, self.index)
        self._graph = nets.build(len(self.index), edges)
        self._work: Work | None = None
        self._labels: dict[tuple[int, bool], Floats] = {}
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
        behind = self._potential(self.index[token_out], backward=True)
        return source_rate(self._graph.net, self.index[token_in], behind) > 0.0

    def warm(self) -> None:
        """Run every kernel once, so that later calls neither compile nor allocate."""
        if len(self._trades) == 0:
            return
        trade = self._trades[0]
        amount = max(1, trade.pool.reserves[trade.i] // 100)
        with contextlib.suppress(NoRoute, PlanError):
            self.forward(trade.token_in, trade.token_out, amount, Limits(), "hybrid")

    def forward(self, token_in: str, token_out: str, amount_in: int, limits: Limits, algorithm: Algorithm) -> Route:
        """The best plan that sells `amount_in`; with `token_in == token_out` the most profitable cycles.

        Raises `NoRoute`, or `PlanError` if no plan executes.
        """
        if not self.connected(token_in, token_out):
            raise NoRoute("no path between tokens")
        search = self._search(token_in, token_out, amount_in)
        if search.cycle and search.top <= 1.0:
            raise NoRoute("no profitable cycle")
        trades, flows = self._flow(search, limits)
        if not trades:
            raise NoRoute("no profitable cycle") if search.cycle else PlanError("no route within the limits")
        done = execute(trades, flows, token_in, token_out, amount_in)
        if search.cycle and done.amount_out <= amount_in:
            raise NoRoute("no profitable cycle")
        scale = self._graph.scale
        upper = float(self._report[UPPER] / scale[search.sink])
        gap = max(0.0, 1.0 - done.amount_out / upper) if 0.0 < upper < math.inf else None
        return Route(done, self._spot(search), gap)

    def reverse(self, token_in: str, token_out: str, amount_out: int, limits: Limits, algorithm: Algorithm) -> Route:
        """The plan with the smallest input that pays at least `amount_out`.

        The best output is a concave function of the input, so few forward answers find the input; then
        the last plan's own exact execution is searched for its smallest input. Raises like `forward`.
        """
        if not self.connected(token_in, token_out):
            raise NoRoute("no path between tokens")
        spot = self._spot(self._search(token_in, token_out, 1))
        guess = max(1, math.ceil(amount_out / spot))
        best: Route | None = None
        low, high = 0, 0
        for _ in range(REVERSE_ROUNDS):
            try:
                route = self.forward(token_in, token_out, guess, limits, algorithm)
            except PlanError:
                low, guess = guess, guess * 2
                continue
            paid = route.execution.amount_out
            if paid >= amount_out:
                high = guess if high == 0 else min(high, guess)
                best = route
                if paid - amount_out <= paid // 10**9:
                    break
            else:
                low = max(low, guess)
            step = _next_input(guess, paid, amount_out, spot)
            if (high and not low < step < high) or step == guess:
                step = (low + high) // 2 if high else max(step, low + 1)
            if step == guess or step > MAX_AMOUNT:
                break
            guess = step
        if best is None:
            raise PlanError("the market cannot pay this amount")
        return best._replace(execution=shrink_input(best.execution, token_in, token_out, amount_out))

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
            source_rate(self._graph.net, source, behind),
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

    def _potential(self, token: int, *, backward: bool) -> Floats:
        """Best spot rates from or to a token, computed once per market."""
        key = (token, backward)
        labels = self._labels.get(key)
        if labels is None:
            if len(self._labels) >= _LABELS_KEPT:
                self._labels.clear()
            labels = self._labels[key] = potentials(self._graph.net, token, backward)
        return labels


def _next_input(amount_in: int, paid: int, wanted: int, spot: float) -> int:
    """A better input: the route seen as one constant-product pool with this spot rate and this output.

    `y(x) = spot x / (1 + x / depth)` through the point found; its inverse at `wanted`.
    """
    seen = paid / amount_in
    if seen >= spot:
        return max(1, math.ceil(wanted / seen))
    depth = amount_in * seen / (spot - seen)
    limit = spot * depth
    if wanted >= limit * (1.0 - 1e-12):
        return amount_in * 4
    return max(1, math.ceil(wanted * depth / (limit - wanted)))
