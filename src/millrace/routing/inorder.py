"""A market with mispricing, brought into an order of its tokens in which no cycle is left.

Where cycles gain, the dual trades along all of them, and what it leaves for the question is hard to tell from that. If
every token may be sold only for tokens further on in some order, there are no cycles: all that holds in a market
without mispricing does so again, and its search is as fast. How good the best route in an order is depends on the
order. Here the tokens of a good single path come as they do on that path, every other token where it would lie on
the best way that leaves the path and comes back to it further on, from there the tokens next to those, and so on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millrace.routing.candidates import Search
from millrace.routing.columns import marginal
from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import edge_out
from millrace.routing.find import LENGTH, PAID, SPLIT, left_by, paid_by
from millrace.routing.moves import Moves
from millrace.routing.net import Floats, Ints, Net
from millrace.routing.pathsearch import PathWork, find_single
from millrace.routing.potential import source_rate
from millrace.routing.shares import Room
from millrace.routing.solve import LEVEL, UPPER, UPPER_ONCE, UPPER_PATH, extract, solve, upper_bound
from millrace.routing.work import MAX_HOPS, Work

PLACES = 2 * MAX_HOPS + 1  # one for each token of a path, one between each two
UNPLACED = -1
ROUNDS = 6  # how many tokens away from the path a token may be that is given a place with a reason


class Order(NamedTuple):
    """An order of tokens, and what the net's pairs are in it. By token, place, or pair."""

    place: Ints  # (token): a multiple for many tokens; or `UNPLACED`
    gain: Floats  # (token): what comes there of the input
    worth: Floats  # (token): what a unit becomes at the sink
    bought: Floats  # (place): scratch
    sold: Floats  # (place): scratch
    starts: Ints  # (place): scratch
    position: Ints  # (token)
    sequence: Ints  # tokens by position
    ahead: Floats  # (token): best spot rate from the source in this order
    behind: Floats  # (token): best spot rate to the sink in this order
    prate: Floats  # (pair): as in `Net`, 0 where the order forbids it
    pback: Floats
    pe1: Ints  # (pair): as in `Net`, no edges where the order forbids them


def make_order(net: Net) -> Order:
    """An order of the tokens of a net, not yet made."""
    tokens, pairs = net.core.size, net.pdst.size

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int32)

    return Order(
        ints(tokens), np.zeros(tokens), np.zeros(tokens), np.zeros(PLACES), np.zeros(PLACES), ints(PLACES + 1),
        ints(tokens), ints(tokens), np.zeros(tokens), np.zeros(tokens), np.zeros(pairs), np.zeros(pairs), ints(pairs),
    )  # fmt: skip


def ordered(net: Net, order: Order) -> Net:
    """The net with only what an order allows: it changes with it."""
    return net._replace(prate=order.prate, pback=order.pback, pe1=order.pe1)


@kernel
def arrange(net: Net, within: Net, o: Order, q: Search, path: Ints, length: int) -> float:
    """Order the tokens around a path from the source to the sink; the best spot rate in that order.

    `within` is the net in the order.
    """
    _place_path(net, o, q, path, length)
    for _ in range(ROUNDS):
        if _place_neighbours(net, o, q, 2 * length + 1) == 0:
            break
    _sort(net, o, q, 2 * length + 1)
    _allow(net, o)
    _rates_from(within, o, q.sources[0])
    _rates_to(within, o, q.sink)
    return float(source_rate(within, q.sources[0], o.behind))


@inlined
def _place_path(net: Net, o: Order, q: Search, path: Ints, length: int) -> None:
    """Give the tokens of the path every other place."""
    o.place[:] = UNPLACED
    token, amount = q.sources[0], q.amounts[0]
    for h in range(length):
        o.place[token], o.gain[token] = 2 * h, amount
        amount = edge_out(net, path[h], amount)
        token = net.dst[path[h]]
    o.place[token], o.gain[token] = 2 * length, amount
    for h in range(length):
        o.worth[net.src[path[h]]] = amount / o.gain[net.src[path[h]]]
    o.worth[token] = 1.0


@inlined
def _place_neighbours(net: Net, o: Order, q: Search, places: int) -> int:
    """Place tokens half-way between the tokens that they are best bought with and sold for; returns how many.

    The latter one must have a later place. Only tokens with a place count.
    """
    found = 0
    for u in net.corelist:
        if o.place[u] != UNPLACED:
            continue
        o.bought[:places] = 0.0
        o.sold[:places] = 0.0
        for k in range(net.pptr[u], net.pptr[u + 1]):
            v = net.pdst[k]
            if o.place[v] != UNPLACED:
                p = o.place[v]
                o.bought[p] = max(o.bought[p], o.gain[v] * net.pback[k] if v != q.sink else 0.0)
                o.sold[p] = max(o.sold[p], o.worth[v] * net.prate[k] if v != q.sources[0] else 0.0)
        best, gain, origin = 0.0, 0.0, 0
        for p in range(places):
            if gain * o.sold[p] > best:
                best = gain * o.sold[p]
                o.gain[u], o.worth[u], o.position[u] = gain, o.sold[p], (origin + p) // 2
            if o.bought[p] > gain:
                gain, origin = o.bought[p], p
        if best > 0.0:
            o.sequence[found] = u
            found += 1
    for i in range(found):
        o.place[o.sequence[i]] = o.position[o.sequence[i]]
    return found


@inlined
def _sort(net: Net, o: Order, q: Search, places: int) -> None:
    """Put the tokens into a sequence by place: the source first, the sink last, those without a place in the middle."""
    o.starts[: places + 1] = 0
    for t in range(net.core.size):
        if o.place[t] == UNPLACED:
            o.place[t] = places // 2
        o.starts[o.place[t] + 1] += 1
    for p in range(places):
        o.starts[p + 1] += o.starts[p]
    source, sink = q.sources[0], q.sink
    o.position[source], o.position[sink] = 0, net.core.size - 1
    o.starts[0] += 1  # the source's, as no token is before it
    for t in range(net.core.size):
        if t != source and t != sink:
            o.position[t] = o.starts[o.place[t]]
            o.starts[o.place[t]] += 1
    for t in range(net.core.size):
        o.sequence[o.position[t]] = t


@inlined
def _allow(net: Net, o: Order) -> None:
    """Allow the pairs that sell a token for one further on."""
    for u in range(net.core.size):
        for k in range(net.pptr[u], net.pptr[u + 1]):
            forward = o.position[u] < o.position[net.pdst[k]]
            o.prate[k] = net.prate[k] if forward else 0.0
            o.pback[k] = 0.0 if forward else net.pback[k]
            o.pe1[k] = net.pe1[k] if forward else net.pe0[k]


@inlined
def _rates_from(within: Net, o: Order, source: int) -> None:
    """The best spot rates from the source to all core tokens: one pass, as nothing leads back."""
    o.ahead[:] = 0.0
    o.ahead[source] = 1.0
    for u in o.sequence:
        for k in range(within.pptr[u], within.pcore[u] if o.ahead[u] > 0.0 else within.pptr[u]):
            v = within.pdst[k]
            o.ahead[v] = max(o.ahead[v], o.ahead[u] * within.prate[k])


@inlined
def _rates_to(within: Net, o: Order, sink: int) -> None:
    """The best spot rates from all core tokens to the sink."""
    o.behind[:] = 0.0
    o.behind[sink] = 1.0
    for i in range(o.sequence.size):
        u = o.sequence[o.sequence.size - 1 - i]
        for k in range(within.pptr[u], within.pcore[u] if o.behind[u] > 0.0 else within.pptr[u]):
            v = within.pdst[k]
            o.behind[v] = max(o.behind[v], o.behind[u] * within.pback[k])


@kernel
def find_in_order(
    net: Net,
    within: Net,
    w: Work,
    m: Moves,
    pw: PathWork,
    q: Search,
    oq: Search,
    room: Room,
    paths: int,
    hops: int,
    nearly: float,
    edges: Ints,
    flows: Floats,
    report: Floats,
) -> int:
    """What `find` finds, without a split, in the net `within` an order; `oq` is the question there.

    The bound is one on the output over all of `net`, in which the question is `q`: the dual's value at the same prices.
    """
    solve(within, w, oq, report)
    in_order = report[UPPER_PATH]
    once, often = upper_bound(net, w, q, 0.0)
    report[UPPER], report[UPPER_ONCE] = often * w.unit[0], once * w.unit[0]
    report[LEVEL] = marginal(net, w, q)
    count = extract(within, w, m, oq, room, paths, edges, flows)
    report[PAID] = paid_by(w) if count > 0 else 0.0
    floor = left_by(w, room, report[PAID]) * nearly
    report[LENGTH] = find_single(within, pw, oq, room, hops, floor) if in_order > floor else 0
    report[SPLIT] = 0
    return count
