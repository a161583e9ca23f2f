"""From what a search found to plans: what counts as one, and which of two is the better."""

from __future__ import annotations

import itertools
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from millrace.dex.constant_product import XExchangePool
from millrace.dex.market import DictMarket
from millrace.routing.attempt import Ask, longest
from millrace.routing.costs import Table
from millrace.routing.execution import Walked, execute_paths
from millrace.routing.limits import Limits
from millrace.routing.router import Router
from millrace.routing.venue import Trade

TOKENS = [f"TOK{letter}-00000{k}" for k, letter in enumerate("ABCDEF")]


def trade(i: int, j: int, deep: int = 10**9) -> Trade:
    """A trade from one token to another over a pool of its own, without a fee."""
    pool = XExchangePool(
        id=f"{i}-{j}",
        address=bytes(30) + bytes((i, j)),
        tokens=(TOKENS[i], TOKENS[j]),
        reserves=(deep, deep),
        total_fee=0,
        special_fee=0,
    )
    return Trade(pool, 0, 1)


@given(st.lists(st.sampled_from(list(itertools.combinations(range(6), 2))), unique=True))
def test_the_longest_path_is_that_of_all_paths(steps: list[tuple[int, int]]) -> None:
    """In any order of execution the longest path has as many pools as the longest of all paths one can list."""

    def pools_from(token: int) -> int:
        return max((1 + pools_from(j) for i, j in steps if i == token), default=0)

    ordered = [trade(i, j) for i, j in sorted(steps)]
    assert longest(ordered) == max(pools_from(token) for token in range(6))


TABLE = Table()
ROUTER = Router([trade(0, 1).pool], DictMarket([trade(0, 1).pool], TOKENS[0]), table=TABLE)
PLANS = ROUTER._plans
ASK = Ask(TOKENS[0], TOKENS[1], 10**6, ROUTER.search(TOKENS[0], TOKENS[1], 10**6), Limits())


def test_the_plan_that_pays_more_is_the_better_one_and_the_first_of_equals() -> None:
    """One unit more decides; between equals the plan found first stays, so that answers do not depend on luck."""
    shallow, deep, other = (
        execute_paths([[trade(0, 1, size)]], [1.0], TOKENS[0], TOKENS[1], 10**6) for size in (10**8, 10**9, 10**9)
    )
    assert shallow is not None
    assert deep is not None
    assert other is not None
    assert shallow.amount_out < deep.amount_out == other.amount_out
    better = partial(PLANS.better, ASK)
    assert better(shallow, deep) is better(deep, shallow) is deep
    assert better(deep, other) is deep
    assert better(None, deep) is better(deep, None) is deep
    assert better(None, None) is None


def test_paths_that_were_to_share_pools_and_cannot_hold_the_limits_too() -> None:
    """Where each of two pools would have to wait for the other one, paths go apart, or as many as fit: the thickest."""
    steps = [(0, 2), (2, 3), (3, 4), (4, 5), (5, 1)], [(0, 4), (4, 5), (5, 2), (2, 3), (3, 1)]
    paths = [[trade(i, j) for i, j in path] for path in steps]
    walked = partial(PLANS.of_paths, paths=paths, flows=[0.4, 0.6], merge=True)
    apart = walked(ASK._replace(limits=Limits(pools=10)))
    assert isinstance(apart, Walked)
    assert len(apart.trades) == 10
    fewer = walked(ASK._replace(limits=Limits(pools=8)))
    assert isinstance(fewer, Walked)
    assert (fewer.trades, fewer.amount_in) == (paths[1], apart.amount_in)
    assert walked(ASK._replace(limits=Limits(pools=4))) is None


def test_a_plan_that_pays_less_than_its_fee_more_is_not_the_better_one() -> None:
    """Where fees count, what is left of the output is compared; a plan of more pools must pay for them."""
    paths = [[trade(0, 1, 10**8)], [trade(0, 2, 10**8), trade(2, 1, 10**8)]]
    plain = execute_paths(paths[:1], [1.0], TOKENS[0], TOKENS[1], 10**6)
    split = execute_paths(paths, [0.6, 0.4], TOKENS[0], TOKENS[1], 10**6)
    assert plain is not None
    assert split is not None
    more = split.amount_out - plain.amount_out
    fee = 2 * TABLE.fee(paths[0][0].cost(TABLE))
    for part, best in ((0.0, split), (0.9, split), (1.1, plain)):
        ask = ASK._replace(limits=Limits(toll=part * more / fee))
        assert PLANS.better(ask, plain, split) is best
        assert PLANS.better(ask, split, plain) is best
