"""Dividing an amount between paths, against plain search."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from millrace.routing import net as nets
from millrace.routing.edge import edge_gain, edge_slope
from millrace.routing.net import Net
from millrace.routing.parts import Parts, divide, total_output
from millrace.routing.scratch import make
from millrace.routing.venue import CurveCache, list_edges
from synthetic import make_market

HOPS = 4


def market(seed: int, curved: float) -> Net:
    """A net of pools, some of them curved."""
    pools = make_market(60, seed, curved=curved).pools
    index = {token: k for k, token in enumerate(dict.fromkeys(token for pool in pools for token in pool.tokens))}
    return nets.build(len(index), list_edges(pools, index, CurveCache())[0]).net


def room(net: Net, e: int) -> float:
    """An input that moves the price of an edge far: its depth, or where its table ends."""
    return float(net.a[e] if net.curve[e] < 0 else net.kd[net.kptr[net.curve[e] + 1] - 1])


def random_paths(net: Net, rng: random.Random, count: int) -> Parts:
    """Paths between two tokens that share pools, as many as there are up to `count`."""
    into: dict[int, list[int]] = {}
    for e in range(net.src.size):
        into.setdefault(int(net.src[e]), []).append(e)
    source = max(into, key=lambda token: len(into[token]))
    found: dict[int, list[list[int]]] = {}
    for _ in range(400):
        token, path, seen = source, list[int](), {source}
        while len(path) < HOPS:
            e = rng.choice(into[token])
            token = int(net.dst[e])
            if token in seen:
                break
            path.append(e)
            seen.add(token)
            if path not in found.setdefault(token, []):
                found[token].append(list(path))
    chosen = max(found.values(), key=len)
    x = make(Parts, paths=count, hops=HOPS)
    for p, path in enumerate(rng.sample(chosen, min(count, len(chosen)))):
        x.paths[p, : len(path)] = path
        x.length[p] = len(path)
    return x


@pytest.mark.parametrize("curved", [0.0, 0.6])
def test_slopes_are_those_of_the_outputs(curved: float) -> None:
    """A marginal rate is the limit of what a little more buys, and its fall the limit of its own change."""
    net = market(3, curved)
    for e in range(net.src.size):
        for part in (0.0, 0.003, 0.2, 0.7):
            d, step = part * room(net, e), 1e-6 * room(net, e)
            rate, falls = edge_slope(net, e, d)
            assert edge_gain(net, e, d, step) / step == pytest.approx(rate, rel=1e-3)
            following, _ = edge_slope(net, e, d + step)
            assert following == pytest.approx(rate * (1.0 - falls * step), rel=1e-4)
    assert edge_slope(net, 0, 0.0)[0] == pytest.approx(net.rate[0], rel=1e-6)


@pytest.mark.parametrize("curved", [0.0, 0.6])
@pytest.mark.parametrize("seed", range(6))
def test_moving_a_part_from_one_path_to_another_gains_nothing(seed: int, curved: float) -> None:
    """After the division, and never was it worse on the way: also where paths share pools."""
    net, rng = market(seed, curved), random.Random(seed)
    used = np.zeros(net.src.size)
    for count in (1, 2, 5):
        x = random_paths(net, rng, count)
        count = int(np.count_nonzero(x.length))
        amount = 0.3 * min(room(net, int(e)) for p in range(count) for e in x.paths[p, : x.length[p]])
        x.flow[:count] = amount / count
        before = total_output(net, used, x, count)
        value = divide(net, used, x, count, amount, 1e-13, 400)
        assert value >= before
        assert x.flow[:count].sum() == pytest.approx(amount, rel=1e-10)
        assert min(x.flow[:count]) >= 0.0
        assert value == pytest.approx(total_output(net, used, x, count), rel=1e-12)
        assert not used.any()
        flows = x.flow[:count].copy()
        for i, j in itertools.permutations(range(count), 2):
            for part in (1e-3, 0.03, 0.3):
                x.flow[:count] = flows
                moved = flows[j] * part
                x.flow[i] += moved
                x.flow[j] -= moved
                assert total_output(net, used, x, count) <= value * (1.0 + 1e-6)
