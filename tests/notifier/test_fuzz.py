"""Arbitrary and bit-flipped bytes from nodes and consumers: refused, kept or ignored, never an accident.

`MILLRACE_FUZZ_SECONDS` sets how long each of the tests goes on; `MILLRACE_FUZZ_SEED` where it begins.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.hub_pb2 import SubscribeEvent
from millrace.notifier.journal.dead_letters import DeadLetters
from millrace.notifier.journal.file_store import Store
from millrace.notifier.journal.processor import Arrival, Processor
from millrace.notifier.metrics import Metrics
from millrace.notifier.rules.block_events import BlockEvents
from millrace.notifier.rules.dedup import Observer
from millrace.notifier.rules.hub_protocol import Consumer, Position, ProtocolViolation

from .helpers import add_log, block_hash, event, finalized, notifier, peers, save_block

SECONDS = float(os.environ.get("MILLRACE_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("MILLRACE_FUZZ_SEED", "0"))
VECTORS = Path(__file__).parents[1] / "vectors" / "outport.json"


def samples() -> list[tuple[str, bytes]]:
    """Good payloads of every topic."""
    vectors = json.loads(VECTORS.read_text())["messages"]
    known = [(v["topic"], bytes.fromhex(v["protobufHex"])) for v in vectors if v.get("topic") in outport.PAYLOADS]
    block = save_block(1, 5, events=[event(b"\1" * 32, "MultiESDTNFTTransfer", *[b"t"] * 7)])
    block.transactionPool.smartContractResults["aa"].smartContractResult.originalTxHash = block_hash("t")
    add_log(block, "aa", [event(b"\2" * 32, "ESDTTransfer", b"A", b"", b"\1", b"\2" * 32)])
    block.blockData.body.miniBlocks.add(senderShardID=0, receiverShardID=1, txHashes=[b"\xaa"])
    final = finalized(1, block.blockData.headerHash)
    return [
        *known,
        (outport.SAVE_BLOCK, block.SerializeToString()),
        (outport.FINALIZED_BLOCK, final.SerializeToString()),
        (outport.REVERT_INDEXED_BLOCK, block.blockData.SerializeToString()),
        (outport.SAVE_ROUNDS_INFO, pb.RoundsInfo(shardID=1, roundsInfo=[pb.RoundInfo(round=3)]).SerializeToString()),
        (outport.SAVE_VALIDATORS_PUB_KEYS, pb.ValidatorsPubKeys(shardID=1).SerializeToString()),
    ]


def damaged(good: bytes, rng: random.Random) -> bytes:
    """The same bytes with some bits flipped, cut off, repeated or replaced."""
    data = bytearray(good)
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        if not data:
            break
        place = rng.randrange(len(data))
        action = rng.randrange(4)
        if action == 0:
            data[place] ^= 1 << rng.randrange(8)
        elif action == 1:
            del data[place:]
        elif action == 2:
            data[place:place] = data[place : place + rng.randrange(40)]
        else:
            data[place : place + rng.randrange(8)] = rng.randbytes(rng.randrange(8))
    return bytes(data)


def rounds() -> Iterator[random.Random]:
    """A generator of its own for every round, until the time is over."""
    end, number = time.monotonic() + SECONDS, SEED
    while time.monotonic() < end:
        yield random.Random(number)
        number += 1


@pytest.mark.timeout(900 + 2 * SECONDS)
def test_payloads(tmp_path: Path) -> None:
    """No payload raises or hits a defect; what gets through can be read, filtered and reduced."""
    store, dead = Store(tmp_path), DeadLetters(tmp_path, 10**8)
    processor = Processor(store, dead, Metrics(), shards=3)
    good = samples()
    observers = [Observer(store.next_sequence) for _ in range(3)]
    topics = [*outport.PAYLOADS, "Other"]
    try:
        for rng in rounds():
            store.begin()
            for _ in range(50):
                topic, payload = rng.choice(good)
                if rng.random() < 0.1:
                    topic, payload = rng.choice(topics), rng.randbytes(rng.randrange(60))
                arrival = Arrival(rng.choice(observers), "fuzz", topic, 1, damaged(payload, rng), 1)
                for entry in processor.process(arrival):
                    assert len(entry.message_id.split(":")) == 4 and entry.frame
                    if entry.topic == outport.SAVE_BLOCK:
                        events = BlockEvents(entry.payload)
                        pb.OutportBlock.FromString(events.reduced(range(len(events.keys))))
            processor.release_overdue(rng.randrange(3))
            store.commit() if rng.random() < 0.5 else store.rollback()
        if dead.path.exists():
            assert b'"reason":"defect' not in dead.path.read_bytes()
    finally:
        dead.close()
        store.close()


@pytest.mark.timeout(900 + 2 * SECONDS)
def test_consumer_messages() -> None:
    """No message of a consumer raises anything but a violation with a close code."""
    wish = SubscribeEvent(event_type="Topics", topics=["", "hex:00"], subscription_id="x", resume_after=3)
    good = [
        pb.WsMessage(type=2, topic=topic, payload=wish.SerializeToString()).SerializeToString()
        for topic in ("subscribe", "unsubscribe")
    ] + [outport.ack_envelope(7)]
    for rng in rounds():
        consumer = Consumer(4, 100, 8)
        for now in range(100):
            try:
                changes = consumer.receive(damaged(rng.choice(good), rng), Position(1, 2, 9, "0f"), float(now))
            except ProtocolViolation as violation:
                assert violation.code in (1007, 1008)
                continue
            assert len(consumer.subscriptions) <= 8
            if changes.reply:
                pb.WsMessage.FromString(changes.reply)


@pytest.mark.timeout(900 + 2 * SECONDS)
async def test_sockets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever frames arrive on either path, the notifier goes on serving, and nothing is logged as an error."""
    good = samples()
    async with notifier(tmp_path) as running:
        for rng in rounds():
            async with peers(running) as connect:
                node, consumer, healthy = await connect.node(), await connect.consumer(), await connect.node()
                await consumer.subscribe()
                for number in range(10):
                    topic, payload = rng.choice(good)
                    frame = outport.payload_envelope(topic, payload, number + 1)
                    node.send_binary(damaged(frame, rng))
                consumer.send_binary(rng.randbytes(rng.randrange(30)))
                await healthy.tell(outport.SAVE_ACCOUNTS, pb.Accounts(blockTimestamp=rng.getrandbits(60)))
        await asyncio.sleep(0)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
