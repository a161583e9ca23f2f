"""Best spot rates to and from a token, also where circles earn without end."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.routing import net as nets
from millrace.routing.columns import generate
from millrace.routing.net import Edges
from millrace.routing.newton import settle_flows
from millrace.routing.potential import MOST
from millrace.routing.spot import SpotGraph
from millrace.routing.work import EDGES, TOKENS, make_work

RESERVE = st.sampled_from([1.0, 2.0, 7.0, 1e3, 1e9, 1e18, 1e27])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), RESERVE, RESERVE), min_size=2, max_size=9),
    st.integers(0, 3),
    st.sampled_from([1, 2, 10**9, 10**27]),
)
def test_no_price_is_beyond_all_numbers(pools: list[tuple[int, int, float, float]], sink: int, amount: int) -> None:
    """Whatever a unit in a pool seems to be worth: rates are bounded, and the first prices and flows are numbers."""
    rows = [(a, (a + step) % 4, x, y) for a, step, x, y in pools]
    rows += [(b, a, y, x) for a, b, x, y in rows]
    src, dst = (np.array([row[k] for row in rows], np.int32) for k in (0, 1))
    a, r = (np.array([row[k] for row in rows]) for k in (2, 3))
    graph = nets.build(4, Edges(src, dst, a, r * 0.997, np.zeros(len(rows)), {}))
    q = SpotGraph({f"T{k}": k for k in range(4)}, graph, []).search("T0", f"T{sink}", amount)
    assert max(q.ahead.max(), q.behind.max()) <= MOST
    if q.top == 0.0:
        return
    work = make_work(4, len(graph.original))
    generate(graph.net, work, q)
    settle_flows(work)
    prices, flows = work.t_s[: work.n[TOKENS]], work.e_w[: work.n[EDGES]]
    assert np.isfinite(prices).all() and np.isfinite(flows).all() and flows.max(initial=0.0) < 1e300
