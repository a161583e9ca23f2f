"""Clients that are sent away: each at a moment of its own, and no place gets all of them."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from millrace.relayer.gateway.drain import LATE_SECONDS, Drain
from millrace.relayer.protocol.messages import ShutdownMessage


def told(drain: Drain, count: int, now: float = 0.0) -> list[ShutdownMessage]:
    frames = [drain.word(now) for _ in range(count)]
    return [msgspec.json.decode(frame[frame.index(b"{") :], type=ShutdownMessage) for frame in frames]


@pytest.mark.parametrize("seed", range(5))
def test_moments_are_spread(seed: int) -> None:
    """In each tenth of the time a tenth of the clients goes, and to every place the same number."""
    words = told(Drain(["a", "b", "c", "d"], 0.0, 10.0, 0.0, 1_000, random.Random(seed)), 1_000)
    tenths = Counter(int(word.after_ms or 0) // 1_000 for word in words)
    assert tenths == dict.fromkeys(range(10), 100)
    assert Counter(word.move_to[0] for word in words if word.move_to) == dict.fromkeys("abcd", 250)
    assert all(sorted(word.move_to or []) == ["a", "b", "c", "d"] for word in words)


def test_nowhere_to_go() -> None:
    """Without places clients are told a moment alone; a client more than expected has one within the time, too."""
    words = told(Drain([], 0.0, 2.0, 0.0, 1), 3)
    assert all(word.move_to is msgspec.UNSET and 0 <= int(word.after_ms or 0) < 2_000 for word in words)
    assert Drain([], 3.0, 2.0, 5.0, 0).until == 5.0 + 3.0 + 2.0 + LATE_SECONDS


def test_balancers_have_notice() -> None:
    """No moment is before balancers have seen that nobody is to come, and until then, not after, newcomers come."""
    drain = Drain([], 5.0, 10.0, 100.0, 10)
    first, late = told(drain, 10, now=100.0), told(drain, 10, now=104.0)
    assert [int(word.after_ms or 0) // 1_000 for word in first] == list(range(5, 15))
    assert [int(word.after_ms or 0) // 1_000 for word in late] == list(range(1, 11))
    assert drain.lets_in(104.9) and not drain.lets_in(105.0)
