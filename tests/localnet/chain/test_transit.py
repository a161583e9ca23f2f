"""What is between two shards, dropped or taken back is never lost, and never comes twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millrace.chain import fees
from millrace.chain.address import ZERO
from millrace.chain.call import TokenPayment, esdt_transfer, multi_transfer
from millrace.chain.token import NATIVE
from millrace.dex.aggregator_contract import ALL, EGLD_INDEX, Action, Program, encode_arguments, swap, tx_data
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.shard import KEPT_FINAL
from millrace.localnet.contracts.calls import ContractCall
from millrace.localnet.contracts.execution import execute_call
from millrace.localnet.contracts.frame import Contract, Frame
from millrace.localnet.edges.views import gateway_transaction_view, transaction_view
from millrace.localnet.market.market import WRAPPED

EGLD = 10**18


@pytest.mark.parametrize("late", [70, 1000])
def test_value_in_transit_outlives_late_finality(make_bench: Any, wallet: Any, late: int) -> None:
    """However long finality takes, and however long the metachain is held, what is on its way arrives once."""
    bench = make_bench()
    sender, receiver = wallet(0), wallet(1)
    bench.give(sender)
    bench.chain.finality_rounds = late
    tx_hash = bench.chain.submit(bench.tx(sender, receiver.public, 10**17))
    bench.rounds(120)
    assert bench.status(tx_hash)[0] == "pending" or late < 120
    bench.chain.finality_rounds = 0
    bench.rounds(15, held=frozenset({0xFFFFFFFF}))
    bench.rounds(15)
    assert bench.status(tx_hash) == ("success", "")
    assert bench.balance(receiver) == 10**17


class Both(Contract):
    """A contract that passes on what comes with a call, half to each of two accounts."""

    def __init__(self, address: bytes, receivers: tuple[bytes, bytes]) -> None:
        super().__init__(address)
        self.receivers = receivers
        self.endpoints = {"both": self._both}

    def _both(self, frame: Frame) -> None:
        for receiver in self.receivers:
            frame.pay(self.address, receiver, (NATIVE, frame.one_payment().amount // 2))


def test_a_call_is_over_when_the_last_of_its_results_has_arrived(make_bench: Any, wallet: Any) -> None:
    """While a shard holds up one of several results the call is pending, and is so again when a fork takes one back."""
    bench = make_bench(finality_rounds=3)
    home = bench.chain.home
    first, second = ((home + 1) % 3, (home + 2) % 3)
    contract = bytes(8) + b"a contract of two sums" + bytes(1) + bytes([bench.chain.market.addresses.aggregator[-1]])
    accounts = wallet(first, 5).public, wallet(second, 5).public
    bench.chain.shards[home].state.contracts[contract] = Both(contract, accounts)
    bench.give(wallet(home))
    bench.chain.shards[second].stopped = True
    tx_hash = bench.chain.submit(bench.tx(wallet(home), contract, 10, b"both", gas_limit=10_000_000))
    bench.rounds(6 * bench.hop)
    assert (bench.chain.account(accounts[0]).balance, bench.status(tx_hash)) == (5, ("pending", ""))
    view = transaction_view(bench.chain, bench.chain.index.find(tx_hash))
    assert (view["status"], view["inTransit"], view["pendingResults"]) == ("pending", True, True)
    bench.chain.shards[second].stopped = False
    while not bench.chain.account(accounts[1]).balance:
        bench.rounds(1)
    bench.chain.take_back(second, 1)
    bench.rounds(3 + 3 * bench.hop)
    assert bench.status(tx_hash) == ("success", "")
    assert bench.chain.account(accounts[1]).balance == 5
    view = transaction_view(bench.chain, bench.chain.index.find(tx_hash))
    assert (view["status"], view["inTransit"], "pendingResults" in view) == ("success", False, False)


def test_what_goes_to_the_zero_address_runs_at_its_sender(bench: Any, wallet: Any) -> None:
    """A transaction to the zero address is executed in its sender's shard, in one block."""
    sender = wallet(1)
    bench.give(sender)
    tx_hash = bench.chain.submit(bench.tx(sender, ZERO, 5))
    bench.rounds(bench.here)
    record = bench.chain.index.find(tx_hash)
    assert record.outcome
    assert record.source is record.destination
    assert record.source.shard == 1


def test_a_multi_transfer_to_somebody_else_fails(bench: Any, wallet: Any) -> None:
    """A multi-transfer that is not sent to oneself costs its fee and moves nothing."""
    sender, other = wallet(0), wallet(0, 1)
    bench.give(sender)
    bench.give(sender, "USDC-c76f1f", 100)
    data = multi_transfer(other.public, [TokenPayment("USDC-c76f1f", 0, 7)])
    tx_hash = bench.chain.submit(bench.tx(sender, other.public, data=data, gas_limit=1_000_000))
    bench.rounds(2)
    status, reason = bench.status(tx_hash)
    assert status == "fail"
    assert "goes to the sender itself" in reason
    assert bench.balance(sender, "USDC-c76f1f") == 100
    assert bench.balance(other, "USDC-c76f1f") == 0


@pytest.mark.parametrize("shard", [0, 1])
def test_a_value_beside_tokens_moves_neither(bench: Any, wallet: Any, shard: int) -> None:
    """As nodes have it: their function for tokens takes no EGLD, so the fee is gone, and no more, in their words."""
    sender, other = wallet(0), wallet(shard, 1)
    bench.give(sender)
    bench.give(sender, "USDC-c76f1f", 100)
    before = bench.balance(sender)
    tx = bench.tx(sender, other.public, 5, esdt_transfer("USDC-c76f1f", 7), gas_limit=1_000_000)
    tx_hash = bench.chain.submit(tx)
    bench.rounds(2 + 2 * bench.hop)
    words = "execution failed: built in function called with tx value is not allowed"
    assert bench.status(tx_hash) == ("fail", words)
    assert bench.balance(sender) == before - fees.initially_paid_fee(tx, bench.chain.network.gas)
    assert (bench.balance(sender, "USDC-c76f1f"), bench.balance(other, "USDC-c76f1f")) == (100, 0)


def test_a_dropped_transaction_comes_back_with_its_block(make_earlier: Any, wallet: Any) -> None:
    """A transaction that could not be charged in a block that is then reverted waits again, and runs once it can."""
    bench = make_earlier(finality_rounds=3)
    payer, other = wallet(0), wallet(0, 1)
    bench.chain.give(payer.public, "EGLD", 10**15)
    bench.rounds(bench.here + bench.hop + 6)
    spend = bench.tx(payer, other.public, 10**15 - 2 * 50_000 * 10**9, gas_price=2 * 10**9, gas_limit=50_000)
    poor = bench.tx(payer, other.public, 0, nonce=spend.nonce + 1)
    bench.chain.submit(spend)
    poor_hash = bench.chain.submit(poor)
    bench.rounds(1)
    assert bench.chain.index.find(poor_hash).outcome == "dropped"
    bench.chain.take_back(0, 1)
    assert bench.status(poor_hash) == ("pending", "")
    assert len(bench.chain.shards[0].mempool) == 2


def test_a_market_at_rest_stays_at_rest_through_a_revert(make_bench: Any) -> None:
    """After the traders were paused, taking blocks back does not let their transactions run again."""
    bench = make_bench(finality_rounds=5, traders_per_second=20.0)
    bench.rounds(8)
    bench.chain.pause_traders()
    bench.chain.take_back(bench.chain.home, 3)
    still = dict(bench.chain.shards[bench.chain.home].state.ledger.pools)
    bench.rounds(8)
    assert bench.chain.shards[bench.chain.home].state.ledger.pools == still


def test_far_too_much_gas_is_not_given_back(bench: Any, wallet: Any) -> None:
    """A call given more than ten times the gas it needs is refunded nothing; one given less is."""
    key = wallet(bench.chain.home)
    bench.give(key)
    wrapper = bench.chain.market.addresses.wrapper
    refunds = []
    for gas_limit in (15_000_000, 500_000_000):
        tx_hash = bench.chain.submit(bench.tx(key, wrapper, 10, b"wrapEgld", gas_limit=gas_limit))
        bench.rounds(bench.here)
        assert bench.status(tx_hash) == ("success", "")
        record = bench.chain.index.find(tx_hash)
        refunds.append(sum(result.value for result in record.results.values() if result.is_refund))
    assert refunds[0] > 0
    assert refunds[1] == 0


@pytest.mark.parametrize(("more", "returned"), [(1, 0), (2, 1), (9, 1), (11, 0)])
def test_unused_gas_of_the_aggregator_contract_returns(bench: Any, wallet: Any, more: int, returned: int) -> None:
    """What a program does not use comes back; nothing does when it was given more than ten times its need."""
    key, network = wallet(bench.chain.home), bench.chain.network.gas
    bench.give(key)
    program = Program((WRAPPED,), (), (), (swap(Action.WRAP, EGLD_INDEX, 0, ALL),), 1, 0)
    data = tx_data(program, NATIVE, 10)
    contract, moving = bench.chain.market.addresses.aggregator, 50_000 + 1500 * len(data)
    state = bench.chain.shards[bench.chain.home].state
    checkpoint, args = state.ledger.checkpoint(), tuple(encode_arguments(program))
    used = execute_call(state, ContractCall(key.public, contract, 10, (), "xo", args, 10**8)).gas_used
    state.ledger.rollback(checkpoint)
    tx = bench.tx(key, contract, 10, data, gas_limit=moving + more * used)
    before = bench.balance(key)
    tx_hash = bench.chain.submit(tx)
    bench.rounds(3)
    assert bench.status(tx_hash) == ("success", "")
    paid = before - 10 - bench.balance(key)
    assert paid == fees.fee_for_gas(tx, moving + used if returned else tx.gas_limit, network)
    assert fees.charged_gas(tx, moving + used, network) == (moving + used if returned else tx.gas_limit)


@pytest.mark.parametrize("limit", [3_000_000, 6_000_000])
def test_a_call_that_runs_out_of_gas_costs_all_of_it(bench: Any, wallet: Any, limit: int) -> None:
    """The payment comes back, the fee of the whole limit does not, and the reason says what was missing."""
    key, network = wallet(bench.chain.home), bench.chain.network.gas
    bench.give(key)
    program = Program((WRAPPED,), (), (), (swap(Action.WRAP, EGLD_INDEX, 0, ALL),), 1, 0)
    tx = bench.tx(key, bench.chain.market.addresses.aggregator, 10, tx_data(program, NATIVE, 10), gas_limit=limit)
    before = bench.balance(key)
    tx_hash = bench.chain.submit(tx)
    bench.rounds(3)
    status, reason = bench.status(tx_hash)
    assert status == "fail" and "not enough gas" in reason
    assert before - bench.balance(key) == fees.initially_paid_fee(tx, network)


def test_signatures_are_checked_before_the_relayers_shard(bench: Any, wallet: Any) -> None:
    """A bad signature is named first, and value from an account that does not exist is refused even when relayed."""
    key, foreign = wallet(0), wallet(1)
    bench.give(key)
    tx = bench.tx(key, key.public, relayer=foreign.public, relayer_signature=bytes(64), gas_limit=200_000)
    tx = msgspec.structs.replace(tx, signature=bytes(64))
    with pytest.raises(Refused, match="invalid signature"):
        bench.chain.submit(tx)
    unknown = wallet(2, 5)
    with pytest.raises(Refused, match="insufficient funds"):
        bench.chain.submit(bench.tx(unknown, key.public, 1, relayed=True))


def test_a_gateway_tells_old_transactions_as_it_told_them(bench: Any, wallet: Any) -> None:
    """What a block did is told in a node's words also when the block's body is forgotten."""
    bench.give(wallet(0))
    good = bench.chain.submit(bench.tx(wallet(0), wallet(0, 1).public, 1))
    bench.rounds(bench.here)
    broke = bench.chain.submit(bench.tx(wallet(0), wallet(0, 1).public, 10**25))
    bench.rounds(bench.here)
    told = [_told_by_gateway(bench, tx_hash) for tx_hash in (good, broke)]
    assert [(item["type"], item["status"]) for item in told] == [("normal", "success"), ("invalid", "invalid")]
    bench.rounds(KEPT_FINAL + 10)
    assert [_told_by_gateway(bench, tx_hash) for tx_hash in (good, broke)] == told


def _told_by_gateway(bench: Any, tx_hash: bytes) -> dict[str, Any]:
    return gateway_transaction_view(bench.chain, bench.chain.index.find(tx_hash), results=True)
