"""Compiles all kernels, or loads them from the cache: `python -m millrace.routing.warm`.

Run at installation and at the start of every process that searches, so that no request ever waits for the compiler.
An empty cache takes some ten seconds to fill, so it shows what it is at, and uses two cores: another process compiles
a large part of the search meanwhile, into a folder of its own, as two writers would spoil Numba's index.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import event
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from millrace.dex.constant_product import XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.stable import JexStablePool
from millrace.routing import net as nets
from millrace.routing.columns import generate
from millrace.routing.exchange import exchange_paths
from millrace.routing.find import find_paths
from millrace.routing.jit import CACHE_DIRECTORY, CACHE_VARIABLE
from millrace.routing.moves import make_moves
from millrace.routing.pathsearch import make_path_work
from millrace.routing.profitable import list_profitable
from millrace.routing.router import Router
from millrace.routing.shares import Room
from millrace.routing.solve import bound_of_path, extract, grow, upper_bound
from millrace.routing.spot import SpotGraph
from millrace.routing.venue import CurveCache, list_edges
from millrace.routing.widepath import best_wide_path, make_wide_work, split_wide
from millrace.routing.work import make_work
from millrace.runtime.process import die_with_parent

HELP = "--help-with"
"""Argument of the process that compiles a part; the next one is the process it does it for."""


class Part(NamedTuple):
    """A kernel with all it calls, and arguments of the types it is compiled for."""

    kernel: Any
    arguments: tuple[object, ...]

    def compile(self) -> None:
        """Compile it, or load it from the cache; it is not run."""
        self.kernel.compile(self.signature())

    def signature(self) -> tuple[Any, ...]:
        """The types of its arguments."""
        return tuple([numba.typeof(argument) for argument in self.arguments])  # type: ignore[no-untyped-call]


def _market() -> tuple[list[Pool], DictMarket]:
    """A few pools of every kind that has kernels of its own."""
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
    crypto = AshCryptoPool(
        id="a:crypto",
        address=bytes(31) + b"\x02",
        tokens=(tokens[0], tokens[1]),
        reserves=(10**24, 10**24),
        decimals=(18, 18),
        ann=400_000,
        gamma=145 * 10**12,
        d=2 * 10**24,
        price_scale=10**18,
        mid_fee=26 * 10**6,
        out_fee=45 * 10**6,
        fee_gamma=230 * 10**12,
    )
    pools += stable, crypto
    return pools, DictMarket(pools, tokens[0])


def parts() -> tuple[list[Part], list[Part]]:
    """What two processes compile at the same time: about as much each, with little in common."""
    pools, _ = _market()
    index = {token: k for k, token in enumerate(dict.fromkeys(token for pool in pools for token in pool.tokens))}
    edges, trades = list_edges(pools, index, CurveCache())
    graph = nets.build(len(index), edges)
    search = SpotGraph(index, graph, trades).search(pools[0].tokens[0], pools[0].tokens[1], 10**18)
    net, work, paths = graph.net, make_work(len(index), len(trades)), make_path_work(graph.net)
    wide = make_wide_work(len(index), 1)
    room = Room(np.zeros(1), False)
    edges_out, flows_out, report = np.zeros(1, np.int32), np.zeros(1), np.zeros(1)
    return (
        [
            Part(generate, (net, work, search)),
            Part(find_paths, (net, paths, search, room, 1, 1, 1, 1.0, report)),
            Part(best_wide_path, (net, wide, np.zeros(1), search, room, 1, 1.0, 1, 1)),
            Part(split_wide, (net, wide, paths, search, room, 1, 1, 1, 1.0, 1)),
            Part(exchange_paths, (net, paths, paths.every, search, room, 1, 1, 1, 1.0, 1.0)),
        ],
        [
            Part(extract, (net, work, make_moves(), search, room, 1, edges_out, flows_out)),
            Part(grow, (net, work, make_moves(), search, edges_out, 1, room, 1, edges_out, flows_out)),
            Part(upper_bound, (net, work, search, 1.0)),
            Part(list_profitable, (net, work, search, 1.0)),
            Part(bound_of_path, (net, work, search)),
        ],
    )


def warm(say: Callable[[str], None] = lambda _: None) -> None:
    """Run every kernel once, on a market of a few pools. `say` is told what another process compiles for it."""
    if next(CACHE_DIRECTORY.rglob("*.nbi"), None) is None and len(os.sched_getaffinity(0)) > 1:
        with _helper(say):
            for part in parts()[0]:
                part.compile()
    Router(*_market()).warm()


@contextlib.contextmanager
def _helper(say: Callable[[str], None]) -> Iterator[None]:
    """A process that compiles its part meanwhile. What it has made is there at the end.

    Whatever becomes of it, nothing is lost but time: what it has not made is compiled later.
    """
    with tempfile.TemporaryDirectory(dir=CACHE_DIRECTORY.parent, prefix="part-") as folder:
        command = [sys.executable, "-m", "millrace.routing.warm", HELP, str(os.getpid())]
        environment = os.environ | {CACHE_VARIABLE: folder}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as helper:
            listener = threading.Thread(target=_pass_on, args=[helper, say])
            listener.start()
            try:
                yield
                helper.wait()
            finally:
                helper.terminate()
                listener.join()
        for made in Path(folder).iterdir():
            take_over(made, CACHE_DIRECTORY)


def _pass_on(helper: subprocess.Popen[str], say: Callable[[str], None]) -> None:
    """Say what the helper says, until it ends."""
    assert helper.stdout is not None
    for line in helper.stdout:
        say(line.strip())


def take_over(made: Path, cache: Path) -> None:
    """Move the kernels of one folder into another, but for those that are there, too.

    A kernel is an index (`.nbi`) and the files it names. The index comes last: it never names what is not there.
    """
    for index in sorted(made.rglob("*.nbi")):
        target = cache / index.relative_to(made)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        for data in index.parent.glob(f"{index.name.removesuffix('nbi')}*.nbc"):
            shutil.move(data, target.parent / data.name)
        shutil.move(index, target)


class _Progress(event.Listener):
    """Says which of our kernels the compiler is at."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def on_start(self, event: event.Event) -> None:
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("millrace"):  # not one of the compiler's own helpers
            self._say(function.__name__)

    def on_end(self, event: event.Event) -> None:
        """Nothing to say: the next one says it began."""


class _Bar:
    """What is being compiled and how many that are: a bar on a terminal, else every tenth on a line."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("compiling the routing kernels", total=None)
        self._lock = threading.Lock()
        self._begun = 0

    def say(self, name: str) -> None:
        """Another one has begun. Any thread may call this."""
        with self._lock:
            self._begun += 1
            text = f"compiling routing kernel {self._begun}: {name}"
            self._progress.update(self._task, description=text)
            if not self._progress.console.is_terminal and self._begun % 10 == 1:
                self._progress.console.print(text, highlight=False)


def main() -> None:
    """Compile with progress on stderr. An argument is the process that wants it: with that one it ends."""
    helping = sys.argv[1:2] == [HELP]
    if len(sys.argv) > 1:
        die_with_parent(int(sys.argv[-1]))
    if helping:
        with event.install_listener("numba:compile", _Progress(lambda name: print(name, flush=True))):
            for part in parts()[1]:
                part.compile()
        return
    started = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            say = _Bar(progress).say
            with event.install_listener("numba:compile", _Progress(say)):
                warm(say)
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"routing kernels ready in {time.monotonic() - started:.1f} s ({CACHE_DIRECTORY})", file=sys.stderr)


if __name__ == "__main__":
    main()
