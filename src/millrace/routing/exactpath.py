"""The best single path in exact integers: what no answer may pay less than.

The kernels' search weighs paths in floating point. Where a unit is worth something (tokens of few decimals, tiny
amounts, tabulated pools) the path that looks best need not be the one that pays most after rounding, and may pay
nothing at all. Here whole integer amounts travel over the graph, always the one on that could become most at spot
rates; the search ends when none could become more than the best path pays.

Trades that the kernels know no formula of are left to Python, one by one: the search stops at such a trade, is told
what it pays, and goes on where it was.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Bools, Floats, Graph, Ints, Longs, Words, WordTable
from millrace.routing.scratch import make, sized
from millrace.routing.shares import WHOLE
from millrace.routing.tables import BITS, IN, KIND, LEAST, PYTHON, Tables, pays
from millrace.routing.venue import Trade
from millrace.routing.wide import WORD, Wide, less, minus, plus

NO_SHARES = np.zeros(0)
BUDGET = 20_000  # trades evaluated in one search; past it the best so far is the answer
MARGIN = 1.0 + 1e-6  # spot rates of tabulated pools are this good
WORDS = 1 << 64  # how many values a word has
TOO_MUCH = 1 << 126  # units: a trade that pays as many is left out, where a unit more or less is worth nothing
LABELS = 4  # amounts kept per token: the largest may come over a token that the rest of the path needs
# Of the newest so many a new amount is one of the largest. There are more only where each is larger than those before:
# some 40 where 20,000 pools of a pair come in any order, all where deeper ones follow shallower ones at one rate.
NEWEST = 64
# Smallest units of a token that rounding may give: two by the fees of the pool that pays it, two by the next one's.
SPARE = 4
SPARE_UNITS = np.uint64(SPARE)
START, DONE, LATE = -1, -2, -3  # instead of an edge: where a search begins, is at its end, and would take too long
MADE, WAITING, SPENT, ASKED, LABEL, LISTED, LEFT, FOUND, LAST = range(9)  # places of `Looks.at`
ZERO = np.uint64(0)
ABOVE = np.uint64(1 << 62)  # upper word of 2^126: scores are that much above what a path leaves, which may be below 0
MOST = 2.0**126
INFINITE = 1e300


class Field(NamedTuple):
    """What is known of a graph, by edge: `rate` is that of smallest units, `many` says whether the pool has more than
    two tokens, `fees` is the gas that it adds to the fee, `least_fee` the least of that.

    The edges from token `t` are `starts[t] : starts[t + 1]`, and `scale` is by token.
    """

    scale: Floats
    starts: Ints
    dst: Ints
    rate: Floats
    fees: Floats
    terms: WordTable
    pool: Ints
    many: Bools
    least_fee: float


class Quest(NamedTuple):
    """One question, see `PathFinder.best`. `behind` are the best spot rates to the sink (scaled).

    `share` is empty, or what each edge takes of a transaction; then `least` is what any way on from a token takes.
    """

    source: int
    sink: int
    amount: float
    hops: int
    behind: Floats
    toll: float
    budget: int
    allowed: int
    share: Floats
    least: Floats


class Looks(NamedTuple):
    """Scratch. By label: an amount of a `token`, the `edge` that brought it, the label `before`, the `depth` in edges.

    Also what it could become at `most`, the `taken` share of the transaction, the `fee`, and what `left` there is after
    it where fees count, else 0. `other` is the label that reached the same token before it. By token: `reached` is the
    last one of its labels, `worth` that of its smallest unit, in units of the sink. `waiting` and `listed` are heaps,
    of labels and of the edges to try, which could become `could`. `paid` is what a trade pays, `best` the score of the
    best path (see `ABOVE`).
    """

    token: Ints = sized("labels")
    edge: Ints = sized("labels")
    before: Ints = sized("labels")
    depth: Ints = sized("labels")
    amount: WordTable = sized("labels", 2)
    most: Floats = sized("labels")
    taken: Floats = sized("labels")
    fee: Floats = sized("labels")
    left: Floats = sized("labels")
    other: Ints = sized("labels")
    reached: Ints = sized("tokens")
    worth: Floats = sized("tokens")
    waiting: Ints = sized("labels")
    listed: Ints = sized("widest")
    could: Floats = sized("edges")
    paid: Words = sized(2)
    best: Words = sized(2)
    floor: Floats = sized(1)  # [0]: what a path has to leave more than
    at: Longs = sized(LAST + 1)


@inlined
def _first(keys: Floats, one: int, other: int) -> bool:
    """Whether one comes out of a heap before the other: it promises more, or as much and is older."""
    return bool(keys[one] > keys[other] or (keys[one] == keys[other] and one < other))


@inlined
def _push(heap: Ints, size: int, keys: Floats, item: int) -> None:
    """Add to a heap of this size."""
    place = size
    while place > 0 and _first(keys, item, heap[(place - 1) // 2]):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = item


@inlined
def _pop(heap: Ints, size: int, keys: Floats) -> int:
    """Take the first one out of a heap of this size."""
    first, item, place, below = heap[0], heap[size - 1], 0, 1
    while below < size - 1:
        if below + 1 < size - 1 and _first(keys, heap[below + 1], heap[below]):
            below += 1
        if _first(keys, item, heap[below]):
            break
        heap[place] = heap[below]
        place, below = below, 2 * below + 1
    heap[place] = item
    return int(first)


@inlined
def _nearest(a: Wide) -> float:
    """An amount in floating point."""
    return float(a[0]) * WORD + float(a[1])


@inlined
def _whole(value: float) -> Wide:
    """What is not negative and less than 2^127, rounded down."""
    high = np.uint64(value / WORD)
    return high, np.uint64(value - float(high) * WORD)


@inlined
def _begin(x: Looks, of: Field, q: Quest) -> None:
    """One label: all of the input. What it could become nobody asks."""
    for t in range(x.reached.size):
        x.reached[t] = -1
        x.worth[t] = q.behind[t] * of.scale[t] / of.scale[q.sink] * MARGIN
    x.token[0], x.edge[0], x.before[0], x.depth[0] = q.source, -1, -1, 0
    x.most[0], x.taken[0], x.fee[0] = INFINITE, 0.0, 0.0
    x.at[MADE], x.at[WAITING], x.at[SPENT], x.at[ASKED] = 1, 1, 0, 0
    x.waiting[0] = 0
    x.at[LISTED], x.at[LEFT], x.at[FOUND], x.at[LAST] = 0, 0, -1, -1


@inlined
def _list(x: Looks, of: Field, q: Quest, label: int) -> None:
    """List the edges by which an amount could become more than the best path leaves, see `PathFinder.best`."""
    token, listed = x.token[label], 0
    amount = q.amount if label == 0 else _nearest(plus((x.amount[label, 0], x.amount[label, 1]), (ZERO, SPARE_UNITS)))
    known, least = x.floor[0] + x.fee[label], q.toll * of.least_fee
    for e in range(of.starts[token], of.starts[token + 1]):
        v = of.dst[e]
        fee = of.fees[e] * q.toll + (least if v != q.sink else 0.0)
        could = (of.rate[e] * amount + SPARE) * x.worth[v] + SPARE - fee
        if could > known:
            x.could[e] = could
            _push(x.listed, listed, x.could, e)
            listed += 1
    x.at[LABEL], x.at[LISTED], x.at[LEFT] = label, listed, 2 * q.budget - x.at[SPENT]


@inlined
def _leads_on(x: Looks, of: Field, q: Quest, e: int) -> bool:
    """Whether the path goes on over an edge: the hops and the transaction have room, nothing is visited twice."""
    label, v = x.at[LABEL], of.dst[e]
    if v != q.sink and x.depth[label] == q.hops - 1:
        return False
    if q.share.size > 0 and x.taken[label] + q.share[e] + (0.0 if v == q.sink else q.least[v]) > WHOLE:
        return False
    again = v == q.sink or of.many[e]  # else whoever has been in the pool has been at its other token
    while label >= 0:
        if v != q.sink and x.token[label] == v:
            return False
        if again and x.edge[label] >= 0 and of.pool[x.edge[label]] == of.pool[e]:
            return False
        label = x.before[label]
    return True


@inlined
def _known(x: Looks, of: Field, e: int) -> bool:
    """Find what a trade pays; False where Python has to."""
    label = x.at[LABEL]
    amount, least = (x.amount[label, 0], x.amount[label, 1]), of.terms[e, LEAST]
    if amount[0] | amount[1] == 0:
        x.paid[0], x.paid[1] = ZERO, ZERO
        return True
    if of.terms[e, KIND] == PYTHON or amount[0] >> np.uint64(BITS - 64) != 0:
        return False
    if least > 0 and (less(amount, (ZERO, least)) or less((of.terms[e, IN], of.terms[e, IN + 1]), amount)):
        return False
    x.paid[0], x.paid[1] = pays(of.terms, e, amount)
    return True


@inlined
def _finish(x: Looks, e: int, paid: Wide, fees: float) -> None:
    """A path is at the sink: it is the best one if it leaves more than any before it."""
    score = (ZERO, np.uint64(1))
    if fees < MOST:
        score = minus(plus(paid, (ABOVE, ZERO)), _whole(fees))
    if paid[0] | paid[1] > 0 and less((x.best[0], x.best[1]), score):
        x.best[0], x.best[1] = score
        x.floor[0] = _nearest(paid) - math.floor(fees)
        x.at[FOUND], x.at[LAST] = x.at[LABEL], e


@inlined
def _among_best(x: Looks, token: int, amount: Wide, left: float, taken: float) -> bool:
    """Whether an amount is one of the largest to reach a token of late, of those that take no more."""
    label, better, looked = x.reached[token], 0, 0
    while label >= 0 and better < LABELS and looked < NEWEST:
        looked += 1
        more = x.left[label] > left or (x.left[label] == left and left != 0.0)
        if left == 0.0 and x.left[label] == 0.0:
            more = not less((x.amount[label, 0], x.amount[label, 1]), amount)
        if more and x.taken[label] <= taken:
            better += 1
        label = x.other[label]
    return better < LABELS


@inlined
def _arrive(x: Looks, of: Field, q: Quest, e: int) -> None:
    """A trade has paid: the end of a path, or an amount that may travel on."""
    label, v, paid = x.at[LABEL], of.dst[e], (x.paid[0], x.paid[1])
    fees = x.fee[label] + of.fees[e] * q.toll if q.toll > 0.0 else 0.0
    if v == q.sink:
        _finish(x, e, paid, fees)
        return
    worth = x.worth[v]
    if worth == 0.0:  # nothing leads on
        return
    most = _nearest(plus(paid, (ZERO, SPARE_UNITS))) * worth + SPARE - fees - q.toll * of.least_fee
    left = _nearest(paid) - fees / worth if fees > 0.0 else 0.0
    taken = x.taken[label] + q.share[e] if q.share.size > 0 else 0.0
    if most <= x.floor[0] or not _among_best(x, v, paid, left, taken):
        return
    made = x.at[MADE]
    x.token[made], x.edge[made], x.before[made], x.depth[made] = v, e, label, x.depth[label] + 1
    x.amount[made, 0], x.amount[made, 1] = paid
    x.most[made], x.taken[made], x.fee[made], x.left[made] = most, taken, fees, left
    x.other[made] = x.reached[v]
    x.reached[v] = made
    _push(x.waiting, x.at[WAITING], x.most, made)
    x.at[MADE] += 1
    x.at[WAITING] += 1


@kernel
def look(x: Looks, of: Field, q: Quest, at: int) -> int:
    """Search on from `START`, or from the edge it has stopped at, with what that trade pays in `paid`.

    Returns the edge of a trade that Python has to make, or DONE with the path in `x`, or LATE.
    """
    if at == START:
        _begin(x, of, q)
    else:
        _arrive(x, of, q, at)
    while True:
        while x.at[LISTED] > 0 and x.at[LEFT] > 0:
            e = _pop(x.listed, x.at[LISTED], x.could)
            x.at[LISTED] -= 1
            x.at[LEFT] -= 1
            if _leads_on(x, of, q, e):
                x.at[SPENT] += 1
                if not _known(x, of, e):
                    x.at[ASKED] += 1
                    return e
                _arrive(x, of, q, e)
        if x.at[WAITING] == 0 or x.at[SPENT] >= q.budget:
            return DONE
        label = _pop(x.waiting, x.at[WAITING], x.most)
        x.at[WAITING] -= 1
        if x.most[label] <= x.floor[0]:
            return DONE
        if x.at[ASKED] > q.allowed:
            return LATE
        _list(x, of, q, label)


class NeedsTime(Exception):
    """The search is not done within what a caller in a hurry allows."""


class PathFinder:
    """Searches one graph. One thread at a time; a `twin` has memory of its own. `fees` is the gas of each edge."""

    def __init__(self, graph: Graph, trades: Sequence[Trade], fees: Floats, tables: Tables) -> None:
        net = graph.net
        self._scale = graph.scale
        regular = net.src.size - net.astray.size
        self._src, self._dst = net.src[:regular], net.dst[:regular]
        starts = np.searchsorted(self._src, np.arange(len(graph.scale) + 1)).astype(np.int32)
        self.trades = [trades[k] for k in graph.original.tolist()]
        """The trade of each edge of the net."""
        rate = net.rate * self._scale[net.src] / self._scale[net.dst]
        many = np.array([len(trade.pool.tokens) > 2 for trade in self.trades], np.bool_)
        self._field = Field(
            self._scale, starts, net.dst, rate, fees, tables.terms, tables.pool, many, float(fees.min(initial=INFINITE))
        )
        self._made: Looks | None = None

    def twin(self) -> PathFinder:
        """The same for another thread."""
        other = copy.copy(self)
        other._made = None
        return other

    def _memory(self) -> Looks:
        if self._made is None:
            widest = int(np.diff(self._field.starts).max(initial=0))
            self._made = make(
                Looks, tokens=len(self._scale), edges=len(self.trades), widest=widest, labels=2 * BUDGET + 1
            )
        return self._made

    def best(
        self,
        source: int,
        sink: int,
        amount: int,
        hops: int,
        floor: float,
        behind: Floats,
        toll: float,
        budget: int = BUDGET,
        *,
        allowed: int = BUDGET,
        share: Floats = NO_SHARES,
    ) -> list[Trade] | None:
        """The path of at most `hops` pools that pays most for `amount`, less its fee at `toll`; None up to `floor`.

        `behind` are the best spot rates of all tokens to the sink (scaled). With `source == sink` it is the
        best cycle. No token and no pool is visited twice. It ends after `budget` trades (or, as a hub's trades are
        looked at together, at most twice as many); `NeedsTime` is raised where it goes on after `allowed` ones that no
        kernel knows. With the edges' `share` of a transaction, paths that take more than one are left out.
        """
        least = self.least_shares(sink, share, hops) if share.size else NO_SHARES
        quest = Quest(
            source, sink, float(amount + SPARE), hops, behind, toll, min(budget, BUDGET), allowed, share, least
        )
        x, edge = self._memory(), START
        x.amount[0, 0], x.amount[0, 1] = divmod(min(amount, TOO_MUCH), WORDS)
        score = 0 if floor == -math.inf else min(max(int(floor) + TOO_MUCH, 0), 2 * TOO_MUCH)
        x.best[0], x.best[1] = divmod(score, WORDS)
        x.floor[0] = floor
        while (edge := look(x, self._field, quest, edge)) >= 0:
            label = int(x.at[LABEL])
            paid = self.trades[edge].pays(int(x.amount[label, 0]) << 64 | int(x.amount[label, 1]) if label else amount)
            x.paid[0], x.paid[1] = divmod(paid if paid < TOO_MUCH else 0, WORDS)
        if edge == LATE:
            raise NeedsTime
        return self._path(x) or None

    def _path(self, x: Looks) -> list[Trade]:
        """The best path, as the kernel has left it."""
        edges = []
        label, edge = int(x.at[FOUND]), int(x.at[LAST])
        while edge >= 0:
            edges.append(edge)
            label, edge = int(x.before[label]), int(x.edge[label])
        return [self.trades[e] for e in reversed(edges)]

    def least_shares(self, sink: int, share: Floats, hops: int) -> Floats:
        """By token: the least share that a path of at most `hops` pools to the sink takes; infinite without one.

        Of the sink it is that of a cycle.
        """
        least = np.full(len(self._scale), np.inf)
        known = np.full(len(self._scale), np.inf)
        known[sink] = 0.0
        for _ in range(hops):
            before = least.copy()
            np.minimum.at(least, self._src, share[: self._src.size] + known[self._dst])
            known = least.copy()
            known[sink] = 0.0
            if np.array_equal(before, least):
                break
        return least


def needed(path: Sequence[Trade], wanted: int) -> int:
    """The smallest input with which the path pays at least `wanted`. Raises `PoolError` where it cannot."""
    for trade in reversed(path):
        wanted = trade.needs(wanted)
    return wanted
