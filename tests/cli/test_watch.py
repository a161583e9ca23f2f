"""What `millrace watch` says of what was missed."""

from __future__ import annotations

from millrace.cli.watch import line_of
from millrace_client import Missed


def test_bounds_of_a_hub_are_no_times() -> None:
    """What a hub no longer has is bounded by sequences: no seconds are made of them, nor a count of none."""
    gone = Missed(topic="hub", why="gone from the journal", count=7, since=3, until=9)
    assert line_of(gone) == "missed 7 messages: gone from the journal"
    gone = Missed(topic="hub", why="gone from the journal", since=3, until=9)
    assert line_of(gone) == "missed: gone from the journal"


def test_a_time_is_said() -> None:
    """How long nothing was heard is said in seconds."""
    assert (
        line_of(Missed(topic="tx", why="connection lost", since=1.0, until=2.5)) == "missed for 1.5 s: connection lost"
    )
