"""Performs a flow or a set of paths on a vault that holds more than the flow may touch.

One stage sells given amounts of some tokens for one token. What the vault holds besides is put aside for later
stages: then no trade of the token takes `all`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from millrace.dex import aggregator_contract as contract
from millrace.dex.aggregator_contract import MILLION
from millrace.routing.execution import FINE_RESOLUTION, choose_modes, drop_dead_ends, portions
from millrace.routing.plan import PlanError
from millrace.routing.venue import Trade
from millrace.routing.walk import Walker


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
    kept, parts, source = list(trades), list(flows), walker.token_in
    spare = {token: have - amounts.get(token, 0) for token, have in walker.balances.items()}
    aside = {token: units * scale(token) for token, units in spare.items() if units}
    fixed = {source: amounts[source]} if source in amounts else {}
    while kept:
        selling = [flow for trade, flow in zip(kept, parts, strict=True) if trade.token_in == source]
        modes, values = choose_modes(kept, parts, fixed, sum(selling) if source in aside else None, aside)
        done = walker.copy()
        for k, (trade, mode, value) in enumerate(zip(kept, modes, values, strict=True)):
            try:
                trade.walk(done, mode, value)
            except PlanError:
                del kept[k], parts[k]
                drop_dead_ends(kept, sink, parts)
                break
        else:
            return done
    raise PlanError("no pool on the route can execute this amount")


def sell_paths(walker: Walker, paths: Sequence[tuple[Sequence[Trade], float]], token: str, amount: int) -> Walker:
    """Sell `amount` of a token along paths, one after the other, in these parts. Raises `PlanError`.

    Paths too thin for integers are left out.
    """
    kept, everything = list(paths), walker.balances.get(token, 0) == amount
    while kept:
        done, parts = walker.copy(), [part for _, part in kept]
        sold = portions(amount, parts, sum(parts), FINE_RESOLUTION)
        for number, ((path, _), value) in enumerate(zip(kept, sold, strict=True)):
            step = contract.FIXED, value
            if everything and number == len(kept) - 1:
                step = contract.ALL, 0
            elif token != walker.token_in:
                step = contract.PPM, value * MILLION // done.balances[token]
            try:
                for trade in path:
                    trade.walk(done, *step)
                    step = contract.PREVIOUS, 0
            except PlanError:
                del kept[number]
                break
        else:
            return done
    raise PlanError("no path can execute this amount")
