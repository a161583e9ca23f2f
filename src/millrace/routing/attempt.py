"""What a search found, executed in integers: flows and paths become plans, and plans are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

from millrace.routing.candidates import Search
from millrace.routing.costs import Cost, Table, total
from millrace.routing.execution import Walked, execute, execute_paths, portion
from millrace.routing.flowwalk import FlowWalker
from millrace.routing.kernelsearch import Flow
from millrace.routing.limits import Limits
from millrace.routing.lpedges import LpTrade
from millrace.routing.outlets import NONE, Outlets
from millrace.routing.pieces import pieces_of
from millrace.routing.plan import Execution, PlanError, net_of
from millrace.routing.venue import Trade
from millrace.routing.walk import Walker, sell_flow, sell_paths

Done = Walked | Execution  # a plan that has been walked


class Ask(NamedTuple):
    """One forward question in both languages: identifiers and integers, indices and scaled floats."""

    token_in: str
    token_out: str
    amount_in: int
    search: Search
    limits: Limits


class Plans:
    """Makes plans of what was found in one market. One thread at a time."""

    def __init__(
        self,
        walker: FlowWalker,
        table: Table,
        outlets: Outlets = NONE,
        *,
        has_liquidity: bool,
    ) -> None:
        self._outlets = outlets
        self._walker = walker
        self._table = table
        # What each trade adds to a plan's fee, in gas at the full price.
        self._fee = cache(lambda trade: table.fee(trade.cost(table)))
        self._planned = cache(lambda trade: table.planned(trade.cost(table)))
        self._has_liquidity = has_liquidity

    def of_flow(self, ask: Ask, flow: Flow) -> Done | None:
        """The dual's plan, if it is one within the limits."""
        trades = flow.trades
        whole = float(ask.search.amounts[0]) if ask.search.cycle else None
        try:
            walked = self._walker.walk(flow, ask.search, ask.amount_in, ask.limits.hops)
            if walked is not None:
                return walked
            if not trades or (len(trades) > ask.limits.hops and longest(trades) > ask.limits.hops):
                return None
            if self._has_liquidity and any(isinstance(trade, LpTrade) for trade in trades):
                return self._walk(ask, trades, flow.inputs.tolist(), whole)
            inputs = flow.inputs.tolist()
            return execute(trades, inputs, {ask.token_in: ask.amount_in}, ask.token_out, whole, self._outlets)
        except PlanError:
            return None

    def _walk(self, ask: Ask, trades: list[Trade], flows: list[float], whole: float | None) -> Done | None:
        """A flow that mints or redeems LP units on the way."""
        amount = ask.amount_in
        if whole is not None:
            used = sum(flow for trade, flow in zip(trades, flows, strict=True) if trade.token_in == ask.token_in)
            amount = portion(amount, used / whole)
        vault = Walker(ask.token_in, ask.amount_in, self._outlets)
        return sell_flow(vault, trades, flows, {ask.token_in: amount}, ask.token_out, _the_same).done(ask.token_out)

    def of_paths(
        self,
        ask: Ask,
        paths: list[list[Trade]],
        flows: list[float],
        known: Done | None = None,
        *,
        merge: bool = False,
    ) -> Done | None:
        """A plan of paths with the parts they take. `known` has been walked already: it may be the same plan.

        With `merge` paths that share pools trade there at once, within the limits; where they cannot, they go apart,
        without the thinnest ones if all are too long for the transaction.
        """
        while True:
            done = self._of_paths(ask, paths, flows, known, merge=merge)
            if done is None or not merge:
                return done
            trades = done.trades if isinstance(done, Walked) else [trade for path in paths for trade in path]
            if self.fits(ask.limits, trades):
                return done
            if len(paths) == 1:
                return None
            thinnest = flows.index(min(flows))
            paths, flows = [*paths[:thinnest], *paths[thinnest + 1 :]], [*flows[:thinnest], *flows[thinnest + 1 :]]

    def fits(self, limits: Limits, trades: Sequence[Trade]) -> bool:
        """Whether trades hold the limits."""
        return limits.admit(total(map(self._planned, trades)))

    def _spare(self, limits: Limits, trades: Sequence[Trade]) -> Cost:
        """What trades leave of the limits."""
        most = limits.budget._replace(legs=min(limits.pools, limits.budget.legs))
        return most.plus(total(map(self._planned, trades)), -1)

    def in_pieces(self, ask: Ask, done: Done | None) -> tuple[Done | None, list[Cost]]:
        """The plan with large trades in pieces, if it leaves more that way, and what pieces without room would take.

        Cycles are left as they are.
        """
        if not isinstance(done, Walked) or ask.search.cycle:
            return done, []
        toll, spare = ask.limits.toll, partial(self._spare, ask.limits, done.trades)
        counts, missing = pieces_of(done, lambda trade: self._fee(trade) * toll, self._planned, spare)
        if not counts:
            return done, missing
        trades, flows = list[Trade](), list[float]()
        for trade, sold, count in zip(done.trades, done.sold, counts, strict=True):
            trades += [trade] * count
            flows += [sold / count] * count
        try:
            more = execute(trades, flows, {ask.token_in: ask.amount_in}, ask.token_out, None, self._outlets)
        except PlanError:
            return done, missing
        return self.better(ask, done, more), missing

    def net(self, ask: Ask, done: Done) -> int:
        """What a plan pays, less its fee where that counts: floating point may search by it, and compare."""
        if ask.limits.toll <= 0.0:
            return done.amount_out
        if isinstance(done, Walked):
            fee = sum(map(self._fee, done.trades))
            return done.amount_out - int(fee * ask.limits.toll)
        return net_of(done.execution(), self._table, ask.limits.toll)

    def better(self, ask: Ask, one: Done | None, other: Done | None) -> Done | None:
        """The plan that pays more, less its fee; the first when they are equal."""
        if one is None or other is None or one is other:
            return one or other
        return other if self.net(ask, other) > self.net(ask, one) else one

    def _of_paths(
        self, ask: Ask, paths: list[list[Trade]], flows: list[float], known: Done | None, *, merge: bool
    ) -> Done | None:
        if isinstance(known, Walked) and not ask.search.cycle and len(paths) == 1 and paths[0] == known.trades:
            return known
        try:
            if not (self._has_liquidity and any(isinstance(trade, LpTrade) for path in paths for trade in path)):
                within = (ask.limits.paths, ask.limits.hops) if merge else (0, 0)
                ends = ask.token_in, ask.token_out, ask.amount_in
                return execute_paths(paths, flows, *ends, self._outlets, *within)
            amount = ask.amount_in
            if ask.search.cycle:
                amount = portion(amount, sum(flows))
            vault = Walker(ask.token_in, ask.amount_in, self._outlets)
            parts = list(zip(paths, flows, strict=True))
            return sell_paths(vault, parts, ask.token_in, amount).done(ask.token_out)
        except PlanError:
            return None


def _the_same(_: str) -> float:
    """In a vault that holds one token only nobody weighs tokens against each other."""
    return 1.0


def rounding(done: Done) -> float:
    """What rounding costs a plan at most, relative to its output."""
    return done.rounding() if isinstance(done, Walked) else math.inf


def longest(trades: Sequence[Trade]) -> int:
    """Pools on the longest path through trades in execution order."""
    depth: dict[str, int] = {}
    for trade in trades:
        reached = depth.get(trade.token_in, 0) + 1
        if reached > depth.get(trade.token_out, 0):
            depth[trade.token_out] = reached
    return max(depth.values(), default=0)
