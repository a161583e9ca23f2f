"""Rules of a sink that confirms: how much may be on its way, and how far delivery is certain.

The cursor moves only over events that are confirmed without a gap between them. After a failure everything beyond
the cursor is sent again, in order (go-back-N): what a sink gets is a row of runs, each of which is in order.
"""

from __future__ import annotations

from collections import OrderedDict


class ConfirmWindow:
    """Events sent to a sink and not behind the cursor yet. Times are those of any one clock, in seconds."""

    def __init__(self, cursor: int, max_messages: int, max_bytes: int) -> None:
        self.cursor = cursor
        """Every event up to this sequence is confirmed."""
        self.position = cursor
        """Every event up to this sequence was sent."""
        self.quiet_since: float | None = None
        """Since when an unconfirmed event waits without any news; `None` when nothing waits."""
        self.unconfirmed = 0
        """Events sent and not confirmed."""
        self._sizes: OrderedDict[int, int] = OrderedDict()  # beyond the cursor, in order of sequence
        self._confirmed: set[int] = set()
        self._bytes = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes

    def has_room(self, size: int) -> bool:
        """Whether an event of `size` bytes may be sent now; one that is larger than the window goes alone."""
        if not self._sizes:
            return True
        return len(self._sizes) < self._max_messages and self._bytes + size <= self._max_bytes

    def sent(self, sequence: int, size: int, now: float) -> None:
        """An event is on its way; sequences rise, jumps stand for what the journal does not have."""
        if sequence <= self.position:
            raise ValueError(f"event {sequence} was sent already")
        if not self.unconfirmed:
            self.quiet_since = now
        self.position = sequence
        self.unconfirmed += 1
        self._sizes[sequence] = size
        self._bytes += size

    def confirmed(self, sequence: int, now: float) -> None:
        """The sink has this event for good; confirms come in any order."""
        if sequence not in self._sizes or sequence in self._confirmed:
            return
        self._confirmed.add(sequence)
        self.unconfirmed -= 1
        self.quiet_since = now if self.unconfirmed else None
        while self._sizes:
            first = next(iter(self._sizes))
            if first not in self._confirmed:
                break
            self.cursor = first
            self._confirmed.remove(first)
            self._bytes -= self._sizes.pop(first)

    def rewind(self) -> None:
        """The way to the sink broke: what follows the cursor is to be sent again."""
        self.position = self.cursor
        self.quiet_since = None
        self.unconfirmed = 0
        self._sizes.clear()
        self._confirmed.clear()
        self._bytes = 0
