"""Reverse quotes: the smallest input whose exact execution pays a wanted output.

The best output is, but for rounding and pools of next to nothing, a concave function of the input. A few forward
answers close in on the input, and half of it is tried as long as that pays enough; the best single path's exact inverse
is never exceeded. Then the plan found is walked with ever smaller inputs until one unit less would not pay enough, and
the forward search is asked for that unit less, until that does not pay enough either.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from millrace.dex import aggregator_contract as contract
from millrace.routing.plan import AnyLeg, Execution, PlanError
from millrace.routing.router import Route

ROUNDS = 24
MAX_AMOUNT = 10**78  # 2^256, the most that the contract counts, has as many digits
CLOSE_ENOUGH = 10**6  # the first search stops when it pays at most one part in this too much
ROUGH = 1000  # the same where an answer takes many milliseconds: its plan, walked with less, comes closer at once
GROWTH = 4  # times: where answers do not tell what would be enough
SLOW_ANSWERS = 12  # forward answers that may be asked for there: a number, so that equal questions have equal answers
SETTLINGS = 8  # plans walked down to the unit, each found for one unit less than the last one


class Question(NamedTuple):
    """What is asked, and what may be asked of the market.

    `forward`: the best route for an input, None if none executes. `single`: the single path with the smallest
    input, near a guess. `walk`: legs executed for an input, None where they revert. `net`: what a plan pays, less its
    fee. `slow`: forward answers take long. `asked`: how many forward answers there have been. `deadline` is on
    `time.monotonic`.
    """

    token_in: str
    wanted: int
    forward: Callable[[int], Route | None]
    single: Callable[[int], Execution | None]
    walk: Callable[[list[AnyLeg], int], Execution | None]
    net: Callable[[Execution], int]
    slow: bool
    asked: Callable[[], int]
    deadline: float

    def late(self) -> bool:
        """Whether the time is up, or as much has been asked for as may be."""
        return (self.slow and self.asked() >= SLOW_ANSWERS) or time.monotonic() > self.deadline


def smallest(question: Question, spot: float) -> Route:
    """The route with the smallest input; `spot` is the output per input of a small trade.

    Raises `PlanError` if no input pays enough.
    """
    best = _halved(question, _bracket(question, spot))
    guess = math.ceil(question.wanted / spot) if best is None else best.execution.amount_in
    single = question.single(max(1, guess))
    if single is not None and (best is None or single.amount_in < best.execution.amount_in):
        best = _with_single(question, best, single)
    if best is None:
        raise PlanError("the market cannot pay this amount")
    for _ in range(SETTLINGS):
        best = best._replace(execution=shrink(question, best.execution))
        one_less = best.execution.amount_in - 1
        less = question.forward(one_less) if one_less and not question.late() else None
        if less is None or less.execution.amount_out < question.wanted:
            break
        best = less  # for a unit less the search came upon another plan, which pays enough, too
    return best


def _with_single(question: Question, best: Route | None, single: Execution) -> Route:
    """The answer where a single path needs less than the `best` one: what is quoted for its input, if that pays enough.

    Else it is the path, unless what is quoted leaves more after its fee: then the path's pools are not worth theirs.
    """
    found = question.forward(single.amount_in)
    if found is None:
        return Route(single, None)
    if found.execution.amount_out >= question.wanted:
        return found
    if best is None or question.net(single) > question.net(found.execution):
        return found._replace(execution=single)  # pays more: no larger part is missing
    return best


def _bracket(question: Question, spot: float) -> Route | None:
    """A route that pays enough and hardly more: forward answers are taken for points of a constant-product pool."""
    wanted = question.wanted
    guess = max(1, math.ceil(wanted / spot))
    best: Route | None = None
    low, high, points = 0, 0, list[tuple[float, float]]()
    close = ROUGH if question.slow else CLOSE_ENOUGH
    for attempt in range(ROUNDS):
        route = question.forward(guess)
        paid = 0 if route is None else route.execution.amount_out
        if route is not None and paid >= wanted:
            if best is None or guess < high:
                best, high = route, guess
            if paid - wanted <= paid // close:
                break
        else:
            low = max(low, guess)
        if paid:
            points.append((1.0 / guess, 1.0 / paid))
        following = _next_input(points, wanted, spot) if paid else guess * GROWTH
        if best is not None and not low < following < high:
            following = math.isqrt(low * high) if low else high // 2
        elif best is None:  # from below it would only creep up on the amount: overshoot, shrink later
            following = max(following, low + 1) + following * 4**attempt // close
            following = max(min(following, guess * GROWTH), low + 1)
        if following in (low, high, guess) or following > MAX_AMOUNT or question.late():
            break
        guess = following
    return best


def _halved(question: Question, best: Route | None) -> Route | None:
    """The route with its input halved as long as that pays enough.

    The output leaps where a pool that holds next to nothing is sold into: of its few units little input pays as much as
    a multiple of it does on other ways, which the steps from above never come to see.
    """
    while best is not None and best.execution.amount_in > 1 and not (question.slow or question.late()):
        less = question.forward(best.execution.amount_in // 2)
        if less is None or less.execution.amount_out < question.wanted:
            break
        best = less
    return best


def _next_input(points: list[tuple[float, float]], wanted: int, spot: float) -> int:
    """A better input: what a constant-product pool that pays as the last two answers do would take for `wanted`.

    Of such a pool `1 / output` is a line over `1 / input`, and with one answer the spot rate tells how steep. `GROWTH`
    times the input where it would take more.
    """
    (x, y), steep = points[-1], 1.0 / spot
    if len(points) > 1 and (y - points[-2][1]) * (x - points[-2][0]) > 0.0:
        steep = (y - points[-2][1]) / (x - points[-2][0])
    return max(1, math.ceil(1.0 / max(x + (1.0 / wanted - y) / steep, x / GROWTH)))


def shrink(question: Question, done: Execution) -> Execution:
    """The same plan with the smallest input that still pays enough: secant steps, then bisection.

    Fixed amounts keep their proportion to the input. `done` must pay enough already.
    """
    wanted = question.wanted
    low, high, best = 0, done.amount_in, done
    guess = high - (done.amount_out - wanted) * done.amount_in // (2 * done.amount_out)
    for attempt in range(96):
        if high - low <= 1:
            break
        guess = min(max(guess, low + 1), high - 1)
        tried = question.walk(_rescaled(done, guess), guess)
        paid = 0 if tried is None else tried.amount_out
        if tried is not None and paid >= wanted:
            best, high = tried, guess
            guess = high - max((paid - wanted) * guess // paid, 1) if attempt < 8 else (low + high) // 2
        else:
            low = guess
            near = attempt < 8 and paid > 0
            guess = low + (wanted - paid) * guess // paid + 1 if near else (low + high) // 2
    return best


def _rescaled(done: Execution, amount: int) -> list[AnyLeg]:
    """The legs of a plan for another input."""
    return [
        leg._replace(value=leg.value * amount // done.amount_in) if leg.mode == contract.FIXED else leg
        for leg in done.legs
    ]
