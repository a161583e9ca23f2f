"""A split of few paths, improved by exchanging them one by one.

A route of the dual limited to few paths is no mixture of all its paths: at tokens where several pools meet, any of the
paths may go on through any of them, and each such freedom counts as a path. Paths of their own need none. So a greedy
split's paths are taken up here: each in turn makes room for the one that pays most beside the others, the amount is
divided anew, and what pays more is kept. A second round begins with as many equal chunks as there may be paths, as the
exchanges end where no single one helps.
"""

from __future__ import annotations

from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.net import IntTable, Net
from millrace.routing.parts import FEW as FEW
from millrace.routing.parts import Parts, divide, forget
from millrace.routing.pathsearch import Beam, PathWork, best_path, run_path, split_greedy
from millrace.routing.shares import WHOLE, Room, path_share

ROUNDS = 4  # times each path is exchanged at most
SMALLER = 0.4  # of an amount: paths for less are tried, too; the division finds what they are best given
LEAST = 0.25  # of an equal part: paths that are given less make room for one with that much
HELPS = 1e-7  # relative gain that is worth an exchange
STEPS, LAST_STEPS = 12, 40  # of a division: while exchanging, at the end
CLOSE, CLOSEST = 1e-7, 1e-11  # its tolerances


@kernel
def exchange_paths(
    net: Net,
    pw: PathWork,
    where: Beam,
    q: Search,
    room: Room,
    hops: int,
    chunks: int,
    paths: int,
    floor: float,
    enough: float,
) -> int:
    """The best split of at most `paths` (up to `FEW`) that pays more than `floor`, as `split_greedy` leaves it.

    One that pays `enough` needs no second round. Returns the number of its paths, 0 if there is none.
    """
    found = 0
    for start in (chunks, paths):
        count = split_greedy(net, pw, where, q, room, hops, start, paths, 0.0)
        count = _take_up(pw, q, count)
        if count == 0:
            continue
        count, value = _exchange(net, pw, where, q, room, hops, count, paths)
        if value > floor:
            floor, found = value, count
            keep(pw, count)
        if floor >= enough:
            break
    for p in range(found):
        pw.flow[p] = pw.kept.flow[p]
        pw.length[p] = copy(pw.kept.paths, pw.paths, p, pw.kept.length[p])
    return found


@inlined
def copy(source: IntTable, target: IntTable, p: int, length: int) -> int:
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
        x.length[p] = copy(pw.paths, x.paths, p, pw.length[p])
    return count


@inlined
def keep(pw: PathWork, count: int) -> None:
    for p in range(count):
        pw.kept.flow[p] = pw.parts.flow[p]
        pw.kept.length[p] = copy(pw.parts.paths, pw.kept.paths, p, pw.parts.length[p])


@kernel
def _exchange(
    net: Net, pw: PathWork, where: Beam, q: Search, room: Room, hops: int, count: int, paths: int
) -> tuple[int, float]:
    """Exchange paths, or add one where there may be more, until none helps; the number of paths and what they pay."""
    x, amount = pw.parts, q.amounts[0]
    value = divide(net, pw.used, x, count, amount, CLOSE, STEPS)
    p, idle = 0, 0
    for _ in range(ROUNDS * paths):
        if idle > count:
            break
        p = 0 if p > count or p == paths else p
        part = x.flow[p] if p < count else amount / (count + 1)
        part = max(part, LEAST * amount / paths)
        idle += 1
        for size in (1.0, SMALLER):
            better = _try_instead(net, pw, where, q, room, hops, p, count, part * size, value)
            if better > 0.0:
                value, count, idle = better, max(count, p + 1), 0
                break
        p += 1
    value = divide(net, pw.used, x, count, amount, CLOSEST, LAST_STEPS)
    return count, value


@inlined
def _try_instead(
    net: Net,
    pw: PathWork,
    where: Beam,
    q: Search,
    room: Room,
    hops: int,
    p: int,
    count: int,
    part: float,
    value: float,
) -> float:
    """Put the path that pays most for `part` in the place of path `p`, if all then pay more than `value`.

    Returns what they pay; 0 if nothing has changed.
    """
    x, amount = pw.parts, q.amounts[0]
    taken = 0.0
    for i in range(count):
        taken += path_share(room, x.paths[i], x.length[i]) if i != p else 0.0
    scale, _ = make_room(net, pw, count, p, amount, part)
    if scale < 0.0:
        return 0.0
    pw.work[0] = 0
    length = best_path(net, pw, where, q, room, WHOLE - taken, part, hops, 0.0, pw.other, 0.0)
    forget(pw.used, x, count)
    if length == 0 or taken + path_share(room, pw.other, length) > WHOLE or is_there(pw, x, count, length):
        return 0.0
    before = put_in(pw, x, count, p, length, part, scale)
    reached = divide(net, pw.used, x, max(count, p + 1), amount, CLOSE, STEPS)
    if reached > value * (1.0 + HELPS):
        return reached
    put_back(pw, x, count, p, before)
    return 0.0


@inlined
def make_room(net: Net, pw: PathWork, count: int, p: int, amount: float, part: float) -> tuple[float, float]:
    """Let all paths but number `p` leave `part` of the amount: book them, and return the factor of their inputs.

    Also what they pay. The factor is negative, and nothing booked, where they cannot.
    """
    x = pw.parts
    others, paid = amount, 0.0
    for i in range(count):
        pw.old[i] = x.flow[i]
    others -= x.flow[p] if p < count else 0.0
    if others <= 0.0 and part < amount:
        return -1.0, 0.0
    scale = (amount - part) / others if others > 0.0 else 0.0
    for i in range(count):
        if i != p:
            paid += run_path(net, pw, x.paths[i], x.length[i], x.flow[i] * scale, True)
    return scale, paid


@inlined
def put_in(pw: PathWork, x: Parts, count: int, p: int, length: int, part: float, scale: float) -> int:
    """Make the other path number `p`, with its part; returns the length of the one that was there."""
    before = x.length[p] if p < count else 0
    for h in range(x.paths.shape[1]):
        pw.replaced[h], x.paths[p, h] = x.paths[p, h], pw.other[h]
    for i in range(count):
        x.flow[i] *= scale
    x.length[p], x.flow[p] = length, part
    return int(before)


@inlined
def put_back(pw: PathWork, x: Parts, count: int, p: int, before: int) -> None:
    """Undo `put_in`."""
    for h in range(x.paths.shape[1]):
        x.paths[p, h] = pw.replaced[h]
    for i in range(count):
        x.flow[i] = pw.old[i]
    x.length[p] = before


@inlined
def is_there(pw: PathWork, x: Parts, count: int, length: int) -> bool:
    """Whether the path that was found is one of those there are."""
    for i in range(count):
        same = x.length[i] == length
        for h in range(length):
            same = same and x.paths[i, h] == pw.other[h]
        if same:
            return True
    return False
