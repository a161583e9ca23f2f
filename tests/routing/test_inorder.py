"""A market with mispricing in an order of its tokens: what is allowed there, and what is found."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pytest

from millrace.dex.market import DictMarket
from millrace.routing.attempt import longest
from millrace.routing.candidates import Search
from millrace.routing.edge import edge_out
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
        edges, _ = router._wide.best(search, HOPS, router._kernels.room(Limits(), search.sink))
        if edges:
            path, ways = np.array(edges, np.int32), Ways.single(edges, search)
            yield Arranged(router, search, path, order, within, arrange(net, within, order, search, *ways, 1, HOPS))


MARKETS = pytest.mark.parametrize(
    ("seed", "pools", "noise", "curved"), [(1, 30, 0.03, 0.0), (2, 150, 0.01, 0.0), (3, 300, 0.02, 0.3)]
)


@MARKETS
def test_tokens_come_as_on_the_path_and_nothing_leads_back(seed: int, pools: int, noise: float, curved: float) -> None:
    """The source is first, the sink last, and just the pairs that lead to a later layer are left, as they were."""
    for case in arranged(seed, pools, noise, curved):
        net, place, within = case.router._graph.net, case.order.place, case.within
        assert sorted(case.order.sequence) == list(range(len(place)))
        assert (np.diff(place[case.order.sequence]) >= 0).all()
        along = place[[case.search.sources[0], *net.dst[case.path]]]
        assert (np.diff(along) > 0).all()
        assert (along[0], along[-1]) == (place.min(), place.max()) == (0, HOPS)
        source = np.repeat(np.arange(net.core.size), np.diff(net.pptr))
        forward = place[source] < place[net.pdst]
        assert (within.prate == np.where(forward, net.prate, 0.0)).all()
        assert (within.pback == np.where(place[source] > place[net.pdst], net.pback, 0.0)).all()
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
def test_the_first_of_several_paths_stays_whole(seed: int, pools: int, noise: float, curved: float) -> None:
    """All its trades lead to a later layer, whatever the other paths want, and so do half of theirs at least."""
    for case in arranged(seed, pools, noise, curved):
        kernels, net = KernelSearch(case.router._graph, case.router._trades, case.router._costs), case.router._graph.net
        look = case.router._wide
        found, _ = kernels.exchange_wide(look, case.search, case.path.tolist(), Limits(paths=16))
        ways = found.thickest_first()
        arrange(net, case.within, case.order, case.search, *ways, len(ways.lengths), HOPS)
        forward = case.order.place[net.src] < case.order.place[net.dst]
        assert forward[ways.edges[0, : ways.lengths[0]]].all()
        others = [forward[edges[:length]] for edges, length in zip(ways.edges[1:], ways.lengths[1:], strict=True)]
        assert not others or np.concatenate(others).mean() >= 0.5


@MARKETS
def test_flows_follow_the_order_and_stay_below_the_bound(seed: int, pools: int, noise: float, curved: float) -> None:
    """Trades sell a token for one of a later layer, with no more pools, and pools on a path, than the limits allow."""
    for case in arranged(seed, pools, noise, curved):
        net, graph = case.router._graph.net, case.router._graph
        kernels = KernelSearch(graph, case.router._trades, case.router._costs)
        for limits in (Limits(), Limits(pools=1000, paths=1000, hops=16), Limits(pools=3, paths=2), Limits(hops=3)):
            ways = Ways.single(case.path, case.search)
            dual, bound = kernels.flow_in_order(case.search, ways, limits)
            assert kernels._order is not None
            place = kernels._order[0].place
            for flow in (dual, kernels.flow_around(case.search, ways, limits)):
                assert (place[net.src[flow.edges]] < place[net.dst[flow.edges]]).all()
                assert len(flow.trades) <= limits.pools
                assert longest(flow.trades) <= limits.hops
                into = net.dst[flow.edges] == case.search.sink
                paid = sum(map(edge_out, repeat(net), flow.edges[into].tolist(), flow.inputs[into].tolist()))
                assert paid <= bound * (1.0 + 1e-9)
