"""The best single path in exact integers: what no answer may pay less than.

The kernels' search weighs paths in floating point. Where a unit is worth something (tokens of few decimals, tiny
amounts, tabulated pools) the path that looks best need not be the one that pays most after rounding, and may pay
nothing at all. Here whole integer amounts travel over the graph, always the one on that could become most at spot
rates; the search ends when none could become more than the best path pays.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millrace.routing.compiled import kernel
from millrace.routing.net import Floats, Graph, Ints
from millrace.routing.shares import WHOLE
from millrace.routing.venue import Trade

LABELS = 4  # amounts kept per token: the largest may come over a token that the rest of the path needs
BUDGET = 20_000  # trades evaluated in one search; past it the best so far is the answer
MARGIN = 1.0 + 1e-6  # spot rates of tabulated pools are this good
# Smallest units of a token that rounding may give: two by the fees of the pool that pays it, two by the next one's.
SPARE = 4


class NeedsTime(Exception):
    """The search is not done within what a caller in a hurry allows."""


class Label(NamedTuple):
    """An amount of a token, the edges that brought it, the tokens on the way, the share of the transaction, the fee."""

    token: int
    amount: int
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    taken: float = 0.0
    fee: float = 0.0


@kernel
def _list_promising(
    unit_rate: Floats, targets: Ints, worth: Floats, fees: Floats, toll: float, least: float, sink: int, low: int,
    high: int, amount: float, best: float, edges: Ints, most: Floats,
) -> int:  # fmt: skip
    """List those of the edges from `low` to `high` by which an amount could become more than `best`, and how much.

    Less the fee of the edge at `toll`, and the `least` that is to come where it does not lead to the sink.
    """
    count = 0
    for e in range(low, high):
        fee = fees[e] * toll + (least if targets[e] != sink else 0.0)
        could = (unit_rate[e] * amount + SPARE) * worth[targets[e]] + SPARE - fee
        if could > best:
            edges[count], most[count] = e, could
            count += 1
    return count


class PathFinder:
    """Searches one graph. It changes nothing, so any number of threads may use it. `fees` is the gas of each edge."""

    def __init__(self, graph: Graph, trades: Sequence[Trade], fees: Floats) -> None:
        net = graph.net
        self._scale, self._fees, self._least_fee = graph.scale, fees, float(fees.min(initial=math.inf))
        self._unit_rate = net.rate * self._scale[net.src] / self._scale[net.dst]
        regular = net.src.size - net.astray.size
        self._src, self._dst = net.src[:regular], net.dst[:regular]
        self._starts: list[int] = np.searchsorted(self._src, np.arange(len(graph.scale) + 1)).tolist()
        self._targets: list[int] = net.dst.tolist()
        self._widest = int(np.diff(self._starts).max(initial=0))
        self.trades = [trades[k] for k in graph.original.tolist()]
        """The trade of each edge of the net."""

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
        share: Floats | None = None,
    ) -> list[Trade] | None:
        """The path of at most `hops` pools that pays most for `amount`, less its fee at `toll`; None up to `floor`.

        `behind` are the best spot rates of all tokens to the sink (scaled). With `source == sink` it is the
        best cycle. No token and no pool is visited twice. It ends after `budget` trades (or, as a hub's trades are
        looked at together, at most twice as many); `NeedsTime` is raised where it goes on after `allowed` ones.
        With the edges' `share` of a transaction, paths that take more than one are left out.
        """
        worth = behind * self._scale / self._scale[sink] * MARGIN  # of a smallest unit, in units of the sink
        best, spent = floor, 0
        found: tuple[int, ...] = ()
        reached: dict[int, list[tuple[float, float]]] = {}
        least = None if share is None else self.least_shares(sink, share, hops)
        queue: list[tuple[float, int, Label]] = [(-math.inf, 0, Label(source, amount, (), (source,)))]
        room = np.empty(self._widest, np.int32), np.empty(self._widest)
        while queue and spent < budget:
            most, _, label = heapq.heappop(queue)
            if -most <= best:
                break
            if spent > allowed:
                raise NeedsTime
            for e in self._promising(label, worth, toll, sink, best, *room)[: 2 * budget - spent]:
                v = self._targets[e]
                if self._visited(label, e, v, sink) or (v != sink and len(label.path) == hops - 1):
                    continue
                taken = 0.0
                if share is not None and least is not None:
                    taken = label.taken + float(share[e])
                    if taken + (0.0 if v == sink else float(least[v])) > WHOLE:
                        continue
                spent += 1
                paid = self.trades[e].pays(label.amount)
                fees = label.fee + float(self._fees[e]) * toll if toll > 0.0 else 0.0
                if v == sink:
                    if paid > 0 and paid - int(fees) > best:
                        best, found = paid - int(fees), (*label.path, e)
                    continue
                if worth[v] == 0.0:  # nothing leads on
                    continue
                most = (paid + SPARE) * float(worth[v]) + SPARE - fees - toll * self._least_fee
                left = paid - fees / float(worth[v]) if fees > 0.0 else paid
                if most > best and _among_best(reached.setdefault(v, []), left, taken):
                    following = Label(v, paid, (*label.path, e), (*label.tokens, v), taken, fees)
                    heapq.heappush(queue, (-most, spent, following))
        return [self.trades[e] for e in found] or None

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

    def _promising(
        self, label: Label, worth: Floats, toll: float, sink: int, best: float, edges: Ints, most: Floats
    ) -> list[int]:
        """The edges by which an amount could become more than `best`, the most promising first.

        `edges` and `most` are room for as many as a token has.
        """
        low, high = self._starts[label.token], self._starts[label.token + 1]
        amount = float(label.amount + SPARE)
        tolls = self._fees, toll, toll * self._least_fee
        known = float(best + label.fee)
        count = _list_promising(self._unit_rate, self._dst, worth, *tolls, sink, low, high, amount, known, edges, most)
        order = (-most[:count]).argsort(kind="stable") if count > 1 else slice(count)
        better: list[int] = edges[order].tolist()
        return better

    def _visited(self, label: Label, edge: int, target: int, sink: int) -> bool:
        """Whether the path holds the target, or the pool, already."""
        pool = self.trades[edge].pool
        if target in label.tokens and target != sink:
            return True
        return (target == sink or len(pool.tokens) > 2) and any(self.trades[k].pool is pool for k in label.path)


def _among_best(labels: list[tuple[float, float]], amount: float, taken: float) -> bool:
    """Whether an amount is one of the largest to reach a token so far, of those that take no more."""
    if sum(known >= amount and less <= taken for known, less in labels) >= LABELS:
        return False
    labels.append((amount, taken))
    if taken == 0.0:
        labels.sort(reverse=True)
        del labels[LABELS:]
    return True


def needed(path: Sequence[Trade], wanted: int) -> int:
    """The smallest input with which the path pays at least `wanted`. Raises `PoolError` where it cannot."""
    for trade in reversed(path):
        wanted = trade.needs(wanted)
    return wanted
