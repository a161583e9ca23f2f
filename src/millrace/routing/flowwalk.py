"""The walk of a flow of constant-product trades in compiled code: the same integers as `execution.py`, sooner.

Plans of hundreds of pools take Python longer to walk than the search takes to find them. Where the kernel does not know
what a trade pays, in curved pools or where slices of fees may sell for nothing, it stops, is told, and goes on. Whole
walks are left to Python where pools are met twice or refuse a trade, and for amounts of more than `BITS` bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millrace.dex import aggregator_contract as contract
from millrace.routing.candidates import Search
from millrace.routing.compiled import inlined, kernel
from millrace.routing.execution import NEARLY_ALL, RESOLUTION, Walked, rounded
from millrace.routing.kernelsearch import Flow
from millrace.routing.net import Bools, Floats, Ints, Words, WordTable
from millrace.routing.outlets import NONE, Outlets
from millrace.routing.plan import PlanError
from millrace.routing.stocks import any_stocks
from millrace.routing.tables import BITS, IN, KIND, LEAST, NO_POOL, PYTHON, Tables, pays
from millrace.routing.venue import Trade
from millrace.routing.wide import Wide, less, minus, multiply_divide, plus
from millrace.routing.work import MAX_EDGES

WORD = (1 << 64) - 1
ALL, FIXED, PPM = contract.ALL, contract.FIXED, contract.PPM
MILLION = contract.MILLION
DONE, TOO_LONG, OTHER, ASK = range(4)  # what becomes of a trade or walk
START = -1  # in the place of the trade that a walk has asked for


class Walk(NamedTuple):
    """What the kernel reads and writes. Amounts are two words, the upper one first.

    By edge of the net: `terms`, the exact formula, and `pool`, the number of the pool. By token: what is `held`, the
    flow `left` to sell and the `depth` in pools. By pool: its `outlet`, and whether it has been `used`. By trade in
    execution order:
    `edge`, `flow`, `mode`, `ppm`, and in two rows `sold` and `bought`. `amount` is what goes in, then what comes out,
    `asked` the trade whose output is wanted.
    """

    src: Ints
    dst: Ints
    terms: WordTable
    pool: Ints
    outlet: Ints
    held: WordTable
    left: Floats
    depth: Ints
    used: Bools
    edge: Ints
    flow: Floats
    mode: Ints
    ppm: Ints
    sold: WordTable
    bought: WordTable
    amount: Words
    asked: Ints


@inlined
def _forget(x: Walk, count: int) -> None:
    """Empty what is remembered of the tokens and pools of the flow."""
    for k in range(count):
        e = x.edge[k]
        x.used[x.pool[e]] = False
        if x.outlet[x.pool[e]] != NO_POOL:
            x.used[x.outlet[x.pool[e]]] = False
        for t in (x.src[e], x.dst[e]):
            x.held[t, 0] = 0
            x.held[t, 1] = 0
            x.left[t] = -1.0
            x.depth[t] = 0


@inlined
def _choose_modes(x: Walk, count: int, source: int, whole: float) -> None:
    """Amount modes, parts per million, and the fixed amounts (into `sold`), as `execution.choose_modes` does it."""
    for k in range(count - 1, -1, -1):
        t, flow = x.src[x.edge[k]], x.flow[k]
        last = x.left[t] < 0.0
        rest = flow if last else x.left[t] + flow
        x.mode[k], x.ppm[k] = ALL, 0
        if t == source and (whole > 0.0 or not last):
            x.mode[k] = FIXED
        elif not last:
            x.mode[k] = PPM
            x.ppm[k] = min(int(np.rint(flow / rest * MILLION)), MILLION - 1) if rest > 0.0 else 0
        x.left[t] = rest
    total = whole if whole > 0.0 else rounded(x.left[source])
    amount, zero, sold, before = (x.amount[0], x.amount[1]), np.uint64(0), 0.0, np.uint64(0)
    unsold, full = amount, (zero, np.uint64(RESOLUTION))
    for k in range(count):
        if x.mode[k] == FIXED:
            sold += x.flow[k] if whole > 0.0 else rounded(x.flow[k])
            part = np.uint64(np.rint(sold / total * float(RESOLUTION))) if sold < total * NEARLY_ALL else full[1]
            value = multiply_divide(amount, (zero, part - before), full) if part < full[1] else unsold
            x.sold[0, k], x.sold[1, k] = value
            before, unsold = part, minus(unsold, value)


@inlined
def _amount(x: Walk, k: int, have: Wide) -> Wide:
    """What a trade sells of what there is of its token."""
    if x.mode[k] == ALL:
        return have
    if x.mode[k] == FIXED:
        return x.sold[0, k], x.sold[1, k]
    zero = np.uint64(0)
    return multiply_divide(have, (zero, np.uint64(x.ppm[k])), (zero, np.uint64(MILLION)))


@inlined
def _trade(x: Walk, k: int) -> int:
    """Make a trade."""
    e = x.edge[k]
    a, b = x.src[e], x.dst[e]
    amount = _amount(x, k, (x.held[a, 0], x.held[a, 1]))
    x.bought[0, k], x.bought[1, k] = 0, 0
    x.depth[b] = max(x.depth[b], x.depth[a] + 1)
    if x.used[x.pool[e]]:
        return OTHER
    x.used[x.pool[e]] = True
    outlet = x.outlet[x.pool[e]]
    if outlet != NO_POOL:
        if x.used[outlet]:
            return OTHER
        x.used[outlet] = True
    x.sold[0, k], x.sold[1, k] = amount
    least, known = x.terms[e, LEAST], x.terms[e, KIND] != PYTHON
    if known and least > 0:
        known = not (less(amount, (np.uint64(0), least)) or less((x.terms[e, IN], x.terms[e, IN + 1]), amount))
    if not known:
        return ASK
    if amount[0] | amount[1] > 0:
        x.bought[0, k], x.bought[1, k] = pays(x.terms, e, amount)
    return _settle(x, k)


@inlined
def _settle(x: Walk, k: int) -> int:
    """Move what a trade sells and has bought; OTHER where it sells or pays nothing."""
    a, b = x.src[x.edge[k]], x.dst[x.edge[k]]
    have, amount, paid = (x.held[a, 0], x.held[a, 1]), (x.sold[0, k], x.sold[1, k]), (x.bought[0, k], x.bought[1, k])
    if paid[0] | paid[1] == 0 or less(have, amount):
        return OTHER
    x.held[a, 0], x.held[a, 1] = minus(have, amount)
    x.held[b, 0], x.held[b, 1] = plus((x.held[b, 0], x.held[b, 1]), paid)
    return DONE if x.held[b, 0] >> np.uint64(BITS - 64) == 0 else OTHER


@kernel
def walk_flow(x: Walk, edges: Ints, inputs: Floats, source: int, sink: int, hops: int, whole: float, at: int) -> int:
    """Walk a flow with `amount`, its trades given by their edges and inputs; DONE with all columns filled, or why not.

    `whole` is the flow that stands for all of the amount, for cycles; 0 for others. At first `at` is START. ASK: to go
    on, write what trade `asked` buys for what it has sold into `bought`, and call again with `at` that trade.
    """
    count = edges.size
    if at == START:
        for k in range(count):
            x.edge[k], x.flow[k] = edges[k], inputs[k]
        _forget(x, count)
        _choose_modes(x, count, source, whole)
        x.held[source, 0], x.held[source, 1] = x.amount[0], x.amount[1]
    for k in range(max(at, 0), count):
        made = _settle(x, k) if k == at else _trade(x, k)
        if x.depth[x.dst[x.edge[k]]] > hops:
            return TOO_LONG
        if made == ASK:
            x.asked[0] = k
        if made != DONE:
            return made
    x.amount[0], x.amount[1] = x.held[sink, 0], x.held[sink, 1]
    return DONE if x.amount[0] | x.amount[1] > 0 else OTHER


class FlowWalker:
    """Walks flows over one graph. One thread at a time; the scratch memory is reused."""

    def __init__(self, tables: Tables, outlets: Outlets = NONE) -> None:
        self._outlets = outlets
        net, tokens, most = tables.net, tables.net.core.size, MAX_EDGES
        self._modes, self._words = np.zeros((2, most), np.int32), np.zeros((4, most), np.uint64)
        self._walk = Walk(
            net.src, net.dst, tables.terms, tables.pool, tables.outlet,
            np.zeros((tokens, 2), np.uint64), np.zeros(tokens), np.zeros(tokens, np.int32),
            np.zeros(tables.outlet.size, np.bool_), np.zeros(most, np.int32), np.zeros(most),
            self._modes[0], self._modes[1], self._words[:2], self._words[2:],
            np.zeros(2, np.uint64), np.zeros(1, np.int32),
        )  # fmt: skip

    def walk(self, flow: Flow, search: Search, amount_in: int, hops: int) -> Walked | None:
        """The walked plan of a flow; None where Python has to walk it, as where a trade is too thin for integers.

        Raises `PlanError` if a path of it uses more than `hops` pools.
        """
        x = self._walk
        if not flow.trades or amount_in >> BITS:
            return None
        x.amount[0], x.amount[1] = amount_in >> 64, amount_in & WORD
        whole = float(search.amounts[0]) if search.cycle else 0.0
        source, at = int(search.sources[0]), START
        while (end := walk_flow(x, flow.edges, flow.inputs, source, search.sink, hops, whole, at)) == ASK:
            at = int(x.asked[0])
            if not self._tell(flow.trades[at], at):
                return None
        if end == TOO_LONG:
            raise PlanError("a path of the flow uses too many pools")
        return self._walked(flow.trades, amount_in) if end == DONE else None

    def _tell(self, trade: Trade, at: int) -> bool:
        """Tell the kernel what a trade pays for what it sells; False where more than its pool would have a say."""
        if trade.i < 0 or trade.pool.id in self._outlets.of or any_stocks([trade]):
            return False
        x = self._walk
        sold = int(x.sold[0, at]) << 64 | int(x.sold[1, at])
        paid = trade.pays(sold) if sold else 0
        if paid >> BITS:
            return False
        x.bought[0, at], x.bought[1, at] = paid >> 64, paid & WORD
        return True

    def _walked(self, trades: Sequence[Trade], amount_in: int) -> Walked:
        """The plan as the kernel has left it."""
        x, count = self._walk, len(trades)
        upper_sold, lower_sold, upper_bought, lower_bought = self._words[:, :count].tolist()
        sold = [upper << 64 | lower for upper, lower in zip(upper_sold, lower_sold, strict=True)]
        bought = [upper << 64 | lower for upper, lower in zip(upper_bought, lower_bought, strict=True)]
        modes, values = self._modes[:, :count].tolist()
        k = -1
        for _ in range(modes.count(FIXED)):
            k = modes.index(FIXED, k + 1)
            values[k] = sold[k]
        high, low = x.amount.tolist()
        return Walked(amount_in, high << 64 | low, trades, modes, values, sold, bought)
