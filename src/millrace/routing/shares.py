"""Shares of a transaction in the kernels: how much of it edges, paths and routes take. See `limits.py`."""

from __future__ import annotations

from typing import NamedTuple

from millrace.routing.jit import inlined
from millrace.routing.net import Floats, Ints
from millrace.routing.work import EDGES, HOLD, Work

WHOLE = 1.0 + 1e-10  # what shares may add up to: 1 and what adding may be off, far less than a unit of gas (1.7e-9)


class Room(NamedTuple):
    """The limits of one question: each edge's share of them, and whether paths that are longer are not even followed.

    Where they are, what is found first may be too long: most questions then are answered sooner.
    """

    share: Floats  # (edge of the net)
    strict: bool


@inlined
def share_of(w: Work, room: Room, e: int) -> float:
    """The share of an edge of the working set; keeping the input takes nothing."""
    return 0.0 if w.e_edge[e] == HOLD else float(room.share[w.e_edge[e]])


@inlined
def taken_by(w: Work, room: Room) -> float:
    """The share of the route of the used edges."""
    total = 0.0
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            total += share_of(w, room, e)
    return total


@inlined
def path_share(room: Room, path: Ints, length: int) -> float:
    """The share of a path."""
    total = 0.0
    for h in range(length):
        total += room.share[path[h]]
    return total
