"""The least input of a pair that executes: what a unit of the output takes on a path of the fewest pools.

No search: each pool on the path is asked, in whole units, for the input that pays what the next one needs. A quote
of as much takes the same path or one that pays more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence, Set

from millrace.aggregator.snapshot import Snapshot
from millrace.dex.pool import Pool, PoolError
from millrace.routing.exactpath import needed
from millrace.routing.limits import Limits, path_hops
from millrace.routing.outlets import enough
from millrace.routing.planner import Planner
from millrace.routing.router import Router
from millrace.routing.spot import SpotGraph
from millrace.routing.venue import Trade

SIDE = 100  # units of each token in the smallest deposit: the contract's balancing has something to divide
# Times what surely sells with a slice of the special fee: what the balancing sells is that small a part of a deposit.
EXCESS = 40
SPARE = 4  # times as much where a withdrawal or deposit divides what there is

Paths = Mapping[tuple[str, str], Sequence[Trade]]
"""Between two tokens; empty where there is none."""


def least_input(snapshot: Snapshot, planner: Planner, token_in: str, token_out: str, max_hops: int) -> int | None:
    """Smallest units of `token_in` that buy something of `token_out` within so many pools on a path; None where nothing
    does, or no pools can pay even a unit. `planner` is one of all pools."""
    floor = _by_decimals(snapshot.decimals[token_in])
    source, sink = snapshot.inner(token_in), snapshot.inner(token_out)
    if source == sink:
        return floor
    hops = path_hops(Limits(hops=max_hops))
    found = []
    for before, after in planner.ways(source, sink, Limits()):
        left = hops - (before is not None) - (after is not None)
        with contextlib.suppress(PoolError):
            found.append(_needed(planner.router, source, sink, before, after, left))
    path = _short_path(planner.router, source, sink, hops) or _short_path(planner.router.whole, source, sink, hops)
    if path:
        with contextlib.suppress(PoolError):
            found.append(_on_path(path, floor))
    return max(floor, min(found)) if found else None


def _short_path(router: Router, token: str, other: str, hops: int) -> Sequence[Trade]:
    """A path of the fewest pools in a router's own graph; nothing if that is longer than `hops`."""
    path = SpotGraph.short_path(router, token, other)
    return path if len(path) <= hops else ()


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


def _needed(router: Router, source: str, sink: str, before: Pool | None, after: Pool | None, hops: int) -> int:
    """The input of a plan that redeems, mints, or both. Raises `PoolError`."""
    wanted = {sink: 1} if after is None else _smallest_deposit(after)
    held = [(source, 0)] if before is None else _held(before)
    paths = {(token, other): _short_path(router, token, other, hops) for token, _ in held for other in wanted}
    bought = _bought(paths, {token for token, _ in held}, wanted, whole=after is None or _is_in_proportion(after))
    costs = [_cost(paths, token, wanted, bought) for token, _ in held]
    if before is None:
        return SPARE * costs[0]
    return SPARE * max(cost * before.lp_supply // reserve + 1 for cost, (_, reserve) in zip(costs, held, strict=True))


def _bought(paths: Paths, held: Set[str], wanted: Iterable[str], *, whole: bool) -> Set[str]:
    """Which of the wanted tokens to buy for those held: all, or one. Raises `PoolError` where some are out of reach.

    A token that is wanted and held is either bought or sold. With `whole` none may be missing in the end. Where all are
    bought, those held need not all reach all of them: it is enough that one does, which makes up what is missing.
    """
    for bought in ({*wanted}, *({token} for token in wanted)):
        nothing_to_sell = len(bought) > 1 and held <= bought
        missing = whole and not {*wanted} - bought <= held
        sold = held - bought
        reaching = [{other for other in bought if paths[token, other]} for token in sold]
        if not (nothing_to_sell or missing) and all(reaching) and (bought in reaching or not sold):
            return bought
    raise PoolError("no way of so few pools")


def _is_in_proportion(pool: Pool) -> bool:
    """Whether a deposit must be of all tokens, and not of any."""
    return pool.kind == "constant_product"


def _smallest_deposit(pool: Pool) -> dict[str, int]:
    """What a deposit that mints a unit at least has of each token."""
    sides = [max(SIDE, EXCESS * (enough(pool, k) or 0)) for k in range(len(pool.tokens))]
    units = max(-(-side * pool.lp_supply // reserve) for side, reserve in zip(sides, pool.reserves, strict=True))
    return {token: max(-(-reserve * units // pool.lp_supply), SIDE) for token, reserve in _held(pool)}


def _held(pool: Pool) -> list[tuple[str, int]]:
    return list(zip(pool.tokens, pool.reserves, strict=True))


def _cost(paths: Paths, token: str, wanted: Mapping[str, int], bought: Set[str]) -> int:
    """What of one token buys all that is bought, besides what is wanted of itself. Raises `PoolError`."""
    others = [other for other in bought if paths[token, other]]
    return wanted.get(token, 0) + sum(needed(paths[token, other], wanted[other]) for other in others)
