"""What is remembered of earlier blocks."""

from __future__ import annotations

import pytest

from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedPool
from millrace.notifier.rules import earlier, normalise
from millrace.notifier.rules.earlier import Memory
from millrace.notifier.rules.raw_events import FAILURES, IN_FAILURES, IN_TRANSFERS, TRANSFERS, hash_of, identifier_of

from ..helpers import block_hash, event

ALICE, BOB = b"\x01" * 32, b"\x02" * 32
TX, RESULT = block_hash("tx"), block_hash("result")


def transfer(amount: bytes) -> pb.Event:
    return event(ALICE, "ESDTTransfer", b"A-123456", b"", amount, BOB, data=b"d")


def log(*amounts: bytes) -> bytes:
    """A log that tells transfers of these amounts, and something else."""
    events = [event(BOB, "swap"), *map(transfer, amounts)]
    return pb.LogData(txHash=TX.hex(), log=pb.Log(events=events)).SerializeToString()


def known(memory: Memory, shard: int, owner: str) -> dict[bytes, int]:
    """Amount -> how often another shard told it."""
    told = memory.told_elsewhere(shard, owner)
    amounts = {hash_of(transfer(amount).SerializeToString()): amount for amount in (b"\1", b"\2", b"\3")}
    return {amounts[transfer]: times for transfer, times in told.items()}


def test_events_show_in_their_bytes() -> None:
    """What is looked for in a log's bytes is in every identifier that it stands for."""
    assert all(IN_TRANSFERS in identifier for identifier in TRANSFERS)
    assert all(IN_FAILURES in identifier for identifier in FAILURES)


def test_the_first_teller_counts_and_its_last_word() -> None:
    """A transfer belongs to the shard that told it first, as often as that did in its newest block."""
    memory = Memory()
    memory.remember_transfers(0, [("t", log(b"\1", b"\1")), ("t", log(b"\1", b"\2"))], frozenset("t"))
    assert known(memory, 1, "t") == {b"\1": 3, b"\2": 1}
    memory.remember_transfers(2, [("t", log(b"\2", b"\2", b"\3"))], frozenset())
    memory.remember_transfers(0, [("t", log(b"\1", b"\3"))], frozenset())
    assert known(memory, 1, "t") == {b"\1": 1, b"\2": 1, b"\3": 1}
    assert known(memory, 0, "t") == {b"\3": 1}, "the third amount is the other shard's"
    assert known(memory, 1, "u") == {}


@pytest.mark.parametrize("leaving", [frozenset[str](), frozenset("t")])
def test_data_is_no_part_of_a_transfer(leaving: frozenset[str]) -> None:
    """What is compared is address, identifier and topics."""
    memory = Memory()
    memory.remember_transfers(0, [("t", log(b"\1"))], leaving)
    bare, other = transfer(b"\1"), transfer(b"\1")
    bare.ClearField("data")
    other.topics.append(b"")
    told = memory.told_elsewhere(1, "t")
    assert told == {hash_of(bare.SerializeToString()): 1} and hash_of(other.SerializeToString()) not in told


@pytest.mark.parametrize(
    "written",
    [
        b"\x12\x04swap\x12\x0cESDTTransfer",
        b"\x12\x0cESDTTransfer\x0a\x01a",
        b"\x12\x8c\x80\x00ESDTTransfer",
        b"\x92\x00\x0cESDTTransfer\x1a\x01t\x22\x01d\x1a\x01u",
        b"\x12\x0cESDTTransfer\x22\x02\x1a\x7f\x1a\x01u",
        b"\x53\x12\x04swap\x54\x12\x0cESDTTransfer",
    ],
)
def test_an_event_is_what_protobuf_reads(written: bytes) -> None:
    """Fields twice or in any order, groups, and lengths written too long: what counts is what a decoder gets."""
    odd = b"\x0a\x20" + ALICE + written
    read = pb.Event.FromString(odd)
    straight = read.SerializeToString(deterministic=True)
    assert identifier_of(odd) == read.identifier and hash_of(odd) == hash_of(straight)
    last = pb.Event.FromString(odd + b"\x1a\x01x").SerializeToString()
    assert hash_of(last) != hash_of(odd)


def test_a_stand_still_of_minutes_is_remembered() -> None:
    """Of transactions that go on elsewhere five hundred blocks of many are remembered."""
    memory = Memory()
    memory.remember_transfers(0, [("waits", log(b"\1"))], frozenset({"waits"}))
    for number in range(500):
        told = [(f"{number}, {place}", log(b"\1", b"\2")) for place in range(72)]
        memory.remember_transfers(number % 2, told, frozenset(name for name, _ in told))
    assert known(memory, 2, "waits") == {b"\1": 1}


def test_what_leaves_its_shard_is_remembered_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that no other shard should know of make room first, and take none from those that others confirm."""
    monkeypatch.setattr(earlier, "_STAYING_BYTES", 10_000)
    monkeypatch.setattr(earlier, "_LEAVING_BYTES", 50_000)
    memory = Memory()
    memory.remember_transfers(0, [("leaves", log(b"\1")), ("stays", log(b"\1"))], frozenset({"leaves"}))
    for number in range(100):
        memory.remember_transfers(0, [(f"t{number}", log(b"\1"))], frozenset())
    assert known(memory, 1, "leaves") == {b"\1": 1} == known(memory, 1, "t99")
    assert known(memory, 1, "stays") == {}
    for number in range(1000):
        memory.remember_transfers(0, [(f"t{number}", log(b"\1"))], frozenset({f"t{number}"}))
    assert known(memory, 1, "leaves") == {}


def test_no_block_takes_more_than_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a block that tells too much, what does not fit is not remembered; the next blocks are, as ever."""
    monkeypatch.setattr(earlier, "_STAYING_BYTES", 10_000)
    memory = Memory()
    long = log(b"\1" * 5_000)
    told = [("long", long), *((f"t{number}", log(b"\1")) for number in range(20)), ("t1", long)]
    memory.remember_transfers(0, told, frozenset())
    remembered = [f"t{number}" for number in range(20) if known(memory, 1, f"t{number}")]
    assert known(memory, 1, "long") == {} and remembered == [f"t{number}" for number in range(len(remembered))] != []
    assert len(remembered) < 15
    memory.remember_transfers(0, [("next", log(b"\2"))], frozenset())
    assert known(memory, 1, "next") == {b"\2": 1}


def test_who_leaves_and_who_arrives() -> None:
    """Transactions leave that are in a miniblock for another shard, or whose results are; results arrive by name."""
    pool = pb.TransactionPool()
    pool.smartContractResults[RESULT.hex()].smartContractResult.originalTxHash = TX
    other, third = block_hash("other"), block_hash("third")
    minis = [
        pb.MiniBlock(senderShardID=1, receiverShardID=0, txHashes=[RESULT]),
        pb.MiniBlock(senderShardID=1, receiverShardID=2, txHashes=[other]),
        pb.MiniBlock(senderShardID=0, receiverShardID=1, txHashes=[third]),
        pb.MiniBlock(senderShardID=1, receiverShardID=1, txHashes=[block_hash("here")]),
        pb.MiniBlock(senderShardID=0, receiverShardID=2, txHashes=[block_hash("elsewhere")]),
    ]
    sliced = SlicedPool.FromString(pool.SerializeToString())
    facts = normalise.facts_of(1, sliced, pb.Body(miniBlocks=minis))
    assert facts.leaving == {TX.hex(), other.hex()}
    assert facts.arrived == {third.hex()}
