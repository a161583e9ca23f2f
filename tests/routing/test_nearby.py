"""Which pairs a search for a path looks at where cycles gain."""

from __future__ import annotations

import random
from itertools import permutations

import numpy as np
import pytest

from millrace.dex.market import DictMarket
from millrace.routing.nearby import MARKS, _out_of
from millrace.routing.net import Ints, Net
from millrace.routing.router import Router
from millrace.routing.widepath import WideSearch
from synthetic import WRAPPED, make_market


def market(pools: int, seed: int) -> Router:
    """The whole of a market with prices off by 3 %."""
    chosen = make_market(pools, seed, noise=0.03).pools
    return Router(chosen, DictMarket(chosen, WRAPPED)).whole


def looked_at(router: Router, rng: random.Random) -> tuple[WideSearch, Ints, int, int]:
    """A search that looks for a path between two tokens, the pairs it looks at, and the tokens."""
    while True:
        a, b = rng.sample(sorted(router.index), 2)
        if router.connected(a, b):
            search = router.search(a, b, router.depth(a) // 1000)
            near = router._wide.look(search, float(search.amounts[0])).near
            ranges = [(near.first_pair[t], near.last_pair[t]) for t in near.tokens[: near.sizes[0]]]
            pairs = np.concatenate([near.pairs[first:last] for first, last in ranges])
            return router._wide, pairs, int(search.sources[0]), search.sink


def owners(net: Net) -> Ints:
    """The token that each pair sells."""
    return np.repeat(np.arange(net.core.size, dtype=np.int32), np.diff(net.pptr))


@pytest.mark.parametrize("seed", range(3))
def test_of_few_tokens_every_pair_on_a_way_is_looked_at(seed: int) -> None:
    """Between tokens with several neighbours nothing is left out, but what buys the source or sells the sink."""
    router, rng = market(100, seed), random.Random(seed)
    net = router._graph.net
    assert net.corelist.size <= MARKS
    for _ in range(10):
        _, pairs, source, sink = looked_at(router, rng)
        inner = net.core[owners(net)] & net.core[net.pdst] & (net.pdst != source) & (owners(net) != sink)
        assert set(np.nonzero(inner)[0]) <= set(pairs.tolist())


@pytest.mark.parametrize("seed", range(3))
def test_of_many_tokens_the_best_way_from_hub_to_hub_is_looked_at(seed: int) -> None:
    """Over any token that is none, if it brings more than a pool of both; and no more than a third of all pairs are."""
    router, rng = market(600, seed), random.Random(seed)
    net = router._graph.net
    assert net.corelist.size > MARKS
    wide, pairs, source, sink = looked_at(router, rng)
    near = wide.work.near
    assert len(pairs) < net.pdst.size / 3
    ((size, _),) = wide._between.items()
    amount, found = 2.0 ** (2 * size), 0
    for a, b in permutations(near.hubs[: near.sizes[1]].tolist(), 2):
        ways = [
            (_out_of(net, k, amount) * _out_of(net, j, amount), k, j)
            for k in range(net.pptr[a], net.pcore[a])
            for j in range(net.pptr[net.pdst[k]], net.pcore[net.pdst[k]])
            if near.hub[net.pdst[k]] < 0 and net.pdst[j] == b
        ]
        most, k, j = max(ways, default=(0.0, -1, -1))
        direct = [_out_of(net, each, amount) for each in range(net.pptr[a], net.pcore[a]) if net.pdst[each] == b]
        if most > max(direct, default=0.0) * amount and not {source, sink} & {a, b, int(net.pdst[k])}:
            assert {k, j} <= set(pairs.tolist())
            found += 1
    assert found > 5
