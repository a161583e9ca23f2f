"""How long a round of the network lasts, and how many of them a time has.

What the network's configuration says, and what headers show: each bears its round and the time at which that began. A
network may change it (6,000 ms became 600 with blocks that are executed later), so whoever asks for the configuration
is told when to ask again, and headers that show another length are believed before it is asked. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

DEFAULT_MS = 600
"""Of live networks since their blocks are executed later. It was 6,000 before."""
SHORTEST_MS, LONGEST_MS = 10, 60_000
"""What is told beyond is no length of a round: the local chain's shortest; ten times the longest of live networks."""
STEPS = 3
"""So many steps of a shard, one behind the other, have to show one length: what spans a change shows neither."""
FEWEST = 16
"""However long rounds are, no history of blocks is shorter: several times what execution or finality are behind."""

Source = Literal["setting", "network", "blocks", "default"]

log = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """The newest header of a shard."""

    round: int
    epoch: int
    time_ms: int
    length_ms: int = 0
    """That the steps up to it show, …"""
    steps: int = 0
    """… how many of them, …"""
    since_ms: int = 0
    """… and from when on."""


class Rounds:
    """The length of a round: what is set, else what headers show, else what the network says, else the default."""

    def __init__(self, fixed_ms: int = 0) -> None:
        """`fixed_ms`: the length that an operator has set; 0: it is to be found out."""
        self._fixed = fixed_ms
        self._said = self._shown = 0
        self._shards: dict[int, _Seen] = {}
        self._before, self._since_ms = 0, 0
        """The length that headers showed before the present one, which they show from this time on."""
        self.on_doubt: Callable[[], None] = lambda: None
        """Told when the network's configuration may be another one: with an epoch, and when headers contradict it."""

    @property
    def ms(self) -> int:
        """The length of a round now."""
        return self._fixed or self._shown or self._said or DEFAULT_MS

    @property
    def seconds(self) -> float:
        """The same in seconds."""
        return self.ms / 1000

    @property
    def source(self) -> Source:
        """Who says so. The network, where headers show the same."""
        if self._fixed:
            return "setting"
        if self._said and self._shown in (0, self._said):
            return "network"
        return "blocks" if self._shown else "default"

    @property
    def is_contradicted(self) -> bool:
        """Whether headers show another length than the network's configuration says."""
        return bool(self._said and self._shown) and self._said != self._shown

    def ms_at(self, time_ms: int) -> int:
        """The length of a round at a time, as of the last change that headers showed."""
        return self._before if self._before and time_ms < self._since_ms and not self._fixed else self.ms

    def count(self, seconds: float, most: int) -> int:
        """How many rounds a time has: `most` at most, which bounds memory."""
        return max(FEWEST, min(most, round(seconds * 1000) // self.ms))

    # ---- what is told

    def said(self, length_ms: int) -> None:
        """The network's configuration says so. Raises `ValueError` for what is no length of a round."""
        if not SHORTEST_MS <= length_ms <= LONGEST_MS:
            raise ValueError(f"a round of {length_ms} ms")
        before, self._said = self.ms, length_ms
        self._log_change(before)

    def header(self, shard: int, number: int, epoch: int, time_ms: int) -> None:
        """A header of a round that began at this time."""
        last = self._shards.get(shard)
        if last is not None and (number == last.round or (number < last.round and time_ms <= last.time_ms)):
            return  # another node's copy, or a fork
        self._shards[shard] = seen = _next(last, number, epoch, time_ms)
        has_new_epoch = last is not None and epoch > last.epoch
        if seen.steps >= STEPS and seen.length_ms != self._shown:
            before = self.ms
            self._before, self._since_ms = self._shown, seen.since_ms
            self._shown = seen.length_ms
            self._log_change(before)
            has_new_epoch = has_new_epoch or self.is_contradicted
        if has_new_epoch:
            self.on_doubt()

    def _log_change(self, before: int) -> None:
        if self.ms != before:
            log.info("a round has another length", extra={"ms": self.ms, "before": before, "source": self.source})


def _next(last: _Seen | None, number: int, epoch: int, time_ms: int) -> _Seen:
    """A header after another of its shard: with one step more, unless the length is another one than before."""
    if last is None or number <= last.round:  # of another chain, as one that was begun anew
        return _Seen(number, epoch, time_ms)
    length = (time_ms - last.time_ms) // (number - last.round)
    if not SHORTEST_MS <= length <= LONGEST_MS:
        return _Seen(number, epoch, time_ms)
    if length == last.length_ms:
        return _Seen(number, epoch, time_ms, length, last.steps + 1, last.since_ms)
    return _Seen(number, epoch, time_ms, length, 1, last.time_ms)
