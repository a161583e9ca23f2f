"""A rehearsal says how a transaction will end and what gas it takes, and leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.chain import fees
from millrace.chain.address import ESDT_SYSTEM_CONTRACT
from millrace.chain.call import TokenPayment
from millrace.chain.shard import METACHAIN
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.dex.aggregator_contract import ALL, EGLD_INDEX, Action, Program, encode_arguments, swap, tx_data
from millrace.localnet.chain.rehearsal import UNCHARGED, rehearse
from millrace.localnet.market.market import WRAPPED

WRAP = (swap(Action.WRAP, EGLD_INDEX, 0, ALL),)


def wrapping(least: int) -> Program:
    return Program((WRAPPED,), (), (), WRAP, least, 0)


@pytest.mark.parametrize("least", [10, 11])
@pytest.mark.parametrize("shard", [0, 1, 2])
def test_it_ends_as_it_was_rehearsed(bench: Any, wallet: Any, shard: int, least: int) -> None:
    """From every shard, for a call that pays and for one that reverts: status, reason and gas are those to come."""
    key, chain = wallet(shard), bench.chain
    bench.give(key)
    data = tx_data(wrapping(least), NATIVE, 10)
    tx = bench.tx(key, chain.market.addresses.aggregator, 10, data, gas_limit=20_000_000)
    before = bench.state()
    told = rehearse(chain.shards, chain.network, tx)
    assert bench.state() == before
    assert rehearse(chain.shards, chain.network, tx) == told
    paid = bench.balance(key)
    tx_hash = chain.submit(tx)
    bench.rounds(12)
    assert (told.status, told.reason) == bench.status(tx_hash)
    assert told.status == ("success" if least == 10 else "fail")
    cost = fees.fee_for_gas(tx, told.gas_used, chain.network.gas)
    assert paid - bench.balance(key) == cost + (10 if least == 10 else 0)


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_several_tokens_that_travel_on_as_a_result(bench: Any, wallet: Any, shard: int) -> None:
    """A multi-transfer, which goes to its sender first, is rehearsed to the end as well."""
    key, chain = wallet(shard), bench.chain
    bench.give(key)
    bench.give(key, WRAPPED, 100)
    arguments = encode_arguments(Program((WRAPPED,), (), (), (), 100, 0))
    payments = [TokenPayment(WRAPPED, 0, 100)]
    tx = bench.multi(key, chain.market.addresses.aggregator, payments, "xo", *arguments, gas_limit=20_000_000)
    told = rehearse(chain.shards, chain.network, tx)
    tx_hash = chain.submit(tx)
    bench.rounds(16)
    assert (told.status, told.reason) == bench.status(tx_hash)


def test_a_system_contract_cannot_begin(make_bench: Any) -> None:
    """No shard of the chain is theirs by the rule of live networks: they count to shard 0, here too."""
    chain, system = make_bench(profile="mainnet").chain, ESDT_SYSTEM_CONTRACT
    assert chain.network.shard_of(system) == METACHAIN
    tx = Transaction(0, 1, system, system, gas_price=10**9, gas_limit=50_000, chain_id="local")
    assert rehearse(chain.shards, chain.network, tx) == ("fail", UNCHARGED, 0, {})


def test_what_cannot_begin_says_so(bench: Any, wallet: Any) -> None:
    """A nonce that is not the account's, and a fee that nobody has."""
    poor, chain = wallet(0), bench.chain
    assert rehearse(chain.shards, chain.network, bench.tx(poor, poor.public, 1)) == ("fail", UNCHARGED, 0, {})
    bench.give(poor)
    ahead = bench.tx(poor, poor.public, 1, nonce=5)
    assert rehearse(chain.shards, chain.network, ahead).reason == UNCHARGED
    rich = bench.tx(poor, poor.public, 10**20)
    assert rehearse(chain.shards, chain.network, rich).status == "fail"
