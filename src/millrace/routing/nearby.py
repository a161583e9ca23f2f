"""Which pairs a search for a path looks at, in a large market in which cycles gain.

There most pairs lie between tokens that nearly all paths lead over, the hubs, or at tokens with few neighbours, over
which one gets from hub to hub. Of those ways a path takes the best one: by one, two, three or four pools, for about
the amount there is. They are worked out once for all amounts of about a size, the ways from the ends to the hubs with
each question. Of a market of a thousand pools a tenth of the pairs is left. Five ways in place of the best one found
no better path in any of 240 questions with prices off by 1 and 3 %; without ways of three and four pools one in 20
was lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import edge_out
from millrace.routing.net import Bools, Floats, FloatTable, Ints, IntTable, Net, Words
from millrace.routing.scratch import sized

MARKS = 64  # tokens with marks: bits of a word
FEWEST_HUBS, MOST_HUBS = 6, 12  # in a market of more core tokens than marks, else all of them
MANY = 10  # neighbours: so many make a hub
REACH = 4  # pools on a way from hub to hub, over tokens that are none
NONE = -1
FULL = 1e300  # more than any way brings


class Nearby(NamedTuple):
    """The pairs that are looked at, by token, and scratch."""

    hubs: Ints = sized(MARKS)  # tokens with most neighbours
    hub: Ints = sized("tokens")  # (token): its number among these, or `NONE`
    mark: Words = sized("tokens")  # (token): a bit for each of these, 0 for others
    reached: IntTable = sized(REACH + 1, "tokens")  # (pools, i): tokens reached
    listed: Ints = sized(REACH + 1)  # (pools): how many of them
    kept: Bools = sized("pairs")  # (pair): scratch, False between uses
    tokens: Ints = sized("tokens")  # those with pairs that are looked at
    first_pair: Ints = sized("tokens")  # (token): its pairs are `pairs[first_pair : last_pair]`
    last_pair: Ints = sized("tokens")
    pairs: Ints = sized("pairs")
    sizes: Ints = sized(2)  # [0]: how many `tokens`, [1]: how many `hubs`
    most_there: Floats = sized(MARKS)  # (hub): the rate of the best way there from one token, or to that
    last_there: Ints = sized(MARKS)  # (hub): the pair at its end of that way, or `NONE`
    brought: FloatTable = sized(REACH, "tokens")  # (pools, token): the same for tokens between, zero between uses
    by: IntTable = sized(REACH, "tokens")  # (pools, token): the pair at its end


def choose_hubs(net: Net, n: Nearby) -> None:
    """Let the tokens with most neighbours be the hubs."""
    neighbours = (net.pcore - net.pptr[:-1]) * net.core
    count = net.corelist.size
    if count > MARKS:
        count = min(max(int(np.count_nonzero(neighbours >= MANY)), FEWEST_HUBS), MOST_HUBS)
    chosen = np.argsort(-neighbours, kind="stable")[:count]
    n.sizes[1], n.hubs[:count], n.hub[:] = count, chosen, NONE
    n.hub[chosen], n.mark[chosen] = np.arange(count), np.uint64(1) << np.arange(count, dtype=np.uint64)


@inlined
def _out_of(net: Net, k: int, x: float) -> float:
    """What `x` buys from the best edge of a pair."""
    best = 0.0
    for e in range(net.pe0[k], net.pe1[k]):
        if x * net.rate[e] <= best:
            break
        best = max(best, edge_out(net, e, x))
    return best


@inlined
def _keep_ways(net: Net, n: Nearby, start: int, x: float, backward: bool) -> None:
    """Keep the pairs on the best ways for about `x` from a token to each hub, or `backward`, over no other hub.

    A way of more pools is kept beside one of fewer if it brings more, up to `REACH` pools.
    """
    n.most_there[:] = 0.0
    if n.hub[start] != NONE:
        n.most_there[n.hub[start]] = FULL
    n.brought[0, start], n.reached[0, 0], n.listed[0] = 1.0, start, 1
    for d in range(REACH):
        n.last_there[:] = NONE
        n.listed[d + 1] = 0
        for i in range(n.listed[d]):
            u = n.reached[d, i]
            for place in range(net.pptr[u], net.pcore[u]):
                t, k = net.pdst[place], net.popp[place] if backward else place
                b, most = n.hub[t], n.brought[d, u] * net.prate[k]
                if b != NONE:
                    n.kept[k] = n.kept[k] or d == 0
                    if most > n.most_there[b]:
                        rate = n.brought[d, u] * _out_of(net, k, x) / x
                        if rate > n.most_there[b]:
                            n.most_there[b], n.last_there[b] = rate, k
                elif d + 1 < REACH and most > n.brought[d + 1, t]:
                    rate = n.brought[d, u] * _out_of(net, k, x) / x
                    if rate > n.brought[d + 1, t]:
                        if n.brought[d + 1, t] == 0.0:
                            n.reached[d + 1, n.listed[d + 1]] = t
                            n.listed[d + 1] += 1
                        n.brought[d + 1, t], n.by[d + 1, t] = rate, k
        for b in range(n.sizes[1]):
            k = n.last_there[b]
            for h in range(d, -1, -1):
                if k != NONE:
                    e = net.pe0[k]
                    n.kept[k] = True
                    k = n.by[h, net.dst[e] if backward else net.src[e]] if h > 0 else NONE
    for d in range(REACH):
        for i in range(n.listed[d]):
            n.brought[d, n.reached[d, i]] = 0.0


@kernel
def ways_between_hubs(net: Net, n: Nearby, x: float, pairs: Ints) -> int:
    """Write the pairs on the best ways for about `x` from hub to hub into `pairs`; how many."""
    for i in range(n.sizes[1]):
        _keep_ways(net, n, n.hubs[i], x, False)
    count = 0
    for k in range(net.pdst.size):
        if n.kept[k]:
            n.kept[k] = False
            pairs[count] = k
            count += 1
    return count


@kernel
def list_ways(net: Net, n: Nearby, q: Search, x: float, between: Ints) -> None:
    """List the pairs that a search looks at: those `between` hubs, and those on the best ways from the ends to hubs.

    Beside them those of the ends, and those between hubs and the neighbours of the ends.
    """
    source, sink = q.sources[0], q.sink
    for k in between:
        n.kept[k] = True
    if n.hub[source] == NONE:
        _keep_ways(net, n, source, x, False)
    if n.hub[sink] == NONE:
        _keep_ways(net, n, sink, x, True)
    _keep_ends(net, n, source, source, False)
    _keep_ends(net, n, sink, source, True)
    pairs, tokens = 0, 0
    for i in range(-1, net.corelist.size):
        u = source if i < 0 else net.corelist[i]
        if (i < 0 and net.core[source]) or (u == sink and u != source):
            continue
        n.first_pair[u] = pairs
        for k in range(net.pptr[u], net.pptr[u + 1]):
            if n.kept[k]:
                n.kept[k] = False
                if net.pdst[k] != source or source == sink:
                    n.pairs[pairs] = k
                    pairs += 1
        n.last_pair[u] = pairs
        if pairs > n.first_pair[u]:
            n.tokens[tokens] = u
            tokens += 1
    for k in range(net.pptr[sink], net.pptr[sink + 1]):
        n.kept[k] = False
    n.sizes[0] = tokens


@inlined
def _keep_ends(net: Net, n: Nearby, end: int, source: int, into: bool) -> None:
    """Keep the pairs of an end that is no hub, and those between its neighbours and hubs."""
    last = net.pptr[end + 1]
    for k in range(net.pptr[end], last):
        t = net.pdst[k]
        if (n.hub[end] < 0 or n.hub[t] >= 0) and (not into or net.core[t] or t == source):
            n.kept[net.popp[k] if into else k] = True
        if n.hub[end] < 0 and n.hub[t] < 0 and net.core[t]:
            for j in range(net.pptr[t], net.pcore[t]):
                if n.hub[net.pdst[j]] >= 0:
                    n.kept[net.popp[j] if into else j] = True
