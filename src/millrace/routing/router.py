"""Route search over one market: questions in tokens and integers, answers as executed plans."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.routing import net as nets
from millrace.routing.answers import COARSE_LOOKS, Answers, Question
from millrace.routing.astray import astray
from millrace.routing.attempt import Ask, Done, longest
from millrace.routing.candidates import Search
from millrace.routing.costs import Table
from millrace.routing.cycles import Cycles
from millrace.routing.exactpath import NeedsTime, needed
from millrace.routing.favour import list_favours
from millrace.routing.limits import Limits as Limits  # callers know it from here
from millrace.routing.limits import costs_of
from millrace.routing.lpedges import lp_edges
from millrace.routing.mispricing import Algorithm as Algorithm
from millrace.routing.net import Bools, Edges
from millrace.routing.outlets import find_outlets
from millrace.routing.plan import PlanError
from millrace.routing.route import NoRoute as NoRoute
from millrace.routing.route import Route as Route
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

NEAR = 1.1  # times: scales read off a rate that has moved further cost a search a large part of what it finds
OFTEN = 0.03  # of the trades: with so many astray most questions are put to the whole market; one in 250 loses by it
_DESCENTS = 8  # inputs tried in search of the cheapest path
MANY_HOPS = 10  # pools on a path: what requests may ask for at most, and get unless they ask for less
GAIN_ASTRAY = 1e-6  # of an answer: what edges astray must promise, a tenth of what anybody may lose by them


class Router(Answers):
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
        clean, dust = sort_out(chosen, market, pause)
        self.faulty: dict[str, str] = {}
        """The pools that none uses because their numbers come to nothing, by id, and why."""
        self._edges, trades = list_edges([*clean, *dust], index, curves or CurveCache(), more, pause, self.faulty)
        clean, dust = ([pool for pool in part if pool.id not in self.faulty] for part in (clean, dust))
        self.built_of = clean, dust
        """The pools that routes may use, as they were then: those that hold enough, and dust."""
        self._usable = [*clean, *dust]
        pause()
        self._dust = _trades_with(trades, {pool.id for pool in dust})
        self.aside: Callable[[], None] = lambda: None
        self._least: dict[str, int] | None = None  # with fewer units a pool is dust; see `moved`
        self._numbers: dict[str, list[int]] = {}  # of each pool's trades
        for number, trade in enumerate(trades):
            self._numbers.setdefault(trade.pool.id, []).append(number)
        self.index = index
        self.table = table or Table()
        self._costs = costs_of(trades, self.table, pause)
        self._tabulated = bool(self._edges.curves)
        pause()
        self.outlets = find_outlets(chosen, market)
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
        self._often = bool(np.count_nonzero(flags & ~dust) > OFTEN * len(trades))
        self._whole: Router | None = None
        if flags.any():
            other = copy.copy(self)
            other.mispriced = True
            other._prepare(whole, trades, pause)
            self._whole = other
        self._prepare(graph, trades, pause)

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

    def spot_of(self, trade: Trade) -> float:
        """The spot rate here of a trade of another market, in which its pool may have moved.

        Where there is no such trade it is the other market's: at no rate at all, a plan would seem to move nothing.
        """
        mine = self._trades_with([trade.pool.id]).values()
        return next((one.spot for one in mine if (one.i, one.j) == (trade.i, trade.j)), trade.spot)

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
        asked = Question(token_in, token_out, amount_in, limits, algorithm, deadline, hurry)
        if token_in == token_out:
            return self.whole._cycles_of(asked)
        if self.whole is self:
            return self._forward(asked)
        route: Route | None = None
        if not self._needless(limits) and super().connected(token_in, token_out):
            with contextlib.suppress(NoRoute, PlanError):
                route = self._forward(asked)
        if route is not None and not self._gains_astray(route, asked):
            return route
        if hurry and self.whole.connected(token_in, token_out):
            raise NeedsTime
        try:
            other = self.whole._forward(asked)
        except (NoRoute, PlanError):
            if route is None:
                raise
            return route
        return other if route is None else self._better(route, other, limits)

    def _needless(self, limits: Limits) -> bool:
        """Whether no better answer is expected without the edges astray.

        Under tight limits it can be: where cycles gain the best flow is long, and what the limits leave of it is poor.
        """
        return self._often and limits.hops >= MANY_HOPS and not self._kernels.room(limits, 0).strict

    def _cycles_of(self, asked: Question) -> Route:
        """The most profitable cycles."""

        def forward(part: int, looks: bool) -> Route:
            return self._forward(asked._replace(amount_in=part), COARSE_LOOKS if looks else 0)

        token, limits = asked.token_in, asked.limits
        there = self.depth(token), forward, partial(self._net, limits=limits), self.outlets
        return Cycles(token, asked.amount_in, *there, asked.deadline, limits.bps).best()

    def _gains_astray(self, route: Route, asked: Question) -> bool:
        """Whether edges astray could make the answer just found a better one."""
        paid, scale = route.execution.amount_out, self._scales[self.index[asked.token_out]]
        search = self.search(asked.token_in, asked.token_out, asked.amount_in)
        more = self._kernels.astray(search, asked.limits, paid * scale, lambda: self._net(route, asked.limits) * scale)
        return more > GAIN_ASTRAY * paid * scale

    def _better(self, one: Route, other: Route, limits: Limits) -> Route:
        """The answer that pays more, less its fee, with the lower one of their bounds."""
        best = other if self._net(other, limits) > self._net(one, limits) else one
        return best.below(min(one.bound(), other.bound()))

    def cheapest_path(self, token_in: str, token_out: str, wanted: int, guess: int, limits: Limits) -> Done | None:
        """The single path that pays `wanted` for the smallest input, with that input; None if none is found.

        `guess` is an input that is about enough. The paths' exact inverses descend: the next path must leave
        more for one unit less than the last one needed. Where fees count, that is the cheapest one with its fee.
        """
        best: Done | None = None
        amount, floor = guess, -math.inf
        for _ in range(_DESCENTS):
            path = self.exact_path(token_in, token_out, amount, limits, floor)
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
            best, floor = found, wanted - 1 - (found.amount_out - self._plans.net(ask, found))
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
        paths, flows = self._kernels.paths(search, limits, 0.0, split=True)[1]
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
