"""Values in dollars are the amounts at the prices that the service itself names."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from millrace.aggregator.catalogue import Catalogue, make
from millrace.aggregator.dollars import in_dollars
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.dex.document import encode
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
MARKET = make_market(60, seed=11)
MINTED = next(pool for pool in MARKET.pools if pool.exchange != "Jex").lp_token
SETTINGS = AggregatorSettings(referrals={"7": (10, 25)})


@cache
def snapshot() -> Snapshot:
    return build(encode(MARKET), 0.0)


def catalogue() -> Catalogue:
    parts = make(snapshot(), USDC)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: Catalogue = end.value
            return found


@pytest.mark.parametrize(("source", "target"), [("EGLD", USDC), (USDC, "EGLD"), (WRAPPED, WRAPPED), ("EGLD", MINTED)])
@pytest.mark.parametrize("referral", [0, 7])
def test_a_quote_is_worth_its_amounts_at_the_named_prices(source: str, target: str, referral: int) -> None:
    """Input, output, minimum and fee, each the amount in whole tokens times the price that /prices shows."""
    market = snapshot() if source != target else build(encode(make_market(60, seed=17, noise=0.02)), 0.0)
    asked = QuoteRequest(
        token_in=source, token_out=target, amount_in=10 ** market.decimals[source], referral_id=referral
    )
    body = answer(market, asked, SETTINGS)
    if market is snapshot():
        prices = catalogue().prices
        assert body.amount_in_usd == pytest.approx(body.amount_in_short * (prices[source].usdc or 0), rel=1e-9)
        assert body.amount_out_usd == pytest.approx(body.amount_out_short * (prices[target].usdc or 0), rel=1e-9)
        least = body.amount_out_min_short * (prices[target].usdc or 0)
        assert body.amount_out_min_usd == pytest.approx(least, rel=1e-9)
        assert body.fee_amount_usd == pytest.approx(body.fee_amount_short * (prices[target].usdc or 0), rel=1e-9)
    else:
        assert (body.amount_in_usd or 0) <= (body.amount_out_usd or 0)


def test_what_no_pool_connects_is_worth_nothing_known() -> None:
    """Of a token without a price, and without the token that counts as a dollar, the value is null."""
    assert in_dollars(snapshot(), USDC, "NONE-123456", 5, 0) == [None, None]
    assert in_dollars(snapshot(), "NONE-123456", "EGLD", 5) == [None]
    asked = QuoteRequest(token_in="EGLD", token_out=USDC, amount_in=10**18)
    body = answer(snapshot(), asked, msgspec.structs.replace(SETTINGS, usdc="NONE-123456"))
    assert (body.amount_in_usd, body.amount_out_usd) == (None, None)
