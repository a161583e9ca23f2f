"""Answers questions of all kinds and prints every number of the answers exactly; run by `test_compiled.py`.

With `forward` as its argument it does so on arrays that refuse to be counted from the end.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np

from millrace.dex.market import DictMarket
from millrace.routing import kernelsearch, net, spot, widepath
from millrace.routing.compiled import COMPILED
from millrace.routing.kernelsearch import Limits
from millrace.routing.plan import PlanError
from millrace.routing.router import NoRoute, Router
from synthetic import WRAPPED, make_market


class Forward(np.ndarray[Any, Any]):
    """An array without negative indices."""

    def __getitem__(self, at: Any) -> Any:
        self._check(at)
        return super().__getitem__(at)

    def __setitem__(self, at: Any, value: Any) -> None:
        self._check(at)
        super().__setitem__(at, value)

    @staticmethod
    def _check(at: Any) -> None:
        for index in at if isinstance(at, tuple) else (at,):
            if isinstance(index, int | np.integer) and index < 0:
                raise SystemExit(f"a kernel has counted from the end: index {index}")


def forward(value: Any) -> Any:
    """The same with arrays that refuse, however deep in named tuples."""
    if isinstance(value, np.ndarray):
        return value.view(Forward)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(forward, value))
    return value


def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results refuse."""
    return lambda *arguments, **named: forward(function(*arguments, **named))


def ask(pools: int, seed: int, noise: float, curved: float, *, refuse: bool) -> None:
    """Questions of all kinds about one market: what each pays, by which trades, and what is proved of it."""
    document = make_market(pools, seed, noise=noise, curved=curved)
    market = Router(document.pools, DictMarket(document.pools, WRAPPED))
    if refuse:
        market._plans._walker._walk = forward(market._plans._walker._walk)
    rng = random.Random(seed)
    names = sorted(market.index)
    for number in range(5):
        a, b = rng.sample(names, 2)
        amount = max(1, int(market.depth(a) * 10.0 ** (-number)))
        for limits in (Limits(), Limits(pools=3, paths=2), Limits(pools=1000, paths=1000), Limits(toll=1.0)):
            with contextlib.suppress(NoRoute, PlanError):
                route = market.forward(a, b if number else a, amount, limits, "hybrid")
                legs = [(leg.trade.pool.id, leg.mode, leg.value) for leg in route.execution.legs]
                print(seed, number, route.execution.amount_out, route.bound().hex(), legs)
    with contextlib.suppress(PlanError):
        trades, flows = market.find_flow(dict.fromkeys(names[:2], 10**9), names[2], Limits())
        print(seed, [trade.pool.id for trade in trades], [flow.hex() for flow in flows])


def main() -> None:
    """Ask in markets with and without profitable cycles, tables, and few or many pools, searched as small or large."""
    print("compiled" if COMPILED else "plain")
    refuse = sys.argv[1:] == ["forward"]
    if refuse:
        for module, names in (
            (kernelsearch, ("make", "make_work", "make_path_work")),
            (widepath, ("make_wide_work",)),
            (net, ("build",)),
        ):
            for name in names:
                setattr(module, name, refusing(getattr(module, name)))
        spot.SpotGraph.search = refusing(spot.SpotGraph.search)  # type: ignore[method-assign]
    kinds = ((12, 1, 0.001, 0.0), (40, 2, 0.001, 0.0), (30, 5, 0.03, 0.8), (25, 4, 0.1, 0.0))
    for kind in kinds:
        ask(*kind, refuse=refuse)


if __name__ == "__main__":
    main()
