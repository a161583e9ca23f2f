"""Blocks, a node, a consumer and a running notifier for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from millrace.chain import outport
from millrace.chain.headers import read_header
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.app import Notifier
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import websocket

WAIT = 30.0  # seconds a test waits for what must come; passing tests never wait so long


def block_hash(label: object) -> bytes:
    """A header hash that stands for `label`."""
    return hashlib.blake2b(repr(label).encode(), digest_size=32).digest()


def save_block(
    shard: int, nonce: int, label: object = "", events: list[pb.Event] | None = None, **logs: Any
) -> pb.OutportBlock:
    """A block with one log per transaction; `events` belong to the transaction `tx`."""
    header = pb.HeaderV2(header=pb.Header(nonce=nonce, round=nonce + 100, epoch=7, shardID=shard))
    header.header.randSeed = block_hash((shard, nonce, label))
    block = pb.OutportBlock(shardID=shard, numberOfShards=3)
    block.blockData.shardID = shard
    block.blockData.headerType = "HeaderV2"
    block.blockData.headerBytes = outport.serialize(header)
    block.blockData.headerHash = hashlib.blake2b(block.blockData.headerBytes, digest_size=32).digest()
    block.blockData.timestampMs = 1_700_000_000_000 + 600 * nonce
    if events is not None:
        add_log(block, block_hash(("tx", shard, nonce)).hex(), events)
    return block


def add_log(block: pb.OutportBlock, tx_hash: str, events: list[pb.Event]) -> None:
    """Give the block a log."""
    log = block.transactionPool.logs.add(txHash=tx_hash)
    log.log.events.extend(events)


def event(address: bytes, identifier: str, *topics: bytes, data: bytes = b"") -> pb.Event:
    return pb.Event(address=address, identifier=identifier.encode(), topics=list(topics), data=data)


def finalized(shard: int, hash_: bytes) -> pb.FinalizedBlock:
    return pb.FinalizedBlock(shardID=shard, headerHash=hash_)


class Peer(websocket.Session):
    """A client connection whose messages wait in a queue."""

    max_message_size = 80 * 1024 * 1024

    def __init__(self) -> None:
        super().__init__()
        self.inbox: asyncio.Queue[pb.WsMessage | None] = asyncio.Queue()
        self.ended = asyncio.Event()

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self.inbox.put_nowait(pb.WsMessage.FromString(data))

    def on_close(self) -> None:
        self.ended.set()
        self.inbox.put_nowait(None)

    async def next(self) -> pb.WsMessage:
        message = await asyncio.wait_for(self.inbox.get(), WAIT)
        if message is None:
            raise ConnectionError(f"closed with {self.close_code}")
        return message

    def drop(self) -> None:
        """Reset the connection without a goodbye."""
        self.abort()


class Node(Peer):
    """A node: sends payloads under its own counters and waits for their acknowledgement."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = 0

    def post(self, topic: str, payload: bytes, **options: Any) -> int:
        """Send without waiting; returns the counter."""
        self.counter += 1
        self.send_binary(outport.payload_envelope(topic, payload, self.counter, **options))
        return self.counter

    async def acked(self, counter: int) -> None:
        message = await self.next()
        assert (message.type, message.counter) == (outport.ACK, counter)

    async def tell(self, topic: str, message: Any) -> None:
        """Send and wait for the acknowledgement, as real nodes do."""
        payload = message if isinstance(message, bytes) else message.SerializeToString()
        await self.acked(self.post(topic, payload))

    async def save(self, block: pb.OutportBlock) -> None:
        await self.tell(outport.SAVE_BLOCK, block)

    async def finalise(self, block: pb.OutportBlock) -> None:
        await self.tell(outport.FINALIZED_BLOCK, finalized(block.shardID, block.blockData.headerHash))

    async def revert(self, block: pb.OutportBlock) -> None:
        await self.tell(outport.REVERT_INDEXED_BLOCK, block.blockData)


class Consumer(Peer):
    """A consumer: subscribes, receives, acknowledges each event."""

    auto_ack = True

    async def subscribe(self, event_type: str = "All", **fields: Any) -> hub_pb2.SubscribeReply:
        wish = hub_pb2.SubscribeEvent(event_type=event_type, **fields)
        return await self.control("subscribe", wish)

    async def unsubscribe(self, name: str) -> hub_pb2.SubscribeReply:
        return await self.control("unsubscribe", hub_pb2.SubscribeEvent(subscription_id=name))

    async def control(self, topic: str, wish: hub_pb2.SubscribeEvent) -> hub_pb2.SubscribeReply:
        message = pb.WsMessage(type=outport.PAYLOAD, topic=topic, payload=wish.SerializeToString())
        self.send_binary(message.SerializeToString())
        reply = await self.next()
        assert reply.topic == topic
        return hub_pb2.SubscribeReply.FromString(reply.payload)

    async def event(self) -> pb.WsMessage:
        """The next event or gap; acknowledged unless the test acknowledges by itself."""
        message = await self.next()
        if self.auto_ack and message.topic != "gap":
            self.ack(message.counter)
        return message

    async def events(self, count: int) -> list[pb.WsMessage]:
        return [await self.event() for _ in range(count)]

    def ack(self, sequence: int) -> None:
        self.send_binary(outport.ack_envelope(sequence))


@asynccontextmanager
async def notifier(directory: Path, **settings: Any) -> AsyncIterator[Notifier]:
    """A notifier on free ports whose data is in `directory`."""
    running = Notifier(NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=directory, **settings))
    async with AsyncExitStack() as stack:
        await running.start(stack)
        yield running


@asynccontextmanager
async def peers(running: Notifier | int) -> AsyncIterator[Peers]:
    """Opens connections to a notifier (or a port) and closes them at the end."""
    opened = Peers(running if isinstance(running, int) else running.port)
    try:
        yield opened
    finally:
        for peer in opened.all:
            peer.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(peer.ended.wait(), 5)


class Peers:
    def __init__(self, port: int) -> None:
        self.port = port
        self.all: list[Peer] = []

    async def node(self, **options: Any) -> Node:
        return await self._open(Node(), "/save", **options)

    async def consumer(self) -> Consumer:
        return await self._open(Consumer(), "/hub/ws")

    async def _open(self, peer: Any, path: str, **options: Any) -> Any:
        await websocket.connect(f"ws://127.0.0.1:{self.port}{path}", peer, **options)
        self.all.append(peer)
        return peer


def unique_name() -> str:
    """A name that no other test uses: of a schema, a queue, a group of keys."""
    return f"t{secrets.token_hex(6)}"


class Ran(NamedTuple):
    """A header's execution, for `proposal`: what it is called, and the events of one transaction that it ran."""

    block_hash: bytes
    nonce: int
    events: Sequence[pb.Event] = ()
    balance: str = "1"
    """Of an account that the execution changed: honest nodes differ in it."""
    count: int = 1
    """Transactions and results, as its header counts."""


def proposal(shard: int, nonce: int, label: object = "", ran: Sequence[Ran] = (), **fields: Any) -> pb.OutportBlock:
    """A block that only proposes, and brings the executions of earlier headers of its shard."""
    results = [
        pb.ExecutionResult(
            baseExecutionResult=pb.BaseExecutionResult(
                headerHash=one.block_hash, headerNonce=one.nonce, headerRound=one.nonce + 100, headerEpoch=7
            ),
            developerFees=b"\0\0",
            accumulatedFees=b"\0\5",
            executedTxCount=one.count,
        )
        for one in ran
    ]
    header = pb.HeaderV3(
        nonce=nonce,
        round=nonce + 100,
        epoch=7,
        shardID=shard,
        randSeed=block_hash((shard, nonce, label)),
        timestampMs=1_700_000_000_000 + 600 * nonce,
        executionResults=results,
    )
    block = pb.OutportBlock(shardID=shard, numberOfShards=3, **fields)
    block.transactionPool.SetInParent()
    data = block.blockData
    data.shardID, data.headerType, data.timestampMs = shard, "HeaderV3", header.timestampMs
    data.headerBytes = outport.serialize(header)
    data.headerHash = hashlib.blake2b(data.headerBytes, digest_size=32).digest()
    for one in ran:
        result = data.results[one.block_hash.hex()]
        result.headerNonce, result.timestampMs = one.nonce, 1_700_000_000_000 + 600 * one.nonce
        result.transactionPool.SetInParent()
        result.alteredAccounts["someone"].balance = one.balance
        if one.events:
            log = result.transactionPool.logs.add(txHash=block_hash(("tx", shard, one.nonce)).hex())
            log.log.events.extend(one.events)
    return block


def ran(block: pb.OutportBlock, *events: pb.Event, balance: str = "1") -> Ran:
    """The execution of a block that was proposed."""
    header = read_header(block.blockData)
    assert header is not None
    return Ran(block.blockData.headerHash, header.nonce, events, balance)
