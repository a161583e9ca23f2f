"""From pools to edges: which trades the contract can make, and their curves in float64."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from millrace.dex.constant_product import JexPool, OneDexPool, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.market import DictMarket
from millrace.dex.operations import MIN_OUTPUT, MIN_OUTPUT_JEX_STABLE
from millrace.dex.pool import Pool, PoolError, PoolState
from millrace.dex.rate import SOLD, RatePool
from millrace.dex.stable import JexStablePool, StablePool
from millrace.dex.steps import in_steps
from millrace.routing.costs import NOTHING, Cost, Table
from millrace.routing.curve import NoCurve, crypto_knots, rate_knots, stable_knots
from millrace.routing.net import Edges, Knots

DUST_UNITS = 10_000  # smallest units of a token; with less, rounding decides what a trade pays
FEW = 10  # … and the largest reserve of the token is this many times more
DUST_PART = 10**7  # a pool with less than this part of the largest reserve of a token is dust


class Trade:
    """One direction of one pool: token number `i` of the pool is sold for its token number `j`.

    `spot` is the output per input of a very small trade, fees included, `keeps` the part of its output that stays in a
    constant-product pool as a fee, and `knots` the curve of another; nothing where nobody has put it into a graph.
    """

    __slots__ = ("_cost", "_table", "i", "j", "keeps", "knots", "pool", "spot", "token_in", "token_out")

    def __init__(self, pool: Pool, i: int, j: int) -> None:
        self.pool = pool
        self.i = i
        self.j = j
        self.token_in = pool.tokens[i]
        self.token_out = pool.tokens[j]
        self.spot = self.keeps = 0.0
        self.knots: Knots | None = None
        self._table: Table | None = None
        self._cost = NOTHING

    def pays(self, amount: int) -> int:
        """The pool's exact output for an amount; 0 where it, or the contract, refuses."""
        try:
            paid = self.pool.amount_out(self.i, self.j, amount)
        except PoolError:
            return 0
        return paid if paid >= least_output(self.pool) else 0

    def cost(self, table: Table) -> Cost:
        """What the trade takes of a transaction, in a pool not used before. It remembers the answer."""
        if self._table is not table:
            self._cost, self._table = self._work(table), table  # in this order: other threads may ask, too
        return self._cost

    def _work(self, table: Table) -> Cost:
        return table.swap(self.pool)

    def needs(self, wanted: int) -> int:
        """The smallest input that pays at least `wanted`. Raises `PoolError` where the pool cannot."""
        return self.pool.amount_in(self.i, self.j, max(wanted, least_output(self.pool)))

    def walk(self, vault: Any, mode: int, value: int) -> None:
        """Take the trade's steps in a vault, see `walk.py`. Raises `PlanError`."""
        vault.swap(self, mode, value)


def least_output(pool: Pool) -> int:
    """The smallest output with which the contract lets a swap pass: 2 for JEX stable pools, else 1."""
    return MIN_OUTPUT_JEX_STABLE if isinstance(pool, JexStablePool) else MIN_OUTPUT


def tradable(pool: Pool) -> bool:
    """Whether the pool takes swaps from anyone and holds something on every side."""
    if pool.state != PoolState.ACTIVE or min(pool.reserves) <= 0:
        return False
    refusing = getattr(pool, "restricted", False) or getattr(pool, "stuck", False)
    return bool(getattr(pool, "enabled", True)) and not refusing


def sort_out(
    pools: Iterable[Pool], market: DictMarket, pause: Callable[[], None] = lambda: None
) -> tuple[list[Pool], list[Pool]]:
    """The pools that the contract can swap in: those to search over, and those that hold next to nothing.

    Pools that take no swaps and pools that the contract would not find by their tokens or address are in neither.
    `pause` is called at every step.
    """
    usable = [pool for pool in in_steps(pools, pause) if tradable(pool) and market.reaches(pool)]
    dust = find_dust(usable, pause)
    return [pool for pool in usable if pool.id not in dust], [pool for pool in usable if pool.id in dust]


def find_dust(pools: Sequence[Pool], pause: Callable[[], None] = lambda: None) -> set[str]:
    """The ids of those pools that hold next to nothing, unless they alone connect two parts of the market.

    Such pools exist on every chain, with prices off by orders of magnitude. They could not carry a trade, but
    the rates they promise would lead the search, which goes by rates first, astray.
    """
    most = _most_held(pools, pause)
    least = _least_of(most)
    dust = [pool for pool in in_steps(pools, pause) if not holds_enough(pool, least)]
    if not dust:
        return set()

    def part(pool: Pool) -> float:
        """The smallest part that one of the pool's reserves is of the largest one of that token."""
        return min(reserve / most[token] for token, reserve in zip(pool.tokens, pool.reserves, strict=True))

    left_out = {pool.id for pool in dust}
    market = _Parts(pool.tokens for pool in pools if pool.id not in left_out)
    left_out -= {pool.id for pool in sorted(dust, key=part, reverse=True) if market.join(pool.tokens)}
    return left_out


def least_held(pools: Iterable[Pool], pause: Callable[[], None] = lambda: None) -> dict[str, int]:
    """With fewer units of a token a pool is dust."""
    return _least_of(_most_held(pools, pause))


def holds_enough(pool: Pool, least: Mapping[str, int]) -> bool:
    """Whether a pool is no dust. Of those at a rate it matters little what they hold."""
    if isinstance(pool, RatePool):
        return True
    return not any(reserve < least[token] for token, reserve in zip(pool.tokens, pool.reserves, strict=True))


def _least_of(most: Mapping[str, int]) -> dict[str, int]:
    return {token: max(min(DUST_UNITS, -(-whole // FEW)), -(-whole // DUST_PART)) for token, whole in most.items()}


def _most_held(pools: Iterable[Pool], pause: Callable[[], None]) -> dict[str, int]:
    """The largest reserve of each token."""
    most: dict[str, int] = {}
    for pool in in_steps(pools, pause):
        if not isinstance(pool, RatePool):
            for token, reserve in zip(pool.tokens, pool.reserves, strict=True):
                if reserve > most.get(token, 0):
                    most[token] = reserve
    return most


class _Parts:
    """Which tokens are connected (disjoint sets)."""

    def __init__(self, groups: Iterable[Sequence[str]]) -> None:
        self._parent: dict[str, str] = {}
        for tokens in groups:
            self.join(tokens)

    def _root(self, token: str) -> str:
        parent = self._parent.setdefault(token, token)
        while parent != self._parent[parent]:
            self._parent[token] = self._parent[parent]
            token, parent = parent, self._parent[parent]
        return parent

    def join(self, tokens: Sequence[str]) -> bool:
        """Connect all `tokens`; whether they were not connected before."""
        roots = {self._root(token) for token in tokens}
        first = min(roots)
        for root in roots:
            self._parent[root] = first
        return len(roots) > 1


def constant_product_curve(pool: Pool, i: int, j: int) -> tuple[float, float, float]:
    """(a, r, kept) of `y = r d / (a + d)`: the pool's trade from token `i` to token `j`, fees included.

    `kept` is the part of the gross output that stays in the pool as its fee.
    """
    sold, bought = float(pool.reserves[i]), float(pool.reserves[j])
    if isinstance(pool, XExchangePool):
        return sold / (1.0 - pool.total_fee / pool.fee_base), bought, 0.0
    if isinstance(pool, OneDexPool):
        left = 1.0 - pool.total_fee / pool.fee_base
        if pool.main[i]:
            return sold / left, bought, 0.0
        return sold, bought * left, (pool.total_fee - pool.special_fee - pool.staking_fee) / pool.fee_base
    if isinstance(pool, JexPool):
        fees = (pool.lp_fee + pool.platform_fee) / pool.fee_base
        return sold, bought * (1.0 - fees), pool.lp_fee / pool.fee_base
    raise TypeError(f"{pool.id} is not a constant product pool")


def list_edges(
    pools: Iterable[Pool],
    index: Mapping[str, int],
    known: CurveCache,
    more: Iterable[tuple[Trade, Knots]] = (),
    pause: Callable[[], None] = lambda: None,
    faulty: dict[str, str] | None = None,
) -> tuple[Edges, list[Trade]]:
    """All trades with `pools`, then those of `more`, and their edges in the same order.

    `index` numbers the tokens. `pause` is called at every pool, for work in the background. A pool whose numbers come
    to nothing has no trades; `faulty` gets its id, and why.
    """
    found: list[tuple[Trade, Shape]] = []
    for pool in pools:
        pause()
        try:
            found += _shapes(pool, known)
        except FaultyCurve as error:
            if faulty is not None:
                faulty[pool.id] = str(error)
    found += [(trade, _of_curve(knots)) for trade, knots in more]
    found = [(trade, shape) for trade, shape in found if shape.a > 0.0 and shape.r > 0.0]
    for trade, shape in found:
        trade.spot, trade.keeps, trade.knots = shape.r / shape.a, shape.kept, shape.knots
    source = np.array([index[trade.token_in] for trade, _ in found], np.int32)
    target = np.array([index[trade.token_out] for trade, _ in found], np.int32)
    a, r, kept = (np.array([shape[k] for _, shape in found], np.float64) for k in range(3))
    curves = {number: shape.knots for number, (_, shape) in enumerate(found) if shape.knots is not None}
    return Edges(source, target, a, r, kept, curves), [trade for trade, _ in found]


class Shape(NamedTuple):
    """An edge's part of `Edges`; with `knots` it is a curve, and the rest says how deep it is and what its rate is."""

    a: float
    r: float
    kept: float = 0.0
    knots: Knots | None = None


class FaultyCurve(NoCurve):
    """A pool's numbers divide by zero or are larger than any, or make no trade."""


def _shapes(pool: Pool, known: CurveCache) -> list[tuple[Trade, Shape]]:
    """The trades that a pool takes, with their edges. Raises `FaultyCurve`."""
    found, reason = [], ""
    for i, j in itertools.permutations(range(len(pool.tokens)), 2):
        try:
            found.append((Trade(pool, i, j), shape_of(pool, i, j, known)))
        except FaultyCurve:
            raise
        except NoCurve as error:
            reason = reason or f"no curve from {pool.tokens[i]} to {pool.tokens[j]}: {error}"
    if not found:  # one without a trade is not tradable, whatever it says
        raise FaultyCurve(reason)
    return found


def shape_of(pool: Pool, i: int, j: int, known: CurveCache) -> Shape:
    """The edge of one direction of a pool. Raises `NoCurve`, which is a `FaultyCurve` where the pool is at fault."""
    try:
        if pool.kind == "constant_product":
            return Shape(*constant_product_curve(pool, i, j))
        return _of_curve(known.of(pool, i, j))
    except ArithmeticError as error:
        raise FaultyCurve(f"no curve from {pool.tokens[i]} to {pool.tokens[j]}: {error}") from error


def _of_curve(knots: Knots) -> Shape:
    depth = float(knots.d[-1])
    return Shape(depth, depth * float(knots.slope[0]), 0.0, knots)


def with_moved(edges: Edges, trades: Mapping[int, Trade], pools: Mapping[str, Pool]) -> tuple[Edges, dict[int, Trade]]:
    """The edges, and these trades by number, which are all with `pools`, by id, as those are by now.

    Raises `NoCurve` where a pool takes no trades any more, and where its LP units are traded: see `lpedges.py`.
    """
    a, r, curves, known = edges.a.copy(), edges.r.copy(), dict(edges.curves), CurveCache()
    now = {}
    for number, trade in trades.items():
        pool = pools[trade.pool.id]
        if not tradable(pool):
            raise NoCurve(f"pool {pool.id} takes no trades any more")
        if trade.i < 0:
            raise NoCurve(f"the LP units of pool {pool.id} have to be looked at anew")
        a[number], r[number], kept, knots = shape_of(pool, trade.i, trade.j, known)
        if knots is not None:
            curves[number] = knots
        now[number] = other = Trade(pool, trade.i, trade.j)
        other.spot, other.keeps, other.knots = float(r[number] / a[number]), kept, knots
    return edges._replace(a=a, r=r, curves=curves), now


class CurveCache:
    """Tables of curves, kept from one market to the next: most pools do not change in between.

    Any thread may use it. It holds at most the curves of the pools last given to `forget_all_but`, and of
    those asked for since.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], tuple[Pool, Knots]] = {}

    def of(self, pool: Pool, i: int, j: int) -> Knots:
        """The knots of one direction of a stable or crypto pool, or of one at a rate. Raises `NoCurve`."""
        key = (pool.id, i, j)
        with self._lock:
            found = self._known.get(key)
        if found is not None and (found[0] is pool or found[0] == pool):
            return found[1]
        if isinstance(pool, StablePool):
            knots = stable_knots(pool, i, j)
        elif isinstance(pool, AshCryptoPool):
            knots = crypto_knots(pool, i, j)
        elif isinstance(pool, RatePool) and i == SOLD:
            knots = rate_knots(pool)
        else:
            raise NoCurve(f"pool {pool.id} has no curve from {pool.tokens[i]} to {pool.tokens[j]}")
        with self._lock:
            self._known[key] = (pool, knots)
        return knots

    def forget_all_but(self, pools: Iterable[Pool]) -> None:
        """Drop the tables of pools that are no longer in the market."""
        present = {pool.id for pool in pools}
        with self._lock:
            self._known = {key: value for key, value in self._known.items() if key[0] in present}
