"""How long batches are cut: into parts of about a millisecond at each stage, so that others pass between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Raw

PART = 16
"""Cost of what goes through the stages together: a short transaction counts 1 …"""
STRETCH = 4
"""So many times longer are parts that hold up nobody, which saves some of what each part costs by itself."""
_COST_BYTES = 4096
"""… and 1 more for each so many bytes, which are hashed, encoded and written again and again."""


class Part(NamedTuple):
    """Neighbours in a batch that go through the stages together."""

    positions: range
    cost: int


def cost(size: int) -> int:
    """What a transaction of `size` bytes costs, in short transactions."""
    return 1 + size // _COST_BYTES


def cut(raws: Sequence[Raw], factor: int, most: int) -> Iterator[Part]:
    """The parts, of at most this cost, of a batch in which everything costs `factor` times the usual.

    A long transaction is a part by itself.
    """
    first, total = 0, 0
    for index, raw in enumerate(raws):
        own = factor * cost(len(memoryview(raw)))
        if total and total + own > most:
            yield Part(range(first, index), total)
            first, total = index, 0
        total += own
    if raws:
        yield Part(range(first, len(raws)), total)
