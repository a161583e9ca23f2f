"""Which tokens and pairs of a net can have a part in an answer, and how the best of many are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.routing import net as nets
from millrace.routing.candidates import largest_from, list_candidates
from millrace.routing.net import Edges
from millrace.routing.spot import SpotGraph
from millrace.routing.work import LISTED, PAIRS, make_work

A, B, C, D, LEAF = range(5)
POOLS = [(A, B, 2.0, 0.8), (B, C, 2.0, 0.8), (A, D, 1.0, 0.7), (D, C, 4.0, 0.7), (C, LEAF, 1.0, 0.8)]
"""Two tokens, the price of the first in the second, and what the fee leaves: the way over D keeps less of all."""


def graph() -> nets.Graph:
    """Deep constant-product pools between the tokens above."""
    rows = [(a, b, rate * kept) for a, b, rate, kept in POOLS] + [(b, a, kept / rate) for a, b, rate, kept in POOLS]
    src, dst = (np.array([row[k] for row in rows], np.int32) for k in (0, 1))
    rate = np.array([row[2] for row in rows])
    depth = np.full(len(rows), 1e6)
    return nets.build(5, Edges(src, dst, depth, depth * rate, np.zeros(len(rows)), {}))


@pytest.mark.parametrize(
    ("sink", "part", "sold"),
    [(C, 0.9, {(A, B), (B, C)}), (C, 0.0, {(A, B), (B, C), (A, D), (D, C)}), (LEAF, 0.9, {(A, B), (B, C), (C, LEAF)})],
)
def test_pairs_on_routes_above_the_floor_are_listed(sink: int, part: float, sold: set[tuple[int, int]]) -> None:
    """A pair is listed if the best route over it gives more than the floor; the only pair of a sink is always."""
    made = graph()
    net, work = made.net, make_work(5, len(made.original))
    index = {f"T{k}": k for k in range(5)}
    q = SpotGraph(index, made, []).search("T0", f"T{sink}", 10)
    list_candidates(net, work, q, part * q.top)
    pairs = work.l_pair[: work.n[PAIRS]]
    listed = set(zip(work.l_from[: len(pairs)].tolist(), net.pdst[pairs].tolist(), strict=True))
    assert listed >= sold
    assert part == 0.0 or listed == sold
    assert {B, C} <= set(work.l_token[: work.n[LISTED]].tolist())


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 10), st.integers(1, 30))
def test_the_best_candidates_are_kept_in_their_order(scores: list[int], start: int, wanted: int) -> None:
    """Exactly as many as wanted stay, none worse than one that goes; those before the start stay as they are."""
    work = make_work(1, 100)
    before = list(range(100, 100 + start))
    work.c_score[: start + len(scores)] = before + scores
    work.c_edge[: start + len(scores)] = range(start + len(scores))
    count = largest_from(work, start, len(scores), wanted)
    assert count == min(len(scores), wanted)
    kept = work.c_edge[start : start + count].tolist()
    assert kept == sorted(set(kept))
    assert work.c_edge[:start].tolist() == list(range(start))
    assert sorted(work.c_score[start : start + count], reverse=True) == sorted(scores, reverse=True)[:count]
    assert [scores[k - start] for k in kept] == work.c_score[start : start + count].tolist()
