"""Batches are cut into parts."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from millrace.relayer.rules.slices import PART, STRETCH, cost, next_part


@given(st.lists(st.integers(0, 200_000), max_size=100), st.integers(1, 2), st.sampled_from([PART, STRETCH * PART]))
def test_parts_are_short_and_nothing_is_left_out(sizes: list[int], factor: int, most: int) -> None:
    """Every transaction is in one part, in order; only a long one by itself costs too much, none could grow."""
    raws, parts, start = [Raw(bytes(size)) for size in sizes], [], 0
    while start < len(raws):
        parts.append(next_part(raws, start, factor, most))
        start = parts[-1].positions.stop
    assert [position for part in parts for position in part.positions] == list(range(len(sizes)))
    for part in parts:
        costs = [factor * cost(sizes[position]) for position in part.positions]
        assert part.cost == sum(costs) and (part.cost <= most or len(costs) == 1)
    for part, after in itertools.pairwise(parts):
        assert part.cost + factor * cost(sizes[after.positions[0]]) > most
