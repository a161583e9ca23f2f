"""Answers on a snapshot: what the breakdown says adds up to what is promised, exactly."""

from __future__ import annotations

import base64
import random
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec
import pytest

from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer, pair_config
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import MIN_GAS_PRICE, AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.chain import call
from millrace.chain.call import TokenPayment
from millrace.dex.aggregator_contract import decode_arguments
from millrace.dex.constant_product import JexPool, XExchangePool
from millrace.dex.document import TokenInfo, encode
from millrace.dex.vault import Referral, execute
from millrace.routing.limits import BOUNDLESS
from millrace.routing.planner import Planner
from millrace.routing.router import Route
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
MARKET = make_market(60, seed=17, noise=0.02, curved=0.2, traded_lp=5)
SETTINGS = AggregatorSettings()


@cache
def snapshot() -> Snapshot:
    return build(encode(MARKET), 0.0)


def ask(token_in: str, token_out: str, amount_in: int, *, lp: bool = True) -> QuoteResponse:
    """A quote with paths."""
    return answer(
        snapshot(),
        QuoteRequest(
            token_in=token_in,
            token_out=token_out,
            amount_in=amount_in,
            slippage=Decimal("0.01"),
            include_paths=True,
            include_lp_routes=lp,
        ),
        SETTINGS,
    )


def check_paths(quote: QuoteResponse) -> None:
    """Inputs, outputs and shares of the paths add up; hops fit together; only what a cycle keeps has none."""
    assert isinstance(quote.paths, list)
    assert sum(int(path.amount_in) for path in quote.paths) == int(quote.amount_in)
    assert sum(int(path.amount_out) for path in quote.paths) == int(quote.amount_out)
    assert sum(path.split_ppm for path in quote.paths) == 1_000_000
    for path in quote.paths:
        if not path.swaps:
            assert quote.from_ == quote.to
            assert path.amount_in == path.amount_out
            continue
        assert path.swaps[0].from_ == quote.from_
        assert path.swaps[-1].to == quote.to
        assert [swap.from_ for swap in path.swaps[1:]] == [swap.to for swap in path.swaps[:-1]]
        assert [swap.amount_in for swap in path.swaps[1:]] == [swap.amount_out for swap in path.swaps[:-1]]


@pytest.mark.parametrize("token", [WRAPPED, USDC, "EGLD"])
@pytest.mark.parametrize("size", [10**15, 10**21, 10**27])
def test_a_cycle_shows_what_it_trades_and_what_it_keeps(token: str, size: int) -> None:
    """Profit is output less input; paths add up to both; price impact is of the traded part alone, in exact numbers."""
    amount = size if token != USDC else size // 10**12
    quote = ask(token, token, amount)
    check_paths(quote)
    assert isinstance(quote.paths, list)
    assert int(quote.profit) == int(quote.amount_out) - amount > 0  # type: ignore[arg-type]
    assert quote.profit_short == pytest.approx(int(quote.profit) / 10**quote.decimals_in)  # type: ignore[arg-type]
    traded = [path for path in quote.paths if path.swaps]
    spent, paid = (sum(int(getattr(path, name)) for path in traded) for name in ("amount_in", "amount_out"))
    executed = Fraction(paid, spent)
    assert executed > 1
    assert 0.0 <= quote.price_impact < 1.0


def test_price_impact_is_against_the_spot_rate_of_the_route_with_fees() -> None:
    """One pool, exact numbers: nothing for a speck, half of the output for an input as large as the reserve."""
    pool = next(pool for pool in MARKET.pools if isinstance(pool, JexPool))
    for part in (10**6, 1000, 10, 1):
        amount = pool.reserves[0] // part
        question = QuoteRequest(
            token_in=pool.tokens[0],
            token_out=pool.tokens[1],
            amount_in=amount,
            only_pools=(pool.id,),
            max_hops=1,
            algorithm="lagrangian",  # one trade: `hybrid` makes large ones in pieces
        )
        quote = answer(snapshot(), question, SETTINGS)
        executed = Fraction(pool.amount_out(0, 1, amount), amount)
        assert int(quote.amount_out) == pool.amount_out(0, 1, amount)
        spot = Fraction(pool.reserves[1], pool.reserves[0]) * (1 - Fraction(30, 10_000))
        assert quote.price_impact == pytest.approx(float(1 - executed / spot), abs=1e-6)
    assert quote.price_impact == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("token_out", [USDC, WRAPPED, MARKET.pools[3].lp_token])
def test_a_speck_has_no_price_impact(token_out: str) -> None:
    """Whatever the prices of the market are off by, a small amount is traded at its route's spot rate."""
    token_in = next(token for token in MARKET.pools[0].tokens if token != token_out)
    depth = max(pool.reserves[pool.index(token_in)] for pool in MARKET.pools if token_in in pool.tokens)
    quote = ask(token_in, token_out, max(depth // 10**6, 1))
    assert quote.price_impact < 0.01


@pytest.mark.parametrize("kind", ["LP to token", "token to LP", "LP to LP", "between"])
def test_paths_with_lp_tokens_have_real_hops(kind: str) -> None:
    """Redemptions and deposits are hops with the pool's exchange and address; every path adds up."""
    dice = random.Random(kind)
    answered = 0
    for _ in range(10):
        pool, other = dice.sample(MARKET.pools[:60], 2)
        token_in, token_out, amount = {
            "LP to token": (pool.lp_token, other.tokens[0], pool.lp_supply // 1000),
            "token to LP": (other.tokens[0], pool.lp_token, other.reserves[0] // 1000),
            "LP to LP": (pool.lp_token, other.lp_token, pool.lp_supply // 1000),
            "between": (pool.tokens[0], other.tokens[1], pool.reserves[0] // 1000),
        }[kind]
        if token_in == token_out:
            continue
        try:
            quote = ask(token_in, token_out, amount)
        except ApiError:
            continue
        answered += 1
        check_paths(quote)
        assert isinstance(quote.paths, list)
        for path in quote.paths:
            assert path.swaps
            assert all(swap.dex in ("xExchange", "OneDex", "AshSwap", "JEX") for swap in path.swaps)
    assert answered >= 3


def test_a_single_lp_unit_is_redeemed() -> None:
    """Of one LP unit no token can have a part: that is an answer like any other, with paths that add up."""
    issued = JexPool(
        id="j:few",
        address=b"\x01" * 32,
        tokens=(WRAPPED, USDC),
        reserves=(10**24, 10**13),
        lp_token="FEWLP-000001",
        lp_supply=10**5,
        lp_fee=20,
        platform_fee=10,
    )
    infos = (*MARKET.tokens, TokenInfo("FEWLP-000001", 18, "Few", "FEWLP", True, issued.id))
    market = msgspec.structs.replace(MARKET, tokens=infos, pools=(*MARKET.pools, issued))
    question = QuoteRequest(token_in="FEWLP-000001", token_out=USDC, amount_in=1, include_paths=True)
    quote = answer(build(encode(market), 0.0), question, SETTINGS)
    check_paths(quote)
    assert int(quote.amount_out) > 10**7
    assert 0.0 <= quote.price_impact < 1.0


def test_a_pool_that_calls_egld_its_shares_changes_nothing() -> None:
    """It is left out and named; EGLD is worth itself, and is sold as in a market without that pool."""
    bad = next(pool for pool in MARKET.pools if pool.kind == "constant_product" and WRAPPED not in pool.tokens)
    others = tuple(pool for pool in MARKET.pools if pool is not bad)
    pools = (*others, msgspec.structs.replace(bad, lp_token=WRAPPED))
    market = build(encode(msgspec.structs.replace(MARKET, pools=pools)), 0.0)
    without = build(encode(msgspec.structs.replace(MARKET, pools=others)), 0.0)
    assert [item.name for item in market.document.quarantined] == [bad.id]
    assert market.worth == without.worth
    assert market.worth[WRAPPED] == 1.0
    question = QuoteRequest(token_in="EGLD", token_out=USDC, amount_in=10**18)
    paid = [answer(made, question, SETTINGS).amount_out for made in (market, without)]
    assert paid[0] == paid[1]


@pytest.mark.parametrize(("token_in", "token_out"), [("EGLD", WRAPPED), (WRAPPED, "EGLD"), (WRAPPED, USDC)])
def test_a_reverse_quote_pays_what_is_wanted_after_the_referral_fee(token_in: str, token_out: str) -> None:
    """The contract's fee comes on top of the wanted output, also where there is nothing but wrapping to do."""
    wanted = 10**18 if token_out != USDC else 10**7
    question = QuoteRequest(token_in=token_in, token_out=token_out, amount_out=wanted, referral_id=7)
    quote = answer(snapshot(), question, AggregatorSettings(referrals={"7": (30, 20)}))
    assert int(quote.amount_out) >= wanted
    assert int(quote.fee_amount) >= wanted * 50 // 10_000


REFERRALS = {"1": (0, 30), "2": (15, 20), "3": (30, 20), "4": (5000, 0), "5": (3333, 1667), "6": (4000, 3000)}


def left(amount: int, bps: tuple[int, int]) -> int:
    """What the contract's two fees leave, each rounded down."""
    return amount - amount * bps[0] // 10_000 - amount * bps[1] // 10_000


@pytest.mark.parametrize("fees", [(1, 0), (10, 25), (60, 60), (0, 200)])
@pytest.mark.parametrize("token", [WRAPPED, USDC])
def test_profit_with_a_referral_never_falls_as_the_amount_grows(token: str, fees: tuple[int, int]) -> None:
    """What no cycle sells is not paid in, as the contract takes its fee of all that comes back; to 10^-6 of it."""
    settings = AggregatorSettings(referrals={"7": fees})
    deepest = max(pool.reserves[pool.index(token)] for pool in MARKET.pools if token in pool.tokens)
    profits, best = [], 0
    for shift in range(16, -6, -1):
        amount = deepest >> shift if shift >= 0 else deepest << -shift
        question = QuoteRequest(token_in=token, token_out=token, amount_in=amount, referral_id=7)
        try:
            quote = answer(snapshot(), question, settings)
        except ApiError:
            profits.append(0)
            continue
        assert int(quote.amount_in) <= amount
        profits.append(int(quote.profit))  # type: ignore[arg-type]
        program = decode_arguments(
            call.parse(base64.b64decode(quote.tx_data)).args[3:]
        )  # after token, amount, endpoint
        payment = TokenPayment(token, 0, int(quote.amount_in))
        paid = execute(program, [payment], snapshot().market, Referral(7, *fees)).amount_out
        assert (paid, paid - int(quote.amount_in)) == (int(quote.amount_out), profits[-1])
    for profit in profits:
        assert profit >= best * (1 - 1e-6)
        best = max(best, profit)
    assert profits[-1] > 0


@pytest.mark.parametrize("amount", [{"amount_in": 10**18}, {"amount_out": 10**6}])
@pytest.mark.parametrize(
    ("token_in", "token_out", "words"),
    [
        (WRAPPED, "USDC-c76f1f", "simulation failed"),
        ("EGLD", WRAPPED, "simulation failed"),
        (WRAPPED, WRAPPED, "no path between tokens|invalid amount_out"),
    ],
)
def test_of_a_referral_that_takes_everything_there_is_no_quote(
    token_in: str, token_out: str, words: str, amount: dict[str, int]
) -> None:
    """Nothing would be paid, whatever is sold: no call for nothing is given out."""
    settings = AggregatorSettings(referrals={"7": (4_000, 6_000)})
    question = QuoteRequest(token_in=token_in, token_out=token_out, referral_id=7, **amount)
    with pytest.raises(ApiError, match=words):
        answer(snapshot(), question, settings)


@pytest.mark.parametrize("referral", REFERRALS)
def test_what_is_wrapped_for_a_referral_is_the_least_that_pays(referral: str) -> None:
    """Two fees that are rounded down apart leave enough of less than both together would: found by trying all."""
    settings = AggregatorSettings(referrals=REFERRALS)
    for wanted in [*range(1, 60), 333, 1330, 10**6 + 1]:
        question = QuoteRequest(
            token_in="EGLD", token_out=WRAPPED, amount_out=wanted, referral_id=int(referral), slippage=Decimal(0)
        )
        quote = answer(snapshot(), question, settings)
        amount = next(amount for amount in range(wanted, 5 * wanted) if left(amount, REFERRALS[referral]) >= wanted)
        assert (int(quote.amount_in), int(quote.amount_out)) == (amount, left(amount, REFERRALS[referral]))


@pytest.mark.parametrize("referral", REFERRALS)
def test_a_reverse_quote_with_a_referral_takes_the_least_that_pays(referral: str) -> None:
    """In a pair of coarse units, where a unit more put in can leave a unit less of the output, found by trying all.

    Where the fees take more than half, more of the output than enough is asked for now and then.
    """
    pool = XExchangePool(
        id="x",
        address=bytes(31) + b"\7",
        tokens=(WRAPPED, "FEW-000001"),
        reserves=(10**6, 1_700_000),
        lp_token="FEWLP-000001",
        lp_supply=10**6,
        total_fee=300,
        special_fee=0,
    )
    infos = (
        TokenInfo(WRAPPED, 18, "", "WEGLD"),
        TokenInfo("FEW-000001", 0, "", "FEW"),
        TokenInfo("FEWLP-000001", 18, "", "FEWLP", True, "x"),
    )
    market = build(encode(msgspec.structs.replace(MARKET, tokens=infos, pools=(pool,), main_pair_tokens=None)), 0.0)
    settings, bps = AggregatorSettings(referrals=REFERRALS), REFERRALS[referral]
    for wanted in range(1, 120):
        question = QuoteRequest(token_in=WRAPPED, token_out="FEW-000001", amount_out=wanted, referral_id=int(referral))
        quote = answer(market, question, settings)
        amount = int(quote.amount_in)
        assert int(quote.amount_out) == left(pool.amount_out(0, 1, amount), bps) >= wanted
        least = next(x for x in range(1, 10**4) if left(pool.amount_out(0, 1, x), bps) >= wanted)
        assert amount == least if sum(bps) <= 5000 else amount >= least


def asked(token_in: str, token_out: str, calls: int, splits: int | None = 50) -> QuoteRequest:
    """A large question with so many built-in calls."""
    return QuoteRequest(
        token_in=token_in, token_out=token_out, amount_in=10**21, max_builtin_calls=calls, max_splits=splits
    )


@pytest.mark.parametrize("ends", [(WRAPPED, USDC), ("EGLD", USDC), (USDC, "EGLD")])
@pytest.mark.parametrize("calls", [6, 8, 12, 20, 40, 100])
def test_a_quote_takes_no_more_built_in_calls_than_asked_for(ends: tuple[str, str], calls: int) -> None:
    """Nor more than the setting, and its gas is never above the limit of a transaction."""
    quote = answer(snapshot(), asked(*ends, calls), SETTINGS)
    assert quote.estimated_builtin_calls <= min(calls, SETTINGS.max_builtin_calls)
    assert quote.estimated_gas_limit <= SETTINGS.max_gas


@pytest.mark.parametrize(("token_in", "least"), [(WRAPPED, 1 + 2), ("EGLD", 1 + 2 + 2)])
def test_a_question_that_no_plan_within_the_limits_answers_gets_the_documented_words(token_in: str, least: int) -> None:
    """The call itself takes one, wrapping two, the cheapest swap two: with fewer there is no path."""
    for calls in range(1, least):
        with pytest.raises(ApiError, match="routing failed: no path between tokens"):
            answer(snapshot(), asked(token_in, USDC, calls), SETTINGS)


def test_wrapping_alone_takes_what_it_takes() -> None:
    """Three calls to wrap (a mint and two sends); with fewer there is no path."""
    wrapping = QuoteRequest(token_in="EGLD", token_out=WRAPPED, amount_in=10**18, max_builtin_calls=3)
    assert answer(snapshot(), wrapping, SETTINGS).estimated_builtin_calls == 3
    with pytest.raises(ApiError, match="no path"):
        answer(snapshot(), msgspec.structs.replace(wrapping, max_builtin_calls=2), SETTINGS)


def test_a_lower_limit_of_gas_is_kept() -> None:
    """The estimate of every answer is within the operator's own limit, whatever it is."""
    for millions in (20, 40, 80, 160):
        settings = AggregatorSettings(max_gas=millions * 10**6)
        for calls in (30, 100):
            quote = answer(snapshot(), asked(WRAPPED, USDC, calls), settings)
            assert quote.estimated_gas_limit <= millions * 10**6


def test_the_operators_costs_are_what_quotes_are_planned_with() -> None:
    """A dearer row makes estimates larger, and plans smaller where it no longer fits."""
    dear = AggregatorSettings(costs={f"{name}_swap": {"gas": 150_000_000} for name in ("jex", "onedex", "xexchange")})
    plain = answer(snapshot(), asked(WRAPPED, USDC, 100), SETTINGS)
    planned = answer(build(encode(MARKET), 0.0, table=dear.table()), asked(WRAPPED, USDC, 100), dear)
    assert planned.estimated_gas_limit <= 600_000_000
    assert len(planned.pool_fees) < len(plain.pool_fees)
    assert planned.estimated_gas_limit > 150_000_000


class Careless(Planner):
    """A planner that forgets the limits of a transaction."""

    def forward(self, *asked: Any, **options: Any) -> Route:
        token_in, token_out, amount, limits, *others = asked
        return super().forward(token_in, token_out, amount, limits._replace(budget=BOUNDLESS), *others, **options)


def test_a_plan_over_the_limits_is_no_answer_wherever_it_comes_from() -> None:
    """A defect of the search costs an answer, not a fee."""
    market = snapshot()
    careless = Careless(MARKET.pools, market.market)
    settings = AggregatorSettings(max_gas=30_000_000)
    with pytest.raises(ApiError, match="simulation failed"):
        answer(market, asked(WRAPPED, USDC, 100), settings, planner=careless)


@pytest.mark.parametrize("calls", [2, 3, 5])
@pytest.mark.parametrize("ends", ["to LP", "from LP"])
def test_lp_tokens_that_no_transaction_reaches_get_the_documented_words(ends: str, calls: int) -> None:
    """A deposit takes more built-in calls than that, and so does a withdrawal with its swap."""
    issuer = next(pool for pool in MARKET.pools if pool.exchange == "OneDex" and pool.state == "active")
    token_in, token_out = (WRAPPED, issuer.lp_token) if ends == "to LP" else (issuer.lp_token, WRAPPED)
    words = "routing failed: no path between tokens" if ends == "to LP" or calls < 5 else "no path|simulation failed"
    with pytest.raises(ApiError, match=words):
        answer(snapshot(), asked(token_in, token_out, calls), SETTINGS)


@pytest.mark.parametrize("seen", [False, True])
def test_a_jex_pairs_lp_token_is_offered_only_where_a_deposit_works(seen: bool) -> None:
    """The aggregator contract reads keys that the published pair lacks: there every deposit reverts."""
    traded = {token for pool in MARKET.pools for token in pool.tokens}
    pool = next(pool for pool in MARKET.pools if isinstance(pool, JexPool) and pool.lp_token not in traded)
    pools = [msgspec.structs.replace(pool, token_id_keys=seen) if one is pool else one for one in MARKET.pools]
    market = build(encode(msgspec.structs.replace(MARKET, pools=tuple(pools))), 0.0)
    question = QuoteRequest(token_in=WRAPPED, token_out=pool.lp_token, amount_in=10**18, include_lp_routes=True)
    assert pair_config(market, WRAPPED, pool.lp_token, SETTINGS.max_hops).supported is seen
    if seen:
        assert int(answer(market, question, SETTINGS).amount_out) > 0
    else:
        with pytest.raises(ApiError, match="routing failed: no path between tokens"):
            answer(market, question, SETTINGS)
    back = msgspec.structs.replace(
        question, token_in=pool.lp_token, token_out=WRAPPED, amount_in=pool.lp_supply // 1000
    )
    assert int(answer(market, back, SETTINGS).amount_out) > 0


def test_paths_that_were_asked_for_are_not_weighed_against_the_fee() -> None:
    """With `maxSplits` the gas price changes nothing; without it dear gas makes plans shorter."""
    for splits in (1, 5, 50, None):
        question = asked(WRAPPED, USDC, 100, splits)
        cheap, dear = (
            answer(snapshot(), msgspec.structs.replace(question, gas_price=price), SETTINGS)
            for price in (MIN_GAS_PRICE, 10**18)
        )
        if splits is None:
            assert len(dear.pool_fees) < len(cheap.pool_fees)
        else:
            assert dear == cheap


def test_without_a_price_of_egld_as_many_paths_are_used_as_fit() -> None:
    """Where the output cannot be bought with EGLD, the default is what the most paths pay."""
    pools = tuple(pool for pool in MARKET.pools if WRAPPED not in pool.tokens)
    token_in, token_out = pools[0].tokens[:2]
    names = tuple(pool.id for pool in pools[:64])
    for size in (pools[0].reserves[0] // part for part in (10**4, 10**2, 3)):
        default, most = (
            answer(
                snapshot(),
                QuoteRequest(
                    token_in=token_in, token_out=token_out, amount_in=size, only_pools=names, max_splits=splits
                ),
                SETTINGS,
            )
            for splits in (None, 50)
        )
        assert default == most
