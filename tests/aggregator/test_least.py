"""The least input that a pair's record names is one that a quote executes."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from functools import cache

import msgspec
import pytest

from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer, pair_config
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.dex.constant_product import XExchangePool
from millrace.dex.document import PoolDocument, TokenInfo, encode
from synthetic import WRAPPED, make_market

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
        pair = pair_config(snapshot, token_in, token_out, SETTINGS.max_hops)
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
        pair = pair_config(snapshot, token_in, token_out, SETTINGS.max_hops)
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


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", MARKETS)
def test_what_is_supported_is_what_a_quote_answers(kind: str, most: int) -> None:
    """Where an operator allows few pools on a path, a pair is supported if its quote is answered, and only then.

    So it is with LP tokens, too, where prices are on; but for those of two pools of the same tokens, which may be in
    one proportion, so that there is nothing to swap.
    """
    made, snapshot = market(kind)
    settings = AggregatorSettings(max_hops=most)
    dice = random.Random(f"{kind}/{most}")
    issuers = {pool.lp_token: {*pool.tokens} for pool in made.pools if pool.lp_token}
    names = ["EGLD", *(info.identifier for info in made.tokens if kind == "fair" or not info.is_lp)]
    outcomes: Counter[bool] = Counter()
    for turn in range(250):
        pool = dice.choice(made.pools)
        near = [*pool.tokens, pool.lp_token] if kind == "fair" and pool.lp_token else pool.tokens
        token_in, token_out = dice.sample(near if turn % 3 == 0 else names, 2)
        if issuers.get(token_in, {token_in}) == issuers.get(token_out, {token_out}):
            continue
        pair = pair_config(snapshot, token_in, token_out, most)
        question = QuoteRequest(token_in=token_in, token_out=token_out, max_hops=most)
        least = int(pair.min_amount_in) if pair.supported else 0  # type: ignore[arg-type]
        answers = 0
        for amount in [least] if least else [10**k for k in range(3, 25, 3)]:
            with contextlib.suppress(ApiError):
                answer(snapshot, msgspec.structs.replace(question, amount_in=amount), settings)
                answers += 1
        assert (answers > 0) is pair.supported, (token_in, token_out, pair)
        outcomes[pair.supported] += 1
    assert outcomes[True] >= 10 and (outcomes[False] >= 10 or most > 2), outcomes


@pytest.mark.parametrize(("tokens", "supported"), [(11, True), (12, False), (14, False)])
def test_a_pair_beyond_the_longest_path_is_not_supported(tokens: int, supported: bool) -> None:
    """Ten pools on a path are the most that a quote asks by default: the ends of a longer line are no pair."""
    names = [WRAPPED, *(f"TOKEN-{number:06x}" for number in range(1, tokens))]
    line = tuple(
        XExchangePool(
            id=f"x{number}",
            address=bytes(31) + bytes([number]),
            tokens=pair,
            reserves=(10**24, 10**24),
            total_fee=300,
            special_fee=50,
        )
        for number, pair in enumerate(itertools.pairwise(names), 1)
    )
    infos = tuple(TokenInfo(name, 18) for name in names)
    made = msgspec.structs.replace(market("fair")[0], tokens=infos, pools=line, main_pair_tokens=None)
    snapshot = build(encode(made), 0.0)
    pair = pair_config(snapshot, names[0], names[-1], SETTINGS.max_hops)
    question = QuoteRequest(token_in=names[0], token_out=names[-1], amount_in=10**18)
    if supported:
        assert pair.supported and int(answer(snapshot, question, SETTINGS).amount_out) > 0
    else:
        assert not pair.supported and pair.error == "no path between tokens"
        with pytest.raises(ApiError, match="routing failed: no path between tokens"):
            answer(snapshot, question, SETTINGS)
