"""From the dual's flows to a route a contract can execute: no circulation, few pools, few paths, an order."""

from __future__ import annotations

from millrace.routing.columns import NEWTON_STEPS, TOLERANCE
from millrace.routing.compiled import inlined, kernel
from millrace.routing.linear import inverse_norm
from millrace.routing.net import Net
from millrace.routing.newton import factor_hessian, minimise, settle_flows
from millrace.routing.ranking import nth_largest
from millrace.routing.shares import WHOLE, Room, fee_of, share_of, taken_by
from millrace.routing.work import EDGES, HOLD, LONG, TOKENS, Work

KEEP = 0.7  # part of the edges that stays in one round of pruning
KEEP_FAR = 0.5  # the same while the route has more than four times the edges wanted
ROUNDS = 60
SHORTER = 24  # edges dropped where ways are too long, each solved without: with 8 a flow of 27 was given up, 53 bp lost
FAR = 1000  # pools: more than are on any way
EXACT_LOSSES_UP_TO = 96  # edges; with more, edges are ranked by profit alone


@kernel
def order_edges(w: Work, sources: int) -> int:
    """List the used edges so that a token is sold only after everything that feeds it.

    Returns how many could be listed; fewer than are used means that there is a cycle.
    """
    tokens = w.n[TOKENS]
    for t in range(tokens):
        w.t_in[t] = 0
        w.t_out[t] = 0
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            w.t_in[w.e_b[e]] += 1
            w.t_out[w.e_a[e]] += 1
    sold = 0  # the sales of token t are those up to t_out[t] in c_edge, in the order of edges
    for t in range(tokens):
        sold += w.t_out[t]
        w.t_out[t] = sold - w.t_out[t]
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            w.c_edge[w.t_out[w.e_a[e]]] = e
            w.t_out[w.e_a[e]] += 1
    tail = 0
    for t in range(tokens):
        if w.t_in[t] == 0:
            w.t_queue[tail] = t
            tail += 1
    head, count = 0, 0
    while head < tail:
        t = w.t_queue[head]
        head += 1
        for i in range(w.t_out[t - 1] if t > 0 else 0, w.t_out[t]):
            e = w.c_edge[i]
            w.e_order[count] = e
            count += 1
            w.t_in[w.e_b[e]] -= 1
            if w.t_in[w.e_b[e]] == 0:
                w.t_queue[tail] = w.e_b[e]
                tail += 1
    return count


@kernel
def trim(w: Work, sources: int) -> None:
    """Drop used edges that lead nowhere or come from nowhere."""
    changed = True
    while changed:
        changed = False
        for t in range(w.n[TOKENS]):
            w.t_in[t] = 1 if 1 <= t <= sources else 0
            w.t_out[t] = 1 if t == 0 else 0
        for e in range(w.n[EDGES]):
            if w.e_use[e]:
                w.t_in[w.e_b[e]] += 1
                w.t_out[w.e_a[e]] += 1
        for e in range(w.n[EDGES]):
            if w.e_use[e] and (w.t_in[w.e_a[e]] == 0 or w.t_out[w.e_b[e]] == 0):
                w.e_use[e] = False
                changed = True


@kernel
def _cancel_one(w: Work) -> bool:
    """Take the same value off every edge of one cycle among the tokens `order_edges` could not list."""
    tokens = w.n[TOKENS]
    for t in range(tokens):
        w.t_list[t] = -1
        w.t_mark[t] = 0
    for e in range(w.n[EDGES]):
        a, b = w.e_a[e], w.e_b[e]
        if w.e_use[e] and w.t_in[a] > 0 and w.t_in[b] > 0 and (w.t_list[b] < 0 or w.e_w[e] > w.e_w[w.t_list[b]]):
            w.t_list[b] = e
    token = -1
    for t in range(tokens):
        if w.t_in[t] > 0 and w.t_list[t] >= 0:
            token = t
            break
    if token < 0:
        return False
    while w.t_mark[token] == 0:
        w.t_mark[token] = 1
        token = w.e_a[w.t_list[token]]
    least, start = 1e300, token
    while True:
        least = min(least, w.e_w[w.t_list[token]])
        token = w.e_a[w.t_list[token]]
        if token == start:
            break
    while True:
        e = w.t_list[token]
        token = w.e_a[e]
        left = w.e_w[e] - least
        # What is beyond all numbers goes, too: with an edge less every time this comes to an end.
        w.e_w[e] = left if left > 1e-12 and w.e_w[e] < 1e300 else 0.0
        if w.e_w[e] == 0.0:
            w.e_use[e] = False
        if token == start:
            break
    return True


@kernel
def cancel_circulations(w: Work, sources: int) -> int:
    """Make the used edges acyclic. A market with arbitrage has circulations in its optimum."""
    cancelled = 0
    while True:
        used = 0
        for e in range(w.n[EDGES]):
            if w.e_use[e]:
                used += 1
        if order_edges(w, sources) == used or not _cancel_one(w):
            return cancelled
        cancelled += 1


@kernel
def make_acyclic(net: Net, w: Work, sources: int) -> None:
    """Cancel circulations and solve again on what is left, until the flow is a DAG by itself."""
    for attempt in range(4):
        settle_flows(w)
        if cancel_circulations(w, sources) == 0:
            return
        for e in range(w.n[EDGES]):
            w.e_alive[e] = w.e_use[e]
        if attempt < 3:
            minimise(net, w, TOLERANCE, NEWTON_STEPS)


@kernel
def _losses(w: Work) -> None:
    """Output lost if one edge goes and the rest is optimised again: profit / (1 - leverage).

    Exact for constant product while the set of active edges stays (rank-one downdate of the quadratic).
    """
    factor_hessian(w)
    for e in range(w.n[EDGES]):
        w.e_loss[e] = 0.0
        if not w.e_alive[e] or w.e_d[e] <= 0.0:
            continue
        a, b = w.e_a[e], w.e_b[e]
        if w.e_curve[e] >= 0:
            sa, sb = w.t_s[a], w.t_s[b]
            w.e_loss[e] = 4.0 * max(sb * sb * w.e_y[e] - sa * sa * w.e_d[e], 0.0)
            continue
        if a != 0:
            w.t_step[a] = -w.e_ca[e]
        if b != 0:
            w.t_step[b] = w.e_cb[e]
        leverage = inverse_norm(w.hess, max(a, b), w.t_step)
        w.e_loss[e] = w.e_z[e] * w.e_z[e] / max(1e-9, 1.0 - leverage)


@kernel
def _profits(w: Work) -> None:
    """The cheap ranking: what each edge earns at the dual prices."""
    for e in range(w.n[EDGES]):
        w.e_loss[e] = 0.0
        if w.e_alive[e] and w.e_d[e] > 0.0:
            sa, sb = w.t_s[w.e_a[e]], w.t_s[w.e_b[e]]
            w.e_loss[e] = max(sb * sb * w.e_y[e] - sa * sa * w.e_d[e], 1e-300)


@kernel
def drop_far(net: Net, w: Work, sources: int, hops: int) -> None:
    """Drop the used edges that are only on ways of more than `hops` pools, and optimise again, until there are none.

    `n[LONG]` then says whether anything has been dropped: 1 if it was here, and one more for each edge that `shorten`
    drops later on.
    """
    w.n[LONG] = 0
    while _mark_long(w, sources, hops, True):
        w.n[LONG] = 1
        for e in range(w.n[EDGES]):
            w.e_alive[e] = w.e_alive[e] and not w.e_best[e]
        minimise(net, w, TOLERANCE, NEWTON_STEPS)
        settle_flows(w)


@kernel
def shorten(net: Net, w: Work, sources: int, hops: int) -> bool:
    """Drop the edge that loses least of those on ways of more than `hops` pools, until there is no such way.

    Optimises again after each. Of a single way that is too long nothing is left. False if a few edges are not enough.
    """
    settle_flows(w)
    dropped = 0
    while _mark_long(w, sources, hops, False):
        if dropped == SHORTER:
            return False
        dropped += 1
        w.n[LONG] += 1
        _losses(w)
        least = -1
        for e in range(w.n[EDGES]):
            if w.e_best[e] and (least < 0 or w.e_loss[e] < w.e_loss[least]):
                least = e
        w.e_alive[least] = False
        minimise(net, w, TOLERANCE, NEWTON_STEPS)
        settle_flows(w)
    return True


@inlined
def _mark_long(w: Work, sources: int, hops: int, all_of_them: bool) -> bool:
    """Mark the used edges on ways of more than `hops` pools in `e_best`; whether there are any.

    With `all_of_them` only those that are on no other way.
    """
    found = False
    mark_ways(w, sources, all_of_them)
    for e in range(w.n[EDGES]):
        pools = w.t_mark[w.e_a[e]] + 1 + w.t_list[w.e_b[e]]  # many in circles that are left
        w.e_best[e] = w.e_use[e] and w.e_edge[e] != HOLD and hops < pools < FAR
        found = found or w.e_best[e]
    return found


@inlined
def mark_ways(w: Work, sources: int, fewest: bool) -> int:
    """Count the most pools (or the `fewest`) on the ways to each token over used edges (`t_mark`), and on from it.

    The latter are in `t_list`. Returns how many there are to the sink.
    """
    count = order_edges(w, sources)
    for t in range(w.n[TOKENS]):
        w.t_mark[t] = FAR if fewest and not 1 <= t <= sources else 0
        w.t_list[t] = FAR if fewest and t > 0 else 0
    for i in range(count):
        e = w.e_order[i]
        pools = w.t_mark[w.e_a[e]] + (0 if w.e_edge[e] == HOLD else 1)
        w.t_mark[w.e_b[e]] = min(w.t_mark[w.e_b[e]], pools) if fewest else max(w.t_mark[w.e_b[e]], pools)
    for i in range(count):
        e = w.e_order[count - 1 - i]
        pools = w.t_list[w.e_b[e]] + 1
        w.t_list[w.e_a[e]] = min(w.t_list[w.e_a[e]], pools) if fewest else max(w.t_list[w.e_a[e]], pools)
    return int(w.t_mark[0])


@kernel
def count_paths(w: Work, sources: int, used: int) -> int:
    """Most paths the used edges decompose into: edges - tokens + 2, with one source."""
    for t in range(w.n[TOKENS]):
        w.t_mark[t] = 0
    tokens = 0
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            for t in (w.e_a[e], w.e_b[e]):
                if w.t_mark[t] == 0:
                    w.t_mark[t] = 1
                    tokens += 1
    return used - tokens + 1 + sources


@kernel
def prune(net: Net, w: Work, sources: int, room: Room, paths: int) -> bool:
    """Drop the least useful edges until those that carry flow fit into one transaction, in at most `paths` paths.

    Then those go whose loss is less than the fee that goes with them. Optimises again after every round. False when the
    limits leave no route.
    """
    for attempt in range(ROUNDS):
        settle_flows(w)
        trim(w, sources)  # what is left of flows that lead nowhere by now would count as fewer paths
        used = 0
        for e in range(w.n[EDGES]):
            used += w.e_use[e]
        if used == 0:
            return False
        taken, apart = taken_by(w, room), count_paths(w, sources, used)
        more = apart - paths
        fits = taken <= WHOLE and more <= 0
        if fits and (room.price <= 0.0 or apart <= sources or attempt == ROUNDS - 1):
            return True
        wanted = used - max(more, 0)
        if taken > WHOLE:  # so many would fit if all took the same
            wanted = min(wanted, int(used / taken * WHOLE), used - 1)
        keep = int(used * (KEEP_FAR if used > 4 * wanted else KEEP))
        target = max(wanted, keep)
        if used <= 16 or attempt > 30:
            target = used - 1
        if used <= EXACT_LOSSES_UP_TO:
            _losses(w)
        else:
            _profits(w)
        if taken > WHOLE:
            _weigh(w, room)
        elif fits:
            paying = _weigh_by_fees(w, room)
            if paying >= used:
                return True
            target = max(paying, keep) if used > 16 and attempt <= 30 else used - 1
        _keep_best(w, target)
        trim(w, sources)
        if fits and not _any_used(w):  # they were the way of all others
            settle_flows(w)
            return True
        for e in range(w.n[EDGES]):
            w.e_alive[e] = w.e_use[e]
        minimise(net, w, TOLERANCE, NEWTON_STEPS)
    return False


@inlined
def _weigh(w: Work, room: Room) -> None:
    """Rank edges by what they earn for what they take of the transaction."""
    for e in range(w.n[EDGES]):
        if w.e_use[e] and w.e_edge[e] != HOLD:
            w.e_loss[e] /= share_of(w, room, e)


@inlined
def _weigh_by_fees(w: Work, room: Room) -> int:
    """Rank edges by what they earn for their fee; how many earn it."""
    paying = 0
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            fee = fee_of(w, room, e)
            w.e_loss[e] = w.e_loss[e] / fee if fee > 0.0 else 1e300
            paying += w.e_loss[e] >= 1.0
    return paying


@inlined
def _any_used(w: Work) -> bool:
    used = False
    for e in range(w.n[EDGES]):
        used = used or w.e_use[e]
    return used


@kernel
def _keep_best(w: Work, target: int) -> None:
    """Unmark all used edges but the `target` ones, one at least, with the largest losses; keeping the input stays."""
    edges, target = w.n[EDGES], max(target, 1)
    for e in range(edges):
        if w.e_edge[e] == HOLD:
            w.e_loss[e] = 1e300
    used = 0
    for e in range(edges):
        if w.e_use[e]:
            w.c_level[used] = w.e_loss[e]
            used += 1
    if used <= target:
        return
    threshold, above = nth_largest(w.c_level, used, target), 0
    for e in range(edges):
        above += w.e_use[e] and w.e_loss[e] > threshold
    ties = target - above
    for e in range(edges):
        if w.e_use[e] and w.e_loss[e] <= threshold:
            w.e_use[e] = w.e_loss[e] == threshold and ties > 0
            ties -= w.e_use[e]
