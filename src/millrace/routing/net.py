"""The graph of a snapshot as flat float64 arrays, ready for the kernels.

An edge is one direction of one pool: token `src` in, token `dst` out. Two kinds share all code:

* constant product: `y(d) = r d / (a + d)`. A fee on the input is inside `a` (`a = R_in / (1 - fee)`),
  a fee on the output is inside `r` (`r = (1 - fee) R_out`).
* curve: any other concave function, tabulated by knots; see `curve.py`.

Amounts are scaled per token (`scale`) so that all tokens have about the same value per unit: prices,
flows and tolerances are then of order one whatever the decimals.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
# Kernels tell arrays of two dimensions by their names: to NumPy's types they are the same.
FloatTable = npt.NDArray[np.float64]
IntTable = npt.NDArray[np.int32]
WordTable = npt.NDArray[np.uint64]

# Rates round a cycle that come to no more than this gain nothing: those of pools without a fee are off by some 1e-16
# each. Cycles that gain as much are cut (`astray.py`).
EVEN = 1.0 + 1e-12


class Knots(NamedTuple):
    """A tabulated concave edge: inputs `d` (from 0, ascending), outputs `y`, slopes (descending).

    `k1` and `k2` shape the segment from each knot to the next (see `segments.py`); those of the last one are 0. `error`
    is the relative error of the outputs from the knot before on, `pieces` what trading in pieces adds to them at most.
    """

    d: Floats
    y: Floats
    slope: Floats
    k1: Floats
    k2: Floats
    error: Floats
    pieces: Floats


class Net(NamedTuple):
    """What the kernels read. `m` edges in `p` ordered pairs of `n` tokens; all amounts scaled.

    Pairs of token `t` are `pptr[t] : pptr[t + 1]`, those to core tokens first (up to `pcore[t]`). A pair
    holds its edges `pe0 : pe1`, best spot rate first. A core token has at least two neighbours,
    or pools at odds with each other at its only one: only such a token can lie inside a route.
    """

    pptr: Ints
    pcore: Ints
    pdst: Ints
    prate: Floats  # best spot rate of the pair, 0 when it has no edge in this direction
    pback: Floats  # best spot rate of the opposite pair
    popp: Ints  # the opposite pair
    pe0: Ints
    pe1: Ints
    pair: Ints  # the pair of each edge
    src: Ints
    dst: Ints
    rate: Floats
    a: Floats
    r: Floats
    ca: Floats  # sqrt(a)
    cb: Floats  # sqrt(r)
    kept: Floats  # part of the output that stays in the pool as its fee, constant product
    curve: Ints  # index of the edge's curve, -1 for constant product
    kptr: Ints  # knots of curve c are kptr[c] : kptr[c + 1]
    kd: Floats
    ky: Floats
    kp: Floats
    k1: Floats
    k2: Floats
    kerr: Floats
    kmore: Floats  # what trading in pieces adds
    core: Bools
    corelist: Ints
    link: Ints  # one of the two pairs of each two core tokens that trade: from the one with fewer neighbours
    link_src: Ints
    link_dst: Ints
    astray: Ints  # edges that are in no pair, the last ones: see `astray.py`
    seller: IntTable  # a row for each edge and pair in which slices of its fee are sold, see `slices.py`
    slices: FloatTable  # the same rows


NO_SLICES = np.zeros((0, 4), np.int32), np.zeros((0, 3))


class Edges(NamedTuple):
    """Edges as the caller lists them, in raw token units; `curves` maps an edge to its knots.

    `kept` is the part of each trade's gross output that stays in the pool; 0 for curves.
    """

    src: Ints
    dst: Ints
    a: Floats
    r: Floats
    kept: Floats
    curves: Mapping[int, Knots]


class Graph(NamedTuple):
    """A net, the scale of each token (scaled = raw * scale) and the caller's number of each net edge.

    `tree` are the caller's edges along which the scales were found.
    """

    net: Net
    scale: Floats
    original: Ints
    tree: Sequence[int] = ()


def build(
    tokens: int,
    edges: Edges,
    pause: Callable[[], None] = lambda: None,
    astray: Bools | None = None,
    tree: Sequence[int] | None = None,
    dust: Bools | None = None,
) -> Graph:
    """Sort and index `edges` between tokens `0 … tokens - 1`; those that are `astray` come last, and into no pair.

    `tree` is that of a graph of these edges, or of nearly the same, if there is one. What edges of `dust` are at odds
    with is not worth a cycle. `pause` is called at every step.
    """
    astray = np.zeros(len(edges.src), np.bool_) if astray is None else astray
    regular = len(edges.src) - int(np.count_nonzero(astray))
    tree = _deepest(tokens, edges, pause) if tree is None else tree
    scale = _scales_along(tree, tokens, edges)
    pause()
    rate = edges.r / edges.a * scale[edges.dst] / scale[edges.src]
    for number, knots in edges.curves.items():
        rate[number] = knots.slope[0] * scale[edges.dst[number]] / scale[edges.src[number]]
    order = np.lexsort((-rate, edges.dst, edges.src, astray)).astype(np.int32)
    src, dst, rate = edges.src[order], edges.dst[order], rate[order]
    a, r = edges.a[order] * scale[src], edges.r[order] * scale[dst]
    curve, kptr, knots = _curve_tables(order, src, dst, scale, edges.curves)
    pause()
    solid = rate if dust is None else np.where(dust[order], 0.0, rate)
    pairs = _pairs(tokens, src[:regular], dst[:regular], rate[:regular], solid[:regular])
    pause()
    filled = np.nonzero(pairs[7] > pairs[6])[0].astype(np.int32)
    filled = filled[np.argsort(pairs[6][filled])]  # edges are numbered pair by pair
    pair = np.repeat(filled, (pairs[7] - pairs[6])[filled])
    shapes = (a, r, np.sqrt(a), np.sqrt(r), edges.kept[order], curve, kptr)
    outside = np.arange(regular, len(order), dtype=np.int32)
    net = Net(*pairs[:8], pair, src, dst, rate, *shapes, *knots, *pairs[8:], outside, *NO_SLICES)
    return Graph(net, scale, order, tree)


def _pairs(
    n: int, src: Ints, dst: Ints, rate: Floats, solid: Floats
) -> tuple[Ints, Ints, Ints, Floats, Floats, Ints, Ints, Ints, Bools, Ints, Ints, Ints, Ints]:
    """Index the edges by ordered pair; a pair with edges in one direction only gets an empty opposite.

    `solid` are the rates of edges that make a token with one neighbour a core token, where they are at odds.
    """
    key = src.astype(np.int64) * n + dst
    forward, first = np.unique(key, return_index=True)
    last = np.append(first[1:], len(key))
    opposite = (forward % n) * n + forward // n
    every = np.union1d(forward, opposite)
    where = np.searchsorted(forward, every)
    where_safe = np.minimum(where, max(len(forward) - 1, 0))
    present = forward[where_safe] == every if len(forward) else np.zeros(0, bool)
    pe0 = np.where(present, first[where_safe], 0) if len(forward) else np.zeros(0, np.int64)
    pe1 = np.where(present, last[where_safe], 0) if len(forward) else np.zeros(0, np.int64)
    prate = np.where(present, rate[np.minimum(pe0, max(len(rate) - 1, 0))], 0.0) if len(rate) else np.zeros(0)
    psrc, pdst = every // n, every % n
    opp = np.searchsorted(every, pdst * n + psrc)
    pback = prate[opp]
    core = np.bincount(psrc, minlength=n) >= 2
    odds = np.where(present, np.maximum.reduceat(solid, first)[where_safe], 0.0) if len(solid) else np.zeros(0)
    core[psrc[odds * odds[opp] > EVEN]] = True
    order = np.lexsort((~core[pdst], psrc))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    popp = place[opp[order]]
    psrc, pdst, prate, pback, pe0, pe1 = (v[order] for v in (psrc, pdst, prate, pback, pe0, pe1))
    pptr = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(psrc, minlength=n), out=pptr[1:])
    inner = np.bincount(psrc, weights=core[pdst], minlength=n).astype(np.int32)
    pcore = pptr[:-1] + inner
    corelist = np.nonzero(core)[0].astype(np.int32)
    rank = inner.astype(np.int64) * n + np.arange(n)  # by neighbours
    link = np.nonzero(core[psrc] & core[pdst] & (rank[psrc] < rank[pdst]))[0]
    return (
        pptr,
        pcore.astype(np.int32),
        pdst.astype(np.int32),
        prate.astype(np.float64),
        pback.astype(np.float64),
        popp,
        pe0.astype(np.int32),
        pe1.astype(np.int32),
        core,
        corelist,
        link.astype(np.int32),
        psrc[link].astype(np.int32),
        pdst[link].astype(np.int32),
    )


_NO_KNOTS = Knots(*[np.zeros(0)] * 7)


def _curve_tables(
    order: Ints, src: Ints, dst: Ints, scale: Floats, curves: Mapping[int, Knots]
) -> tuple[Ints, Ints, Knots]:
    """Each edge's curve, where the knots of each curve begin, and all knots, scaled."""
    curve = np.full(len(order), -1, np.int32)
    where = np.nonzero(np.isin(order, list(curves)))[0] if curves else np.zeros(0, np.int64)
    curve[where] = np.arange(len(where))
    tables = [curves[number] for number in order[where].tolist()]
    sizes = [0, *(len(table.d) for table in tables)]
    raw = Knots(*(np.concatenate(parts) for parts in zip(*tables, strict=True))) if tables else _NO_KNOTS
    into, out = (np.repeat(scale[ends[where]], sizes[1:]) for ends in (src, dst))
    scaled = raw._replace(d=raw.d * into, y=raw.y * out, slope=raw.slope * (out / into))
    return curve, np.cumsum(sizes).astype(np.int32), scaled._replace(k1=raw.k1 * into, k2=raw.k2 * into)


def _deepest(n: int, edges: Edges, pause: Callable[[], None]) -> list[int]:
    """Edges off which relative token values are read: Prim's algorithm, deepest edge first."""
    neighbours: list[list[int]] = [[] for _ in range(n)]
    sources, targets = edges.src.tolist(), edges.dst.tolist()
    for e, t in enumerate(sources):
        neighbours[t].append(e)
    depth = edges.a.tolist()
    worth = (edges.a / edges.r).tolist()
    scale = [0.0] * n
    tree = []
    for root in sorted(range(n), key=lambda t: -len(neighbours[t])):
        if scale[root]:
            continue
        scale[root] = 1.0
        heap = [(-depth[e], e) for e in neighbours[root]]
        heapq.heapify(heap)
        while heap:
            pause()
            e = heapq.heappop(heap)[1]
            a, b = sources[e], targets[e]
            if scale[b]:
                continue
            scale[b] = _valued(scale[a], worth[e])
            tree.append(e)
            for f in neighbours[b]:
                if not scale[targets[f]]:
                    heapq.heappush(heap, (-depth[f] * scale[b], f))
    return tree


def _scales_along(tree: Sequence[int], n: int, edges: Edges) -> Floats:
    """Relative token values, read off edges in an order in which what one begins with has its value by then."""
    along = np.array(tree, np.int64)
    worth = edges.a[along] / edges.r[along]
    scale = [1.0] * n
    for a, b, factor in zip(edges.src[along].tolist(), edges.dst[along].tolist(), worth.tolist(), strict=True):
        scale[b] = _valued(scale[a], factor)
    return np.array(scale)


def _valued(scale: float, factor: float) -> float:
    return min(max(scale * factor, 1e-150), 1e150)
