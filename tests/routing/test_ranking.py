"""Selecting the largest numbers agrees with sorting them all; where it need not be exact, nearly."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.routing.candidates import about_largest
from millrace.routing.ranking import nth_largest
from millrace.routing.work import make_work

numbers = st.lists(st.floats(-1e9, 1e9) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)
WORK = make_work(1, 100)


@settings(deadline=None)
@given(numbers, st.data())
def test_the_nth_largest_is_the_one_of_the_sorted_list(values: list[float], data: st.DataObject) -> None:
    """For every place, with ties, and whatever lies behind the numbers in the array."""
    n = data.draw(st.integers(1, len(values)))
    array = np.array([*values, 1e300])
    assert nth_largest(array, len(values), n) == sorted(values, reverse=True)[n - 1]
    assert sorted(array) == sorted([*values, 1e300])


@settings(deadline=None)
@given(st.lists(st.floats(-1.0, 1e9) | st.sampled_from([0.0, 1.0, 1e-300]), min_size=1, max_size=60), st.data())
def test_the_largest_candidates_are_kept_but_for_near_ties(scores: list[float], data: st.DataObject) -> None:
    """As many as wanted stay, in their order, and none that is dropped is more than 1/128 above one that stays.

    Scores of 0 and less, and those 2^30 times below the largest one, count as equal.
    """
    wanted = data.draw(st.integers(1, len(scores)))
    WORK.c_score[: len(scores)] = scores
    WORK.c_edge[: len(scores)] = range(len(scores))
    kept = WORK.c_edge[: about_largest(WORK, len(scores), wanted)].tolist()
    assert kept == sorted(set(kept))
    assert len(kept) == wanted
    least = max(min(scores[k] for k in kept), max(scores) * 2.0**-30)
    assert all(scores[k] <= least * (1.0 + 1.0 / 128.0) for k in range(len(scores)) if k not in kept)
