"""The first working set and its prices.

The pairs that trade at the guessed prices of the two ends, and the best spot routes on from there.
"""

from __future__ import annotations

import math

from millrace.routing.candidates import Search, is_source, largest_from
from millrace.routing.compiled import inlined
from millrace.routing.guess import sink_impact, source_impact
from millrace.routing.net import Floats, Net
from millrace.routing.potential import source_rate
from millrace.routing.work import EDGES, NEARLY, TOKENS, Work, add_edge, add_hold, add_token, reset

END_PAIRS = 64  # token pairs of the first working set that trade at the guessed prices of the ends, at each end
FIRST_EDGES = 512
LEAVES, ARRIVES = 1, 2  # marks of tokens that have a way to the sink, or from the source
CYCLE_MARGINAL = 0.97  # guess of marginal rate / best spot rate of a cycle


@inlined
def first_set(net: Net, w: Work, q: Search) -> None:
    """Fill the empty working set with pairs that trade, and guess the prices."""
    total, wanted, first = 0.0, 0.0, 1.0
    for i in range(q.amounts.size):
        total += q.amounts[i]
    reset(w, total)
    add_token(w, q.sink, 1.0)
    for i in range(q.sources.size):
        token, remains = q.sources[i], CYCLE_MARGINAL
        rate = max(source_rate(net, token, q.behind), 1e-300)
        if not q.cycle:
            remains = source_impact(net, token, q.amounts[i], q.behind, rate, w.c_score, w.c_level)
        first = min(first, remains)
        wanted += q.amounts[i] * remains * rate
        local = add_token(w, token, math.sqrt(remains * rate))
        w.t_amount[local] = q.amounts[i] / total
    last = 1.0 if q.cycle else sink_impact(net, q.sink, wanted, q.ahead, q.top, w.c_score, w.c_level)
    for local in range(1, w.n[TOKENS]):
        w.t_s[local] *= math.sqrt(last)
    if q.cycle:
        w.n_buy[q.sink] = 0
        w.t_s[1] = max(w.t_s[1], 1.0)
        add_hold(w)
    chosen = _end_pairs(net, w, q, last)
    _add_pair_tokens(net, w, q, chosen, first * last * q.top, last)
    _expand_pairs(net, w, chosen)


@inlined
def _end_pairs(net: Net, w: Work, q: Search, last: float) -> int:
    """Choose the pairs that trade at the guessed prices of the ends, with the best spot routes on from there.

    `last` is the part of the sink's rate that remains. Returns how many.
    """
    sink, count = q.sink, 0
    for i in range(q.sources.size):
        source, before = q.sources[i], count
        price = w.t_s[1 + i] * w.t_s[1 + i] / last
        for k in range(net.pptr[source], net.pptr[source + 1]):
            w.c_edge[count], w.c_token[count] = k, source
            w.c_score[count] = net.prate[k] * q.behind[net.pdst[k]]
            if w.c_score[count] > price:
                count += 1
        count = before + largest_from(w, before, count - before, END_PAIRS)
        w.n_mark[source] = LEAVES | ARRIVES
    sold, price = count, 1.0 if q.cycle else last * q.top
    for k in range(net.pptr[sink], net.pptr[sink + 1]):
        w.c_edge[count], w.c_token[count] = net.popp[k], net.pdst[k]
        w.c_score[count] = net.pback[k] * q.ahead[net.pdst[k]]
        if w.c_score[count] > price and not is_source(w, q, net.pdst[k]):
            count += 1
    count = sold + largest_from(w, sold, count - sold, END_PAIRS)
    w.n_mark[sink] = LEAVES | ARRIVES
    for i in range(sold, count):
        w.n_mark[w.c_token[i]] |= LEAVES
    for i in range(sold):
        w.n_mark[net.pdst[w.c_edge[i]]] |= ARRIVES
    ends = count
    count = _add_ways(net, w, q, 0, sold, count, True)
    count = _add_ways(net, w, q, sold, ends, count, False)
    w.n_mark[sink] = 0  # also where no pair of theirs was chosen
    for source in q.sources:
        w.n_mark[source] = 0
    for i in range(count):
        w.n_mark[w.c_token[i]] = 0
        w.n_mark[net.pdst[w.c_edge[i]]] = 0
    return count


@inlined
def _best_pair(net: Net, token: int, rates: Floats, worth: Floats) -> int:
    """The pair of `token` with the best product of its rate and what its other token is worth."""
    best, choice = 0.0, -1
    for k in range(net.pptr[token], net.pptr[token + 1]):
        if rates[k] * worth[net.pdst[k]] > best:
            best, choice = rates[k] * worth[net.pdst[k]], k
    return choice


@inlined
def _add_ways(net: Net, w: Work, q: Search, start: int, end: int, count: int, on: bool) -> int:
    """Choose the best spot routes `on` from what the pairs `start : end` buy to a token that leaves for the sink.

    Or else from what they sell, backwards to a token that arrives from the source.
    """
    reached, passed = (LEAVES, ARRIVES) if on else (ARRIVES, LEAVES)
    for i in range(start, end):
        token = net.pdst[w.c_edge[i]] if on else w.c_token[i]
        while not w.n_mark[token] & reached:
            w.n_mark[token] |= reached
            choice = _best_pair(net, token, net.prate, q.behind) if on else _best_pair(net, token, net.pback, q.ahead)
            other = net.pdst[choice]
            w.c_edge[count], w.c_token[count] = (choice, token) if on else (net.popp[choice], other)
            count += 1
            token = other
            w.n_mark[token] |= passed
    return count


@inlined
def _expand_pairs(net: Net, w: Work, chosen: int) -> None:
    """Add the best edge of each chosen pair, and others that trade or nearly do at the guessed prices."""
    for i in range(chosen):
        k = w.c_edge[i]
        a, b = w.n_sell[w.c_token[i]], w.n_buy[net.pdst[k]]
        if a < 0 or b < 0:
            continue
        for e in range(net.pe0[k], net.pe1[k]):
            near = e == net.pe0[k] or net.cb[e] * w.t_s[b] > NEARLY * net.ca[e] * w.t_s[a]
            if not near or w.n[EDGES] >= FIRST_EDGES or not add_edge(net, w, e):
                break


@inlined
def _add_pair_tokens(net: Net, w: Work, q: Search, chosen: int, level: float, last: float) -> None:
    """Add the tokens of the chosen pairs, those with many pairs first (it keeps the factors sparse).

    Their prices: what they fetch once the sink's price has moved, within what tokens on a route can be worth.
    """
    count, most = 0, 0
    for i in range(chosen):
        for t in (w.c_token[i], net.pdst[w.c_edge[i]]):
            if w.n_mark[t] == 0:
                w.t_outside[count] = t
                count += 1
            w.n_mark[t] += 1
            most = max(most, w.n_mark[t])
    for pairs in range(most, 0, -1):
        for i in range(count):
            if w.n_mark[w.t_outside[i]] == pairs:
                _add_pair_token(w, q, w.t_outside[i], level, last)
    for i in range(count):
        w.n_mark[w.t_outside[i]] = 0


@inlined
def _add_pair_token(w: Work, q: Search, token: int, level: float, last: float) -> None:
    if w.n_sell[token] < 0:
        low = level / q.ahead[token] if q.ahead[token] > 0.0 else q.behind[token]
        add_token(w, token, math.sqrt(min(max(last * q.behind[token], low), q.behind[token])))
