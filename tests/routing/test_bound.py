"""The bound behind `optimalityGap` holds: no plan that anybody finds pays more."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys

import pytest

from millrace.chain.call import TokenPayment
from millrace.dex.constant_product import FeeDestination, JexPool, TrustedPair, XExchangePool
from millrace.dex.crypto import AshCryptoPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.vault import execute
from millrace.routing.plan import Ends, PlanError, make_program
from millrace.routing.router import Limits, NoRoute, Router
from synthetic import WRAPPED, make_market, of_single_trades

EVERY_LIMIT = (Limits(100, 50, 10), Limits(10_000, 1_000, 16), Limits(10, 1, 3), Limits(30, 5, 6))


def outputs_and_bounds(router: Router, token_in: str, token_out: str, amount: int) -> tuple[int, list[float]]:
    """The most that any algorithm pays within any limits, and every bound that was claimed."""
    best, bounds = 0, []
    for algorithm, limits in itertools.product(("greedy", "lagrangian", "hybrid"), EVERY_LIMIT):
        try:
            route = router.forward(token_in, token_out, amount, limits, algorithm)  # type: ignore[arg-type]
        except (NoRoute, PlanError):
            continue
        best = max(best, route.execution.amount_out)
        assert route.gap is not None
        if route.gap < 1.0:
            bounds.append(route.execution.amount_out / (1.0 - route.gap))
    return best, bounds


@pytest.mark.parametrize("seed", [5, 17, 32, 40, 54, 69, 92, 94])
def test_no_plan_pays_more_than_any_bound(seed: int) -> None:
    """Whatever the exchanges, curves, mispricing and size, from single units to ten times the reserves."""
    rng = random.Random(seed)
    pools, noise, curved = rng.choice([6, 12, 30, 80]), rng.choice([0.002, 0.01, 0.03, 0.1]), rng.choice([0, 0.3, 0.8])
    market = make_market(pools, seed=seed, noise=noise, curved=curved)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    for _ in range(12):
        token_in, token_out = (rng.choice(rng.choice(market.pools).tokens) for _ in range(2))
        amount = max(1, int(router.depth(token_in) * 10 ** rng.uniform(-16 if rng.random() < 0.3 else -6, 1)))
        best, bounds = outputs_and_bounds(router, token_in, token_out, amount)
        assert all(best <= bound * (1.0 + 1e-12) + 0.5 for bound in bounds)


def piecewise(pool: Pool, amount: int, pieces: int) -> int:
    """What a pool pays for an amount sold in equal pieces, each after the other."""
    total = 0
    for _ in range(pieces):
        swap = pool.swap(0, 1, amount // pieces)
        total, pool = total + swap.amount_out, swap.pool
    return total


def test_the_bound_covers_trades_in_pieces() -> None:
    """A fee on the output that stays in the pool makes many small trades pay more than a large one."""
    tokens, reserves = ("AAA-000001", "BBB-000002"), (10**24, 10**24)
    pool = JexPool(
        id="j:1",
        address=b"\x01" * 32,
        tokens=tokens,
        reserves=reserves,
        lp_fee=100,
        platform_fee=0,
        lp_token="L-000003",
    )
    route = Router([pool], DictMarket([pool], WRAPPED)).forward(*tokens, 10**24, Limits(), "hybrid")
    assert route.gap is not None
    bound = route.execution.amount_out / (1.0 - route.gap)
    in_pieces = piecewise(pool, 10**24, 1000)
    assert route.execution.amount_out < in_pieces <= bound
    assert bound < in_pieces * 1.0001


def test_the_bound_covers_curved_pools_that_a_plan_visits_again() -> None:
    """A crypto pool's fee grows and stays in it: pieces pay more than any single trade, within the bound."""
    market = make_market(4, seed=3, curved=1.0)
    pool = next(pool for pool in market.pools if isinstance(pool, AshCryptoPool))
    router = Router([pool], DictMarket([pool], WRAPPED))
    amount = pool.reserves[0] // 3
    route = router.forward(*pool.tokens, amount, Limits(), "lagrangian")
    single = of_single_trades(router).forward(*pool.tokens, amount, Limits(), "lagrangian").bound()
    assert route.gap is not None
    bound = route.execution.amount_out / (1.0 - route.gap)
    in_pieces = piecewise(pool, amount, 200)
    assert route.execution.amount_out <= single < in_pieces <= bound
    assert single < route.execution.amount_out * 1.000001
    assert bound < in_pieces * 1.0002


@pytest.mark.parametrize("curved", [0.0, 0.5])
def test_no_plan_of_single_trades_pays_more_than_their_bound(curved: float) -> None:
    """The dual's plans trade once with each pool: they come close to their bound, which is below that of the gap."""
    market = make_market(60, seed=11, curved=curved)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    once = of_single_trades(router)
    rng = random.Random(11)
    ratios = []
    while len(ratios) < 30:
        token_in, token_out = (rng.choice(rng.choice(market.pools).tokens) for _ in range(2))
        if token_in == token_out or not router.connected(token_in, token_out):
            continue
        amount = max(1, int(router.depth(token_in) * 10 ** rng.uniform(-4, 0)))
        route = router.forward(token_in, token_out, amount, Limits(10_000, 1_000, 16), "lagrangian")
        bound = once.forward(token_in, token_out, amount, Limits(10_000, 1_000, 16), "lagrangian").bound()
        paid = route.execution.amount_out
        assert paid <= bound * (1.0 + 1e-12) + 0.5
        assert bound <= route.bound() * (1.0 + 1e-12)
        if paid > 10**9:
            ratios.append(paid / bound)
    assert sum(ratios) / len(ratios) > 0.99999


def test_rounding_in_the_traders_favour_is_no_reason_to_pay_less() -> None:
    """Where a path gains by fees that round down to nothing, the answer is no less than that path pays."""
    rng = random.Random(40)
    gained = 0
    market = make_market(80, seed=40, noise=0.002)
    router = Router(market.pools, DictMarket(market.pools, WRAPPED))
    for _ in range(150):
        token_in, token_out = (rng.choice(rng.choice(market.pools).tokens) for _ in range(2))
        if token_in == token_out:
            continue
        amount = max(1, int(router.depth(token_in) * 10 ** rng.uniform(-16, -6)))
        limits = Limits(pools=60, paths=1)
        path = router.exact_path(token_in, token_out, amount, limits)
        try:
            paid = router.forward(token_in, token_out, amount, limits, "hybrid").execution.amount_out
        except PlanError:
            assert path is None
            continue
        floor = amount
        for trade in path or []:
            floor = trade.pays(floor)
        assert path is None or paid >= floor
        gained += paid > 0
    assert gained > 20


@pytest.mark.parametrize(("shallow", "close"), [(10**22, 3e-3), (10**24, 3e-3), (10**26, 5e-5)])
def test_the_bound_covers_fees_that_are_sold_in_another_pair(shallow: int, close: float) -> None:
    """Such a sale moves that pair: a plan that trades there the other way afterwards is paid more by it.

    The bound is close to what is paid where slices are small beside the pair.
    """
    x, y, w = "XXX-000001", "YYY-000002", "WWW-000003"
    deep = 10**27
    pair = XExchangePool(
        id="yw", address=b"\x03" * 32, tokens=(y, w), reserves=(shallow, shallow), total_fee=300, special_fee=50,
        fees_collector=b"", fee_destinations=(),
    )  # fmt: skip
    selling = XExchangePool(
        id="xy", address=b"\x01" * 32, tokens=(x, y), reserves=(deep, deep), total_fee=300, special_fee=100,
        fees_collector=b"", fee_destinations=(FeeDestination(bytes(32), w),),
        trusted_pairs=(TrustedPair((y, w), pair.address),),
    )  # fmt: skip
    other = JexPool(
        id="xw", address=b"\x02" * 32, tokens=(x, w), reserves=(deep, deep * 1004 // 1000), lp_fee=0, platform_fee=10
    )
    apart = JexPool(
        id="ab",
        address=b"\x04" * 32,
        tokens=("AAA-000004", "BBB-000005"),
        reserves=(deep, deep),
        lp_fee=0,
        platform_fee=10,
    )
    pools = [selling, other, pair, apart]
    book = DictMarket(pools, WRAPPED)
    router = Router(pools, book)
    alone = router.forward(*apart.tokens, 10**25, Limits(), "lagrangian")
    assert alone.bound() < alone.execution.amount_out * (1.0 + 1e-3), "slices of another part of the market add nothing"
    for amount in (10**25, 5 * 10**25, 10**26):
        route = router.forward(x, y, amount, Limits(), "lagrangian")
        best, bounds = outputs_and_bounds(router, x, y, amount)
        legs = [leg.trade for leg in route.execution.legs]  # type: ignore[union-attr]
        assert {trade.pool.id for trade in legs} == {"xy", "xw", "yw"}
        program = make_program(route.execution.legs, Ends(x, y), WRAPPED, 0, 0)
        assert execute(program, [TokenPayment(x, 0, amount)], book).amount_out == route.execution.amount_out
        assert all(best <= bound * (1.0 + 1e-12) + 0.5 for bound in bounds)
        assert route.bound() < best * (1.0 + close)


SELLERS = """
from millrace.dex.constant_product import FeeDestination, JexPool, TrustedPair, XExchangePool
from millrace.dex.market import DictMarket
from millrace.routing.router import Limits, Router

x, y, w = "XXX-000001", "YYY-000002", "WWW-000003"
deep = 10**27
pair = XExchangePool(
    id="yw", address=b"p" * 32, tokens=(y, w), reserves=(deep, deep), total_fee=300, special_fee=50,
    fees_collector=b"", fee_destinations=(),
)
pools = [pair, JexPool(id="xw", address=b"o" * 32, tokens=(x, w), reserves=(deep, deep), lp_fee=0, platform_fee=10)]
for k in range(1, 8):
    between = f"BETWEEN-00000{k}"
    pools += [
        JexPool(
            id=f"x{k}", address=b"j" * 31 + bytes([k]), tokens=(x, between), reserves=(deep, deep), lp_fee=0,
            platform_fee=10,
        ),
        XExchangePool(
            id=f"y{k}", address=b"s" * 31 + bytes([k]), tokens=(between, y), reserves=(deep // k, deep // k),
            total_fee=28_000, special_fee=2_800 + k, fees_collector=b"",
            fee_destinations=(FeeDestination(bytes(32), w),),
            trusted_pairs=(TrustedPair((y, w), pair.address),),
        ),
    ]
router = Router(pools, DictMarket(pools, w))
for k in range(1, 40):
    print(router.forward(x, y, k * 10**25, Limits(), "lagrangian").gap)
"""


def test_equal_questions_have_equal_bounds_in_every_process() -> None:
    """To the last digit, also where several pairs sell their fee in one: workers answer side by side."""
    told = [
        subprocess.run(
            [sys.executable, "-c", SELLERS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert len(set(told[0].split())) > 30
    assert told[0] == told[1]
