"""Questions, and the choice of the best of many candidates for a part in answering one.

`ahead[t]` is the best spot rate from the sources to token t (times a normalisation, so that the best route
has the value `top`), `behind[t]` the best spot rate from t to the sink. In a market without arbitrage an
edge a -> b can carry flow only where `ahead[a] * rate * behind[b] >= marginal rate`: exact pruning.
"""

from __future__ import annotations

from typing import NamedTuple

from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Floats, Ints
from millrace.routing.ranking import nth_largest
from millrace.routing.work import Work


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
