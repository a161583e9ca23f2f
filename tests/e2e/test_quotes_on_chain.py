"""What is quoted is what the contract pays: random quotes of every kind, executed on the local chain's contracts.

`MILLRACE_TEST_QUOTES` sets how many per kind (default 25).
"""

from __future__ import annotations

import base64
import os
import random
from collections import Counter
from decimal import Decimal
from functools import cache
from typing import NamedTuple

import pytest

from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.responses import QuoteResponse
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.chain import call
from millrace.chain.fees import move_gas
from millrace.chain.network import profile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.dex import document
from millrace.localnet import builtin, market
from millrace.localnet.execution import CallResult, ContractCall, State, execute_call
from millrace.localnet.ledger import Ledger

QUOTES = int(os.environ.get("MILLRACE_TEST_QUOTES", "25"))
NETWORK = profile("documented", chain_id="local")
TRADER = b"\x07" * 32


class Scene(NamedTuple):
    market: market.Market
    state: State
    snapshot: Snapshot


@cache
def scene() -> Scene:
    """A market with arbitrage left in it, and what the quote service sees of it."""
    made = market.generate(11, NETWORK, pools=400, tokens=120, mispricing_ppm=10_000)
    state = market.install(made, Ledger(), lambda pubkey: True)
    shown = document.encode(market.document(made, state, document.Block(1, 1, 1)))
    return Scene(made, state, build(shown, 0.0))


def amount_of(token: str, dice: random.Random) -> int:
    """An amount between a millionth and a tenth of what the deepest pool holds."""
    made, state, _ = scene()
    if token in made.lp_tokens:
        deepest = state.ledger.pool(made.lp_tokens[token]).lp_supply
    else:
        name = market.WRAPPED if token == NATIVE else token
        deepest = max(pool.reserves[pool.index(name)] for pool in made.pools if name in pool.tokens)
    return max(deepest // 10 ** dice.randrange(1, 7), 1)


def question(kind: str, dice: random.Random) -> QuoteRequest:
    """A random question; half of the time about the most traded tokens."""
    made = scene().market
    names = [token.identifier for token in made.tokens]
    names = names[:10] if dice.random() < 0.5 else names
    first, second = dice.sample(names, 2)
    lp_token = dice.choice(list(made.lp_tokens))
    token_in, token_out = {
        "forward": (first, second),
        "reverse": (first, second),
        "arbitrage": (first, first),
        "from LP": (lp_token, second),
        "to LP": (first, lp_token),
        "from EGLD": (NATIVE, second),
        "to EGLD": (first, NATIVE),
        "LP on the way": (first, second),
    }[kind]
    amount_in, amount_out = amount_of(token_in, dice), None
    if kind == "reverse":
        amount_in, amount_out = None, amount_of(token_out, dice)
    return QuoteRequest(
        token_in=token_in,
        token_out=token_out,
        amount_in=amount_in,
        amount_out=amount_out,
        slippage=Decimal(0),
        algorithm=dice.choice(["greedy", "lagrangian", "hybrid"]),
        include_lp_routes=kind == "LP on the way",
    )


def execute(quote: QuoteResponse) -> tuple[CallResult, int]:
    """Run the quote's transaction with its own gas limit; the result and what the trader gained of the output."""
    made, state, _ = scene()
    ledger, amount = state.ledger, int(quote.amount_in)
    value = amount if quote.from_ == NATIVE else 0
    tx = Transaction(
        nonce=0,
        value=value,
        receiver=made.addresses.aggregator,
        sender=TRADER,
        gas_price=10**9,
        gas_limit=quote.estimated_gas_limit,
        chain_id="local",
        data=base64.b64decode(quote.tx_data),
    )
    ledger.credit(TRADER, quote.from_, amount)
    paid = call.payments_of(tx)
    builtin.send(ledger, TRADER, paid.payments)
    before = ledger.balance_of(TRADER, quote.to)
    tokens = [payment for payment in paid.payments if payment.token != NATIVE]
    gas = tx.gas_limit - move_gas(tx, NETWORK.gas) - builtin.gas(tokens)
    called = ContractCall(TRADER, paid.receiver, value, paid.payments, paid.function, paid.args, gas)
    result = execute_call(state, called)
    return result, ledger.balance_of(TRADER, quote.to) - before


KINDS = ["forward", "reverse", "arbitrage", "from LP", "to LP", "from EGLD", "to EGLD", "LP on the way"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_pays_what_was_quoted(kind: str) -> None:
    """Without slippage allowed, every quote executes within its gas estimate and pays exactly its amount."""
    dice = random.Random(f"quotes/{kind}")
    outcomes: Counter[str] = Counter()
    state = scene().state
    for _ in range(QUOTES):
        try:
            quote = answer(scene().snapshot, question(kind, dice), AggregatorSettings())
        except ApiError:
            outcomes["none"] += 1
            continue
        checkpoint = state.ledger.checkpoint()
        result, gained = execute(quote)
        state.ledger.rollback(checkpoint)
        assert result.ok, f"{quote.from_} to {quote.to}: {result.return_message}"
        assert gained == int(quote.amount_out) == int(quote.amount_out_min)
        outcomes["exact"] += 1
    # Not every token is in a profitable cycle, and some amounts drain the pools.
    assert outcomes["exact"] >= QUOTES // 3, outcomes
