"""Answers in large markets with mispricing: a good path, the best flow in an order around it, and a split.

The path is found first, with few partial ones kept to each token, and gives an order of the tokens in which no cycle is
left (`inorder.py`), and so does a better one, where more partial ones find it. After the best flow in each order comes
a split along paths of any order, exchanged one by one; and around all of these another order, as they say more about
the best one than a single path does.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Literal, NamedTuple

from millrace.routing.attempt import Ask, Done, Plans, rounding
from millrace.routing.kernelsearch import CyclePrices, KernelSearch, Ways
from millrace.routing.limits import path_hops
from millrace.routing.net import Floats
from millrace.routing.parts import FEW
from millrace.routing.widepath import BETTER, WideSearch

FEWER = 4  # paths, as the exchange begins with: what is asked for with more of them pays no less than with these
COUNTS = 1e-4  # relative: what a path loses by rounding from here on is worth a search in whole units
Algorithm = Literal["greedy", "lagrangian", "hybrid"]


class Best(NamedTuple):
    """The best plan found, and the bound (scaled).

    `single` is the best single path where that may pay as much as the best plan; `near` says that another one may
    pay more in whole units.
    """

    plan: Done | None
    single: Done | None
    near: bool
    upper: float


class Mispricing:
    """Answers questions about one market. One thread at a time.

    `scale` are the token scales of the graph, `prices` those at which its cycles earn little; `clearly` is the part by
    which a path must look worse to be worse.
    """

    def __init__(
        self,
        scale: Floats,
        prices: CyclePrices,
        kernels: KernelSearch,
        wide: WideSearch,
        plans: Plans,
        clearly: float,
    ) -> None:
        self._scale = scale
        self._prices = prices
        self._kernels = kernels
        self._wide = wide
        self._plans = plans
        self._nearly = 1.0 - clearly

    def best(self, ask: Ask, algorithm: Algorithm, deadline: float) -> Best | None:
        """The best plan that sells an amount for another token; None where the first look finds no path at all."""
        search, limits, better = ask.search, ask.limits, partial(self._plans.better, ask)
        hops = path_hops(limits)
        room = self._kernels.room(limits, search.sink)
        edges, paid, complete = self._wide.quick(search, hops, room)
        if not edges:
            return None
        plan, upper = self._in_order(ask, algorithm, Ways.single(edges, search), None, self._prices.bound(search))
        if not complete and (plan is None or time.monotonic() < deadline):
            wider = self._wide.best(search, hops, paid, room)
            if wider:
                edges, paid = wider, float(self._wide.work.best[0])
                plan, upper = self._in_order(ask, algorithm, Ways.single(edges, search), plan, upper)
        if algorithm != "lagrangian" and limits.paths > 1 and (plan is None or time.monotonic() < deadline):
            starts = [edges]
            if room.price > 0.0 and not room.strict:  # a path may be worth its fee with others beside it
                gross = paid + float(room.fee[edges].sum()) * room.price
                starts.append(self._wide.quick(search, hops, room._replace(price=0.0), gross * BETTER)[0])
            split, ways, worth, widest = self._kernels.exchange_wide(self._wide.work, search, starts, limits)
            merged = None
            if worth > max(self._scaled(ask, plan), paid) * self._nearly:
                merged = self._plans.of_paths(ask, *split, merge=True)
                plan = better(plan, merged)
            if self._kernels.short_of_stock(search):  # where a stock ends is seen by chunks, and not by slopes
                plan = better(plan, self._plans.of_paths(ask, *self._kernels.paths(search, limits, 0.0, split=True)[1]))
            if algorithm != "greedy" and len(split.paths) > 1:
                plan, upper = self._in_order(ask, algorithm, ways, plan, upper)
            if widest > FEWER and (plan is merged or limits.paths <= FEW):  # flows alike pay enough without
                plan = better(plan, self._with_fewer(ask, starts))
        if plan is not None and paid < self._scaled(ask, plan) * self._nearly:
            return Best(plan, None, room.strict, upper)
        trades = [self._kernels.trades[e] for e in edges]
        single = self._plans.of_paths(ask, [trades], [1.0], plan)
        near = room.strict or single is None or rounding(single) > COUNTS
        return Best(better(plan, single), single, near, upper)

    def _in_order(
        self, ask: Ask, algorithm: Algorithm, ways: Ways, plan: Done | None, upper: float
    ) -> tuple[Done | None, float]:
        """The best of `plan` and the flow in an order around these paths, and the lower one of both bounds."""
        found = self._kernels.find_in_order(ask.search, ways, ask.limits)
        if algorithm != "greedy":
            plan = self._plans.better(ask, plan, self._plans.of_flow(ask, found.flow))
        return plan, min(upper, found.upper)

    def _with_fewer(self, ask: Ask, starts: list[list[int]]) -> Done | None:
        """The split that a request for few paths gets: where more are exchanged it may end below that."""
        fewer = ask.limits._replace(paths=FEWER)
        split = self._kernels.exchange_wide(self._wide.work, ask.search, starts, fewer)[0]
        return self._plans.of_paths(ask, *split, merge=True)

    def _scaled(self, ask: Ask, plan: Done | None) -> float:
        """What a plan pays, less its fee, in the kernels' units."""
        return 0.0 if plan is None else max(self._plans.net(ask, plan), 0) * float(self._scale[ask.search.sink])
