"""The least input that a pair's record names is one that a quote executes."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer, pair_config
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.dex.document import PoolDocument, encode
from synthetic import make_market

MARKETS = {"fair": (0.0, 0.0), "curved": (0.0, 0.3), "mispriced": (0.02, 0.2)}
SETTINGS = AggregatorSettings()


@cache
def market(kind: str) -> tuple[PoolDocument, Snapshot]:
    noise, curved = MARKETS[kind]
    made = make_market(60, seed=23, noise=noise, curved=curved, traded_lp=3)
    return made, build(encode(made), 0.0)


@pytest.mark.parametrize("lp", ["none", "sold", "bought", "both"])
@pytest.mark.parametrize("kind", MARKETS)
def test_the_least_input_executes(kind: str, lp: str) -> None:
    """Every supported pair's `minAmountIn` is answered by a quote, whatever its tokens' decimals and prices."""
    made, snapshot = market(kind)
    dice = random.Random(f"{kind}/{lp}")
    plain = ["EGLD", *(info.identifier for info in made.tokens if not info.is_lp)]
    units = [info.identifier for info in made.tokens if info.is_lp]
    outcomes: Counter[str] = Counter()
    for _ in range(40):
        token_in = dice.choice(units if lp in ("sold", "both") else plain)
        token_out = dice.choice(units if lp in ("bought", "both") else plain)
        pair = pair_config(snapshot, token_in, token_out)
        if token_in == token_out or not pair.supported:
            outcomes["not asked"] += 1
            continue
        least = int(pair.min_amount_in)  # type: ignore[arg-type]
        quote = answer(snapshot, QuoteRequest(token_in=token_in, token_out=token_out, amount_in=least), SETTINGS)
        assert int(quote.amount_out) > 0
        outcomes["executed"] += 1
    assert outcomes["executed"] >= 5, outcomes


def test_the_least_input_is_no_more_than_it_has_to_be() -> None:
    """Where the old rule of thumb is too little, a thousandth of the least input fails as well."""
    made, snapshot = market("fair")
    names = [info.identifier for info in made.tokens if not info.is_lp]
    dice = random.Random(4)
    raised = failed = 0
    for _ in range(200):
        token_in, token_out = dice.sample(names, 2)
        pair = pair_config(snapshot, token_in, token_out)
        least, decimals = int(pair.min_amount_in), snapshot.decimals[token_in]  # type: ignore[arg-type]
        if least <= 10 ** max(decimals - 9, 0) * 1000 or least <= 10 ** max(decimals - 3, 0):
            continue
        raised += 1
        try:
            answer(snapshot, QuoteRequest(token_in=token_in, token_out=token_out, amount_in=least // 1000), SETTINGS)
        except ApiError:
            failed += 1
    assert raised >= 3
    assert failed >= raised // 2
