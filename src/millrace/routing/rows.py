"""Rows: edges of a route that trade one behind the other and nothing else. Who takes one takes all."""

from __future__ import annotations

import math

from millrace.routing.compiled import inlined
from millrace.routing.work import EDGES, TOKENS, Work


@inlined
def count_trades(w: Work) -> None:
    """Of each token: how many used edges buy it (`t_in`) and sell it (`t_out`), and one that sells it (`t_queue`)."""
    for t in range(w.n[TOKENS]):
        w.t_in[t], w.t_out[t], w.t_queue[t] = 0, 0, -1
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            w.t_in[w.e_b[e]] += 1
            w.t_out[w.e_a[e]] += 1
            w.t_queue[w.e_a[e]] = e


@inlined
def passes(w: Work, t: int, sources: int) -> bool:
    """Whether a token is bought in one pool and sold in one other."""
    return bool(t > sources and w.t_in[t] == 1 and w.t_out[t] == 1)


@inlined
def in_a_row(first: tuple[float, float], then: tuple[float, float]) -> tuple[float, float]:
    """The slopes of two edges in a row: two constant products are one."""
    between = math.sqrt(first[1] * first[1] + then[0] * then[0])
    return first[0] * then[0] / between, first[1] * then[1] / between


@inlined
def price_between(first: tuple[float, float], then: tuple[float, float], sa: float, sb: float) -> float:
    """The sqrt(price) of the token between two edges in a row at which one pays what the other takes."""
    given, taken = first[1], then[0]
    return (first[0] * given * sa + taken * then[1] * sb) / (given * given + taken * taken)
