"""In a market where no cycle earns: which pairs need a look, and what a single path can pay at most."""

from __future__ import annotations

import random

import numpy as np
import pytest

from millrace.dex.market import DictMarket
from millrace.routing import net as nets
from millrace.routing.candidates import Search
from millrace.routing.columns import generate, marginal
from millrace.routing.find import SLOTS, find
from millrace.routing.moves import Moves
from millrace.routing.net import Graph, Net
from millrace.routing.pathsearch import find_single, make_path_work
from millrace.routing.profitable import list_profitable
from millrace.routing.scratch import make
from millrace.routing.shares import Room
from millrace.routing.solve import UPPER_PATH
from millrace.routing.spot import SpotGraph
from millrace.routing.venue import CurveCache, list_edges, sort_out
from millrace.routing.widepath import make_wide_work
from millrace.routing.work import MAX_EDGES, PAIRS, Work, make_work
from synthetic import WRAPPED, make_market


def market(pools: int, seed: int, curved: float = 0.0) -> tuple[SpotGraph, Graph, list[tuple[str, str, int]]]:
    """A market without profitable cycles, and questions of all sizes."""
    document = make_market(pools, seed, noise=0.001, curved=curved, crypto=False)
    clean, _ = sort_out(document.pools, DictMarket(document.pools, WRAPPED))
    index = {token: k for k, token in enumerate(dict.fromkeys(t for pool in clean for t in pool.tokens))}
    edges, trades = list_edges(clean, index, CurveCache())
    graph = nets.build(len(index), edges)
    spot = SpotGraph(index, graph, trades)
    rng = random.Random(seed)
    asked = []
    for _ in range(25):
        a, b = rng.sample(sorted(index), 2)
        if spot.connected(a, b):
            asked.append((a, b, max(1, int(spot.depth(a) * 10 ** rng.uniform(-6, 0.5)))))
    return spot, graph, asked


@pytest.mark.parametrize(("pools", "seed", "curved"), [(12, 1, 0.0), (60, 2, 0.0), (300, 3, 0.0), (60, 4, 0.4)])
def test_every_pair_that_earns_at_the_prices_is_listed(pools: int, seed: int, curved: float) -> None:
    """Prices can be given to all tokens such that no pair earns but the listed ones: nothing else could be missed."""
    spot, graph, asked = market(pools, seed, curved)
    net, work = graph.net, make_work(len(graph.scale), len(graph.original))
    looked = 0
    for question in asked:
        q = spot.search(*question)
        if not q.closed:
            continue
        generate(net, work, q)
        list_profitable(net, work, q, marginal(net, work, q))
        listed = set(work.l_pair[: work.n[PAIRS]].tolist())
        price, paid = relaxed(net, work, q)
        source = np.repeat(np.arange(net.core.size), np.diff(net.pptr))
        earns = net.prate * paid[net.pdst] > price[source] * (1.0 + 1e-9)
        sells = net.core[source] | (source == q.sources[0])
        buys = net.core[net.pdst] | (net.pdst == q.sink)
        possible = earns & sells & buys & (source != q.sink) & (net.pdst != q.sources[0]) & (q.ahead[source] > 0.0)
        assert set(np.nonzero(possible)[0].tolist()) <= listed
        looked += 1
    assert looked > 5


def relaxed(net: Net, work: Work, q: Search) -> tuple[nets.Floats, nets.Floats]:
    """Prices of all tokens: of those without one, the least they cost given the others (Bellman and Ford)."""
    price, paid = work.n_price.copy(), work.n_paid.copy()
    known = (price > 0.0) | (paid > 0.0)
    known[[q.sink, q.sources[0]]] = True
    price[~known] = np.inf
    source = np.repeat(np.arange(net.core.size), np.diff(net.pptr))
    usable = (net.prate > 0.0) & (source != q.sink) & ~known[net.pdst]
    for _ in range(40):
        cost = price[source[usable]] / net.prate[usable]
        np.minimum.at(price, net.pdst[usable], cost)
    paid[~known] = np.where(np.isfinite(price[~known]), price[~known], 0.0)
    return price, paid


@pytest.mark.parametrize(("pools", "seed", "curved"), [(30, 5, 0.0), (200, 6, 0.0), (60, 7, 0.4)])
def test_no_single_path_pays_more_than_its_bound(pools: int, seed: int, curved: float) -> None:
    """The bound that spares a search for the best single path is above what that leaves; fees bring both down."""
    spot, graph, asked = market(pools, seed, curved)
    net, work, paths = graph.net, make_work(len(graph.scale), len(graph.original)), make_path_work(graph.net)
    edges, flows, report = np.zeros(MAX_EDGES, np.int32), np.zeros(MAX_EDGES), np.zeros(SLOTS)
    spared, lowered = 0, 0
    for question in asked:
        q = spot.search(*question)
        before = 1e300
        for price in (0.0, 1e-3 * q.amounts[0]):
            room = Room(np.zeros(net.src.size), False, np.ones(net.src.size), price)
            find(net, work, make(Moves), paths, make_wide_work(1, 1), q, room, 1000, 10, 0, 0.999, edges, flows, report)
            length = find_single(net, paths, q, room, 10, 0.0)
            amount = float(q.amounts[0])
            for e in paths.single[:length]:
                amount = pays(graph, int(e), amount)
            assert amount - length * price <= report[UPPER_PATH] * (1.0 + 1e-9)
            lowered += bool(report[UPPER_PATH] < before < 1e300)
            before = report[UPPER_PATH]
        spared += bool(before < 1e300)
    assert spared > 5
    assert lowered > 5


def pays(graph: Graph, edge: int, amount: float) -> float:
    """What an edge pays, by its own formula or, for a table, linearly between its knots: that is no more."""
    net, c = graph.net, graph.net.curve[edge]
    if c < 0:
        return float(net.r[edge] * amount / (net.a[edge] + amount))
    knots = slice(net.kptr[c], net.kptr[c + 1])
    return float(np.interp(amount, net.kd[knots], net.ky[knots]))
