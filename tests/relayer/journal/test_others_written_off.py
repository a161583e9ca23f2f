"""What others wrote off counts as soon as it is heard of, and for a while after it is over."""

from __future__ import annotations

from millrace.relayer.journal.others_written_off import OthersWrittenOff


def test_a_sum_counts_at_once_and_goes_later() -> None:
    """A larger one holds from now on, a smaller one not before everybody has had time to hear of what was paid."""
    now = 0.0
    sums = OthersWrittenOff(60.0, lambda: now)
    assert sums.of_key(b"k") == 0
    sums.hear({b"k": 7, b"other": 1})
    assert (sums.of_key(b"k"), sums.of_key(b"other")) == (7, 1)
    sums.hear({b"k": 9})
    assert (sums.of_key(b"k"), sums.of_key(b"other")) == (9, 1)
    for now in range(1, 600):
        sums.hear({b"k": 9 if now < 90 else 2})
        assert sums.of_key(b"k") == 9 or now >= 90 + 60, "it was paid a moment ago, and its block is not here yet"
    assert (sums.of_key(b"k"), sums.of_key(b"other")) == (2, 0)
    now = 10_000.0
    assert sums.of_key(b"k") == 2, "while nothing is heard nothing is forgotten"
    sums.hear({b"k": 3})
    assert sums.of_key(b"k") == 3
