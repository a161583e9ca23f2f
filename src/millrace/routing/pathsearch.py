"""Path search with true outputs: the best single path, and the greedy split in chunks.

Dynamic programming over hops on the amounts themselves, pruned by the best spot rate to the sink: what
`x` units of a token can still become is at most `x * behind[token]`. Each chunk of a greedy split sees
the pools as the chunks before it left them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import edge_gain, edge_out
from millrace.routing.net import Bools, Floats, FloatTable, Ints, IntTable, Longs, Net
from millrace.routing.parts import FEW, Parts
from millrace.routing.scratch import make, sized
from millrace.routing.shares import NOTHING, WHOLE, Room, best_of_pair, path_fee, path_share
from millrace.routing.together import Meeting
from millrace.routing.work import LEVELS, MAX_EDGES, MAX_HOPS

MAX_PATHS = 64
MOST_BETTER = 1.0 + 1e-9  # than the best spot rates say, where no cycle earns: the labels' precision
STRAIGHT = 2  # knots of a pool at a rate; all others have more
LITTLE = 1e-12  # of an amount: less is none
ENDS = 2  # times as many pieces as chunks, at most: curves end in some of them
NEARER = 4  # steps to where a curve ends; the paths before it are next to straight for what is left there
MOST_ASIDE = 0.5  # of an amount, for small stocks
# Relative: paths that trade in a pool one after the other pay as much more than its curve, of which they are found.
# The fee that stays in the pool is the second one's gain: of a pool's 0.3 %, where the first one trades 3 % of it.
SHARED = 1e-4
BUDGET = 400_000  # edge evaluations per search; a search that hits it answers with the best so far


class Beam(NamedTuple):
    """Where to search: token t is sold in the pairs `pairs[begin[t] : end[t]]`."""

    begin: Ints = sized("tokens")
    end: Ints = sized("tokens")
    pairs: Ints = sized("pairs")


class PathWork(NamedTuple):
    """Scratch of the path search and its answer: `paths[k, :length[k]]` edges, `flow[k]` input."""

    amount: FloatTable = sized(LEVELS, "tokens")  # (hop, token)
    fees: FloatTable = sized(LEVELS, "tokens")  # (hop, token): of the pools that brought it, in units of the sink
    by: IntTable = sized(LEVELS, "tokens")  # (hop, token): edge that brought the amount
    taken: FloatTable = sized(LEVELS, "tokens")  # (hop, token): its share of a transaction, where that may be too much
    reached: IntTable = sized(LEVELS, "tokens")  # (hop, i): tokens reached with that many hops
    fill: Ints = sized(LEVELS)  # (hop): how many
    used: Floats = sized("edges")  # by edge: input of earlier chunks
    paths: IntTable = sized(MAX_PATHS, MAX_HOPS)
    length: Ints = sized(MAX_PATHS)
    flow: Floats = sized(MAX_PATHS)
    single: Ints = sized(MAX_HOPS)  # the best single path
    work: Longs = sized(1)
    every: Beam = sized()
    beam: Beam = sized()
    listed: Ints = sized("pairs")  # scratch: pairs
    marked: Bools = sized("pairs")  # (pair): scratch, False between uses
    seeds: Ints = sized(MAX_EDGES)  # edges of which a beam is made
    parts: Parts = sized()  # paths that are exchanged for others
    kept: Parts = sized()  # the best of them
    old: Floats = sized(FEW)  # inputs of these paths before an exchange
    other: Ints = sized(MAX_HOPS)  # the path that may come in
    replaced: Ints = sized(MAX_HOPS)  # the one in whose place
    stocks: Ints = sized("stocks")  # edges of pools at a rate: they pay the same for each unit, and then nothing
    aside: Floats = sized("stocks")  # (stock): what of the amount is kept for it, if it is small
    meeting: Meeting = sized()


def make_path_work(net: Net) -> PathWork:
    """Scratch for searches in a net."""
    pairs = net.pdst.size
    curved = np.flatnonzero(net.curve[: net.pair.size] >= 0)  # edges astray are in no pair, and on no path here
    curve = net.curve[curved]
    stocks = curved[net.kptr[curve + 1] - net.kptr[curve] == STRAIGHT].astype(np.int32)
    every = Beam(net.pptr[:-1].copy(), net.pptr[1:].copy(), np.arange(pairs, dtype=np.int32))
    return make(
        PathWork,
        {"every": every, "stocks": stocks},
        tokens=net.core.size,
        edges=net.src.size,
        pairs=pairs,
        stocks=stocks.size,
        paths=FEW,
        hops=MAX_HOPS,
        trades=FEW * MAX_HOPS,
    )


@kernel
def make_beam(net: Net, pw: PathWork, edges: Ints, count: int, length: int) -> None:
    """Let the beam be the pairs of the first `count` of these edges (negative ones are none) and of the single path."""
    beam, listed = pw.beam, 0
    beam.end[:] = 0
    for i in range(count + length):
        e = edges[i] if i < count else pw.single[i - count]
        if e >= 0 and not pw.marked[net.pair[e]]:
            pw.marked[net.pair[e]] = True
            pw.listed[listed] = net.pair[e]
            beam.end[net.src[e]] += 1
            listed += 1
    filled = 0
    for i in range(listed):  # where each token's pairs begin; `end` says how many they are until they are in place
        token = net.src[net.pe0[pw.listed[i]]]
        if beam.end[token] > 0:
            beam.begin[token] = filled
            filled += beam.end[token]
            beam.end[token] = -1
    for i in range(listed):
        k = pw.listed[i]
        token = net.src[net.pe0[k]]
        if beam.end[token] < 0:
            beam.end[token] = beam.begin[token]
        beam.pairs[beam.end[token]] = k
        beam.end[token] += 1
        pw.marked[k] = False


@kernel
def run_path(net: Net, pw: PathWork, path: Ints, length: int, x: float, commit: bool) -> float:
    """Output of `x` along a path on top of earlier chunks; `commit` books it as an earlier chunk."""
    for h in range(length):
        e = path[h]
        out = edge_gain(net, e, pw.used[e], x)
        if commit:
            pw.used[e] += x
        x = out
    return x


@inlined
def _revisits(net: Net, pw: PathWork, hop: int, token: int, v: int) -> bool:
    """Whether the chain that reached `token` after `hop` hops holds `v` already."""
    while hop > 0:
        token = net.src[pw.by[hop, token]]
        hop -= 1
        if token == v:
            return True
    return False


@kernel
def best_path(
    net: Net,
    pw: PathWork,
    where: Beam,
    q: Search,
    room: Room,
    left: float,
    x: float,
    hops: int,
    floor: float,
    path: Ints,
    price: float,
) -> int:
    """The path of at most `hops` pools with the most output for `x`, less fees, if it beats `floor`; its length or 0.

    The fee of an edge is taken at `price`. Of the paths to a token by so many pools the one is followed whose amount is
    worth most at the best spot rates, less its fees.

    In a strict room it takes no more than the share `left` of the transaction: of the paths to a token by so many pools
    the one that brings most is followed, of those that leave something.
    """
    source, sink, behind = q.sources[0], q.sink, q.behind
    for level in range(hops + 1):
        pw.fill[level] = 0
    pw.amount[0, source] = x
    pw.fees[0, source] = 0.0
    pw.taken[0, source] = 0.0
    pw.reached[0, 0] = source
    pw.fill[0] = 1
    best, found, last = floor, 0, -1
    for level in range(hops):
        for i in range(pw.fill[level]):
            u = pw.reached[level, i]
            have, fees = pw.amount[level, u], pw.fees[level, u]
            for place in range(where.begin[u], where.end[u]):
                k = where.pairs[place]
                v = net.pdst[k]
                ends = v == sink
                if not ends and (k >= net.pcore[u] or v == source or level == hops - 1):
                    continue
                worth = 1.0 if ends else behind[v]
                if worth == 0.0 or have * net.prate[k] * worth - fees <= best:
                    continue
                out, edge, paid, looked = best_of_pair(net, pw.used, room, k, have, price / worth)
                pw.work[0] += looked
                if edge < 0 or (room.strict and pw.taken[level, u] + room.share[edge] > left):
                    continue
                paid = fees + paid * worth
                value = out * worth - paid
                if value <= best:
                    continue
                if ends:
                    best, found, last = value, level + 1, edge
                    continue
                known = pw.amount[level + 1, v]
                if known > 0.0 and value <= known * worth - pw.fees[level + 1, v]:
                    continue
                if _revisits(net, pw, level, u, v):
                    continue
                if known == 0.0:
                    pw.reached[level + 1, pw.fill[level + 1]] = v
                    pw.fill[level + 1] += 1
                pw.amount[level + 1, v] = out
                pw.fees[level + 1, v] = paid
                pw.by[level + 1, v] = edge
                if room.strict:
                    pw.taken[level + 1, v] = pw.taken[level, u] + room.share[edge]
        if pw.work[0] > BUDGET:
            break
    _read_path(net, pw, path, found, last)
    for level in range(hops + 1):
        for i in range(pw.fill[level]):
            pw.amount[level, pw.reached[level, i]] = 0.0
    return found


@inlined
def _read_path(net: Net, pw: PathWork, path: Ints, length: int, last: int) -> None:
    """Follow the predecessors of the last edge back to the source."""
    edge = last
    for h in range(length - 1, -1, -1):
        path[h] = edge
        if h > 0:
            edge = pw.by[h, net.src[edge]]


@kernel
def most_of_ends(net: Net, q: Search) -> float:
    """An upper bound of what a single path pays, where no path is better than the best spot rates say.

    The whole amount goes through one edge at either end: by the best of them, and at spot rates on all the rest.
    """
    source, sink, amount = q.sources[0], q.sink, q.amounts[0]
    first, last = 0.0, 0.0
    for k in range(net.pptr[source], net.pptr[source + 1]):
        worth = q.behind[net.pdst[k]]
        for e in range(net.pe0[k], net.pe1[k]):
            if amount * net.rate[e] * worth <= first:
                break
            first = max(first, edge_out(net, e, amount) * worth)
    for k in range(net.pptr[sink], net.pptr[sink + 1]):
        most, opposite = amount * q.ahead[net.pdst[k]], net.popp[k]
        for e in range(net.pe0[opposite], net.pe1[opposite]):
            if most * net.rate[e] <= last:
                break
            last = max(last, edge_out(net, e, most))
    return min(first, last) * MOST_BETTER


@kernel
def find_single(net: Net, pw: PathWork, q: Search, room: Room, hops: int, floor: float) -> int:
    """Leave the best single path in `pw.single` if it pays more than `floor`, less its fee; its length or 0.

    With a floor of 0 nothing is known yet, and the best path is found whatever it leaves after its fee.
    """
    amount = q.amounts[0]
    floor = max(floor, amount) if q.cycle else floor if floor > 0.0 else NOTHING
    pw.work[0] = 0
    return best_path(net, pw, pw.every, q, room, WHOLE, amount, hops, floor, pw.single, room.price)


@kernel
def split_greedy(
    net: Net,
    pw: PathWork,
    where: Beam,
    q: Search,
    room: Room,
    hops: int,
    chunks: int,
    max_paths: int,
    floor: float,
) -> int:
    """Send the amount in equal chunks, each along the path that is best by then; returns the number of paths.

    Once `max_paths` different paths are in use, or another one would not fit into the transaction, the rest goes along
    the known paths. What a path takes before one of its curves ends is all of the chunk that goes along it, and of the
    amount so much comes last, in pieces, as stocks that are smaller than a chunk can take: in a chunk nobody sees them.
    In a cycle it stops when a chunk no longer earns, else it gives up (0) when the split can no longer pay more than
    `floor`, if there is one, less the fees of its paths where these clearly count: no chunk pays more than the one
    before it.
    """
    count, taken, more, paid, fees = 0, 0.0, True, 0.0, 0.0
    pw.work[0] = 0
    hopeless = False
    left = amount = q.amounts[0]
    chunk, least = amount / chunks, amount * LITTLE
    aside, stock = _set_aside(net, pw, q, room, chunk), 0
    for _ in range(ENDS * chunks + pw.stocks.size):
        piece = min(chunk, left - aside)
        while piece <= least and stock < pw.stocks.size:  # the last of the amount goes in pieces of small stocks
            piece = pw.aside[stock]
            aside -= piece
            stock += 1
        if piece <= least:
            break
        choice, best = -1, piece if q.cycle else 0.0
        for k in range(count):
            out = run_path(net, pw, pw.paths[k], pw.length[k], piece, False)
            if out > 0.0:
                out *= piece / _taken_by(net, pw, pw.paths[k], pw.length[k], piece, least)
            if out > best:
                choice, best = k, out
        if more and count < max_paths and pw.work[0] < BUDGET:
            best *= 1.0 + 1e-12
            length = best_path(net, pw, where, q, room, WHOLE - taken, piece, hops, best, pw.paths[count], 0.0)
            share = path_share(room, pw.paths[count], length)
            if length > 0 and taken + share <= WHOLE:
                pw.length[count] = length
                pw.flow[count] = 0.0
                choice = count
                fees += path_fee(room, pw.paths[count], length)
                count += 1
                taken += share
            elif length > 0:
                more = False
        if choice < 0:
            break
        piece = _taken_by(net, pw, pw.paths[choice], pw.length[choice], piece, least)
        out = run_path(net, pw, pw.paths[choice], pw.length[choice], piece, True)
        paid += out
        left -= piece
        pw.flow[choice] += piece
        more_fees = max(fees - floor * SHARED, 0.0)
        hopeless = not q.cycle and floor > 0.0 and aside == 0.0 and paid + left * (out / piece) - more_fees < floor
        if hopeless:
            break
    if left > least and count > 0 and not (hopeless or q.cycle):
        _send_rest(net, pw, where, q, room, hops, count, taken, left)
    for k in range(count):
        for h in range(pw.length[k]):
            pw.used[pw.paths[k, h]] = 0.0
    return 0 if hopeless else count


@inlined
def _send_rest(
    net: Net, pw: PathWork, where: Beam, q: Search, room: Room, hops: int, count: int, taken: float, left: float
) -> None:
    """Where all paths have come to the end of a curve: the best one that takes more, in the place of the thinnest."""
    thinnest = 0
    for k in range(1, count):
        thinnest = k if pw.flow[k] < pw.flow[thinnest] else thinnest
    free = WHOLE - taken + path_share(room, pw.paths[thinnest], pw.length[thinnest])
    length = best_path(net, pw, where, q, room, free, left, hops, 0.0, pw.paths[count], 0.0)
    if length > 0 and path_share(room, pw.paths[count], length) <= free:
        for h in range(pw.length[thinnest]):
            pw.used[pw.paths[thinnest, h]] = 0.0
        for h in range(length):
            pw.paths[thinnest, h] = pw.paths[count, h]
        pw.length[thinnest] = length
        pw.flow[thinnest] += left


@inlined
def _set_aside(net: Net, pw: PathWork, q: Search, room: Room, chunk: float) -> float:
    """Write what small stocks can take, in units of the source, into `aside`; returns the sum.

    That is none of those that take a chunk, or cannot earn their fee.
    """
    total = 0.0
    for i in range(pw.stocks.size):
        e = pw.stocks[i]
        last, ahead, behind = net.kptr[net.curve[e] + 1] - 1, q.ahead[net.src[e]], q.behind[net.dst[e]]
        pw.aside[i] = 0.0
        if ahead > 0.0 and net.ky[last] * behind > room.price * (room.fee[e] if room.price > 0.0 else 1.0):
            piece = net.kd[last] / ahead
            if piece < chunk and total + piece < MOST_ASIDE * q.amounts[0]:
                pw.aside[i] = piece
                total += piece
    return total


@inlined
def _taken_by(net: Net, pw: PathWork, path: Ints, length: int, x: float, least: float) -> float:
    """What of `x` a path takes on top of earlier chunks before one of its curves ends, and no less than `least`."""
    part = 1.0
    for _ in range(NEARER):
        flow, more = x * part, 1.0
        for h in range(length):
            e = path[h]
            if net.curve[e] >= 0:
                room = net.kd[net.kptr[net.curve[e] + 1] - 1] - pw.used[e]
                if flow > room:
                    more = min(more, max(room, 0.0) / flow)
            flow = edge_gain(net, e, pw.used[e], flow)
        if more == 1.0:
            break
        part *= more
    return max(x * part, least)
