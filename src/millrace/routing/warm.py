"""Compiles all kernels, or loads them from the cache: `python -m millrace.routing.warm`.

Run at installation and at the start of every process that searches, so that no request ever waits for
the compiler. A cold compilation takes most of a minute, so it shows what it is at.
"""

from __future__ import annotations

import sys
import time

from numba.core import event
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from millrace.dex.constant_product import XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.stable import JexStablePool
from millrace.routing.jit import CACHE_DIRECTORY
from millrace.routing.router import Router
from millrace.runtime.process import die_with_parent


def warm() -> None:
    """Run every kernel once, on a market of a few pools."""
    tokens = [f"WARM{k}-00000{k}" for k in range(5)]
    pools: list[Pool] = [
        XExchangePool(
            id=f"x:{i}{j}",
            address=bytes([i, j]) * 16,
            tokens=(tokens[i], tokens[j]),
            reserves=(10**24 + i * 10**22, 10**24 + j * 10**22),
            total_fee=300,
            special_fee=50,
        )
        for i in range(5)
        for j in range(i)
    ]
    stable = JexStablePool(
        id="j:stable",
        address=bytes(31) + b"\x01",
        tokens=(tokens[0], tokens[1]),
        reserves=(10**24, 10**24),
        decimals=(18, 18),
        prices=(10**18, 10**18),
        amp=100,
        swap_fee=400,
        liquidity_fee=200,
    )
    Router([*pools, stable], DictMarket([*pools, stable], tokens[0])).warm()


class _Progress(event.Listener):
    """Says which of our kernels the compiler is at: a bar on a terminal, else every tenth on a line."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("compiling the routing kernels", total=None)
        self._begun = 0

    def on_start(self, event: event.Event) -> None:
        function = event.data["dispatcher"].py_func
        if not function.__module__.startswith("millrace"):
            return  # the compiler's own helpers
        self._begun += 1
        text = f"compiling routing kernel {self._begun}: {function.__name__}"
        self._bar.update(self._task, description=text)
        if not self._bar.console.is_terminal and self._begun % 10 == 1:
            self._bar.console.print(text, highlight=False)

    def on_end(self, event: event.Event) -> None:
        """Nothing to say: the next one says it began."""


def main() -> None:
    """Compile with progress on stderr. An argument is the process that wants it: with that one it ends."""
    if len(sys.argv) > 1:
        die_with_parent(int(sys.argv[1]))
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            listener = _Progress(bar)
            with event.install_listener("numba:compile", listener):
                warm()
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"routing kernels ready in {time.monotonic() - started:.1f} s ({CACHE_DIRECTORY})", file=sys.stderr)


if __name__ == "__main__":
    main()
