"""Which pairs would trade at the dual prices, where no cycle of the market earns.

There a price `p` is put on every token such that hardly a pair is left to look at. In the working set it is the dual
price, brought into `[level / ahead, behind]`, the range of a token that is used. Outside of it a token is worth what
it fetches in the set at spot rates, over other such tokens, too, but no less than `level / ahead`. A pair a -> b with
`p_b = level / ahead_b <= level / (ahead_a rate)` has `rate p_b <= p_a`: it earns nothing, and neither does one with
`p_a = level / ahead_a`, which is more than the token fetches. So only pairs within the set, and those of tokens that
fetch more than `level / ahead`, can earn. All others need no look, and together the prices give a bound.
"""

from __future__ import annotations

import math

from millrace.routing.candidates import Search, is_source
from millrace.routing.jit import inlined, kernel
from millrace.routing.net import Net
from millrace.routing.work import OUTSIDE, PAIRS, TOKENS, Work

QUEUED, TOLD = 1, 2  # marks of tokens outside the set that earn: whether their neighbours know what they fetch
GROWTH = 1.0 + 1e-12  # what a token fetches grows by at least this


@kernel
def list_profitable(net: Net, w: Work, q: Search, level: float) -> None:
    """Price the tokens, and list every pair that would trade at these prices.

    Tokens outside of the set that cannot earn have price 0.
    """
    _forget_outside(w)
    _price_set(w, q, level)
    w.n[PAIRS] = 0
    for local in range(w.n[TOKENS]):
        _look_around(net, w, q, w.t_token[local], level)
    _spread(net, w, q, level)
    _settle_outside(net, w, q, level)
    for i in range(w.n[OUTSIDE]):
        _list_pairs_of(net, w, w.t_outside[i])
    _list_pairs_of_leaves(net, w, q)


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
def _list_pair(w: Work, k: int, token: int) -> None:
    w.l_pair[w.n[PAIRS]] = k
    w.l_from[w.n[PAIRS]] = token
    w.n[PAIRS] += 1


@inlined
def _offer(w: Work, q: Search, token: int, fetch: float, level: float) -> bool:
    """Let a token outside of the set fetch that much, if it is more than before, and enough to earn by it."""
    if fetch * q.ahead[token] <= level or fetch <= w.n_price[token] * GROWTH:
        return False
    if w.n_mark[token] == 0:
        w.t_outside[w.n[OUTSIDE]] = token
        w.n[OUTSIDE] += 1
    w.n_price[token] = fetch
    w.n_mark[token] = QUEUED
    return True


@inlined
def _look_around(net: Net, w: Work, q: Search, token: int, level: float) -> None:
    """List the profitable sales of a token of the set to others of it; note what tokens outside fetch for it."""
    price, paid = w.n_price[token], w.n_paid[token]
    end = net.pptr[token + 1] if token == q.sink or is_source(w, q, token) else net.pcore[token]
    for k in range(net.pptr[token], end):
        other = net.pdst[k]
        if w.n_sell[other] < 0:
            _offer(w, q, other, net.pback[k] * paid, level)
        elif 0.0 < price < net.prate[k] * w.n_paid[other]:
            _list_pair(w, k, token)


@inlined
def _spread(net: Net, w: Work, q: Search, level: float) -> None:
    """Let tokens that sell to tokens outside of the set fetch what those do."""
    changed = True
    while changed:
        changed = False
        for i in range(w.n[OUTSIDE]):
            t = w.t_outside[i]
            if w.n_mark[t] != QUEUED:
                continue
            w.n_mark[t] = TOLD
            for k in range(net.pptr[t], net.pcore[t]):
                if w.n_sell[net.pdst[k]] < 0 and _offer(w, q, net.pdst[k], net.pback[k] * w.n_price[t], level):
                    changed = True


@inlined
def _settle_outside(net: Net, w: Work, q: Search, level: float) -> None:
    """Price tokens outside of the set between what they fetch and what they cost there: then neither side earns."""
    for i in range(w.n[OUTSIDE]):
        t = w.t_outside[i]
        w.n_mark[t] = 0
        cost = w.n_price[t]
        for k in range(net.pptr[t], net.pptr[t + 1]):
            other = net.pdst[k]
            if w.n_sell[other] >= 0 and 0.0 < w.n_price[other] < cost * net.pback[k]:
                cost = w.n_price[other] / net.pback[k]
        price = math.sqrt(w.n_price[t] * cost)
        w.n_paid[t] = max(min(price, q.behind[t]), level / q.ahead[t])
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
