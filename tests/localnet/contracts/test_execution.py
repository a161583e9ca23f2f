"""What holds for every contract call: all or nothing, nothing lost, gas, failures in words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain import abi
from millrace.chain.call import TokenPayment
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import CONTRACT
from millrace.dex.pool import Pool
from millrace.localnet.contracts.execution import (
    EXECUTION_FAILED,
    FUNCTION_NOT_FOUND,
    OUT_OF_GAS,
    ContractCall,
    QueryError,
    execute_call,
    query,
)
from millrace.localnet.contracts.frame import Contract, Frame, State
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.market.market import WRAPPED

World = Any


def random_call(world: Any, dice: random.Random) -> tuple[Any, ...]:
    """One call, sensible or not, to a random pool."""
    pool: Pool = dice.choice(list(world.ledger.pools.values()))
    i, j = dice.sample(range(len(pool.tokens)), 2)
    token_in, token_out = pool.tokens[i], pool.tokens[j]
    amount = max(pool.reserves[i] // dice.choice([3, 100, 10_000, 10**9]), 1)
    out = max(pool.reserves[j] // dice.choice([10, 1000, 10**5]), 1)
    minimum = dice.choice([0, 1, 2, 10**40])
    name, lp = abi.top_uint, world.held(pool.lp_token) // dice.choice([2, 50, 10**6])
    every = [(token, max(reserve // 100, 1)) for token, reserve in zip(pool.tokens, pool.reserves, strict=True)]
    to, of = token_out.encode(), token_in.encode()
    sell, deposit, redeem = [(token_in, amount)], every, [(pool.lp_token, lp)]
    zeros = [name(0)] * len(pool.tokens)
    calls = {
        ("XExchange", "constant_product"): [
            ("swapTokensFixedInput", [to, name(minimum)], sell),
            ("swapTokensFixedOutput", [to, name(out)], sell),
            ("addLiquidity", zeros, deposit),
            ("removeLiquidity", zeros, redeem),
        ],
        ("OneDex", "constant_product"): [
            ("swapMultiTokensFixedInput", [name(minimum), b"\x01" if token_out == WRAPPED else b"", of, to], sell),
            ("swapMultiTokensFixedOutput", [name(out), b"", of, to], sell),
            ("addLiquidity", [b"\x01"] * 2, deposit),
            ("removeLiquidity", [*zeros, b"\x01"], redeem),
        ],
        ("Jex", "constant_product"): [
            ("swapTokensFixedInput", [name(minimum)], sell),
            ("swapTokensFixedOutput", [name(out)], sell),
            ("addLiquidity", [b""], deposit),
            ("addLiquiditySingle", zeros, sell),
            ("removeLiquidity", zeros, redeem),
            ("removeLiquiditySingle", [to, *zeros], redeem),
        ],
        ("Jex", "stable"): [
            ("swap", [to, name(minimum)], sell),
            ("addLiquidity", [b""], deposit),
            ("addLiquidity", [b""], sell),
            ("removeLiquidity", zeros, redeem),
            ("removeLiquidityOneToken", [to, b""], redeem),
        ],
        ("AshSwap", "stable"): [
            ("exchange", [to, name(minimum)], sell),
            ("addLiquidity", [b""], deposit),
            ("removeLiquidity", zeros, redeem),
            ("removeLiquidityOneCoin", [to, b""], redeem),
        ],
        ("AshSwap", "crypto"): [
            ("exchange", [name(minimum)], sell),
            ("addLiquidity", [b""], deposit),
            ("addLiquidity", [b"", world.alice], sell),
            ("removeLiquidity", [abi.nested_biguint(0) * 2], redeem),
            ("removeLiquidityOneCoin", [name(j), b""], redeem),
        ],
    }
    function, args, pay = dice.choice(calls[pool.exchange, pool.kind])
    if not all(amount for _, amount in pay):
        pay = [(token_in, 1)]
    return pool, function, args, pay


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_calls_lose_and_make_nothing_and_failures_change_nothing(
    seed: int, new_world: Callable[[], World]
) -> None:
    """Only LP units and wrapped EGLD are made or destroyed, with their counterparts, and slices of fees burned."""
    world, dice = new_world(), random.Random(seed)
    start, backing = world.totals(), world.held(NATIVE, world.at.wrapper)
    lp_tokens = set(world.market.lp_tokens)
    burned: Counter[str] = Counter()
    succeeded = 0
    for _ in range(25):
        pool, function, args, pay = random_call(world, dice)
        before = world.picture()
        result = world.call(pool.address, function, *args, pay=pay)
        assert result.return_code in ("ok", EXECUTION_FAILED), result.return_message
        assert result.return_message != "contract fault"
        if result.ok:
            succeeded += 1
            burned += world.burned(result.events)
        else:
            assert world.picture() == before
    now = world.totals()
    minted = now[WRAPPED] + burned[WRAPPED] - start[WRAPPED]
    assert minted == world.held(NATIVE, world.at.wrapper) - backing
    for token in {*start, *now} - lp_tokens - {WRAPPED}:
        assert now[token] + burned[token] == start[token], token
    world.check_solvent()
    assert succeeded > 0


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_events_tell_every_movement(seed: int, new_world: Callable[[], World]) -> None:
    """Whoever follows the events of a call knows every account's new balances."""
    world, dice = new_world(), random.Random(seed)
    for _ in range(25):
        pool, function, args, pay = random_call(world, dice)
        before = world.balances()
        result = world.call(pool.address, function, *args, pay=pay)
        if result.ok:
            assert world.changes(before) == world.movements(pool.address, pay, result.events)


def test_a_revert_burns_all_gas_and_logs_signal_error_with_the_text(world: Any) -> None:
    """A failed call has one event: caller and message in the topics, the code in the data."""
    pool = world.pools("XExchange")[0]
    huge = abi.top_uint(10**40)
    result = world.call(
        pool.address, "swapTokensFixedInput", pool.tokens[1].encode(), huge, pay=[(pool.tokens[0], 10**6)], gas=10**8
    )
    assert not result.ok
    assert result.gas_used == 10**8
    assert result.usage.reads > 0
    (event,) = result.events
    assert event.address == pool.address
    assert event.identifier == "signalError"
    assert event.topics == (world.alice, result.return_message.encode())
    assert result.return_message.endswith(f"need {10**40}")
    assert event.data == b"@657865637574696f6e206661696c6564"
    assert result.transfers == ()


@pytest.mark.parametrize(("spare", "ok"), [(0, True), (-1, False)])
def test_a_call_needs_exactly_its_gas(world: Any, spare: int, ok: bool) -> None:
    """One unit less than the price of a call fails with `insufficient funds` in the reason."""
    pool = world.pools("XExchange")[0]
    call = (pool.address, "swapTokensFixedInput", pool.tokens[1].encode(), b"\x01")
    checkpoint = world.ledger.checkpoint()
    needed = world.call(*call, pay=[(pool.tokens[0], 10**9)]).gas_used
    world.ledger.rollback(checkpoint)
    result = world.call(*call, pay=[(pool.tokens[0], 10**9)], gas=needed + spare)
    assert result.ok is ok
    assert result.gas_used == needed + spare
    if not ok:
        assert result.return_code == OUT_OF_GAS
        assert "not enough gas" in result.return_message
        assert "insufficient funds" in result.return_message


def test_unknown_functions_and_contracts_fail_without_effect(world: Any) -> None:
    """A call to nothing is a failed call."""
    before = world.picture()
    result = world.call(CONTRACT, "upgradeContract", pay=[(WRAPPED, 5)])
    assert (result.ok, result.return_code) == (False, FUNCTION_NOT_FOUND)
    assert not world.call(world.bob, "xo", pay=[(WRAPPED, 5)]).ok
    assert world.picture() == before


def test_a_fault_inside_a_contract_fails_that_call_alone() -> None:
    """Whatever a contract raises, the chain gets a result and an unchanged state."""

    class Broken(Contract):
        def __init__(self) -> None:
            super().__init__(bytes(32))
            self.endpoints = {"run": self._run}

        def _run(self, frame: Frame) -> None:
            frame.ledger.credit(bytes(32), NATIVE, 5)
            raise ZeroDivisionError

    state = State(Ledger(), {bytes(32): Broken()}, lambda pubkey: True)
    result = execute_call(state, ContractCall(b"a" * 32, bytes(32), 0, (), "run", (), 10))
    assert (result.ok, result.return_message) == (False, "contract fault")
    assert state.ledger.accounts == {}


@settings(max_examples=60, deadline=None)
@given(
    args=st.lists(st.binary(max_size=40), max_size=6),
    function=st.sampled_from(["swapTokensFixedInput", "addLiquidity", "removeLiquidity", "exchange", "swap", "xo"]),
    paid=st.integers(1, 10**20),
    number=st.integers(0, 199),
)
def test_random_arguments_never_do_harm(
    new_world: Callable[[], World], args: list[bytes], function: str, paid: int, number: int
) -> None:
    """Any bytes as arguments give a result; a failure changes nothing."""
    world = new_world()
    pool = list(world.ledger.pools.values())[number]
    for receiver in (pool.address, CONTRACT):
        before = world.picture()
        result = world.call(receiver, function, *args, pay=[(pool.tokens[0], paid)])
        assert result.return_message != "contract fault"
        assert result.ok or world.picture() == before


@pytest.mark.parametrize(
    ("value", "payments", "expected"),
    [
        (5, (), 5),
        (5, (TokenPayment(NATIVE, 0, 5),), 5),
        (0, (TokenPayment("EGLD-000000", 0, 7),), 7),
    ],
)
def test_egld_counts_once_however_it_is_named(world: Any, value, payments, expected) -> None:
    """The transaction's value and an EGLD payment are the same money."""
    call = ContractCall(world.alice, world.at.wrapper, value, payments, "wrapEgld", (), 10**7)
    before = world.held(WRAPPED)
    assert execute_call(world.state, call).ok
    assert world.held(WRAPPED) == before + expected


@pytest.mark.parametrize("payment", [TokenPayment(WRAPPED, 1, 5), TokenPayment(WRAPPED, 0, 0)])
def test_strange_payments_are_refused(world: Any, payment: TokenPayment) -> None:
    """Contracts take positive amounts of fungible tokens."""
    call = ContractCall(world.alice, world.at.wrapper, 0, (payment,), "unwrapEgld", (), 10**7)
    assert not execute_call(world.state, call).ok


def test_a_receiver_in_another_shard_is_left_to_the_chain(world: Any) -> None:
    """What is paid across shards leaves the contract and comes back as an undelivered transfer."""
    from_afar = bytes([9]) * 32
    world.state.is_local = lambda pubkey: pubkey != from_afar
    pool = world.pools("XExchange")[0]
    payment = TokenPayment(pool.tokens[0], 0, 10**6)
    start = world.totals()
    result = execute_call(
        world.state,
        ContractCall(
            from_afar, pool.address, 0, (payment,), "swapTokensFixedInput", (pool.tokens[1].encode(), b"\x01"), 10**8
        ),
    )
    assert result.ok
    (transfer,) = result.transfers
    assert (transfer.receiver, transfer.token, transfer.delivered) == (from_afar, pool.tokens[1], False)
    assert world.held(pool.tokens[1], from_afar) == 0
    now = world.totals()
    assert start[pool.tokens[1]] - now[pool.tokens[1]] == transfer.amount


def test_views_answer_and_refuse_in_words(world: Any) -> None:
    """A view gives what the pool gives; anything else is a `QueryError`."""
    pool = world.pools("XExchange")[0]
    answer = query(world.state, pool.address, "getReservesAndTotalSupply")
    assert [abi.decode_uint(item) for item in answer] == [*pool.reserves, pool.lp_supply]
    amount = pool.reserves[0] // 100
    (out,) = query(world.state, pool.address, "getAmountOut", [pool.tokens[0].encode(), abi.top_uint(amount)])
    assert abi.decode_uint(out) == pool.amount_out(0, 1, amount)
    for contract, function, args in (
        (world.bob, "getAmountOut", []),
        (pool.address, "nothing", []),
        (pool.address, "getAmountOut", [b"X"]),
        (pool.address, "getReservesAndTotalSupply", [b"X"]),
    ):
        with pytest.raises(QueryError):
            query(world.state, contract, function, args)
