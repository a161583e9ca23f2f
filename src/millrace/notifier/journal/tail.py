"""The newest events in memory, contiguous, bounded by bytes."""

from __future__ import annotations

from collections import deque
from itertools import islice

from millrace.notifier.rules.entry import Entry


class Tail:
    """Serves consumers who are at most a little behind without a look at the disk."""

    def __init__(self, max_bytes: int) -> None:
        self._entries: deque[Entry] = deque()
        self._max_bytes = max_bytes
        self._bytes = 0

    def append(self, entry: Entry) -> None:
        """Add the next event; the oldest leave when the bound is passed, but the newest stays."""
        self._entries.append(entry)
        self._bytes += _memory(entry)
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._bytes -= _memory(self._entries.popleft())

    @property
    def oldest(self) -> int:
        """The first sequence that is here; 0 if there is none."""
        return self._entries[0].sequence if self._entries else 0

    def after(self, sequence: int, limit: int) -> list[Entry] | None:
        """Up to `limit` events that follow `sequence`, or `None` when the first of them is not here any more."""
        if not self._entries:
            return None
        skip = sequence + 1 - self._entries[0].sequence
        if skip < 0:
            return None
        return list(islice(self._entries, skip, skip + limit))


def _memory(entry: Entry) -> int:
    return 2 * len(entry.payload)  # the payload, and the frame that a consumer of everything has built
