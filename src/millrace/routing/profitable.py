"""Which pairs would trade at the dual prices, where no cycle of the market earns.

There a price is put on every token such that hardly a pair is left to look at. In the working set it is the dual price,
brought into `[level / ahead, behind]`, the range of a token that is used. A token outside of it costs no less than
`floor / ahead`, if `price ahead >= floor` for all tokens of the set: from a to b no way is better than `ahead_b /
ahead_a`. From the few tokens of the set that are cheaper (a source whose price a large trade has moved), costs are
followed along the spot rates. A token that fetches less in the set than it costs at least (at spot rates, over other
such tokens, too) is priced at that cost: then none of its pairs with others of its kind, or with tokens of the set,
earns. So only pairs within the set can, and those of tokens that fetch more. Together the prices give a bound.
"""

from __future__ import annotations

import math

from millrace.routing.candidates import Search, is_source
from millrace.routing.jit import inlined, kernel
from millrace.routing.net import Net
from millrace.routing.work import LISTED, OUTSIDE, PAIRS, TOKENS, Work

QUEUED, TOLD = 1, 2  # marks of tokens outside the set that may earn: whether their neighbours know what they fetch
CHEAP = 4  # mark of tokens whose neighbours do not know yet what they cost
GROWTH = 1.0 + 1e-12  # what a token fetches grows by at least this
FEW = 8  # costs are followed from tokens that have no more than this part of all neighbours of the set
HALVINGS = 10
UNKNOWN = 1e300  # cost of a token that nothing in the set sells


@kernel
def list_profitable(net: Net, w: Work, q: Search, level: float) -> None:
    """Price the tokens, and list every pair that would trade at these prices.

    Tokens outside of the set that cannot earn have price 0.
    """
    _forget_outside(w)
    _price_set(w, q, level)
    floor = _choose_floor(net, w, q, level)
    _follow_costs(net, w, q, floor)
    w.n[PAIRS] = 0
    for local in range(w.n[TOKENS]):
        _look_around(net, w, q, w.t_token[local], floor)
    _spread(net, w, q, floor)
    _settle_outside(net, w, q, floor)
    for i in range(w.n[OUTSIDE]):
        _list_pairs_of(net, w, w.t_outside[i])
    _list_pairs_of_leaves(net, w, q)
    for i in range(w.n[LISTED]):
        w.n_cost[w.l_token[i]] = 0.0


@inlined
def _forget_outside(w: Work) -> None:
    for i in range(w.n[OUTSIDE]):
        t = w.t_outside[i]
        if w.n_sell[t] < 0:
            w.n_price[t] = 0.0
            w.n_paid[t] = 0.0
    w.n[OUTSIDE] = 0


@inlined
def _price_set(w: Work, q: Search, level: float) -> None:
    """Dual prices for the tokens of the set, within what a token that is used can be worth."""
    for local in range(w.n[TOKENS]):
        t = w.t_token[local]
        price = w.t_s[local] * w.t_s[local]
        if t != q.sink and not is_source(w, q, t) and q.ahead[t] > 0.0:
            price = max(min(price, q.behind[t]), level / q.ahead[t])
        w.n_price[t] = 0.0 if t == q.no_seller else price
        w.n_paid[t] = 0.0 if t == q.no_buyer else price


@inlined
def _choose_floor(net: Net, w: Work, q: Search, level: float) -> float:
    """The highest floor, of some, below which there are but few neighbours of the set."""
    part, all_pairs = 1.0, 0
    for local in range(w.n[TOKENS]):
        t = w.t_token[local]
        all_pairs += net.pptr[t + 1] - net.pptr[t]
    for _ in range(HALVINGS):
        floor, below = level + part * (q.top - level), 0
        for local in range(w.n[TOKENS]):
            t = w.t_token[local]
            if w.n_price[t] * q.ahead[t] < floor and t != q.sink:
                below += net.pptr[t + 1] - net.pptr[t]
        if below * FEW <= all_pairs:
            return floor
        part *= 0.5
    return level


@inlined
def _follow_costs(net: Net, w: Work, q: Search, floor: float) -> None:
    """Follow the costs below the floor from the tokens of the set that cost less, into `n_cost` (0: no less)."""
    w.n[LISTED] = 0
    for local in range(w.n[TOKENS]):
        t = w.t_token[local]
        if 0.0 < w.n_price[t] * q.ahead[t] < floor:
            _tell_costs(net, w, q, t, w.n_price[t], floor)
    changed = w.n[LISTED] > 0
    while changed:
        changed = False
        for i in range(w.n[LISTED]):
            t = w.l_token[i]
            if w.n_mark[t] == CHEAP:
                w.n_mark[t] = 0
                changed = _tell_costs(net, w, q, t, w.n_cost[t], floor) or changed


@inlined
def _tell_costs(net: Net, w: Work, q: Search, token: int, price: float, floor: float) -> bool:
    """Let the neighbours outside of the set know what they cost, bought at that price; True if any does."""
    changed = False
    for k in range(net.pptr[token], net.pcore[token]):
        other = net.pdst[k]
        if w.n_sell[other] >= 0 or price * q.ahead[other] >= floor * net.prate[k] or q.ahead[other] <= 0.0:
            continue
        cost = price / net.prate[k]
        if w.n_cost[other] == 0.0:
            w.l_token[w.n[LISTED]] = other
            w.n[LISTED] += 1
        elif cost * GROWTH >= w.n_cost[other]:
            continue
        w.n_cost[other] = cost
        w.n_mark[other] = CHEAP
        changed = True
    return changed


@inlined
def _least_cost(w: Work, q: Search, token: int, floor: float) -> float:
    """What a token outside of the set costs at least."""
    return float(w.n_cost[token]) if w.n_cost[token] > 0.0 else floor / q.ahead[token]


@inlined
def _list_pair(w: Work, k: int, token: int) -> None:
    w.l_pair[w.n[PAIRS]] = k
    w.l_from[w.n[PAIRS]] = token
    w.n[PAIRS] += 1


@inlined
def _offer(w: Work, q: Search, token: int, fetch: float, floor: float) -> bool:
    """Let a token outside of the set fetch that much, if it is more than before, and more than it costs at least."""
    enough = fetch * q.ahead[token] > floor or (w.n_cost[token] > 0.0 and fetch > w.n_cost[token])
    if not enough or fetch <= w.n_price[token] * GROWTH:
        return False
    if w.n_mark[token] == 0:
        w.t_outside[w.n[OUTSIDE]] = token
        w.n[OUTSIDE] += 1
    w.n_price[token] = fetch
    w.n_mark[token] = QUEUED
    return True


@inlined
def _look_around(net: Net, w: Work, q: Search, token: int, floor: float) -> None:
    """List the profitable sales of a token of the set to others of it; note what tokens outside fetch for it."""
    price, paid = w.n_price[token], w.n_paid[token]
    end = net.pptr[token + 1] if token == q.sink or is_source(w, q, token) else net.pcore[token]
    for k in range(net.pptr[token], end):
        other = net.pdst[k]
        if w.n_sell[other] < 0:
            _offer(w, q, other, net.pback[k] * paid, floor)
        elif 0.0 < price < net.prate[k] * w.n_paid[other]:
            _list_pair(w, k, token)


@inlined
def _spread(net: Net, w: Work, q: Search, floor: float) -> None:
    """Let tokens that sell to others outside of the set fetch what those do; `n_paid` is what they cost in the set."""
    changed = True
    while changed:
        changed = False
        for i in range(w.n[OUTSIDE]):
            t = w.t_outside[i]
            if w.n_mark[t] != QUEUED:
                continue
            w.n_mark[t] = TOLD
            cost = UNKNOWN
            for k in range(net.pptr[t], net.pcore[t]):
                other = net.pdst[k]
                if w.n_sell[other] < 0:
                    changed = _offer(w, q, other, net.pback[k] * w.n_price[t], floor) or changed
                elif 0.0 < w.n_price[other] < cost * net.pback[k]:
                    cost = w.n_price[other] / net.pback[k]
            w.n_paid[t] = cost


@inlined
def _settle_outside(net: Net, w: Work, q: Search, floor: float) -> None:
    """Price tokens outside of the set between what they fetch and what they cost there: then neither side earns."""
    for source in q.sources:  # the one token of the set that is no core token and sells
        k = net.pptr[source]
        only, cost = net.pdst[k], w.n_price[source] / net.prate[k]
        if not net.core[source] and w.n_mark[only] == TOLD:
            w.n_paid[only] = min(w.n_paid[only], cost)
    for i in range(w.n[OUTSIDE]):
        t = w.t_outside[i]
        w.n_mark[t] = 0
        cost = min(w.n_price[t], w.n_paid[t])
        w.n_paid[t] = max(math.sqrt(w.n_price[t] * cost), _least_cost(w, q, t, floor))
    for i in range(w.n[OUTSIDE]):
        w.n_price[w.t_outside[i]] = w.n_paid[w.t_outside[i]]


@inlined
def _list_pairs_of(net: Net, w: Work, token: int) -> None:
    """List the profitable pairs of a token outside of the set: its sales, and its purchases from the set."""
    price = w.n_price[token]
    for k in range(net.pptr[token], net.pcore[token]):
        other = net.pdst[k]
        if net.prate[k] * w.n_paid[other] > price:
            _list_pair(w, k, token)
        if w.n_sell[other] >= 0 and 0.0 < w.n_price[other] < net.pback[k] * price:
            _list_pair(w, net.popp[k], other)


@inlined
def _list_pairs_of_leaves(net: Net, w: Work, q: Search) -> None:
    """The pairs of sources and sinks with one neighbour, which are not among those of core tokens."""
    for source in q.sources:
        k = net.pptr[source]
        outside = not net.core[source] and w.n_sell[net.pdst[k]] < 0
        if outside and net.prate[k] * w.n_paid[net.pdst[k]] > w.n_price[source]:
            _list_pair(w, k, source)
    k = net.pptr[q.sink]
    only = net.pdst[k]
    missing = not net.core[q.sink] and not is_source(w, q, only)
    if missing and 0.0 < w.n_price[only] < net.pback[k] * w.n_paid[q.sink]:
        _list_pair(w, net.popp[k], only)
