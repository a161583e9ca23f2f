"""Answers in large markets with mispricing: a good path, others beside it, and the best flow in an order around them.

The path is found first. Where all of the amount moves its rate, a split along paths of any order begins with it,
exchanged one by one. These paths give an order of the tokens in which no cycle is left (`inorder.py`), and a flow that
grows from them in it divides and mixes as no few paths can.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Literal, NamedTuple

from millrace.routing.attempt import Ask, Done, Plans, rounding
from millrace.routing.kernelsearch import CyclePrices, KernelSearch, Ways
from millrace.routing.limits import path_hops
from millrace.routing.net import Floats
from millrace.routing.widepath import BETTER, WideSearch

SAME = 1e-6  # relative: a split that pays no more or less than this beside the flow is what it has grown to
COUNTS = 1e-4  # relative: what a path loses by rounding from here on is worth a search in whole units
DEEP = 0.1  # of a path's rate, lost to all of the amount: from here on the dual in its own order may be better
DEEP_FREE = 0.01  # the same where pools cost no fee: there the dual has use for many more of them than few paths have
SHALLOW = 1e-3  # the same: up to here a single path leaves nothing to others
DEAR = 1e-4  # of what a path leaves: where its fee is more, another one that pays more may leave more beside others
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


class Mispricing(NamedTuple):
    """Answers questions about one market. One thread at a time.

    `scale` are the token scales of the graph, `prices` those at which its cycles earn little; `clearly` is the part by
    which a path must look worse to be worse.
    """

    scale: Floats
    prices: CyclePrices
    kernels: KernelSearch
    wide: WideSearch
    plans: Plans
    clearly: float

    def best(self, ask: Ask, algorithm: Algorithm, deadline: float) -> Best | None:
        """The best plan that sells an amount for another token; None where the first look finds no path at all."""
        search, limits, better = ask.search, ask.limits, partial(self.plans.better, ask)
        room = self.kernels.room(limits, search.sink)
        edges, paid = self.wide.best(search, path_hops(limits), room)
        if not edges:
            return None
        fee = float(room.fee[edges].sum()) * room.price if room.price > 0.0 else 0.0
        impact = self.kernels.impact(search, edges, paid + fee)
        alone, upper, plan = Ways.single(edges, search), self.prices.bound(search), None
        ways, worth = alone, 0.0
        if limits.paths > 1 and impact > SHALLOW and time.monotonic() < deadline:
            starts = self._starts(ask, edges, paid, fee)
            splits = [self.kernels.exchange_wide(self.wide, search, start, limits) for start in starts]
            ways, worth = max([(alone, 0.0), *splits], key=lambda found: found[1])
        short = self.kernels.short_of_stock(search)  # where one ends is seen by the dual and by chunks, not by slopes
        if algorithm != "greedy":
            plan = self.plans.of_flow(ask, self.kernels.flow_around(search, ways, limits))
            if short or impact > (DEEP if limits.toll > 0.0 else DEEP_FREE):
                flow, bound = self.kernels.flow_in_order(search, alone, limits)
                plan, upper = better(plan, self.plans.of_flow(ask, flow)), min(upper, bound)
        left = self._scaled(ask, plan)
        may_pay_more = worth > max(left, paid) * (1.0 - self.clearly) and abs(worth - left) > SAME * left
        if algorithm != "lagrangian" and may_pay_more:
            plan = better(plan, self.plans.of_paths(ask, *self.kernels.split(ways, search), merge=True))
        if worth > 0.0 and short:
            plan = better(plan, self.plans.of_paths(ask, *self.kernels.paths(search, limits, 0.0, split=True)[1]))
        if plan is not None and paid < self._scaled(ask, plan) * (1.0 - self.clearly):
            return Best(plan, None, room.strict, upper)
        trades = [self.kernels.trades[e] for e in edges]
        single = self.plans.of_paths(ask, [trades], [1.0], plan)
        if plan is None and single is None:  # what few trades lose to rounding the dual's flow may not
            plan = self.plans.of_flow(ask, self.kernels.flow_in_order(search, alone, limits)[0])
        near = room.strict or single is None or rounding(single) > COUNTS
        return Best(better(plan, single), single, near, upper)

    def _starts(self, ask: Ask, edges: list[int], paid: float, fee: float) -> list[list[int]]:
        """Paths to begin a split with: the best one, which leaves `paid` after its `fee`, and maybe another one."""
        room = self.kernels.room(ask.limits, ask.search.sink)
        if fee <= paid * DEAR or room.strict:
            return [edges]
        free = room._replace(price=0.0)  # a path may be worth its fee with others beside it
        other, _ = self.wide.best(ask.search, path_hops(ask.limits), free, (paid + fee) * BETTER)
        return [edges, other] if other else [edges]

    def _scaled(self, ask: Ask, plan: Done | None) -> float:
        """What a plan pays, less its fee, in the kernels' units."""
        return 0.0 if plan is None else max(self.plans.net(ask, plan), 0) * float(self.scale[ask.search.sink])
