"""The conflated lane: everybody who hears the same statistics, and who of them may be sent the next.

Statistics are written only to those who have taken all that came before; the others are left out until they have, and
get what is newest then. Who is behind is told by the sessions as it changes, so that a round to thousands asks nobody
and touches, of each connection, little more than its transport: what it costs is the kernel's work, and the memory that
has to come from afar.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from millrace.relayer.gateway.traffic import Egress, Meter

SLICE = 256
"""Connections written to before other tasks get their turn."""

Write = Callable[[bytes], object]


class Listener(Protocol):
    """A connection as an audience sees it."""

    @property
    def meter(self) -> Meter | None:
        """Of what its client is sent, unless that is not limited."""

    @property
    def buffered(self) -> int:
        """Bytes that wait for the reader."""

    @property
    def write(self) -> Write:
        """What writes to the connection."""


class Audience:
    """The listeners of one stream; at most as many as there may be connections."""

    def __init__(self, egress: Egress) -> None:
        self.left_out = 0
        """Statistics not sent to who was behind, or had been sent too much, since the start."""
        self._egress = egress
        self._ready: dict[Meter | None, dict[Listener, Write]] = {}
        self._behind: set[Listener] = set()
        self._changed: dict[Write, bool] = {}
        """Who stopped being ready since the round under way began, and whether they are only behind."""

    def __len__(self) -> int:
        return len(self._behind) + sum(map(len, self._ready.values()))

    def join(self, listener: Listener) -> None:
        """Listen from the next round on."""
        if listener.buffered:
            self._behind.add(listener)
        else:
            self._ready.setdefault(listener.meter, {})[listener] = listener.write

    def leave(self, listener: Listener) -> None:
        """Listen no more; nothing happens when it does not."""
        self._behind.discard(listener)
        self._withdraw(listener, is_behind=False)

    def fall_behind(self, listener: Listener) -> None:
        """Something waits for this listener, if it is one."""
        if self._withdraw(listener, is_behind=True):
            self._behind.add(listener)

    def catch_up(self, listener: Listener) -> None:
        """This listener, if it is one, has taken everything."""
        if listener in self._behind:
            self._behind.remove(listener)
            self.join(listener)

    async def send(self, frames: bytes) -> None:
        """Write joined frames to everyone who is ready, by and by; one round at a time."""
        self._changed.clear()
        self.left_out += len(self._behind)
        writes = self._admit(len(frames))
        for begin in range(0, len(writes), SLICE):
            if begin:
                await asyncio.sleep(0)
            part = writes[begin : begin + SLICE]
            if self._changed:
                part = self._still_ready(part)
            for write in part:
                write(frames)

    def _admit(self, size: int) -> list[Write]:
        """The writes of everyone whose client may be sent `size` bytes more, which count as sent."""
        writes: list[Write] = []
        for meter, group in self._ready.items():
            if meter is not None:
                if meter.is_over:
                    self._egress.skipped += len(group)
                    self.left_out += len(group)
                    continue
                meter.spent += size * len(group)
            writes += group.values()
        return writes

    def _still_ready(self, part: list[Write]) -> list[Write]:
        self.left_out += sum(self._changed.get(write, False) for write in part)
        return [write for write in part if write not in self._changed]

    def _withdraw(self, listener: Listener, *, is_behind: bool) -> bool:
        """Take a listener from those who are ready; whether it was one of them."""
        group = self._ready.get(listener.meter, {})
        write = group.pop(listener, None)
        if write is None:
            return False
        if not group:
            del self._ready[listener.meter]
        self._changed[write] = is_behind
        return True
