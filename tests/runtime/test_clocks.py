"""Clocks that are set."""

from __future__ import annotations

from millrace.runtime.clocks import UnhurriedClock


def test_row_44_forward_it_goes_as_time_passes_and_back_with_the_wall_clock() -> None:
    """A clock that is set forward makes nothing old, one that is set back makes nothing end early."""
    wall, steady = [1_000_000], [50.0]
    clock = UnhurriedClock(lambda: wall[0], lambda: steady[0])
    assert clock() == 1_000_000
    wall[0], steady[0] = 1_000_000 + 86_400_000, 51.0
    assert clock() == 1_001_001
    wall[0], steady[0] = 1_002_000 - 3_600_000, 52.0
    assert clock() == wall[0]
    wall[0], steady[0] = 1_003_000, 53.0
    assert clock() == 1_003_000
