"""Markets that were: lists of constant-product pairs as JSON, with their arbitrage or without.

A list has a row a pair: `address`, `token0` and `token1` (each with its `address`), `reserve0` and `reserve1` in
smallest units. Pairs charge 0.3 % of the input, as those of Uniswap V2 and its descendants do.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from millrace.dex.constant_product import XExchangePool
from millrace.dex.pool import PoolError
from millrace.routing.net import Floats, Ints

WANTED = (
    "want a JSON file, or a folder of them, each a list of pairs like "
    '{"address": "0x…", "token0": {"address": "0x…"}, "token1": {"address": "0x…"}, "reserve0": 123, "reserve1": 456}'
)
PPM = 10**6
FEE = 3_000  # of the input, in millionths
LEAST_UNITS = (
    1_000  # of either token: pairs hold that many back when they are made, so less is a pair in which nothing is
)
# Arbitrage is executed until prices are off by no more than this smaller fee: what is left is strictly within the fee.
INSIDE = 200
ROUNDS = 3  # of arbitrage: the first leaves what whole units and the smaller fee do to the prices it went by
STEPS, TOLERANCE = 60, 1e-10  # of Newton's method; relative
SHORTEST = 1e-9  # of a step: one that helps nothing even so is the last
RIDGE = 1e-12  # of the diagonal: tokens of which no pair would trade keep their price


class PairsError(Exception):
    """A file is none of these lists."""


class Pairs(NamedTuple):
    """Pools, the token that most of them hold, and what a unit of each token is worth in it."""

    pools: list[XExchangePool]
    hub: str
    worth: dict[str, float]


def read_pairs(path: Path, least: float) -> Pairs:
    """The pairs in a file or folder that are connected and hold `least` units of the hub's worth on each side.

    Raises `PairsError`.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    pools = [pool for file in files for pool in _read(file)]
    if not pools:
        raise PairsError(f"{path}: no pair in it that holds anything; {WANTED}")
    held = [token for pool in pools for token in pool.tokens]
    hub = max(sorted(set(held)), key=held.count)
    worth = _worth(pools, hub)
    deep = [pool for pool in pools if _depth(pool, worth) >= least]
    if not any(hub in pool.tokens for pool in deep):
        raise PairsError(f"{path}: no pair holds {least:g} smallest units of {hub} in worth on each side")
    worth = _worth(deep, hub)
    return Pairs([pool for pool in deep if pool.tokens[0] in worth], hub, worth)


def _read(file: Path) -> list[XExchangePool]:
    try:
        rows = json.loads(file.read_text())
        found = [_pool(f"{file.stem}:{row['address']}", row) for row in rows]
    except OSError as error:
        raise PairsError(f"{file} cannot be read ({error.strerror}); {WANTED}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PairsError(f"{file} is no list of pairs ({type(error).__name__}: {error}); {WANTED}") from error
    return [pool for pool in found if min(pool.reserves) > LEAST_UNITS and pool.tokens[0] != pool.tokens[1]]


def _pool(name: str, row: dict[str, dict[str, str] | str]) -> XExchangePool:
    tokens = [row[side]["address"].lower() for side in ("token0", "token1")]  # type: ignore[union-attr, index]
    return XExchangePool(
        id=name,
        address=name.encode()[-32:].rjust(32, b"."),
        tokens=(tokens[0], tokens[1]),
        reserves=(int(row["reserve0"]), int(row["reserve1"])),  # type: ignore[arg-type]
        total_fee=FEE,
        special_fee=0,
        fee_base=PPM,
    )


def _worth(pools: Sequence[XExchangePool], hub: str) -> dict[str, float]:
    """What a unit of each token fetches in the hub, by the deepest pairs."""
    beside: dict[str, list[tuple[str, int, int]]] = {}
    for pool in pools:
        (a, b), (x, y) = pool.tokens, pool.reserves
        beside.setdefault(a, []).append((b, x, y))
        beside.setdefault(b, []).append((a, y, x))
    worth: dict[str, float] = {}
    queue = [(0.0, hub, 1.0)]
    while queue:
        _, token, price = heapq.heappop(queue)
        if token not in worth:
            worth[token] = price
            for other, have, there in beside[token]:
                if other not in worth:
                    heapq.heappush(queue, (-have * price, other, price * have / there))
    return worth


def _depth(pool: XExchangePool, worth: dict[str, float]) -> float:
    """What the smaller side of a pair is worth."""
    return min(r * worth.get(token, 0.0) for token, r in zip(pool.tokens, pool.reserves, strict=True))


def without_arbitrage(pairs: Pairs) -> Pairs:
    """The market as those leave it who take all that cycles earn, and who keep it in the hub."""
    pools = list(pairs.pools)
    for _ in range(ROUNDS):
        at = _in_cycles(pools, ())
        cheaper = [replace(pools[k], total_fee=FEE - INSIDE) for k in at]
        for k, pool, (i, amount) in zip(at, cheaper, _arbitrage(cheaper, pairs), strict=True):
            try:
                pools[k] = replace(pool.swap(i, 1 - i, amount).pool, total_fee=FEE) if amount > 0 else pools[k]
            except PoolError:
                continue  # too little to pay anything
    return Pairs(pools, pairs.hub, _worth(pools, pairs.hub))


def certified(pairs: Pairs, token_in: str, token_out: str, amount: int) -> float:
    """What no route pays more than, by weak duality and without the router: true at any prices, close at the best."""
    pools = [pairs.pools[k] for k in _in_cycles(pairs.pools, (token_in, token_out))]
    if not pools:
        return 0.0
    edges = _edges(pools, pairs)
    sink, source = edges.number[token_out], edges.number[token_in]
    return _least(edges, sink, source, amount * pairs.worth[token_in])[1] / pairs.worth[token_out]


def _in_cycles(pools: Sequence[XExchangePool], ends: Sequence[str]) -> list[int]:
    """The pairs that are part of a cycle, or between cycles or `ends`: no others can earn or pass anything on."""
    left = dict.fromkeys(range(len(pools)))
    while True:
        held: dict[str, int] = {}
        for k in left:
            for token in pools[k].tokens:
                held[token] = held.get(token, 0) + 1
        loose = [k for k in left if any(held[token] == 1 and token not in ends for token in pools[k].tokens)]
        if not loose:
            return list(left)
        for k in loose:
            del left[k]


def _arbitrage(pools: Sequence[XExchangePool], pairs: Pairs) -> list[tuple[int, int]]:
    """Of each pair the token that is sold to it, and how much, in the trades that earn most together.

    These are the best ones of each pair at the prices at which all of them earn least (docs/routing.md), found by
    Newton's method on the roots of prices: the sum of squares is quadratic while the same pairs trade.
    """
    if not pools:
        return []
    edges = _edges(pools, pairs)
    x, _ = _least(edges, edges.number.get(pairs.hub, 0))
    amounts = (edges.sold / x[edges.a] * edges.earned(x)).tolist()
    fetched = edges.first[edges.a] ** 2  # of a unit: amounts are in the hub's worth
    units = [int(amount / worth) for amount, worth in zip(amounts, fetched.tolist(), strict=True)]
    return [(0, units[2 * k]) if units[2 * k] > 0 else (1, units[2 * k + 1]) for k in range(len(pools))]


class _Edges(NamedTuple):
    """Both directions of pairs: tokens by number, and the roots of reserves in the hub's worth, with the fee."""

    number: dict[str, int]
    first: Floats  # (token): the root of its worth, by which the roots of its prices are divided
    a: Ints
    b: Ints
    sold: Floats
    paid: Floats

    def earned(self, x: Floats) -> Floats:
        """The root of what each earns at most."""
        return np.maximum(self.paid * x[self.b] - self.sold * x[self.a], 0.0)


def _edges(pools: Sequence[XExchangePool], pairs: Pairs) -> _Edges:
    names = sorted({token for pool in pools for token in pool.tokens})
    number = {token: k for k, token in enumerate(names)}
    first = np.sqrt([pairs.worth[token] for token in names])
    sides = [(pool, i) for pool in pools for i in (0, 1)]
    a = np.array([number[pool.tokens[i]] for pool, i in sides], np.int32)
    b = np.array([number[pool.tokens[1 - i]] for pool, i in sides], np.int32)
    sold = np.sqrt([pool.reserves[i] / (1.0 - pool.total_fee / PPM) for pool, i in sides])
    paid = np.sqrt([float(pool.reserves[1 - i]) for pool, i in sides])
    return _Edges(number, first, a, b, sold * first[a], paid * first[b])


def _least(edges: _Edges, fixed: int, source: int = 0, amount: float = 0.0) -> tuple[Floats, float]:
    """Where the sum of `(paid x[b] - sold x[a])₊²` and `amount x[source]²` is least, `x[fixed]` being 1; the sum."""
    _, first, a, b, sold, paid = edges
    tokens = first.size
    diagonal = np.diag_indices(tokens)
    all_on = RIDGE * (np.bincount(b, paid**2, tokens) + np.bincount(a, sold**2, tokens))

    def total(x: Floats) -> float:
        return float((edges.earned(x) ** 2).sum() + amount * x[source] ** 2)

    x = np.ones(tokens)
    value = total(x)
    for _ in range(STEPS):
        z = edges.earned(x)
        on = z > 0.0
        slope = np.bincount(b, paid * z, tokens) - np.bincount(a, sold * z, tokens)
        bends = np.zeros((tokens, tokens))
        np.add.at(bends, (b[on], b[on]), paid[on] ** 2)
        np.add.at(bends, (a[on], a[on]), sold[on] ** 2)
        np.add.at(bends, (a[on], b[on]), -sold[on] * paid[on])
        np.add.at(bends, (b[on], a[on]), -sold[on] * paid[on])
        bends[diagonal] += all_on
        slope[source] += amount * x[source]
        bends[source, source] += amount
        bends[fixed] = bends[:, fixed] = 0.0
        bends[fixed, fixed], slope[fixed] = 1.0, 0.0
        step, part = np.linalg.solve(bends, slope), 1.0
        there = x - step
        while part > SHORTEST and (there.min() <= 0.0 or total(there) >= value):
            part /= 2.0
            there = x - part * step
        if part <= SHORTEST:
            break
        x, before, value = there, value, total(there)
        if before - value <= TOLERANCE * value:
            break
    return x, value
