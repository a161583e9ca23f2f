"""How an amount is best divided between given paths, which may share pools.

Paths trade one after the other: each finds the pools as those before it left them. What one more unit of input would
make of a path, also in those behind it, is found by going through all trades backwards (reverse differentiation). Near
its input a path then is taken for one constant product of that slope and curvature; for these the best division is
known in closed form: their slopes are equal. Where paths share no pool and all are constant products that is exact at
once, else it is repeated, with shorter steps where the output would fall.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import edge_gain, edge_slope
from millrace.routing.net import Bools, Floats, FloatTable, Ints, IntTable, Net
from millrace.routing.scratch import sized

FEW = 16  # paths; between more of them nothing is divided this way
SHORTER = 0.4  # times the step, where it was too long
SHORTEST = 4  # steps tried


class Parts(NamedTuple):
    """Paths with the input of each, and scratch; the first index is the path, `(path, hop)` are trades."""

    paths: IntTable = sized("paths", "hops")  # edges of the net
    length: Ints = sized("paths")
    flow: Floats = sized("paths")  # inputs
    taken: FloatTable = sized("paths", "hops")  # (path, hop): input of the trade
    before: FloatTable = sized("paths", "hops")  # (path, hop): what earlier paths have put into the same edge
    slope: Floats = sized("paths")  # what one more unit of input makes of the output of all paths
    depth: Floats = sized("paths")  # of the constant product like the path: its slope falls as 1 / (depth + more)²
    wanted: Floats = sized("paths")
    old: Floats = sized("paths")
    open: Bools = sized("paths")


@kernel
def total_output(net: Net, used: Floats, x: Parts, count: int) -> float:
    """What the first `count` paths pay, with notes on each trade. `used`, by edge of the net, is zero between calls."""
    total = 0.0
    for p in range(count):
        amount = x.flow[p]
        for h in range(x.length[p]):
            e = x.paths[p, h]
            x.taken[p, h], x.before[p, h] = amount, used[e]
            out = edge_gain(net, e, used[e], amount)
            used[e] += amount
            amount = out
        total += amount
    forget(used, x, count)
    return total


@inlined
def forget(used: Floats, x: Parts, count: int) -> None:
    """Set to zero what paths may have used."""
    for p in range(count):
        for h in range(x.length[p]):
            used[x.paths[p, h]] = 0.0


@inlined
def _find_slopes(net: Net, later: Floats, x: Parts, count: int) -> None:
    """Slope and depth of every path at its input. `later`, zero between calls, is by edge of the net.

    It holds what one more unit of input, put into the edge before them, would make of the paths behind.
    """
    for p in range(count - 1, -1, -1):
        worth = 1.0
        for h in range(x.length[p] - 1, -1, -1):
            e = x.paths[p, h]
            slope, _ = edge_slope(net, e, x.before[p, h] + x.taken[p, h])
            first, _ = edge_slope(net, e, x.before[p, h])
            less = worth * (slope - first)
            worth = worth * slope + later[e]
            later[e] += less
        x.slope[p] = max(worth, 0.0)
        rate, bend = 1.0, 0.0
        for h in range(x.length[p]):
            slope, falls = edge_slope(net, x.paths[p, h], x.before[p, h] + x.taken[p, h])
            bend += 0.5 * falls * rate
            rate *= slope
        x.depth[p] = 1.0 / bend
    forget(later, x, count)


@inlined
def _wish(x: Parts, count: int, amount: float) -> None:
    """Divide `amount` between constant products of these slopes and depths: into `wanted`, never below zero."""
    for p in range(count):
        x.open[p] = True
    for _ in range(count):
        depth, strength, settled = amount, 0.0, True
        for p in range(count):
            if x.open[p]:
                depth += x.depth[p] - x.flow[p]
                strength += x.depth[p] * math.sqrt(x.slope[p])
        for p in range(count):
            x.wanted[p] = 0.0
            if x.open[p]:
                x.wanted[p] = x.depth[p] * math.sqrt(x.slope[p]) * (depth / strength) - x.depth[p] + x.flow[p]
                if x.wanted[p] < 0.0:
                    x.wanted[p], x.open[p], settled = 0.0, False, False
        if settled:
            break


@kernel
def divide(net: Net, used: Floats, x: Parts, count: int, amount: float, tolerance: float, limit: int) -> float:
    """Improve the division of `amount` between the first `count` paths; returns what they pay.

    `flow` is where it begins and must add up to `amount`. It ends when a step, of at most `limit`, gains less than the
    part `tolerance` of the output.
    """
    value = total_output(net, used, x, count)
    for _ in range(limit):
        _find_slopes(net, used, x, count)
        _wish(x, count, amount)
        for p in range(count):
            x.old[p] = x.flow[p]
        step, following = 1.0, 0.0
        for _ in range(SHORTEST):
            for p in range(count):
                x.flow[p] = x.old[p] + step * (x.wanted[p] - x.old[p])
            following = total_output(net, used, x, count)
            if following >= value:
                break
            step *= SHORTER
        if not following > value * (1.0 + tolerance):
            if not following >= value:
                for p in range(count):
                    x.flow[p] = x.old[p]
                return value
            return following
        value = following
    return value
