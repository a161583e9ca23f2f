"""What tokens are worth, told by the market itself: for people to read, never to trade by.

From the wrapped native token outwards, each token is priced in the pool with the most value on its priced side. So a
price comes over the deepest pools there are, and to move it takes as much as they hold: a small pool at a price of its
own moves nothing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from millrace.dex.pool import Pool, PoolError
from millrace.dex.rate import RatePool

SPECK = 100_000  # of a curved pool's reserve, one part in so many is traded to learn its rate


def token_prices(pools: Sequence[Pool], wrapped: str, pause: Callable[[], None] = lambda: None) -> dict[str, float]:
    """The price of one smallest unit of each token that is connected, in smallest units of `wrapped`.

    `pause` is called at every step.
    """
    pools_of: dict[str, list[int]] = {}
    for number, pool in enumerate(pools):
        for token in pool.tokens:
            pools_of.setdefault(token, []).append(number)
    prices = {wrapped: 1.0}
    waiting: list[tuple[float, int, str]] = []
    fresh = [wrapped]
    while True:
        for token in fresh:
            for number in pools_of.get(token, ()):
                pool = pools[number]
                worth = pool.reserves[pool.index(token)] * prices[token]
                heapq.heappush(waiting, (-worth, number, token))
        if not waiting:
            return prices
        pause()
        _, number, token = heapq.heappop(waiting)
        fresh = []
        for other, rate in _rates(pools[number], token, prices):
            prices[other] = prices[token] / rate
            fresh.append(other)


def _rates(pool: Pool, token: str, known: dict[str, float]) -> Iterator[tuple[str, float]]:
    """The pool's other tokens that are not known yet, with how many of their units a unit of `token` is worth."""
    i = pool.index(token)
    for j, other in enumerate(pool.tokens):
        if other not in known:
            rate = _rate(pool, i, j)
            if rate > 0.0 and math.isfinite(rate):
                yield other, rate


def _rate(pool: Pool, i: int, j: int) -> float:
    """The rate in the middle; 0 where it is not known."""
    if pool.kind == "constant_product":
        return pool.reserves[j] / pool.reserves[i]
    if isinstance(pool, RatePool):
        there = pool.rate[0] / pool.rate[1]
        return there if i == 0 else 1.0 / there
    return _middle(pool, i, j)


def _middle(pool: Pool, i: int, j: int) -> float:
    """The rate between buying and selling a speck, which leaves the fees out; 0 where the pool takes none."""
    there, back = max(pool.reserves[i] // SPECK, 1), max(pool.reserves[j] // SPECK, 1)
    try:
        bought, sold = pool.amount_out(i, j, there), pool.amount_out(j, i, back)
    except PoolError:
        return 0.0
    return math.sqrt((bought / there) * (back / sold))


def with_shares(prices: dict[str, float], issuers: Iterable[Pool]) -> dict[str, float]:
    """The prices with those of LP tokens: what a unit's share of its pool is worth, not what it is traded for."""
    found = dict(prices)
    for pool in issuers:
        if pool.lp_token and pool.lp_supply > 0 and all(token in prices for token in pool.tokens):
            whole = sum(reserve * prices[token] for token, reserve in zip(pool.tokens, pool.reserves, strict=True))
            found[pool.lp_token] = whole / pool.lp_supply
    return found
