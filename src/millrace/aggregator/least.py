"""The least input of a pair that executes: what a unit of the output takes on a path of the fewest pools.

No search: each pool on the path is asked, in whole units, for the input that pays what the next one needs. A quote
of as much takes the same path or one that pays more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from millrace.aggregator.snapshot import Snapshot
from millrace.dex.pool import Pool, PoolError
from millrace.routing.exactpath import needed
from millrace.routing.outlets import enough
from millrace.routing.router import Limits, Router
from millrace.routing.venue import Trade

SIDE = 100  # units of each token in the smallest deposit: the contract's balancing has something to divide
# Times what surely sells with a slice of the special fee: what the balancing sells is that small a part of a deposit.
EXCESS = 40
SPARE = 4  # times as much where a withdrawal or deposit divides what there is


def least_input(snapshot: Snapshot, token_in: str, token_out: str) -> int | None:
    """Smallest units of `token_in` that buy something of `token_out`; None where no pools can pay even a unit."""
    floor = _by_decimals(snapshot.decimals[token_in])
    source, sink = snapshot.inner(token_in), snapshot.inner(token_out)
    if source == sink:
        return floor
    planner = snapshot.main
    found = []
    for before, after in planner.ways(source, sink, Limits()):
        try:
            found.append(_needed(planner.router, source, sink, before, after))
        except PoolError:
            continue
    if planner.router.connected(source, sink):
        with contextlib.suppress(PoolError):
            found.append(_on_path(planner.router.short_path(source, sink), floor))
    return max(floor, min(found)) if found else None


def _on_path(path: Sequence[Trade], floor: int) -> int:
    """The least input of a path, from `floor` on. Raises `PoolError`.

    More than what pays a unit may still be too little: of a swap's special fee a slice may sell for nothing.
    """
    paid = floor
    for trade in path:
        paid = trade.pays(paid) if paid else 0
    wanted = 1
    while paid == 0 and (least := needed(path, wanted)) < floor:
        wanted *= 2
    return floor if paid else least


def _by_decimals(decimals: int) -> int:
    """The least worth a thought, as the live service tells it: a billionth, or a thousandth of coarse tokens."""
    return int(10 ** max(decimals - (9 if decimals >= 9 else 3), 0))


def _needed(router: Router, source: str, sink: str, before: Pool | None, after: Pool | None) -> int:
    """The input of a plan that redeems, mints, or both. Raises `PoolError`."""
    wanted = {sink: 1} if after is None else _smallest_deposit(after)
    if before is None:
        return SPARE * _cost(router, source, wanted)
    shares = [(token, reserve, _cost(router, token, wanted)) for token, reserve in _held(before)]
    return SPARE * max(cost * before.lp_supply // reserve + 1 for _, reserve, cost in shares)


def _smallest_deposit(pool: Pool) -> dict[str, int]:
    """What a deposit that mints a unit at least has of each token."""
    sides = [max(SIDE, EXCESS * (enough(pool, k) or 0)) for k in range(len(pool.tokens))]
    units = max(-(-side * pool.lp_supply // reserve) for side, reserve in zip(sides, pool.reserves, strict=True))
    return {token: max(-(-reserve * units // pool.lp_supply), SIDE) for token, reserve in _held(pool)}


def _held(pool: Pool) -> list[tuple[str, int]]:
    return list(zip(pool.tokens, pool.reserves, strict=True))


def _cost(router: Router, token: str, wanted: Mapping[str, int]) -> int:
    """What of one token buys all that is wanted. Raises `PoolError`."""
    return sum(
        amount if token == other else needed(router.short_path(token, other), amount)
        for other, amount in wanted.items()
        if token == other or router.connected(token, other)
    )
