"""Words on accounts on their way to who must be told: joined for each reader, and written to a few readers at a time.

A block may change hundreds of accounts, and thousands may hear of all of them: written one by one, and all at once,
that would be a second in which nobody else is served. A reader's frames keep their order, with whatever else it is
sent; what is held for it shares its bytes with what is held for others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from millrace.relayer.gateway.audience import SLICE

SLICE_BYTES = 1024 * 1024
"""No more is written before other tasks get their turn: with `SLICE` writes about a millisecond."""
MOST_HELD = 1024 * 1024
"""Bytes held for a reader when more comes for it: they are written at once then, whatever has its turn."""


class Reader(Protocol):
    """A connection as its deliveries see it."""

    @property
    def held(self) -> list[bytes]:
        """Frames that go before all that it is sent from now on."""

    def send_frames(self, frames: bytes) -> None:
        """Write what is held, and these frames behind it."""


class Deliveries:
    """What is held for all readers; they are written to in the order in which something began to wait for them."""

    def __init__(self, everyone: Callable[[], Iterable[Reader]]) -> None:
        """`everyone`: who hears of all accounts."""
        self._everyone = everyone
        self._common: list[bytes] = []
        """Frames for all of them that are not joined yet."""
        self._waiting: OrderedDict[Reader | _Note, int] = OrderedDict()
        """Readers, each with the bytes held for it."""
        self._is_due = False

    def put(self, reader: Reader, frame: bytes) -> None:
        """Deliver to one reader, soon."""
        size = self._waiting.get(reader, 0) if reader.held else 0  # it may have been sent something since
        if size > MOST_HELD:
            reader.send_frames(b"")
            size = 0
        reader.held.append(frame)
        self._waiting[reader] = size + len(frame)
        self._go_on()

    def put_to_everyone(self, frame: bytes) -> None:
        """Deliver to whoever hears of all accounts, soon, and joined with the others of the same moment."""
        self._common.append(frame)
        self._go_on()

    def join(self) -> None:
        """Hold what is for everyone for each: what any of them is sent from now on goes behind it."""
        if self._common:
            frames = b"".join(self._common)
            self._common.clear()
            for reader in self._everyone():
                self.put(reader, frames)

    def when_written(self, then: Callable[[], None]) -> None:
        """Call when all that has been put until now is written, which it mostly is."""
        self.join()
        if self._waiting:
            self._waiting[_Note(then)] = 0
        else:
            then()

    def _go_on(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._write_some)

    def _write_some(self) -> None:
        self._is_due = False
        self.join()
        writes = size = 0
        try:
            while self._waiting and writes < SLICE and size < SLICE_BYTES:
                reader, held = self._waiting.popitem(last=False)
                if isinstance(reader, _Note):
                    reader.then()
                elif reader.held:
                    writes, size = writes + 1, size + held
                    reader.send_frames(b"")
        finally:
            if self._waiting:
                self._go_on()


class _Note:
    """Something to be called in its turn."""

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then
