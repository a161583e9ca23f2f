"""Performs a flow or a set of paths on a vault that holds more than the flow may touch.

One stage sells given amounts of some tokens for one token. What the vault holds besides is put aside for later
stages: then no trade of the token takes `all`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import MILLION
from millrace.routing.execution import drop_dead_ends
from millrace.routing.lpedges import LpTrade
from millrace.routing.plan import PlanError
from millrace.routing.venue import Trade
from millrace.routing.walk import FOLLOW, Walker


def sell_flow(
    walker: Walker,
    trades: Sequence[Trade],
    flows: Sequence[float],
    amounts: Mapping[str, int],
    sink: str,
    scale: Callable[[str], float],
) -> Walker:
    """Perform trades in execution order; `flows` are their inputs, in units of `scale(token)` per smallest unit.

    Trades too thin for integers are left out, with those that lead only to them. Raises `PlanError` if none is left.
    """
    kept, parts = list(trades), list(flows)
    while kept:
        done = walker.copy()
        failed = _try_flow(done, kept, parts, amounts, scale)
        if failed < 0:
            return done
        del kept[failed], parts[failed]
        drop_dead_ends(kept, sink, parts)
    raise PlanError("no pool on the route can execute this amount")


def _try_flow(
    walker: Walker,
    trades: Sequence[Trade],
    flows: Sequence[float],
    amounts: Mapping[str, int],
    scale: Callable[[str], float],
) -> int:
    """Perform the trades; the number of the one that cannot be, or -1."""
    aside = {token: have - amounts.get(token, 0) for token, have in walker.balances.items()}
    left: dict[str, float] = {}
    last: dict[str, int] = {}
    for k, trade in enumerate(trades):
        left[trade.token_in] = left.get(trade.token_in, 0.0) + flows[k]
        last[trade.token_in] = k
    whole = left.get(walker.token_in, 0.0)
    unsold = amounts.get(walker.token_in, 0)
    for k, trade in enumerate(trades):
        token = trade.token_in
        put_aside = aside.get(token, 0)
        ends = last[token] == k
        mode, value = contract.PPM, 0
        if ends and not put_aside:
            mode = contract.ALL
        elif token == walker.token_in and token in amounts:
            part = min(flows[k] / whole, 1.0)
            value = unsold if ends else min(amounts[token] * round(part * MILLION) // MILLION, unsold)
            mode, unsold = contract.FIXED, unsold - value
        else:
            total = left[token] + put_aside * scale(token)
            value = min(round(flows[k] / total * MILLION), MILLION - 1) if total > 0.0 else 0
        left[token] -= flows[k]
        try:
            perform(walker, trade, mode, value)
        except PlanError:
            return k
    return -1


def sell_paths(walker: Walker, paths: Sequence[tuple[Sequence[Trade], float]], token: str, amount: int) -> Walker:
    """Sell `amount` of a token along paths, one after the other, in these parts. Raises `PlanError`.

    Paths too thin for integers are left out.
    """
    kept = list(paths)
    while kept:
        done = walker.copy()
        failed = _try_paths(done, kept, token, amount)
        if failed < 0:
            return done
        del kept[failed]
    raise PlanError("no path can execute this amount")


def _try_paths(walker: Walker, paths: Sequence[tuple[Sequence[Trade], float]], token: str, amount: int) -> int:
    """Perform the paths; the number of the one that cannot be, or -1."""
    everything = walker.balances.get(token, 0) == amount
    whole = sum(part for _, part in paths)
    unsold = amount
    for number, (path, part) in enumerate(paths):
        sold = min(amount * round(part / whole * MILLION) // MILLION, unsold) if number < len(paths) - 1 else unsold
        walker.begin()
        mode, value = contract.FIXED, sold
        if number == len(paths) - 1 and everything:
            mode, value = contract.ALL, 0
        elif token != walker.token_in:
            mode, value = contract.PPM, sold * MILLION // walker.balances[token]
        unsold -= sold
        try:
            for trade in path:
                perform(walker, trade, mode, value, begin=False)
                mode, value = FOLLOW, 0
        except PlanError:
            return number
    return -1


def perform(walker: Walker, trade: Trade, mode: int, value: int, *, begin: bool = True) -> None:
    """One trade, of whichever kind. Raises `PlanError`."""
    if begin:
        walker.begin()
    if isinstance(trade, LpTrade):
        trade.walk(walker, mode, value)
    else:
        walker.swap(trade, mode, value)
