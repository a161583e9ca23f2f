"""Kernels called from Python without a look at the types of their arguments."""

from __future__ import annotations

import numpy as np

from millrace.dex.market import DictMarket
from millrace.routing import calls
from millrace.routing.calls import call
from millrace.routing.potential import potentials, source_rate
from millrace.routing.router import Router
from millrace.routing.synthetic import make_market


def test_a_call_gives_what_the_kernel_gives() -> None:
    """Whatever the graph and however often it is called, the result is that of the kernel itself."""
    for pools, seed in ((3, 1), (40, 2), (3, 3)):
        document = make_market(pools, seed)
        net = Router(document.pools, DictMarket(document.pools, document.wrapped_native_token))._graph.net
        for token in range(net.core.size):
            best = potentials(net, token, True)
            assert np.array_equal(call(potentials, net, token, True), best)
            assert call(source_rate, net, 0, best) == source_rate(net, 0, best)


def test_a_kernel_is_looked_up_once() -> None:
    """There is one entry for each kernel, however many graphs have been asked."""
    document = make_market(5, 4)
    for _ in range(2):
        net = Router(document.pools, DictMarket(document.pools, document.wrapped_native_token))._graph.net
        call(potentials, net, 0, False)
        known = dict(calls._entries)
    call(potentials, net, 1, True)
    assert calls._entries == known
