"""A market with mispricing, in layers of tokens between which no cycle is left.

Where cycles gain, the dual trades along all of them, and what it leaves for the question is hard to tell from that.
If every token may be sold only for tokens of later layers, there are no cycles: all that holds in a market without
mispricing does so again, and its search is as fast. With as many layers as there may be pools on a path no way is too
long either: without that limit flows of small amounts went along 15 pools and more, and nothing was left of them. How
good the best route is depends on the layers. Here the tokens of good paths come as they do on these paths, every
other token where it would lie on the best way that leaves them and comes back to them further on, from there the
tokens next to those, and so on.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.routing.candidates import Search
from millrace.routing.columns import generate
from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import edge_out
from millrace.routing.moves import Moves
from millrace.routing.net import Floats, Ints, IntTable, Net
from millrace.routing.potential import source_rate
from millrace.routing.scratch import sized
from millrace.routing.shares import Room
from millrace.routing.solve import extract, upper_bound
from millrace.routing.work import LEVELS, NEARLY, Work, compact

UNPLACED = -1
ROUNDS = 6  # how many tokens away from the paths a token may be that is given a place with a reason


class Order(NamedTuple):
    """The layer of each token, and what the net's pairs are between them. By token, layer, or pair."""

    place: Ints = sized("tokens")  # (token): its layer, or `UNPLACED`
    gain: Floats = sized("tokens")  # (token): what comes there of the input
    worth: Floats = sized("tokens")  # (token): what a unit becomes at the sink
    bought: Floats = sized(LEVELS)  # (layer): scratch, zero between uses
    sold: Floats = sized(LEVELS)  # (layer): the same
    starts: Ints = sized(LEVELS + 1)  # (layer): scratch
    best: Ints = sized("tokens")  # (token): scratch
    sequence: Ints = sized("tokens")  # tokens by layer
    ahead: Floats = sized("tokens")  # (token): best spot rate from the source in this order
    behind: Floats = sized("tokens")  # (token): best spot rate to the sink in this order
    prate: Floats = sized("pairs")  # (pair): as in `Net`, 0 where the order forbids it
    pback: Floats = sized("pairs")
    pe1: Ints = sized("pairs")  # (pair): as in `Net`, no edges where the order forbids them


def ordered(net: Net, order: Order) -> Net:
    """The net with only what an order allows: it changes with it."""
    return net._replace(prate=order.prate, pback=order.pback, pe1=order.pe1)


@kernel
def arrange(
    net: Net, within: Net, o: Order, q: Search, paths: IntTable, lengths: Ints, flows: Floats, count: int, layers: int
) -> float:
    """Put the tokens into layers around paths from the source to the sink; the best spot rate over these.

    No way from layer to layer has more than `layers` pools. Where two paths disagree the earlier one counts. `within`
    is the net in the order.
    """
    _place_paths(net, o, q, paths, lengths, flows, count, layers)
    for _ in range(ROUNDS):
        if _place_neighbours(net, o, q, layers) == 0:
            break
    _sort(net, o, layers)
    _allow(net, o)
    _rates_from(within, o, q.sources[0])
    _rates_to(within, o, q.sink)
    return float(source_rate(within, q.sources[0], o.behind))


@inlined
def _place_paths(
    net: Net, o: Order, q: Search, paths: IntTable, lengths: Ints, flows: Floats, count: int, layers: int
) -> None:
    """Give the tokens of the paths layers, as far apart as there is room for."""
    source, sink, whole = q.sources[0], q.sink, q.amounts[0]
    o.place[:] = UNPLACED
    o.place[source], o.place[sink] = 0, layers
    o.gain[source], o.worth[sink] = whole, 1.0
    for p in range(count):
        paid, amount, at, following = flows[p], flows[p], 0, 0
        for h in range(lengths[p]):
            paid = edge_out(net, paths[p, h], paid)
        for h in range(lengths[p] - 1):
            amount = edge_out(net, paths[p, h], amount)
            t = net.dst[paths[p, h]]
            if o.place[t] == UNPLACED:
                if following <= h:
                    following = h
                    while o.place[net.dst[paths[p, following]]] == UNPLACED:
                        following += 1
                rest = o.place[net.dst[paths[p, following]]] - at
                o.place[t] = min(at + max(rest // (following - h + 1), 1), layers - 1)
                o.gain[t], o.worth[t] = amount / flows[p] * whole, paid / amount
            at = o.place[t]
        if p == 0:
            o.worth[source], o.gain[sink] = paid / flows[p], paid / flows[p] * whole


@inlined
def _place_neighbours(net: Net, o: Order, q: Search, layers: int) -> int:
    """Place tokens half-way between the layers that they are best bought in and sold to; returns how many.

    The latter one must be two layers further on. Only tokens with a place count.
    """
    found = 0
    for u in net.corelist:
        if o.place[u] != UNPLACED:
            continue
        first, last = layers, 0
        for k in range(net.pptr[u], net.pptr[u + 1]):
            v = net.pdst[k]
            if o.place[v] != UNPLACED:
                p = o.place[v]
                first, last = min(first, p), max(last, p)
                o.bought[p] = max(o.bought[p], o.gain[v] * net.pback[k] if v != q.sink else 0.0)
                o.sold[p] = max(o.sold[p], o.worth[v] * net.prate[k] if v != q.sources[0] else 0.0)
        best, gain, origin = 0.0, 0.0, 0
        for p in range(first, last + 1):
            if p - 2 >= first and o.bought[p - 2] > gain:
                gain, origin = o.bought[p - 2], p - 2
            if gain * o.sold[p] > best:
                best = gain * o.sold[p]
                o.gain[u], o.worth[u], o.best[u] = gain, o.sold[p], (origin + p) // 2
        for p in range(first, last + 1):
            o.bought[p], o.sold[p] = 0.0, 0.0
        if best > 0.0:
            o.sequence[found] = u
            found += 1
    for i in range(found):
        o.place[o.sequence[i]] = o.best[o.sequence[i]]
    return found


@inlined
def _sort(net: Net, o: Order, layers: int) -> None:
    """Put the tokens into a sequence by layer, those without one in the middle."""
    o.starts[: layers + 2] = 0
    for t in range(net.core.size):
        if o.place[t] == UNPLACED:
            o.place[t] = layers // 2
        o.starts[o.place[t] + 1] += 1
    for p in range(layers):
        o.starts[p + 1] += o.starts[p]
    for t in range(net.core.size):
        o.sequence[o.starts[o.place[t]]] = t
        o.starts[o.place[t]] += 1


@inlined
def _allow(net: Net, o: Order) -> None:
    """Allow the pairs that sell a token for one of a later layer."""
    for u in range(net.core.size):
        for k in range(net.pptr[u], net.pptr[u + 1]):
            before, after = o.place[u] < o.place[net.pdst[k]], o.place[u] > o.place[net.pdst[k]]
            o.prate[k] = net.prate[k] if before else 0.0
            o.pback[k] = net.pback[k] if after else 0.0
            o.pe1[k] = net.pe1[k] if before else net.pe0[k]


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
    net: Net, within: Net, w: Work, m: Moves, q: Search, oq: Search, room: Room, paths: int, hops: int, edges: Ints,
    flows: Floats,
) -> tuple[int, float]:  # fmt: skip
    """The dual's flow in the net `within` an order, in which `oq` is the question: how many edges, and a bound.

    The bound (scaled) is one on the output over all of `net`, in which the question is `q`: the dual's value at the
    same prices.
    """
    generate(within, w, oq)
    bound, _ = upper_bound(net, w, q, 0.0)
    compact(w, 1, NEARLY)
    return extract(within, w, m, oq, room, paths, hops, edges, flows), float(bound * w.unit[0])
