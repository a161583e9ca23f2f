"""Splits into few paths against every choice of that many paths, each with its best division."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import pytest

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.paths import split_paths
from millrace.routing.plan import PlanError
from millrace.routing.router import Limits, NoRoute, Router
from synthetic import make_market

NEARLY = 1.0 - 1e-3  # where the bound leaves less, nothing is exchanged
MOST_POOLS = 3  # on one path of the reference
GOLDEN = 0.6180339887498949
Path = tuple[tuple[int, str], ...]  # number of the pool, and the token it buys


class OpenMarket(DictMarket):
    """A market in which every pool can be called."""

    def reaches(self, pool: Pool) -> bool:
        """Yes."""
        return True


def all_paths(pools: Sequence[Pool], source: str, sink: str, done: Path = ()) -> Iterator[Path]:
    """Every path of at most `MOST_POOLS` pools that sees no token twice."""
    seen = {source, *(token for _, token in done)}
    last = done[-1][1] if done else source
    for number, pool in enumerate(pools):
        if last in pool.tokens:
            bought = pool.tokens[1 - pool.index(last)]
            if bought == sink:
                yield (*done, (number, bought))
            elif bought not in seen and len(done) + 1 < MOST_POOLS:
                yield from all_paths(pools, source, sink, (*done, (number, bought)))


def pays(pools: Sequence[Pool], source: str, paths: Sequence[Path], parts: Sequence[int]) -> int:
    """What paths pay one after the other, in integers."""
    touched: dict[int, Pool] = {}
    total = 0
    for path, amount in zip(paths, parts, strict=True):
        token = source
        for number, bought in path:
            if amount <= 0:
                break
            pool = touched.get(number, pools[number])
            swap = pool.swap(pool.index(token), pool.index(bought), amount)
            touched[number], amount, token = swap.pool, swap.amount_out, bought
        total += max(amount, 0)
    return total


def best_part(value: Callable[[int], int], most: int) -> int:
    """Where a concave function of 0 … `most` is largest, nearly (golden section)."""
    low, high = 0.0, float(most)
    for _ in range(24):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if value(int(left)) >= value(int(right)):
            high = right
        else:
            low = left
    return max((0, most, int((low + high) / 2)), key=value)


def best_split(pools: Sequence[Pool], source: str, paths: Sequence[Path], amount: int) -> int:
    """What paths pay in their best division: parts are moved between two of them until that gains nothing."""
    parts = [amount // len(paths)] * len(paths)
    parts[0] += amount - sum(parts)
    best = pays(pools, source, paths, parts)
    for _ in range(6):
        for i, j in itertools.combinations(range(len(paths)), 2):
            both = parts[i] + parts[j]

            def value(part: int, i: int = i, j: int = j, both: int = both) -> int:
                return pays(pools, source, paths, [*_with(parts, {i: part, j: both - part})])

            part = best_part(value, both)
            parts[i], parts[j] = part, both - part
        before, best = best, pays(pools, source, paths, parts)
        if len(paths) == 2 or best <= before * (1 + 1e-9):
            break
    return best


def _with(parts: Sequence[int], changed: dict[int, int]) -> Iterator[int]:
    return (changed.get(k, part) for k, part in enumerate(parts))


@pytest.mark.parametrize("part", [20, 4])
@pytest.mark.parametrize(("seed", "wanted"), [(1, 2), (2, 2), (3, 2), (4, 2), (5, 3), (6, 3)])
def test_no_other_choice_of_paths_pays_much_more(seed: int, wanted: int, part: int) -> None:
    """Of all sets of so many paths of up to three pools, none pays a thousandth more than the answer limited so."""
    document = make_market(10 if wanted == 2 else 8, seed, one_exchange=True)
    hub, pools = document.wrapped_native_token, document.pools
    other = max((t for pool in pools for t in pool.tokens if t != hub), key=str)
    amount = max(pool.reserves[pool.index(hub)] for pool in pools if hub in pool.tokens) // part
    paths = list(all_paths(pools, hub, other))
    best = max(
        best_split(pools, hub, chosen, amount)
        for count in range(1, wanted + 1)
        for chosen in itertools.combinations(paths, count)
    )
    done = Router(pools, OpenMarket(pools, hub)).forward(hub, other, amount, Limits(paths=wanted), "hybrid").execution
    assert done.amount_out >= best * NEARLY
    assert len(split_paths(done.fills, hub, other)) <= wanted


@pytest.mark.parametrize("paths", [1, 2, 5, 10])
def test_limits_hold_where_paths_are_exchanged(paths: int) -> None:
    """However large the trade is against the market, an answer has no more paths and no more pools than are allowed."""
    document = make_market(300, 11, one_exchange=True)
    hub = document.wrapped_native_token
    router = Router(document.pools, OpenMarket(document.pools, hub))
    names = sorted(router.index, key=router.depth, reverse=True)[:5]
    answered = 0
    for a, b in itertools.permutations(names, 2):
        amount = max(1, int(router.depth(a) / 3))
        try:
            done = router.forward(a, b, amount, Limits(pools=12, paths=paths), "hybrid").execution
        except (NoRoute, PlanError):
            continue
        assert len(done.fills) <= 12
        assert len(split_paths(done.fills, a, b)) <= paths
        answered += 1
    assert answered >= 10
