"""Best spot rates between one token and all others (label correcting over token pairs)."""

from __future__ import annotations

import numpy as np

from millrace.routing.compiled import kernel
from millrace.routing.net import EVEN, Floats, Ints, Net

# A label travels this many hops; in a market with arbitrage the rates would grow for ever.
ROUNDS = 12
# Nor do they grow beyond this, which is more than any path pays for: where a pool with a unit in it leads back, twelve
# hops are beyond all numbers, and prices that begin as squares of such, or infinite, are none that anything ends at.
MOST = 1e60


def potentials(net: Net, root: int, backward: bool) -> Floats:
    """Best product of spot rates from `root` to each token, or from each token to `root` (`backward`).

    Zero for tokens that cannot be reached, and for tokens with one neighbour: no route passes through them.
    """
    best, (queued, current, following) = np.zeros(net.core.size), np.zeros((3, net.core.size), np.int32)
    _label(net, root, backward, best, queued, current, following)
    return best


@kernel
def _label(net: Net, root: int, backward: bool, best: Floats, queued: Ints, current: Ints, following: Ints) -> None:
    """Fill `best`, which is zero, as `queued` is."""
    best[root] = 1.0
    current[0] = root
    count = 1
    for r in range(ROUNDS):
        found = 0
        for i in range(count):
            u = current[i]
            for k in range(net.pptr[u], net.pcore[u]):
                v = net.pdst[k]
                value = min(best[u] * (net.pback[k] if backward else net.prate[k]), MOST)
                if v != root and value > best[v] * (1.0 + 1e-14):
                    best[v] = value
                    if queued[v] != r + 1:
                        queued[v] = r + 1
                        following[found] = v
                        found += 1
        if found == 0:
            break
        current, following = following, current
        count = found


@kernel
def is_closed(net: Net, root: int, backward: bool, best: Floats) -> bool:
    """Whether no pair of core tokens, nor a pair of the root, offers more than these labels say.

    That is so where labels did not stop at `ROUNDS` and no cycle from the root on earns.
    """
    for u in net.corelist:
        for k in range(net.pptr[u], net.pcore[u]):
            if best[u] * (net.pback[k] if backward else net.prate[k]) > best[net.pdst[k]] * EVEN:
                return False
    for k in range(net.pptr[root], net.pptr[root + 1]):
        if best[net.pdst[k]] * (net.prate[k] if backward else net.pback[k]) > EVEN:
            return False
    return True


@kernel
def source_rate(net: Net, source: int, to_sink: Floats) -> float:
    """Best spot rate from `source` to the sink of the potentials `to_sink`, over at least one edge."""
    best = 0.0
    for k in range(net.pptr[source], net.pptr[source + 1]):
        value = net.prate[k] * to_sink[net.pdst[k]]
        if value > best:
            best = value
    return best
