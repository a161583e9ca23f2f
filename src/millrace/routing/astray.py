"""Edges that would lead the search astray: those of dust, and those by which cycles of trades gain.

Without them the market is one in which a price can be put on every token such that no pair earns, and all that is
proved by such prices holds. They are left out of its pairs, but not forgotten: every search puts the dual's prices on
them, so that the bound holds for them, too, and where one of them may earn more than its fee, or pay more for the whole
amount, the question is put to the whole market as well (`mispricing.py`). So a pool that is off concerns those whose
routes lead past it, and nobody else.
"""

from __future__ import annotations

import math

import numpy as np

from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import best_profit, edge_out
from millrace.routing.net import Bools, Floats, Ints, Net
from millrace.routing.shares import Room
from millrace.routing.slices import EDGE, LARGEST, PAIR, PART, SOLD, SPOT, WANTED
from millrace.routing.work import Work

GROWTH = 1.0 + 1e-14  # a label that grows by less does so by rounding; what it leaves of cycles is well below `EVEN`
ROUNDS = 2_000  # of looking for cycles that gain; what gains after that is cut at once, with some of what does not
TABLE_ERROR = 1e-2  # of what a table pays: a pool pays no more than that besides
PIECES = 1.02  # times what a trade earns the same in pieces does at most: their fees are no larger part
FAINT = 1e-100  # of the price of what is not reached: rates are nearer to 1 than that
PASSES = 4  # over all pairs, between two looks for cycles


def astray(net: Net, dust: Bools) -> Bools:
    """Edges without which no cycle gains: those of `dust`, and of each cycle that does the one of least depth."""
    cut, tokens = dust.copy(), net.core.size
    cut_cycles(net, cut, np.zeros(tokens), np.zeros(tokens, np.int32), np.zeros(tokens, np.int32))
    return cut


@kernel
def cut_cycles(net: Net, cut: Bools, best: Floats, by: Ints, mark: Ints) -> None:
    """Mark edges in `cut` until no cycle of the others gains at spot rates (Bellman and Ford; the rest is scratch)."""
    for _ in range(ROUNDS):
        best[:] = 1.0
        by[:] = -1
        cuts = 0
        while cuts == 0:
            changed = False
            for _ in range(PASSES):
                changed = _relax(net, cut, best, by)
                if not changed:
                    break
            if not changed:
                return
            cuts = _cut_found(net, cut, by, mark)
    best[:] = 1.0  # edges that offer no more than these labels say cannot close a cycle that gains
    for _ in range(PASSES):
        _relax(net, cut, best, by)
    for e in range(net.src.size):
        cut[e] = cut[e] or net.rate[e] * best[net.src[e]] > best[net.dst[e]]


@inlined
def _relax(net: Net, cut: Bools, best: Floats, by: Ints) -> bool:
    """Let every token be worth what it is bought for; whether that changed anything."""
    changed = False
    for u in range(net.core.size):
        for k in range(net.pptr[u], net.pptr[u + 1]):
            v = net.pdst[k]
            if best[u] * net.prate[k] > best[v] * GROWTH:
                for e in range(net.pe0[k], net.pe1[k]):
                    if not cut[e]:
                        if best[u] * net.rate[e] > best[v] * GROWTH:
                            best[v], by[v], changed = best[u] * net.rate[e], e, True
                        break
    return changed


@inlined
def _cut_found(net: Net, cut: Bools, by: Ints, mark: Ints) -> int:
    """Cut an edge of every cycle among the edges by which tokens got their labels; how many."""
    cuts = 0
    mark[:] = -1
    for start in range(net.core.size):
        t = start
        while mark[t] < 0 and by[t] >= 0:
            mark[t] = start
            t = net.src[by[t]]
        if mark[t] == start and by[t] >= 0:
            least, first, at = by[t], t, net.src[by[t]]
            while at != first:
                if net.a[by[at]] < net.a[least]:
                    least = by[at]
                at = net.src[by[at]]
            cut[least] = True
            by[net.dst[least]] = -1
            cuts += 1
    return cuts


@inlined
def _earned(net: Net, w: Work, e: int, price: float, bought: float) -> float:
    """The most that a trade on an edge earns at two prices, with the error of a table."""
    if net.rate[e] * bought <= price:
        return 0.0
    profit = best_profit(net, e, math.sqrt(price), math.sqrt(bought), w.point)
    return profit if net.curve[e] < 0 else max(profit + bought * w.point[1] * TABLE_ERROR, 0.0)


@kernel
def profit_astray(net: Net, w: Work, q: Search, unreached: float) -> float:
    """What all edges astray earn at the prices of the tokens, as `solve.py` has put them on the others.

    With it comes what slices of fees add to what others earn.
    """
    total = 0.0
    for e in net.astray:
        u, v = net.src[e], net.dst[e]
        if u != q.no_seller and v != q.no_buyer:
            price, bought = _price(net, w, u, q.sink), _price(net, w, v, q.sink)
            if price < unreached:
                total += _earned(net, w, e, price, bought)
    return float(total * PIECES) + _profit_of_slices(net, w, q, unreached)


@kernel
def _profit_of_slices(net: Net, w: Work, q: Search, unreached: float) -> float:
    """What swaps that sell slices of their fee elsewhere earn more, at most, than they do alone; see `slices.py`."""
    total, first = 0.0, 0
    while first < net.slices.shape[0]:
        last, brought = first, 0.0  # the rows of one pair, and what all of them bring there if slices are worth most
        while last < net.slices.shape[0] and net.seller[last, PAIR] == net.seller[first, PAIR]:
            e = net.seller[last, EDGE]
            if _is_reached(_price(net, w, net.src[e], q.sink), unreached):
                price, bought = _less_for_slices(net, w, q, last, True), _price(net, w, net.dst[e], q.sink)
                if price <= 0.0:
                    return unreached
                if net.rate[e] * bought > price:
                    brought += net.slices[last, PART] * net.ca[e] * (net.cb[e] * math.sqrt(bought / price) - net.ca[e])
            last += 1
        for i in range(first, last):
            e, large = net.seller[i, EDGE], brought > net.slices[i, LARGEST]
            price, bought = _price(net, w, net.src[e], q.sink), _price(net, w, net.dst[e], q.sink)
            if net.src[e] != q.no_seller and net.dst[e] != q.no_buyer and _is_reached(price, unreached):
                more = _earned(net, w, e, _less_for_slices(net, w, q, i, large), bought)
                total += more - _earned(net, w, e, price, bought)
        first = last
    return total


@inlined
def _is_reached(price: float, unreached: float) -> bool:
    """Whether a token is in the part of the market that is asked about.

    One that fetches nothing there has no price; one whose only neighbour is not reached has that of it, times a rate.
    """
    return bool(0.0 < price < unreached * FAINT)


@inlined
def _less_for_slices(net: Net, w: Work, q: Search, i: int, large: bool) -> float:
    """The price of what an edge sells, less what the slices of it could bring; of `large` ones."""
    worth = _price(net, w, net.seller[i, SOLD], q.sink)
    gain = max(worth - net.slices[i, SPOT] * _price(net, w, net.seller[i, WANTED], q.sink), 0.0)
    gain += 2.0 * worth if large else 0.0
    return float(_price(net, w, net.src[net.seller[i, EDGE]], q.sink) - net.slices[i, PART] * gain)


@inlined
def _price(net: Net, w: Work, token: int, sink: int) -> float:
    """The price of a token; one with one neighbour, outside of the working set, is worth what it fetches there."""
    price = 1.0 if token == sink else w.n_price[token]
    if token != sink and not net.core[token] and w.n_sell[token] < 0:
        price = 0.0
        for k in range(net.pptr[token], net.pptr[token + 1]):
            near = 1.0 if net.pdst[k] == sink else w.n_price[net.pdst[k]]
            price = net.prate[k] * near if net.prate[k] > 0.0 else near / max(net.pback[k], 1e-300)
    return float(price)


@kernel
def promising_astray(net: Net, w: Work, q: Search, room: Room, level: float, paid: float, slack: float) -> float:
    """What edges astray could add to a route that pays `paid` (scaled, less fees), at best; 0 if there are none.

    An edge beside the route earns what it does at the dual's prices, and no more than at the best spot rates to it and
    on from it, less its fee. Or it takes the whole amount: then the route's `slack` may come to it, the fees of its
    trades, and what limits keep it below its bound. `level` is the marginal rate of the route.
    """
    more, amount = 0.0, 0.0
    for i in range(q.amounts.size):
        amount += q.amounts[i]
    for e in net.astray:
        u, v = net.src[e], net.dst[e]
        ahead, behind = _label(net, q.ahead, u, False), _label(net, q.behind, v, True)
        if u != q.no_seller and v != q.no_buyer and ahead * behind > 0.0:
            fee = room.fee[e] * room.price if room.price > 0.0 else 0.0
            earned = _earned(net, w, e, _price(net, w, u, q.sink), _price(net, w, v, q.sink))
            beside = min(_earned(net, w, e, level / ahead, behind), earned)
            instead = min(edge_out(net, e, amount * ahead) * behind - paid, earned + slack)
            more = max(more + max(beside - fee, 0.0), instead - fee)
    return more


@inlined
def _label(net: Net, labels: Floats, token: int, backward: bool) -> float:
    """A token's label, that of one with one neighbour by way of that."""
    label = labels[token]
    if label == 0.0 and not net.core[token]:
        for k in range(net.pptr[token], net.pptr[token + 1]):
            label = labels[net.pdst[k]] * (net.prate[k] if backward else net.pback[k])
    return float(label)
