"""Slow work rests while quotes are computed, and only then."""

from __future__ import annotations

import pytest

from millrace.aggregator import pace
from millrace.aggregator.pace import RECENT, REST, SLICE, Pace


class Clock:
    """A clock that the test moves, and that rests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "time", made)
    return made


def test_work_goes_on_while_nobody_asks(clock: Clock) -> None:
    """Without quotes there is no rest."""
    pacer = Pace()
    for _ in range(100):
        clock.now += SLICE
        pacer.pause()
    assert pacer.rests == 0


def test_work_rests_after_every_slice_while_quotes_are_computed(clock: Clock) -> None:
    """While the loop is busy a slice of work is followed by a rest, however often it is asked for."""
    pacer = Pace()
    pacer.begin()
    worked, start = 0.0, clock.now
    while worked < 0.02:
        clock.now += SLICE / 10
        worked += SLICE / 10
        pacer.pause()
    rested = clock.now - start - worked
    assert rested == pytest.approx(pacer.rests * REST)
    assert 0.9 * worked / SLICE <= pacer.rests <= 1.1 * worked / SLICE


@pytest.mark.parametrize("where", ["the loop", "another thread"])
def test_work_rests_between_two_quotes(clock: Clock, where: str) -> None:
    """After a quote work still rests, as the next one may come at once; when none has come for a while it goes on."""
    pacer = Pace()
    if where == "the loop":
        pacer.begin()
        pacer.end()
    else:
        pacer.seen()
    while clock.now < 100.0 + RECENT:
        clock.now += SLICE
        pacer.pause()
    rests = pacer.rests
    assert rests > 0
    for _ in range(100):
        clock.now += SLICE
        pacer.pause()
    assert pacer.rests == rests
