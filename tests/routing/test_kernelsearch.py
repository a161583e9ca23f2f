"""The kernels with their scratch memory: answers within the limits, and none that depends on what was asked before."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from millrace.dex.market import DictMarket
from millrace.routing import net as nets
from millrace.routing.candidates import Search
from millrace.routing.costs import Table
from millrace.routing.kernelsearch import Found, KernelSearch
from millrace.routing.limits import Limits, costs_of
from millrace.routing.spot import SpotGraph
from millrace.routing.venue import CurveCache, Trade, list_edges, sort_out
from synthetic import WRAPPED, make_market

LIMITS = (Limits(), Limits(pools=3, paths=2, hops=2), Limits(pools=10_000, paths=10_000), Limits(pools=1, paths=1))


def opened(
    pools: int, seed: int, noise: float, curved: float = 0.3, *, one_exchange: bool = False
) -> tuple[SpotGraph, KernelSearch, KernelSearch, list[tuple[str, str]]]:
    """A market, two searches over it, and pairs of its tokens."""
    document = make_market(pools, seed, noise=noise, curved=curved, one_exchange=one_exchange)
    clean, _ = sort_out(document.pools, DictMarket(document.pools, WRAPPED))
    index = {token: k for k, token in enumerate(dict.fromkeys(t for pool in clean for t in pool.tokens))}
    edges, trades = list_edges(clean, index, CurveCache())
    graph = nets.build(len(index), edges)
    spot = SpotGraph(index, graph, trades)
    rng = random.Random(seed)
    pairs = [(a, b) for a, b in (rng.sample(sorted(index), 2) for _ in range(20)) if spot.connected(a, b)]
    costs = costs_of(trades, Table())
    return spot, KernelSearch(graph, trades, costs), KernelSearch(graph, trades, costs), pairs


def plain(found: Found) -> Found:
    """The same without arrays, which do not compare."""
    return found._replace(flow=(found.flow.trades, found.flow.edges.tolist(), found.flow.inputs.tolist()))


def leads(path: Sequence[Trade], token_in: str, token_out: str) -> bool:
    """Whether each trade of a path sells what the one before it bought, from one token to the other."""
    tokens = [token_in, *(trade.token_out for trade in path)]
    return [trade.token_in for trade in path] == tokens[:-1] and tokens[-1] == token_out


@pytest.mark.parametrize(("pools", "seed", "noise"), [(15, 1, 0.0), (80, 2, 0.01), (900, 3, 0.0)])
def test_answers_keep_to_the_limits_and_depend_on_nothing_asked_before(pools: int, seed: int, noise: float) -> None:
    """What is found uses as many pools, paths and hops as allowed; used and fresh scratch memory find the same."""
    spot, used, fresh, pairs = opened(pools, seed, noise)
    questions: list[tuple[Search, Limits, str, str]] = []
    for number, (a, b) in enumerate(pairs):
        amount = max(1, int(spot.depth(a) * 10.0 ** (-6 + 0.3 * number)))
        questions += [(spot.search(a, b, amount), limits, a, b) for limits in LIMITS]
    first = [used.find(search, limits, 0.9, split=True) for search, limits, _, _ in questions]
    for (search, limits, a, b), found in reversed(list(zip(questions, first, strict=True))):
        assert plain(fresh.find(search, limits, 0.9, split=True)) == plain(found)
        assert len(found.flow.trades) == len(found.flow.inputs) <= limits.pools
        assert all(flow > 0.0 for flow in found.flow.inputs)
        assert found.paid <= found.upper * (1.0 + 1e-9)
        for path in (*found.split.paths, *([found.single] if found.single else [])):
            assert leads(path, a, b)
            assert len(path) <= min(limits.hops, limits.pools)
        assert len(found.split.paths) <= limits.paths
        assert len({trade.pool.id for path in found.split.paths for trade in path}) <= limits.pools
        assert sum(found.split.parts) <= 1.0 + 1e-9


def test_a_split_is_looked_for_only_where_it_can_do_what_the_flow_cannot() -> None:
    """Beside a flow within its limits that is where pools may pay more for pieces, or only few paths may be."""
    splits: dict[tuple[bool, int], int] = {}
    for simple in (True, False):  # a fee on the output stays in the pool, and what is sold next gets a part of it
        spot, search, _, pairs = opened(900, 3, 0.0, 0.0, one_exchange=simple)
        for a, b in pairs:
            q = spot.search(a, b, max(1, int(spot.depth(a) * 1e-2)))
            for paths in (4, 100):
                limits = Limits(pools=100, paths=paths, toll=1e-11 * q.amounts[0] / spot.scale(b))
                found = search.find(q, limits, 0.999, split=True)
                splits[simple, paths] = splits.get((simple, paths), 0) + bool(found.split.paths)
    assert splits.pop((True, 100)) == 0
    assert all(splits.values())


def test_what_is_asked_in_few_units_leaves_no_mark() -> None:
    """So little that no pair of the ends seems to trade: the next question is answered as if it were the first."""
    spot, used, fresh, pairs = opened(80, 2, 0.0)
    for number, (a, b) in enumerate(pairs):
        used.find(spot.search(a, b, number + 1), LIMITS[0], 0.9, split=True)
        work, *_ = used._memory()
        assert not work.n_mark.any()
        usual = spot.search(a, b, max(1, int(spot.depth(a) * 1e-3)))
        found, first = (kernels.find(usual, LIMITS[0], 0.9, split=True) for kernels in (used, fresh))
        assert plain(found) == plain(first)


def test_a_single_path_below_the_floor_is_none() -> None:
    """A search for paths above what the best one pays finds none, and with a lower floor that one."""
    spot, search, _, pairs = opened(80, 2, 0.0)
    for a, b in pairs:
        q = spot.search(a, b, max(1, int(spot.depth(a) * 0.01)))
        best, _ = search.paths(q, Limits(), 0.0, split=False)
        assert leads(best, a, b)
        assert search.paths(q, Limits(), float(q.amounts[0]) * 1e6, split=False)[0] == []
        assert search.paths(q, Limits(), 0.0, split=False)[0] == best


@pytest.mark.parametrize(("pools", "seed", "noise"), [(15, 1, 0.0), (80, 2, 0.01), (900, 3, 0.0)])
def test_a_single_path_of_the_whole_search_is_the_best_there_is(pools: int, seed: int, noise: float) -> None:
    """The single path that the whole search finds is the best there is; without one none pays nearly as much."""
    spot, search, _, pairs = opened(pools, seed, noise)
    singles = 0
    for number, (a, b) in enumerate(pairs):
        q = spot.search(a, b, max(1, int(spot.depth(a) * 10.0 ** (-6 + 0.3 * number))))
        found = search.find(q, Limits(), 0.9, split=True)
        if not found.single:
            assert search.paths(q, Limits(), found.paid * 0.9, split=False)[0] == []
        if found.single:
            singles += 1
            for floor in (0.0, found.paid * 0.8, found.paid * 0.9):
                assert search.paths(q, Limits(), floor, split=False)[0] == found.single
    assert singles > 0
