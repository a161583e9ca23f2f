"""Places of hub consumers: the texts that both clients give for the same events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
