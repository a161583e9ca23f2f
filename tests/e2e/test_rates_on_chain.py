"""Liquid staking and money markets: what is quoted over them is what the local chain's contracts pay."""

from __future__ import annotations

import base64
import math
import random
from collections.abc import Generator
from decimal import Decimal
from functools import cache
from typing import NamedTuple, TypeVar

import pytest

from millrace.aggregator.batch_answers import multi_swap
from millrace.aggregator.batch_requests import BatchItem, MultiSwapRequest, multi_swap_order
from millrace.aggregator.errors import ApiError
from millrace.aggregator.query import QuoteRequest
from millrace.aggregator.quote import answer
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot, build
from millrace.chain import call
from millrace.chain.fees import move_gas
from millrace.chain.network import profile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.dex import document
from millrace.dex.aggregator_contract import ENDPOINT, Action, decode_arguments
from millrace.dex.rate import RatePool
from millrace.localnet.contracts import builtin
from millrace.localnet.contracts.execution import CallResult, ContractCall, State, execute_call
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.market import market
from millrace.localnet.market.rates import SORTS

NETWORK = profile("documented", chain_id="local")
TRADER = b"\x07" * 32
SETTINGS = AggregatorSettings()
SEGLD, XEGLD, LXOXNO, HUSDC = "HSEGLD-5ca1e1", "XSEGLD-5ca1e2", "LSXOX-5ca1e3", "HLUSDC-5ca1e4"
T = TypeVar("T")


class Scene(NamedTuple):
    made: market.Market
    state: State
    snapshot: Snapshot


@cache
def scene() -> Scene:
    """A market with every sort of contract, and what the quote service sees of it."""
    made = market.generate(3, NETWORK, pools=60, tokens=25, rate_pools=True)
    state = market.install(made, Ledger(), lambda pubkey: True)
    shown = document.encode(market.document(made, state, document.Block(1, 1, 1)))
    return Scene(made, state, build(shown, 0.0))


def asked(token_in: str, token_out: str, amount: int, **changes: object) -> QuoteRequest:
    question = {"token_in": token_in, "token_out": token_out, "amount_in": amount, "slippage": Decimal(0)}
    return QuoteRequest(**{**question, **changes})  # type: ignore[arg-type]


def run(data: bytes, gas_limit: int, inputs: dict[str, int], token_out: str) -> tuple[CallResult, int]:
    """The result of a transaction, and what the trader gained; everything is as it was afterwards."""
    made, state, _ = scene()
    ledger, value = state.ledger, inputs.get(NATIVE, 0) if not data.startswith(b"Multi") else 0
    receiver = TRADER if data.startswith(b"Multi") else made.addresses.aggregator
    tx = Transaction(
        nonce=0,
        value=value,
        receiver=receiver,
        sender=TRADER,
        gas_price=10**9,
        gas_limit=gas_limit,
        chain_id="local",
        data=data,
    )
    checkpoint = ledger.checkpoint()
    for token, amount in inputs.items():
        ledger.credit(TRADER, token, amount)
    paid = call.payments_of(tx)
    builtin.send(ledger, TRADER, paid.payments)
    before = ledger.balance_of(TRADER, token_out)
    tokens = [payment for payment in paid.payments if payment.token != NATIVE]
    gas = gas_limit - move_gas(tx, NETWORK.gas) - builtin.gas(tokens)
    result = execute_call(
        state, ContractCall(TRADER, paid.receiver, value, paid.payments, paid.function, paid.args, gas)
    )
    gained = ledger.balance_of(TRADER, token_out) - before
    ledger.rollback(checkpoint)
    return result, gained


def actions(data: str) -> list[Action]:
    """The actions of a quote's program."""
    parsed = call.parse(base64.b64decode(data))
    program = decode_arguments(parsed.args if parsed.function == ENDPOINT else parsed.args[3:])
    return [Action(instruction.action) for instruction in program.instructions]


@pytest.mark.parametrize("number", range(len(SORTS)), ids=lambda number: " ".join(SORTS[number].venue))
@pytest.mark.parametrize("amount", [1_003, 10**9 + 7, 10**17 + 3, 10**21])
def test_each_contract_pays_what_was_quoted_at_its_rate(number: int, amount: int) -> None:
    """Alone it pays its rate, rounded down; what it takes of the transaction is within the estimate."""
    pool = [pool for pool in scene().made.pools if isinstance(pool, RatePool)][number]
    quote = answer(scene().snapshot, asked(*pool.tokens, amount, only_pools=(pool.id,)), SETTINGS)
    assert int(quote.amount_out) == amount * pool.rate[0] // pool.rate[1]
    result, gained = run(base64.b64decode(quote.tx_data), quote.estimated_gas_limit, {pool.tokens[0]: amount}, quote.to)
    assert result.ok, result.return_message
    assert gained == int(quote.amount_out)
    assert result.usage.builtin_calls <= quote.estimated_builtin_calls
    assert actions(quote.tx_data)[: 1 + pool.native] == [*([Action.UNWRAP] if pool.native else []), *_own(pool)]


def _own(pool: RatePool) -> list[Action]:
    """The contract's action of the facts: 20 to 24."""
    order = [("XOXNO", "stake"), ("LXOXNO", "stake"), ("Hatom", "stake"), ("Hatom", "redeem"), ("Hatom", "supply")]
    return [Action(20 + order.index((pool.exchange, pool.kind)))]


@pytest.mark.parametrize("seed", range(6))
def test_random_routes_over_them_are_exact(seed: int) -> None:
    """In and out of staked and lent tokens, from EGLD and tokens, forward and reverse, split and not."""
    dice = random.Random(seed)
    made = scene().made
    names = [NATIVE, *[token.identifier for token in made.tokens[:6]], SEGLD, XEGLD, LXOXNO, HUSDC]
    used = exact = 0
    for _ in range(50):
        token_in, token_out = dice.sample(names, 2)
        if {token_in, token_out} == {NATIVE, market.WRAPPED}:
            continue
        amount = 10 ** dice.randrange(6, 22)
        backward = dice.random() < 0.3
        changes = {"amount_in": None, "amount_out": amount // 1000} if backward else {}
        try:
            quote = answer(scene().snapshot, asked(token_in, token_out, amount, **changes), SETTINGS)
        except ApiError:
            continue
        data, inputs = base64.b64decode(quote.tx_data), {token_in: int(quote.amount_in)}
        result, gained = run(data, quote.estimated_gas_limit, inputs, token_out)
        assert result.ok, f"{token_in} to {token_out}: {result.return_message}"
        assert gained == int(quote.amount_out)
        exact += 1
        used += any(action >= Action.XOXNO_STAKE for action in actions(quote.tx_data))
    assert exact >= 8
    assert used >= 3


def test_staking_takes_what_the_pair_would_pay_less_for() -> None:
    """A large input is divided between the pair and the contract as well as any division into two does."""
    made, amount = scene().made, 10**21
    staking = next(pool for pool in made.pools if isinstance(pool, RatePool) and pool.tokens[1] == SEGLD)
    pair = next(pool for pool in made.pools if SEGLD in pool.tokens and not isinstance(pool, RatePool))
    i = pair.index(market.WRAPPED)

    def paid(part: int) -> int:
        return pair.amount_out(i, 1 - i, part) + staking.amount_out(0, 1, amount - part)

    best = max(paid(amount * part // 2000) for part in range(1, 2000))
    allowed = (pair.id, staking.id)
    quote = answer(scene().snapshot, asked(NATIVE, SEGLD, amount, only_pools=allowed, include_paths=True), SETTINGS)
    assert int(quote.amount_out) >= best
    assert len(quote.paths) == 2  # type: ignore[arg-type]


def finished(parts: Generator[None, None, T]) -> T:
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: T = end.value
            return found


def test_many_inputs_go_over_them() -> None:
    """A batch whose inputs are unwrapped and staked on the way pays what it says, and each input has its part."""
    made, _, snapshot = scene()
    inputs = {NATIVE: 10**21, made.tokens[1].identifier: 10**8, made.tokens[3].identifier: 10**15, XEGLD: 10**18}
    items = [BatchItem(token=token, amount=str(amount)) for token, amount in inputs.items()]
    request = MultiSwapRequest(inputs=items, to=SEGLD, sender=SETTINGS.contract, slippage="0")
    order = multi_swap_order(request, SETTINGS)
    body = finished(multi_swap(snapshot, snapshot.main, order, request.sender, SETTINGS, math.inf))
    assert not body.failed_tokens
    (batch,) = body.batches
    assert sum(int(route.amount_out) for route in batch.routes) == int(batch.amount_out)
    assert any(hop.dex == "Hatom" for route in batch.routes for path in route.paths for hop in path.swaps)
    result, gained = run(batch.tx_data.encode(), batch.transaction.gas_limit, inputs, SEGLD)  # type: ignore[union-attr]
    assert result.ok, result.return_message
    assert gained == int(batch.amount_out)


def test_more_than_there_is_goes_another_way_or_nowhere() -> None:
    """A contract that cannot pay an amount is no reason for a wrong answer."""
    pool = next(pool for pool in scene().made.pools if isinstance(pool, RatePool) and pool.kind == "redeem")
    amount = pool.reserves[1] * 50
    with pytest.raises(ApiError):
        answer(scene().snapshot, asked(*pool.tokens, amount, only_pools=(pool.id,)), SETTINGS)


def test_the_direct_call_pays_the_same() -> None:
    """The contract's own function pays its rate, and keeps nothing that it should not."""
    state = scene().state
    for pool in (pool for pool in scene().made.pools if isinstance(pool, RatePool)):
        token, amount = NATIVE if pool.native else pool.tokens[0], 10**12 + 1
        checkpoint = state.ledger.checkpoint()
        state.ledger.credit(TRADER, token, amount)
        value = amount if pool.native else 0
        data = b"tradeAtRate" if pool.native else call.esdt_transfer(token, amount, "tradeAtRate")
        tx = Transaction(
            nonce=0,
            value=value,
            receiver=pool.address,
            sender=TRADER,
            gas_price=10**9,
            gas_limit=10**8,
            chain_id="local",
            data=data,
        )
        paid = call.payments_of(tx)
        builtin.send(state.ledger, TRADER, paid.payments)
        result = execute_call(
            state, ContractCall(TRADER, pool.address, value, paid.payments, paid.function, paid.args, 10**8)
        )
        gained = state.ledger.balance_of(TRADER, pool.tokens[1])
        state.ledger.rollback(checkpoint)
        assert result.ok, result.return_message
        assert gained == amount * pool.rate[0] // pool.rate[1]
