"""A whole search in one kernel: the dual's flow, the best single path, and the greedy split."""

from __future__ import annotations

from millrace.routing.astray import promising_astray
from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.exchange import FEW, exchange_paths
from millrace.routing.moves import Moves
from millrace.routing.net import Floats, Ints, Net
from millrace.routing.pathsearch import MAX_PATHS, PathWork, find_single, make_beam, most_of_ends, split_greedy
from millrace.routing.shares import Room, fees_of, path_share, taken_by
from millrace.routing.solve import LEVEL, MORE, UPPER, extract, grow, solve
from millrace.routing.widepath import WideWork
from millrace.routing.work import EDGES, HOLD, LONG, Work

PAID, LENGTH, SPLIT, ASTRAY, MOST = range(3, 8)  # slots of the report behind those of `solve`
SLOTS = 8
LARGE = 1500  # edges of a net in which a split is looked for among fewer pairs
PROVEN = 1e-9  # relative: what the bound leaves to a split, if it is no more, is nothing
A_FEW = 4  # paths exchanged where there may be any number of them, but no long ones: 16 took a half of the time more
MUCH = 6  # edges dropped from a flow as ways were too long: one that has lost more may be some ten bp below 16 paths
TIGHT = 12  # edges: a flow of no more that was cut to the transaction may be hundreds of bp below paths one by one
ROOMY = 0.7  # of the transaction: a flow that was cut to it takes more, also where what is left would do for an edge
WORTHWHILE = 1e-3  # relative: a flow this far below the bound leaves something to exchanging the paths of a split


@kernel
def find_paths(
    net: Net, pw: PathWork, q: Search, room: Room, paths: int, hops: int, chunks: int, floor: float, report: Floats
) -> None:
    """The best single path above `floor`, and the greedy split in `chunks` (0: none), over all of the net.

    `pw.single` is the path; `report` gets its length and the number of the split's paths.
    """
    report[LENGTH] = find_single(net, pw, q, room, hops, floor)
    report[SPLIT] = 0
    if chunks > 0:
        report[SPLIT] = split_greedy(net, pw, pw.every, q, room, hops, chunks, min(paths, MAX_PATHS - 1), 0.0)


@kernel
def find(
    net: Net,
    w: Work,
    m: Moves,
    pw: PathWork,
    ww: WideWork,
    q: Search,
    room: Room,
    paths: int,
    hops: int,
    chunks: int,
    nearly: float,
    edges: Ints,
    flows: Floats,
    report: Floats,
) -> int:
    """The flow of the dual within the limits, as `extract` writes it, and what `find_paths` finds, if it may be better.

    With `chunks` below 0 the flow is all. Single paths that pay less than the part `nearly` of it are not looked for,
    nor is a split that could be no better, nor one to its end once it is clear that it pays less than that part. Where
    no cycle earns, no limit that was asked for binds and a few edges do not fill the transaction, only what trades in
    pieces may pay more is left to a split.
    In a large market where no cycle earns, it is looked for among the pairs of the dual's working set and of the
    single path, unless that has longer ways than `hops`. `report` gets what the flow pays, too (scaled), fees not taken
    off; where one is held against others, they are.
    """
    solve(net, w, q, report)
    seeds = w.n[EDGES]
    for e in range(seeds):
        pw.seeds[e] = w.e_edge[e]
    count = extract(net, w, m, q, room, paths, hops, edges, flows)
    report[PAID] = paid_by(w) if count > 0 else 0.0
    shortened, length = w.n[LONG], 0
    bound = paths <= FEW or shortened > 0  # whether a limit that was asked for may bind
    if chunks >= 0:
        floor = left_by(w, room, report[PAID]) * nearly
        hopeless = q.closed and most_of_ends(net, q) <= floor
        length = 0 if hopeless else find_single(net, pw, q, room, hops, floor)
        if count == 0 and length > 0 and path_share(room, pw.single, length) < 1.0 and not q.cycle:
            for h in range(length):
                pw.paths[0, h] = pw.single[h]
            pw.length[0], pw.flow[0] = length, q.amounts[0]
            count = grow(net, w, m, q, pw.paths, pw.length, pw.flow, 1, room, paths, hops, edges, flows)
            report[PAID] = paid_by(w) if count > 0 else 0.0
    left = left_by(w, room, report[PAID])
    report[MOST] = report[UPPER] if bound else report[PAID]
    report[ASTRAY] = promising_astray(net, w, q, room, report[LEVEL], left, max(report[MOST] - left, 0.0))
    report[LENGTH], report[SPLIT] = length, 0
    tight = count <= TIGHT and taken_by(w, room) > ROOMY
    fits = q.closed and not bound and not tight and count > 0  # the flow is the best there is, but for fees and pieces
    if chunks > 0 and (report[MORE] if fits else report[UPPER] - report[PAID]) > report[UPPER] * PROVEN:
        where = pw.every
        if q.closed and net.src.size > LARGE and shortened == 0:  # they know of long ways
            make_beam(net, pw, pw.seeds, seeds, length)
            where = pw.beam
        enough = report[UPPER] * (1.0 - WORTHWHILE)
        if bound and q.closed and report[PAID] < enough:
            few = min(paths, FEW if paths <= FEW or shortened > MUCH else A_FEW)
            report[SPLIT] = exchange_paths(net, ww, pw, where, q, room, hops, chunks, few, left, enough)
        else:
            report[SPLIT] = split_greedy(
                net, pw, where, q, room, hops, chunks, min(paths, MAX_PATHS - 1), left * nearly
            )
    return count


@inlined
def paid_by(w: Work) -> float:
    """The output of the flow (scaled), without what a cycle keeps of its input."""
    total = 0.0
    for e in range(w.n[EDGES]):
        if w.e_use[e] and w.e_b[e] == 0 and w.e_edge[e] != HOLD:
            total += w.e_y[e]
    return float(total * w.unit[0])


@inlined
def left_by(w: Work, room: Room, paid: float) -> float:
    """What is left of the flow's output (scaled) after its fee."""
    return float(max(paid - fees_of(w, room) * w.unit[0], 0.0))
