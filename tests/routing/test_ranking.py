"""Selecting the largest numbers agrees with sorting them all."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.routing.ranking import nth_largest

numbers = st.lists(st.floats(-1e9, 1e9) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)


@settings(deadline=None)
@given(numbers, st.data())
def test_the_nth_largest_is_the_one_of_the_sorted_list(values: list[float], data: st.DataObject) -> None:
    """For every place, with ties, and whatever lies behind the numbers in the array."""
    n = data.draw(st.integers(1, len(values)))
    array = np.array([*values, 1e300])
    assert nth_largest(array, len(values), n) == sorted(values, reverse=True)[n - 1]
    assert sorted(array) == sorted([*values, 1e300])
