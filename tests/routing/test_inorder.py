"""A market with mispricing in an order of its tokens: what is allowed there, and what is found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from millrace.dex.market import DictMarket
from millrace.routing.attempt import longest
from millrace.routing.candidates import Search
from millrace.routing.inorder import Order, arrange, ordered
from millrace.routing.kernelsearch import KernelSearch, Limits, Ways
from millrace.routing.net import Ints, Net
from millrace.routing.potential import is_closed
from millrace.routing.router import Router
from millrace.routing.scratch import make
from synthetic import WRAPPED, make_market

HOPS = 10


class Arranged(NamedTuple):
    """A question, a path for it, and the order around that path."""

    router: Router
    search: Search
    path: Ints
    order: Order
    within: Net
    top: float


def arranged(seed: int, pools: int, noise: float, curved: float = 0.0) -> Iterator[Arranged]:
    """Orders of one market with mispricing, for questions of all sizes."""
    pool_list = make_market(pools, seed, noise=noise, curved=curved).pools
    router, rng = Router(pool_list, DictMarket(pool_list, WRAPPED)), random.Random(seed)
    net = router._graph.net
    order = make(Order, tokens=net.core.size, pairs=net.pdst.size)
    within = ordered(net, order)
    for _ in range(30):
        a, b = rng.sample(sorted(router.index), 2)
        if not router.connected(a, b):
            continue
        search = router.search(a, b, max(1, int(router.depth(a) * 10 ** rng.uniform(-6, 0.0))))
        edges, _, _ = router._wide.quick(search, HOPS, router._kernels.room(Limits(), search.sink))
        if edges:
            path, ways = np.array(edges, np.int32), Ways.single(edges, search)
            yield Arranged(router, search, path, order, within, arrange(net, within, order, search, *ways, 1))


MARKETS = pytest.mark.parametrize(
    ("seed", "pools", "noise", "curved"), [(1, 30, 0.03, 0.0), (2, 150, 0.01, 0.0), (3, 300, 0.02, 0.3)]
)


@MARKETS
def test_tokens_come_as_on_the_path_and_nothing_leads_back(seed: int, pools: int, noise: float, curved: float) -> None:
    """The source is first, the sink last, and just the pairs that lead forward are left, as they are in the market."""
    for case in arranged(seed, pools, noise, curved):
        net, order, within = case.router._graph.net, case.order, case.within
        assert sorted(order.sequence) == list(range(len(order.position)))
        assert (order.position[order.sequence] == np.arange(len(order.sequence))).all()
        along = order.position[[case.search.sources[0], *net.dst[case.path]]]
        assert (np.diff(along) > 0).all()
        assert (along[0], along[-1]) == (0, len(order.position) - 1)
        source = np.repeat(np.arange(net.core.size), np.diff(net.pptr))
        forward = order.position[source] < order.position[net.pdst]
        assert (within.prate == np.where(forward, net.prate, 0.0)).all()
        assert (within.pback == np.where(forward, 0.0, net.pback)).all()
        assert (within.pe1 - within.pe0 == np.where(forward, net.pe1 - net.pe0, 0)).all()


@MARKETS
def test_best_rates_in_an_order_are_final(seed: int, pools: int, noise: float, curved: float) -> None:
    """One pass finds rates that no pair betters, and the path the order was made from is no better than the best."""
    for case in arranged(seed, pools, noise, curved):
        within, order, search = case.within, case.order, case.search
        assert is_closed(within, int(search.sources[0]), False, order.ahead)
        assert is_closed(within, search.sink, True, order.behind)
        assert case.top >= np.prod(case.router._graph.net.rate[case.path]) * (1.0 - 1e-12)


@MARKETS
def test_an_order_has_the_tokens_of_several_paths_as_they_come_there(
    seed: int, pools: int, noise: float, curved: float
) -> None:
    """On every path the tokens that no earlier path has had come one after the other."""
    for case in arranged(seed, pools, noise, curved):
        kernels, net = KernelSearch(case.router._graph, case.router._trades, case.router._costs), case.router._graph.net
        work = case.router._wide.work
        _, ways, _ = kernels.exchange_wide(work, case.search, case.path.tolist(), Limits(paths=16))
        arrange(net, case.within, case.order, case.search, *ways, len(ways.lengths))
        known: set[int] = set()
        for edges, length in zip(ways.edges, ways.lengths, strict=True):
            tokens = [int(case.search.sources[0]), *net.dst[edges[:length]].tolist()]
            places = [case.order.position[token] for token in tokens if token not in known]
            assert places == sorted(places)
            known.update(tokens)


@MARKETS
def test_flows_follow_the_order_and_stay_below_the_bound(seed: int, pools: int, noise: float, curved: float) -> None:
    """Trades sell a token for a later one, with no more pools, and pools on a path, than the limits allow."""
    for case in arranged(seed, pools, noise, curved):
        kernels = KernelSearch(case.router._graph, case.router._trades, case.router._costs)
        for limits in (Limits(), Limits(pools=1000, paths=1000, hops=16), Limits(pools=3, paths=2), Limits(hops=3)):
            found = kernels.find_in_order(case.search, Ways.single(case.path, case.search), limits)
            position = case.order.position
            assert (position[case.router._graph.net.src[found.flow.edges]]
                    < position[case.router._graph.net.dst[found.flow.edges]]).all()  # fmt: skip
            assert len(found.flow.trades) <= limits.pools
            assert longest(found.flow.trades) <= limits.hops
            assert found.paid <= found.upper * (1.0 + 1e-9)
            assert found.split.paths == []
