"""In a market where no cycle earns: which pairs need a look."""

from __future__ import annotations

import random

import numpy as np
import pytest

from millrace.dex.market import DictMarket
from millrace.routing import net as nets
from millrace.routing.candidates import Search
from millrace.routing.columns import generate, marginal
from millrace.routing.net import Graph, Net
from millrace.routing.profitable import list_profitable
from millrace.routing.spot import SpotGraph
from millrace.routing.venue import CurveCache, list_edges, sort_out
from millrace.routing.work import PAIRS, Work, make_work
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
