"""The newest events in memory, contiguous, bounded by bytes."""

from __future__ import annotations

from millrace.notifier.rules.entry import Entry

ENTRY_BYTES = 1100
"""Of an event beside its payload: its attributes, its id, and all that these are kept in."""


class Tail:
    """Serves consumers who are at most a little behind without a look at the disk."""

    def __init__(self, max_bytes: int) -> None:
        self._entries: dict[int, Entry] = {}  # by sequence
        self._max_bytes = max_bytes
        self._bytes = 0
        self.oldest = 0
        """The first sequence that is here; 0 if there is none."""

    def append(self, entry: Entry) -> None:
        """Add the next event; the oldest leave when the bound is passed, but the newest stays."""
        self._entries[entry.sequence] = entry
        self._bytes += _memory(entry)
        self.oldest = self.oldest or entry.sequence
        while self._bytes > self._max_bytes and self.oldest < entry.sequence:
            self._bytes -= _memory(self._entries.pop(self.oldest))
            self.oldest += 1

    def after(self, sequence: int, limit: int) -> list[Entry] | None:
        """Up to `limit` events that follow `sequence`, or `None` when the first of them is not here any more."""
        first, end = sequence + 1, self.oldest + len(self._entries)
        if not self._entries or first < self.oldest:
            return None
        return [self._entries[number] for number in range(first, min(first + limit, end))]


def _memory(entry: Entry) -> int:
    return ENTRY_BYTES + 2 * len(entry.payload)  # and the frame that a consumer of everything has built
