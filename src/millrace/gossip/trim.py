"""Which connections to close when there are too many, after the quotas by which nodes choose theirs.

A node keeps 41 connections: validators and observers of its own and other shards, 2 seeders, and 7 of peers it
cannot place (mx-chain-communication-go, `listsSharder`); of each kind those nearest to it by Kademlia. We do not tell
validators from observers. What we can tell is who is of use: a peer that is subscribed to a topic of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

GRACE_SECONDS = 15.0
"""A new peer may take so long to say what it is subscribed to; nodes look at each other as often."""


class Connection(msgspec.Struct, frozen=True):
    """A connected peer as the choice sees it."""

    peer: bytes
    """Its libp2p id."""
    kept: bool
    """We dial it again whenever it is lost: it is never closed."""
    useful: bool
    """It is subscribed to a topic of ours."""
    meshed: bool
    """We are in a mesh with it."""
    age: float
    """Seconds since it connected."""


def surplus(own: bytes, connections: Iterable[Connection], most: int, most_unknown: int) -> list[bytes]:
    """The peers to let go of: unknown ones beyond their quota, then whoever is beyond the bound of all.

    First go those of no use, then those outside our meshes, last those in them; of equals the furthest by
    Kademlia, so that the network keeps its shape. A peer within its grace is not unknown yet.
    """
    everybody = list(connections)
    free = sorted(
        (one for one in everybody if not one.kept),
        key=lambda one: (_is_unknown(one), not one.useful, not one.meshed, _distance(own, one.peer)),
    )
    room = max(0, most - (len(everybody) - len(free)))
    unknown = [one for one in free if _is_unknown(one)]
    leaving = {one.peer for one in unknown[most_unknown:]} | {one.peer for one in free[room:]}
    return [one.peer for one in free if one.peer in leaving]


def _is_unknown(one: Connection) -> bool:
    return not one.useful and one.age >= GRACE_SECONDS


def _distance(left: bytes, right: bytes) -> int:
    """Kademlia's: XOR of the SHA-256 of both ids."""
    return int.from_bytes(hashlib.sha256(left).digest(), "big") ^ int.from_bytes(hashlib.sha256(right).digest(), "big")
