"""Prices come over the deepest pools; who makes a small pool at a price of his own moves nothing."""

from __future__ import annotations

import math

import pytest

from millrace.aggregator.prices import token_prices, with_shares
from millrace.dex.constant_product import JexPool
from millrace.dex.pool import Pool
from synthetic import WRAPPED, make_market

A, B, C = "AAA-000001", "BBB-000002", "CCC-000003"


def pool(name: str, tokens: tuple[str, str], reserves: tuple[int, int], lp: str = "", supply: int = 0) -> Pool:
    pubkey = name.encode().ljust(32, b"\0")
    return JexPool(
        id=name,
        address=pubkey,
        tokens=tokens,
        reserves=reserves,
        lp_fee=20,
        platform_fee=10,
        lp_token=lp,
        lp_supply=supply,
    )


def test_a_price_comes_over_the_deepest_pools() -> None:
    """Of two pools of one pair the one with more of the priced token counts, whatever the other side claims to hold."""
    deep = pool("deep", (WRAPPED, A), (10**21, 2 * 10**21))
    bait = pool("bait", (A, WRAPPED), (10**30, 10**18))
    onward = pool("onward", (A, B), (10**20, 10**18))
    for order in ([deep, bait, onward], [onward, bait, deep]):
        prices = token_prices(order, WRAPPED)
        assert prices == pytest.approx({WRAPPED: 1.0, A: 0.5, B: 50.0})


def test_what_nothing_leads_to_has_no_price() -> None:
    """A pair that no pool connects with the native coin."""
    assert token_prices([pool("far", (B, C), (5, 5))], WRAPPED) == {WRAPPED: 1.0}


def test_an_lp_unit_is_worth_its_share() -> None:
    """Whatever a pool trades it for; it has none where a token of its pool has none."""
    first = pool("first", (WRAPPED, A), (10**21, 10**21), "LPA-000001", 10**20)
    trading = pool("trading", (WRAPPED, "LPA-000001"), (10**22, 10**10))
    lost = pool("lost", (B, C), (10**20, 10**20), "LPB-000002", 10**20)
    prices = with_shares(token_prices([first, trading, lost], WRAPPED), [first, trading, lost])
    assert prices["LPA-000001"] == pytest.approx(20.0)
    assert "LPB-000002" not in prices


@pytest.mark.parametrize("curved", [0.0, 1.0])
def test_prices_agree_with_what_pools_trade_at(curved: float) -> None:
    """In a market without mispricing every pool of two tokens trades them at their prices, curved ones too."""
    market = make_market(80, seed=5, noise=0.0, curved=curved)
    prices = token_prices(market.pools, WRAPPED)
    assert set(prices) == {token for pool in market.pools for token in pool.tokens}
    checked = 0
    for one in market.pools:
        amounts = [max(reserve // 10**6, 1) for reserve in one.reserves]
        if one.state != "active" or min(amounts) < 10**4:
            continue
        paid = one.amount_out(0, 1, amounts[0])
        worth = paid * prices[one.tokens[1]] / (amounts[0] * prices[one.tokens[0]])
        assert 0.97 < worth <= 1.005, one.id
        checked += 1
    assert checked > 20
    assert all(math.isfinite(price) and price > 0.0 for price in prices.values())
