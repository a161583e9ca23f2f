"""Pools that hold next to nothing: too small for the graph of a search, which goes by rates, but not for tiny amounts.

Such a pool can be the best that a few units may be sold to, and the only one within a limit of hops. What it could add
to an answer is bounded by what it holds. Where that is more than the answer, the paths over it are tried: to its token,
through it, and on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from millrace.dex.pool import Pool
from millrace.routing.net import Floats
from millrace.routing.venue import Trade, constant_product_curve

LOOKS = 12  # trades of dust pools tried for one question
_KEPT = 512  # pairs of tokens remembered

Rate = Callable[[int, int], float]
"""The best spot rate between two tokens of the graph, in its scale; 0 without route."""


class _Worth(NamedTuple):
    """What dust pools mean to one pair of tokens, in units of the sink: what each trade can pay, and earn in all."""

    paid: Floats
    most: float
    earned: float


class Dust:
    """The trades of a market's dust pools. `scale` and `index` are those of the graph. Any thread may use it."""

    def __init__(self, pools: Sequence[Pool], index: Mapping[str, int], scale: Floats) -> None:
        self._trades = [Trade(pool, i, j) for pool in pools for i, j in permutations(range(len(pool.tokens)), 2)]
        self._src = [index[trade.token_in] for trade in self._trades]
        self._dst = [index[trade.token_out] for trade in self._trades]
        curves = np.array([_curve(trade) for trade in self._trades]).reshape(-1, 2)
        self._depth, self._held = curves[:, 0] * scale[self._src], curves[:, 1] * scale[self._dst]
        self._scale = scale
        self._known: dict[tuple[int, int], _Worth] = {}

    def __bool__(self) -> bool:
        return bool(self._trades)

    def gain(self, source: int, sink: int, rate: Rate) -> float:
        """What all of them together can earn at the market's spot rates, in units of the sink."""
        return self._worth(source, sink, rate).earned

    def worthwhile(self, source: int, sink: int, floor: int, rate: Rate) -> list[Trade]:
        """The trades that may pay more than `floor` units of the sink, those that hold most first, at most `LOOKS`."""
        worth = self._worth(source, sink, rate)
        if worth.most <= floor:
            return []
        order = (-worth.paid).argsort(kind="stable")[:LOOKS].tolist()
        return [self._trades[k] for k in order if worth.paid[k] > floor]

    def _worth(self, source: int, sink: int, rate: Rate) -> _Worth:
        """The worth for a pair of tokens; the last ones are remembered."""
        known = self._known.get((source, sink))
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            rates = {token: 1.0 if token == sink else rate(token, sink) for token in {*self._src, *self._dst}}
            price = np.array([rates[token] for token in self._dst]) / self._scale[sink]
            cost = self._depth * np.array([rates[token] for token in self._src]) / self._scale[sink]
            paid = self._held * price
            # The most that y = r d / (a + d) earns at two prices, see `newton.py`: (sqrt(r p) - sqrt(a q))^2.
            earned = float((np.maximum(np.sqrt(paid) - np.sqrt(cost), 0.0) ** 2).sum())
            # Nothing is gained by selling what is wanted, or by buying what is given.
            paid[[u == sink or v == source for u, v in zip(self._src, self._dst, strict=True)]] = 0.0
            known = self._known[source, sink] = _Worth(paid, float(paid.max(initial=0.0)), earned)
        return known


def _curve(trade: Trade) -> tuple[float, float]:
    """(a, r) of `y = r d / (a + d)`; a curved pool is taken to give what it holds for nothing."""
    if trade.pool.kind == "constant_product":
        return constant_product_curve(trade.pool, trade.i, trade.j)[:2]
    return 0.0, float(trade.pool.reserves[trade.j])
