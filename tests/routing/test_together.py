"""Paths that share pools: whether they can trade there at once, as foretold and as executed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.routing.test_attempt import TOKENS, trade

from millrace.dex.market import DictMarket
from millrace.routing.execution import execute_paths
from millrace.routing.kernelsearch import KernelSearch
from millrace.routing.limits import Limits
from millrace.routing.parts import FEW
from millrace.routing.plan import PlanError
from millrace.routing.router import NoRoute, Router
from millrace.routing.scratch import make
from millrace.routing.together import Meeting, can_meet
from millrace.routing.venue import Trade
from millrace.routing.work import MAX_HOPS
from synthetic import WRAPPED, make_market

STEPS = list(itertools.permutations(range(6), 2))
POOLS = [trade(i, j) if i < j else Trade(trade(j, i).pool, 1, 0) for i, j in STEPS]
ROUTER = Router([each.pool for each in POOLS], DictMarket([each.pool for each in POOLS], TOKENS[0]))
SEARCH = ROUTER._kernels
EDGE = {(SEARCH.trades[e].token_in, SEARCH.trades[e].pool.id): e for e in range(len(SEARCH.trades))}
WAITING = [[2, 3, 4, 5], [4, 5, 2, 3]]  # each of two pools waits for the other one
MIXING = [[2, 3, 4], [3, 2, 4], [2, 4]]  # longer paths come of it
PATHS = st.lists(st.lists(st.sampled_from(range(2, 6)), max_size=4, unique=True), min_size=2, max_size=6)


@given(PATHS, st.integers(1, 8), st.integers(1, 8))
@example(WAITING, 8, 8)
@example(MIXING, 8, 3)
@example(MIXING, 8, 8)
def test_paths_meet_where_they_are_foretold_to(between: list[list[int]], most: int, hops: int) -> None:
    """Executed at once are just those paths of which the search says that they can be."""
    tokens = [[0, *inner, 1] for inner in between]
    paths = [[POOLS[STEPS.index(step)] for step in itertools.pairwise(path)] for path in tokens]
    of = [each for path in paths for each in path]
    if len(set(of)) == len(of):
        return
    done = execute_paths(paths, [1.0 / len(paths)] * len(paths), TOKENS[0], TOKENS[1], 10**6, most=most, hops=hops)
    work = SEARCH._memory()[2]
    parts = work.parts
    for p, path in enumerate(paths):
        parts.length[p], parts.flow[p] = len(path), 1.0
        parts.paths[p, : len(path)] = [EDGE[each.token_in, each.pool.id] for each in path]
    net = SEARCH._net
    meeting = make(Meeting, edges=net.src.size, tokens=net.core.size, paths=FEW, trades=FEW * MAX_HOPS)
    meeting.within[:] = most, hops
    foretold = can_meet(net, meeting, parts, len(paths))
    assert foretold is (len(done.trades) == len(set(of)))
    assert not any(np.any(each) for each in (meeting.wanted, meeting.come, meeting.sales, meeting.depth))


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_a_split_among_cycles_pays_what_it_was_thought_to(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What paths are exchanged for is what their plan leaves after its fee, whether they can trade at once or not."""
    pools = make_market(400, 3, noise=noise, one_exchange=True).pools
    router = Router(pools, DictMarket(pools, WRAPPED))
    whole = router.whole
    thought: list[float] = []
    exchange = KernelSearch.exchange_wide

    def noted(self: KernelSearch, *asked: object) -> object:
        done = exchange(self, *asked)  # type: ignore[arg-type]
        thought.append(done[1])
        return done

    monkeypatch.setattr(KernelSearch, "exchange_wide", noted)
    plans, found = whole._plans, []
    of_paths = plans.of_paths

    def walked(ask: object, *asked: object, **named: object) -> object:
        done = of_paths(ask, *asked, **named)  # type: ignore[arg-type]
        if named.get("merge") and done is not None:
            found.append((thought[-1], plans.net(ask, done) * whole._scales[ask.search.sink]))  # type: ignore[attr-defined, arg-type]
        return done

    monkeypatch.setattr(plans, "of_paths", walked)
    names = sorted(router.index)
    rng = np.random.default_rng(5)
    for _ in range(40):
        a, b = (names[k] for k in rng.choice(len(names), 2, replace=False))
        toll = 10.0**9 * router.rate(WRAPPED, b)
        amount = max(1, int(router.depth(a) * 10 ** rng.uniform(-2, -0.5)))
        try:
            whole.forward(a, b, amount, Limits(100, 100, toll=toll), "hybrid")
        except (NoRoute, PlanError):
            continue
    assert len(found) > 10
    assert all(paid >= worth * (1.0 - 1e-3) for worth, paid in found)
