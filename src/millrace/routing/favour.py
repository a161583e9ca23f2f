"""What rounding in the trader's favour can add to outputs.

Curves round nothing. Pools round what they pay down, which no bound minds, but also what they withhold: a fee of
less than a unit is no fee. For tokens of few decimals and tiny amounts that is worth something; plans may gain by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.pool import precision
from millrace.dex.stable import JexStablePool, StablePool
from millrace.dex.stableswap import UNIT
from millrace.dex.steps import in_steps
from millrace.routing.candidates import Search
from millrace.routing.compiled import kernel
from millrace.routing.net import Floats, Graph, Ints
from millrace.routing.venue import Trade

_SOLVED = 3.0  # units of 18 decimals: the StableSwap solvers stop within one, fees round down
_PART_OF_D = 1e-14  # how exactly the CryptoSwap contracts solve for a balance
_KEPT = 4096  # sums remembered
_NEGLIGIBLE = 1e-12


class Favour(NamedTuple):
    """At most so many units more than its curve a trade gets: counted in what it sells, and in what it buys.

    `fee` is the part of the trade that is withheld at most.
    """

    sold: float
    bought: float
    fee: float


_NO_FAVOUR = Favour(0.0, 0.0, 0.0)


def favour(trade: Trade) -> Favour:
    """The favour of one trade."""
    pool = trade.pool
    if isinstance(pool, XExchangePool):
        return _NO_FAVOUR
    if isinstance(pool, OneDexPool):
        fee = pool.total_fee / pool.fee_base
        return Favour(1.0 / (1.0 - fee), 0.0, fee) if pool.main[trade.i] else Favour(0.0, 1.0, fee)
    if isinstance(pool, JexPool):
        return Favour(0.0, 2.0, (pool.lp_fee + pool.platform_fee) / pool.fee_base)
    if isinstance(pool, AshCryptoPool):
        unit = precision(pool.decimals[trade.j]) * (pool.price_scale / UNIT if trade.j == 1 else 1.0)
        return Favour(0.0, 1.0 + (_PART_OF_D * pool.d + 100.0) / unit, max(pool.mid_fee, pool.out_fee) / pool.fee_base)
    if isinstance(pool, StablePool):
        unit = precision(pool.decimals[trade.j]) * pool.prices[trade.j] / UNIT
        return Favour(0.0, isinstance(pool, JexStablePool) + _SOLVED / unit, pool.swap_fee / pool.fee_base)
    raise TypeError(f"no curve is known of pools of kind {pool.kind}")


class _Columns(NamedTuple):
    """The trades with a favour, in columns: ends, spot rate, and what `Favour` says of each."""

    src: Ints
    dst: Ints
    rate: Floats
    sold: Floats
    bought: Floats
    fee: Floats


@kernel
def _add_up(of: _Columns, scale: Floats, search: Search, level: float) -> tuple[float, float, float]:
    """The sum of what the favours are worth, the largest one, and the sum of what pays; in units of the sink.

    With a `level` above 0 each pays for a part only, see `Favours.of_all`.
    """
    source, sink = search.sources[0], search.sink
    whole = most = paying = 0.0
    for k in range(of.src.size):
        u, v = of.src[k], of.dst[k]
        unit_in, unit_out = search.behind[u], search.behind[v]
        near = search.ahead[u] * of.rate[k] * unit_out
        if u == source:
            unit_in = max(unit_in, search.top)
        if v == source:
            unit_out = max(unit_out, search.top)
        worth = of.sold[k] * unit_in * scale[u] + of.bought[k] * unit_out * scale[v]
        whole += worth
        most = max(most, worth)
        if level > 0.0:
            worth *= min(max(1.0 - (1.0 - near / level) / max(of.fee[k], _NEGLIGIBLE), 0.0), 1.0)
        paying += worth
    return whole / scale[sink], most / scale[sink], paying / scale[sink]


class Favours:
    """The favours of all edges of a graph. One thread at a time. `pause` is called at every step of making them."""

    def __init__(self, graph: Graph, trades: Sequence[Trade], pause: Callable[[], None] = lambda: None) -> None:
        self._scale = graph.scale
        numbers = chain.from_iterable([favour(trades[k]) for k in in_steps(graph.original.tolist(), pause)])
        rows = np.fromiter(numbers, np.float64, 3 * len(trades)).reshape(-1, 3)
        edges = np.nonzero(rows[:, 0] + rows[:, 1])[0]
        sold, bought, fee = np.ascontiguousarray(rows[edges].T)
        net = graph.net
        self._of = _Columns(net.src[edges], net.dst[edges], net.rate[edges], sold, bought, fee)
        self._sums: dict[tuple[int, int], tuple[float, float]] = {}  # by source and sink; the last ones

    def _sum(self, search: Search, level: float) -> tuple[float, float, float]:
        """What `_add_up` says; what does not depend on the level is remembered."""
        if len(self._sums) >= _KEPT:
            self._sums.clear()
        whole, most, paying = _add_up(self._of, self._scale, search, level)
        self._sums[int(search.sources[0]), search.sink] = whole, most
        return whole, most, paying

    def of_one(self, search: Search) -> float:
        """The most that a single trade can gain, in units of the sink."""
        known = self._sums.get((int(search.sources[0]), search.sink))
        return self._sum(search, 0.0)[1] if known is None else known[1]

    def of_all(self, search: Search, level: float, upper: float) -> float:
        """The most that all trades together can gain, in units of the sink; `upper` bounds the output without.

        `level` is the kernels' pruning level. A route that stays below it by some part loses that part of all that goes
        over it; to gain a unit, a trade must be so large that its fee would be one. So it pays only up to the fee.
        """
        known = self._sums.get((int(search.sources[0]), search.sink))
        if known is not None and known[0] <= upper * _NEGLIGIBLE:
            return known[0]
        whole, _, paying = self._sum(search, level)
        return whole if whole <= upper * _NEGLIGIBLE else paying
