"""The four rules that turn a node's block into a consumer's block."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.rules import normalise as rules
from millrace.notifier.rules import raw_events, slices
from millrace.notifier.rules.earlier import Memory
from millrace.notifier.rules.raw_events import MULTI_TRANSFER, TRANSFERS

from ..helpers import add_log, block_hash, event, save_block

ALICE, BOB, POOL = b"\x01" * 32, b"\x02" * 32, b"\x09" * 32
TX, RESULT = block_hash("tx"), block_hash("result")


def normalise(block: pb.OutportBlock, memory: Memory) -> None:
    """Make a node's block what consumers get."""
    sliced, _, results = slices.cut(block.SerializeToString(), block)
    facts = rules.facts_of(block.shardID, sliced.transactionPool, block.blockData.body, results)
    rules.normalise(sliced.transactionPool, facts, memory)
    block.ParseFromString(sliced.SerializeToString())


def transfer(amount: bytes = b"\x05", token: bytes = b"A-123456") -> pb.Event:
    return event(ALICE, "ESDTTransfer", token, b"", amount, BOB)


def add_result(block: pb.OutportBlock, result: bytes, original: bytes) -> None:
    block.transactionPool.smartContractResults[result.hex()].smartContractResult.originalTxHash = original


def events_of(block: pb.OutportBlock) -> list[pb.Event]:
    return [event for log in block.transactionPool.logs for event in log.log.events]


def arrive(block: pb.OutportBlock, from_shard: int, *hashes: bytes) -> None:
    block.blockData.body.miniBlocks.add(senderShardID=from_shard, receiverShardID=block.shardID, txHashes=hashes)


def test_result_carries_original_hash() -> None:
    """The log of a smart-contract result names the transaction behind it; a transaction's own log stays."""
    block = save_block(0, 1)
    add_result(block, RESULT, TX)
    add_log(block, RESULT.hex(), [event(POOL, "swap")])
    add_log(block, TX.hex(), [event(POOL, "writeLog")])
    normalise(block, Memory())
    assert [log.txHash for log in block.transactionPool.logs] == [TX.hex(), TX.hex()]


def test_result_of_an_earlier_block() -> None:
    """A result announced in one block and executed in another shard's later block still finds its transaction."""
    memory = Memory()
    source, destination = save_block(0, 1), save_block(1, 4)
    add_result(source, RESULT, TX)
    add_log(destination, RESULT.hex(), [event(POOL, "swap")])
    normalise(source, memory)
    normalise(destination, memory)
    assert destination.transactionPool.logs[0].txHash == TX.hex()


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9)), min_size=2, max_size=6))
def test_multi_transfer_is_split(payments: list[tuple[bytes, bytes, bytes]]) -> None:
    """A transfer of n tokens becomes n events in place, which differ in token, nonce and amount only."""
    topics = [part for payment in payments for part in payment] + [BOB]
    whole = pb.Event(address=ALICE, identifier=MULTI_TRANSFER, topics=topics, data=b"d", additionalData=[b"a"])
    block = save_block(0, 1, events=[event(POOL, "before"), whole, event(POOL, "after")])
    normalise(block, Memory())
    before, *singles, after = events_of(block)
    assert (before.identifier, after.identifier) == (b"before", b"after")
    assert [list(single.topics) for single in singles] == [[*payment, BOB] for payment in payments]
    for single in singles:
        single.topics[:] = topics
        assert single == whole


@settings(deadline=None)
@given(st.lists(st.binary(max_size=4), max_size=12).filter(lambda topics: len(topics) % 3 != 1 or len(topics) < 7))
def test_other_shapes_stay_whole(topics: list[bytes]) -> None:
    """A multi-transfer whose topics are not token, nonce, amount … receiver is left as it is."""
    odd = pb.Event(address=ALICE, identifier=MULTI_TRANSFER, topics=topics)
    block = save_block(0, 1, events=[odd])
    normalise(block, Memory())
    assert events_of(block) == [odd]


def test_splitting_is_bounded() -> None:
    """Transfers made to blow a block up stay whole once the bound is reached; the work stays small."""
    data = b"x" * 200_000
    bomb = pb.Event(address=ALICE, identifier=MULTI_TRANSFER, topics=[b"t"] * 301, data=data)
    block = save_block(0, 1, events=[bomb] * 4)
    normalise(block, Memory())
    assert [len(e.topics) for e in events_of(block)] == [4] * 300 + [301]
    assert block.ByteSize() < (64 << 20) + 3 * bomb.ByteSize()
    assert events_of(block)[-1] == bomb


def test_failed_transaction_moved_nothing() -> None:
    """Transfers of a transaction that signalled an error are dropped, also those in its results' logs."""
    for sign in ("signalError", "internalVMErrors"):
        block = save_block(0, 1)
        add_result(block, RESULT, TX)
        add_log(block, RESULT.hex(), [transfer()])
        add_log(block, TX.hex(), [transfer(), event(POOL, sign)])
        add_log(block, block_hash("other").hex(), [transfer()])
        normalise(block, Memory())
        assert [e.identifier for e in events_of(block)] == [sign.encode(), b"ESDTTransfer"]


def test_failed_result_takes_only_its_own_back() -> None:
    """A result that fails undoes its own transfers; what its transaction moved before stays moved."""
    block = save_block(0, 1)
    add_result(block, RESULT, TX)
    add_log(block, RESULT.hex(), [transfer(b"\x01"), event(POOL, "signalError")])
    add_log(block, TX.hex(), [transfer(b"\x02")])
    normalise(block, Memory())
    assert [e.topics[2] for e in events_of(block) if e.identifier in TRANSFERS] == [b"\x02"]


def test_invalid_transaction_moved_nothing() -> None:
    """A transaction in the pool's invalid ones keeps its entry and loses its transfers."""
    block = save_block(0, 1, events=None)
    block.transactionPool.invalidTxs[TX.hex()].transaction.nonce = 3
    add_log(block, TX.hex(), [transfer()])
    normalise(block, Memory())
    assert events_of(block) == [] and TX.hex() in block.transactionPool.invalidTxs


def test_confirmation_is_dropped() -> None:
    """The receiver's shard does not tell a transfer again that the sender's shard told; in any later block."""
    memory = Memory()
    source, destination = save_block(0, 1), save_block(1, 9)
    add_log(source, TX.hex(), [transfer(), transfer()])
    add_log(destination, TX.hex(), [transfer(), event(POOL, "swap"), transfer(), transfer()])
    arrive(destination, 0, TX)
    saved_again = pb.OutportBlock.FromString(destination.SerializeToString())
    normalise(source, memory)
    normalise(destination, memory)
    assert [e.identifier for e in events_of(destination)] == [b"swap", b"ESDTTransfer"], "two were told, not three"
    normalise(saved_again, memory)
    assert saved_again == destination, "saved again after a revert it is the same block"


def test_unseen_or_unrelated_is_not_a_confirmation() -> None:
    """A transfer stays when the sender's shard never told it, or when it differs, or was executed here alone."""
    memory = Memory()
    destination = save_block(1, 9)
    add_log(destination, TX.hex(), [transfer()])
    arrive(destination, 0, TX)
    normalise(destination, memory)
    assert len(events_of(destination)) == 1
    source = save_block(0, 1)
    add_log(source, RESULT.hex(), [transfer(b"\x01")])
    normalise(source, memory)
    other_amount, local = save_block(1, 10), save_block(2, 3)
    add_log(other_amount, RESULT.hex(), [transfer(b"\x02")])
    arrive(other_amount, 0, RESULT)
    add_log(local, RESULT.hex(), [transfer(b"\x01")])
    for block in (other_amount, local):
        normalise(block, memory)
        assert len(events_of(block)) == 1


def test_block_saved_again_keeps_its_transfers() -> None:
    """A sender's block that is saved again after a revert tells its transfers again."""
    memory = Memory()
    for _ in range(2):
        block = save_block(0, 1, events=[transfer()])
        normalise(block, memory)
        assert len(events_of(block)) == 1


def test_everything_else_stays() -> None:
    """Invalid transactions, receipts, rewards, altered accounts and other events are as the node sent them."""
    block = save_block(0, 1, events=[event(POOL, "swap", b"x"), transfer()])
    pool = block.transactionPool
    pool.invalidTxs["aa"].executionOrder = 3
    pool.receipts["bb"].data = b"insufficient funds"
    pool.rewards["cc"].reward.epoch = 4
    block.alteredAccounts["erd1x"].balance = "7"
    before = pb.OutportBlock.FromString(block.SerializeToString())
    normalise(block, Memory())
    assert block == before


@pytest.mark.parametrize(
    "told",
    [
        transfer(),
        transfer(token=b"T" * 127),
        transfer(token=b"T" * 128),
        event(ALICE[:31], "ESDTTransfer", b"A", b"", b"\x05", BOB),
        event(ALICE, "ESDTTransfer"),
        pb.Event(identifier=b"ESDTTransfer", topics=[b"A", b"", b"\x05", BOB]),
    ],
)
@pytest.mark.parametrize("data", [{}, {"data": b"d"}, {"additionalData": [b"a"]}])
def test_a_transfer_is_known_again_however_it_is_written(told: pb.Event, data: dict[str, Any]) -> None:
    """Data makes no difference, topics do, with long topics, other addresses and fields out of order too."""
    memory = Memory()
    source, destination = save_block(0, 1), save_block(1, 9)
    add_log(source, TX.hex(), [told])
    again, another = pb.Event(), pb.Event()
    again.CopyFrom(told)
    again.MergeFrom(pb.Event(**data))
    another.CopyFrom(again)
    another.topics.append(b"more")
    add_log(destination, TX.hex(), [again, another])
    arrive(destination, 0, TX)
    normalise(source, memory)
    normalise(destination, memory)
    assert events_of(destination) == [another]


def test_results_without_a_transaction_take_none_of_another() -> None:
    """A result that does not name its transaction has none, whatever results stand beside it in the map."""
    block = save_block(0, 1)
    results = block.transactionPool.smartContractResults
    for name in ("aa", "bb", "cc"):
        results[name].smartContractResult.nonce = 1
    results["bb"].smartContractResult.originalTxHash = TX
    sliced, _, _ = slices.cut(block.SerializeToString(), block)
    assert rules.facts_of(0, sliced.transactionPool, block.blockData.body).originals == {"bb": TX.hex()}


@pytest.mark.parametrize("turn", ["hash last", "hash twice", "no hash", "a short hash"])
def test_a_log_that_no_go_node_writes_so_is_read_too(turn: str) -> None:
    """Wherever and however often a log names its hash, the last one counts, and the log gets its transaction's."""
    block = save_block(0, 1)
    add_result(block, RESULT, TX)
    add_log(block, TX.hex(), [transfer()])
    add_log(block, TX.hex(), [transfer(b"\x06")])
    sliced = slices.SlicedBlock.FromString(block.SerializeToString())
    name, rest = sliced.transactionPool.logs[0][:66], sliced.transactionPool.logs[0][66:]
    name, other = name.replace(TX.hex().encode(), RESULT.hex().encode()), name
    turned = {
        "hash last": rest + name,
        "hash twice": other + rest + name,
        "no hash": rest,
        "a short hash": b"\x0a\x02ab" + rest,
    }[turn]
    sliced.transactionPool.logs[0] = turned
    facts = rules.facts_of(0, sliced.transactionPool, block.blockData.body)
    rules.normalise(sliced.transactionPool, facts, Memory())
    logs = pb.OutportBlock.FromString(sliced.SerializeToString()).transactionPool.logs
    wanted = {"no hash": "", "a short hash": "ab"}.get(turn, TX.hex())
    assert [(log.txHash, list(log.log.events)) for log in logs] == [
        (wanted, [transfer()]),
        (TX.hex(), [transfer(b"\x06")]),
    ]


def test_an_event_out_of_order_is_read_too() -> None:
    """Fields of an event in another order than Go's mean the same: a failure so written takes transfers back."""
    block = save_block(0, 1)
    add_log(block, TX.hex(), [transfer(), event(POOL, "signalError")])
    payload = block.SerializeToString()
    straight = event(POOL, "signalError").SerializeToString()
    turned = straight[34:] + straight[:34]
    assert pb.Event.FromString(turned) == event(POOL, "signalError") and straight in payload
    sliced, _, _ = slices.cut(payload.replace(straight, turned), block)
    facts = rules.facts_of(0, sliced.transactionPool, block.blockData.body)
    rules.normalise(sliced.transactionPool, facts, Memory())
    assert list(raw_events.events_of(sliced.transactionPool.logs[0])) == [turned]


def test_what_an_arrived_transaction_sends_on_is_told_once() -> None:
    """A contract called from another shard pays back: its shard tells the payment, and the payer's does not again."""
    memory = Memory()
    source, contract, back = save_block(0, 1), save_block(1, 9), save_block(0, 4)
    paid = event(POOL, "ESDTTransfer", b"B-123456", b"", b"\x07", ALICE)
    add_log(source, TX.hex(), [transfer()])
    arrive(contract, 0, TX)
    add_log(contract, TX.hex(), [transfer(), event(POOL, "swap"), paid])
    add_result(contract, RESULT, TX)
    contract.blockData.body.miniBlocks.add(senderShardID=1, receiverShardID=0, txHashes=[RESULT])
    add_log(back, RESULT.hex(), [paid])
    arrive(back, 1, RESULT)
    told_again = pb.OutportBlock.FromString(contract.SerializeToString())
    for block in (source, contract, back):
        normalise(block, memory)
    assert [e.identifier for e in events_of(contract)] == [b"swap", b"ESDTTransfer"]
    assert events_of(contract)[1] == paid
    assert events_of(back) == []
    normalise(told_again, memory)
    assert told_again == contract, "saved again after a revert it is the same block"
