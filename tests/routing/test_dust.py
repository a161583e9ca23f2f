"""Pools that hold next to nothing lead no search astray, and yet no answer is below a path over one of them."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from millrace.dex.constant_product import JexPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolError
from millrace.routing.exactpath import NeedsTime
from millrace.routing.router import Limits, NoRoute, Router

A, B, C, D = (f"{name}-000000" for name in "ABCD")


def pool(name: str, tokens: tuple[str, str], reserves: tuple[int, int]) -> Pool:
    address = name.encode().ljust(32, b".")
    return JexPool(id=name, address=address, tokens=tokens, reserves=reserves, lp_fee=20, platform_fee=10)


DEEP = [
    pool("ab", (A, B), (10**24, 10**24)),
    pool("bc", (B, C), (10**24, 10**15)),
    pool("cd", (C, D), (10**15, 10**24)),
]


def router(*dust: Pool) -> Router:
    """The deep pools and some dust."""
    pools = [*DEEP, *dust]
    return Router(pools, DictMarket(pools, A))


@pytest.mark.parametrize("algorithm", ["greedy", "lagrangian", "hybrid"])
def test_a_dust_pool_is_used_where_it_pays_most(algorithm: str) -> None:
    """A few units go to the dust pool that pays most for them, at an end or in the middle of a path."""
    dust = pool("dust", (B, C), (69, 10**9))
    found = router(dust)
    for token_in, token_out, amount in ((B, C, 50), (A, C, 50), (B, D, 50), (A, D, 50)):
        done = found.forward(token_in, token_out, amount, Limits(), algorithm).execution  # type: ignore[arg-type]
        assert "dust" in [fill.trade.pool.id for fill in done.fills]
        plain = router().forward(token_in, token_out, 10**20, Limits(), "hybrid").execution
        large = found.forward(token_in, token_out, 10**20, Limits(), algorithm).execution  # type: ignore[arg-type]
        assert large.amount_out >= plain.amount_out


def test_a_dust_pool_is_within_the_hops_that_others_are_not() -> None:
    """The only pool between two tokens answers where the limit allows no detour; with fewer hops nothing does."""
    found = router(pool("dust", (A, D), (10**24, 900)))
    done = found.forward(A, D, 10**22, Limits(hops=1), "hybrid").execution
    assert [fill.trade.pool.id for fill in done.fills] == ["dust"]
    with pytest.raises(NoRoute):
        router(pool("dust", (A, C), (10**24, 90))).forward(A, D, 10**22, Limits(hops=1), "hybrid")


def test_a_caller_in_a_hurry_does_not_wait_for_dust() -> None:
    """Where dust may pay more, whoever must not wait is told that it takes time; for large amounts it does not."""
    found = router(pool("dust", (B, C), (69, 10**6)))
    with pytest.raises(NeedsTime):
        found.forward(A, C, 50, Limits(), "hybrid", hurry=True)
    assert found.forward(A, C, 10**22, Limits(), "hybrid", hurry=True).execution.amount_out > 10**9


def test_no_answer_is_below_a_path_over_a_dust_pool_and_the_bound_holds_for_it() -> None:
    """With one dust pool in the market every path, walked exactly, pays at most the answer, and the bound."""
    dice = random.Random("dust")
    over_dust = 0
    for _ in range(60):
        tokens = tuple(dice.sample([A, B, C, D], 2))
        reserves = (dice.randint(1, 999), int(10 ** dice.uniform(3, 20)))
        dust = pool("dust", tokens, reserves if dice.random() < 0.5 else reserves[::-1])  # type: ignore[arg-type]
        found = router(dust)
        token_in, token_out = dice.sample([A, B, C, D], 2)
        amount = int(10 ** dice.uniform(0, 12))
        best, path = best_path([*DEEP, dust], token_in, token_out, amount)
        if best == 0:
            continue
        route = found.forward(token_in, token_out, amount, Limits(), "hybrid")
        assert route.execution.amount_out >= best
        assert route.bound() * (1.0 + 1e-9) + 1 >= best
        over_dust += "dust" in path
    assert over_dust >= 10


def best_path(pools: list[Pool], token_in: str, token_out: str, amount: int) -> tuple[int, tuple[str, ...]]:
    """What the best path that visits no token twice pays, and its pools, by trying all of them."""
    best, names = 0, ()
    for count in range(1, len(pools) + 1):
        for chain in permutations(pools, count):
            paid, tokens = amount, [token_in]
            try:
                for link in chain:
                    i = link.index(tokens[-1])
                    paid = link.amount_out(i, 1 - i, paid)
                    tokens.append(link.tokens[1 - i])
            except PoolError:
                continue
            if tokens[-1] == token_out and len(set(tokens)) == len(tokens) and paid > best:
                best, names = paid, tuple(link.id for link in chain)
    return best, names
