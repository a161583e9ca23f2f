"""Search for the best single path with many partial paths to each token.

The search in `pathsearch.py` keeps one partial path per token and number of hops. Where prices are off, the one that
brings most of a token may hold a token or a pool that the rest of the best path needs. Here many partial
paths over different sets of tokens travel on. A partial path is dropped when what it holds could not become more
than the best path pays on the hops that are left, be tokens visited twice or not. While no more partial paths meet at
a token than there is room for, the search is complete; the best path without a token twice in a market with mispricing
is the longest path of a graph, for which nothing fast is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Floats, FloatTable, Ints, IntTable, Longs, Net, Words
from millrace.routing.potential import ROUNDS as LABEL_HOPS
from millrace.routing.scratch import make, sized
from millrace.routing.shares import NOTHING, WHOLE, Room, best_of_pair
from millrace.routing.work import LEVELS, MAX_HOPS

FEWEST_LABELS, MOST_LABELS = 8, 64  # partial paths kept per token and number of hops
EDGE_LABELS = 48_000  # about so many per hop in the whole market
FEW_LABELS = 4  # of a first look: the best path it finds is the best one of all in most questions
WIDER = 4  # times as many labels in the next round, where some were dropped
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
    tokens: Words = sized("labels")  # (label): which tokens the partial path holds, hashed
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
    known: Floats = sized(1)  # [0]: what whoever searches knows the ways on for


def make_wide_work(tokens: int, slots: int) -> WideWork:
    """Scratch for nets of `tokens` tokens, with so many labels for each token."""
    return make(WideWork, tokens=tokens, labels=LEVELS * tokens * slots)


@inlined
def _hash(token: int) -> np.uint64:
    """A token as 64 well-mixed bits (SplitMix64); sets of tokens are compared by their exclusive or."""
    z = np.uint64(token + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(z ^ (z >> np.uint64(31)))


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
    ww.ahead[0, :] = 0.0
    ww.second[0, :] = 0.0
    ww.first[0, :] = -1
    ww.ahead[0, sink] = 1.0
    for h in range(1, hops):
        for u in net.corelist:
            best, second, first = 0.0, 0.0, -1
            most = 1e300 if far else x * q.ahead[u] * BETTER
            for k in range(net.pptr[u], net.pcore[u] if most > 0.0 else net.pptr[u]):
                v = net.pdst[k]
                worth = ww.second[h - 1, v] if ww.first[h - 1, v] == u else ww.ahead[h - 1, v]
                if net.prate[k] * worth <= second or net.prate[k] * worth * most <= least:
                    continue
                value = _rate_for(net, k, least / worth) * worth
                if value > best:
                    best, second, first = value, best, v
                elif value > second:
                    second = value
            ww.ahead[h, u] = best
            ww.second[h, u] = second
            ww.first[h, u] = first
        if not net.core[sink]:
            for k in range(net.pptr[sink], net.pptr[sink + 1]):
                u, value = net.pdst[k], net.pback[k]
                if value > ww.ahead[h, u]:
                    ww.second[h, u] = ww.ahead[h, u]
                    ww.ahead[h, u] = value
                    ww.first[h, u] = sink
                elif value > ww.second[h, u]:
                    ww.second[h, u] = value
        ww.ahead[h, sink] = 1.0
        ww.second[h, sink] = 1.0
        ww.first[h, sink] = -1


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
    """Keep a label if it is among the best of its token, once per set of tokens; True if one had no room."""
    used, begin = ww.fill[hop, token], (hop * ww.most.size + token) * slots
    place, least = -1, value
    for label in range(begin, begin + used):
        if ww.tokens[label] == held:
            if value <= ww.label[label, VALUE]:
                return False
            place = label
            break
        if used == slots and ww.label[label, VALUE] < least:
            place, least = label, ww.label[label, VALUE]
    if place < 0 and used == slots:
        return True
    dropped = place >= 0 and ww.tokens[place] != held
    if place < 0:
        place = begin + used
        ww.fill[hop, token] = used + 1
        if used == 0:
            ww.reached[hop, ww.listed[hop]] = token
            ww.listed[hop] += 1
    ww.label[place, AMOUNT], ww.label[place, FEES] = amount, fees
    ww.label[place, VALUE], ww.label[place, TAKEN] = value, taken
    ww.edge[place], ww.before[place], ww.tokens[place], ww.passed[place] = edge, before, held, passed
    return dropped


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
    ww.tokens[start], ww.passed[start] = _hash(source), np.uint64(0)
    ww.fill[0, source] = 1
    ww.reached[0, 0] = source
    ww.listed[0] = 1
    best, found, last, last_label, work, complete = floor, 0, -1, 0, 0, True
    gate = -1 if net.core[sink] else net.pdst[net.pptr[sink]]  # the only way to a sink with one neighbour
    for h in range(hops):
        after = hops - 1 - h
        for i in range(ww.listed[h]):
            u = ww.reached[h, i]
            begin = (h * tokens + u) * slots
            for label in range(begin, begin + ww.fill[h, u]):
                have, fees = ww.label[label, AMOUNT], ww.label[label, FEES]
                passed = ww.passed[label]
                for place in range(net.pptr[u], net.pcore[u] + (u == gate)):
                    k = place if place < net.pcore[u] else net.popp[net.pptr[sink]]
                    v = net.pdst[k]
                    ends = v == sink
                    if not ends and (v == source or after == 0):
                        continue
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
                        held = ww.tokens[label] ^ _hash(v)
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
) -> tuple[int, bool]:
    """The path of at most `hops` pools with the most output, less fees, if it beats `floor`; its length or 0.

    True: no path pays more. In rounds with more and more labels, from `fewest` to `slots`, each with what the ones
    before have found as its floor, until none is dropped. The path is left in `ww.path`, what it pays in `ww.best`.
    """
    x = q.amounts[0]
    best, found, width = floor, 0, fewest
    while True:
        rates_by_hops(net, ww, q, x, hops, max(best, 0.0))
        length, complete = wide_round(net, ww, used, q, x, hops, best, width, BUDGET, room, WHOLE, room.price)
        if length > 0:
            best, found = ww.best[0], length
        if complete or width >= slots:
            return found, complete
        width = min(WIDER * width, slots)


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

    @property
    def work(self) -> WideWork:
        """The scratch memory; it is made when it is first used."""
        if self._work is None:
            self._work = make_wide_work(self.net.core.size, self._slots)
        return self._work

    def best(self, search: Search, hops: int, floor: float, room: Room) -> list[int]:
        """The edges of the best path found, empty unless it pays more than `floor` (scaled), less its fee."""
        return self._search(search, room, hops, floor, self._slots, self._slots)[0]

    def quick(self, search: Search, hops: int, room: Room, floor: float = NOTHING) -> tuple[list[int], float, bool]:
        """The edges of the best path found with few labels, what it pays (scaled), less its fee.

        Also whether no path pays more. There are none unless it pays more than `floor`.
        """
        fewest = 1 if floor == NOTHING else FEW_LABELS  # a first round with one label is for a floor
        edges, complete = self._search(search, room, hops, floor, fewest, FEW_LABELS)
        return edges, float(self.work.best[0]), complete

    def _search(
        self, search: Search, room: Room, hops: int, floor: float, fewest: int, slots: int
    ) -> tuple[list[int], bool]:
        asked = search, room, min(hops, MAX_HOPS), floor, fewest, slots
        length, complete = best_wide_path(self.net, self.work, self._unused, *asked)
        edges: list[int] = self.work.path[:length].tolist()
        return edges, complete
