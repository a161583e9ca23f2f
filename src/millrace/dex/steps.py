"""Loops of background work, which rests between two steps where others need the processor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
STEP = 32  # items: some ten microseconds of work


def in_steps(items: Iterable[T], pause: Callable[[], None]) -> Iterator[T]:
    """The items, with a call of `pause` before the first one and after every `STEP`."""
    for number, item in enumerate(items):
        if number % STEP == 0:
            pause()
        yield item
