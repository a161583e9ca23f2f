"""Whether paths that share pools can trade there at once, as `execution.py` makes them do where they can.

They cannot where each of two pools would have to wait for the other one, and must not where they would mix at a token
so that there are more or longer paths than the limits allow. Then each goes by itself, and pays for its pools again.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.routing.compiled import kernel
from millrace.routing.net import Ints, Net
from millrace.routing.parts import Parts
from millrace.routing.scratch import sized


class Meeting(NamedTuple):
    """The limits of a question, and scratch: what is by edge and by token is zero between uses."""

    within: Ints = sized(2)  # [0]: most paths, [1]: most pools on one

    wanted: Ints = sized("edges")  # (edge of the net): paths that trade there
    come: Ints = sized("edges")  # (edge of the net): those that have come to it
    sales: Ints = sized("tokens")  # (token): edges that sell it and have not traded yet
    depth: Ints = sized("tokens")  # (token): most pools on a way to it
    at: Ints = sized("paths")  # (path): trades made
    arrived: Ints = sized("paths")  # paths that have just come to their next trade
    last: Ints = sized("paths")  # (path): 1 if it was in the last trade
    ready: Ints = sized("trades")  # edges to which all of their paths have come


@kernel
def can_meet(net: Net, m: Meeting, x: Parts, count: int) -> bool:
    """Whether paths that sell something can all trade at once where they share pools, within the limits.

    The trades come in the order in which `execution.py` has them.
    """
    distinct, paths, arrived, ready, splits, deepest = 0, 0, 0, 0, 0, 0
    for p in range(count):
        m.at[p], m.last[p] = 0, 0
        if x.flow[p] > 0.0:
            m.arrived[arrived] = p
            arrived += 1
            for h in range(x.length[p]):
                e = x.paths[p, h]
                m.wanted[e] += 1
                if m.wanted[e] == 1:
                    distinct += 1
                    m.sales[net.src[e]] += 1
    paths = arrived
    while True:
        for i in range(arrived):
            p = m.arrived[i]
            if m.at[p] < x.length[p]:
                e = x.paths[p, m.at[p]]
                m.come[e] += 1
                if m.come[e] == m.wanted[e]:
                    m.ready[ready] = e
                    ready += 1
        if ready == 0:
            break
        ready -= 1
        e = m.ready[ready]
        distinct -= 1
        m.sales[net.src[e]] -= 1
        m.depth[net.dst[e]] = max(m.depth[net.dst[e]], m.depth[net.src[e]] + 1)
        deepest = max(deepest, m.depth[net.dst[e]])
        arrived, same, first = 0, True, False
        for p in range(count):
            here = x.flow[p] > 0.0 and m.at[p] < x.length[p]
            here = here and x.paths[p, min(m.at[p], x.paths.shape[1] - 1)] == e
            same = same and here == (m.last[p] == 1)
            m.last[p] = 1 if here else 0
            if here:
                first = first or m.at[p] == 0
                m.arrived[arrived] = p
                arrived += 1
                m.at[p] += 1
        if m.sales[net.src[e]] > 0 and (first or not same):
            splits += 1
    for p in range(count):
        for h in range(x.length[p]):
            e = x.paths[p, h]
            m.wanted[e], m.come[e] = 0, 0
            m.sales[net.src[e]], m.depth[net.src[e]], m.depth[net.dst[e]] = 0, 0, 0
    return distinct == 0 and splits < max(m.within[0], paths) and deepest <= m.within[1]
