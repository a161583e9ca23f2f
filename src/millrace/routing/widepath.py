"""Search for the best single path with many partial paths to each token, and a split along such paths.

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
from millrace.routing.exchange import (
    CLOSE,
    CLOSEST,
    HELPS,
    LAST_STEPS,
    LEAST,
    SMALLER,
    STEPS,
    copy,
    is_there,
    keep,
    make_room,
    put_back,
    put_in,
)
from millrace.routing.net import (
    FloatBlock,
    Floats,
    FloatTable,
    IntBlock,
    Ints,
    IntTable,
    Longs,
    Net,
    WordBlock,
)
from millrace.routing.parts import Parts, divide, forget, total_output
from millrace.routing.pathsearch import PathWork, run_path
from millrace.routing.potential import ROUNDS as LABEL_HOPS
from millrace.routing.shares import NOTHING, WHOLE, Room, best_of_pair, path_share
from millrace.routing.work import MAX_HOPS

FEWEST_LABELS, MOST_LABELS = 8, 64  # partial paths kept per token and number of hops
EDGE_LABELS = 48_000  # about so many per hop in the whole market
FEW_LABELS = 4  # of a first look: the best path it finds is the best one of all in most questions
WIDER = 4  # times as many labels in the next round, where some were dropped
BUDGET = 400_000  # edges evaluated in one search
SPLIT_BUDGET = 20_000  # edges evaluated in search of one path of a split
FEW_PATHS = 5  # of the split that begins with few chunks: who may have more is offered the same
FEW_CHUNKS, CHUNKS = 4, 12  # of the amount, of which the first paths of a split are made
STILL_VALID = 0.9  # of what a chunk pays: what is known of the ways on holds for chunks that pay at least this part
MUCH_MORE = 6.0  # times what was known of the ways on: for so much more it is worth looking again
EXCHANGES = 3  # times each path of a split is exchanged at most
PROMISING = 0.999  # times what a new path must pay where the others stay as they are: the division is made anew
NOBODY = -1  # no path
IDLE = 1e-6  # of the amount: a path that sells less is none
BETTER = 1.0 + 1e-9  # times what known paths pay, for a path to be a new one


class WideWork(NamedTuple):
    """Scratch of the search: labels by hop, token and slot, and how many there are."""

    amount: FloatBlock  # (hop, token, slot)
    fees: FloatBlock  # (hop, token, slot): of the pools that brought it, in units of the sink
    value: FloatBlock  # (hop, token, slot): what the amount is worth at the best spot rates, less these fees
    taken: FloatBlock  # (hop, token, slot): share of the transaction, in a strict room
    edge: IntBlock  # (hop, token, slot): the edge that brought the amount
    slot: IntBlock  # (hop, token, slot): the label it came from, at that edge's source
    tokens: WordBlock  # (hop, token, slot): which tokens the partial path holds, hashed
    fill: IntTable  # (hop, token): slots in use
    reached: IntTable  # (hop, i): tokens with labels
    listed: Ints  # (hop): how many of them
    most: Floats  # (token): the last value kept, `NOTHING` between uses
    ahead: FloatTable  # (hops left, token): best rate to the sink
    first: IntTable  # (hops left, token): where that way goes first
    second: FloatTable  # (hops left, token): best rate by any other way
    path: Ints
    best: Floats  # [0]: what the path pays
    work: Longs  # [0]: edges evaluated in one search
    known: Floats  # scratch


def make_wide_work(tokens: int, slots: int) -> WideWork:
    """Scratch for nets of up to `tokens` tokens, with so many labels for each token."""
    levels = MAX_HOPS + 1
    labels = (levels, tokens, slots)
    return WideWork(
        np.zeros(labels),
        np.zeros(labels),
        np.zeros(labels),
        np.zeros(labels),
        np.zeros(labels, np.int32),
        np.zeros(labels, np.int32),
        np.zeros(labels, np.uint64),
        np.zeros((levels, tokens), np.int32),
        np.zeros((levels, tokens), np.int32),
        np.zeros(levels, np.int32),
        np.full(tokens, NOTHING),
        np.zeros((levels, tokens)),
        np.zeros((levels, tokens), np.int32),
        np.zeros((levels, tokens)),
        np.zeros(levels, np.int32),
        np.zeros(1),
        np.zeros(1, np.int64),
        np.zeros(2),
    )


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
def _holds(net: Net, ww: WideWork, hop: int, token: int, slot: int, wanted: int) -> bool:
    """Whether a partial path passes through a token before its last."""
    while hop > 0:
        edge = ww.edge[hop, token, slot]
        slot = ww.slot[hop, token, slot]
        token = net.src[edge]
        hop -= 1
        if token == wanted:
            return True
    return False


@inlined
def _add(
    ww: WideWork, slots: int, hop: int, token: int, amount: float, fees: float, value: float, taken: float,
    edge: int, slot: int, held: np.uint64,
) -> bool:  # fmt: skip
    """Keep a label if it is among the best of its token, once per set of tokens; True if one had no room."""
    used = ww.fill[hop, token]
    place, least = -1, value
    for s in range(used):
        if ww.tokens[hop, token, s] == held:
            if value <= ww.value[hop, token, s]:
                return False
            place = s
            break
        if used == slots and ww.value[hop, token, s] < least:
            place, least = s, ww.value[hop, token, s]
    if place < 0 and used == slots:
        return True
    dropped = place >= 0 and ww.tokens[hop, token, place] != held
    if place < 0:
        place = used
        ww.fill[hop, token] = used + 1
        if used == 0:
            ww.reached[hop, ww.listed[hop]] = token
            ww.listed[hop] += 1
    ww.amount[hop, token, place] = amount
    ww.fees[hop, token, place] = fees
    ww.value[hop, token, place] = value
    ww.taken[hop, token, place] = taken
    ww.edge[hop, token, place] = edge
    ww.slot[hop, token, place] = slot
    ww.tokens[hop, token, place] = held
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
    source, sink = q.sources[0], q.sink
    for h in range(hops + 1):
        ww.listed[h] = 0
    ww.amount[0, source, 0] = x
    ww.fees[0, source, 0] = 0.0
    ww.taken[0, source, 0] = 0.0
    ww.tokens[0, source, 0] = _hash(source)
    ww.fill[0, source] = 1
    ww.reached[0, 0] = source
    ww.listed[0] = 1
    best, found, last, last_slot, work, complete = floor, 0, -1, 0, 0, True
    gate = -1 if net.core[sink] else net.pdst[net.pptr[sink]]  # the only way to a sink with one neighbour
    for h in range(hops):
        for i in range(ww.listed[h]):
            u = ww.reached[h, i]
            for slot in range(ww.fill[h, u]):
                have, fees = ww.amount[h, u, slot], ww.fees[h, u, slot]
                for place in range(net.pptr[u], net.pcore[u] + (u == gate)):
                    k = place if place < net.pcore[u] else net.popp[net.pptr[sink]]
                    v = net.pdst[k]
                    ends = v == sink
                    if not ends and (v == source or h == hops - 1):
                        continue
                    after = hops - 1 - h
                    worth = ww.second[after, v] if ww.first[after, v] == u else ww.ahead[after, v]
                    if worth == 0.0 or have * net.prate[k] * worth - fees <= best:
                        continue
                    if not ends and _holds(net, ww, h, u, slot, v):
                        continue
                    out, edge, fee, looked = best_of_pair(net, used, room, k, have, price / worth)
                    work += looked
                    if edge < 0:
                        continue
                    taken = ww.taken[h, u, slot] + room.share[edge] if room.strict else 0.0
                    if taken > left:
                        continue
                    paid = fees + fee * worth
                    value = out * worth - paid
                    if value <= best:
                        continue
                    if ends:
                        best, found, last, last_slot = value, h + 1, edge, slot
                        continue
                    value = out * q.behind[v] - paid
                    if slots == 1 and value <= ww.most[v]:
                        complete = False
                    else:
                        ww.most[v] = value
                        held = ww.tokens[h, u, slot] ^ _hash(v)
                        complete = not _add(ww, slots, h + 1, v, out, paid, value, taken, edge, slot, held) and complete
            if work > budget:
                complete = False
                break
    _read(net, ww, found, last, last_slot)
    for h in range(hops + 1):
        for i in range(ww.listed[h]):
            ww.fill[h, ww.reached[h, i]] = 0
            ww.most[ww.reached[h, i]] = NOTHING
    ww.best[0] = best
    ww.work[0] = work
    return found, complete


@inlined
def _read(net: Net, ww: WideWork, length: int, last: int, slot: int) -> None:
    """Follow the labels from the last edge back to the source."""
    edge = last
    for h in range(length - 1, -1, -1):
        ww.path[h] = edge
        if h > 0:
            token = net.src[edge]
            edge = ww.edge[h, token, slot]
            slot = ww.slot[h, token, slot]


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


@kernel
def exchange_wide(
    net: Net, ww: WideWork, pw: PathWork, q: Search, room: Room, hops: int, most: int, first: Ints, second: Ints
) -> tuple[int, float]:
    """Few paths of any order (at most `most`, up to `FEW`), exchanged one by one; how many, and what they pay.

    They begin as what few, and then many, equal chunks of the amount go along, with the path `first` among those and
    `second` among these. Each in turn is left out, or makes room for the path that pays most beside the others, or one
    more is added; the amount is divided anew, and what pays more, less the fees, is kept. Trades of several paths in
    one pool count as one. They are left as `split_greedy` leaves its paths.
    """
    x, found, best = pw.parts, 0, 0.0
    for chunks in (FEW_CHUNKS, CHUNKS):
        paths = min(most, FEW_PATHS) if chunks == FEW_CHUNKS else most
        start = first if chunks == FEW_CHUNKS else second
        count = _chunks(net, ww, pw, q, room, hops, paths, start, chunks)
        count = _exchange(net, ww, pw, q, room, hops, paths, count)
        fees, taken = _fees(pw, x, count, room, NOBODY)
        value = total_output(net, pw.used, x, count) - fees
        if taken <= WHOLE and value > best:
            best, found = value, count
            keep(pw, count)
    for p in range(found):
        pw.flow[p] = pw.kept.flow[p]
        pw.length[p] = copy(pw.kept.paths, pw.paths, p, pw.kept.length[p])
    return found, best


@inlined
def _exchange(net: Net, ww: WideWork, pw: PathWork, q: Search, room: Room, hops: int, most: int, count: int) -> int:
    """Exchange paths until none helps; how many there are then."""
    x, amount, known = pw.parts, q.amounts[0], ww.known
    value = divide(net, pw.used, x, count, amount, CLOSE, STEPS)
    fees, taken = _fees(pw, x, count, room, NOBODY)
    value = value - fees if taken <= WHOLE else 0.0
    known[0], known[1] = 1e300, 0.0
    p, idle = count, 0
    for _ in range(EXCHANGES * most):
        if idle > count:
            break
        p = 0 if p > count or p == most else p
        part = x.flow[p] if p < count else amount / (count + 1)
        part = max(part, LEAST * amount / (count + 1))
        idle += 1
        without = _try_without(net, pw, q, room, p, count, value)
        if without > 0.0:
            value, count, idle = without, count - 1, 0
            continue
        for size in (1.0, SMALLER):
            better = _try_wide(net, ww, pw, q, room, hops, p, count, part * size, value, known)
            if better > 0.0:
                value, count, idle = better, max(count, p + 1), 0
                break
        p += 1
    divide(net, pw.used, x, count, amount, CLOSEST, LAST_STEPS)
    return _without_idle(x, count, amount)


@inlined
def _chunks(
    net: Net, ww: WideWork, pw: PathWork, q: Search, room: Room, hops: int, most: int, start: Ints, chunks: int
) -> int:
    """Send the amount in equal chunks, each along the path that is best by then; how many paths there are.

    The first of them is `start`.
    """
    x, chunk = pw.parts, q.amounts[0] / chunks
    for h in range(start.size):
        x.paths[0, h] = start[h]
    x.length[0], x.flow[0], count, known = start.size, 0.0, 1, 1e300
    taken = path_share(room, start, start.size)
    for _ in range(chunks):
        choice, best = 0, 0.0
        for i in range(count):
            out = run_path(net, pw, x.paths[i], x.length[i], chunk, False)
            if out > best:
                choice, best = i, out
        if count < most:
            if best < known:
                known = best * STILL_VALID
                rates_by_hops(net, ww, q, chunk, hops, known)
            found, _ = wide_round(net, ww, pw.used, q, chunk, hops, best * BETTER, 1, SPLIT_BUDGET, room, WHOLE, 0.0)
            more = 0.0
            for h in range(found):
                more += room.share[ww.path[h]] if pw.used[ww.path[h]] == 0.0 else 0.0
            if found > 0 and taken + more <= WHOLE:
                taken += more
                for h in range(found):
                    x.paths[count, h] = ww.path[h]
                x.length[count], x.flow[count] = found, 0.0
                choice = count
                count += 1
        run_path(net, pw, x.paths[choice], x.length[choice], chunk, True)
        x.flow[choice] += chunk
    forget(pw.used, x, count)
    return count


@inlined
def _try_without(net: Net, pw: PathWork, q: Search, room: Room, p: int, count: int, value: float) -> float:
    """Leave path `p` out, if the others pay more than `value`; what they pay, or 0 if nothing has changed."""
    x, amount = pw.parts, q.amounts[0]
    if p >= count or count == 1 or x.flow[p] >= amount:
        return 0.0
    for i in range(count):
        pw.old[i] = x.flow[i]
    scale = amount / (amount - x.flow[p])
    for i in range(count):
        x.flow[i] = 0.0 if i == p else x.flow[i] * scale
    fees, taken = _fees(pw, x, count, room, NOBODY)
    reached = total_output(net, pw.used, x, count) - fees
    if taken <= WHOLE and reached > value:
        for i in range(p, count - 1):
            for h in range(x.paths.shape[1]):
                x.paths[i, h] = x.paths[i + 1, h]
            x.length[i], x.flow[i] = x.length[i + 1], x.flow[i + 1]
        return reached
    for i in range(count):
        x.flow[i] = pw.old[i]
    return 0.0


@inlined
def _try_wide(
    net: Net,
    ww: WideWork,
    pw: PathWork,
    q: Search,
    room: Room,
    hops: int,
    p: int,
    count: int,
    part: float,
    value: float,
    known: Floats,
) -> float:
    """Put the path that pays most for `part` in the place of path `p`, if all then pay more than `value`, less fees.

    `known` says for what output of what input the ways on are known. Returns what they pay; 0 if nothing has changed.
    """
    x, amount = pw.parts, q.amounts[0]
    if p == 0 and count == 1:
        return 0.0
    others, _ = _fees(pw, x, count, room, p)
    scale, paid = make_room(net, pw, count, p, amount, part)
    if scale < 0.0:
        return 0.0
    floor = max(value - (paid - others), 0.0) * PROMISING
    if floor < known[0] or part > known[1] or floor > MUCH_MORE * known[0]:
        known[0], known[1] = floor * SMALLER * STILL_VALID, part
        rates_by_hops(net, ww, q, part, hops, known[0])
    found, _ = wide_round(net, ww, pw.used, q, part, hops, floor, 1, SPLIT_BUDGET, room, WHOLE, room.price)
    forget(pw.used, x, count)
    for h in range(found):
        pw.other[h] = ww.path[h]
    if found == 0 or is_there(pw, x, count, found):
        return 0.0
    before = put_in(pw, x, count, p, found, part, scale)
    reached = divide(net, pw.used, x, max(count, p + 1), amount, CLOSE, STEPS)
    fees, taken = _fees(pw, x, max(count, p + 1), room, NOBODY)
    if taken <= WHOLE and reached - fees > value * (1.0 + HELPS):
        return reached - fees
    put_back(pw, x, count, p, before)
    return 0.0


@inlined
def _fees(pw: PathWork, x: Parts, count: int, room: Room, without: int) -> tuple[float, float]:
    """The fee of the trades of those paths that sell something, each pool once, and their share of the transaction.

    Path number `without` does not count.
    """
    fees, taken = 0.0, 0.0
    for i in range(count):
        for h in range(x.length[i] if x.flow[i] > 0.0 and i != without else 0):
            e = x.paths[i, h]
            if pw.used[e] == 0.0:
                pw.used[e] = 1.0
                taken += room.share[e]
                fees += room.fee[e] * room.price if room.price > 0.0 else 0.0
    forget(pw.used, x, count)
    return fees, taken


@inlined
def _without_idle(x: Parts, count: int, amount: float) -> int:
    """Leave out paths that sell next to nothing; how many there are then."""
    kept = 0
    for i in range(count):
        if x.flow[i] > amount * IDLE:
            for h in range(x.length[i]):
                x.paths[kept, h] = x.paths[i, h]
            x.length[kept], x.flow[kept] = x.length[i], x.flow[i]
            kept += 1
    return kept


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

    def quick(self, search: Search, hops: int, room: Room) -> tuple[list[int], float, bool]:
        """The edges of the best path found with few labels, what it pays (scaled), less its fee.

        Also whether no path pays more.
        """
        edges, complete = self._search(search, room, hops, NOTHING, 1, FEW_LABELS)
        return edges, float(self.work.best[0]), complete

    def _search(
        self, search: Search, room: Room, hops: int, floor: float, fewest: int, slots: int
    ) -> tuple[list[int], bool]:
        asked = search, room, min(hops, MAX_HOPS), floor, fewest, slots
        length, complete = best_wide_path(self.net, self.work, self._unused, *asked)
        edges: list[int] = self.work.path[:length].tolist()
        return edges, complete
