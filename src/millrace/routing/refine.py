"""Improves a pruned route: edges are added and exchanged for dropped ones as long as that helps."""

from __future__ import annotations

from millrace.routing.candidates import Search
from millrace.routing.columns import NEWTON_STEPS, TOLERANCE, add_columns, marginal, sweep
from millrace.routing.compiled import inlined, kernel
from millrace.routing.moves import LONGEST, Moves, best_addition, best_exchange, list_moves, make_move, weigh_moves
from millrace.routing.net import Net
from millrace.routing.newton import evaluate, minimise, settle_flows
from millrace.routing.profitable import list_profitable
from millrace.routing.prune import count_paths, mark_ways, prune, shorten, trim
from millrace.routing.shares import WHOLE, Room, fees_of, share_of
from millrace.routing.work import EDGES, TOKENS, Work, compact

STEPS = 64  # additions and exchanges tried in one climb
REFUSALS = 3  # of them in a row that may fail; each leaves one edge out of the next ones
KICK = 6  # moves made at once before pruning and climbing again
SMALL = 64  # edges: larger routes lose too little by a single one for a second climb
HELPS = 1e-9  # relative gain that is worth a step


@kernel
def refine(net: Net, w: Work, m: Moves, q: Search, room: Room, paths: int, hops: int) -> None:
    """Improve the route of the live edges by local search, within the limits, which it holds.

    At the optimum of a set of edges the dual value is its output, so values, less fees, compare routes directly. Where
    what a transaction may do is what binds, the route reached is pushed off its summit once.
    """
    best = 0.0
    sources = q.sources.size
    m.hops[0] = hops
    following, _ = settle_route(w, room, sources)
    if count_paths(w, sources, following) < paths:
        _climb(net, w, m, sources, room, paths)
    _widen(net, w, room, q)
    for attempt in range(2):
        value, used, taken = _climb(net, w, m, sources, room, paths)
        if attempt == 0 or value > best + abs(best) * HELPS:
            best = value
            for e in range(w.n[EDGES]):
                m.summit[e] = w.e_best[e]
            for t in range(w.n[TOKENS]):
                m.summit_s[t] = w.t_best[t]
        another = taken * (1.0 + 1.0 / max(used, 1))  # with one edge more of the usual size
        if attempt == 1 or another <= WHOLE or used > SMALL:
            break
        for i in range(min(list_moves(net, w, m, sources), KICK)):
            make_move(w, m, i)
        minimise(net, w, TOLERANCE, NEWTON_STEPS)
        if not (prune(net, w, sources, room, paths) and shorten(net, w, sources, hops)):
            break
    for e in range(w.n[EDGES]):
        w.e_best[e] = m.summit[e]
    for t in range(w.n[TOKENS]):
        w.t_best[t] = m.summit_s[t]
    _restore(net, w)


@kernel
def _widen(net: Net, w: Work, room: Room, q: Search) -> None:
    """Exchange the dead edges for those that would trade at the route's own prices."""
    compact(w, q.sources.size, 0.0)
    list_profitable(net, w, q, marginal(net, w, q))
    count, _ = sweep(net, w)
    first = w.n[EDGES]
    add_columns(net, w, q, count)
    for e in range(first, w.n[EDGES]):
        w.e_alive[e] = False
    evaluate(net, w)
    settle_route(w, room, q.sources.size)


@kernel
def _climb(net: Net, w: Work, m: Moves, sources: int, room: Room, paths: int) -> tuple[float, int, float]:
    """Add and exchange edges until nothing helps; returns the value less fees, the number of edges and their share.

    The route reached is what is remembered, too.
    """
    value, used, refused, taken = 0.0, 0, 0, 0.0
    reached, out = evaluate(net, w), -1
    m.refused[:] = False
    for _ in range(STEPS):
        following, with_it = settle_route(w, room, sources)
        apart = count_paths(w, sources, following)
        spare, short = paths - apart, _note_ways(w, m, sources, following + 1 + sources - apart)
        reached -= fees_of(w, room)
        helps = following > 0 and reached > value + abs(value) * HELPS
        if used == 0 or (with_it <= WHOLE and spare >= 0 and short and helps):
            value, used, taken = reached, following, with_it
            _remember(w)
            if refused > 0:
                m.refused[:] = False
                refused = 0
        else:
            _restore(net, w)
            settle_route(w, room, sources)
            apart = count_paths(w, sources, used)
            spare, _ = paths - apart, _note_ways(w, m, sources, used + 1 + sources - apart)
            refused += 1
            if out < 0 or refused > REFUSALS:
                break
            m.refused[out] = True
        promising, out = _take_step(net, w, m, sources, room, WHOLE - taken, spare, abs(value) * HELPS)
        if not promising:
            break
        reached = minimise(net, w, TOLERANCE, NEWTON_STEPS)
    _restore(net, w)
    settle_route(w, room, sources)
    return value, used, taken


@inlined
def _take_step(
    net: Net, w: Work, m: Moves, sources: int, room: Room, left: float, spare: int, least: float
) -> tuple[bool, int]:
    """Make the best addition if there is room for it, else the best exchange; also returns the edge that goes, or -1.

    `left` is the share that nothing takes yet. False if nothing gains more than `least`.
    """
    count = list_moves(net, w, m, sources)
    if count == 0 and room.price <= 0.0:
        return False, -1
    weigh_moves(w, m, room, count)
    choice = best_addition(m, count, left) if spare > 0 else -1
    if choice >= 0:
        make_move(w, m, choice)
        return True, -1
    gain, out, choice, also = best_exchange(net, w, m, sources, room, count, left, spare)
    if out < 0 or gain <= least:
        return False, -1
    w.e_alive[out] = False
    if choice >= 0:
        make_move(w, m, choice)
    if also >= 0:
        make_move(w, m, also)
    return True, out


@kernel
def settle_route(w: Work, room: Room, sources: int) -> tuple[int, float]:
    """Let only what carries flow from the sources to the sink live on: how many edges that is, and their share."""
    settle_flows(w)
    trim(w, sources)
    used, taken = 0, 0.0
    for e in range(w.n[EDGES]):
        w.e_alive[e] = w.e_use[e]
        if w.e_use[e]:
            used += 1
            taken += share_of(w, room, e)
        else:
            w.e_z[e], w.e_d[e], w.e_y[e], w.e_w[e] = 0.0, 0.0, 0.0, 0.0
    return used, taken


@inlined
def _note_ways(w: Work, m: Moves, sources: int, tokens: int) -> bool:
    """Note the most pools on the ways to each token of the route, and on from it; whether no way is too long.

    Over few tokens no way is, nor with a move more: then nothing is noted.
    """
    if tokens + LONGEST - 2 <= m.hops[0]:
        if m.noted[0]:
            m.ahead[:] = 0
            m.behind[:] = 0
            m.noted[0] = False
        return True
    longest, m.noted[0] = mark_ways(w, sources, False), True
    for t in range(w.n[TOKENS]):
        m.ahead[t], m.behind[t] = w.t_mark[t], w.t_list[t]
    return bool(longest <= m.hops[0])


@inlined
def _remember(w: Work) -> None:
    for e in range(w.n[EDGES]):
        w.e_best[e] = w.e_alive[e]
    for t in range(w.n[TOKENS]):
        w.t_best[t] = w.t_s[t]


@kernel
def _restore(net: Net, w: Work) -> None:
    """Go back to the route that is remembered."""
    for e in range(w.n[EDGES]):
        w.e_alive[e] = w.e_best[e]
    for t in range(w.n[TOKENS]):
        w.t_s[t] = w.t_best[t]
    evaluate(net, w)
