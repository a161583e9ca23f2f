"""A plan of one path is walked as any other: what it says of each trade is what its legs do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.dex.constant_product import JexPool
from millrace.routing.execution import execute_paths, replayed
from millrace.routing.outlets import NONE
from millrace.routing.plan import PlanError
from millrace.routing.venue import Trade
from millrace.routing.walk import Walker

TOKENS = ("AAA-111111", "BBB-222222", "CCC-333333", "DDD-444444")
RESERVES = st.tuples(st.integers(10**3, 10**24), st.integers(10**3, 10**24))


def path_of(reserves: Sequence[tuple[int, int]]) -> list[Trade]:
    """A path over pools that hold so much of one token and the next."""
    pools = [
        JexPool(
            id=f"p{k}",
            address=bytes(10) + bytes([k]) * 22,
            tokens=(TOKENS[k], TOKENS[k + 1]),
            reserves=held,
            lp_fee=20,
            platform_fee=10,
        )
        for k, held in enumerate(reserves)
    ]
    return [Trade(pool, 0, 1) for pool in pools]


@given(st.lists(RESERVES, min_size=1, max_size=3), st.integers(1, 10**24))
def test_path_alone_is_walked_as_its_legs_say(reserves: list[tuple[int, int]], amount: int) -> None:
    """Its legs, walked in both other ways, pay what it says, and each sells and buys what it says; or all refuse."""
    path = path_of(reserves)
    end = path[-1].token_out
    try:
        done = execute_paths([path], [0.3], TOKENS[0], end, amount).execution()
    except PlanError:
        with pytest.raises(PlanError):
            execute_paths([path, path], [0.3, 0.0], TOKENS[0], end, amount)
        return
    assert replayed(list(done.legs), {TOKENS[0]: amount}, end, NONE, {}) == done.amount_out
    walked = Walker.replay(list(done.legs), TOKENS[0], amount).done(end)
    assert walked.amount_out == done.amount_out
    assert list(walked.fills) == list(done.fills)
    assert done.amount_in == amount
