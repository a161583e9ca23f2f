"""What plans could gain by slices of special fees that swaps in xExchange pairs sell in other pairs of the market.

Such a swap moves the other pair. Who trades there the other way after it is paid more than the pair as it was says: at
given prices by no more than the slice is worth less what it sells for. To move that pair oneself before the slice comes
costs more in fees than it can bring as long as the slice is less than half of the fee on what the pair holds; of larger
ones it is no more than twice what they are worth. The slices are a part of what the swap sells, so that this comes to
a lower price of that (`astray.py` adds it to what the dual's prices prove).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from millrace.dex.constant_product import XExchangePool
from millrace.routing.net import Graph
from millrace.routing.outlets import Outlets
from millrace.routing.venue import Trade

# Columns of `Net.seller`: the edge whose fee is sold, the tokens sold and bought there, and the pair, by its way back.
EDGE, SOLD, WANTED, PAIR = range(4)
# Columns of `Net.slices`: the part of the input that they are, what they are sold for, and up to where they are small.
PART, SPOT, LARGEST = range(3)


def with_slices(graph: Graph, trades: Sequence[Trade], outlets: Outlets, index: Mapping[str, int]) -> Graph:
    """The graph of these trades with the slices that they sell in pairs which it holds, too."""
    names = {*outlets.of, *(pair.id for pair in outlets.pairs.values())}
    edges: dict[tuple[str, int], int] = {}
    pools: dict[str, XExchangePool] = {}
    for e, number in enumerate(graph.original.tolist() if names else ()):
        pool, i = trades[number].pool, trades[number].i
        if pool.id in names and i >= 0 and isinstance(pool, XExchangePool):
            edges[pool.id, i], pools[pool.id] = e, pool
    found: list[tuple[tuple[int, int, int, int], tuple[float, float, float]]] = []
    for name in sorted(outlets.of.keys() & pools.keys()):  # sums are of floats: the same in every process
        pool = pools[name]
        kept = 1.0 - pool.fees_collector_cut / pool.fee_base if pool.fees_collector else 1.0
        for i, ways in enumerate(pool.outlets):
            for outlet in ways:
                pair = outlets.pairs.get(outlet.address) if outlet is not None else None
                if outlet is None or pair is None or (name, i) not in edges:
                    continue
                sold = pool.tokens[1 - i if outlet.here else i]
                if sold not in pair.tokens:
                    continue
                other = 1 - pair.tokens.index(sold)
                if (pair.id, other) not in edges:
                    continue
                own, bought, pays = (float(graph.scale[index[t]]) for t in (sold, pair.tokens[other], pool.tokens[i]))
                part = pool.special_fee / pool.fee_base * kept / len(ways) * own / pays
                if outlet.here:
                    part *= pool.reserves[1 - i] / pool.reserves[i]
                held = pair.reserves[1 - other] * own
                fee = pair.total_fee / pair.fee_base
                row = edges[name, i], index[sold], index[pair.tokens[other]], edges[pair.id, other]
                found.append((row, (part, pair.reserves[other] * bought / held, fee * held / 2.0)))
    if not found:
        return graph
    rows, numbers = zip(*sorted(found, key=lambda each: each[0][PAIR]), strict=True)
    return graph._replace(net=graph.net._replace(seller=np.array(rows, np.int32), slices=np.array(numbers)))
