"""Route search over one market: questions in tokens and integers, answers as executed plans."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.routing import net as nets
from millrace.routing.astray import astray
from millrace.routing.attempt import Ask, Done, Plans, longest, rounding
from millrace.routing.candidates import Search
from millrace.routing.costs import Table
from millrace.routing.cycles import Cycles
from millrace.routing.exactpath import BUDGET, NeedsTime, PathFinder, needed
from millrace.routing.execution import Walked
from millrace.routing.favour import Favours, list_favours
from millrace.routing.find import LARGE as LARGE_NET
from millrace.routing.flowwalk import FlowWalker
from millrace.routing.kernelsearch import CyclePrices, Found, KernelSearch, Split
from millrace.routing.limits import Limits as Limits  # callers know it from here
from millrace.routing.limits import costs_of, fees_of, path_hops
from millrace.routing.lpedges import lp_edges
from millrace.routing.mispricing import Algorithm as Algorithm
from millrace.routing.mispricing import Mispricing
from millrace.routing.net import Bools, Edges, Graph
from millrace.routing.outlets import find_outlets
from millrace.routing.plan import PlanError, net_of
from millrace.routing.route import NoRoute as NoRoute
from millrace.routing.route import Route as Route
from millrace.routing.route import gap_of
from millrace.routing.shares import NOTHING, WHOLE, Room
from millrace.routing.spot import SpotGraph, scale_of
from millrace.routing.tables import make_terms
from millrace.routing.venue import (
    CurveCache,
    Trade,
    find_dust,
    holds_enough,
    least_held,
    list_edges,
    sort_out,
    with_moved,
)
from millrace.routing.widepath import WideSearch

COARSE_LOOKS = 2_000  # trades evaluated exactly where a path loses units by rounding that count
FEW_UNITS = 1e-3  # relative: up to here, of 2 700 questions at coarse units none found more by so many looks
HASTY_LOOKS = 100  # the same where next to nothing can be gained; of those left to Python for one who must not wait
NEAR = 1.1  # times: scales read off a rate that has moved further cost a search a large part of what it finds
OFTEN = 0.01  # of the trades: with so many astray most questions are put to the whole market
MANY_HOPS = 10  # pools on a path: what requests may ask for at most, and get unless they ask for less
GAIN_ASTRAY = 1e-6  # of an answer: what edges astray must promise, a tenth of what anybody may lose by them
SECOND_LOOKS = 400  # trades evaluated exactly where floating point may have missed the best path
SMALL_GAIN = 1e-7  # relative: less than this by rounding is not worth a look
NEGLIGIBLE = 1e-9  # relative: no two paths are as close as this but by chance
# A path that looks worse than the flow by more than this part is none that pays more in the end: much more than whole
# units and parts per million make of a plan, and where pools are tabulated, much more than the tables are off.
CLEARLY, CLEARLY_TABULATED = 1e-5, 1e-2
SLIGHTLY = 1e-6  # relative: more than parts per million make of the output of a plan whose units do not count
_DESCENTS = 8


class Router(SpotGraph):
    """Finds routes over a set of pools. One thread at a time; the scratch memory is reused (`twin` has its own).

    With `liquidity` the LP tokens that pools trade can also be minted and redeemed on the way.
    """

    def __init__(
        self,
        pools: Iterable[Pool],
        market: DictMarket,
        curves: CurveCache | None = None,
        *,
        liquidity: bool = False,
        table: Table | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        chosen = list(pools)
        names = dict.fromkeys(token for pool in chosen for token in pool.tokens)
        index = {token: k for k, token in enumerate(names)}
        more = lp_edges(chosen, market, index) if liquidity else []
        self.has_liquidity = bool(more)
        pause()
        self.built_of = clean, dust = sort_out(chosen, market, pause)
        """The pools that routes may use, as they were then: those that hold enough, and dust."""
        self._usable = [*clean, *dust]
        self._edges, trades = list_edges(self._usable, index, curves or CurveCache(), more, pause)
        pause()
        self._dust = _trades_with(trades, {pool.id for pool in dust})
        self.aside: Callable[[], None] = lambda: None
        """Called between the steps of what takes long: so that others can go first."""
        self._least: dict[str, int] | None = None  # with fewer units a pool is dust; see `moved`
        self._numbers: dict[str, list[int]] = {}  # of each pool's trades
        for number, trade in enumerate(trades):
            self._numbers.setdefault(trade.pool.id, []).append(number)
        self.index = index
        self.table = table or Table()
        """What trades take of a transaction."""
        self._costs = costs_of(trades, self.table, pause)
        self._second_looks = SECOND_LOOKS if self._edges.curves else 0
        self._clearly = CLEARLY_TABULATED if self._edges.curves else CLEARLY
        self._slightly = CLEARLY_TABULATED / 2.0 if self._edges.curves else SLIGHTLY
        pause()
        self.outlets = find_outlets(chosen, market)
        """What swaps do to other pools."""
        self._terms = make_terms(trades, self.outlets, pause)
        pause()
        self._favoured = None if self.has_liquidity else list_favours(trades, pause)
        pause()
        self._lay_out(trades, pause)

    def _lay_out(self, trades: list[Trade], pause: Callable[[], None], tree: Sequence[int] | None = None) -> None:
        """Make the graph of the edges: the whole one, and, if some of them lead astray, that without them.

        `tree` is that of a market much like this one, if there is one.
        """
        edges, dust, tokens = self._edges, self._dust, len(self.index)
        whole = nets.build(tokens, edges, pause, tree=tree, dust=dust)
        pause()
        flags = dust.copy()
        flags[whole.original] = astray(whole.net, dust[whole.original])
        pause()
        graph = nets.build(tokens, edges, pause, flags, whole.tree) if flags.any() else whole
        self.mispriced = False
        """Whether cycles of the graph gain."""
        self._often = bool(np.count_nonzero(flags & ~dust) > OFTEN * len(trades))
        self._whole: Router | None = None
        if flags.any():
            other = copy.copy(self)
            other.mispriced = True
            other._prepare(whole, trades, pause)
            self._whole = other
        self._prepare(graph, trades, pause)

    def _prepare(self, graph: Graph, trades: list[Trade], pause: Callable[[], None]) -> None:
        """What is made of a graph once."""
        super().__init__(self.index, graph, trades)
        self._prices: CyclePrices | None = None
        fees = fees_of(self._costs[graph.original])
        self._tables = self._terms.of(graph)
        pause()
        self._finder = PathFinder(graph, trades, fees, self._tables)
        pause()
        self._favours = None if self._favoured is None else Favours(graph, self._favoured, fees)
        pause()
        self._scratch()

    def moved(self, pools: Mapping[str, Pool]) -> Router:
        """The same market with these pools, by id, as a plan leaves them.

        Only what they change is made anew: tokens are scaled along the same edges unless those
        moved far, and dust is the same unless a pool is emptied. Raises
        `NoCurve` where one takes no trades any more, or LP units of it are traded: those who meet it build a new one.
        """
        other = copy.copy(self)
        other._edges, changed = with_moved(self._edges, self._trades_with(pools), pools)
        trades = [*self._trades]
        for number, trade in changed.items():
            trades[number] = trade
        other._usable = [pools.get(pool.id, pool) for pool in self._usable]
        if self._least is None:
            self._least = least_held(self._usable)
        tree = self._tree_of(other._edges, changed)
        if not all(holds_enough(pool, self._least) for pool in pools.values()):
            other._dust, tree = _trades_with(trades, find_dust(other._usable)), None
        other.outlets = self.outlets.moved(pools)
        sellers = [name for name, buyers in other.outlets.of.items() if any(pool.id in pools for pool in buyers)]
        other._terms = self._terms.moved(self._trades_with(sellers) | changed, other.outlets)
        if self._favoured is not None:
            other._favoured = self._favoured.copy()
            other._favoured[[*changed]] = list_favours(changed.values())
        other._lay_out(trades, lambda: None, tree)
        return other

    def _tree_of(self, edges: Edges, changed: Container[int]) -> Sequence[int] | None:
        """The edges along which tokens are scaled, unless these edges moved the rate of one of them much."""
        tree = self._graph.tree
        moved = [number for number in tree if number in changed]
        before, after = (each.r[moved] / each.a[moved] for each in (self._edges, edges))
        near = (after < before * NEAR) & (before < after * NEAR)
        return tree if near.all() else None

    def _scratch(self) -> None:
        """Memory that a search writes to."""
        self.forget()
        self._kernels = KernelSearch(self._graph, self._trades, self._costs)
        self._wide = WideSearch(self._graph.net)
        self._plans = Plans(
            partial(scale_of, self._graph, self.index),
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

    @property
    def whole(self) -> Router:
        """The same market with the edges astray."""
        return self if self._whole is None else self._whole

    def twin(self, aside: Callable[[], None] = lambda: None) -> Router:
        """The same graph with scratch memory of its own, for another thread; `aside` is called between steps."""
        other = copy.copy(self)
        other.aside, other._finder = aside, self._finder.twin()
        other._whole = None if self._whole is None else self._whole.twin(aside)
        other._scratch()
        return other

    def _trades_with(self, pools: Iterable[str]) -> dict[int, Trade]:
        """All trades with these pools, by number."""
        return {number: self._trades[number] for name in pools for number in self._numbers.get(name, ())}

    def _cycles(self) -> Search:
        """The question for all cycles that gain, over the token with the most neighbours, with as much as it has."""
        net = self._graph.net
        hub = int(np.diff(net.pptr).argmax())
        token = list(self.index)[hub]
        deepest = float(net.a[net.src == hub].max(initial=0.0))
        return self.search(token, token, max(int(deepest / self._graph.scale[hub]), 1))

    def slow(self, token_in: str, token_out: str) -> bool:
        """Whether a question takes milliseconds, in a market with much mispricing."""
        if token_in == token_out:
            return self.whole.mispriced
        return self._graph.net.astray.size > OFTEN * len(self._trades)

    def connected(self, token_in: str, token_out: str) -> bool:
        """Whether a route exists at all."""
        beside = self.whole is not self and self.whole.connected(token_in, token_out)
        return beside or super().connected(token_in, token_out)

    def short_path(self, token_in: str, token_out: str) -> list[Trade]:
        """A path of the fewest pools, over edges astray only where there is no other."""
        path = super().short_path(token_in, token_out)
        return path if path or self._whole is None else self._whole.short_path(token_in, token_out)

    def spot_rate(self, token_in: str, token_out: str) -> float:
        """Best output per input of a very small trade, over edges astray only where there is no other route."""
        rate = super().spot_rate(token_in, token_out)
        return rate if rate > 0.0 or self.whole is self else self.whole.spot_rate(token_in, token_out)

    def warm(self, pause: Callable[[], None] = lambda: None) -> None:
        """Make the scratch memory by asking once, so that no later question does. `pause` is called in between."""
        if len(self._trades) == 0:
            return
        trade = self._trades[0]
        amount = max(1, trade.pool.reserves[trade.i] // 100)
        self.exact_path(trade.token_in, trade.token_out, amount, Limits(), budget=1)
        algorithms: tuple[Algorithm, ...] = ("greedy", "hybrid")
        for algorithm in algorithms:
            pause()
            with contextlib.suppress(NoRoute, PlanError):
                self.forward(trade.token_in, trade.token_out, amount, Limits(paths=1), algorithm)
        if self.whole is not self:
            self.whole.warm(pause)

    def forward(
        self,
        token_in: str,
        token_out: str,
        amount_in: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float = math.inf,
        *,
        hurry: bool = False,
    ) -> Route:
        """The best plan that sells `amount_in`; with `token_in == token_out` the most profitable cycles.

        Raises `NoRoute`, or `PlanError` if no plan executes. `deadline` is on `time.monotonic`: past it
        the best plan so far is the answer. With `hurry` it raises `NeedsTime` instead of searching for long.
        """
        if amount_in < 1:  # the kernels would look for ever for a unit of nothing
            raise PlanError("no plan executes this amount")
        asked = token_in, token_out, amount_in, limits, algorithm, deadline, hurry
        if token_in == token_out:
            return self.whole._cycles_of(*asked)
        if self.whole is self:
            return self._forward(*asked)
        route: Route | None = None
        if not self._needless(limits) and super().connected(token_in, token_out):
            with contextlib.suppress(NoRoute, PlanError):
                route = self._forward(*asked)
        if route is not None and not self._gains_astray(route, token_out):
            return route
        if hurry and self.whole.connected(token_in, token_out):
            raise NeedsTime
        try:
            other = self.whole._forward(*asked)
        except (NoRoute, PlanError):
            if route is None:
                raise
            return route
        return other if route is None else self._better(route, other, limits)

    def _needless(self, limits: Limits) -> bool:
        """Whether no better answer is expected without the edges astray.

        Under tight limits it can be: where cycles gain the best flow is long, and what the limits leave of it is poor.
        """
        return self._often and limits.hops >= MANY_HOPS and not self._kernels.narrow(limits)

    def _cycles_of(
        self,
        token: str,
        also: str,
        amount: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float,
        hurry: bool,
    ) -> Route:
        """The most profitable cycles."""

        def forward(part: int, looks: bool) -> Route:
            most = COARSE_LOOKS if looks else 0
            return self._forward(token, also, part, limits, algorithm, deadline, hurry, most)

        net, deepest = partial(self._net, limits=limits), self.depth(token)
        return Cycles(token, amount, deepest, forward, net, self.outlets, deadline).best()

    def _gains_astray(self, route: Route, token_out: str) -> bool:
        """Whether edges astray could make the answer just found a better one."""
        more = self._kernels.astray() / self._scales[self.index[token_out]]
        return more > max(GAIN_ASTRAY * route.execution.amount_out, 0.0)

    def _better(self, one: Route, other: Route, limits: Limits) -> Route:
        """The answer that pays more, less its fee, with the lower one of their bounds."""
        best = other if self._net(other, limits) > self._net(one, limits) else one
        return best.below(min(one.bound(), other.bound()))

    def _net(self, route: Route, limits: Limits) -> int:
        """What an answer pays, less its fee."""
        return net_of(route.execution, self.table, limits.toll)

    def bound_of_single_trades(self, token_in: str, token_out: str, amount_in: int) -> float:
        """What no plan pays more than that trades at most once with each pool in each direction, in smallest units.

        Weak duality on the very curves of the pools. The bound behind `gap` is larger: it holds for trades in pieces.
        """
        search = self.search(token_in, token_out, amount_in)
        self._kernels.flow(search, Limits())
        return self._bound(Ask(token_in, token_out, amount_in, search, Limits()), self._kernels.bound(once=True))

    def _forward(
        self,
        token_in: str,
        token_out: str,
        amount_in: int,
        limits: Limits,
        algorithm: Algorithm,
        deadline: float,
        hurry: bool,
        most: int = BUDGET,
    ) -> Route:
        """`forward` over this graph alone, with at most so many trades evaluated in whole units."""
        self.aside()
        if not self.connected(token_in, token_out):
            raise NoRoute("no path between tokens")
        search = self.search(token_in, token_out, amount_in)
        if search.cycle and search.top <= 1.0:
            raise NoRoute("no profitable cycle")
        ask = Ask(token_in, token_out, amount_in, search, limits, self._kernels.narrow(limits))
        self._plans.too_long = 0
        among = None if self._mispricing is None or search.cycle else self._mispricing.best(ask, algorithm, deadline)
        if among is not None:
            upper = self._bound(ask, among.upper)
            budget = self._doubts(ask, among.plan, among.single, upper) if among.near else 0
            most = BUDGET if among.plan is None else COARSE_LOOKS
            return self._settled(ask, among.plan, upper, min(budget, most), deadline, hurry)
        if algorithm == "greedy":
            self._kernels.flow(search, limits)
            best, found, upper = None, None, self._bound(ask, self._kernels.bound())
        else:
            best, found, upper = self._by_flow(ask, split=algorithm == "hybrid")
            if best is not None and _leaves_most(ask, best, found, upper):
                return _proven(best, upper)
        path, split = self._paths(ask, best, found, split=algorithm != "lagrangian")
        # The best single path is the floor of every algorithm.
        single = self._plans.of_paths(ask, [path], [1.0], best) if path else None
        best = self._plans.better(ask, best, single)
        if split.paths and (best is None or time.monotonic() < deadline):
            best = self._plans.better(ask, best, self._plans.of_paths(ask, *split, single))
        if self.mispriced and (best is None or time.monotonic() < deadline):
            room = self._kernels.room(ask.limits, ask.search.sink)
            best = self._plans.better(ask, best, self._by_wide_path(ask, best, room))
        budget = self._doubts(ask, best, single, upper) if path or best is None else 0
        if single is None and self._plans.too_long:
            budget = 0  # no doubt about what the best path pays: it is too long
        return self._settled(ask, best, upper, min(budget, most), deadline, hurry)

    def _settled(self, ask: Ask, best: Done | None, upper: float, budget: int, deadline: float, hurry: bool) -> Route:
        """The answer, after another look in integers of `budget` trades. Raises like `forward`."""
        allowed = HASTY_LOOKS if hurry else BUDGET
        if budget and (best is None or time.monotonic() < deadline):
            best = self._plans.better(ask, best, self._by_exact_path(ask, best, budget, allowed))
        if self._plans.too_long > (0 if best is None else best.amount_out):
            best = self._plans.better(ask, best, self._by_shorter_paths(ask, best, allowed))
        if ask.search.cycle and (best is None or best.amount_out <= ask.amount_in):
            raise NoRoute("no profitable cycle")
        if best is None and not self.reaches(ask.token_in, ask.token_out, ask.limits):
            raise NoRoute("no path between tokens within the limits")
        if best is None:
            raise PlanError("no plan executes this amount")
        return _proven(best, upper)

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
        gained = self._gained(ask, flow, self._clearly / 4.0)
        if paid >= found.paid * (1.0 - self._slightly) and gained <= self._clearly / 4.0:
            return found.single, found.split
        again = split and not found.split.paths and (len(self._trades) <= LARGE_NET or paid < nearly)
        fee = (flow.amount_out - self._plans.net(ask, flow)) * self._scales[ask.search.sink]
        floor = max((paid - fee) * (1.0 - self._slightly) / (1.0 + gained), 0.0)
        asked = max((found.paid - fee) * (1.0 - self._clearly), 0.0)
        settled = floor <= asked if found.single else floor >= min(asked, found.upper_path)
        if settled and not again:
            return found.single, found.split
        single, other = self._kernels.paths(ask.search, ask.limits, floor, split=again)
        return single, other if again else found.split

    def _gained(self, ask: Ask, done: Done, enough: float) -> float:
        """The part of an output that a single path could gain by rounding, if it leaves more than this plan then.

        What is no more than `enough` is not looked at closely.
        """
        if self._favours is None:
            return 0.0
        limits, paid = ask.limits, done.amount_out
        roughly = limits.hops * self._favours.of_one(ask.search) / paid
        if roughly <= enough or not ask.search.closed:  # in others spot rates may lead round a cycle that earns
            return roughly
        return self._favours.of_path(ask.search, limits.hops, limits.toll, self._plans.net(ask, done)) / paid

    def _by_wide_path(self, ask: Ask, best: Done | None, room: Room) -> Done | None:
        """The best single path by a search that keeps many partial ones, if it pays more than `best`."""
        edges = self._wide.best(ask.search, path_hops(ask.limits), self._floor(ask, best), room)
        path = [self._finder.trades[e] for e in edges]
        return self._plans.of_paths(ask, [path], [1.0]) if path else None

    def _by_shorter_paths(self, ask: Ask, best: Done | None, allowed: int) -> Done | None:
        """The best plan of paths that fit into the transaction where a longer one would have paid more than `best`.

        Raises `NeedsTime`.
        """
        better = partial(self._plans.better, ask)
        room = self._kernels.room(ask.limits, ask.search.sink)._replace(strict=True)
        path, split = self._kernels.paths(ask.search, ask.limits, 0.0, split=ask.limits.paths > 1, strict=True)
        found = self._plans.of_paths(ask, [path], [1.0]) if path else None
        if split.paths:
            found = better(found, self._plans.of_paths(ask, *split))
        if self.mispriced:
            found = better(found, self._by_wide_path(ask, better(best, found), room))
        return better(found, self._by_exact_path(ask, better(best, found), COARSE_LOOKS, allowed))

    def _floor(self, ask: Ask, best: Done | None) -> float:
        """What a path has to pay more than, scaled."""
        floor = NOTHING if best is None else self._plans.net(ask, best) * self._scales[ask.search.sink]
        return max(floor, float(ask.search.amounts[0])) if ask.search.cycle else floor

    def _doubts(self, ask: Ask, best: Done | None, single: Done | None, upper: float) -> int:
        """How many trades to evaluate in search of a path that pays more in integers than `best`; 0: none.

        A path that looked no better in floating point may do so where units count, be it that they are lost or gained
        by rounding, and where the tables of curved pools are off.
        """
        if best is None or not isinstance(single, Walked):
            return BUDGET
        counts, shows = (
            (SLIGHTLY, SLIGHTLY) if ask.limits.toll > 0.0 else (NEGLIGIBLE, SMALL_GAIN)
        )  # fees are estimates
        lost, gained = rounding(single), self._gained(ask, best, shows)
        doubtful = single.amount_out * (lost + gained + NEGLIGIBLE)
        if best is not single and self._plans.net(ask, best) >= self._plans.net(ask, single) + doubtful:
            return 0
        if lost > counts:
            if best.amount_out >= upper * (1.0 - SLIGHTLY):
                return HASTY_LOOKS
            return COARSE_LOOKS if lost > FEW_UNITS else SECOND_LOOKS
        return SECOND_LOOKS if gained > shows else self._second_looks

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
        best = partial(self._finder.best, source, sink, amount, path_hops(limits), floor, behind, limits.toll)
        found = best(budget, allowed=allowed)
        if found is not None and self._kernels.narrow(limits) and not self._plans.fits(limits, found):
            share = self._kernels.room(limits, sink).share
            found = best(min(budget, COARSE_LOOKS), allowed=allowed, share=share)
        return found

    def reaches(self, token_in: str, token_out: str, limits: Limits) -> bool:
        """Whether any path, whatever it pays, holds the limits."""
        source, sink = self.index[token_in], self.index[token_out]
        every = self.whole
        least = every._finder.least_shares(sink, every._kernels.room(limits, sink).share, path_hops(limits))
        return bool(least[source] <= WHOLE)

    def cheapest_path(self, token_in: str, token_out: str, wanted: int, guess: int, limits: Limits) -> Done | None:
        """The single path that pays `wanted` for the smallest input, with that input; None if none is found.

        `guess` is an input that is about enough. The paths' exact inverses descend: the next path must pay
        for one unit less than the last one needed.
        """
        best: Done | None = None
        amount = guess
        for _ in range(_DESCENTS):
            floor = -math.inf if best is None else wanted - 1
            path = self.exact_path(token_in, token_out, amount, limits._replace(toll=0.0), floor)
            if path is None:
                break
            try:
                amount = needed(path, wanted)
                ask = Ask(token_in, token_out, amount, self.search(token_in, token_out, amount), limits)
                found = self._plans.of_paths(ask, [path], [1.0])
            except PoolError:
                found = None
            if found is None or found.amount_out < wanted:
                break
            best = found
            amount -= 1
        return best

    def find_paths(
        self, token_in: str, token_out: str, amount_in: int, limits: Limits
    ) -> list[tuple[list[Trade], float]]:
        """Greedy paths for an amount with the part each takes (summing to 1). Raises `PlanError` if none."""
        if not self.connected(token_in, token_out) or token_in == token_out:
            raise PlanError(f"no path from {token_in} to {token_out}")
        self.aside()
        search = self.search(token_in, token_out, amount_in)
        paths, flows = self._kernels.paths(search, limits, 0.0, split=True, strict=self._kernels.narrow(limits))[1]
        whole = sum(flows)
        if whole <= 0.0:
            raise PlanError(f"no path from {token_in} to {token_out}")
        return [(path, flow / whole) for path, flow in zip(paths, flows, strict=True) if flow > 0.0]

    def find_flow(self, amounts: Mapping[str, int], token_out: str, limits: Limits) -> tuple[list[Trade], list[float]]:
        """The dual's flow that sells `amounts` of several tokens, none of them `token_out`.

        Trades in execution order and their inputs (in `scale`); empty if the limits leave none. The dual needs
        a path for each of the tokens. Raises `PlanError` if one of them is not connected, or there is none of it.
        """
        sink, tokens = self.index.get(token_out, -1), [self.index.get(token, -1) for token in amounts]
        if min(sink, *tokens) < 0 or min(amounts.values()) < 1:
            raise PlanError(f"no path to {token_out}")
        rates = [self.best_rate(token, sink) for token in tokens]
        if min(rates) <= 0.0:  # in this graph: that edges astray connect them is of no use here
            raise PlanError(f"no path to {token_out}")
        self.aside()
        sources = np.array(tokens, np.int32)
        scaled = np.array(
            [amount * self._scales[token] for token, amount in zip(tokens, amounts.values(), strict=True)]
        )
        ahead = np.zeros(len(self.index))
        for source, rate in zip(tokens, rates, strict=True):  # each token's own best route is worth 1
            np.maximum(ahead, self.potential(source, backward=False) / rate, out=ahead)
        single = int(sources[0]) if len(amounts) == 1 else -1
        behind = self.potential(sink, backward=True)
        search = Search(sources, scaled, sink, False, sink, single, ahead, behind, 1.0, closed=False)
        flow = self._kernels.flow(search, limits._replace(paths=max(limits.paths, len(amounts))))
        if flow.trades and longest(flow.trades) > limits.hops:
            return [], []
        return flow.trades, flow.inputs.tolist()


def _trades_with(trades: Sequence[Trade], pools: Container[str]) -> Bools:
    """Which of the trades are with one of these pools."""
    return np.array([trade.pool.id in pools for trade in trades], np.bool_)


def _leaves_most(ask: Ask, flow: Done, found: Found, upper: float) -> bool:
    """Whether no other plan can pay a unit more, nor a single path leave more after its fee."""
    if flow.amount_out + 1 <= upper or rounding(flow) > NEGLIGIBLE:
        return False
    single = found.single if ask.limits.toll > 0.0 else []
    return not single or (isinstance(flow, Walked) and flow.trades == single)


def _proven(done: Done, upper: float) -> Route:
    """The answer with its gap to the bound."""
    return Route(done.execution(), gap_of(done.amount_out, upper))
