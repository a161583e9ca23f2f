"""The memory of the rules while a transaction is open: what it changed, and what earlier ones left behind.

A store over a network keeps a transaction's changes here until the commit, and sends them all at once. So the
server sees nothing of a transaction that is taken back, and a lost connection leaves nothing half done. As there
is one writer, what was read or committed may be kept and need not be asked for again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Generic, TypeVar

from millrace.notifier.rules.dedup import Block
from millrace.notifier.rules.entry import Entry

K = TypeVar("K")
V = TypeVar("V")

KEPT = 65_536  # keys of each kind; a million take about 300 MB

BlockKey = tuple[int, bytes]  # shard, hash
ContentKey = tuple[str, int, bytes]  # topic, shard, digest
LatestKey = tuple[str, int]  # topic, shard


class Known(Generic[K, V]):
    """The values of one table that were used last."""

    def __init__(self, limit: int = KEPT) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._limit = limit

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._limit:
            self._values.popitem(last=False)

    def clear(self) -> None:
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)


class Changes:
    """What the open transaction will have written."""

    def __init__(self) -> None:
        self.events: list[Entry] = []
        self.blocks: dict[BlockKey, Block] = {}
        self.contents: dict[ContentKey, int] = {}
        self.latest: dict[LatestKey, bytes] = {}
        self.nonces: dict[int, tuple[int, int]] = {}
        self.delete_events = 0
        """Events up to this sequence go."""
        self.forget_before = 0
        """Memories from before this sequence go."""
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Change one of the tables above."""
        self._undo.append((table, key, table.get(key)))
        table[key] = value

    def mark(self) -> tuple[int, int]:
        """A point to go back to."""
        return len(self._undo), len(self.events)

    def back_to(self, undo: int, events: int) -> None:
        """Take back what came since a `mark`."""
        while len(self._undo) > undo:
            table, key, before = self._undo.pop()
            if before is None:
                del table[key]
            else:
                table[key] = before
        del self.events[events:]

    @property
    def remembers(self) -> bool:
        """Whether the memory of the rules changed."""
        return bool(self.blocks or self.contents or self.latest or self.nonces)

    def __bool__(self) -> bool:
        return bool(self.events or self.remembers or self.delete_events or self.forget_before)
