"""What a place says, that it stays short, and that both clients give the same text for the same events."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from millrace_client import places
from millrace_client.places import Place, Told

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "hub_places.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=["first", "second", "unmoved", "large"])
def test_places_of_both_clients(case: dict[str, Any]) -> None:
    """The kept text comes of the kept events: the TypeScript client reads the same file, so either may go on."""
    told = Told(Place.of_text(case["begun"]) if case["begun"] else None)
    for number, sequence, event_id in case["events"]:
        told.add(number, int(sequence), event_id, case["journal"])
    place = told.place(case["number"])
    assert place is not None and place.text() == case["place"]


def name(shard: int, number: int) -> str:
    return f"SaveBlock:{shard}:{number:064x}:1"


def test_distances_double() -> None:
    """Of each shard the newest event is named, and others at distances that double."""
    told = Told(None)
    assert told.place(0) is None
    for number in range(1, 301):
        told.add(number, 1000 + number, name(number % 2, number), "a" if number < 200 else "b")
    told.add(301, 1301, "SaveRoundsInfo:0:aa:1", "b")
    place = told.place(301)
    assert place is not None and (place.after, place.id, place.journal) == (1301, "SaveRoundsInfo:0:aa:1", "b")
    assert sorted(since for id_, since in place.handled if id_.startswith("SaveBlock:0")) == [
        0,
        *(2**power for power in range(8)),
    ]
    assert (name(0, 300 - 2 * 128), 128) in place.handled
    earlier = told.place(150)
    assert earlier is not None and (earlier.after, earlier.journal) == (1150, "a")
    assert (name(0, 150), 0) in earlier.handled
    assert name(0, 150) in told and name(0, 1) not in told
    assert Place.of_text(place.text()) == place


def test_places_taken_from_places() -> None:
    """However often a reader is replaced, distances at most quadruple, and the place does not grow."""
    rng = random.Random(1)
    place, number = None, 0
    for _ in range(300):
        told = Told(place)
        for _ in range(rng.randrange(40)):
            number += 1
            told.add(number, number, name(0, number), "a")
        place = told.place(number)
        if place is None:
            continue
        assert place.after == number and len(place.handled) <= 28
        distances = sorted({since for _, since in place.handled})
        assert all(id_ == name(0, number - since) for id_, since in place.handled)
        assert distances[0] == 0
        reached = min(number - 1, 4096)
        assert distances[-1] >= reached // 4 or distances[-1] >= 1024
        assert all(later <= 4 * before for before, later in itertools.pairwise(distances[1:]))


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of a shard is bounded, and a place that is further back is none."""
    monkeypatch.setattr(places, "_KEPT", 64)
    monkeypatch.setattr(places, "_FURTHEST", 32)
    told = Told(None)
    for number in range(1, 101):
        told.add(number, number, name(0, number), "a")
    assert (name(0, 36) in told, name(0, 37) in told) == (False, True) and len(told) == 64
    assert told.place(60) is None and told.place(70) is not None


def test_where_an_earlier_process_was() -> None:
    """Until something came, the place is the one that was kept; shards that were silent since stay in it."""
    kept = Place(7, name(0, 7), ((name(0, 7), 0), (name(1, 3), 0)), "a")
    told = Told(kept)
    assert told.place(7) == kept
    told.add(8, 8, name(0, 8), "b")
    place = told.place(8)
    assert place is not None and (place.id, place.journal) == (name(0, 8), "b")
    assert set(place.handled) == {(name(0, 8), 0), (name(0, 7), 0), (name(1, 3), 0)}, "perhaps it was told again"


def test_what_another_notifier_tells_again() -> None:
    """A place that is taken in the middle of what comes again reaches no less far back than the one before it."""
    told = Told(None)
    for number in range(1, 301):
        told.add(number, number, name(0, number), "a")
    place = told.place(300)
    assert place is not None and (name(0, 172), 128) in place.handled
    for journal, since in (("b", 128), ("a", 128 + 60)):  # who goes on with the same one hears nothing again
        again = Told(place)
        for number in range(1, 61):
            again.add(number, number, name(0, 171 + number), journal)
        later = again.place(60)
        assert later is not None and (name(0, 172), since) in later.handled


def test_what_is_no_place() -> None:
    """Other words are refused."""
    for text in ("", "7", "[1]", '[1,"a",[["b",-1.5]]]', "[" * 10_000):
        with pytest.raises(ValueError):
            Place.of_text(text)
