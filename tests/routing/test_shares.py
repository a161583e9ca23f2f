"""What edges leave after their fees."""

from __future__ import annotations

import numpy as np

from millrace.dex.market import DictMarket
from millrace.routing import net as nets
from millrace.routing.edge import edge_out
from millrace.routing.shares import Room, best_of_pair
from millrace.routing.venue import CurveCache, list_edges, sort_out
from synthetic import WRAPPED, make_market


def test_a_fee_many_times_what_is_bought_leaves_what_is_bought_as_it_is() -> None:
    """What a trade pays is not lost beside the fee, however large that is."""
    document = make_market(10, seed=3)
    clean, _ = sort_out(document.pools, DictMarket(document.pools, WRAPPED))
    index = {token: k for k, token in enumerate(sorted({token for pool in clean for token in pool.tokens}))}
    edges, _ = list_edges(clean, index, CurveCache())
    net = nets.build(len(index), edges).net
    count = net.src.size
    room = Room(np.zeros(count), False)._replace(fee=np.ones(count))
    for pair in range(net.pdst.size):
        bought, edge, fee, looked = best_of_pair(net, np.zeros(count), room, pair, 1e-9, 1e12)
        if looked:
            assert fee == 1e12
            assert bought == edge_out(net, edge, 1e-9) > 0.0
