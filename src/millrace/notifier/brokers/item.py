"""What goes to a broker, and what notifiers that share one agree about it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Item(NamedTuple):
    """A message for the broker: an event, or a gap (`topic` is `gap`, `shard` None) for events it will not get."""

    sequence: int
    topic: str
    shard: int | None
    marks: int
    message_id: str
    payload: bytes
    claim: str = ""
    """By what notifiers that share the broker know the event."""
    received_ms: int = 0
    """When a node told it; 0 for what left the journal."""


class Verdict(Enum):
    """What notifiers that share a broker agree about an event."""

    PUBLISH = 1
    PASS = 2
    """It is published already."""
    WAIT = 3
    """Another has it under way, or is away and its lease has not ended."""
