"""Where a reader of a notifier's hub is, in words that every notifier of the network understands.

Sequences are one notifier's own, ids of events are the same on all. A place is told by some ids of each shard: the
newest, and others ever further back, for a notifier that does not have the newest yet. What it then delivers a second
time is known here by its id.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import msgspec

_KEPT = 8192
"""Ids of a shard: half an hour of rounds of 600 ms, with marks and executions, and twice the furthest that is told."""
_FURTHEST = 4096
_REPEATED = 129
"""Events of a shard that a notifier tells again to who comes from another one and is not ahead of it."""
_OF_BLOCKS = {"SaveBlock", "ExecutedBlock", "FinalizedBlock", "RevertIndexedBlock"}


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where reading goes on, also in another process."""

    after: int
    """The last event's sequence, on the notifier that told it."""
    id: str
    """That event's id; empty: not known."""
    handled: tuple[tuple[str, int], ...]
    """Ids, and how many events of the same shard came since."""
    journal: str = ""
    """Whose sequence it is; empty: not known."""

    def text(self) -> str:
        """To keep."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_text(cls, text: str) -> Place:
        """What `text` gave. Raises `ValueError` for anything else."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ValueError(f"not the place of a hub's consumer: {error}") from None


class _Told(msgspec.Struct, frozen=True):
    number: int
    sequence: int
    id: str
    journal: str


class Told:
    """The newest events of each shard; their `number` ascends over all notifiers, from 1."""

    def __init__(self, place: Place | None) -> None:
        """`place`: where an earlier consumer was."""
        self._shards: dict[str, deque[_Told]] = {}
        self._ids: set[str] = set()
        self._begun = place
        self._before: dict[str, list[tuple[str, int]]] = {}
        """What `place` says of each shard."""
        for event_id, since in place.handled if place is not None else ():
            self._before.setdefault(_shard(event_id), []).append((event_id, since))

    def __len__(self) -> int:
        """Ids that are kept."""
        return len(self._ids)

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._ids

    def add(self, number: int, sequence: int, event_id: str, journal: str) -> None:
        """An event came, which has this sequence in that journal."""
        told = self._shards.setdefault(_shard(event_id), deque())
        told.append(_Told(number, sequence, event_id, journal))
        self._ids.add(event_id)
        if len(told) > _KEPT:
            self._ids.discard(told.popleft().id)

    def place(self, number: int) -> Place | None:
        """The place behind the event `number`; `None` when no event came, or it is further back than what is kept."""
        newest: _Told | None = None
        handled: list[tuple[str, int]] = []
        for shard in dict.fromkeys([*self._before, *self._shards]):
            told = self._shards.get(shard, deque())
            count = bisect_right(told, number, key=_number)
            if len(told) == _KEPT and count <= _FURTHEST:
                return None
            if count and (newest is None or told[count - 1].number > newest.number):
                newest = told[count - 1]
            if shard:
                named = [(told[count - 1 - since].id, since) for since in _STEPS if since < count]
                later = self._later(told, count)
                named += [(event_id, since + later) for event_id, since in self._before.get(shard, ())]
                handled += _thinned(named)
        if newest is not None:
            return Place(newest.sequence, newest.id, tuple(handled), newest.journal)
        return self._begun and msgspec.structs.replace(self._begun, handled=tuple(handled))

    def _later(self, told: deque[_Told], count: int) -> int:
        """How many of the oldest `count` of these came behind the place that this began with.

        Of what another journal told first, so many may have been there before: what is counted twice would make places
        reach less far back than they say.
        """
        moved = count and self._begun is not None and told[0].journal != self._begun.journal
        return max(0, count - _REPEATED) if moved else count


_STEPS = [0, *(1 << power for power in range(_FURTHEST.bit_length()))]
"""Of ids that are told: 0, 1, 2, 4, 8 and so on."""


def _thinned(named: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The nearest and the furthest at 1, at 2 and 3, at 4 to 7 and so on: places taken from places stay short."""
    nearest: dict[int, tuple[str, int]] = {}
    furthest: dict[int, tuple[str, int]] = {}
    for item in sorted(named, key=lambda item: item[1]):
        if item[1] <= _FURTHEST:
            nearest.setdefault(item[1].bit_length(), item)
            furthest[item[1].bit_length()] = item
    return list(dict.fromkeys([*nearest.values(), *furthest.values()]))


def _number(told: _Told) -> int:
    return told.number


def _shard(event_id: str) -> str:
    """The shard of an event about a block; empty for others, which no place is told by."""
    topic, _, rest = event_id.partition(":")
    return rest.partition(":")[0] if topic in _OF_BLOCKS else ""
