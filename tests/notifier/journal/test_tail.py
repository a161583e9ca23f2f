"""The newest events in memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.notifier.journal.tail import Tail
from millrace.notifier.rules.entry import Entry


def entry(sequence: int, size: int) -> Entry:
    return Entry(sequence, "SaveBlock", 0, 0, f"SaveBlock:0:{sequence}:1", 0, b"x" * size)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 40), st.integers(1, 5))
def test_tail_is_the_end_of_a_list(sizes: list[int], asked: int, limit: int) -> None:
    """What follows a sequence is given in order, or nothing when its beginning has left; memory is bounded."""
    tail = Tail(max_bytes=200)
    entries = [entry(10 + number, size) for number, size in enumerate(sizes)]
    for item in entries:
        tail.append(item)
    kept = entries[:]
    while len(kept) > 1 and sum(2 * len(item.payload) for item in kept) > 200:
        kept.pop(0)
    following = [item for item in entries if item.sequence > asked]
    if kept and asked + 1 >= kept[0].sequence:
        assert tail.after(asked, limit) == following[:limit]
    else:
        assert tail.after(asked, limit) is None
