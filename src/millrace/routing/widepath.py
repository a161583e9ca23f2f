"""Search for the best single path with many partial paths to each token.

The search in `pathsearch.py` keeps one partial path per token and number of hops. Where prices are off, the one that
brings most of a token may hold a token or a pool that the rest of the best path needs. Here many partial paths over
different sets of tokens travel on. A partial path is dropped when what it holds could not become more than the best
path pays on the hops that are left, be tokens visited twice or not, or when another one brings as much to the same
token in as many hops and holds none of the tokens with most neighbours that this one does not: most paths lead over
few tokens (`nearby.py`), and which of them are left is what counts; with all tokens counted, four times as many
partial paths found less. While no more of them meet at a token than there is room for, the search is complete in a
market of few tokens; the best path without a token twice in a market with mispricing is the longest path of a graph,
for which nothing fast is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.nearby import Nearby, choose_hubs, list_ways, ways_between_hubs
from millrace.routing.net import Floats, FloatTable, Ints, IntTable, Longs, Net, Words
from millrace.routing.potential import ROUNDS as LABEL_HOPS
from millrace.routing.scratch import make, sized
from millrace.routing.shares import NOTHING, WHOLE, Room, best_of_pair
from millrace.routing.work import LEVELS, MAX_HOPS

FEWEST_LABELS, MOST_LABELS = 16, 64  # partial paths kept per token and number of hops
EDGE_LABELS = 32_000  # about so many per hop in the whole market
BUDGET = 400_000  # edges evaluated in one search
BETTER = 1.0 + 1e-9  # times what known paths pay, for a path to be a new one

AMOUNT, FEES, VALUE, TAKEN = range(4)  # columns of labels


class WideWork(NamedTuple):
    """Scratch of the search: labels, and how many there are.

    A label is a partial path to a token by so many hops. There are `slots` of them: label number
    `(hop * tokens + token) * slots + slot`, so that those of a round with few slots are next to each other. Its columns
    are the amount it brings, the fees of the pools on the way (in units of the sink), what the amount is worth at the
    best spot rates, less these fees, and the share of the transaction, in a strict room.
    """

    label: FloatTable = sized("labels", 4)  # (label, column)
    edge: Ints = sized("labels")  # (label): the edge that brought the amount
    before: Ints = sized("labels")  # (label): the label it came from, at that edge's source
    held: Words = sized("labels")  # (label): which of the tokens with a mark the partial path holds
    passed: Words = sized("labels")  # (label): a bit for each token before its last; some share one
    fill: IntTable = sized(LEVELS, "tokens")  # (hop, token): slots in use
    reached: IntTable = sized(LEVELS, "tokens")  # (hop, i): tokens with labels
    listed: Ints = sized(LEVELS)  # (hop): how many of them
    most: Floats = sized("tokens", fill=NOTHING)  # (token): the last value kept, `NOTHING` between uses
    ahead: FloatTable = sized(LEVELS, "tokens")  # (hops left, token): best rate to the sink
    first: IntTable = sized(LEVELS, "tokens")  # (hops left, token): where that way goes first
    second: FloatTable = sized(LEVELS, "tokens")  # (hops left, token): best rate by any other way
    path: Ints = sized(LEVELS)
    best: Floats = sized(1)  # [0]: what the path pays
    work: Longs = sized(1)  # [0]: edges evaluated in one search
    near: Nearby = sized()  # what is looked at
    known: Floats = sized(1)  # [0]: what whoever searches knows the ways on for


def make_wide_work(tokens: int, slots: int, pairs: int = 1) -> WideWork:
    """Scratch for nets of `tokens` tokens, with so many labels for each token."""
    return make(WideWork, tokens=tokens, labels=LEVELS * tokens * slots, pairs=pairs)


@inlined
def _rate_for(net: Net, k: int, wanted: float) -> float:
    """The best rate of pair `k` for trades that pay at least `wanted`: that of one that pays just this.

    For tabulated pools it is the spot rate, which is no less.
    """
    best = 0.0
    for e in range(net.pe0[k], net.pe1[k]):
        if net.rate[e] <= best:
            break
        best = max(best, (net.r[e] - wanted) / net.a[e] if net.curve[e] < 0 else net.rate[e])
    return best


@kernel
def rates_by_hops(net: Net, ww: WideWork, q: Search, x: float, hops: int, least: float) -> None:
    """Fill `ahead[h]`: the best rate over at most `h` edges from each core token to the sink, for at least `least`.

    `first` is the token that the best way goes to first, `second` the best rate over any other one: what is left
    to a path that has just come from `first`. So the bound never gains by going to and fro between two tokens.
    Whatever pays `least` or more goes through each edge in an amount whose rate is no better than what is counted
    here. Rates are 0 where not even the best spot rates make enough of `x`.
    """
    sink, far = q.sink, hops > LABEL_HOPS  # `q.ahead` knows ways of that many hops
    for h in range(hops):
        ww.ahead[h, :] = 0.0
        ww.second[h, :] = 0.0
        ww.first[h, :] = -1
        ww.ahead[h, sink], ww.second[h, sink] = 1.0, 1.0
    ww.second[0, sink] = 0.0
    for h in range(1, hops):
        for i in range(ww.near.sizes[0]):
            u = ww.near.tokens[i]
            best, second, first = 0.0, 0.0, -1
            most = 0.0 if u == sink else 1e300 if far else x * q.ahead[u] * BETTER
            for place in range(ww.near.first_pair[u], ww.near.last_pair[u] if most > 0.0 else ww.near.first_pair[u]):
                k = ww.near.pairs[place]
                v = net.pdst[k]
                worth = ww.second[h - 1, v] if ww.first[h - 1, v] == u else ww.ahead[h - 1, v]
                if net.prate[k] * worth <= second or net.prate[k] * worth * most <= least:
                    continue
                value = _rate_for(net, k, least / worth) * worth
                if value > best:
                    best, second, first = value, best, v
                elif value > second:
                    second = value
            if u != sink:
                ww.ahead[h, u] = best
                ww.second[h, u] = second
                ww.first[h, u] = first


@inlined
def _bit(token: int) -> np.uint64:
    """The bit of a token in `passed`."""
    return np.uint64(np.uint64(1) << np.uint64(token & 63))


@inlined
def _passes(net: Net, ww: WideWork, hop: int, label: int, token: int) -> bool:
    """Whether a partial path of so many pools passes through a token before its last."""
    at = label
    for _ in range(hop):
        if net.src[ww.edge[at]] == token:
            return True
        at = ww.before[at]
    return False


@inlined
def _add(
    ww: WideWork, slots: int, hop: int, token: int, amount: float, fees: float, value: float, taken: float,
    edge: int, before: int, held: np.uint64, passed: np.uint64,
) -> bool:  # fmt: skip
    """Keep a label if it is among the best of its token; True if one had no room.

    It has none if another one is worth as much and holds no token with a mark that this one does not.
    """
    used, begin = ww.fill[hop, token], (hop * ww.most.size + token) * slots
    place, least, dropped = -1, value, used == slots
    for label in range(begin, begin + used):
        if value <= ww.label[label, VALUE]:
            if ww.held[label] & ~held == 0:
                return False
        elif held & ~ww.held[label] == 0:
            place, dropped = label, False
            break
        if used == slots and ww.label[label, VALUE] < least:
            place, least = label, ww.label[label, VALUE]
    if place < 0 and used == slots:
        return True
    if place < 0:
        place = begin + used
        ww.fill[hop, token] = used + 1
        if used == 0:
            ww.reached[hop, ww.listed[hop]] = token
            ww.listed[hop] += 1
    ww.label[place, AMOUNT], ww.label[place, FEES] = amount, fees
    ww.label[place, VALUE], ww.label[place, TAKEN] = value, taken
    ww.edge[place], ww.before[place], ww.held[place], ww.passed[place] = edge, before, held, passed
    return bool(dropped)


@kernel
def wide_round(
    net: Net,
    ww: WideWork,
    used: Floats,
    q: Search,
    x: float,
    hops: int,
    floor: float,
    slots: int,
    budget: int,
    room: Room,
    left: float,
    price: float,
) -> tuple[int, bool]:
    """The path with the most output for `x`, less fees, on top of what the edges have `used`, if it beats `floor`.

    At most `slots` labels are kept to each token and number of hops; if that is one, it must hold more than those of
    fewer hops. Returns the path's length or 0, and whether no label was dropped:
    then no other path pays more. The path is left in `ww.path`, what it pays in `ww.best`. It ends with the best
    so far after `budget` evaluated edges. In a strict room no path takes more than the share `left` of the transaction.
    `rates_by_hops` comes first.
    """
    source, sink, tokens = q.sources[0], q.sink, net.core.size
    for h in range(hops + 1):
        ww.listed[h] = 0
    start = source * slots
    ww.label[start, AMOUNT], ww.label[start, FEES], ww.label[start, TAKEN] = x, 0.0, 0.0
    ww.held[start], ww.passed[start] = ww.near.mark[source], np.uint64(0)
    ww.fill[0, source] = 1
    ww.reached[0, 0] = source
    ww.listed[0] = 1
    best, found, last, last_label, work, complete = floor, 0, -1, 0, 0, True
    for h in range(hops):
        after = hops - 1 - h
        for i in range(ww.listed[h]):
            u = ww.reached[h, i]
            begin = (h * tokens + u) * slots
            for label in range(begin, begin + ww.fill[h, u]):
                have, fees = ww.label[label, AMOUNT], ww.label[label, FEES]
                passed = ww.passed[label]
                for place in range(ww.near.first_pair[u], ww.near.last_pair[u]):
                    k = ww.near.pairs[place]
                    v = net.pdst[k]
                    ends = v == sink
                    worth = ww.ahead[after, v]
                    if worth == 0.0 or have * net.prate[k] * worth - fees <= best:
                        continue
                    if ww.first[after, v] == u:
                        worth = ww.second[after, v]
                        if worth == 0.0 or have * net.prate[k] * worth - fees <= best:
                            continue
                    if slots == 1 and not ends and have * net.prate[k] * q.behind[v] - fees <= ww.most[v]:
                        complete = False
                        continue
                    if not ends and passed & _bit(v) and _passes(net, ww, h, label, v):
                        continue
                    out, edge, fee, looked = best_of_pair(net, used, room, k, have, price / worth)
                    work += looked
                    if edge < 0:
                        continue
                    taken = ww.label[label, TAKEN] + room.share[edge] if room.strict else 0.0
                    if taken > left:
                        continue
                    paid = fees + fee * worth
                    value = out * worth - paid
                    if value <= best:
                        continue
                    if ends:
                        best, found, last, last_label = value, h + 1, edge, label
                        continue
                    value = out * q.behind[v] - paid
                    if slots == 1 and value <= ww.most[v]:
                        complete = False
                    else:
                        ww.most[v] = value
                        held = ww.held[label] | ww.near.mark[v]
                        on = passed | _bit(u)
                        full = _add(ww, slots, h + 1, v, out, paid, value, taken, edge, label, held, on)
                        complete = complete and not full
            if work > budget:
                complete = False
                break
    _read(ww, found, last, last_label)
    for h in range(hops + 1):
        for i in range(ww.listed[h]):
            ww.fill[h, ww.reached[h, i]] = 0
            ww.most[ww.reached[h, i]] = NOTHING
    ww.best[0] = best
    ww.work[0] = work
    return found, complete


@inlined
def _read(ww: WideWork, length: int, last: int, label: int) -> None:
    """Follow the labels from the last edge back to the source."""
    edge = last
    for h in range(length - 1, -1, -1):
        ww.path[h] = edge
        edge, label = ww.edge[label], ww.before[label]


@kernel
def best_wide_path(
    net: Net, ww: WideWork, used: Floats, q: Search, room: Room, hops: int, floor: float, fewest: int, slots: int
) -> int:
    """The path of at most `hops` pools with the most output, less fees, if it beats `floor`; its length or 0.

    In one round with the `fewest` labels, and, if any was dropped,
    one with `slots`, for which what the first has found is the floor. The path is left in `ww.path`, what it pays in
    `ww.best`.
    """
    x = q.amounts[0]
    best, found, width = floor, 0, fewest
    while True:
        rates_by_hops(net, ww, q, x, hops, max(best, 0.0))
        length, complete = wide_round(net, ww, used, q, x, hops, best, width, BUDGET, room, WHOLE, room.price)
        if length > 0:
            best, found = ww.best[0], length
        if complete or width >= slots:
            return found
        width = slots


class WideSearch:
    """The search over one net, with its scratch memory: for one thread. It pays in a market with mispricing.

    Without a profitable cycle `pathsearch.py` finds the best path: the one that brings most of a token leaves most
    to go on with, and coming back to a token never pays.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self._unused = np.zeros(net.src.size)
        self._slots = min(max(EDGE_LABELS // max(net.src.size, 1), FEWEST_LABELS), MOST_LABELS)
        self._work: WideWork | None = None
        self._between: dict[int, Ints] = {}  # the pairs between hubs, by the size of amounts

    @property
    def work(self) -> WideWork:
        """The scratch memory; it is made when it is first used."""
        if self._work is None:
            net = self.net
            self._work = make_wide_work(net.core.size, self._slots, net.pdst.size)
            choose_hubs(net, self._work.near)
        return self._work

    def look(self, search: Search, x: float) -> WideWork:
        """List what searches for paths of about `x` look at."""
        size = math.frexp(x)[1] // 2
        between = self._between.get(size)
        if between is None:
            found = np.zeros(self.net.pdst.size, np.int32)
            between = found[: ways_between_hubs(self.net, self.work.near, 2.0 ** (2 * size), found)].copy()
            self._between[size] = between
        list_ways(self.net, self.work.near, search, x, between)
        return self.work

    def best(self, search: Search, hops: int, room: Room, floor: float = NOTHING) -> tuple[list[int], float]:
        """The edges of the best path found, and what it pays (scaled), less its fee.

        There are none unless it pays more than `floor`.
        """
        fewest = 1 if floor == NOTHING else self._slots  # a first round with one label is for a floor
        work = self.look(search, float(search.amounts[0]))
        asked = search, room, min(hops, MAX_HOPS), floor, fewest, self._slots
        edges: list[int] = work.path[: best_wide_path(self.net, work, self._unused, *asked)].tolist()
        return edges, float(work.best[0])
