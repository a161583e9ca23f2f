"""What goes wrong, when and for how long: all of it follows from the seed."""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

from cluster.lines import Way

Kind = Literal["kill", "freeze", "isolate", "line", "signer", "flush", "sessions", "fail over"]
LONGEST = 8.0
"""Seconds; more than twice the lease of a seat."""
CHAIN_LONGEST = 2.0
"""The chain's clock catches up with so much."""
FAIL_OVER_EVERY = 120.0

KILLED = ("relayer0", "relayer1", "relayer2", "edge0", "edge1", "notifier0", "notifier1", "balancer", "redis", "broker",
          "database0", "database1")  # fmt: skip
FROZEN = (*KILLED, "chain")
ISOLATED = ("relayer0", "relayer1", "relayer2", "edge0", "edge1", "notifier0", "notifier1", "database0", "database1",
            "redis", "broker")  # fmt: skip
ENDED = ("pg_cancel_backend", "pg_terminate_backend")
"""What operators do to sessions of a database that seem to hang."""
WAYS: tuple[Way, ...] = ("silent", "deaf", "mute", "cut")
WEIGHTS: dict[Kind, int] = {"kill": 30, "freeze": 25, "isolate": 20, "line": 20, "signer": 5, "flush": 4, "sessions": 6}


class Fault(NamedTuple):
    """`victim` is a part, or the two ends of a line."""

    at: float
    """Seconds from the beginning."""
    kind: Kind
    victim: str
    way: Way
    seconds: float
    """For how long; for how long the lost primary is there again, if at all."""


def plan(seed: int, seconds: float, lines: list[str], pause: float = 6.0) -> list[Fault]:
    """What happens in so many seconds; `pause` is the longest between two beginnings, so that faults overlap."""
    chance = random.Random(seed)
    faults: list[Fault] = []
    at, fail_over = chance.random() * pause, min(seconds, FAIL_OVER_EVERY) / 2
    while at < seconds:
        if at >= fail_over:
            awake = chance.choice((0.0, LONGEST / 2))
            faults.append(Fault(at, "fail over", "primary", "cut", awake))
            fail_over += FAIL_OVER_EVERY
        else:
            faults.append(_fault(chance, at, lines))
        at += chance.random() * pause
    return faults


def _fault(chance: random.Random, at: float, lines: list[str]) -> Fault:
    (kind,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
    victims = {
        "kill": KILLED, "freeze": FROZEN, "isolate": ISOLATED, "line": tuple(sorted(lines)),
        "signer": ("relayer0", "relayer1", "relayer2"), "flush": ("redis",), "sessions": ENDED,
    }  # fmt: skip
    victim = chance.choice(victims[kind])
    longest = CHAIN_LONGEST if victim == "chain" else LONGEST
    return Fault(at, kind, victim, chance.choice(WAYS), 0.2 + chance.random() * (longest - 0.2))
