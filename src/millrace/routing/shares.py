"""What edges, paths and routes take, in the kernels: shares of a transaction, and its fee. See `limits.py`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from millrace.routing.compiled import inlined
from millrace.routing.edge import edge_gain
from millrace.routing.net import Floats, Ints, Net
from millrace.routing.work import EDGES, HOLD, Work

NOTHING = -1e300  # less than any path leaves after its fee
WHOLE = 1.0 + 1e-10  # what shares may add up to: 1 and what adding may be off, far less than a unit of gas (1.7e-9)


NO_FEES = np.zeros(1)


class Room(NamedTuple):
    """The limits of one question: each edge's share of them, and whether a path can be too long for them: if so, such
    paths are not even followed.

    An edge's fee is the gas that it adds to the fee, at `price` of the sink (scaled) for one; at 0 fees do not count.
    """

    share: Floats  # (edge of the net)
    strict: bool
    fee: Floats = NO_FEES  # (edge of the net); nobody looks at it where the price is 0
    price: float = 0.0


@inlined
def share_of(w: Work, room: Room, e: int) -> float:
    """The share of an edge of the working set; keeping the input takes nothing."""
    return 0.0 if w.e_edge[e] == HOLD else float(room.share[w.e_edge[e]])


@inlined
def fee_of(w: Work, room: Room, e: int) -> float:
    """The fee of an edge of the working set, in units of the dual's value."""
    counts = room.price > 0.0 and w.e_edge[e] != HOLD
    return float(room.fee[w.e_edge[e]] * room.price / w.unit[0]) if counts else 0.0


@inlined
def fees_of(w: Work, room: Room) -> float:
    """The fee of the route of the used edges, in units of the dual's value."""
    total = 0.0
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            total += fee_of(w, room, e)
    return total


@inlined
def taken_by(w: Work, room: Room) -> float:
    """The share of the route of the used edges."""
    total = 0.0
    for e in range(w.n[EDGES]):
        if w.e_use[e]:
            total += share_of(w, room, e)
    return total


@inlined
def best_of_pair(net: Net, used: Floats, room: Room, k: int, d: float, price: float) -> tuple[float, int, float, int]:
    """What `d` buys from that edge of pair `k` which leaves most after its fee; the edge, its fee, and edges looked at.

    Each finds what it was `used` for before. The fee is in the token bought, at `price`; of an edge in use it is paid
    already.
    """
    best, bought, choice, fee, looked = NOTHING, 0.0, -1, 0.0, 0
    for e in range(net.pe0[k], net.pe1[k]):
        if d * net.rate[e] <= best:
            break
        looked += 1
        out = edge_gain(net, e, used[e], d)
        paid = room.fee[e] * price if price > 0.0 and used[e] == 0.0 else 0.0
        if out > 0.0 and out - paid > best:
            best, bought, choice, fee = out - paid, out, e, paid
    return bought, choice, fee, looked  # not the sum of what is left and the fee: a large fee would swallow it


@inlined
def path_share(room: Room, path: Ints, length: int) -> float:
    """The share of a path."""
    total = 0.0
    for h in range(length):
        total += room.share[path[h]]
    return total


@inlined
def path_fee(room: Room, path: Ints, length: int) -> float:
    """The fee of a path, in units of the sink (scaled)."""
    total = 0.0
    if room.price > 0.0:
        for h in range(length):
            total += room.fee[path[h]] * room.price
    return total
