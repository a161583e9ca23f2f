"""Which pairs would trade at the dual prices.

Where no cycle of the market earns, a price can be put on every token such that hardly a pair earns. In the working
set it is the dual price, brought into `[level / ahead, behind]`, the range of a token that is used. A token outside of
it is worth what it fetches in the set at spot rates, over other such tokens, too: at these prices no sale of it earns,
and a purchase from the set does only where it costs less than it fetches. Such a token is priced between the two, and
only its pairs, and those within the set, need a look. Together the prices give a bound. One pass over all links finds
what tokens fetch and cost. Where cycles earn, prices are found in the same way, and all pairs get a look.
"""

from __future__ import annotations

import math

from millrace.routing.candidates import Search, is_source
from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Net
from millrace.routing.work import PAIRS, TOKENS, Work

GROWTH = 1.0 + 1e-12  # what a token fetches grows by at least this
FEW_ROUNDS = 4  # where cycles earn, what tokens fetch would grow for ever


@kernel
def list_profitable(net: Net, w: Work, q: Search, level: float) -> None:
    """Price the core tokens and those of the set, and list every pair that would trade at these prices."""
    w.n_fetch[:] = 0.0
    w.n_yield[:] = 0.0
    _price_set(w, q, level)
    outside = _look_at_links(net, w, q)
    _look_at_leaves(net, w, q)
    _spread(net, w, outside, net.core.size if q.closed else FEW_ROUNDS)
    for i in range(_price_outside(net, w, q)):
        _list_pairs_of(net, w, w.t_outside[i])
    _list_pairs_of_leaves(net, w, q)


@inlined
def _price_set(w: Work, q: Search, level: float) -> None:
    """Dual prices for the tokens of the set, within what a token that is used can be worth."""
    for local in range(w.n[TOKENS] - 1, -1, -1):  # the sink last: in a cycle its token is the source's as well
        t = w.t_token[local]
        price = w.t_s[local] * w.t_s[local]
        if q.closed and t != q.sink and not is_source(w, q, t) and q.ahead[t] > 0.0:
            price = max(min(price, q.behind[t]), level / q.ahead[t])
        if w.n_sell[t] == local:
            w.n_price[t] = 0.0 if t == q.no_seller else price
            w.n_over[t] = 0.0 if t == q.no_seller else 1.0 / price
        w.n_paid[t] = 0.0 if t == q.no_buyer else price


@inlined
def _look_at_links(net: Net, w: Work, q: Search) -> int:
    """List what earns within the set, and find what tokens outside fetch and cost there.

    Writes the links of two tokens outside of the set into `c_edge`; returns their number.
    """
    pairs, outside = 0, 0
    for i in range(net.link.size):
        k, a, b = net.link[i], net.link_src[i], net.link_dst[i]
        if w.n_sell[a] >= 0 and w.n_sell[b] >= 0:
            if net.prate[k] * w.n_paid[b] * w.n_over[a] > 1.0:
                w.l_pair[pairs], w.l_from[pairs] = k, a
                pairs += 1
            if net.pback[k] * w.n_paid[a] * w.n_over[b] > 1.0:
                w.l_pair[pairs], w.l_from[pairs] = net.popp[k], b
                pairs += 1
        elif w.n_sell[b] >= 0:
            w.n_fetch[a] = max(w.n_fetch[a], net.prate[k] * _worth(w, q, b))
            w.n_yield[a] = max(w.n_yield[a], net.pback[k] * w.n_over[b])
        elif w.n_sell[a] >= 0:
            w.n_fetch[b] = max(w.n_fetch[b], net.pback[k] * _worth(w, q, a))
            w.n_yield[b] = max(w.n_yield[b], net.prate[k] * w.n_over[a])
        else:
            w.c_edge[outside] = i
            outside += 1
    w.n[PAIRS] = pairs
    return outside


@inlined
def _worth(w: Work, q: Search, token: int) -> float:
    """What a token of the set is worth to those that could sell for it, also where none may: no profit is left then."""
    return float(w.n_price[token] if token == q.no_buyer else w.n_paid[token])


@inlined
def _look_at_leaves(net: Net, w: Work, q: Search) -> None:
    """What the neighbours of sources and sinks fetch and cost there, which have no others and so no links."""
    for source in q.sources:
        if not net.core[source]:
            k = net.pptr[source]
            w.n_yield[net.pdst[k]] = max(w.n_yield[net.pdst[k]], net.prate[k] * w.n_over[source])
    if not net.core[q.sink]:
        k = net.pptr[q.sink]
        w.n_fetch[net.pdst[k]] = max(w.n_fetch[net.pdst[k]], net.pback[k] * w.n_paid[q.sink])


@inlined
def _spread(net: Net, w: Work, outside: int, rounds: int) -> None:
    """Let tokens that sell to others outside of the set fetch what those do. Where no cycle earns it ends by itself."""
    for _ in range(rounds):
        changed = False
        for i in range(outside):
            k, a, b = net.link[w.c_edge[i]], net.link_src[w.c_edge[i]], net.link_dst[w.c_edge[i]]
            there, back = net.prate[k] * w.n_fetch[b], net.pback[k] * w.n_fetch[a]
            if there > w.n_fetch[a] * GROWTH:
                w.n_fetch[a] = there
                changed = True
            elif back > w.n_fetch[b] * GROWTH:
                w.n_fetch[b] = back
                changed = True
        if not changed:
            break


@inlined
def _price_outside(net: Net, w: Work, q: Search) -> int:
    """Price the tokens outside of the set; those whose pairs may earn go into `t_outside`: how many.

    They fetch more than they cost; where cycles earn it may be any of them.
    """
    count = 0
    for t in net.corelist:
        if w.n_sell[t] < 0:
            price = w.n_fetch[t]
            earns = price * w.n_yield[t] > 1.0
            if earns:
                price = math.sqrt(price / w.n_yield[t])
            if earns or not q.closed:
                w.t_outside[count] = t
                count += 1
            w.n_price[t], w.n_paid[t] = price, price
    return count


@inlined
def _list_pairs_of(net: Net, w: Work, token: int) -> None:
    """List the profitable pairs of a token outside of the set: its sales, and its purchases from the set."""
    price, pairs = w.n_price[token], w.n[PAIRS]
    for k in range(net.pptr[token], net.pcore[token]):
        other = net.pdst[k]
        if net.prate[k] * w.n_paid[other] > price:
            w.l_pair[pairs], w.l_from[pairs] = k, token
            pairs += 1
        if w.n_sell[other] >= 0 and net.pback[k] * price * w.n_over[other] > 1.0:
            w.l_pair[pairs], w.l_from[pairs] = net.popp[k], other
            pairs += 1
    w.n[PAIRS] = pairs


@inlined
def _list_pairs_of_leaves(net: Net, w: Work, q: Search) -> None:
    """List the profitable pairs of sources and sinks with one neighbour."""
    for source in q.sources:
        k = net.pptr[source]
        if not net.core[source] and net.prate[k] * w.n_paid[net.pdst[k]] > w.n_price[source]:
            _list_pair(w, k, source)
    k = net.pptr[q.sink]
    only = net.pdst[k]
    if not net.core[q.sink] and net.core[only] and 0.0 < w.n_price[only] < net.pback[k] * w.n_paid[q.sink]:
        _list_pair(w, net.popp[k], only)


@inlined
def _list_pair(w: Work, k: int, token: int) -> None:
    w.l_pair[w.n[PAIRS]] = k
    w.l_from[w.n[PAIRS]] = token
    w.n[PAIRS] += 1
