"""What the relayer makes of the local chain's blocks is what the chain itself says of each transaction."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millrace.chain import fees, outport
from millrace.chain.call import TokenPayment, encode, esdt_transfer
from millrace.chain.headers import proposes
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedBlock
from millrace.chain.token import NATIVE
from millrace.localnet.chain.admission import Refused
from millrace.localnet.market.market import WRAPPED
from millrace.notifier.rules.earlier import Memory
from millrace.notifier.rules.normalise import facts_of, normalise
from millrace.relayer.blocks.reader import read_block, read_result
from millrace.relayer.blocks.tracker import Tracker

EGLD = 10**18
TOKEN = "USDC-c76f1f"

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["egld", "token", "multi", "call", "pay", "swap", "wrap", "broke", "drain", "revert", "execution"]
        ),
        st.integers(0, 2),  # sender's shard
        st.integers(0, 2),  # receiver's shard
        st.booleans(),  # relayed
        st.integers(0, 3 * 10**6),  # amount, gas or depth
    ),
    min_size=1,
    max_size=12,
)


def as_consumers_get_it(block: pb.OutportBlock, memory: Memory) -> pb.OutportBlock:
    """An executed block in the form that the hub sends."""
    sliced = SlicedBlock.FromString(block.SerializeToString())
    normalise(sliced.transactionPool, facts_of(block.shardID, sliced.transactionPool, block.blockData.body), memory)
    return pb.OutportBlock.FromString(sliced.SerializeToString())


def told_by_relayer(bench: Any) -> dict[bytes, str]:
    """Statuses that the relayer's tracker tells from all events so far, as the notifier passes them on; each once."""
    tracker, told, passed, memory = Tracker(), dict[bytes, str](), set[bytes](), Memory()
    for sequence, event in enumerate(bench.events):
        releases = []
        match event.topic:
            case outport.SAVE_BLOCK:
                block = pb.OutportBlock.FromString(event.payload)
                saved = block if proposes(block.blockData.headerType) else as_consumers_get_it(block, memory)
                releases.append(tracker.save(read_block(saved, bench.chain.network), sequence, 0.0))
                for result in bench.told_by(block) if proposes(block.blockData.headerType) else ():
                    if result.blockData.headerHash not in passed:
                        passed.add(result.blockData.headerHash)
                        facts = read_result(as_consumers_get_it(result, memory), bench.chain.network)
                        releases.append(tracker.execute(facts, sequence, 0.0))
            case outport.FINALIZED_BLOCK:
                message = pb.FinalizedBlock.FromString(event.payload)
                releases.append(tracker.finalise(message.shardID, message.headerHash, 0.0))
            case outport.REVERT_INDEXED_BLOCK:
                data = pb.BlockData.FromString(event.payload)
                passed.discard(data.headerHash)
                tracker.revert(data.shardID, data.headerHash)
        for outcome in (outcome for release in releases for outcome in release.outcomes):
            assert outcome.tx_hash not in told
            told[outcome.tx_hash] = outcome.status
        for unexecutable in (item for release in releases for item in release.unexecutable):
            assert unexecutable.tx_hash not in told
            told[unexecutable.tx_hash] = "fail"
    assert tracker.disputed == tracker.conflicting_final == 0
    return told


def transaction(bench: Any, wallet: Any, kind: str, source: int, target: int, amount: int, **more: Any) -> Any:
    """A transaction of a kind; `amount` also varies the gas of calls, so that some run out of it."""
    key, to, at = wallet(source), wallet(target, 1).public, bench.chain.market.addresses
    if kind == "multi":
        payments = [TokenPayment(TOKEN, 0, amount + 1), TokenPayment(NATIVE, 0, amount)]
        receiver = at.aggregator if amount % 2 else to
        return bench.multi(key, receiver, payments, "xo", gas_limit=600_000 + 10 * amount, **more)
    if (
        kind == "drain"
    ):  # its EGLD goes out in the data, where a selection does not look: what follows may not be executed
        payments = [TokenPayment(TOKEN, 0, 1), TokenPayment(NATIVE, 0, max(bench.balance(key) - 10**16, 1))]
        return bench.multi(key, to, payments, gas_limit=1_500_000, **more)
    data, value = b"", {"egld": amount, "broke": 10**24}.get(kind, 0)
    match kind:
        case "token":
            data = esdt_transfer(TOKEN, amount + 1)
        case "call":
            data, to, value = encode("xo", b"\x01"), at.aggregator, amount
        case "pay":
            data, to, value = b"@01" * (amount % 2), at.wrapper, amount
        case "swap":
            data, to = esdt_transfer(TOKEN, amount + 1, "xo", b"\x01"), at.aggregator
        case "wrap":
            data, to, value = b"wrapEgld", at.wrapper, amount + 1
    gas = 100_000 + 1500 * len(data) + (10 * amount if data else 0)
    return bench.tx(key, to, value, data, gas_limit=gas, **more)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS, delay=st.integers(0, 2), first=st.booleans(), later=st.integers(1, 3))
def test_statuses_agree(make_bench: Any, wallet: Any, actions: list[Any], delay: int, first: bool, later: int) -> None:
    """Every transaction that the chain calls over is over for the relayer, in the same way; no other is."""
    bench = make_bench(finality_rounds=delay, finalized_first=first, execution_delay=later)
    for shard in range(3):
        bench.chain.give(wallet(shard).public, NATIVE, EGLD)
        bench.chain.give(wallet(shard).public, TOKEN, 10**7)
    bench.rounds(bench.here + bench.hop + 4 * delay)
    sent = []
    for kind, source, target, relayed, amount in actions:
        if kind == "revert":
            with contextlib.suppress(ValueError):
                bench.events += bench.chain.take_back(source, 1 + amount % 2)
            continue
        if kind == "execution":
            bench.chain.shards[source].executes = bool(amount % 2)
            continue
        nonce = bench.chain.virtual_nonce(wallet(source).public)
        try:
            made = transaction(bench, wallet, kind, source, target, amount, relayed=relayed, nonce=nonce)
            sent.append(bench.chain.submit(made))
        except Refused:
            continue
        bench.rounds(1)
    for shard in bench.chain.shards.values():
        shard.executes = True
    bench.rounds(2 + 5 * bench.hop + 6 * delay)
    told = told_by_relayer(bench)
    # What a reverted block had, and no later one could take again, the chain has forgotten: it never was.
    said = {tx_hash: bench.status(tx_hash)[0] if bench.chain.index.find(tx_hash) else "pending" for tx_hash in sent}
    assert {tx_hash: told.get(tx_hash, "pending") for tx_hash in sent} == said


@pytest.mark.parametrize("shard", [0, 1, 2])
@pytest.mark.parametrize("data", [b"", b"@01"])
def test_a_payment_to_a_contract_is_refused_as_a_transfer(bench: Any, wallet: Any, shard: int, data: bytes) -> None:
    """No call is made of it, so nothing says that one is over: it fails with the node's words wherever its sender is,
    costs the fee of a transfer, and is given back."""
    key, wrapper = wallet(shard), bench.chain.market.addresses.wrapper
    bench.give(key)
    tx = bench.tx(key, wrapper, 10**6, data)
    tx_hash = bench.chain.submit(tx)
    blocks = bench.executed(bench.rounds(bench.here + 2 * bench.hop))
    assert told_by_relayer(bench)[tx_hash] == "fail"
    assert bench.status(tx_hash) == ("fail", "execution failed: sending value to non payable contract")
    assert bench.balance(key) == EGLD - tx.gas_limit * tx.gas_price
    pools = [block.transactionPool for block in blocks]
    names = [event.identifier for pool in pools for log in pool.logs for event in log.log.events]
    assert names == [b"signalError"]
    assert any(tx_hash.hex() in pool.invalidTxs for pool in pools) == (shard == bench.chain.home)


@pytest.mark.parametrize("shard", [0, 1, 2])
@pytest.mark.parametrize("way", ["single", "multi", "empty name"])
def test_tokens_for_a_contract_without_a_call_are_refused(bench: Any, wallet: Any, shard: int, way: str) -> None:
    """Tokens that only pay a contract fail as nodes say it: invalid where the contract is in the sender's shard, else
    given back by the contract's; the fee is spent and no virtual machine was asked."""
    key, wrapper = wallet(shard), bench.chain.market.addresses.wrapper
    bench.give(key), bench.give(key, WRAPPED, 1000)
    if way == "multi":
        tx = bench.multi(key, wrapper, [TokenPayment(WRAPPED, 0, 7)], gas_limit=1_000_000)
    else:
        tx = bench.tx(key, wrapper, 0, esdt_transfer(WRAPPED, 7) + b"@" * (way == "empty name"), gas_limit=1_000_000)
    fee = fees.initially_paid_fee(tx, bench.chain.network.gas)
    tx_hash = bench.chain.submit(tx)
    blocks = bench.executed(bench.rounds(bench.here + 3 * bench.hop))
    assert told_by_relayer(bench)[tx_hash] == "fail"
    assert bench.status(tx_hash) == ("fail", "execution failed: sending value to non payable contract")
    assert (bench.balance(key), bench.balance(key, WRAPPED)) == (EGLD - fee, 1000)
    pools = [block.transactionPool for block in blocks]
    events = [event for pool in pools for log in pool.logs for event in log.log.events]
    (failure,) = (event for event in events if event.identifier in (b"signalError", b"internalVMErrors"))
    invalid = shard == bench.chain.home
    assert any(tx_hash.hex() in pool.invalidTxs for pool in pools) == invalid
    code = b"sending value to non payable contract" if invalid else b"user error"
    assert failure.identifier == b"signalError" and failure.data == b"@" + code.hex().encode()


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_call_with_a_refund_elsewhere_is_told(bench: Any, wallet: Any, shard: int) -> None:
    """From any shard a call that ends well is told as a success: the chain's own words are believed."""
    key = wallet(shard)
    bench.give(key)
    tx = bench.tx(key, bench.chain.market.addresses.wrapper, 10**6, b"wrapEgld", gas_limit=10_000_000, relayed=True)
    tx_hash = bench.chain.submit(tx)
    bench.rounds(bench.here + 2 * bench.hop)
    assert told_by_relayer(bench)[tx_hash] == bench.status(tx_hash)[0] == "success"


def test_a_call_whose_second_hop_ends_it_is_told(bench: Any, wallet: Any) -> None:
    """A call through the sender's own account is over with the refund of its result, which names the result."""
    key = wallet((bench.chain.home + 1) % 3)
    bench.give(key), bench.give(key, WRAPPED, 1000)
    payment = [TokenPayment(WRAPPED, 0, 7)]
    tx = bench.multi(key, bench.chain.market.addresses.wrapper, payment, "unwrapEgld", gas_limit=30_000_000)
    tx_hash = bench.chain.submit(tx)
    blocks = bench.executed(bench.rounds(bench.here + 3 * bench.hop))
    assert told_by_relayer(bench)[tx_hash] == bench.status(tx_hash)[0] == "success"
    results = {
        name: info.smartContractResult
        for block in blocks
        for name, info in block.transactionPool.smartContractResults.items()
        if info.smartContractResult.originalTxHash == tx_hash
    }
    (first,) = (name for name, result in results.items() if result.prevTxHash == tx_hash)
    later = {name for name, result in results.items() if result.prevTxHash.hex() == first}
    assert len(later) == len(results) - 1 >= 1
    logs = {log.txHash: log.log.events for block in blocks for log in block.transactionPool.logs}
    named = {
        name: [list(each.topics) for each in logs[name] if each.identifier == b"completedTxEvent"] for name in later
    }
    assert all(topics == [[bytes.fromhex(first)]] for topics in named.values())
    assert not any(each.identifier == b"completedTxEvent" for each in (*logs.get(tx_hash.hex(), ()), *logs[first]))
