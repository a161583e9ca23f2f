"""The rate limit counts exactly and stays bounded; so do connections."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.aggregator.clients import MOST_MARKS, WAYS, Clients
from millrace.aggregator.limiter import WINDOW, RateLimiter, marks_of


@given(st.lists(st.floats(0.0, 0.4), max_size=60), st.integers(1, 5))
def test_no_window_holds_more_than_the_limit(gaps: list[float], limit: int) -> None:
    """Whatever the arrival times, admitted requests never exceed the limit within one window."""
    limiter, now, admitted = RateLimiter(limit, Clients(10, limit)), 0.0, []
    for gap in gaps:
        now += gap
        if limiter.admit("a", now) == 0.0:
            admitted.append(now)
    for start in admitted:
        assert sum(start <= time < start + WINDOW for time in admitted) <= limit


@given(st.lists(st.floats(0.0, 0.4), max_size=60), st.integers(1, 5))
def test_the_wait_it_names_is_enough(gaps: list[float], limit: int) -> None:
    """A client that waits as told is admitted."""
    limiter, now = RateLimiter(limit, Clients(10, limit)), 0.0
    for gap in gaps:
        now += gap
        wait = limiter.admit("a", now)
        if wait > 0.0:
            now += wait + 1e-9
            assert limiter.admit("a", now) == 0.0


def test_clients_are_bounded_and_independent() -> None:
    """One client's requests do not count for another; the table never exceeds its bound, and forgets who is idle."""
    clients = Clients(WAYS, 1)
    limiter = RateLimiter(1, clients)
    names = [f"10.0.0.{number}" for number in range(WAYS + 1)]
    assert [limiter.admit(name, number / 100) for number, name in enumerate(names)] == [0.0] * len(names)
    assert len(clients) == WAYS
    assert limiter.admit(names[-1], 0.5) > 0.0
    assert limiter.admit(names[0], 0.5) == 0.0  # the first one of all was forgotten


@given(st.integers(MOST_MARKS + 1, 5 * MOST_MARKS))
def test_a_high_limit_is_counted_in_groups(limit: int) -> None:
    """Nobody below the limit is refused, and nobody has more than a group of requests above it."""
    limiter, group = RateLimiter(limit, Clients(8, marks_of(limit))), -(-limit // MOST_MARKS)
    admitted = sum(limiter.admit("a", 0.5) == 0.0 for _ in range(limit + 2 * group))
    assert limit <= admitted < limit + group


def heard(asked: float) -> float:
    """As early as another machine may take a request for: it is told by periods, and some time after it was made."""
    return int(asked * 20) / 20 - 0.1


@given(st.lists(st.tuples(st.floats(0.0, 0.2), st.booleans()), max_size=80), st.integers(1, 5))
def test_who_keeps_to_the_limit_on_all_machines_is_admitted(gaps: list[tuple[float, bool]], limit: int) -> None:
    """Whatever he asks elsewhere, and however much earlier that is told: as long as it is one limit in all."""
    here, now, asked = RateLimiter(limit, Clients(8, limit)), 10.0, list[float]()
    for period, (gap, elsewhere) in enumerate(gaps):
        now += gap
        if len(asked) >= limit:
            now = max(now, asked[-limit] + WINDOW + 1e-6)
        asked.append(now)
        if elsewhere:
            here.hear("a", [heard(now)], period)
        else:
            assert here.admit("a", now) == 0.0


@given(st.integers(2, 4), st.integers(1, 6), st.integers(1, 9))
def test_bursts_at_many_machines_are_paid_back(machines: int, limit: int, bursts_a_second: int) -> None:
    """Beyond what each admits before it has heard of the others, all together admit the limit."""
    every = [RateLimiter(limit, Clients(8, limit)) for _ in range(machines)]
    total, seconds = 0, 10
    for burst in range(seconds * bursts_a_second):
        now = 10.0 + burst / bursts_a_second
        counts = [sum(one.admit("a", now) == 0.0 for _ in range(limit)) for one in every]
        total += sum(counts)
        for one, own in zip(every, counts, strict=True):
            one.hear("a", [heard(now)] * (sum(counts) - own), burst)
    assert total <= limit * (seconds + machines)
