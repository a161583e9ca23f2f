"""How long batches are cut: into parts of about a millisecond at each stage, so that others pass between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Raw

PART = 8
"""Cost of what goes through the stages together: a short transaction counts 1 …"""
STRETCH = 8
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


def cost_of(items: Sequence[bytes]) -> int:
    """What these transactions cost together."""
    return len(items) + sum([len(item) // _COST_BYTES for item in items])


def next_part(raws: Sequence[Raw], start: int, factor: int, most: int) -> Part:
    """The part of a batch that begins at `start`, where everything costs `factor` times the usual.

    It costs at most `most`, but for a long transaction, which is a part by itself.
    """
    total, end = 0, start
    while end < len(raws):
        own = factor * cost(len(memoryview(raws[end])))
        if total and total + own > most:
            break
        total, end = total + own, end + 1
    return Part(range(start, end), total)
