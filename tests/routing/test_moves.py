"""What moves are said to gain, against solving the route again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from millrace.dex.market import DictMarket
from millrace.routing import net as nets
from millrace.routing.columns import NEWTON_STEPS, TOLERANCE
from millrace.routing.find import SLOTS
from millrace.routing.moves import MOVES, Moves, best_addition, best_exchange, list_moves, weigh_moves
from millrace.routing.net import Net
from millrace.routing.newton import minimise
from millrace.routing.prune import prune
from millrace.routing.refine import settle_route
from millrace.routing.scratch import make
from millrace.routing.shares import Room
from millrace.routing.solve import solve
from millrace.routing.spot import SpotGraph
from millrace.routing.venue import CurveCache, list_edges, sort_out
from millrace.routing.work import EDGES, Work, make_work
from synthetic import WRAPPED, make_market

EXACT = 1e-7  # relative to the output: what the solver's tolerance and the ridge leave


ONE = 0.01  # share of a transaction that every edge takes


def every_edge(net: Net, share: float = ONE) -> Room:
    """A room in which all edges take the same."""
    return Room(np.full(net.src.size, share), False)


def routes(seed: int, pools: int) -> Iterator[tuple[Net, Work, Moves]]:
    """Pruned routes between tokens of a constant-product market, with their moves listed and weighed."""
    document = make_market(120, seed, one_exchange=True)
    clean, _ = sort_out(document.pools, DictMarket(document.pools, WRAPPED))
    index = {token: k for k, token in enumerate(dict.fromkeys(t for pool in clean for t in pool.tokens))}
    edges, trades = list_edges(clean, index, CurveCache())
    graph = nets.build(len(index), edges)
    spot, work, moves, report = (
        SpotGraph(index, graph, trades),
        make_work(len(index), len(trades)),
        make(Moves),
        np.zeros(SLOTS),
    )
    names = sorted(index, key=spot.depth, reverse=True)[:8]
    for a in names:
        for b in names:
            if a != b and spot.connected(a, b):
                asked = spot.search(a, b, max(1, spot.depth(a) // 20))
                solve(graph.net, work, asked, report)
                if (
                    prune(graph.net, work, 1, every_edge(graph.net, 1.0 / pools), 99)
                    and settle_route(work, every_edge(graph.net), 1)[0] > 1
                ):
                    yield graph.net, work, moves


def weighed(net: Net, work: Work, moves: Moves) -> int:
    """List and weigh the moves of a route; how many there are."""
    count = list_moves(net, work, moves, 1)
    weigh_moves(work, moves, every_edge(net), count)
    return count


def gained(net: Net, work: Work, moves: Moves, comes: list[int], goes: int = -1) -> tuple[float, bool]:
    """The output gained when edges come and one goes, and whether all others but those in a row with it still trade."""
    before = minimise(net, work, TOLERANCE, NEWTON_STEPS)
    row = {goes}
    if goes >= 0:
        work.e_alive[goes] = False
        used = [e for e in range(work.n[EDGES]) if work.e_use[e]]
        for t in (int(work.e_a[goes]), int(work.e_b[goes])):
            around = [e for e in used if t in (work.e_a[e], work.e_b[e])]
            row |= set(around) if len(around) == 2 and t > 1 else set()
    for i in comes:
        edges = moves.edge[i, : moves.size[i]]
        work.e_alive[edges] = True
        work.t_s[work.e_b[edges[:-1]]] = moves.s[i, : len(edges) - 1]
    live = {e for e in range(work.n[EDGES]) if work.e_alive[e]}
    after = minimise(net, work, TOLERANCE, NEWTON_STEPS)
    settle_route(work, every_edge(net), 1)
    return after - before, all(work.e_alive[e] for e in live - row)


@pytest.mark.parametrize(("seed", "pools"), [(1, 3), (2, 5), (3, 9)])
def test_an_addition_gains_what_it_is_said_to(seed: int, pools: int) -> None:
    """Never more than `z² / (1 + c' M c)`, and exactly that where all edges of the route go on trading."""
    exact = 0
    for net, work, moves in routes(seed, pools):
        choice = best_addition(moves, weighed(net, work, moves), 2 * ONE)
        if choice < 0:
            continue
        said = moves.z[choice] ** 2 / (1.0 + moves.norm[choice])
        gain, same = gained(net, work, moves, [choice])
        assert gain <= said + EXACT
        if same:
            assert gain == pytest.approx(said, abs=EXACT, rel=1e-3)
            exact += 1
    assert exact >= 10


def test_an_exchange_gains_what_it_is_said_to() -> None:
    """With one edge that goes and one or two that come, where all the others go on trading."""
    exact = 0
    for net, work, moves in (route for seed, pools in ((1, 4), (2, 5), (4, 6)) for route in routes(seed, pools)):
        said, goes, comes, also = best_exchange(
            net, work, moves, 1, every_edge(net), weighed(net, work, moves), 1e-9, 1
        )
        if comes < 0:
            continue
        gain, same = gained(net, work, moves, [comes] if also < 0 else [comes, also], goes)
        assert gain <= said + EXACT
        if same:
            assert gain == pytest.approx(said, abs=EXACT, rel=1e-3)
            exact += 1
    assert exact >= 3


@pytest.mark.parametrize("seed", [4, 5])
def test_moves_are_listed_by_profit_and_lead_from_the_route_back_to_it(seed: int) -> None:
    """At most a fixed number, largest first, of edges not on the route, up to three in a row over tokens not on it."""
    lengths = set()
    for net, work, moves in routes(seed, 6):
        used = [e for e in range(work.n[EDGES]) if work.e_use[e]]
        route = {0, 1} | {int(work.e_a[e]) for e in used} | {int(work.e_b[e]) for e in used}
        count = list_moves(net, work, moves, 1)
        assert count <= MOVES
        assert list(moves.z[:count]) == sorted(moves.z[:count], reverse=True)
        for i in range(count):
            edges = moves.edge[i, : moves.size[i]].tolist()
            start, end = int(moves.start[i]), int(moves.end[i])
            between = [int(work.e_b[e]) for e in edges[:-1]]
            assert (int(work.e_a[edges[0]]), int(work.e_b[edges[-1]])) == (start, end)
            assert between == [int(work.e_a[e]) for e in edges[1:]]
            assert {start, end} <= route
            assert not {*edges} & {*used}
            assert not {*between} & route
            lengths.add(len(edges))
    assert lengths == {1, 2, 3}
