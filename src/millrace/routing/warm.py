"""Compiles all kernels, or loads them from the cache: `python -m millrace.routing.warm`.

Run at installation and at the start of every process that searches, so that no request ever waits for
the compiler. Prints a line before and after, because a cold compilation takes most of a minute.
"""

from __future__ import annotations

import sys
import time

from millrace.dex.constant_product import XExchangePool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.stable import JexStablePool
from millrace.routing.jit import CACHE_DIRECTORY
from millrace.routing.router import Router


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


def main() -> None:
    """Compile with progress on stderr."""
    print(f"compiling the routing kernels into {CACHE_DIRECTORY} …", file=sys.stderr, flush=True)
    started = time.monotonic()
    warm()
    print(f"routing kernels ready in {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
