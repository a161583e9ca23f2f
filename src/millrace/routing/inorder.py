"""A market with mispricing, brought into an order of its tokens in which no cycle is left.

Where cycles gain, the dual trades along all of them, and what it leaves for the question is hard to tell from that. If
every token may be sold only for tokens further on in some order, there are no cycles: all that holds in a market
without mispricing does so again, and its search is as fast. How good the best route in an order is depends on the
order. Here the tokens of good paths come as they do on these paths, every other token where it would lie on
the best way that leaves them and comes back to them further on, from there the tokens next to those, and so on.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.routing.candidates import Search
from millrace.routing.columns import generate
from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import edge_out
from millrace.routing.find import PAID, paid_by
from millrace.routing.moves import Moves
from millrace.routing.net import Floats, Ints, IntTable, Net
from millrace.routing.potential import source_rate
from millrace.routing.scratch import sized
from millrace.routing.shares import Room
from millrace.routing.solve import UPPER, extract, upper_bound
from millrace.routing.work import NEARLY, Work, compact

MOST = 64  # tokens of paths that are put in sequence: five paths of ten pools have 47 at most
PLACES = 2 * MOST - 1  # one for each of them, one between each two
UNPLACED = -1
ROUNDS = 6  # how many tokens away from the paths a token may be that is given a place with a reason


class Order(NamedTuple):
    """An order of tokens, and what the net's pairs are in it. By token, place, or pair."""

    place: Ints = sized("tokens")  # (token): a multiple for many tokens; or `UNPLACED`
    gain: Floats = sized("tokens")  # (token): what comes there of the input
    worth: Floats = sized("tokens")  # (token): what a unit becomes at the sink
    bought: Floats = sized(PLACES)  # (place): scratch, zero between uses
    sold: Floats = sized(PLACES)  # (place): the same
    starts: Ints = sized(PLACES + 1)  # (place): scratch
    position: Ints = sized("tokens")  # (token)
    sequence: Ints = sized("tokens")  # tokens by position
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
    net: Net, within: Net, o: Order, q: Search, paths: IntTable, lengths: Ints, flows: Floats, count: int
) -> float:
    """Order the tokens around paths from the source to the sink; the best spot rate in that order.

    Where two paths disagree the earlier one counts. `within` is the net in the order.
    """
    places = 2 * _place_paths(net, o, q, paths, lengths, flows, count) - 1
    for _ in range(ROUNDS):
        if _place_neighbours(net, o, q) == 0:
            break
    _sort(net, o, q, places)
    _allow(net, o)
    _rates_from(within, o, q.sources[0])
    _rates_to(within, o, q.sink)
    return float(source_rate(within, q.sources[0], o.behind))


@inlined
def _place_paths(net: Net, o: Order, q: Search, paths: IntTable, lengths: Ints, flows: Floats, count: int) -> int:
    """Give the tokens of the paths every other place, in a sequence that all paths follow as far as they can.

    Returns how many they are.
    """
    source, sink, tokens, whole = q.sources[0], q.sink, 2, q.amounts[0]
    o.place[:] = UNPLACED
    o.sequence[0], o.sequence[1] = source, sink
    o.place[source], o.place[sink] = 0, 1
    o.gain[source], o.worth[sink] = whole, 1.0
    for p in range(count):
        paid, at = flows[p], 0
        for h in range(lengths[p]):
            paid = edge_out(net, paths[p, h], paid)
        amount = flows[p]
        for h in range(lengths[p] - 1):
            amount = edge_out(net, paths[p, h], amount)
            t = net.dst[paths[p, h]]
            if o.place[t] != UNPLACED:
                at = max(at, o.place[t])
            elif tokens < MOST:
                at += 1
                for i in range(tokens - at):
                    _move_to(o, o.sequence[tokens - 1 - i], tokens - i)
                _move_to(o, t, at)
                o.gain[t], o.worth[t] = amount / flows[p] * whole, paid / amount
                tokens += 1
        if p == 0:
            o.worth[source], o.gain[sink] = paid / flows[p], paid / flows[p] * whole
    for i in range(tokens):
        o.place[o.sequence[i]] = 2 * i
    return tokens


@inlined
def _move_to(o: Order, token: int, place: int) -> None:
    """Let a token be at this place of the sequence."""
    o.sequence[place], o.place[token] = token, place


@inlined
def _place_neighbours(net: Net, o: Order, q: Search) -> int:
    """Place tokens half-way between the tokens that they are best bought with and sold for; returns how many.

    The latter one must have a later place. Only tokens with a place count.
    """
    found = 0
    for u in net.corelist:
        if o.place[u] != UNPLACED:
            continue
        first, last = PLACES, -1
        for k in range(net.pptr[u], net.pptr[u + 1]):
            v = net.pdst[k]
            if o.place[v] != UNPLACED:
                p = o.place[v]
                first, last = min(first, p), max(last, p)
                o.bought[p] = max(o.bought[p], o.gain[v] * net.pback[k] if v != q.sink else 0.0)
                o.sold[p] = max(o.sold[p], o.worth[v] * net.prate[k] if v != q.sources[0] else 0.0)
        best, gain, origin = 0.0, 0.0, 0
        for p in range(first, last + 1):
            if gain * o.sold[p] > best:
                best = gain * o.sold[p]
                o.gain[u], o.worth[u], o.position[u] = gain, o.sold[p], (origin + p) // 2
            if o.bought[p] > gain:
                gain, origin = o.bought[p], p
            o.bought[p], o.sold[p] = 0.0, 0.0
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
    net: Net, within: Net, w: Work, m: Moves, q: Search, oq: Search, room: Room, paths: int, hops: int, edges: Ints,
    flows: Floats, report: Floats,
) -> int:  # fmt: skip
    """The flow that `find` finds in the net `within` an order; `oq` is the question there. Nothing else is looked for.

    The bound is one on the output over all of `net`, in which the question is `q`: the dual's value at the same prices.
    """
    generate(within, w, oq)
    bound, _ = upper_bound(net, w, q, 0.0)
    report[:] = 0.0
    report[UPPER] = bound * w.unit[0]
    compact(w, 1, NEARLY)
    count = extract(within, w, m, oq, room, paths, hops, edges, flows)
    report[PAID] = paid_by(w) if count > 0 else 0.0
    return count
