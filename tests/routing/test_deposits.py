"""Deposits name no more tokens than an instruction of the contract can, and no pair of which it has a wrong idea."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from millrace.chain.call import TokenPayment
from millrace.dex.aggregator_contract import MOST_DEPOSITED
from millrace.dex.constant_product import JexPool, OneDexPool
from millrace.dex.market import DictMarket
from millrace.dex.pool import Pool
from millrace.dex.stable import AshStablePool, JexStablePool
from millrace.dex.stableswap import UNIT, liquidity_fee
from millrace.dex.vault import execute
from millrace.routing.plan import Ends, Execution, LpLeg, PlanError, make_program
from millrace.routing.planner import Planner
from millrace.routing.router import Limits
from millrace.routing.walk import Walker
from synthetic import WRAPPED

LP = "LPMANY-000001"


def coins(count: int) -> tuple[str, ...]:
    return tuple(f"COIN{k}-00000{k}" for k in range(count))


def stable(count: int, exchange: str, held: tuple[int, ...]) -> Pool:
    common: dict[str, Any] = {
        "id": "many", "address": bytes(31) + b"\x01", "tokens": coins(count), "lp_token": LP,
        "reserves": tuple(part * 10_000 * UNIT for part in held), "lp_supply": sum(held) * 10_000 * UNIT, "amp": 256,
        "decimals": (18,) * count, "prices": (UNIT,) * count,
    }  # fmt: skip
    if exchange == "Jex":
        return JexStablePool(**common, swap_fee=500, liquidity_fee=liquidity_fee(500, count))
    return AshStablePool(**common, swap_fee=50, admin_fee=50_000)


def market(count: int, exchange: str = "AshSwap", held: tuple[int, ...] = ()) -> list[Pool]:
    """A stable pool of so many coins, and a pair of each with WEGLD."""
    pairs: list[Pool] = [
        JexPool(
            id=f"j:{k}", address=bytes(30) + bytes((2, k)), tokens=(WRAPPED, coin),
            reserves=(5_000 * UNIT, 5_000 * UNIT), lp_fee=20, platform_fee=10,
        )
        for k, coin in enumerate(coins(count))
    ]  # fmt: skip
    return [stable(count, exchange, held or (1,) * count), *pairs]


def executed(done: Execution, source: str, book: DictMarket) -> tuple[int, dict[str, int]]:
    """What the contract pays for the plan's program, and what it keeps."""
    program = make_program(done.legs, Ends(source, LP), WRAPPED, done.amount_out, 0)
    result = execute(program, [TokenPayment(source, 0, done.amount_in)], book)
    return result.amount_out, result.kept


@pytest.mark.parametrize("exchange", ["AshSwap", "Jex"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("amount", [10**6, UNIT, 3_000 * UNIT])
def test_a_deposit_pays_what_was_quoted_however_many_coins_a_pool_has(exchange: str, count: int, amount: int) -> None:
    """At most three tokens are given, and nothing is lost: the contract pays the promise and keeps nothing."""
    pools = market(count, exchange)
    book = DictMarket(pools, WRAPPED)
    done = Planner(pools, book).forward(WRAPPED, LP, amount, Limits(), "hybrid").execution
    last = done.legs[-1]
    assert isinstance(last, LpLeg) and last.given is not None
    assert len(last.given) <= MOST_DEPOSITED
    assert executed(done, WRAPPED, book) == (done.amount_out, {})
    if amount == UNIT:
        assert len(last.given) == min(count, MOST_DEPOSITED)  # of a little the pool's fee decides


def test_the_tokens_that_are_lacking_are_given() -> None:
    """Of a pool out of balance those tokens are bought of which it has least: no other three mint more."""
    held = (9, 1, 8, 1, 7, 1)
    pools = market(6, held=held)
    book = DictMarket(pools, WRAPPED)
    planner = Planner(pools, book)
    done = planner.forward(WRAPPED, LP, 3 * UNIT, Limits(), "hybrid").execution
    last = done.legs[-1]
    assert isinstance(last, LpLeg) and last.given == tuple(coins(6)[k] for k in (1, 3, 5))
    best = 0
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(6), size):
            bought = [pools[1 + k].amount_out(0, 1, 3 * UNIT // size) if k in chosen else 0 for k in range(6)]
            best = max(best, pools[0].mint(tuple(bought)).lp)
    assert done.amount_out >= best * 0.9999
    assert executed(done, WRAPPED, book) == (done.amount_out, {})


def test_units_of_one_pool_become_units_of_another_of_the_same_coins() -> None:
    """All coins of a withdrawal are spent, although the deposit after it takes only some of them."""
    pools = market(5)
    first = msgspec.structs.replace(pools[0], id="first", address=bytes(31) + b"\x09", lp_token="LPFIRST-000001")
    pools.append(first)
    book = DictMarket(pools, WRAPPED)
    done = Planner(pools, book).forward(first.lp_token, LP, 500 * UNIT, Limits(), "hybrid").execution
    assert executed(done, first.lp_token, book) == (done.amount_out, {})


def test_a_step_of_more_tokens_is_no_plan() -> None:
    """Whoever makes legs cannot make one that the contract's call has no place for."""
    pool = market(4)[0]
    walker = Walker(coins(4)[0], UNIT)
    walker.balances |= dict.fromkeys(coins(4), UNIT)
    with pytest.raises(PlanError, match="more tokens"):
        walker.deposit(pool, coins(4))


FEES = {(40, 10, 10): True, (60, 15, 15): True, (100, 50, 0): True, (50, 25, 0): False, (100, 30, 25): False,
        (30, 1, 9): False, (0, 0, 0): False}  # fmt: skip


@pytest.mark.parametrize("fees", FEES)
def test_a_onedex_pair_is_minted_only_with_a_fee_that_a_deposit_knows(fees: tuple[int, int, int]) -> None:
    """40, 60 or 100 of 10 000, of which half leaves the pool; with any other it is swapped with and redeemed."""
    total, special, staking = fees
    tokens = (WRAPPED, "ONE-000001")
    pair = OneDexPool(
        id="o", address=bytes(31) + b"\x01", tokens=tokens, reserves=(10**24, 10**24), lp_token=LP, lp_supply=10**24,
        pair_id=7, total_fee=total, special_fee=special, staking_fee=staking, main=(True, False),
    )  # fmt: skip
    planner = Planner([pair], DictMarket([pair], WRAPPED))
    assert planner.mints(LP) is FEES[fees]
    assert planner.supports(WRAPPED, LP) is FEES[fees]
    assert planner.supports(LP, WRAPPED) and planner.supports(*tokens)
