"""Answers over one graph: what the dual's flow, single paths and splits pay in integers, and how good that is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from millrace.routing import pieces
from millrace.routing.attempt import Ask, Done, Plans, rounding
from millrace.routing.candidates import Search
from millrace.routing.costs import Cost, Table, total
from millrace.routing.exactpath import BUDGET, NO_SHARES, PathFinder
from millrace.routing.execution import Walked
from millrace.routing.favour import Favours
from millrace.routing.find import LARGE as LARGE_NET
from millrace.routing.flowwalk import FlowWalker
from millrace.routing.kernelsearch import CyclePrices, Found, KernelSearch, Split
from millrace.routing.limits import Limits, fees_of, path_hops
from millrace.routing.mispricing import Algorithm, Mispricing
from millrace.routing.net import Floats, FloatTable, Graph
from millrace.routing.outlets import Outlets
from millrace.routing.plan import PlanError, net_of
from millrace.routing.route import NoRoute, Route, gap_of
from millrace.routing.shares import NOTHING, WHOLE
from millrace.routing.slices import with_slices
from millrace.routing.spot import SpotGraph
from millrace.routing.tables import Terms
from millrace.routing.venue import Trade
from millrace.routing.widepath import WideSearch

COARSE_LOOKS = 2_000  # trades evaluated exactly where a path loses units by rounding that count
HASTY_LOOKS = 100  # of those left to Python for one who must not wait
SECOND_LOOKS = 400  # trades evaluated exactly where floating point may have missed the best path
# A path that looks worse than the flow by more than this part is none that pays more in the end: much more than whole
# units and parts per million make of a plan, and where pools are tabulated, much more than the tables are off.
CLEARLY, CLEARLY_TABULATED = 1e-5, 1e-2
SLIGHTLY = 1e-6  # relative: more than parts per million make of the output of a plan whose units do not count


class Question(NamedTuple):
    """Sell an amount of a token for another one, or for more of the same.

    `deadline` is on `time.monotonic`: past it the best plan so far is the answer. Who is in a `hurry` gets `NeedsTime`
    instead of waiting for a long search.
    """

    token_in: str
    token_out: str
    amount_in: int
    limits: Limits
    algorithm: Algorithm
    deadline: float = math.inf
    hurry: bool = False


class Answers(SpotGraph):
    """Answers questions over one graph, with scratch memory of its own. What is known of its trades comes first."""

    table: Table
    """What trades take of a transaction."""
    outlets: Outlets
    """What swaps do to other pools."""
    has_liquidity: bool
    aside: Callable[[], None]
    """Called between the steps of what takes long: so that others can go first."""
    mispriced: bool
    """Whether cycles of the graph gain."""
    _costs: Floats
    _terms: Terms
    _favoured: FloatTable | None
    _tabulated: bool

    def _prepare(self, graph: Graph, trades: list[Trade], pause: Callable[[], None]) -> None:
        """What is made of a graph once."""
        graph = with_slices(graph, trades, self.outlets, self.index)
        super().__init__(self.index, graph, trades)
        self._second_looks = SECOND_LOOKS if self._tabulated else 0
        self._clearly = CLEARLY_TABULATED if self._tabulated else CLEARLY
        self._slightly = CLEARLY_TABULATED / 2.0 if self._tabulated else SLIGHTLY
        self._prices: CyclePrices | None = None
        fees = fees_of(self._costs[graph.original])
        self._least_fee = float(fees.min(initial=math.inf))
        self._kept = float(graph.net.kept.max(initial=0.0)), float(graph.net.kmore.max(initial=0.0))
        self._tables = self._terms.of(graph)
        pause()
        self._finder = PathFinder(graph, trades, fees, self._tables)
        pause()
        self._favours = None if self._favoured is None else Favours(graph, self._favoured)
        pause()
        self._scratch()

    def _scratch(self) -> None:
        """Memory that a search writes to."""
        self.forget()
        self._kernels = KernelSearch(self._graph, self._trades, self._costs)
        self._wide = WideSearch(self._graph.net)
        self._plans = Plans(
            FlowWalker(self._tables, self.outlets),
            self.table,
            self.outlets,
            has_liquidity=self.has_liquidity,
        )
        self._mispricing = self._make_mispricing() if self.mispriced else None

    def _make_mispricing(self) -> Mispricing:
        if self._prices is None:
            self._prices = self._kernels.cycle_prices(self._cycles())
        known = self._graph.scale, self._prices
        return Mispricing(*known, self._kernels, self._wide, self._plans, self._clearly)

    def _cycles(self) -> Search:
        """The question for all cycles that gain, over the token with the most neighbours, with as much as it has."""
        net = self._graph.net
        hub = int(np.diff(net.pptr).argmax())
        token = list(self.index)[hub]
        deepest = float(net.a[net.src == hub].max(initial=0.0))
        return self.search(token, token, max(int(deepest / self._graph.scale[hub]), 1))

    def _forward(self, asked: Question, most: int = BUDGET) -> Route:
        """The best plan over this graph alone, with at most so many trades evaluated in whole units. Raises `NoRoute`,
        or `PlanError` if no plan executes.
        """
        token_in, token_out, amount_in, limits, algorithm, deadline, _ = asked
        self.aside()
        if not self.connected(token_in, token_out):
            raise NoRoute("no path between tokens")
        search = self.search(token_in, token_out, amount_in)
        if search.cycle and search.top <= 1.0:
            raise NoRoute("no profitable cycle")
        ask = Ask(token_in, token_out, amount_in, search, limits)
        among = None if self._mispricing is None or search.cycle else self._mispricing.best(ask, algorithm, deadline)
        if among is not None:
            upper = self._bound(ask, among.upper)
            budget = self._doubts(ask, among.plan, among.single) if among.near else 0
            most = BUDGET if among.plan is None else COARSE_LOOKS
            return self._settled(ask, among.plan, upper, min(budget, most), asked)
        flow: Done | None = None
        if algorithm == "greedy":
            self._kernels.flow(search, limits)
            best, found, upper = None, None, self._bound(ask, self._kernels.bound())
        else:
            best, found, upper = self._by_flow(ask, split=algorithm == "hybrid")
            flow = best
        path, split = self._paths(ask, best, found, split=algorithm != "lagrangian")
        # The best single path is the floor of every algorithm.
        single = self._plans.of_paths(ask, [path], [1.0], best) if path else None
        best = self._plans.better(ask, best, single)
        if split.paths and (best is None or time.monotonic() < deadline):
            best = self._plans.better(ask, best, self._plans.of_paths(ask, *split, single))
        if self.mispriced and (best is None or time.monotonic() < deadline):
            best = self._plans.better(ask, best, self._by_wide_path(ask, best))
        budget = self._doubts(ask, best, single) if path or best is None else 0
        return self._settled(ask, best, upper, min(budget, most), asked, flow)

    def _settled(
        self, ask: Ask, best: Done | None, upper: float, budget: int, asked: Question, flow: Done | None = None
    ) -> Route:
        """The answer, after another look in integers of `budget` trades. Raises like `forward`.

        In pieces the `flow` may pay more than what was best at once.
        """
        allowed = HASTY_LOOKS if asked.hurry else BUDGET
        if budget and (best is None or time.monotonic() < asked.deadline):
            best = self._plans.better(ask, best, self._by_exact_path(ask, best, budget, allowed))
        if ask.search.cycle and (best is None or best.amount_out <= ask.amount_in):
            raise NoRoute("no profitable cycle")
        if asked.algorithm == "hybrid":
            best = self._in_pieces(ask, best, flow, asked.deadline)
        if best is None and not self.reaches(ask.token_in, ask.token_out, ask.limits):
            raise NoRoute("no path between tokens within the limits")
        if best is None:
            raise PlanError("no plan executes this amount")
        return _proven(best, upper)

    def _in_pieces(self, ask: Ask, best: Done | None, flow: Done | None, deadline: float) -> Done | None:
        """The better of two plans with large trades in pieces, or one of fewer trades that leaves room for them.

        Room is made for all pieces that lack it, then for the better half of them, as long as that leaves more.
        """
        found, missing = self._divided(ask, best)
        if flow is not None and flow is not best:
            other, lacking = self._divided(ask, flow)
            if self._plans.better(ask, found, other) is not found:
                found, missing = other, lacking
        roomy: Done | None = None
        while missing and time.monotonic() < deadline:
            budget = ask.limits.budget.plus(total(missing), -1)
            limits = ask.limits._replace(pools=ask.limits.pools - len(missing), budget=budget)
            fewer = self._divided(ask, self._plans.of_flow(ask, self._kernels.another_flow(ask.search, limits)))[0]
            if roomy is not None and self._plans.better(ask, roomy, fewer) is roomy:
                break
            roomy, missing = fewer, missing[: len(missing) // 2]
        return self._plans.better(ask, found, roomy)

    def _divided(self, ask: Ask, plan: Done | None) -> tuple[Done | None, list[Cost]]:
        """The plan with large trades in pieces, and what each piece that has no room would take."""
        if plan is None or self._brought_by_pieces(ask, plan) <= 2.0 * self._least_fee * ask.limits.toll:
            return plan, []
        return self._plans.in_pieces(ask, plan)

    def _brought_by_pieces(self, ask: Ask, best: Done) -> float:
        """What pieces of its trades could add to a plan at most: a part of what it loses by its own size, or curves."""
        kept, curves = self._kept
        most = float(ask.search.amounts[0]) * ask.search.top / self._scales[ask.search.sink]
        more = kept / 2.0 * max(most - best.amount_out, 0.0) + curves * best.amount_out
        return more if more > 2.0 * pieces.LEAST * best.amount_out else 0.0

    def _by_flow(self, ask: Ask, *, split: bool) -> tuple[Done | None, Found, float]:
        """The dual's plan within the limits (if it has one), what else there is, and the bound of any plan's output."""
        found = self._kernels.find(ask.search, ask.limits, 1.0 - self._clearly, split=split)
        return self._plans.of_flow(ask, found.flow), found, self._bound(ask, found.upper)

    def _bound(self, ask: Ask, upper: float) -> float:
        """The bound of any plan's output in smallest units, with what rounding can add, from that of the dual."""
        upper /= self._scales[ask.search.sink]
        return upper if self._favours is None else upper + self._favours.of_all(ask.search)

    def _paths(self, ask: Ask, flow: Done | None, found: Found | None, *, split: bool) -> tuple[list[Trade], Split]:
        """The best single path, if it could pay more than the flow does, and a split.

        Where the flow pays in integers what it was thought to, they have been found already. Else single paths are
        looked for that pay more in floating point, unless the best one has been found or none can: integers can only be
        less, but for what rounding can add. A split that the bound or the flow left no room for is looked for once
        more, unless the market is large and little was lost.
        """
        if flow is None or found is None:
            return self._kernels.paths(ask.search, ask.limits, 0.0, split=split)
        paid, nearly = flow.amount_out * self._scales[ask.search.sink], found.paid * (1.0 - self._clearly)
        gained = self._gained(ask, flow)
        if paid >= found.paid * (1.0 - self._slightly) and gained <= self._clearly / 4.0:
            return found.single, found.split
        again = split and not found.split.paths and (len(self._trades) <= LARGE_NET or paid < nearly)
        fee = (flow.amount_out - self._plans.net(ask, flow)) * self._scales[ask.search.sink]
        floor = max((paid - fee) * (1.0 - self._slightly) / (1.0 + gained), 0.0)
        asked = max((found.paid - fee) * (1.0 - self._clearly), 0.0)
        settled = floor <= asked if found.single else floor >= asked
        if settled and not again:
            return found.single, found.split
        single, other = self._kernels.paths(ask.search, ask.limits, floor, split=again)
        return single, other if again else found.split

    def _gained(self, ask: Ask, done: Done) -> float:
        """The part of this plan's output that a single path could gain by rounding: all its trades, as the best one."""
        return 0.0 if self._favours is None else ask.limits.hops * self._favours.of_one(ask.search) / done.amount_out

    def _by_wide_path(self, ask: Ask, best: Done | None) -> Done | None:
        """The best single path by a search that keeps many partial ones, if it pays more than `best`."""
        room = self._kernels.room(ask.limits, ask.search.sink)
        edges, _ = self._wide.best(ask.search, path_hops(ask.limits), room, self._floor(ask, best))
        path = [self._finder.trades[e] for e in edges]
        return self._plans.of_paths(ask, [path], [1.0]) if path else None

    def _floor(self, ask: Ask, best: Done | None) -> float:
        """What a path has to pay more than, scaled."""
        floor = NOTHING if best is None else self._plans.net(ask, best) * self._scales[ask.search.sink]
        return max(floor, float(ask.search.amounts[0])) if ask.search.cycle else floor

    def _doubts(self, ask: Ask, best: Done | None, single: Done | None) -> int:
        """How many trades to evaluate in search of a path that pays more in integers than `best`; 0: none.

        A path that looked no better in floating point may do so where units count, be it that they are lost or gained
        by rounding, and where the tables of curved pools are off.
        """
        if best is None or not isinstance(single, Walked):
            return BUDGET
        if self._kernels.room(ask.limits, ask.search.sink).strict:
            return COARSE_LOOKS
        lost, gained = rounding(single), self._gained(ask, best)
        doubtful = single.amount_out * (lost + gained)
        if best is not single and self._plans.net(ask, best) >= self._plans.net(ask, single) + doubtful:
            return 0
        if lost > SLIGHTLY:
            return COARSE_LOOKS
        return SECOND_LOOKS if gained > SLIGHTLY else self._second_looks

    def _by_exact_path(self, ask: Ask, best: Done | None, budget: int, allowed: int) -> Done | None:
        """The best single path in integers, if it pays more than `best`. Raises `NeedsTime`."""
        floor = -math.inf if best is None else self._plans.net(ask, best)
        if ask.search.cycle:
            floor = max(floor, ask.amount_in)
        path = self.exact_path(ask.token_in, ask.token_out, ask.amount_in, ask.limits, floor, budget, allowed=allowed)
        return None if path is None else self._plans.of_paths(ask, [path], [1.0])

    def exact_path(
        self,
        token_in: str,
        token_out: str,
        amount: int,
        limits: Limits,
        floor: float = -math.inf,
        budget: int = BUDGET,
        *,
        allowed: int = BUDGET,
    ) -> list[Trade] | None:
        """The single path within the limits that pays most for `amount` in exact integers, if that is over `floor`.

        What it pays is less its fee.

        Raises `NeedsTime` where Python must evaluate more than `allowed` trades.
        """
        self.aside()
        source, sink = self.index[token_in], self.index[token_out]
        behind = self.potential(sink, backward=True)
        room = self._kernels.room(limits, sink)
        asked = source, sink, amount, path_hops(limits), floor, behind, limits.toll, budget
        return self._finder.best(*asked, allowed=allowed, share=room.share if room.strict else NO_SHARES)

    def reaches(self, token_in: str, token_out: str, limits: Limits) -> bool:
        """Whether any path, whatever it pays, holds the limits."""
        source, sink = self.index[token_in], self.index[token_out]
        least = self._finder.least_shares(sink, self._kernels.room(limits, sink).share, path_hops(limits))
        return bool(least[source] <= WHOLE)

    def _net(self, route: Route, limits: Limits) -> int:
        """What an answer pays, less its fee."""
        return net_of(route.execution, self.table, limits.toll)


def _proven(done: Done, upper: float) -> Route:
    """The answer with its gap to the bound."""
    return Route(done.execution(), gap_of(done.amount_out, upper))
