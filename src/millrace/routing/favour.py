"""What rounding in the trader's favour can add to outputs.

Curves round nothing. Pools round what they pay down, which no bound minds, but also what they withhold: a fee of
less than a unit is no fee. For tokens of few decimals and tiny amounts that is worth something; plans may gain by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import precision
from millrace.dex.rate import RatePool
from millrace.dex.stable import JexStablePool, StablePool
from millrace.dex.stableswap import UNIT
from millrace.dex.steps import in_steps
from millrace.routing.candidates import Search
from millrace.routing.net import FloatTable, Graph
from millrace.routing.venue import Trade

_SOLVED = 3.0  # units of 18 decimals: the StableSwap solvers stop within one, fees round down
_PART_OF_D = 1e-14  # how exactly the CryptoSwap contracts solve for a balance
_KEPT = 4096  # sums remembered


class Favour(NamedTuple):
    """At most so many units more than its curve a trade gets: counted in what it sells, or in what it buys."""

    sold: float
    bought: float


_NO_FAVOUR = Favour(0.0, 0.0)


def favour(trade: Trade) -> Favour:
    """The favour of one trade."""
    pool = trade.pool
    if isinstance(pool, XExchangePool | RatePool):
        return _NO_FAVOUR
    if isinstance(pool, OneDexPool):
        fee = pool.total_fee / pool.fee_base
        return Favour(1.0 / (1.0 - fee), 0.0) if pool.main[trade.i] else Favour(0.0, 1.0)
    if isinstance(pool, JexPool):
        return Favour(0.0, 2.0)
    if isinstance(pool, AshCryptoPool):
        unit = precision(pool.decimals[trade.j]) * (pool.price_scale / UNIT if trade.j == 1 else 1.0)
        return Favour(0.0, 1.0 + (_PART_OF_D * pool.d + 100.0) / unit)
    if isinstance(pool, StablePool):
        unit = precision(pool.decimals[trade.j]) * pool.prices[trade.j] / UNIT
        return Favour(0.0, isinstance(pool, JexStablePool) + _SOLVED / unit)
    raise TypeError(f"no curve is known of pools of kind {pool.kind}")


def list_favours(trades: Iterable[Trade], pause: Callable[[], None] = lambda: None) -> FloatTable:
    """A row for each trade, of what `Favour` says of it. `pause` is called at every step."""
    numbers = chain.from_iterable([favour(trade) for trade in in_steps(trades, pause)])
    return np.fromiter(numbers, np.float64).reshape(-1, 2)


class Favours:
    """The favours of all edges of a graph, `rows` those of its trades, see `list_favours`. One thread at a time."""

    def __init__(self, graph: Graph, rows: FloatTable) -> None:
        src, dst, tokens = graph.net.src, graph.net.dst, graph.scale.size
        sold, bought = rows[graph.original].T
        self._scale = graph.scale
        # Of each token the units that all trades may gain, and the most that a single one may: each counts one token.
        self._all = (np.bincount(src, sold, tokens) + np.bincount(dst, bought, tokens)) * graph.scale
        self._one = np.zeros(tokens)
        for ends, units in ((src, sold), (dst, bought)):
            np.maximum.at(self._one, ends, units * graph.scale[ends])
        self._sums: dict[tuple[int, int], tuple[float, float]] = {}  # by source and sink; the last ones

    def _sum(self, search: Search) -> tuple[float, float]:
        """What the favours are worth together, and the largest one, in units of the sink; remembered."""
        source, sink = int(search.sources[0]), search.sink
        found = self._sums.get((source, sink))
        if found is None:
            if len(self._sums) >= _KEPT:
                self._sums.clear()
            worth = search.behind / self._scale[sink]
            worth[source] = max(search.behind[source], search.top) / self._scale[sink]
            every = float((self._all * worth).sum())
            found = self._sums[source, sink] = every, float((self._one * worth).max(initial=0.0))
        return found

    def of_one(self, search: Search) -> float:
        """The most that a single trade can gain, in units of the sink."""
        return self._sum(search)[1]

    def of_all(self, search: Search) -> float:
        """The most that all trades together can gain, in units of the sink.

        Also those that no good route leads past: what several fees less than a unit leave to a tiny amount on one path
        may come to more than that path is worse, although none of them alone does.
        """
        return self._sum(search)[0]
