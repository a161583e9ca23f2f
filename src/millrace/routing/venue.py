"""From pools to edges: which trades the contract can make, and their curves in float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolState
from millrace.routing.net import Edges, Knots


class Trade(NamedTuple):
    """One direction of one pool: token number `i` of the pool is sold for its token number `j`."""

    pool: Pool
    i: int
    j: int

    @property
    def token_in(self) -> str:
        return self.pool.tokens[self.i]

    @property
    def token_out(self) -> str:
        return self.pool.tokens[self.j]


def tradable(pool: Pool) -> bool:
    """Whether the pool takes swaps from anyone and holds something on every side."""
    if pool.state != PoolState.ACTIVE or min(pool.reserves) <= 0:
        return False
    return bool(getattr(pool, "enabled", True)) and not getattr(pool, "restricted", False)


def constant_product_curve(pool: Pool, i: int, j: int) -> tuple[float, float]:
    """(a, r) of `y = r d / (a + d)`: the pool's trade from token `i` to token `j`, fees included."""
    reserve_in, reserve_out = float(pool.reserves[i]), float(pool.reserves[j])
    if isinstance(pool, XExchangePool):
        return reserve_in / (1.0 - pool.total_fee / pool.fee_base), reserve_out
    if isinstance(pool, OneDexPool):
        kept = 1.0 - pool.total_fee / pool.fee_base
        return (reserve_in / kept, reserve_out) if pool.main[i] else (reserve_in, reserve_out * kept)
    if isinstance(pool, JexPool):
        return reserve_in, reserve_out * (1.0 - (pool.lp_fee + pool.platform_fee) / pool.fee_base)
    raise TypeError(f"{pool.id} is not a constant product pool")


def list_edges(pools: Iterable[Pool], market: DictMarket, index: Mapping[str, int]) -> tuple[Edges, list[Trade]]:
    """All trades the contract can make with `pools`, and their edges in the same order.

    `index` numbers the tokens. Pools that take no swaps and pools that the contract would not find by
    their tokens or address are left out.
    """
    trades: list[Trade] = []
    sources: list[int] = []
    targets: list[int] = []
    a: list[float] = []
    r: list[float] = []
    curves: dict[int, Knots] = {}
    for pool in pools:
        if pool.kind != "constant_product" or not tradable(pool) or not market.reaches(pool):
            continue
        for i, j in ((0, 1), (1, 0)):
            depth, height = constant_product_curve(pool, i, j)
            if not (depth > 0.0 and height > 0.0):
                continue
            trades.append(Trade(pool, i, j))
            sources.append(index[pool.tokens[i]])
            targets.append(index[pool.tokens[j]])
            a.append(depth)
            r.append(height)
    edges = Edges(np.array(sources, np.int32), np.array(targets, np.int32), np.array(a), np.array(r), curves)
    return edges, trades
