"""What pools at a rate can take: plans ask them for no more than they can pay, and what is over goes elsewhere.

Parts of an amount are rounded, and of a stock that is small beside the amount that is too much. A constant-product pool
pays a little less then; one at a rate pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace.dex import aggregator_contract as contract
from millrace.dex.pool import Pool, PoolError
from millrace.dex.rate import RatePool
from millrace.routing.venue import Trade

SPARE = 2e-6  # of a stock: parts are told in millionths, and a unit more than it pays for is refused
MORE = 4  # times as much is spared where that was not enough


def any_stocks(trades: Sequence[Trade]) -> bool:
    """Whether one of the pools is at a rate."""
    return True in [isinstance(trade.pool, RatePool) for trade in trades]  # every plan asks: `any` takes twice as long


def stocks_first(trades: Sequence[Trade], flows: Sequence[float]) -> tuple[list[Trade], list[float]]:
    """Trades in execution order such that the last sale of a token, which sells all that is left, is in another pool.

    Where a token is sold at rates only, there is no other.
    """
    order = list(range(len(trades)))
    for k, trade in enumerate(trades):
        if isinstance(trade.pool, RatePool):
            at = order.index(k)
            later = [trades[other] for other in order[at + 1 :] if trades[other].token_in == trade.token_in]
            if any(not isinstance(other.pool, RatePool) for other in later):
                continue
            before = (m for m in range(at) if trades[order[m]].token_in == trade.token_in)
            place = next((m for m in before if not isinstance(trades[order[m]].pool, RatePool)), None)
            if place is not None:
                order.insert(place, order.pop(at))
    return [trades[k] for k in order], [flows[k] for k in order]


def within_stock(
    trade: Trade, mode: int, amount: int, have: int, values: list[int], at: int, touched: Mapping[str, Pool]
) -> int:
    """What a trade of a plan sells, `values[at]` by its mode, is no more than its pool can pay for.

    What is over is left to a later sale; the last one has nobody to leave it to.
    """
    pool = touched.get(trade.pool.id, trade.pool)
    if not isinstance(pool, RatePool) or mode not in (contract.FIXED, contract.PPM):
        return amount
    most = pool.most_in()
    if amount <= most:
        return amount
    if mode == contract.FIXED:
        values[at] = most
        return most
    values[at] = most * contract.MILLION // have
    return have * values[at] // contract.MILLION


def throttle(
    trades: Sequence[Trade], flows: list[float], refused: Sequence[int], sold: Sequence[int], times: int = 0
) -> bool:
    """Let less reach pools at a rate that were to sell more than they pay for, where nothing else sells their token.

    `flows` of trades in execution order are changed: what leads there only brings less. Whether any of them has.
    `times` is how often that has been tried: parts of the input may be coarse beside a stock.
    """
    before, spared = list(flows), 1.0 - SPARE * MORE**times
    for k in refused:
        pool = trades[k].pool
        if isinstance(pool, RatePool) and sold[k] > pool.most_in():
            _bring_less(trades, flows, k, pool.most_in() / sold[k] * spared)
    return flows != before


def _bring_less(trades: Sequence[Trade], flows: list[float], k: int, part: float) -> None:
    """Let trade `k` sell this part, and what buys for it bring no more, where it is its token's only sale."""
    token = trades[k].token_in
    flows[k] *= part
    if sum(trade.token_in == token for trade in trades) == 1:
        for feeder in range(k):
            if trades[feeder].token_out == token:
                _bring_less(trades, flows, feeder, part)


def share_stocks(paths: Sequence[Sequence[Trade]], amounts: Sequence[int], *, keep_rest: bool) -> list[int]:
    """Amounts that the pools of the paths can pay for; what is over goes to the largest without a pool at a rate.

    With `keep_rest` it stays. Where there is no other path amounts are as they were: whoever walks them finds out.
    """
    shared, left, over = list(amounts), dict[str, int](), 0
    largest = -1
    for k, path in enumerate(paths):
        if any_stocks(path):
            shared[k] = min(amounts[k], _most_through(path, amounts[k], left))
            over += amounts[k] - shared[k]
            _take(path, shared[k], left)
        elif largest < 0 or amounts[k] > amounts[largest]:
            largest = k
    if keep_rest or not over:
        return shared
    if largest < 0:
        return list(amounts)
    shared[largest] += over
    return shared


def _most_through(path: Sequence[Trade], amount: int, left: Mapping[str, int]) -> int:
    """What of an amount can be sold along a path. `left` is what pools at a rate still take, by id."""
    most: int | None = None
    for trade in reversed(path):
        if most is not None:
            try:
                most = trade.needs(most + 1) - 1
            except PoolError:  # it cannot pay as much, whatever it is sold
                most = None
        if isinstance(trade.pool, RatePool):
            own = left.get(trade.pool.id, trade.pool.most_in())
            most = own if most is None else min(most, own)
    return amount if most is None else most


def _take(path: Sequence[Trade], amount: int, left: dict[str, int]) -> None:
    """An amount is sold along a path."""
    for trade in path:
        if isinstance(trade.pool, RatePool):
            left[trade.pool.id] = max(left.get(trade.pool.id, trade.pool.most_in()) - amount, 0)
        amount = trade.pays(amount)
