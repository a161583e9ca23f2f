"""Large messages are read in slices, so that nobody waits for them: counting, typed reading, then key by key.

Of what takes milliseconds in a message of 4 MB only the typed reading itself, about one of them, cannot be divided.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from millrace.relayer.protocol import strict_json

T = TypeVar("T")

LARGE = 64 * 1024
"""Bytes from which a message is read in slices; a shorter one takes a tenth of a millisecond."""
_SLICE_SECONDS = 0.0003
_REST = 4.0
"""After a slice others have the event loop so many times as long."""
_COUNT_BYTES = 256 * 1024


async def marks(data: bytes) -> int:
    """`strict_json.marks` of a large message."""
    pace, marked = _Pace(), 0
    for start in range(0, len(data), _COUNT_BYTES):
        marked += strict_json.marks(data, start, start + _COUNT_BYTES)
        await pace.rest()
    return marked


async def decode(data: bytes, marked: int, max_marks: int, typed: Callable[[bytes, int], T]) -> T:
    """What `typed` reads in a large message, after a look at every key. Raises `Refused`."""
    value = typed(data, marked)
    pace = _Pace()
    for _ in strict_json.walk(data, marked, max_marks):
        await pace.rest()
    return value


class _Pace:
    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        """Let others run when the slice has been long enough."""
        worked = time.perf_counter() - self._since
        if worked >= _SLICE_SECONDS:
            await asyncio.sleep(_REST * worked)
            self._since = time.perf_counter()
