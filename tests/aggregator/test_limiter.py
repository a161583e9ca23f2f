"""The rate limit counts exactly and stays bounded; so do connections."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.aggregator.limiter import WINDOW, RateLimiter


@given(st.lists(st.floats(0.0, 0.4), max_size=60), st.integers(1, 5))
def test_no_window_holds_more_than_the_limit(gaps: list[float], limit: int) -> None:
    """Whatever the arrival times, admitted requests never exceed the limit within one window."""
    limiter, now, admitted = RateLimiter(limit, 10), 0.0, []
    for gap in gaps:
        now += gap
        if limiter.admit("a", now) == 0.0:
            admitted.append(now)
    for start in admitted:
        assert sum(start <= time < start + WINDOW for time in admitted) <= limit


@given(st.lists(st.floats(0.0, 0.4), max_size=60), st.integers(1, 5))
def test_the_wait_it_names_is_enough(gaps: list[float], limit: int) -> None:
    """A client that waits as told is admitted."""
    limiter, now = RateLimiter(limit, 10), 0.0
    for gap in gaps:
        now += gap
        wait = limiter.admit("a", now)
        if wait > 0.0:
            now += wait + 1e-9
            assert limiter.admit("a", now) == 0.0


def test_clients_are_bounded_and_independent() -> None:
    """One client's requests do not count for another; the table never exceeds its bound."""
    limiter = RateLimiter(1, 3)
    assert [limiter.admit(name, 0.0) for name in "abcd"] == [0.0] * 4
    assert len(limiter) == 3
    assert limiter.admit("d", 0.5) > 0.0
