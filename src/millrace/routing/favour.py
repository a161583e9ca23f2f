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
from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Floats, FloatTable, Graph, Ints
from millrace.routing.venue import Trade

_SOLVED = 3.0  # units of 18 decimals: the StableSwap solvers stop within one, fees round down
_PART_OF_D = 1e-14  # how exactly the CryptoSwap contracts solve for a balance
_KEPT = 4096  # sums remembered


class Favour(NamedTuple):
    """At most so many units more than its curve a trade gets: counted in what it sells, and in what it buys."""

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


class _Columns(NamedTuple):
    """The trades with a favour, in columns: ends, spot rate, and what `Favour` says of each."""

    src: Ints
    dst: Ints
    rate: Floats
    sold: Floats
    bought: Floats


@inlined
def _worth(of: _Columns, scale: Floats, search: Search, k: int) -> float:
    """What the favour of a trade is worth, scaled."""
    u, v = of.src[k], of.dst[k]
    unit_in, unit_out = search.behind[u], search.behind[v]
    if u == search.sources[0]:
        unit_in = max(unit_in, search.top)
    if v == search.sources[0]:
        unit_out = max(unit_out, search.top)
    return float(of.sold[k] * unit_in * scale[u] + of.bought[k] * unit_out * scale[v])


@kernel
def _add_up(of: _Columns, scale: Floats, search: Search) -> tuple[float, float]:
    """The sum of what the favours are worth, and the largest one, in units of the sink."""
    whole = most = 0.0
    for k in range(of.src.size):
        worth = _worth(of, scale, search, k)
        whole += worth
        most = max(most, worth)
    return whole / scale[search.sink], most / scale[search.sink]


def list_favours(trades: Iterable[Trade], pause: Callable[[], None] = lambda: None) -> FloatTable:
    """A row for each trade, of what `Favour` says of it. `pause` is called at every step."""
    numbers = chain.from_iterable([favour(trade) for trade in in_steps(trades, pause)])
    return np.fromiter(numbers, np.float64).reshape(-1, 2)


class Favours:
    """The favours of all edges of a graph, `rows` those of its trades, see `list_favours`. One thread at a time."""

    def __init__(self, graph: Graph, rows: FloatTable) -> None:
        self._scale = graph.scale
        ordered = rows[graph.original]
        edges = np.nonzero(ordered[:, 0] + ordered[:, 1])[0]
        sold, bought = np.ascontiguousarray(ordered[edges].T)
        net = graph.net
        self._of = _Columns(net.src[edges], net.dst[edges], net.rate[edges], sold, bought)
        self._sums: dict[tuple[int, int], tuple[float, float]] = {}  # by source and sink; the last ones
        self._last: tuple[Search | None, tuple[float, float]] = None, (0.0, 0.0)  # as each asks three times

    def _sum(self, search: Search) -> tuple[float, float]:
        """What `_add_up` says, remembered."""
        last, found = self._last
        if last is not search:
            found = self._of_ends(search)
            self._last = search, found
        return found

    def _of_ends(self, search: Search) -> tuple[float, float]:
        """The same for all searches between two tokens."""
        ends = int(search.sources[0]), search.sink
        found = self._sums.get(ends)
        if found is None:
            if len(self._sums) >= _KEPT:
                self._sums.clear()
            found = self._sums[ends] = _add_up(self._of, self._scale, search)
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
