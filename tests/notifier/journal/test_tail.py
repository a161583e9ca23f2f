"""The newest events in memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.notifier.journal.tail import ENTRY_BYTES, Tail
from millrace.notifier.rules.entry import Entry


def entry(sequence: int, size: int) -> Entry:
    return Entry(sequence, "SaveBlock", 0, 0, f"SaveBlock:0:{sequence}:1", 0, b"x" * size)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 40), st.integers(1, 5))
def test_tail_is_the_end_of_a_list(sizes: list[int], asked: int, limit: int) -> None:
    """What follows a sequence is given in order, or nothing when its beginning has left; memory is bounded."""
    bound = 200 + 5 * ENTRY_BYTES
    tail = Tail(max_bytes=bound)
    entries = [entry(10 + number, size) for number, size in enumerate(sizes)]
    for item in entries:
        tail.append(item)
    kept = entries[:]
    while len(kept) > 1 and sum(ENTRY_BYTES + 2 * len(item.payload) for item in kept) > bound:
        kept.pop(0)
    following = [item for item in entries if item.sequence > asked]
    if kept and asked + 1 >= kept[0].sequence:
        assert tail.after(asked, limit) == following[:limit]
    else:
        assert tail.after(asked, limit) is None


def test_an_event_takes_no_more_than_is_counted() -> None:
    """Small events, with their frames and what is kept with them, take about what the bound counts for each."""
    count, size = 2_000, 80
    tail = Tail(max_bytes=1 << 30)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for sequence in range(1 << 40, (1 << 40) + count):
            digest = bytes([sequence % 256]) * 32
            name = f"FinalizedBlock:0:{digest.hex()}:1"
            made = Entry(sequence, "FinalizedBlock", 0, 0, name, 1 << 40, bytes(size))
            assert made.frame and made.block_hash
            tail.append(made)
        taken = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    print(taken)
    assert 0.5 * (ENTRY_BYTES + 2 * size) < taken <= ENTRY_BYTES + 2 * size
