"""Arbitrage: the best of cycles that are looked for with amounts which are the same in every question.

A larger amount has all of these to choose from that a smaller one has; of each as much is traded as pays, up to what
there is. The plan for just what there is counts only where that is less than they would sell: a larger amount could do
the same, but would not look for it. Where none earns its fee it is the one that earns most before that: who pays the
fee is not asked here.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from millrace.dex.aggregator_contract import FIXED
from millrace.routing.execution import portion
from millrace.routing.golden import golden_section
from millrace.routing.outlets import Outlets
from millrace.routing.plan import AnyLeg, Execution, Leg, PlanError, kept_input, taken_of
from millrace.routing.route import NoRoute, Route
from millrace.routing.walk import Walker

MOST_OF_CYCLES, CYCLE_PARTS = 2, 30  # powers of two: times the deepest reserve, and how many less cycles are tried with
# The same: every third is tried first, then, if one earns, all that are so much less and more than what the best sells.
# More finds the same, but for a split in chunks: that is best at four to ten times of it.
CYCLE_STRIDE, CYCLE_LESS, CYCLE_MORE = 3, 1, 5
SLIGHTLY_LESS = 0.99  # of what cycles sell: where that earns more, the best part of it is looked for


class Cycles(NamedTuple):
    """What is asked, and what may be asked of the market.

    `forward`: the best cycles for an amount, with another look in whole units or without; it raises `NoRoute` or
    `PlanError`. `net`: what an answer pays, less its fee. `deadline` is on `time.monotonic`. `bps`: what the contract
    takes of all that comes back; what no cycle sells then is not paid in, and they trade as much as pays with that.
    """

    token: str
    amount: int
    deepest: int
    forward: Callable[[int, bool], Route]
    net: Callable[[Route], int]
    outlets: Outlets
    deadline: float
    bps: tuple[int, int] = (0, 0)

    def best(self) -> Route:
        """The most profitable cycles. Raises `NoRoute`."""
        amount, net = self.amount, self._left_of
        best: Route | None = None
        every: list[Execution] = []
        upper, sold = math.inf, 0
        parts, charged = self._parts(), any(self.bps)
        for part in dict.fromkeys((*parts, amount)):
            if every and time.monotonic() > self.deadline:
                break
            own, near = part == amount, sold >> CYCLE_LESS <= part <= sold << CYCLE_MORE
            # Where the contract takes its part, it pays to sell less than others do, nobody knows how much.
            if sold and not (part in parts if charged else sold > amount if own else near):
                continue  # cycles for it sell the same as others, or much less than could be sold
            with contextlib.suppress(NoRoute, PlanError):
                found = self.forward(part, own and best is None)
                if part >= amount:  # who has more can do the same and keep the rest
                    upper = min(upper, found.bound() - (part - amount))
                if charged or net(found) > part:
                    done = Route(self.with_less(found.execution), None)
                    if best is None or net(done) > net(best):
                        best, sold = done, _sold(found.execution.legs, self.token)
                every.append(found.execution)
        for more in self._with_more(every):
            every.append(more)
            other = Route(more, None)
            best = other if best is not None and net(other) > net(best) else best
        if best is None or net(best) <= amount:
            best = self._earning_most(every)
        if best is None or self._left(best.execution) <= amount:
            raise NoRoute("no profitable cycle")
        rest = max(0, kept_input(best.execution)) if charged else 0
        if rest:
            paid_in = Walker.replay(best.execution.legs, self.token, amount - rest, self.outlets)
            best = Route(paid_in.done(self.token), None)
        return best.below(upper - rest)

    def _left_of(self, route: Route) -> int:
        """What a plan pays, less its fee and what the contract takes."""
        return self.net(route) - route.execution.amount_out + self._left(route.execution)

    def _left(self, done: Execution) -> int:
        """What a plan pays, less what the contract takes of it; what no cycle sells is not paid in."""
        return done.amount_out - taken_of(done.amount_out - max(0, kept_input(done)), self.bps)

    def _earning_most(self, plans: Iterable[Execution]) -> Route | None:
        """Of cycles, with no more than there is sold, the one that earns most, whatever their fees."""
        most: Execution | None = None
        for plan in plans:
            with contextlib.suppress(PlanError):
                done = self.with_less(plan)
                most = done if most is None or self._left(done) > self._left(most) else most
        return None if most is None else Route(most, None)

    def _parts(self) -> list[int]:
        """Amounts for which cycles are looked for: powers of two from the first that is no less than all there is.

        Those that are asked in any case come first: every third of them all, whatever the amount, so that who has more
        begins with the same.
        """
        most = self.deepest << MOST_OF_CYCLES
        every = [most >> shift for shift in range(CYCLE_PARTS)]
        parts = [part for part in every if 0 < part < 2 * self.amount]
        wide = set(every[::CYCLE_STRIDE])
        return sorted(parts, key=lambda part: part not in wide)

    def _with_more(self, plans: Iterable[Execution]) -> list[Execution]:
        """Of cycles that sell all that they were looked for with, the same for up to twice as much, if there is more.

        For still more there are others. What of an amount is more than a power of two would else stay unsold.
        """
        more = []
        for plan in plans:
            if plan.amount_in < self.amount and plan.amount_in == _sold(plan.legs, self.token):
                with contextlib.suppress(PlanError):  # a pool on the way may not be able to pay for more
                    more.append(self.with_less(plan, min(2 * plan.amount_in, self.amount)))
        return more

    def with_less(self, done: Execution, most: int = 0) -> Execution:
        """Cycles in which no more is sold than there is, and no more than pays. Raises `PlanError`.

        No more than `most`, either: what they sell as they are, unless it is given.
        """
        sold = _sold(done.legs, self.token)
        most = most or min(sold, self.amount)

        def cut(part: float) -> Execution:
            legs, left, before = list(done.legs), portion(most, part), 0
            for k, leg in enumerate(legs):
                if isinstance(leg, Leg) and leg.trade.token_in == self.token and leg.mode == FIXED:
                    upto = before + leg.value  # sums are rounded: all that is left is sold, to the unit
                    legs[k] = leg._replace(value=upto * left // sold - before * left // sold)
                    before = upto
            return Walker.replay(legs, self.token, self.amount, self.outlets).done(self.token)

        def worth(part: float) -> int:
            try:
                return self._left(cut(part))
            except PlanError:
                return 0

        whole = cut(1.0)
        if worth(SLIGHTLY_LESS) <= self._left(whole):
            return whole
        tried = golden_section(worth)
        part = max(tried, key=lambda part: tried[part])
        return cut(part) if tried[part] > self._left(whole) else whole


def _sold(legs: Iterable[AnyLeg], token: str) -> int:
    """How much of a token legs sell in fixed amounts."""
    return sum(leg.value for leg in legs if isinstance(leg, Leg) and leg.trade.token_in == token and leg.mode == FIXED)
