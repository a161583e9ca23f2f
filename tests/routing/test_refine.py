"""Routes of few pools against every choice of that many pools."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.routing.plan import PlanError
from millrace.routing.router import Limits, NoRoute, Router
from synthetic import make_market

NEARLY = 1.0 - 1e-5  # local search need not end at the very best choice


class OpenMarket(DictMarket):
    """A market in which every pool can be called."""

    def reaches(self, pool: Pool) -> bool:
        """Yes."""
        return True


def pays(pools: Sequence[Pool], hub: str, question: tuple[str, str, int], limits: Limits) -> int:
    """What the dual's route pays; nothing if there is none."""
    try:
        router = Router(pools, OpenMarket(pools, hub))
        return router.forward(*question, limits, "lagrangian").execution.amount_out
    except (NoRoute, PlanError):
        return 0


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("wanted", [2, 3, 4])
def test_no_other_choice_of_pools_pays_much_more(seed: int, wanted: int) -> None:
    """Of all sets of so many pools, none pays a basis point more than the route limited to that many."""
    document = make_market(9, seed, one_exchange=True)
    hub = document.wrapped_native_token
    other = max((t for pool in document.pools for t in pool.tokens if t != hub), key=str)
    depth = max(pool.reserves[pool.index(hub)] for pool in document.pools if hub in pool.tokens)
    question = (hub, other, depth // 10)
    free = Limits(pools=100, paths=100)
    best = max(pays(chosen, hub, question, free) for chosen in itertools.combinations(document.pools, wanted))
    assert pays(document.pools, hub, question, free._replace(pools=wanted)) >= best * NEARLY
    assert best > 0
