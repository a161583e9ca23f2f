"""Questions, and which tokens and pairs of the net can have a part in answering one.

`ahead[t]` is the best spot rate from the sources to token t (times a normalisation, so that the best route
has the value `top`), `behind[t]` the best spot rate from t to the sink. In a market without arbitrage an
edge a -> b can carry flow only where `ahead[a] * rate * behind[b] >= marginal rate`: exact pruning.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Floats, Ints, Net
from millrace.routing.ranking import bucket_of, nth_largest
from millrace.routing.work import LISTED, PAIRS, Work


class Search(NamedTuple):
    """One question put to a net. Amounts are scaled; `single` means one source which is not the sink."""

    sources: Ints
    amounts: Floats
    sink: int
    cycle: bool  # the only source is the sink: arbitrage
    no_seller: int  # token that sells nothing (the sink, unless `cycle`), or -1
    no_buyer: int  # token that nobody buys (a single source, unless `cycle`), or -1
    ahead: Floats
    behind: Floats
    top: float
    closed: bool  # no cycle, and no edge at all offers more than `ahead` and `behind` say: no cycle of the market earns


@inlined
def is_source(w: Work, q: Search, token: int) -> bool:
    return bool(1 <= w.n_sell[token] <= q.sources.size)


@kernel
def list_candidates(net: Net, w: Work, q: Search, floor: float) -> None:
    """List the core tokens and the pairs on routes whose best spot rate is above `floor`."""
    w.floor[0] = floor
    tokens, pairs = 0, 0
    for t in net.corelist:
        w.n_price[t] = 0.0
        w.n_paid[t] = 0.0
        if q.ahead[t] * q.behind[t] > floor or is_source(w, q, t) or t == q.sink:
            w.l_token[tokens] = t
            tokens += 1
    w.n[LISTED] = tokens
    for i in range(-q.sources.size, tokens):
        a = q.sources[i + q.sources.size] if i < 0 else w.l_token[i]
        if (i < 0 and net.core[a]) or a == q.no_seller:
            continue
        for k in range(net.pptr[a], net.pcore[a]):
            b = net.pdst[k]
            if b != q.no_buyer and q.ahead[a] * net.prate[k] * q.behind[b] > floor:
                w.l_pair[pairs] = k
                w.l_from[pairs] = a
                pairs += 1
    if not net.core[q.sink]:  # its one pair is nobody's pair with a core token
        k = net.popp[net.pptr[q.sink]]
        w.l_pair[pairs] = k
        w.l_from[pairs] = net.pdst[net.pptr[q.sink]]
        pairs += 1
    w.n[PAIRS] = pairs


@kernel
def about_largest(w: Work, count: int, wanted: int) -> int:
    """Keep the edges of the `wanted` candidates with the best scores, taking what differs by less than 1 % as equal.

    Returns how many are left. No branch depends on how two scores compare, which makes it much the fastest way for
    thousands of them.
    """
    if count <= wanted:
        return count
    most = 0.0
    for i in range(count):
        most = max(most, w.c_score[i])
    w.c_bucket[:] = 0
    for i in range(count):
        w.c_bucket[bucket_of(w.c_score[i], most, w.c_bucket.size)] += 1
    last, room = 0, wanted
    while w.c_bucket[last] <= room:
        room -= w.c_bucket[last]
        last += 1
    kept = 0
    for i in range(count):
        bucket = bucket_of(w.c_score[i], most, w.c_bucket.size)
        w.c_edge[kept] = w.c_edge[i]
        kept += bucket < last or (bucket == last and room > 0)
        room -= bucket == last
    return kept


@kernel
def largest_from(w: Work, start: int, count: int, wanted: int) -> int:
    """Keep the `wanted` with the best scores (in their old order) of the `count` candidates from number `start` on.

    Returns how many are left.
    """
    if count <= wanted or wanted <= 0:
        return min(count, max(wanted, 0))
    for i in range(count):
        w.c_level[i] = w.c_score[start + i]
    threshold = nth_largest(w.c_level, count, wanted)
    ties = wanted
    for i in range(start, start + count):
        ties -= w.c_score[i] > threshold
    kept = start
    for i in range(start, start + count):
        if w.c_score[i] > threshold or (w.c_score[i] == threshold and ties > 0):
            ties -= w.c_score[i] == threshold
            w.c_edge[kept] = w.c_edge[i]
            w.c_token[kept] = w.c_token[i]
            w.c_score[kept] = w.c_score[i]
            kept += 1
    return wanted
