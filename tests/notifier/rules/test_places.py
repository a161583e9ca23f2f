"""Where a consumer goes on that moves between notifiers, against many orders of the same events.

`MILLRACE_PLACES_SEEDS` sets the number of random walks.
"""

from __future__ import annotations

import os
import random

import pytest

from millrace.notifier.rules import places
from millrace.notifier.rules.dedup import memory_key
from millrace.notifier.rules.places import OVERLAP, Mark, floors, mark_of
from millrace_client.places import Place, Told

from ..helpers import block_hash

SHARDS = range(3)
SEEDS = int(os.environ.get("MILLRACE_PLACES_SEEDS", "25"))
APART = 40
"""Events of a shard by which orders differ at most: well within what is promised."""


def name(shard: int, number: int) -> str:
    return f"SaveBlock:{shard}:{block_hash((shard, number)).hex()}:1"


class Journal:
    """What one notifier was told; its sequences begin at 1."""

    def __init__(self, rng: random.Random, length: int) -> None:
        """Each shard in an order of its own, which differs a little from the true one, and at a pace of its own."""
        queues = [self._order(rng, shard, length) for shard in SHARDS]
        self.events: list[tuple[int, str]] = []
        while any(queues):
            shard = rng.choices(SHARDS, [rng.random() if queue else 0 for queue in queues])[0]
            stretch = rng.choice((1, 3, 50))
            self.events += [(shard, queues[shard].pop()) for _ in range(min(stretch, len(queues[shard])))]
        self.heard = {memory_key(id_): number + 1 for number, (_, id_) in enumerate(self.events)}
        self.head = 0
        """What it was told yet."""

    def _order(self, rng: random.Random, shard: int, length: int) -> list[str]:
        """Last one first."""
        place = {number: number + rng.choice((0, 0, 0, rng.randrange(APART))) for number in range(length)}
        return [name(shard, number) for number in sorted(place, key=lambda number: -place[number])]

    def start(self, place: Place) -> tuple[int, dict[int, int]]:
        """Where it goes on for a consumer of another notifier: cursor and floors."""
        marks = tuple(mark_of(id_, since) for id_, since in place.handled)
        heard = {mark.key: self.heard[mark.key] for mark in marks if self.heard[mark.key] <= self.head}
        found = {shard: 0 if floor is None else floor for shard, floor in self._floors(marks, heard).items()}
        return min(found.values(), default=0), found

    def _floors(self, marks: tuple[places.Mark, ...], heard: dict[places.Key, int]) -> dict[int, int | None]:
        return floors(marks, heard, 0, SHARDS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost(seed: int) -> None:
    """However a consumer moves, lives on or is replaced by another at its place, it hears each event since it began.

    Orders differ by less than the overlap; notifiers are told at different paces, and are away.
    """
    rng = random.Random(seed)
    length = rng.choice((60, 300, 1500))
    journals = [Journal(rng, length) for _ in range(3)]
    for journal in journals:
        journal.head = rng.randrange(60)
    at = rng.randrange(3)
    cursor, lows = journals[at].head, dict.fromkeys(SHARDS, 0)
    wanted = {id_ for _, id_ in journals[at].events[cursor:]}
    got: set[str] = set()
    told, number, origin = Told(None), 0, at
    while True:
        for journal in journals:
            if rng.random() < 0.8:
                journal.head = min(len(journal.events), journal.head + rng.randrange(1 + length // 8))
        journal = journals[at]
        end = rng.randrange(cursor, journal.head + 1) if journal.head > cursor else cursor
        for sequence in range(cursor + 1, end + 1):
            shard, id_ = journal.events[sequence - 1]
            if sequence > lows.get(shard, 0) and id_ not in told:
                number += 1
                got.add(id_)
                told.add(number, sequence, id_, str(at))
        cursor = max(cursor, end)
        if all(journal.head == len(journal.events) for journal in journals) and cursor == len(journal.events):
            break
        place = told.place(number)
        if place is None or rng.random() < 0.3:
            continue
        if rng.random() < 0.3:
            told = Told(Place.of_text(place.text()))
        at = rng.randrange(3)
        if place.journal == str(at):
            cursor, lows = place.after, {}
        else:
            cursor, lows = journals[at].start(place)
    assert not wanted - got, (len(wanted - got), origin)


def marks(shard: int, *since: int) -> tuple[Mark, ...]:
    """What a consumer names that handled `number` 0 last, 1 before it and so on."""
    return tuple(mark_of(name(shard, distance), distance) for distance in since)


def heard(*told: tuple[Mark, int]) -> dict[places.Key, int]:
    return {mark.key: sequence for mark, sequence in told}


def test_the_overlap_is_whole() -> None:
    """Where the event at just that distance is not named, the next one further back counts."""
    known = marks(0, 0, 1, 16, 64, 256, 1024)
    at = heard(*((mark, 5000 - mark.since) for mark in known))
    assert floors(known, at, 0, [0]) == {0: 5000 - 256 - 1}
    del at[known[0].key], at[known[1].key]
    assert floors(known, at, 0, [0]) == {0: 5000 - 256 - 1}


def test_just_begun() -> None:
    """Who has handled a few events only may lack what came before these elsewhere."""
    (one,) = marks(0, 0)
    assert floors((one,), {one.key: 5000}, 0, [0, 1, 2]) == {0: 4999 - 3 * OVERLAP, 1: 4999, 2: 4999}
    assert floors((one,), {one.key: 5000}, 4990, [0]) == {0: 4990}, "not before the journal's first"


def test_a_shard_unheard_of() -> None:
    """All of a shard is new of which a consumer heard nothing, since the furthest that it names of others."""
    known = marks(1, 0, 1, 128, 4096)
    at = heard(*((mark, 9000 - mark.since) for mark in known))
    assert floors(known, at, 0, [0, 1]) == {1: 9000 - 128 - 1, 0: 9000 - 4096 - 1}
    assert floors(known, {}, 7, [0, 1]) == {1: None, 0: None}
    assert floors((), {}, 7, [0, 1]) == {1: None, 0: None}, "who names nothing may lack anything"
