"""Limits over time: exact windows and bounded buckets."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.gateway.limits import SlidingWindow, TokenBuckets


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
