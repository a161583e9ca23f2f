"""Reverse quotes: the smallest input whose exact execution pays a wanted output.

The best output is, but for rounding and pools of next to nothing, a concave function of the input. A few forward
answers close in on the input, and half of it is tried as long as that pays enough; the best single path's exact inverse
is never exceeded. Then the plan found is walked with ever smaller inputs until one unit less would not pay enough, and
the forward search is asked again for that input: the answer is an input for which the forward quote pays what is
wanted, too, but not for one unit less. At the end the payments are put in an order in which also the very instructions
of the answer pay too little for one unit less. Where no order does that, because paths share pools, every payment is
cut down to what it needs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from millrace.dex import aggregator_contract as contract
from millrace.routing.plan import AnyLeg, Execution, Leg, PlanError
from millrace.routing.router import Route

ROUNDS = 24
MAX_AMOUNT = 10**78  # 2^256, the most that the contract counts, has as many digits
CLOSE_ENOUGH = 10**6  # the first search stops when it pays at most one part in this too much
ROUGH = 1000  # the same where an answer takes many milliseconds: its plan, walked with less, comes closer at once
SLOW_ANSWERS = 12  # forward answers that may be asked for there: a number, so that equal questions have equal answers
SETTLINGS = 8
STEPS_BACK = 40  # forward answers in search of the least input for which one pays enough
STEPS_BACK_SLOW = 4  # the same where an answer takes many milliseconds


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
        best = _settle(question, best)
        one_less = best.execution.amount_in - 1
        less = question.forward(one_less) if one_less and not question.late() else None
        if less is None or less.execution.amount_out < question.wanted:
            break
        best = less  # for a unit less the search came upon another plan, which pays enough, too
    return best._replace(execution=_tight(question, best.execution))


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
    """A route that pays enough and hardly more: each forward answer is taken for a constant-product pool."""
    wanted = question.wanted
    guess = max(1, math.ceil(wanted / spot))
    best: Route | None = None
    low, high = 0, 0
    close, growth = (ROUGH, 16) if question.slow else (CLOSE_ENOUGH, 4)
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
        following = _next_input(guess, paid, wanted, spot, growth)
        if best is not None and not low < following < high:
            following = (low + high) // 2
        elif best is None:  # from below it would only creep up on the amount: overshoot, shrink later
            following = max(following, low + 1) + (following * 4**attempt) // CLOSE_ENOUGH
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


def _next_input(amount_in: int, paid: int, wanted: int, spot: float, growth: int) -> int:
    """A better input: the route seen as one constant-product pool with this spot rate and this output.

    `y(x) = spot x / (1 + x / depth)` through the point found; its inverse at `wanted`, or `growth` times the input.
    """
    if paid == 0:
        return amount_in * growth
    seen = paid / amount_in
    if seen >= spot:
        return max(1, amount_in * wanted // paid)
    depth = amount_in * seen / (spot - seen)
    limit = spot * depth
    if wanted >= limit * (1.0 - 1e-12):
        return amount_in * growth
    return max(1, math.ceil(wanted * depth / (limit - wanted)))


def _settle(question: Question, best: Route) -> Route:
    """Shrink the input of the plan and search again, until neither gets any further."""
    for _ in range(SETTLINGS):
        smaller = shrink(question, best.execution)
        if smaller.amount_in == best.execution.amount_in:
            return best
        if question.late():
            return best._replace(execution=smaller)
        found = _least_from(question, smaller.amount_in, best.execution.amount_in)
        if found is None:
            return best
        if found.execution.amount_in > smaller.amount_in:
            return found
        best = found
    return best


def _least_from(question: Question, amount: int, below: int = MAX_AMOUNT) -> Route | None:
    """The forward route of the least input from `amount` on that pays enough: mostly `amount` itself."""
    low, step = amount - 1, 1
    found: Route | None = None
    high = amount
    for _ in range(STEPS_BACK_SLOW if question.slow else STEPS_BACK):
        if high >= below or question.late():
            return None
        route = question.forward(high)
        if route is not None and route.execution.amount_out >= question.wanted:
            found = route
            break
        low, high, step = high, high + step, step * 2
    while found is not None and high - low > 1 and not question.late():
        middle = (low + high) // 2
        route = question.forward(middle)
        if route is not None and route.execution.amount_out >= question.wanted:
            found, high = route, middle
        else:
            low = middle
    return found


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


def _tight(question: Question, done: Execution) -> Execution:
    """The plan with its payments in an order in which its very instructions pay too little for one unit less.

    The contract gives what is left to the last use of the input, so that must be one which needs its last unit.
    """
    if not _pays(question, list(done.legs), done.amount_in - 1):
        return done
    chunks = _chunks(question, done)
    movable = bool(chunks) and done.legs[chunks[-1][0]].mode == contract.ALL
    for number in range(len(chunks) if movable else 0):
        if question.late():
            break
        legs = _with_last(done, chunks, number)
        spare = _spare(question, legs, done.amount_in)
        for legs_to_pay in (legs, *_given(question, legs, spare)) if spare >= 0 else ():
            if not _pays(question, legs_to_pay, done.amount_in - 1):
                tight = question.walk(legs_to_pay, done.amount_in)
                if tight is not None and tight.amount_out >= question.wanted:
                    return tight
    return _lean(question, done)


def _lean(question: Question, done: Execution) -> Execution:
    """The plan with every use of the input cut down to what it needs: none of them could do with a unit less.

    That is a smaller input than the one for which the forward search pays enough.
    """
    legs, amount, before = list(done.legs), done.amount_in, 0
    while amount != before and not question.late():
        before = amount
        amount -= _spare(question, legs, amount)
        for number in _fixed_uses(question, legs):
            if question.late():
                break
            units = _idle(question, legs, amount, number)
            legs, amount = _with_less(legs, number, units), amount - units
    return question.walk(legs, amount) or done


def _idle(question: Question, legs: list[AnyLeg], amount: int, number: int) -> int:
    """How many units of the use `number` of the input the plan can do without."""
    return _most(
        lambda units: _pays(question, _with_less(legs, number, units), amount - units), cast(Leg, legs[number]).value
    )


def _with_less(legs: list[AnyLeg], number: int, units: int) -> list[AnyLeg]:
    """The legs with so many units less for the fixed use `number`."""
    leg = cast(Leg, legs[number])
    return [*legs[:number], leg._replace(value=leg.value - units), *legs[number + 1 :]]


def _spare(question: Question, legs: list[AnyLeg], amount: int) -> int:
    """How much less than `amount` the legs, as they are, need to pay enough; -1 if it is not enough."""
    if not _pays(question, legs, amount):
        return -1
    return _most(lambda units: _pays(question, legs, amount - units), amount)


def _most(holds: Callable[[int], bool], below: int) -> int:
    """The most units, fewer than `below`, for which something holds that does for 0: steps that double, bisection."""
    most, step = 0, 1
    while most + step < below and holds(most + step):
        most, step = most + step, step * 2
    fails = min(most + step, below)
    while fails - most > 1:
        middle = (most + fails) // 2
        if holds(middle):
            most = middle
        else:
            fails = middle
    return most


def _given(question: Question, legs: list[AnyLeg], spare: int) -> Iterator[list[AnyLeg]]:
    """The legs with what the last use of the input can spare given to another one, each in turn."""
    for number in _fixed_uses(question, legs):
        yield _with_less(legs, number, -spare)


def _fixed_uses(question: Question, legs: list[AnyLeg]) -> list[int]:
    """Where the swaps of given amounts of the input are in the plan."""
    return [
        number
        for number, leg in enumerate(legs)
        if isinstance(leg, Leg) and leg.mode == contract.FIXED and leg.trade.token_in == question.token_in
    ]


def _pays(question: Question, legs: list[AnyLeg], amount: int) -> bool:
    """Whether the legs pay enough for an input."""
    done = question.walk(legs, amount)
    return done is not None and done.amount_out >= question.wanted


def _chunks(question: Question, done: Execution) -> list[tuple[int, int]]:
    """Where the uses of the input are in the plan, each with the legs that follow it by `previous`."""
    found = []
    for start, leg in enumerate(done.legs):
        if isinstance(leg, Leg) and leg.trade.token_in == question.token_in and leg.mode != contract.PREVIOUS:
            end = start + 1
            while end < len(done.legs) and done.legs[end].mode == contract.PREVIOUS:
                end += 1
            found.append((start, end))
    return found


def _with_last(done: Execution, chunks: list[tuple[int, int]], number: int) -> list[AnyLeg]:
    """The legs with the input's use `number` moved behind its other uses, where it takes all that is left."""
    legs = list(done.legs)
    if number == len(chunks) - 1:
        return legs
    start, end = chunks[number]
    last_start, last_end = chunks[-1]
    spent = sum(legs[begin].value for begin, _ in chunks[:-1])
    final = legs[last_start]._replace(mode=contract.FIXED, value=done.amount_in - spent)
    moved = [legs[start]._replace(mode=contract.ALL, value=0), *legs[start + 1 : end]]
    return [*legs[:start], *legs[end:last_start], final, *legs[last_start + 1 : last_end], *moved, *legs[last_end:]]
