"""Limits over time: exact windows and bounded buckets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.gateway.limits import DEAREST, SlidingWindow, TokenBuckets, Wrong


@given(st.lists(st.floats(0, 3), max_size=200), st.integers(1, 5))
def test_window_never_exceeds_its_limit(pauses: list[float], limit: int) -> None:
    """In no window of five seconds more than the limit is admitted, and what fits is never refused."""
    window = SlidingWindow(limit, 5.0)
    now = 0.0
    admitted: list[float] = []
    for pause in pauses:
        now += pause
        recent = [time for time in admitted if time > now - 5.0]
        wait = window.admit(now)
        assert (wait == 0.0) == (len(recent) < limit)
        if wait == 0.0:
            admitted.append(now)
        else:
            assert abs(wait - (recent[0] + 5.0 - now)) <= 0.001


def test_the_64th_control_message_passes_and_the_65th_waits() -> None:
    """64 in five seconds, and the 65th as soon as the first is five seconds old."""
    window = SlidingWindow(64)
    assert [window.admit(0.0) for _ in range(64)] == [0.0] * 64
    assert window.admit(4.999) > 0
    assert window.admit(5.0) == 0.0


def test_bucket_takes_all_or_nothing() -> None:
    """A cost beyond what is left takes nothing and says how long to wait."""
    buckets = TokenBuckets(rate=10.0, burst=20.0)
    assert buckets.take("a", 20, 0.0) == 0.0
    assert buckets.take("a", 5, 0.0) == 0.5
    assert buckets.take("a", 5, 0.5) == 0.0
    assert buckets.take("b", 20, 0.0) == 0.0
    assert buckets.take("a", 21, 100.0) == math.inf


def test_buckets_are_bounded() -> None:
    """Beyond the bound the bucket unused for longest is forgotten."""
    buckets = TokenBuckets(rate=1.0, burst=1.0, max_names=2)
    for name in ("a", "b", "c"):
        assert buckets.take(name, 1, 0.0) == 0.0
    assert buckets.take("c", 1, 0.0) > 0
    assert buckets.take("a", 1, 0.0) == 0.0


def test_row_51_what_is_owed_has_to_come_in_first() -> None:
    """A charge takes what there is not, a whole burst at most; until that has run in nothing is granted."""
    buckets = TokenBuckets(rate=10.0, burst=20.0)
    assert buckets.owes("a", 0.0) == 0.0
    buckets.charge("a", 25.0, 0.0)
    assert buckets.owes("a", 0.0) == pytest.approx(0.5) and buckets.owes("a", 0.4) == pytest.approx(0.1)
    assert buckets.take("a", 1, 0.0) == pytest.approx(0.6)
    assert buckets.owes("a", 0.6) == 0.0 and buckets.take("a", 1, 0.7) == 0.0
    buckets.charge("a", 1_000_000.0, 1.0)
    assert buckets.owes("a", 1.0) == pytest.approx(2.0), "no more than a burst: it ends"
    assert buckets.owes("b", 1.0) == 0.0


def test_row_51_wrong_signatures_get_dearer() -> None:
    """Each of them costs more than the one before, up to a bound; right ones take that back, and nothing is left."""
    wrong = Wrong()
    costs = [wrong.cost("a", 1, 0) for _ in range(2 * DEAREST)]
    assert costs == [*range(DEAREST), *[DEAREST] * DEAREST]
    assert wrong.cost("b", 1, 0) == 0, "the first is free, of everybody"
    assert wrong.cost("a", 0, DEAREST) == 0 and wrong.cost("a", 1, 1) == 0
    assert Wrong().cost("a", 100, 0) == sum(range(100)), "a batch pays for each"
    assert len(wrong) == 1


@given(st.lists(st.booleans()))
def test_row_51_who_is_wrong_now_and_then_pays_hardly_more(rights: list[bool]) -> None:
    """Where more is right than wrong nobody pays more than one transaction's rate for each."""
    wrong, total = Wrong(), 0
    for right in rights:
        total += wrong.cost("a", 1, 0) + wrong.cost("a", 0, 2)
        total += wrong.cost("a", 0, 1) if right else 0
    assert total == 0


def test_row_51_those_who_were_wrong_long_ago_are_forgotten() -> None:
    """As many are remembered as there is room for."""
    wrong = Wrong(max_names=3)
    for name in "abcd":
        wrong.cost(name, 3, 0)
    assert len(wrong) == 3 and wrong.cost("a", 1, 0) == 0 and wrong.cost("d", 1, 0) == 3
