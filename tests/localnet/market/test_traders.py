"""Traders keep the market moving and coherent, and never flood or stall the chain."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from millrace.chain import fees
from millrace.chain.call import TokenPayment, payments_of
from millrace.chain.keys import verify
from millrace.chain.network import profile
from millrace.chain.transaction import Transaction, signing_message
from millrace.dex.pool import Pool
from millrace.localnet.contracts import builtin
from millrace.localnet.contracts.execution import CallResult, ContractCall, State, execute_call
from millrace.localnet.contracts.ledger import Ledger
from millrace.localnet.market.dice import Dice
from millrace.localnet.market.founding import MILLION
from millrace.localnet.market.market import Market, generate, install
from millrace.localnet.market.prices import RANGE_PPM, Prices
from millrace.localnet.market.traders import MAX_IN_FLIGHT, PATIENCE, WALLETS, Traders

LOCAL = profile("documented", chain_id="local")


@cache
def market() -> Market:
    return generate(5, LOCAL, pools=200, tokens=40)


class Chain:
    """Just enough of a chain: nonces go up and calls are executed at once."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.state: State = install(market(), self.ledger, lambda pubkey: True)
        self.traders = Traders(market(), LOCAL)
        self.traders.fund(self.state)

    def execute(self, tx: Transaction) -> CallResult:
        call = payments_of(tx)
        assert tx.nonce == self.ledger.account(tx.sender).nonce
        self.ledger.set_nonce(tx.sender, tx.nonce + 1)
        builtin.send(self.ledger, tx.sender, call.payments)
        gas = tx.gas_limit - fees.move_gas(tx, LOCAL.gas) - builtin.gas(call.payments)
        result = execute_call(
            self.state,
            ContractCall(tx.sender, call.receiver, tx.value, call.payments, call.function, call.args, gas),
        )
        self.spare = (gas, result.gas_used)
        if not result.ok:
            builtin.receive(self.ledger, tx.sender, call.payments)
        return result


def test_the_same_seed_gives_the_same_transactions() -> None:
    """Two chains with the same seed see the same signed swaps, block by block."""
    one, other = Chain(), Chain()
    for _ in range(10):
        first, second = one.traders.next(one.state, 3), other.traders.next(other.state, 3)
        assert first == second
        for tx in first:
            assert one.execute(tx) == other.execute(tx)


def test_swaps_are_valid_succeed_and_cross_every_exchange() -> None:
    """Signed by wallets of the contracts' shard, with enough gas, on all sorts of pools, also through `xo`."""
    chain = Chain()
    home = LOCAL.shard_of(market().addresses.aggregator)
    receivers: Counter[str] = Counter()
    sorts = {pool.address: f"{pool.exchange} {pool.kind}" for pool in market().pools}
    for _ in range(300):
        for tx in chain.traders.next(chain.state, 3):
            assert LOCAL.shard_of(tx.sender) == home
            assert tx.chain_id == "local"
            assert verify(tx.sender, signing_message(tx), tx.signature)
            result = chain.execute(tx)
            assert result.ok, result.return_message
            receivers[sorts.get(tx.receiver, "xo")] += 1
    assert set(receivers) == {*sorts.values(), "xo"}
    assert receivers["xo"] > 100


@pytest.mark.parametrize("depth", [2, 6])
def test_a_swap_has_a_fifth_more_gas_than_it_takes(depth: int) -> None:
    """The limit follows from what the swap does, at any depth of the tries; it never fails for gas."""
    chain = Chain()
    chain.state.trie_depth = depth
    limits = set()
    for _ in range(60):
        for tx in chain.traders.next(chain.state, 3):
            assert chain.execute(tx).ok
            limit, used = chain.spare
            assert limit == used + used // 5
            limits.add(limit)
    assert len(limits) > 20


def worth(chain: Chain, pool: Pool) -> int:
    """Per cent of a small input's worth that the pool pays for its second token."""
    amount = pool.reserves[1] // 10_000
    value = chain.traders._prices.value
    return value(pool.tokens[0], pool.amount_out(1, 0, amount)) * 100 // value(pool.tokens[1], amount)


def test_prices_that_were_pushed_away_are_brought_back() -> None:
    """Someone sells a fifth of the reserves into popular pools; traders arbitrage all of them back."""
    chain = Chain()
    pushed = [
        pool
        for pool in market().pools
        if pool.id in chain.traders._pools and pool.kind == "constant_product" and pool.exchange == "Jex"
    ]
    assert len(pushed) >= 8
    whale = bytes([9]) * 32
    for pool in pushed:
        amount = pool.reserves[0] // 5
        payment = TokenPayment(pool.tokens[0], 0, amount)
        call = ContractCall(whale, pool.address, 0, (payment,), "swapTokensFixedInput", (b"\x01",), 10**8)
        assert execute_call(chain.state, call).ok
        assert worth(chain, chain.ledger.pool(pool.id)) > 135
    for _ in range(1500):
        for tx in chain.traders.next(chain.state, 3):
            chain.execute(tx)
    assert all(90 < worth(chain, chain.ledger.pool(pool.id)) < 108 for pool in pushed)


def test_paused_traders_send_nothing_and_resume() -> None:
    """The market stands still while traders are disabled."""
    chain = Chain()
    chain.traders.enabled = False
    assert chain.traders.next(chain.state, 5) == []
    chain.traders.enabled = True
    assert len(chain.traders.next(chain.state, 5)) == 5


def test_what_was_dropped_during_a_pause_leaves_no_gap() -> None:
    """After a pause the wallets go on from the chain's nonce, though their earlier transactions never ran."""
    chain = Chain()
    chain.traders.next(chain.state, 8)
    chain.traders.enabled = False
    chain.traders.next(chain.state, 8)
    chain.traders.enabled = True
    for tx in chain.traders.next(chain.state, 8):
        assert chain.execute(tx).ok


def test_a_chain_that_does_not_move_is_not_flooded_and_then_asked_again() -> None:
    """Each wallet has a few transactions in flight; after long waiting it starts over from the chain's nonce."""
    chain = Chain()
    sent = [tx for _ in range(20) for tx in chain.traders.next(chain.state, 10)]
    assert len(sent) == WALLETS * MAX_IN_FLIGHT
    assert chain.traders.next(chain.state, 10) == []
    for _ in range(PATIENCE):
        again = chain.traders.next(chain.state, 10)
        if again:
            break
    assert again
    assert {tx.nonce for tx in again} <= {0, 1, 2, 3}


def test_a_reverted_chain_is_followed_back() -> None:
    """When the chain returns to an earlier state the wallets continue from the nonces it has then."""
    chain = Chain()
    checkpoint = chain.ledger.checkpoint()
    for _ in range(5):
        for tx in chain.traders.next(chain.state, 8):
            chain.execute(tx)
    chain.ledger.rollback(checkpoint)
    for tx in chain.traders.next(chain.state, 8):
        assert chain.execute(tx).ok


@pytest.mark.parametrize(
    ("rate", "steps", "total"), [(4_000, 100, 240), (500, 100, 30), (0, 10, 0), (1_700, 1000, 1020)]
)
def test_the_rate_is_kept_to_the_swap(rate: int, steps: int, total: int) -> None:
    """Rounds of 600 ms get the swaps the rate allows, fractions carried over."""
    traders = Traders(market(), LOCAL, rate)
    assert sum(traders.due(600) for _ in range(steps)) == total


def test_believed_prices_walk_within_bounds_and_pegs_walk_together() -> None:
    """No price leaves its range, the dollar stands still, a pegged token follows its anchor."""
    prices, dice = Prices(market().tokens), Dice("walk")
    start = {token.identifier: prices.value(token.identifier, 10**30) for token in market().tokens}
    for _ in range(20_000):
        prices.walk(dice)
    now: dict[str, Any] = {name: prices.value(name, 10**30) * MILLION // value for name, value in start.items()}
    assert now["USDC-c76f1f"] == now["USDT-f8c08c"] == MILLION
    assert abs(now["SEGLD-3ad2d0"] - now["WEGLD-bd4d79"]) <= 1
    assert all(MILLION - RANGE_PPM - 1 <= ratio <= MILLION + RANGE_PPM for ratio in now.values())
    assert len(set(now.values())) > 10
