"""Blocks that are proposed first and executed later, from a node's frame to the frames of consumers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.rules.dedup import CONFLICT, INCOMPLETE

from .helpers import Consumer, block_hash, event, notifier, peers, proposal, ran

VECTORS: dict[str, dict[str, Any]] = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "supernova.json").read_text())["vectors"]
}
SAVE, FINAL, REVERT = outport.SAVE_BLOCK, outport.FINALIZED_BLOCK, outport.REVERT_INDEXED_BLOCK
EXECUTED = outport.EXECUTED_BLOCK
ALICE, BOB = b"\1" * 32, b"\2" * 32


async def told(consumer: Consumer, count: int) -> list[tuple[str, str, int]]:
    """Topic, block (hex) and marks of the next events."""
    found = []
    for message in await consumer.events(count):
        if message.topic in (SAVE, EXECUTED):
            name = pb.OutportBlock.FromString(message.payload).blockData.headerHash
        elif message.topic == FINAL:
            name = pb.FinalizedBlock.FromString(message.payload).headerHash
        else:
            name = pb.BlockData.FromString(message.payload).headerHash
        found.append((message.topic, name.hex(), message.marks))
    return found


def name(block: pb.OutportBlock) -> str:
    return block.blockData.headerHash.hex()


async def test_a_real_block_and_its_results(tmp_path: Path) -> None:
    """A node's block passes as it came, then each execution in the header's order, then the mark that came first."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe()
        raw = bytes.fromhex(VECTORS["synthetic-three-results-104"]["payload"])
        block = pb.OutportBlock.FromString(raw)
        await node.finalise(block)
        await node.tell(SAVE, raw)
        messages = await consumer.events(5)
        assert [message.topic for message in messages] == [SAVE, EXECUTED, EXECUTED, EXECUTED, FINAL]
        assert messages[0].payload == raw
        made = [pb.OutportBlock.FromString(message.payload) for message in messages[1:4]]
        assert [one.blockData.timestampMs for one in made] == sorted(one.blockData.timestampMs for one in made)
        assert {one.blockData.headerHash.hex() for one in made} == set(block.blockData.results)
        assert len(made[0].transactionPool.unexecutableTransactions) == 1


async def test_the_same_results_under_a_replacement(tmp_path: Path) -> None:
    """The block that brought executions is taken back; the one in its place brings some of them again: no news."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe()
        first = pb.OutportBlock.FromString(bytes.fromhex(VECTORS["synthetic-three-results-104"]["payload"]))
        second = pb.OutportBlock.FromString(bytes.fromhex(VECTORS["synthetic-replacement-104b"]["payload"]))
        await node.save(first)
        await node.revert(first)
        await node.save(second)
        await node.finalise(second)
        events = await told(consumer, 7)
        assert [topic for topic, _, _ in events] == [SAVE, EXECUTED, EXECUTED, EXECUTED, REVERT, SAVE, FINAL]
        assert events[5][1] == name(second)
        assert not any(marks & CONFLICT for _, _, marks in events)


async def test_observers_that_differ_in_accounts(tmp_path: Path) -> None:
    """Two nodes send one block with accounts of different moments: it is one event, and so is each execution."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        one, two, consumer = await opened.node(), await opened.node(), await opened.consumer()
        await consumer.subscribe()
        old = proposal(0, 5)
        await one.save(proposal(0, 6, ran=[ran(old, balance="1")]))
        other = proposal(0, 6, ran=[ran(old, balance="2")], stateAccessesForBlock=[b"\x0a\x02\xff\xfe"])
        await two.save(other)
        await two.save(proposal(0, 7))
        assert [topic for topic, _, _ in await told(consumer, 3)] == [SAVE, EXECUTED, SAVE]


UNKNOWN = b"\xfa\x3e\x01x"
"""A field 1007, which no message has."""


def newer(block: pb.OutportBlock, where: str) -> bytes:
    """A block as a node of a newer version tells it, which writes a field more somewhere."""
    made = pb.OutportBlock.FromString(block.SerializeToString())
    parts: dict[str, Any] = {
        "block": made,
        "data": made.blockData,
        "pool": made.transactionPool,
        "result": next(iter(made.blockData.results.values()), None),
        "pool of result": next((item.transactionPool for item in made.blockData.results.values()), None),
        "log": next(
            (log for item in (made, *made.blockData.results.values()) for log in item.transactionPool.logs), None
        ),
    }
    parts[where].MergeFromString(UNKNOWN)
    return made.SerializeToString()


@pytest.mark.parametrize("where", ["block", "data", "result", "pool of result", "log"])
@pytest.mark.parametrize("newer_first", [True, False])
async def test_nodes_of_two_versions(tmp_path: Path, where: str, newer_first: bool) -> None:
    """A field that this version does not know makes no other content, whoever tells first; it is passed on."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        one, two, consumer = await opened.node(), await opened.node(), await opened.consumer()
        await consumer.subscribe()
        blocks = [proposal(0, nonce, ran=[ran(proposal(0, nonce - 1), event(ALICE, "swap"))]) for nonce in (6, 7)]
        expected, firsts = [], []
        for number, block in enumerate(blocks):
            told_ = [newer(block, where), block.SerializeToString()]
            firsts.append(told_[0 if newer_first else 1])
            for node, payload in zip((one, two), told_ if newer_first else told_[::-1], strict=True):
                await node.tell(SAVE, payload)
            # In a part of a part it is looked for once nodes have disagreed.
            expected += [SAVE, EXECUTED] * (2 if where == "log" and newer_first and not number else 1)
        await one.save(proposal(0, 8))
        found = await consumer.events(len(expected) + 1)
        assert [message.topic for message in found] == [*expected, SAVE]
        assert [message.payload for message in found if message.topic == SAVE and not message.marks][:2] == firsts


async def test_what_is_missing_is_marked(tmp_path: Path) -> None:
    """A block without a result that it lists, and an execution behind a hole, are marked; filters hold no mark back."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer, filtered = await opened.node(), await opened.consumer(), await opened.consumer()
        await consumer.subscribe()
        await filtered.subscribe("Identifier", identifier="swap")
        old = [proposal(0, nonce) for nonce in (4, 5, 6, 7)]
        await node.save(proposal(0, 8, ran=[ran(old[0])]))
        lacking = proposal(0, 9, ran=[ran(old[1]), ran(old[2])])
        lacking.blockData.results[name(old[2])].Clear()
        del lacking.blockData.results[name(old[2])]
        await node.save(lacking)
        await node.save(proposal(0, 10, ran=[ran(old[3])]))
        assert await told(consumer, 6) == [
            (SAVE, name(proposal(0, 8, ran=[ran(old[0])])), 0),
            (EXECUTED, name(old[0]), 0),
            (SAVE, name(lacking), INCOMPLETE),
            (EXECUTED, name(old[1]), 0),
            (SAVE, name(proposal(0, 10, ran=[ran(old[3])])), 0),
            (EXECUTED, name(old[3]), INCOMPLETE),
        ]
        assert await told(filtered, 2) == [(SAVE, name(lacking), INCOMPLETE), (EXECUTED, name(old[3]), INCOMPLETE)]
        assert running.metrics.irregular.labels("result_missing")._value.get() == 1
        assert running.metrics.missing_executions.labels("0")._value.get() == 1


async def test_a_header_that_is_not_its_own(tmp_path: Path) -> None:
    """Header bytes that do not hash to the block's name: the block is passed on, nothing counts as executed."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe()
        block = proposal(0, 6, ran=[ran(proposal(0, 5))])
        block.blockData.headerHash = block_hash("another")
        await node.save(block)
        await node.save(proposal(0, 7))
        assert [topic for topic, _, _ in await told(consumer, 2)] == [SAVE, SAVE]
        assert running.metrics.irregular.labels("header_unreadable")._value.get() == 1


async def test_keys_that_are_no_text(tmp_path: Path) -> None:
    """A block whose maps have keys that are no UTF-8 reaches whole-stream consumers as it came, and harms no filter."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer, filtered = await opened.node(), await opened.consumer(), await opened.consumer()
        await consumer.subscribe()
        await filtered.subscribe("Identifier", identifier="swap")
        block = proposal(0, 6, ran=[ran(proposal(0, 5), event(ALICE, "swap"))])
        raw = block.SerializeToString().replace(b"someone", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9")
        await node.tell(SAVE, raw)
        await node.tell(SAVE, raw)
        after = proposal(0, 7, ran=[ran(proposal(0, 6), event(ALICE, "swap"))])
        await node.save(after)
        assert (await consumer.event()).payload == raw
        assert [topic for topic, _, _ in await told(consumer, 2)] == [SAVE, EXECUTED]
        assert (await filtered.event()).topic == EXECUTED
        assert running.metrics.irregular.labels("keys_are_no_text")._value.get() == 2
        assert running.metrics.dead_letters._value.get() == 0


async def test_filters_and_the_life_of_what_they_let_through(tmp_path: Path) -> None:
    """A consumer with filters gets executions with its events, and the fate of each block that lists them."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe("Identifier", identifier="swap")
        old = proposal(0, 5)
        execution = ran(old, event(ALICE, "swap", b"x"), event(BOB, "burn"))
        first, second = proposal(0, 6, "a", ran=[execution]), proposal(0, 6, "b", ran=[execution])
        idle = proposal(0, 7)
        await node.save(old)
        await node.save(first)
        await node.revert(first)
        await node.save(second)
        await node.finalise(second)
        await node.save(idle)
        await node.finalise(idle)
        await node.save(proposal(0, 8, ran=[ran(idle, event(BOB, "swap"))]))
        messages = await consumer.events(5)
        assert [message.topic for message in messages] == [EXECUTED, REVERT, SAVE, FINAL, EXECUTED]
        made = pb.OutportBlock.FromString(messages[0].payload)
        assert [one.identifier for log in made.transactionPool.logs for one in log.log.events] == [b"swap"]
        assert made.carryingHeaderHash == first.blockData.headerHash
        listed = pb.OutportBlock.FromString(messages[2].payload)
        assert listed.blockData.headerHash == second.blockData.headerHash
        assert not listed.transactionPool.logs and not listed.blockData.results

        late = await opened.consumer()
        await late.subscribe("Identifier", identifier="swap", resume_after=0)
        assert [(m.topic, m.payload) for m in await late.events(5)] == [(m.topic, m.payload) for m in messages]


async def test_filters_do_not_follow_the_chain(tmp_path: Path) -> None:
    """That a block was told for its fate, or its mark, is no reason to tell those that list its own execution."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, live, late = await opened.node(), await opened.consumer(), await opened.consumer()
        await live.subscribe("Identifier", identifier="swap")
        chain = [proposal(0, 5), proposal(0, 7)]  # the second one is marked
        for events in ([event(ALICE, "swap")], [], [], [], [event(ALICE, "swap")]):
            chain.append(proposal(0, 6 + len(chain), ran=[ran(chain[-1], *events)]))
        for block in chain:
            await node.save(block)
        expected = [(SAVE, name(chain[1]), INCOMPLETE), (EXECUTED, name(chain[1]), 0), (EXECUTED, name(chain[5]), 0)]
        await late.subscribe("Identifier", identifier="swap", resume_after=running.journal.origin)
        for consumer in (live, late):
            assert await told(consumer, 3) == expected


async def test_a_filter_that_resumes_learns_the_fate_of_what_it_had(tmp_path: Path) -> None:
    """Given an execution on one connection, a consumer hears on the next one of the block that lists it again."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, one, two = await opened.node(), await opened.consumer(), await opened.consumer()
        await one.subscribe("Identifier", identifier="swap")
        execution = ran(proposal(0, 4), event(ALICE, "swap"))
        first, second = proposal(0, 5, "a", ran=[execution]), proposal(0, 5, "b", ran=[execution])
        await node.save(first)
        last = await one.event()
        assert last.topic == EXECUTED
        await two.subscribe("Identifier", identifier="swap", resume_after=last.counter)
        await node.revert(first)
        await node.save(second)
        await node.finalise(second)
        assert [message.topic for message in await two.events(3)] == [REVERT, SAVE, FINAL]


async def test_executions_that_cannot_be(tmp_path: Path) -> None:
    """Hashes of no hash's length, nonces that are not below the block's, counts beyond all bounds: nothing is made."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe()
        fine = ran(proposal(0, 4))
        odd = [fine._replace(block_hash=b""), fine._replace(block_hash=bytes(200)), fine._replace(nonce=2**40)]
        await node.save(proposal(0, 5, ran=[*odd, fine._replace(nonce=3)]))
        assert [topic for topic, _, _ in await told(consumer, 2)] == [SAVE, EXECUTED]
        await node.save(proposal(0, 6, ran=[fine._replace(block_hash=block_hash("b"), count=2**32)]))
        await node.save(proposal(0, 7))
        assert [topic for topic, _, _ in await told(consumer, 2)] == [SAVE, SAVE]
        assert running.metrics.irregular.labels("result_impossible")._value.get() == 2
        assert running.metrics.dead_letters._value.get() == 0


async def test_executions_under_the_name_of_blocks(tmp_path: Path) -> None:
    """By setting, consumers that know the earlier format only get executions as saved blocks, live and later."""
    async with notifier(tmp_path, executed_topic="SaveBlock") as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe()
        old = proposal(0, 5)
        await node.save(proposal(0, 6, ran=[ran(old, event(ALICE, "swap"))]))
        late = await opened.consumer()
        await late.subscribe(resume_after=0)
        for one in (consumer, late):
            assert [(topic, block) for topic, block, _ in await told(one, 2)][1] == (SAVE, name(old))


async def test_both_formats_in_one_stream(tmp_path: Path) -> None:
    """The last block of the earlier format needs no execution: nothing is missing when the first executions come."""
    async with notifier(tmp_path) as running, peers(running) as opened:
        node, consumer = await opened.node(), await opened.consumer()
        await consumer.subscribe()
        names = ("real-shard0-44", "real-shard0-45")
        for one in names:
            await node.tell(SAVE, bytes.fromhex(VECTORS[one]["payload"]))
        first = pb.OutportBlock.FromString(bytes.fromhex(VECTORS[names[1]]["payload"]))
        await node.save(proposal(0, 46, ran=[ran(first)]))
        events = await told(consumer, 4)
        assert [topic for topic, _, _ in events] == [SAVE, SAVE, SAVE, EXECUTED]
        assert not any(marks for _, _, marks in events)
