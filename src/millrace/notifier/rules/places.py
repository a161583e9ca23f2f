"""Where a consumer goes on that was served by another notifier: by the ids of what it has handled.

Sequences are one journal's own: two that begin at the same moment may have the same event under the same sequence, and
other events before it. Ids are the same everywhere, but two notifiers may have been told of the shards at
different times, and within a shard by nodes that differ a little. So the place is one of each shard, and a little
before what was handled last: what then comes again is known by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace.notifier.rules.dedup import memory_key

OVERLAP = 128
"""Events of a shard by which the orders of two notifiers may differ: some forty blocks, with executions and marks.
Nodes that are further apart than that are not in step with the network."""

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


def floors(marks: tuple[Mark, ...], heard: Mapping[Key, int]) -> dict[int, int | None]:
    """Shard -> the sequence after which it goes on; `None` when nothing that the consumer names is known here.

    `heard`: key -> the sequence before which nothing was heard of it. A notifier that is behind the consumer knows only
    earlier events; the further behind, the less exact is the place, and the further back delivery begins. Consumers
    name events at distances that double, or quadruple at most.
    """
    found: dict[int, int | None] = {}
    for shard in {mark.key[0] for mark in marks}:
        known = [mark for mark in marks if mark.key[0] == shard and mark.key in heard]
        reach = 4 * min((mark.since for mark in known), default=0) + OVERLAP
        found[shard] = min((heard[mark.key] - 1 for mark in known if mark.since <= reach), default=None)
    return found
