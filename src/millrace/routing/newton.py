"""The dual of the routing problem on the working set, minimised by a semismooth Newton method.

With `s = sqrt(price)` the dual is `G(s) = sum_i amount_i s_i^2 + sum_e phi_e(s)`, where `phi_e` is the best
profit of edge `e` at these prices and the sink's price is 1. For a constant-product edge a -> b it is
`(cb s_b - ca s_a)_+^2`: G is piecewise quadratic, and Newton ends exactly once the active edges are right.
For a curve the same Hessian entries come from `y''` at the best trade. All derivatives are halved.
"""

from __future__ import annotations

from millrace.routing.compiled import inlined, kernel
from millrace.routing.edge import curve_trade
from millrace.routing.linear import add_entry, clear, factor_solve
from millrace.routing.net import Floats, Net
from millrace.routing.work import CURVES, EDGES, ITERATIONS, TOKENS, Work

LEAST_FLOW = 1e-9  # of the total value; thinner edges carry none


@inlined
def evaluate(net: Net, w: Work) -> float:
    """Profit of every live edge at the present prices; returns G(s) in units of the sink per unit of input."""
    for e in range(w.n[EDGES]):
        live = w.e_alive[e] and w.e_curve[e] < 0
        w.e_z[e] = w.e_cb[e] * w.t_s[w.e_b[e]] - w.e_ca[e] * w.t_s[w.e_a[e]] if live else 0.0
    return _value(net, w)


@inlined
def _value(net: Net, w: Work) -> float:
    """G(s), with `e_z` given; brings the curves up to date."""
    total = _earned(w.e_z, w.n[EDGES])
    for t in range(w.n[TOKENS]):
        total += w.t_amount[t] * w.t_s[t] * w.t_s[t]
    if w.n[CURVES] == 0:
        return total
    for e in range(w.n[EDGES]):
        if w.e_curve[e] < 0 or not w.e_alive[e]:
            continue
        sa, sb = w.t_s[w.e_a[e]], w.t_s[w.e_b[e]]
        curve_trade(net, w.e_curve[e], sa * sa / (sb * sb), w.point)
        w.e_d[e] = w.point[0] / w.unit[0]
        w.e_y[e] = w.point[1] / w.unit[0]
        w.e_bend[e] = w.point[2] * w.unit[0]  # -y'' in units of flow; the mark of an active curve is e_d
        if w.e_d[e] > 0.0:
            total += sb * sb * w.e_y[e] - sa * sa * w.e_d[e]
    return total


@inlined
def _earned(z: Floats, count: int) -> float:
    """Sum of the constant-product edges' profits."""
    total = 0.0
    for e in range(count):
        total += max(z[e], 0.0) * z[e]
    return total


@inlined
def assemble(w: Work) -> float:
    """Gradient and Hessian (lower triangle) of half of G; returns the largest imbalance of value."""
    size = w.n[TOKENS]
    m = w.hess
    clear(m, size)
    for i in range(size):
        w.t_grad[i] = w.t_amount[i] * w.t_s[i]
        m.h[i, i] = w.t_amount[i]
    for e in range(w.n[EDGES]):
        z = w.e_z[e]
        if z > 0.0:
            ca, cb = w.e_ca[e], w.e_cb[e]
            _add_edge(w, e, z * ca, z * cb, ca * ca, cb * cb, ca * cb)
    if w.n[CURVES] > 0:
        _add_curves(w)
    w.t_grad[0] = 0.0
    m.h[0, 0] = 1.0
    worst = 0.0
    for i in range(1, size):
        worst = max(worst, abs(w.t_grad[i] * w.t_s[i]))
    return worst


@inlined
def _add_curves(w: Work) -> None:
    for e in range(w.n[EDGES]):
        if w.e_curve[e] < 0 or not w.e_alive[e] or w.e_d[e] <= 0.0:
            continue
        sa, sb = w.t_s[w.e_a[e]], w.t_s[w.e_b[e]]
        # The exact entry of the sold token holds -d; without it every edge's part is positive definite.
        haa, hbb, hab = 0.0, w.e_y[e], 0.0
        if w.e_bend[e] > 0.0:
            bend = 2.0 * sa * sa * sa * sa / (sb * sb * w.e_bend[e])  # 2 v_a^2 / (v_b (-y''))
            haa += bend / (sa * sa)
            hbb += bend / (sb * sb)
            hab = bend / (sa * sb)
        _add_edge(w, e, sa * w.e_d[e], sb * w.e_y[e], haa, hbb, hab)


@inlined
def _add_edge(w: Work, e: int, taken: float, given: float, haa: float, hbb: float, hab: float) -> None:
    """Add an edge's part of gradient and Hessian; the sink (token 0) has its price already."""
    a, b = w.e_a[e], w.e_b[e]
    w.t_grad[a] -= taken
    w.t_grad[b] += given
    w.hess.h[a, a] += haa
    w.hess.h[b, b] += hbb
    if a != 0 and b != 0:
        add_entry(w.hess, a, b, -hab)


@inlined
def _product_slopes(z: Floats, dz: Floats, count: int, t: float) -> tuple[float, float]:
    """The constant-product edges' part of `_slopes`."""
    first, second = 0.0, 0.0
    for e in range(count):
        at = z[e] + t * dz[e]
        change = dz[e] if at > 0.0 else 0.0
        first += at * change
        second += dz[e] * change
    return first, second


@inlined
def _slopes(net: Net, w: Work, t: float) -> tuple[float, float]:
    """First and second derivative of half of G along the step, at `s + t step`."""
    first, second = _product_slopes(w.e_z, w.e_dz, w.n[EDGES], t)
    for i in range(w.n[TOKENS]):
        if w.t_amount[i] != 0.0:
            x = w.t_step[i]
            first += w.t_amount[i] * (w.t_s[i] + t * x) * x
            second += w.t_amount[i] * x * x
    if w.n[CURVES] == 0:
        return first, second
    for e in range(w.n[EDGES]):
        if w.e_curve[e] < 0 or not w.e_alive[e]:
            continue
        xa, xb = w.t_step[w.e_a[e]], w.t_step[w.e_b[e]]
        sa, sb = w.t_s[w.e_a[e]] + t * xa, w.t_s[w.e_b[e]] + t * xb
        curve_trade(net, w.e_curve[e], sa * sa / (sb * sb), w.point)
        d, y, bend = w.point[0] / w.unit[0], w.point[1] / w.unit[0], w.point[2] * w.unit[0]
        if d > 0.0:
            first += sb * y * xb - sa * d * xa
            second += y * xb * xb - d * xa * xa
            if bend > 0.0:
                relative = xa / sa - xb / sb
                second += 2.0 * sa * sa * sa * sa / (sb * sb * bend) * relative * relative
    return first, second


@inlined
def _line_search(net: Net, w: Work) -> float:
    """The minimiser of G along the step, found on its derivative (piecewise linear without curves)."""
    longest = 1.0
    for i in range(w.n[TOKENS]):
        if w.t_step[i] < 0.0:
            longest = min(longest, 0.9 * w.t_s[i] / -w.t_step[i])
    lo, hi, t = 0.0, longest, longest
    for attempt in range(40):
        first, second = _slopes(net, w, t)
        if attempt == 0 and first <= 0.0:
            break
        if first > 0.0:
            hi = t
        else:
            lo = t
        following = 0.5 * (lo + hi)
        if second > 0.0 and lo < t - first / second < hi:
            following = t - first / second
        close = abs(following - t) < 1e-2 * following
        t = following
        if close:
            break
    return t


@inlined
def factor_hessian(w: Work) -> None:
    """Factor the Hessian at the present prices, hardly damped, for `inverse_norm` and `inverse_times`."""
    size = w.n[TOKENS]
    assemble(w)
    for t in range(size):
        w.hess.h[t, t] = w.hess.h[t, t] * (1.0 + 1e-12) + 1e-12
        w.t_step[t] = 0.0
    factor_solve(w.hess, size, 1e-14, w.t_step)


@kernel
def minimise(net: Net, w: Work, tolerance: float, limit: int) -> float:
    """Minimise G from the present prices in at most `limit` steps; returns G.

    Ends when no token's balance is off by more than `tolerance` of the input, or G no longer falls.
    """
    value = evaluate(net, w)
    ridge, stalled, failed = 1e-9, 0, 0
    size = w.n[TOKENS]
    for _ in range(limit):
        w.n[ITERATIONS] += 1
        if assemble(w) < tolerance:
            break
        for i in range(size):
            w.hess.h[i, i] = w.hess.h[i, i] * (1.0 + 1e-14) + ridge
            w.t_step[i] = -w.t_grad[i]
            w.t_old[i] = w.t_s[i]
        factor_solve(w.hess, size, 1e-14, w.t_step)
        w.t_step[0] = 0.0
        for e in range(w.n[EDGES]):
            live = w.e_alive[e] and w.e_curve[e] < 0
            w.e_dz[e] = w.e_cb[e] * w.t_step[w.e_b[e]] - w.e_ca[e] * w.t_step[w.e_a[e]] if live else 0.0
        t = _line_search(net, w)
        for i in range(size):
            w.t_s[i] += t * w.t_step[i]
        for e in range(w.n[EDGES]):
            w.e_z[e] += t * w.e_dz[e]
        following = _value(net, w)
        if not following <= value * (1.0 + 1e-9):  # also catches NaN: go back and step more carefully
            for i in range(size):
                w.t_s[i] = w.t_old[i]
            value = evaluate(net, w)
            ridge *= 1e3
            failed += 1
            if failed >= 5:
                break
            continue
        if t > 0.9:
            ridge = max(1e-13, ridge * 0.1)
        stalled = stalled + 1 if value - following < 1e-15 * abs(value) else 0
        value = following
        if stalled >= 3:
            break
    return value


@kernel
def settle_flows(w: Work) -> int:
    """Write flows `e_d`, `e_y` and value `e_w` of every edge, and mark in `e_use` those that carry any: how many."""
    count = 0
    for e in range(w.n[EDGES]):
        sa, sb = w.t_s[w.e_a[e]], w.t_s[w.e_b[e]]
        if w.e_curve[e] < 0:
            z = max(w.e_z[e], 0.0)
            w.e_d[e] = w.e_ca[e] * z / sa
            w.e_y[e] = w.e_cb[e] * z / sb
        elif not w.e_alive[e]:
            w.e_d[e] = 0.0
            w.e_y[e] = 0.0
        w.e_w[e] = w.e_d[e] * sa * sa
        w.e_use[e] = w.e_alive[e] and w.e_w[e] > LEAST_FLOW
        count += w.e_use[e]
    return count
