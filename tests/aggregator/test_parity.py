"""What clients of the live service send and read beyond the interface's own words."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

import msgspec
import pytest

from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest, parse_ladder, parse_quote
from millrace.aggregator.quote import answer
from millrace.aggregator.responses import encode
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.dex.document import encode as written
from millrace.runtime import settings
from millrace.runtime.settings import SettingsError
from servers.aggregator_service import end, start
from synthetic import WRAPPED, make_market

USDC = "USDC-c76f1f"
MARKET = make_market(60, seed=17, noise=0.02)
SETTINGS = AggregatorSettings()
PAIR = {"from": ["EGLD"], "to": [USDC]}
GOOD = {"from": "EGLD", "to": USDC, "amountIn": "1000000000000000000"}


@cache
def snapshot() -> Snapshot:
    return build(written(MARKET), 0.0)


def question(settings: AggregatorSettings = SETTINGS, **query: str) -> QuoteRequest:
    """The question of a query string with a forward amount."""
    return parse_quote({**PAIR, "amountIn": ["5"], **{name: [value] for name, value in query.items()}}, settings)


def shown(asked: QuoteRequest, chosen: AggregatorSettings = SETTINGS) -> dict[str, Any]:
    """The answer as it is sent."""
    body: dict[str, Any] = msgspec.json.decode(encode(answer(snapshot(), asked, chosen)))
    return body


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("others", [{}, {"slippage": "0.02"}])
def test_paths_are_shown_unless_the_request_or_the_operator_says(default: bool, others: dict[str, str]) -> None:
    """The setting is the default, with and without other parameters; the request's own word wins."""
    chosen = AggregatorSettings(include_paths=default)
    assert question(chosen, **others).include_paths is default
    for word in (True, False):
        assert question(chosen, **others, includePaths=str(word).lower()).include_paths is word


def test_a_reverse_quote_says_what_the_swap_may_cost() -> None:
    """`amountInMax` is what the contract takes; a forward quote has none."""
    asked = QuoteRequest(token_in="EGLD", token_out=USDC, amount_out=10**7)
    body = shown(asked)
    assert body["amountInMax"] == body["amountIn"]
    assert body["amountInMaxShort"] == body["amountInShort"]
    assert "amountInMax" not in shown(msgspec.structs.replace(asked, amount_out=None, amount_in=10**18))


def test_a_transaction_has_the_chain_id_under_both_names() -> None:
    """Wallets read `chainID`, others `chainId`; without a chain API there is no nonce."""
    sender = SETTINGS.contract
    asked = QuoteRequest(token_in="EGLD", token_out=USDC, amount_in=10**18, sender=sender)
    transaction = shown(asked, AggregatorSettings(chain_id="D"))["transaction"]
    assert (transaction["chainID"], transaction["chainId"]) == ("D", "D")
    assert "nonce" not in transaction


@pytest.mark.parametrize("slippage", ["0", "0.01", "0.5", "0.999"])
@pytest.mark.parametrize("token", [WRAPPED, "EGLD", USDC])
def test_arbitrage_never_signs_a_loss(slippage: str, token: str) -> None:
    """Whatever the slippage, the least output of a cycle is not below its input; that of a swap is what it was."""
    asked = QuoteRequest(token_in=token, token_out=token, amount_in=10**12, slippage=Decimal(slippage))
    body = shown(asked)
    assert int(body["amountIn"]) <= int(body["amountOutMin"]) <= int(body["amountOut"])
    other = USDC if token != USDC else WRAPPED
    swap = shown(msgspec.structs.replace(asked, token_out=other))
    assert int(swap["amountOutMin"]) == int(int(swap["amountOut"]) * (1 - Decimal(slippage)))


def test_parameters_without_effect_are_named() -> None:
    """Those nobody knows, and the least profit of a question that is no cycle; all others are followed."""
    assert question(maxSplits="3", slippage="0.1", includeExchanges="jex").ignored == ()
    assert question(minProfitBps="3", maxSplit="3").ignored == ("minProfitBps", "maxSplit")
    cycle = {"from": [USDC], "to": [USDC], "amountIn": ["1000000"], "minProfitBps": ["1"]}
    assert parse_quote(cycle, SETTINGS).ignored == ()
    asked = msgspec.structs.replace(question(maxSplit="3"), amount_in=10**18)
    assert shown(asked)["ignoredParameters"] == ["maxSplit"]
    assert "ignoredParameters" not in shown(msgspec.structs.replace(asked, ignored=()))
    many = question(**{f"{'x' * 100}{k}": "1" for k in range(200)}).ignored
    assert len(many) == 64
    assert max(map(len, many)) == 64


def test_a_price_impact_above_the_limit_is_refused() -> None:
    """At the limit itself the quote is answered, below it is not, in words of its own."""
    asked = QuoteRequest(token_in="EGLD", token_out=USDC, amount_in=10**22)
    found = answer(snapshot(), asked, SETTINGS).price_impact
    assert found > 0.001
    at_limit = msgspec.structs.replace(asked, max_price_impact=Decimal(found))
    assert answer(snapshot(), at_limit, SETTINGS).price_impact == found
    below = msgspec.structs.replace(asked, max_price_impact=Decimal(found) * Decimal("0.99"))
    with pytest.raises(ApiError, match=r"price impact too high: .* is more than maxPriceImpact"):
        answer(snapshot(), below, SETTINGS)


@pytest.mark.parametrize("text", ["", "-0.1", "1.1", "NaN", "1e9", "x", "."])
def test_a_price_impact_that_is_no_fraction_is_refused(text: str) -> None:
    """From 0 to 1, in plain digits."""
    with pytest.raises(ApiError, match="invalid maxPriceImpact"):
        question(maxPriceImpact=text)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "3600001"])
def test_an_age_that_is_none_is_refused(text: str) -> None:
    """Whole milliseconds from 1 to an hour."""
    with pytest.raises(ApiError, match="invalid maxAgeMs"):
        question(maxAgeMs=text)


def test_the_least_profit_has_a_default_of_the_operator() -> None:
    """A setting, in the range of the parameter; the request's own word wins."""
    chosen = AggregatorSettings(min_profit_bps=25)
    assert question(chosen).min_profit_bps == 25
    assert question(chosen, minProfitBps="3").min_profit_bps == 3
    for value in ("-1", "1000001"):
        with pytest.raises(SettingsError, match="min_profit_bps"):
            settings.load("aggregator", AggregatorSettings, env={}, overrides={"min_profit_bps": value})


@pytest.mark.parametrize("names", ["xExchange,JEX", "XEXCHANGE,jex", "jex,JEX,XExchange,xexchange"])
def test_exchanges_are_named_without_case(names: str) -> None:
    """The live service itself spells them in more than one way; equal filters are equal."""
    assert question(includeExchanges=names).only_exchanges == ("Jex", "XExchange")


async def test_an_old_market_is_refused_however_often_it_was_answered() -> None:
    """The upstream has nothing new to say; the market grows old, and the same request is refused that was answered."""
    running, *rest = await start(requests_per_second=10_000, max_snapshot_age_seconds=3600.0)
    try:
        await running.until("/health", 200)
        running.upstream.status = 500
        asked = GOOD | {"maxAgeMs": "60"}
        statuses = [await running.get("/api/v1/quote", **asked)]
        while statuses[-1][0] == 200:
            statuses.append(await running.get("/api/v1/quote", **asked))
        status, body = statuses[-1]
        assert status == 503
        assert "ms old, more than maxAgeMs 60" in body["error"]
        assert "service unavailable" in body["error"]
        assert (await running.get("/api/v1/quote", **GOOD))[0] == 200
    finally:
        await end(running, *rest)


def test_a_ladder_names_what_it_does_not_follow() -> None:
    """Known parameters that have no effect on its steps are named as unknown ones are; others are not."""
    unused = {
        "amountIn": "1",
        "amountOut": "2",
        "slippage": "0.02",
        "includePaths": "false",
        "sender": SETTINGS.contract,
    }
    asked = {
        **PAIR,
        **{name: [value] for name, value in unused.items()},
        "amounts": ["5,6"],
        "maxHops": ["3"],
        "x": ["1"],
    }
    found, amounts = parse_ladder(asked, SETTINGS)
    assert (found.amount_in, found.amount_out, found.max_hops, amounts) == (5, None, 3, [5, 6])
    assert found.ignored == (*unused, "x")
    with pytest.raises(ApiError, match="invalid slippage"):
        parse_ladder({**PAIR, "amounts": ["5"], "slippage": ["2"]}, SETTINGS)
