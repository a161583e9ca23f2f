"""The whole notifier over its sockets: a node's word reaches every consumer, once and in order."""

from __future__ import annotations

from pathlib import Path

from millrace.chain import outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb

from .helpers import Consumer, event, notifier, peers, save_block

ALICE, BOB = b"\x01" * 32, b"\x02" * 32


def topics(messages: list[pb.WsMessage]) -> list[str]:
    return [message.topic for message in messages]


async def test_block_reaches_consumer(tmp_path: Path) -> None:
    """A saved block is acknowledged to the node and delivered whole under the next sequence."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        reply = await consumer.subscribe()
        assert reply.ok and reply.subscription_id == "default"
        node = await connect.node()
        block = save_block(1, 5, events=[event(ALICE, "swap", b"A")])
        await node.save(block)
        message = await consumer.event()
        assert (message.type, message.withAcknowledge, message.version) == (outport.PAYLOAD, True, 1)
        assert (message.topic, message.counter) == (outport.SAVE_BLOCK, reply.head + 1)
        assert pb.OutportBlock.FromString(message.payload) == block


async def test_every_topic_once_from_two_nodes(tmp_path: Path) -> None:
    """What two nodes tell alike, on each of the eight topics, is delivered once, in the order told."""
    block = save_block(0, 9)
    story = [
        (outport.SETTINGS, pb.OutportConfig(shardID=2, isInImportDBMode=True)),
        (outport.SAVE_VALIDATORS_PUB_KEYS, pb.ValidatorsPubKeys(shardID=0, epoch=1)),
        (outport.SAVE_ACCOUNTS, pb.Accounts(shardID=0, blockTimestamp=5)),
        (outport.SAVE_BLOCK, block),
        (outport.SAVE_ROUNDS_INFO, pb.RoundsInfo(shardID=0, roundsInfo=[pb.RoundInfo(round=3)])),
        (outport.SAVE_VALIDATORS_RATING, pb.ValidatorsRating(shardID=0, epoch=3)),
        (outport.FINALIZED_BLOCK, pb.FinalizedBlock(shardID=0, headerHash=block.blockData.headerHash)),
        (outport.REVERT_INDEXED_BLOCK, block.blockData),
    ]
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        first, second = await connect.node(), await connect.node()
        for topic, message in story:
            await first.tell(topic, message)
            await second.tell(topic, message)
        received = await consumer.events(len(story))
        assert [(m.topic, m.payload) for m in received] == [(t, m.SerializeToString()) for t, m in story]
        await first.tell(outport.SAVE_BLOCK, save_block(0, 10))
        assert (await consumer.event()).counter == received[-1].counter + 1


async def test_resume(tmp_path: Path) -> None:
    """A consumer that names the last sequence it has gets the rest, across a restart of the notifier."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(20):
            await node.save(save_block(0, nonce))
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        reply = await consumer.subscribe(resume_after=0)
        assert reply.head - reply.oldest == 19
        received = await consumer.events(20)
        assert [m.counter for m in received] == list(range(reply.oldest, reply.head + 1))
        again: Consumer = await connect.consumer()
        await again.subscribe(resume_after=received[14].counter)
        assert await again.events(5) == received[15:]


async def test_unknown_and_undecodable(tmp_path: Path) -> None:
    """Unknown topics and undecodable payloads are acknowledged; the latter's bytes are kept."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        await node.tell("SaveTheWhales", b"anything")
        await node.tell(outport.SAVE_BLOCK, b"\xff\xff\xff")
        await node.tell(outport.SAVE_BLOCK, pb.OutportBlock(shardID=1))
        await node.save(save_block(0, 1, events=[pb.Event()] * 200_001))
        await node.save(save_block(0, 1))
        assert (tmp_path / "dead-letters.jsonl").read_bytes().count(b"\n") == 3
        assert running.journal.head == running.journal.oldest


async def test_filters_reduce_blocks(tmp_path: Path) -> None:
    """A consumer with filters gets blocks reduced to the events it wants, each once, and their finality."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe("Identifier", identifier="swap", subscription_id="s")
        await consumer.subscribe("Topics", topics=["", "hex:00ff"], subscription_id="t")
        node = await connect.node()
        silent = save_block(0, 1, events=[event(ALICE, "quiet")])
        wanted = [event(ALICE, "swap", b"x", b"\x00\xff"), event(BOB, "move", b"y", b"\x00\xff", b"z")]
        loud = save_block(0, 2, events=[wanted[0], event(BOB, "quiet"), wanted[1]])
        for block in (silent, loud):
            await node.save(block)
            await node.finalise(block)
        saved, final = await consumer.events(2)
        assert topics([saved, final]) == [outport.SAVE_BLOCK, outport.FINALIZED_BLOCK]
        reduced = pb.OutportBlock.FromString(saved.payload)
        assert list(reduced.transactionPool.logs[0].log.events) == wanted
        assert reduced.blockData.headerHash == loud.blockData.headerHash
        assert pb.FinalizedBlock.FromString(final.payload).headerHash == loud.blockData.headerHash


async def test_unsubscribe(tmp_path: Path) -> None:
    """After an unsubscription is acknowledged nothing of it comes any more; other subscriptions go on."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe(subscription_id="everything")
        await consumer.subscribe("Identifier", identifier="swap", subscription_id="swaps")
        assert not (await consumer.unsubscribe("nothing")).ok
        assert (await consumer.unsubscribe("everything")).ok
        node = await connect.node()
        await node.save(save_block(0, 1, events=[event(ALICE, "quiet")]))
        await node.save(save_block(0, 2, events=[event(ALICE, "swap")]))
        assert len(pb.OutportBlock.FromString((await consumer.event()).payload).transactionPool.logs) == 1
        assert hub_pb2 is not None
