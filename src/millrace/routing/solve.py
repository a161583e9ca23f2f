"""One forward question, from prices to an ordered flow, and the bound that proves how good it is."""

from __future__ import annotations

import math

from millrace.routing.astray import profit_astray
from millrace.routing.candidates import Search
from millrace.routing.columns import (
    NEWTON_STEPS,
    TOLERANCE,
    generate,
    is_full,
    marginal,
    worth_of_input,
)
from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import best_profit, edge_out, knot_at
from millrace.routing.moves import Moves
from millrace.routing.net import Floats, Ints, IntTable, Net
from millrace.routing.newton import minimise, settle_flows
from millrace.routing.profitable import list_profitable
from millrace.routing.prune import drop_far, make_acyclic, order_edges, prune, shorten, trim
from millrace.routing.refine import refine
from millrace.routing.shares import Room
from millrace.routing.work import HOLD, NEARLY, PAIRS, Work, add_edge, add_token, compact, reset

UPPER, MORE, LEVEL = range(3)  # slots of the report
LOOSE = 1e-6  # a bound this much (relative) above the working set's value deserves better prices
FIT_ROUNDS = 8
LARGER = 1.02  # times a trade is the most it grows by if it is made in pieces
UNREACHED = 1e300  # price of a token that nothing can reach: it has nothing to sell


@kernel
def upper_bound(net: Net, w: Work, q: Search, value: float) -> tuple[float, float]:
    """An upper bound of what any split over the whole net could give, in units of sink per unit of input.

    The other number is the part of it that is only for errors of tables, trades in pieces, and edges astray.

    The dual value at any prices of all tokens is a bound; good prices make it tight. Tabulated pools add the error of
    their tables. It holds for trades that are made in any number of pieces, too, which pay more where fees stay in the
    pool, or are lower for less. `value` is the dual value on the working set alone. Where `q` is closed, the profitable
    pairs are listed: no other one earns (see `profitable.py`), and tokens with one neighbour are worth nothing else
    than what they fetch and cost there.
    """
    level = marginal(net, w, q)
    if q.closed:
        profit, more = _profit(net, w, q)
        bound = worth_of_input(w, q) + profit
        # Of a full set what is missing makes the bound loose, not the prices.
        if bound <= value * (1.0 + LOOSE) or is_full(w):
            return bound + more, more
    else:
        list_profitable(net, w, q, level)
    _clamp_prices(net, w, q, level)
    for i in range(q.sources.size):
        w.n_price[q.sources[i]] = w.t_s[1 + i] * w.t_s[1 + i]
    if not q.cycle:
        w.n_price[q.sink] = 1.0
    total = worth_of_input(w, q)
    if q.cycle:
        total += max(w.e_z[0], 0.0) * w.e_z[0]
    _list_everything(net, w, q.sink)
    profit, more = _profit(net, w, q)
    bound, besides = total + profit + more, more
    if total + profit > value * (1.0 + LOOSE):
        _fit_outside(net, w, q.sink)
        _list_everything(net, w, q.sink)
        profit, more = _profit(net, w, q)
        if total + profit + more < bound:  # any prices give a bound
            bound, besides = total + profit + more, more
    return bound, besides


@kernel
def _profit(net: Net, w: Work, q: Search) -> tuple[float, float]:
    """The best profits of all edges of listed pairs at the prices of tokens, per unit of input.

    The other number is how much more there may be: by the errors of tables, trades in pieces, and edges astray.
    """
    total, more = 0.0, profit_astray(net, w, q, UNREACHED)
    for i in range(w.n[PAIRS]):
        k = w.l_pair[i]
        price, bought = w.n_price[w.l_from[i]], w.n_paid[net.pdst[k]]
        if net.prate[k] * bought <= price or price >= UNREACHED:
            continue
        sa, sb = math.sqrt(price), math.sqrt(bought)
        for e in range(net.pe0[k], net.pe1[k]):
            if net.rate[e] * bought <= price:
                break
            profit = best_profit(net, e, sa, sb, w.point)
            total += profit
            if net.curve[e] >= 0:
                # In pieces the best trade is a little larger, by less than the part that the fees are of it.
                larger = knot_at(net, net.curve[e], w.point[0] * LARGER)
                off = net.kerr[knot_at(net, net.curve[e], w.point[0])] + net.kmore[larger]
                more += bought * w.point[1] * off
            elif net.kept[e] > 0.0:
                more += max(_piecewise_profit(net, e, price, bought) - profit, 0.0)
    return float(total / w.unit[0]), float(more / w.unit[0])


@inlined
def _piecewise_profit(net: Net, e: int, price: float, bought: float) -> float:
    """The most that edge `e` can earn when its trade is made in any number of pieces.

    What a fee on the output leaves in the pool is there for the next piece: `dR / R = -(1 - kept) dx / (a + x)` instead
    of a constant product, so the output of ever smaller pieces is `r (1 - (1 + x / a)^(kept - 1)) / (1 - kept)`.
    """
    kept, ratio = net.kept[e], price / (net.rate[e] * bought)
    grown = ratio ** (-1.0 / (2.0 - kept))
    return float(bought * net.r[e] * (1.0 - ratio * grown) / (1.0 - kept) - price * net.a[e] * (grown - 1.0))


@kernel
def _list_everything(net: Net, w: Work, sink: int) -> None:
    """List every pair there is; tokens are paid for what they are sold for, but the sink, which is worth 1."""
    _price_leaves(net, w, sink)
    pairs = 0
    for t in range(net.core.size):
        w.n_paid[t] = w.n_price[t]
        for k in range(net.pptr[t], net.pptr[t + 1]):
            w.l_pair[pairs] = k
            w.l_from[pairs] = t
            pairs += 1
    w.n_paid[sink] = 1.0
    w.n[PAIRS] = pairs


@kernel
def _fit_outside(net: Net, w: Work, sink: int) -> None:
    """Price tokens outside the working set between what they fetch and what they cost at their neighbours.

    Those whose neighbours are all outside as well have no price yet that fits: it reaches them round by round.
    """
    for _ in range(FIT_ROUNDS):
        settled = True
        for t in net.corelist:
            price = w.n_price[t]
            if w.n_sell[t] >= 0 or price >= UNREACHED:
                continue
            fetch, cost = 0.0, UNREACHED
            for k in range(net.pptr[t], net.pptr[t + 1]):
                b = net.pdst[k]
                if net.core[b] or w.n_sell[b] >= 0:
                    near = 1.0 if b == sink else w.n_price[b]
                    if near < UNREACHED:
                        fetch = max(fetch, net.prate[k] * near)
                        cost = min(cost, near / net.pback[k]) if net.pback[k] > 0.0 else cost
            fit = min(max(price, fetch), cost) if fetch <= cost else math.sqrt(fetch) * math.sqrt(cost)
            settled = settled and abs(fit - price) <= 1e-9 * price
            w.n_price[t] = fit
        if settled:
            break


@kernel
def price_cycles(net: Net, w: Work, q: Search, prices: Floats) -> float:
    """Price every token such that the cycles of the market earn little; what all trades earn then at most (scaled).

    `q` asks for cycles. The dual of any question at these prices is that, and the worth of the input.
    """
    generate(net, w, q)
    upper_bound(net, w, q, 0.0)
    for t in range(net.core.size):
        prices[t] = w.n_price[t]
        w.n_paid[t] = w.n_price[t]
    profit, more = _profit(net, w, q)
    return float((profit + more) * w.unit[0])


@kernel
def _clamp_prices(net: Net, w: Work, q: Search, level: float) -> None:
    """Bring every core token's price into [level / ahead, behind], the range of a token that is used.

    Prices without profitable edges are closed under minimum and maximum, and both ends are such prices
    in a market without arbitrage: clamping makes no edge profitable. Where the range is empty the token
    cannot be used, and its lower end fits all others.
    """
    for t in net.corelist:
        if q.ahead[t] > 0.0:
            w.n_price[t] = max(min(w.n_price[t], q.behind[t]), level / q.ahead[t])
        else:
            w.n_price[t] = UNREACHED


@kernel
def _price_leaves(net: Net, w: Work, sink: int) -> None:
    """Price tokens with one neighbour between what they fetch and what they cost there."""
    for t in range(net.core.size):
        if net.core[t] or w.n_sell[t] >= 0:
            continue
        w.n_price[t] = UNREACHED
        for k in range(net.pptr[t], net.pptr[t + 1]):
            b = net.pdst[k]
            fetch = net.prate[k] * (1.0 if b == sink else w.n_price[b])
            cost = w.n_price[b] / net.pback[k] if net.pback[k] > 0.0 else UNREACHED
            w.n_price[t] = math.sqrt(fetch) * math.sqrt(cost) if fetch > 0.0 else cost


@kernel
def solve(net: Net, w: Work, q: Search, report: Floats) -> None:
    """Solve the dual of `q` over the net; leaves a working set without circulations, of the edges that matter.

    `report` gets the upper bound of the output of any split over the net (scaled), and the pruning level.
    """
    value, listed = generate(net, w, q)
    if q.closed and not listed:
        list_profitable(net, w, q, marginal(net, w, q))
    bound, besides = upper_bound(net, w, q, value)
    report[UPPER], report[MORE] = bound * w.unit[0], besides * w.unit[0]
    report[LEVEL] = marginal(net, w, q)
    make_acyclic(net, w, q.sources.size)
    compact(w, q.sources.size, NEARLY)


@kernel
def extract(
    net: Net, w: Work, m: Moves, q: Search, room: Room, paths: int, hops: int, edges: Ints, flows: Floats
) -> int:
    """Prune the solved working set to the limits and write its flow in execution order.

    Writes net edges and their input flows (scaled units); returns their number, 0 if the limits, with at most `hops`
    pools on a way, leave no route.
    """
    sources = q.sources.size
    before = settle_flows(w)
    drop_far(net, w, sources, hops)
    if not (prune(net, w, sources, room, paths) and shorten(net, w, sources, hops)):
        return 0
    if settle_flows(w) < before:
        refine(net, w, m, q, room, paths, hops)
        make_acyclic(net, w, sources)  # revived edges may have closed a circle
    if not shorten(net, w, sources, hops):
        return 0
    return _write_flow(net, w, sources, edges, flows)


@kernel
def grow(
    net: Net, w: Work, m: Moves, q: Search, ways: IntTable, lengths: Ints, parts: Floats, count: int, room: Room,
    paths: int, hops: int, edges: Ints, flows: Floats,
) -> int:  # fmt: skip
    """A flow within the limits that begins with what some paths trade in; as `extract` writes it."""
    _set_paths(net, w, q, ways, lengths, parts, count)
    minimise(net, w, TOLERANCE, NEWTON_STEPS)
    refine(net, w, m, q, room, paths, hops)
    make_acyclic(net, w, 1)
    if not shorten(net, w, 1, hops):
        return 0
    return _write_flow(net, w, 1, edges, flows)


@inlined
def _set_paths(net: Net, w: Work, q: Search, ways: IntTable, lengths: Ints, parts: Floats, count: int) -> None:
    """Let the working set be what paths trade in, each token at the price of what it becomes on the first of them.

    But for edges that are in no pair of this net.
    """
    source = q.sources[0]
    reset(w, q.amounts[0])
    add_token(w, q.sink, 1.0)
    w.t_amount[add_token(w, source, 1.0)] = 1.0
    for p in range(count):
        paid, x = parts[p], parts[p]
        for h in range(lengths[p]):
            paid = edge_out(net, ways[p, h], paid)
        if p == 0:
            w.t_s[1] = math.sqrt(paid / x)
        for h in range(lengths[p]):
            e = ways[p, h]
            if w.n_sell[net.src[e]] < 0:
                add_token(w, net.src[e], math.sqrt(paid / x))
            x = edge_out(net, e, x)
        for h in range(lengths[p]):
            e = ways[p, h]
            if e < net.pe1[net.pair[e]] and not w.m_in[e]:
                add_edge(net, w, e)


@inlined
def _write_flow(net: Net, w: Work, sources: int, edges: Ints, flows: Floats) -> int:
    """Write the flow in execution order; returns the number of its edges.

    Of those that sell the source the largest comes last: it sells what the others leave, and what rounding them takes
    or leaves is next to nothing of it, but might be all of a small one.
    """
    settle_flows(w)
    trim(w, sources)
    count = order_edges(w, sources)
    written = 0
    for i in range(count):
        e = w.e_order[i]
        if w.e_edge[e] != HOLD and written < edges.size:
            edges[written] = w.e_edge[e]
            flows[written] = w.e_d[e] * w.unit[0]
            written += 1
    last, most = 0, 0
    while last + 1 < written and net.src[edges[last + 1]] == net.src[edges[0]]:
        last += 1
        if flows[last] >= flows[most]:
            most = last
    if written > 0:
        edge, flow = edges[last], flows[last]
        edges[last], flows[last] = edges[most], flows[most]
        edges[most], flows[most] = edge, flow
    return written
