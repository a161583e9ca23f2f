"""Loops of background work that rest between their steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.dex.steps import STEP, in_steps


@given(st.integers(0, 4 * STEP))
def test_there_is_a_pause_before_each_step_and_all_items_come(count: int) -> None:
    """The items come unchanged and in order; no more than a step of them comes without a pause."""
    seen: list[int | None] = []
    note = seen.append
    for item in in_steps(iter(range(count)), lambda: note(None)):
        note(item)
    steps = [range(first, min(first + STEP, count)) for first in range(0, count, STEP)]
    assert seen == [entry for step in steps for entry in (None, *step)]
