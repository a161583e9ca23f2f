"""What is quoted is what the contract pays: random quotes of every kind, executed on the local chain's contracts.

The local chain charges and counts by its own model of a node, with the gas limit that the quote names.
`MILLRACE_TEST_QUOTES` sets how many per kind (default 8; 480 makes ten thousand in all).
"""

from __future__ import annotations

import base64
import math
import os
import random
from collections import Counter
from collections.abc import Generator
from decimal import Decimal
from functools import cache
from typing import TypeVar

import pytest

from clients.on_chain import amount_of, run, scene
from millrace.aggregator.batch_answers import batch_quote
from millrace.aggregator.batch_requests import BatchItem, BatchRequest, make_order
from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.chain import call
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import ENDPOINT, Action, decode_arguments
from millrace.localnet.contracts.execution import CallResult
from millrace.localnet.contracts.meter import SHALLOW

QUOTES = int(os.environ.get("MILLRACE_TEST_QUOTES", "8"))
Answered = TypeVar("Answered")
SETTINGS = AggregatorSettings(referrals={"1": (10, 20)})  # what the local chain's contract has on file


@cache
def traded_lp_tokens() -> list[str]:
    """LP tokens that a pool trades."""
    made = scene().market
    return sorted({token for pool in made.pools for token in pool.tokens if token in made.lp_tokens})


def pair_of(kind: str, dice: random.Random) -> tuple[str, str]:
    """Input and output of a random question; half of the time about the most traded tokens."""
    made = scene().market
    names = [token.identifier for token in made.tokens]
    names = names[:10] if dice.random() < 0.5 else names
    first, second = dice.sample(names, 2)
    lp_token, other_lp_token = dice.sample(list(made.lp_tokens), 2)
    if kind in ("stable", "crypto"):
        pool = dice.choice([pool for pool in made.pools if pool.kind == kind])
        return dice.choice([tuple(dice.sample(pool.tokens, 2)), (pool.tokens[0], second), (first, pool.tokens[0])])  # type: ignore[return-value]
    return {
        "arbitrage": (first, first),
        "arbitrage over LP": (traded := dice.choice(traded_lp_tokens()), traded),
        "from LP": (lp_token, second),
        "to LP": (first, lp_token),
        "LP to LP": (lp_token, other_lp_token),
        "LP bought": (first, dice.choice(traded_lp_tokens())),
        "LP sold": (dice.choice(traded_lp_tokens()), second),
        "from EGLD": (NATIVE, second),
        "to EGLD": (first, NATIVE),
        "EGLD to LP": (NATIVE, lp_token),
        "LP to EGLD": (lp_token, NATIVE),
    }.get(kind, (first, second))


def question(kind: str, dice: random.Random) -> QuoteRequest:
    """A random question of a kind, with limits of every size."""
    token_in, token_out = pair_of(kind.removeprefix("reverse "), dice)
    if token_in == token_out and not kind.startswith("arbitrage"):
        return question(kind, dice)
    backward = kind.startswith("reverse")
    exchanges = ("AshSwap", "Jex") if kind == "two exchanges" else ()
    return QuoteRequest(
        token_in=token_in,
        token_out=token_out,
        amount_in=None if backward else amount_of(token_in, dice),
        amount_out=amount_of(token_out, dice) if backward else None,
        slippage=Decimal(0),
        algorithm=dice.choice(["greedy", "lagrangian", "hybrid"]),
        include_paths=dice.random() < 0.2,
        include_lp_routes=kind == "LP between" or ("LP" in kind and dice.random() < 0.5),
        max_hops=dice.choice([4, 10, 10]),
        max_splits=50 if kind == "wide" else dice.choice([1, 5, 20]),
        max_pools=dice.choice([10, 100, 100]),
        max_builtin_calls=100 if kind == "wide" else dice.choice([100, 100, 60, 30]),
        referral_id=dice.choice([0, 0, 0, 1]) if kind == "wide" else 0,
        only_exchanges=exchanges,
    )


def execute(quote: QuoteResponse) -> tuple[CallResult, int]:
    """Run the quote's transaction with its own gas limit; the result and what the trader gained of the output."""
    return run(quote.tx_data, quote.estimated_gas_limit, {quote.from_: int(quote.amount_in)}, quote.to)


def moves_liquidity(quote: QuoteResponse) -> bool:
    """Whether the quote's program deposits or withdraws."""
    parsed = call.parse(base64.b64decode(quote.tx_data))
    program = decode_arguments(parsed.args if parsed.function == ENDPOINT else parsed.args[3:])
    return any(Action(step.action).name.endswith(("_ADD", "_REMOVE")) for step in program.instructions)


KINDS = [
    "forward", "reverse", "arbitrage", "stable", "crypto", "two exchanges", "from EGLD", "to EGLD", "reverse to EGLD",
    "from LP", "to LP", "LP to LP", "LP to EGLD", "EGLD to LP", "LP between", "LP bought", "LP sold",
    "arbitrage over LP", "reverse from LP", "reverse to LP", "reverse stable", "wide",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_pays_what_was_quoted(kind: str) -> None:
    """Without slippage allowed, every quote executes within its estimates and pays exactly its amount."""
    dice = random.Random(f"quotes/{kind}")
    outcomes: Counter[str] = Counter()
    state = scene().state
    for _ in range(QUOTES):
        try:
            quote = answer(scene().snapshot, asked := question(kind, dice), SETTINGS)
        except ApiError:
            outcomes["none"] += 1
            continue
        checkpoint = state.ledger.checkpoint()
        result, gained = execute(quote)
        state.ledger.rollback(checkpoint)
        assert result.ok, f"{quote.from_} to {quote.to}: {result.return_message}"
        assert result.usage.builtin_calls <= quote.estimated_builtin_calls <= asked.max_builtin_calls
        assert gained == int(quote.amount_out) == int(quote.amount_out_min)
        outcomes["exact"] += 1
        outcomes["mints or redeems"] += moves_liquidity(quote)
    # Not every token is in a profitable cycle, and some amounts drain the pools.
    assert outcomes["exact"] >= QUOTES // 6, outcomes
    assert outcomes["mints or redeems"] or "LP" not in kind, outcomes


@pytest.mark.parametrize("kind", ["forward", "wide", "to LP", "from LP", "stable", "from EGLD", "to EGLD"])
def test_the_reserve_is_enough_for_deeper_tries(kind: str) -> None:
    """Where every first read costs a level more than on the node that the costs were measured on."""
    dice, state, executed = random.Random(f"deep/{kind}"), scene().state, 0
    state.trie_depth = SHALLOW + 1
    try:
        for _ in range(QUOTES):
            try:
                quote = answer(scene().snapshot, question(kind, dice), SETTINGS)
            except ApiError:
                continue
            checkpoint = state.ledger.checkpoint()
            result, _ = execute(quote)
            state.ledger.rollback(checkpoint)
            assert result.ok, f"{quote.from_} to {quote.to}: {result.return_message}"
            executed += 1
    finally:
        state.trie_depth = SHALLOW
    assert executed >= QUOTES // 4


def done(parts: Generator[None, None, Answered]) -> Answered:
    """What is left at the end of all parts."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            response: Answered = end.value
            return response


def many_inputs(dice: random.Random, count: int = 16) -> tuple[str, list[BatchItem]]:
    """An output, and inputs of every size."""
    made = scene().market
    names = [token.identifier for token in made.tokens] + list(made.lp_tokens)
    to = dice.choice([*names[:10], NATIVE])
    tokens = dice.sample([name for name in names if name != to], count)
    return to, [BatchItem(token=token, amount=str(amount_of(token, dice))) for token in tokens]


def test_batches_execute_within_their_estimates_and_pay_what_they_say() -> None:
    """Many inputs, alone or several in a transaction: sent one after the other, each pays exactly its amount."""
    dice, state, snapshot = random.Random("batches"), scene().state, scene().snapshot
    executed = shared = 0
    for _ in range(max(QUOTES // 8, 2)):
        to, inputs = many_inputs(dice)
        request = BatchRequest(inputs=inputs, to=to, slippage="0", max_builtin_calls=dice.choice([None, 40]))
        order = make_order(request, SETTINGS)
        checkpoint = state.ledger.checkpoint()
        for batch in done(batch_quote(snapshot, snapshot.main, order, SETTINGS, math.inf)).batches:
            sold = {given.token: int(given.amount) for given in batch.inputs}
            result, gained = run(batch.tx_data, batch.estimated_gas_limit, sold, to, batch=True)
            assert result.ok, f"{sold} to {to}: {result.return_message}"
            assert result.usage.builtin_calls <= batch.estimated_builtin_calls <= (request.max_builtin_calls or 98)
            assert gained == int(batch.amount_out) == int(batch.amount_out_min)
            executed, shared = executed + 1, shared + (len(sold) > 1)
        state.ledger.rollback(checkpoint)
    assert shared >= executed // 4 > 0
