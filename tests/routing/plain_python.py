"""Answers a few questions with the kernels as plain Python, on arrays that refuse to be counted from the end.

Run by `test_jit.py` in a process of its own, with `NUMBA_DISABLE_JIT`.
"""

# ruff: noqa: E402 - the kernels look for what is put in place of intrinsics when they are imported
from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from millrace.routing import jit

jit.first_bit = lambda bits: (int(bits) & -int(bits)).bit_length() - 1  # type: ignore[arg-type]
jit.high_word = lambda a, b: np.uint64(int(a) * int(b) >> 64)
jit.entry = lambda compiled, *_: compiled
np.seterr(over="ignore")

from millrace.dex.market import DictMarket
from millrace.routing import kernelsearch, net, router, spot, widepath
from millrace.routing.kernelsearch import Limits
from millrace.routing.plan import PlanError
from millrace.routing.router import NoRoute, Router
from millrace.routing.synthetic import WRAPPED, make_market


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
    return lambda *arguments: forward(function(*arguments))


def ask(pools: int, seed: int, noise: float, curved: float) -> int:
    """Questions of all kinds about one market; returns how many had an answer."""
    document = make_market(pools, seed, noise=noise, curved=curved)
    market = Router(document.pools, DictMarket(document.pools, WRAPPED))
    market._plans._walker._walk = forward(market._plans._walker._walk)
    rng, answers = random.Random(seed), 0
    names = sorted(market.index)
    for number in range(5):
        a, b = rng.sample(names, 2)
        amount = max(1, int(market.depth(a) * 10.0 ** (-number)))
        for limits in (Limits(), Limits(pools=3, paths=2), Limits(pools=1000, paths=1000)):
            with contextlib.suppress(NoRoute, PlanError):
                answers += market.forward(a, b if number else a, amount, limits, "hybrid").execution.amount_out > 0
    with contextlib.suppress(PlanError):
        market.find_flow(dict.fromkeys(names[:2], 10**9), names[2], Limits())
    return answers


def main() -> None:
    """Ask in markets with and without profitable cycles, tables, and few or many pools, searched as small or large."""
    for module, name in ((kernelsearch, "make_work"), (kernelsearch, "make_path_work"), (kernelsearch, "make_moves"),
                         (kernelsearch, "make_order"), (widepath, "make_wide_work"), (net, "build")):  # fmt: skip
        setattr(module, name, refusing(getattr(module, name)))
    spot.SpotGraph.search = refusing(spot.SpotGraph.search)  # type: ignore[method-assign]
    kinds = ((12, 1, 0.001, 0.0), (40, 2, 0.001, 0.0), (30, 5, 0.03, 0.8), (25, 4, 0.1, 0.0))
    answers = sum(ask(*kind) for kind in kinds)
    router.LARGE = 0  # as large markets are searched
    print(answers + sum(ask(*kind) for kind in kinds[2:]), "answers")


if __name__ == "__main__":
    main()
