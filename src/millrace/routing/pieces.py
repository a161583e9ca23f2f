"""Large trades made in pieces, where that pays more.

Where a fee on the output stays in the pool, the next trade is paid from it, too: a trade in `n` equal pieces pays more
than at once, about `1 - 1/n` of what ever smaller pieces would add. For constant product that is half of the part that
stays, of what the trade loses by its own size (to first order; `solve.py` has the whole formula); curves are tabulated
with it. Each piece but the first costs the fee of one more trade, so that `sqrt(gain / fee)` pieces leave most. The
search knows trades in pieces only as a part of its bound; what they add is found here, on the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millrace.routing.costs import Cost, total
from millrace.routing.execution import Walked
from millrace.routing.venue import Trade

MOST = 8  # pieces of a trade: they bring seven eighths of what there is
WANTED = 2e-5  # of the output: for a piece that brings as much the thinnest trades of a full transaction make room
LEAST = 3e-6  # of the output: less is not worth a longer transaction


def in_order(trades: Sequence[Trade]) -> bool:
    """Whether each token is bought before any of it is sold, and no pool is met twice."""
    sold: set[str] = set()
    for trade in trades:
        sold.add(trade.token_in)
        if trade.token_out in sold:
            return False
    return len({trade.pool.id for trade in trades}) == len(trades)


def pieces_of(
    done: Walked, fee: Callable[[Trade], float], cost: Callable[[Trade], Cost], spare: Callable[[], Cost]
) -> tuple[list[int], list[Cost]]:
    """In how many pieces each trade leaves most; none where all are best at once.

    `fee` is what one more trade of a kind costs, in units of the output, and `cost` what it takes of the transaction,
    of which all pieces together may take the `spare` part. What each of those takes that it has no room for comes
    second, that which brings most first.
    """
    counts = [1] * len(done.trades)
    moves: list[tuple[float, int]] = []
    least = LEAST * done.amount_out
    for k, gain in _gains(done, least, fee).items():
        price = max(fee(done.trades[k]), least)
        while counts[k] < MOST and (more := gain / (counts[k] * (counts[k] + 1)) - price) > 0.0:  # by one piece more
            moves.append((more, k))
            counts[k] += 1
    if not moves:
        return [], []
    left = spare()
    if total(cost(done.trades[k]) for _, k in moves).within(left):
        return counts, []
    return _most_worthwhile(done, sorted(moves, reverse=True), cost, left)


def _most_worthwhile(
    done: Walked, moves: list[tuple[float, int]], cost: Callable[[Trade], Cost], left: Cost
) -> tuple[list[int], list[Cost]]:
    """The pieces that bring most, as many as what is `left` has room for; and what those take that it has none for."""
    counts, missing = [1] * len(done.trades), list[Cost]()
    for more, k in moves:
        taken = cost(done.trades[k])
        if not missing and taken.within(left):
            counts[k] += 1
            left = left.plus(taken, -1)
        elif more > WANTED * done.amount_out and len(missing) < len(done.trades) // 2:
            missing.append(taken)
        else:
            break
    return counts if max(counts) > 1 else [], missing


def _gains(done: Walked, least: float, fee: Callable[[Trade], float]) -> dict[int, float]:
    """What ever smaller pieces would add to the output, by the trades of which two may be worth the fee and `least`."""
    near: list[tuple[int, float]] = []
    enough = 2.0 * least / done.amount_out
    for k, (trade, sold, bought) in enumerate(zip(done.trades, done.sold, done.bought, strict=True)):
        if trade.keeps > 0.0 or trade.knots is not None:
            part = _part(trade, sold, bought)
            if part > enough and part * done.amount_out > 2.0 * fee(trade):
                near.append((k, part))
    if not near or not in_order(done.trades):
        return {}
    worths = done.worths()
    gains = {k: part * done.bought[k] * worths[k] for k, part in near}
    return {k: gain for k, gain in gains.items() if gain > 2.0 * max(least, fee(done.trades[k]))}


def _part(trade: Trade, sold: int, bought: int) -> float:
    """The part of what it buys that a trade would buy more in ever smaller pieces."""
    if trade.knots is None:
        return trade.keeps * (1.0 - bought / (sold * trade.spot)) / 2.0
    if trade.i < 0:  # LP units are no pool's curve
        return 0.0
    knots = trade.knots
    return float(knots.pieces[min(int(knots.d.searchsorted(sold)), knots.d.size - 1)])
