"""LP units at the ends of a route and between: exact, within the limits, never worse than without."""

from __future__ import annotations

import random

import msgspec
import pytest

from millrace.chain.call import TokenPayment
from millrace.dex import aggregator_contract as contract
from millrace.dex.constant_product import JexPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool, PoolState
from millrace.dex.vault import execute
from millrace.routing import liquidity
from millrace.routing.costs import Table
from millrace.routing.liquidity import within
from millrace.routing.lpedges import BurnTrade, LpTrade, MintTrade, lp_edges
from millrace.routing.paths import split_paths
from millrace.routing.plan import Ends, LpLeg, PlanError, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits, NoRoute, Route
from millrace.routing.walk import Walker
from synthetic import WRAPPED, make_market

MARKET = make_market(60, seed=8, curved=0.4, traded_lp=10)
BOOK = DictMarket(MARKET.pools, WRAPPED)
PLANNER = Planner(MARKET.pools, BOOK)
PLAIN = sorted({token for pool in MARKET.pools[:60] for token in pool.tokens})
TRADED = [pool.tokens[0] for pool in MARKET.pools[60:]]


def ask(token_in: str, token_out: str, rng: random.Random, limits: Limits) -> Route | None:
    """The answer for a random amount; None if there is none."""
    issuer = next((pool for pool in MARKET.pools if pool.lp_token == token_in), None)
    depth = issuer.lp_supply if issuer is not None else PLANNER.router.depth(token_in)
    amount = max(1, int(depth * 10 ** rng.uniform(-6, -1)))
    try:
        return PLANNER.forward(token_in, token_out, amount, limits, rng.choice(("greedy", "lagrangian", "hybrid")))  # type: ignore[arg-type]
    except (NoRoute, PlanError):
        return None


def check(route: Route, token_in: str, token_out: str) -> None:
    """The contract pays the promise; only what a constant-product deposit cannot use stays behind."""
    done = route.execution
    program = make_program(done.legs, Ends(token_in, token_out), WRAPPED, done.amount_out, 0)
    result = execute(program, [TokenPayment(token_in, 0, done.amount_in)], BOOK)
    assert result.amount_out == done.amount_out
    zapped = isinstance(done.legs[-1], LpLeg) and done.legs[-1].given and done.legs[-1].pool.kind == "constant_product"
    assert zapped or result.kept == {}
    assert route.gap is None
    assert all(share.hops for share in split_paths(done.fills, token_in, token_out))


@pytest.mark.parametrize("kind", ["LP to token", "token to LP", "LP to LP", "between"])
def test_plans_with_lp_tokens_are_exact_and_hold_the_limits(kind: str) -> None:
    """Every kind of pool, every place of the LP token: paid to the unit, in few enough pools, paths and hops."""
    rng = random.Random(kind)
    answered = 0
    for _ in range(25):
        pool, other = rng.sample(MARKET.pools[:60], 2)
        token = rng.choice(PLAIN)
        token_in, token_out = {
            "LP to token": (pool.lp_token, token),
            "token to LP": (token, pool.lp_token),
            "LP to LP": (pool.lp_token, other.lp_token),
            "between": (token, rng.choice([*PLAIN, *TRADED])),
        }[kind]
        limits = Limits(rng.choice((8, 20, 60)), rng.choice((1, 2, 5)), rng.choice((3, 5, 10)), liquidity=True)
        if token_in == token_out or (route := ask(token_in, token_out, rng, limits)) is None:
            continue
        answered += 1
        check(route, token_in, token_out)
        divided = {"LP to LP": 3, "between": 2 if token_out in TRADED else 1}.get(kind, 2)
        assert within(
            route.execution, token_in, token_out, limits._replace(paths=max(limits.paths, divided)), Table()
        ) or not any(isinstance(leg, LpLeg) for leg in route.execution.legs)
    assert answered >= 10


def test_lp_routes_between_tokens_are_used_and_never_cost_anything() -> None:
    """With LP routes allowed an answer is never lower, and where a mint or redemption pays it is taken."""
    rng = random.Random(5)
    used = 0
    for _ in range(60):
        token_in, token_out = rng.sample(PLAIN, 2)
        amount = max(1, int(PLANNER.router.depth(token_in) * 10 ** rng.uniform(-5, -1)))
        try:
            plain = PLANNER.forward(token_in, token_out, amount, Limits(), "hybrid").execution.amount_out
            route = PLANNER.forward(token_in, token_out, amount, Limits(liquidity=True), "hybrid")
        except PlanError:
            continue
        assert route.execution.amount_out >= plain
        if any(isinstance(leg, LpLeg) for leg in route.execution.legs):
            check(route, token_in, token_out)
            used += route.execution.amount_out > plain
    assert used >= 5


def test_a_token_that_only_an_lp_pool_reaches() -> None:
    """A token bought through an LP token alone is reached only with LP routes allowed."""
    issuer, stable = MARKET.pools[0], next(pool for pool in MARKET.pools if pool.kind == "stable")
    island = "ISLE-000001"

    def bridge(name: str, pool: Pool, token: str) -> Pool:
        return JexPool(
            id=f"j:{name}", address=name.encode().ljust(32, b"."), tokens=(pool.lp_token, token),
            reserves=(pool.lp_supply // 3, 10**24), lp_fee=20, platform_fee=10,
        )  # fmt: skip

    pools = [*MARKET.pools[:60], bridge("out", issuer, island), bridge("in", stable, "ISLE-000002")]
    planner = Planner(pools, DictMarket(pools, WRAPPED))
    for token_in, token_out in ((island, issuer.tokens[0]), (stable.tokens[0], "ISLE-000002")):
        with pytest.raises(NoRoute):
            planner.forward(token_in, token_out, 10**18, Limits(), "hybrid")
        route = planner.forward(token_in, token_out, 10**18, Limits(liquidity=True), "hybrid")
        assert any(isinstance(leg, LpLeg) for leg in route.execution.legs)


def test_edges_of_lp_tokens_pay_what_the_pool_pays() -> None:
    """A deposit of one token and a withdrawal into one are concave, priced exactly, and only where they can be done."""
    known = {*PLAIN, *TRADED}
    edges = lp_edges(MARKET.pools, BOOK, known)
    assert {type(trade) for trade, _ in edges} == {BurnTrade, MintTrade}
    for trade, knots in edges:
        assert isinstance(trade, LpTrade)
        assert trade.token_in in known
        assert (knots.slope[1:] < knots.slope[:-1]).all()
        vault = Walker(trade.token_in, int(knots.d[3]))
        trade.walk(vault, contract.ALL, 0)
        assert vault.balances[trade.token_out] == trade.pays(int(knots.d[3])) > 0


def test_pools_that_are_shut_mint_and_redeem_nothing() -> None:
    """A pool that forbids swaps still redeems where its exchange allows it; an inactive one does neither."""
    pool = next(pool for pool in MARKET.pools if pool.exchange == "XExchange")
    others = [other for other in MARKET.pools[:60] if other is not pool]
    token = next(token for token in PLAIN if token not in pool.tokens)

    def planner(state: PoolState) -> Planner:
        pools: list[Pool] = [*others, msgspec.structs.replace(pool, state=state)]
        return Planner(pools, DictMarket(pools, WRAPPED))

    halted, shut = planner(PoolState.NO_SWAPS), planner(PoolState.INACTIVE)
    assert halted.supports(pool.lp_token, token)
    assert not halted.supports(token, pool.lp_token)
    assert not shut.supports(pool.lp_token, token)


def test_deposits_are_divided_so_that_the_contract_has_next_to_nothing_to_sell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that pays: into OneDex pairs, of whose fee the contract has a wrong idea, less is lost and more minted."""
    pairs = [pool for pool in MARKET.pools[:60] if pool.exchange == "OneDex" and pool.kind == "constant_product"]

    def quoted() -> list[tuple[int, int]]:
        found = []
        for pool in pairs:
            token = next(token for token in PLAIN if token not in pool.tokens)
            amount = PLANNER.router.depth(token) // 10_000
            done = PLANNER.forward(token, pool.lp_token, amount, Limits(), "lagrangian").execution
            program = make_program(done.legs, Ends(token, pool.lp_token), WRAPPED, done.amount_out, 0)
            result = execute(program, [TokenPayment(token, 0, amount)], BOOK)
            balancing = result.steps[-1].balancing
            assert balancing is not None
            left = sum(part * pool.reserves[1 - pool.index(name)] for name, part in balancing.left)
            found.append((done.amount_out, left))
        return found

    refined = quoted()
    monkeypatch.setattr(liquidity, "REFINEMENTS", 0)
    plain = quoted()
    assert len(plain) >= 5
    assert sum(one[0] / other[0] for one, other in zip(refined, plain, strict=True)) >= len(plain)
    assert sum(one[1] <= other[1] for one, other in zip(refined, plain, strict=True)) >= len(plain) // 2
