"""A split of few paths, improved by exchanging them one by one.

A route of the dual limited to few paths is no mixture of all its paths: at tokens where several pools meet, any of the
paths may go on through any of them, and each such freedom counts as a path. Paths of their own need none. So the paths
of a split in chunks are taken up here: each in turn makes room for the one that pays most beside the others, or one
more is added; the amount is divided anew, and what pays more, less the fees, is kept. A second round begins with more
chunks, as the exchanges end where no single one helps.

Where no cycle earns, paths are looked for by `pathsearch.py`, else by `widepath.py`.
"""

from __future__ import annotations

from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import Ints, IntTable, Net
from millrace.routing.parts import FEW as FEW
from millrace.routing.parts import Parts, divide, forget, total_output
from millrace.routing.pathsearch import Beam, PathWork, best_path, run_path, split_greedy
from millrace.routing.shares import WHOLE, Room, path_share
from millrace.routing.together import can_meet
from millrace.routing.widepath import BETTER, WideWork, rates_by_hops, wide_round

ROUNDS = 4  # times each path is exchanged at most; not among cycles
SMALLER = 0.4  # of an amount: paths for less are tried, too; the division finds what they are best given
LEAST = 0.25  # of an equal part: paths that are given less make room for one with that much
HELPS = 1e-7  # relative gain that is worth an exchange
STEPS, LAST_STEPS = 12, 40  # of a division: while exchanging, at the end
CLOSE, CLOSEST = 1e-7, 1e-11  # its tolerances
SPLIT_BUDGET = 20_000  # edges evaluated in search of one path of a split among cycles
CHUNKS = 4  # of the amount, of which the first paths of a split among cycles are made
STILL_VALID = 0.9  # of what a chunk pays: what is known of the ways on holds for chunks that pay at least this part
PROMISING = 0.999  # times what a new path must pay where the others stay as they are: the division is made anew
NOBODY = -1  # no path
IDLE = 1e-6  # of the amount: a path that sells less is none


@kernel
def exchange_paths(
    net: Net, ww: WideWork, pw: PathWork, where: Beam, q: Search, room: Room, hops: int, chunks: int, paths: int,
    floor: float, enough: float,
) -> int:  # fmt: skip
    """The best split of at most `paths` (up to `FEW`) that pays more than `floor`, as `split_greedy` leaves it.

    One that pays `enough` needs no second round. Returns the number of its paths, 0 if there is none.
    `ww` is used by nobody.
    """
    best, found = floor, 0
    for start in (chunks, paths):
        count = _take_up(pw, q, split_greedy(net, pw, where, q, room, hops, start, paths, 0.0))
        if count > 0:
            best, found = _exchange(net, ww, pw, where, q, room, hops, paths, count, ROUNDS * paths, False, best, found)
        if best >= enough:
            break
    return _hand_over(pw, pw.kept, found)


@kernel
def first_paths(net: Net, ww: WideWork, pw: PathWork, q: Search, room: Room, hops: int, most: int, start: Ints) -> int:
    """Send the amount in few equal chunks, each along the path that is best by then, of any order: a split of how many.

    They are at most `most`; the first of them is `start`.
    """
    x, chunk = pw.parts, q.amounts[0] / CHUNKS
    for h in range(start.size):
        x.paths[0, h] = start[h]
    x.length[0], x.flow[0], count, known = start.size, 0.0, 1, 1e300
    taken = path_share(room, start, start.size)
    for _ in range(CHUNKS):
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
                x.length[count], x.flow[count] = found, 0.0
                for h in range(found):
                    x.paths[count, h] = ww.path[h]
                choice = count
                count += 1
        run_path(net, pw, x.paths[choice], x.length[choice], chunk, True)
        x.flow[choice] += chunk
    forget(pw.used, x, count)
    return _hand_over(pw, x, count)


@kernel
def exchange_wide(
    net: Net, ww: WideWork, pw: PathWork, q: Search, room: Room, hops: int, limit: int, steps: int, count: int
) -> tuple[int, float]:
    """The `count` paths of a split, exchanged: at most `limit` paths (up to `FEW`), how many, and what they leave.

    So many `steps` look for another one. Trades of several paths in one pool are made at once where that can be, and
    count as one. `ww.known` says for what output the ways on are known.
    """
    pw.meeting.within[0], pw.meeting.within[1] = limit, hops
    count = _take_up(pw, q, count)
    best, found = _exchange(net, ww, pw, pw.every, q, room, hops, min(limit, FEW), count, steps, True, 0.0, 0)
    return _hand_over(pw, pw.kept, found), best


@inlined
def _copy(source: IntTable, target: IntTable, p: int, length: int) -> int:
    """Copy path number `p`, of that length, which is returned."""
    for h in range(length):
        target[p, h] = source[p, h]
    return length


@inlined
def _take_up(pw: PathWork, q: Search, count: int) -> int:
    """Make the split's paths the ones to improve, with all of the amount."""
    x, total = pw.parts, 0.0
    for p in range(count):
        total += pw.flow[p]
    for p in range(count):
        x.flow[p] = pw.flow[p] * (q.amounts[0] / total)
        x.length[p] = _copy(pw.paths, x.paths, p, pw.length[p])
    return count


@inlined
def _hand_over(pw: PathWork, x: Parts, count: int) -> int:
    """Leave paths as `split_greedy` does."""
    for p in range(count):
        pw.flow[p] = x.flow[p]
        pw.length[p] = _copy(x.paths, pw.paths, p, x.length[p])
    return count


@kernel
def _exchange(
    net: Net, ww: WideWork, pw: PathWork, where: Beam, q: Search, room: Room, hops: int, most: int, count: int,
    steps: int, wide: bool, best: float, found: int,
) -> tuple[float, int]:  # fmt: skip
    """Exchange paths until none helps, in at most `steps`.

    If they then pay more than the `best`, of `found` paths, they are kept instead. Returns what is best, and of how
    many paths. `ww` is used where the search is `wide`.
    """
    x, amount = pw.parts, q.amounts[0]
    value = _less_fees(net, pw, x, count, room, wide, divide(net, pw.used, x, count, amount, CLOSE, STEPS))
    while value <= 0.0 and count > 1:  # too long, or not worth its fees
        count = _without_thinnest(x, count, amount)
        value = _less_fees(net, pw, x, count, room, wide, divide(net, pw.used, x, count, amount, CLOSE, STEPS))
    p, idle = count if wide else 0, 0
    for _ in range(steps):
        if idle > count:
            break
        p = 0 if p > count or p == most else p
        part = x.flow[p] if p < count else amount / (count + 1)
        part = max(part, LEAST * amount / (count + 1 if wide else most))
        idle += 1
        better, left = _try_without(net, pw, q, room, p, count, value, wide)
        if better > 0.0:
            value, count, idle = better, left, 0
            continue
        for size in (1.0, SMALLER):
            better = _try_instead(net, ww, pw, where, q, room, hops, p, count, part * size, value, wide)
            if better > 0.0:
                value, count, idle = better, max(count, p + 1), 0
                break
        p += 1
    divide(net, pw.used, x, count, amount, CLOSEST, LAST_STEPS)
    count = _without_idle(x, count, amount)
    value = _less_fees(net, pw, x, count, room, wide, total_output(net, pw.used, x, count))
    if value > best:
        best, found = value, count
        for p in range(count):
            pw.kept.flow[p] = x.flow[p]
            pw.kept.length[p] = _copy(x.paths, pw.kept.paths, p, x.length[p])
    return best, found


@inlined
def _try_without(
    net: Net, pw: PathWork, q: Search, room: Room, p: int, count: int, value: float, wide: bool
) -> tuple[float, int]:
    """Leave path `p` out, and those that sell nothing, if the others pay more than `value`.

    Returns what they pay, 0 if nothing has changed, and how many there are.
    """
    x, amount = pw.parts, q.amounts[0]
    if p >= count or count == 1 or x.flow[p] >= amount:
        return 0.0, count
    for i in range(count):
        pw.old[i] = x.flow[i]
    scale = amount / (amount - x.flow[p])
    for i in range(count):
        x.flow[i] = 0.0 if i == p else x.flow[i] * scale
    reached = _less_fees(net, pw, x, count, room, wide, total_output(net, pw.used, x, count))
    if reached > value:
        return reached, _without_idle(x, count, 0.0)
    for i in range(count):
        x.flow[i] = pw.old[i]
    return 0.0, count


@inlined
def _try_instead(
    net: Net, ww: WideWork, pw: PathWork, where: Beam, q: Search, room: Room, hops: int, p: int, count: int,
    part: float, value: float, wide: bool,
) -> float:  # fmt: skip
    """Put the path that pays most for `part` in the place of path `p`, if all then pay more than `value`, less fees.

    `ww.known` says for what output the ways on are known. Returns what they pay, 0 if nothing changed.
    """
    x, amount, known, after = pw.parts, q.amounts[0], ww.known, max(count, p + 1)
    if p == 0 and count == 1 and wide:
        return 0.0
    others, _, _ = _fees(pw, x, count, room, wide, p)
    scale, paid = _make_room(net, pw, count, p, amount, part)
    if scale < 0.0:
        return 0.0
    found = 0
    if wide:
        floor = max(value - (paid - others), 0.0) * PROMISING
        floor = max(floor, _most_of(net, pw, x, count, room, part) * BETTER)  # what is there already is none
        if floor < known[0]:
            known[0] = floor * SMALLER * STILL_VALID
            rates_by_hops(net, ww, q, amount, hops, known[0])
        found, _ = wide_round(net, ww, pw.used, q, part, hops, floor, 1, SPLIT_BUDGET, room, WHOLE, room.price)
        for h in range(found):
            pw.other[h] = ww.path[h]
    else:
        pw.work[0] = 0
        found = best_path(net, pw, where, q, room, WHOLE, part, hops, 0.0, pw.other, room.price)
    forget(pw.used, x, count)
    if found == 0 or _is_there(pw, x, count, found):
        return 0.0
    before = _put_in(pw, x, count, p, found, part, scale)
    reached = _less_fees(net, pw, x, after, room, wide, divide(net, pw.used, x, after, amount, CLOSE, STEPS))
    if reached > value * (1.0 + HELPS):
        return reached
    _put_back(pw, x, count, p, before)
    return 0.0


@inlined
def _make_room(net: Net, pw: PathWork, count: int, p: int, amount: float, part: float) -> tuple[float, float]:
    """Let all paths but number `p` leave `part` of the amount: book them, and return the factor of their inputs.

    Also what they pay. The factor is negative, and nothing booked, where they cannot.
    """
    x, paid = pw.parts, 0.0
    for i in range(count):
        pw.old[i] = x.flow[i]
    others = amount - (x.flow[p] if p < count else 0.0)
    if others <= 0.0 and part < amount:
        return -1.0, 0.0
    scale = (amount - part) / others if others > 0.0 else 0.0
    for i in range(count):
        if i != p:
            paid += run_path(net, pw, x.paths[i], x.length[i], x.flow[i] * scale, True)
    return scale, paid


@inlined
def _most_of(net: Net, pw: PathWork, x: Parts, count: int, room: Room, part: float) -> float:
    """What the best of the paths pays for `part` more than is booked, less the fees of pools that nobody uses."""
    most = 0.0
    for i in range(count):
        fees = 0.0
        for h in range(x.length[i]):
            free = pw.used[x.paths[i, h]] == 0.0 and room.price > 0.0
            fees += room.fee[x.paths[i, h]] * room.price if free else 0.0
        most = max(most, run_path(net, pw, x.paths[i], x.length[i], part, False) - fees)
    return most


@inlined
def _put_in(pw: PathWork, x: Parts, count: int, p: int, length: int, part: float, scale: float) -> int:
    """Make the other path number `p`, with its part; returns the length of the one that was there."""
    before = x.length[p] if p < count else 0
    for h in range(x.paths.shape[1]):
        pw.replaced[h], x.paths[p, h] = x.paths[p, h], pw.other[h]
    for i in range(count):
        x.flow[i] *= scale
    x.length[p], x.flow[p] = length, part
    return int(before)


@inlined
def _put_back(pw: PathWork, x: Parts, count: int, p: int, before: int) -> None:
    """Undo `_put_in`."""
    for h in range(x.paths.shape[1]):
        x.paths[p, h] = pw.replaced[h]
    for i in range(count):
        x.flow[i] = pw.old[i]
    x.length[p] = before


@inlined
def _is_there(pw: PathWork, x: Parts, count: int, length: int) -> bool:
    """Whether the path that was found is one of those there are."""
    for i in range(count):
        same = x.length[i] == length
        for h in range(length):
            same = same and x.paths[i, h] == pw.other[h]
        if same:
            return True
    return False


@inlined
def _fees(pw: PathWork, x: Parts, count: int, room: Room, together: bool, without: int) -> tuple[float, float, bool]:
    """The fee of the trades of those paths that sell something, their share of the transaction, and if any share pools.

    Of paths that trade `together` each pool counts once. Path number `without` does not count.
    """
    fees, taken, shared = 0.0, 0.0, False
    for i in range(count):
        for h in range(x.length[i] if x.flow[i] > 0.0 and i != without else 0):
            e = x.paths[i, h]
            shared = shared or pw.used[e] > 0.0
            if pw.used[e] == 0.0 or not together:
                pw.used[e] = 1.0
                taken += room.share[e]
                fees += room.fee[e] * room.price if room.price > 0.0 else 0.0
    forget(pw.used, x, count)
    return fees, taken, shared


@inlined
def _less_fees(net: Net, pw: PathWork, x: Parts, count: int, room: Room, together: bool, paid: float) -> float:
    """What paths leave of their output after the fees; 0 if they are too long for the transaction."""
    fees, taken, shared = _fees(pw, x, count, room, together, NOBODY)
    if together and shared and not can_meet(net, pw.meeting, x, count):
        fees, taken, shared = _fees(pw, x, count, room, False, NOBODY)
    return paid - fees if taken <= WHOLE else 0.0


@inlined
def _without_thinnest(x: Parts, count: int, amount: float) -> int:
    """Leave out the path that sells least, and those that sell nothing; how many there are then."""
    thinnest = 0
    for i in range(count):
        thinnest = i if x.flow[i] < x.flow[thinnest] else thinnest
    left = amount - x.flow[thinnest]
    for i in range(count):
        x.flow[i] *= amount / left
    x.flow[thinnest] = 0.0
    return _without_idle(x, count, 0.0)


@inlined
def _without_idle(x: Parts, count: int, amount: float) -> int:
    """Leave out paths that sell next to nothing; how many there are then."""
    kept = 0
    for i in range(count):
        if x.flow[i] > amount * IDLE:
            for h in range(x.paths.shape[1]):
                x.paths[kept, h] = x.paths[i, h]
            x.length[kept], x.flow[kept] = x.length[i], x.flow[i]
            kept += 1
    return kept
