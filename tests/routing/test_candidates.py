"""The best of many candidates are kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.routing.candidates import largest_from
from millrace.routing.work import make_work


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
