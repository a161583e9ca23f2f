"""By how much the clock was set back while keys were in use: so much longer than it says they may have been spent.

A safe start counts what may have been spent from the last row it knows until the keys were used last, both by the clock
of who wrote them. Set back in between, by less than that, the clock would say that it was a shorter time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from millrace.relayer.journal.leases import Held
from millrace.runtime.clocks import wall_ms

LEAST_MS = 1_000
"""By less than that nobody sets a clock back who means it; two clocks are not read in the same moment."""


class SetBacks:
    """Compares the wall clock with one that nobody sets, as often as it is asked."""

    def __init__(self, steady: Callable[[], float], wall: Callable[[], int] = wall_ms) -> None:
        self._steady, self._wall = steady, wall
        self._seen: tuple[int, float] | None = None
        self._in_all = self._at = 0
        self._behind = 0
        """How far before the last use by others we began, as far as it is in `_in_all`: all keys tell of one clock."""

    def follow(self, remembered: Iterable[Held]) -> None:
        """Go on where others, or this machine before it was started, ended; they may have had another clock."""
        now, behind = self._look(), self._behind
        for held in remembered:
            self._in_all, self._at = max(self._in_all, held.set_back_ms), max(self._at, held.set_back_at_ms)
            behind = max(behind, held.used_ms - now)
        if behind - self._behind >= LEAST_MS:
            self._note(behind - self._behind, now + behind)
            self._behind = behind

    def noted(self, mine: Held) -> Held:
        """The same with what is known by now."""
        used_ms = self._look()
        return replace(mine, used_ms=used_ms, set_back_ms=self._in_all, set_back_at_ms=self._at)

    def _look(self) -> int:
        now, steady = self._wall(), self._steady()
        if self._seen is not None:
            expected = self._seen[0] + int((steady - self._seen[1]) * 1000)
            if expected - now >= LEAST_MS:
                self._note(expected - now, expected)
        self._seen = now, steady
        return now

    def _note(self, by_ms: int, at_ms: int) -> None:
        self._in_all += by_ms
        self._at = max(self._at, at_ms)


def following(mine: Held, remembered: Iterable[Held]) -> Held:
    """What a command says that uses no key: of clocks what is remembered."""
    for held in remembered:
        mine = replace(
            mine,
            used_ms=max(mine.used_ms, held.used_ms),
            set_back_ms=max(mine.set_back_ms, held.set_back_ms),
            set_back_at_ms=max(mine.set_back_at_ms, held.set_back_at_ms),
        )
    return mine
