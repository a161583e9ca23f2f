"""Where a consumer goes on that was served by another notifier: by the ids of what it has handled.

Sequences are one journal's own: two that begin at the same moment may have the same event under the same sequence, and
other events before it. Ids are the same everywhere, but two notifiers may have been told of the shards at
different times, and within a shard by nodes that differ a little. So the place is one of each shard, and a little
before what was handled last: what then comes again is known by its id.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import NamedTuple

from millrace.notifier.rules.dedup import memory_key

OVERLAP = 128
"""Events of a shard by which the orders of two notifiers may differ: some forty blocks, with executions and marks.
Nodes that are further apart than that are not in step with the network, which is measured in blocks, not in seconds;
and consumers count on it (docs/notifier.md), so it is the same in rounds of any length."""

Key = tuple[int, bytes]


class Mark(NamedTuple):
    """One of the events that a consumer has handled."""

    key: Key
    """What the journal's memory knows it under."""
    since: int
    """How many of its shard the consumer has handled since."""


class Place(NamedTuple):
    """Where a consumer is."""

    after: int
    """The sequence of the last event it handled, …"""
    message_id: str
    """… that event's id, …"""
    journal: str
    """… and name of the run that gave this sequence; empty: not known."""
    marks: tuple[Mark, ...]


def mark_of(message_id: str, since: int) -> Mark:
    """A consumer's word. Raises `ValueError` when it has no id of an event."""
    shard, name = memory_key(message_id)
    if not 0 <= shard < 1 << 32:
        raise ValueError("no shard has such a number")
    return Mark((shard, name), since)


def floors(
    marks: tuple[Mark, ...], heard: Mapping[Key, int], origin: int, shards: Collection[int]
) -> dict[int, int | None]:
    """Shard -> the sequence after which it goes on; `None` when nothing that the consumer names is known here.

    `heard`: key -> the sequence before which nothing was heard of it. `origin`: no sequence is so small. `shards`:
    those that the journal has. Of one that the consumer has heard nothing of, all is new since the furthest it names.
    """
    named: dict[int, list[Mark]] = {}
    for mark in sorted(marks, key=_since):
        named.setdefault(mark.key[0], []).append(mark)
    found = {
        shard: _floor([mark for mark in of if mark.key in heard], heard, len(shards)) for shard, of in named.items()
    }
    for shard in set(shards) - named.keys():
        found[shard] = min(heard.values()) - 1 if heard else None
    return {shard: floor if floor is None else max(floor, origin) for shard, floor in found.items()}


def _floor(known: list[Mark], heard: Mapping[Key, int], shards: int) -> int | None:
    """Where a shard goes on by what is known of it, the newest first.

    A notifier that is behind the consumer knows only earlier events; the further behind, the less exact is the place,
    and the further back delivery begins. Consumers name events at distances that double, or quadruple at most.
    """
    if not known:
        return None
    behind = known[0].since
    used = known[: bisect_left(known, 4 * behind + OVERLAP, key=_since) + 1]
    floor = min(heard[mark.key] for mark in used) - 1
    if used[-1].since - behind < OVERLAP:  # it began so short a time ago, and may lack what came to others before
        floor -= OVERLAP * shards
    return floor


def _since(mark: Mark) -> int:
    return mark.since
