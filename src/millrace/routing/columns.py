"""Column generation: which edges of the graph belong into the working set.

What is left out is priced with the dual prices; the sum of its profits bounds what it could add.
"""

from __future__ import annotations

import math

from millrace.routing.candidates import Search, largest_from
from millrace.routing.compiled import inlined, kernel
from millrace.routing.first import first_set
from millrace.routing.net import Net
from millrace.routing.newton import minimise
from millrace.routing.potential import source_rate
from millrace.routing.profitable import list_profitable
from millrace.routing.work import (
    EDGES,
    ITERATIONS,
    NEARLY,
    PAIRS,
    TOKENS,
    Work,
    add_edge,
    add_token,
    compact,
)

ADDED = 48  # edges added per round, or as many as are present if that is more, and there is room for them
PER_TOKEN = 2  # edges that come with a token
ROUNDS = 12
MISSED = 1e-7  # stop when what is left out is worth less than this part of the output
MISSED_OF_CYCLES = 1e-10  # the same where all that is earned may be a millionth of what comes back
GAINED = 3e-4  # stop when the set is full and exchanging edges has gained less than this part of the output
TOLERANCE = 1e-8
NEWTON_STEPS = 60
ROUGH_STEPS = 10
LARGE_SET = 128  # edges; from here on the useless ones are forgotten in every round


@kernel
def marginal(net: Net, w: Work, q: Search) -> float:
    """The lowest ratio of a source's dual price to its best spot rate, times `top`: the pruning level."""
    lowest = 1e300
    for i in range(q.sources.size):
        rate = source_rate(net, q.sources[i], q.behind)
        if rate > 0.0:
            s = w.t_s[w.n_sell[q.sources[i]]]
            lowest = min(lowest, s * s / rate)
    return lowest * q.top


@inlined
def sweep(net: Net, w: Work) -> tuple[int, float]:
    """List edges outside the set that would trade at the prices of tokens; also returns the sum of profits."""
    count, missed = 0, 0.0
    root = 1.0 / math.sqrt(w.unit[0])
    for i in range(w.n[PAIRS]):
        k = w.l_pair[i]
        price, bought = w.n_price[w.l_from[i]], w.n_paid[net.pdst[k]]
        if price <= 0.0 or net.prate[k] * bought <= price * (1.0 + 1e-12):
            continue
        sa, sb = math.sqrt(price), math.sqrt(bought)
        for e in range(net.pe0[k], net.pe1[k]):
            if net.rate[e] * bought <= price:
                break
            z = (net.cb[e] * sb - net.ca[e] * sa) * root
            if (net.curve[e] < 0 and z <= 0.0) or w.m_in[e]:
                continue
            missed += z * z
            if count < w.c_edge.size:
                w.c_edge[count] = e
                w.c_score[count] = z
                count += 1
    return count, missed


@inlined
def add_columns(net: Net, w: Work, q: Search, count: int) -> int:
    """Add the best of the candidates, with their tokens at their present prices; returns how many.

    A token that comes in gets its best way on as well: where nothing sells it, its price would mean nothing.
    """
    edges, tokens = w.n[EDGES], w.n[TOKENS]
    room = min(w.e_edge.size - edges, PER_TOKEN * (w.t_token.size - tokens))  # it is for the best, not for the first
    wanted = max(ADDED, min(edges, room))
    for i in range(largest_from(w, 0, count, wanted)):
        e = w.c_edge[i]
        fits = True
        for t in (net.src[e], net.dst[e]):
            if w.n_sell[t] < 0:
                fits = fits and add_token(w, t, math.sqrt(w.n_price[t])) >= 0
        if fits:
            add_edge(net, w, e)
    while tokens < w.n[TOKENS]:
        t = w.t_token[tokens]
        tokens += 1
        best, choice = 0.0, -1
        for k in range(net.pptr[t], net.pcore[t]):
            if net.prate[k] * w.n_paid[net.pdst[k]] > best:
                best, choice = net.prate[k] * w.n_paid[net.pdst[k]], k
        if choice < 0 or w.m_in[net.pe0[choice]]:
            continue
        b = net.pdst[choice]
        if w.n_sell[b] >= 0 or add_token(w, b, math.sqrt(w.n_price[b])) >= 0:
            add_edge(net, w, net.pe0[choice])
    return int(w.n[EDGES] - edges)


@inlined
def is_full(w: Work) -> bool:
    """Whether the working set has no room for another token or edge."""
    return bool(w.n[EDGES] == w.e_edge.size or w.n[TOKENS] == w.t_token.size)


@kernel
def generate(net: Net, w: Work, q: Search) -> tuple[float, bool]:
    """Solve the dual over the graph; returns its value on the working set.

    True says that the profitable pairs at the prices it leaves are listed already.
    """
    first_set(net, w, q)
    value = 0.0
    for attempt in range(ROUNDS + 1):
        before, limit = w.n[ITERATIONS], NEWTON_STEPS if attempt == ROUNDS else ROUGH_STEPS
        last, value = value, minimise(net, w, TOLERANCE, limit)
        settled = w.n[ITERATIONS] < before + limit  # if not, prices are still on their way
        if settled and is_full(w) and abs(value - last) < GAINED * value:
            break
        list_profitable(net, w, q, marginal(net, w, q))
        count, missed = sweep(net, w)
        little = (MISSED_OF_CYCLES if q.cycle else MISSED) * worth_of_input(w, q)
        if settled and (missed < little or count == 0):
            return value, True
        if attempt == ROUNDS:
            break
        if w.n[EDGES] > LARGE_SET or w.n[TOKENS] > w.t_token.size // 2:
            compact(w, q.sources.size, NEARLY)
        if count > 0 and add_columns(net, w, q, count) == 0:
            break
    return minimise(net, w, TOLERANCE, NEWTON_STEPS), False


@inlined
def worth_of_input(w: Work, q: Search) -> float:
    """What the input is worth at the present prices."""
    total = 0.0
    for i in range(q.sources.size):
        total += float(w.t_amount[1 + i] * w.t_s[1 + i] * w.t_s[1 + i])
    return total
