"""How fast the notifier takes blocks from nodes to disk and on to consumers.

Goals: a stream of 200 KB blocks at 20 MB/s and more on one core, with the journal on and one consumer; from a
node's frame to the consumer's frame at most 20 ms in 99 of 100 cases at four blocks a second; 1,000 filtered
subscribers cost at most twice one; an hour of a four-shard chain (2,400 blocks) in 60 s; memory flat over it.

The notifier runs in a process of its own; what is measured of it is the time that passes here and the CPU time
there. The floor is what cannot be saved: the same blocks decoded, encoded and committed to the same database.
Usage: `python benchmarks/notifier.py [--quick]`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from millrace.chain import address, outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.journal.sqlite_store import Store
from millrace.notifier.rules import messages
from millrace.runtime import websocket
from millrace.system.ports import free_ports

_TICKS = os.sysconf("SC_CLK_TCK")


def make_block(shard: int, nonce: int, rng: random.Random) -> bytes:
    """A busy block of about 200 KB: 120 transactions, 180 results, 180 logs with 520 events, 250 accounts."""
    block = pb.OutportBlock(shardID=shard, numberOfShards=3, highestFinalBlockNonce=max(0, nonce - 1))
    header = pb.HeaderV2(header=pb.Header(nonce=nonce, round=nonce, shardID=shard, txCount=300))
    data = block.blockData
    data.shardID, data.headerType, data.headerHash = shard, "HeaderV2", rng.randbytes(32)
    data.headerBytes, data.timestampMs = header.SerializeToString(), 1_700_000_000_000 + nonce
    pool = block.transactionPool
    people = [rng.randbytes(32) for _ in range(250)]
    hashes = [rng.randbytes(32) for _ in range(120)]
    for order, tx_hash in enumerate(hashes):
        info = pool.transactions[tx_hash.hex()]
        info.executionOrder = order
        info.transaction.nonce, info.transaction.value = nonce, b"\0\x0d\xe0\xb6\xb3\xa7\x64\0\0"
        info.transaction.sender, info.transaction.receiver = rng.choice(people), rng.choice(people)
        info.transaction.data, info.transaction.signature = rng.randbytes(180), rng.randbytes(64)
        info.feeInfo.gasUsed, info.feeInfo.fee = 5_000_000, b"\0\x2d\x79\x88\x3d\x20\0"
    data.body.miniBlocks.add(senderShardID=shard, receiverShardID=shard, txHashes=hashes)
    owners = list(hashes)
    for order in range(180):
        result = rng.randbytes(32)
        info = pool.smartContractResults[result.hex()]
        info.executionOrder = 120 + order
        content = info.smartContractResult
        content.originalTxHash = content.prevTxHash = rng.choice(hashes)
        content.sender, content.receiver = rng.choice(people), rng.choice(people)
        content.data, content.value = rng.randbytes(120), b"\0\0"
        owners.append(result)
    for owner in rng.sample(owners, 180):
        log = pool.logs.add(txHash=owner.hex())
        log.log.address = rng.choice(people)
        for _ in range(rng.choice((2, 3, 3, 4))):
            log.log.events.add(
                address=rng.choice(people),
                identifier=rng.choice((b"ESDTTransfer", b"swap", b"writeLog", b"completedTxEvent")),
                topics=[b"WEGLD-bd4d79", b"", rng.randbytes(8), rng.choice(people)],
                data=rng.randbytes(40),
            )
    for person in people:
        text = address.encode(person)
        account = block.alteredAccounts[text]
        account.address, account.nonce, account.balance = text, nonce, str(rng.randrange(10**21))
        account.tokens.add(identifier="WEGLD-bd4d79", balance=str(rng.randrange(10**21)))
    return block.SerializeToString()


class Node(websocket.Session):
    """Sends the next payload when the last one is acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = 0
        self.acked = asyncio.Event()

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self.acked.set()

    async def tell(self, payload: bytes) -> None:
        self.counter += 1
        self.acked.clear()
        self.send_binary(outport.payload_envelope(outport.SAVE_BLOCK, payload, self.counter))
        await self.acked.wait()


class Consumer(websocket.Session):
    """Counts frames and notes when they came; acknowledges every 16th."""

    max_message_size = 80 * 1024 * 1024

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.times: list[float] = []
        self.replies = 0
        self.news = asyncio.Event()

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        if data[:2] != b"\x08\x01":
            self.replies += 1
        else:
            self.count += 1
            self.times.append(time.perf_counter())
            if self.count % 16 == 0:
                # The counter is the second field, right behind withAcknowledge.
                self.send_binary(b"\x10" + data[3 : data.index(b"\x18", 3)] + b"\x18\x01")
        self.news.set()

    async def until(self, count: int) -> None:
        while self.count < count:
            self.news.clear()
            async with asyncio.timeout(60):
                await self.news.wait()


class Service:
    """A notifier in a process of its own."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(2)
        self.port, self.http_port = ports
        arguments = [f"port={self.port}", f"http_port={self.http_port}", f"data_dir={directory}"]
        flags = [word for argument in arguments for word in ("--set", argument)]
        self.process = subprocess.Popen([sys.executable, "-m", "millrace", "notifier", "--log-level", "error", *flags])

    async def ready(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{self.http_port}/health"):
                        return
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)

    def cpu(self) -> float:
        """CPU seconds used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> float:
        """Resident MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    async def node(self) -> Node:
        node = Node()
        await websocket.connect(f"ws://127.0.0.1:{self.port}/save", node)
        return node

    async def consumer(self, **wish: object) -> Consumer:
        consumer = Consumer()
        await websocket.connect(f"ws://127.0.0.1:{self.port}/hub/ws", consumer)
        payload = hub_pb2.SubscribeEvent(**wish).SerializeToString()  # type: ignore[arg-type]
        message = pb.WsMessage(type=outport.PAYLOAD, topic="subscribe", payload=payload)
        consumer.send_binary(message.SerializeToString())
        while not consumer.replies:
            consumer.news.clear()
            await consumer.news.wait()
        return consumer

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def blocks(count: int, seed: int, shards: int = 4) -> Iterator[bytes]:
    """Blocks of several shards, in turn: a few different ones, each time with a header of its own."""
    rng = random.Random(seed)
    templates = [make_block(number % shards, 1, rng) for number in range(10 * shards)]
    for number in range(count):
        block = pb.OutportBlock.FromString(templates[number % len(templates)])
        nonce = number // shards + 1 + 10_000 * seed
        header = pb.HeaderV2(header=pb.Header(nonce=nonce, round=nonce, shardID=block.shardID, txCount=300))
        block.blockData.headerBytes = header.SerializeToString()
        block.blockData.headerHash = rng.randbytes(32)
        yield block.SerializeToString()


async def send_all(nodes: list[Node], payloads: Iterator[bytes]) -> tuple[int, int]:
    """Each node sends its shard's next block when the last is acknowledged; returns blocks and bytes."""
    sent = []

    async def one(node: Node) -> None:
        for payload in payloads:
            sent.append(len(payload))
            await node.tell(payload)

    await asyncio.gather(*(one(node) for node in nodes))
    return len(sent), sum(sent)


def floor(payloads: list[bytes]) -> float:
    """MB/s of decoding, encoding and committing, nothing else, one block per commit."""
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory), writer=True)
        began = time.perf_counter()
        for payload in payloads:
            message = pb.OutportBlock.FromString(payload)
            store.begin()
            store.append("SaveBlock", 0, 0, messages.content_digest(message).hex(), 0, message.SerializeToString())
            store.commit()
        seconds = time.perf_counter() - began
        store.close()
    return sum(map(len, payloads)) / 1e6 / seconds


async def throughput(service: Service, count: int) -> float:
    """Stream `count` blocks from four nodes; returns MB per CPU second of the notifier."""
    consumer = await service.consumer(event_type="All")
    nodes = [await service.node() for _ in range(4)]
    stream = blocks(count, 1)
    cpu, began, memory, total = service.cpu(), time.perf_counter(), [service.memory()], 0
    for _ in range(4):
        _, size = await send_all(nodes, itertools.islice(stream, count // 4))
        total += size
        memory.append(service.memory())
    await consumer.until(count)
    seconds, cpu = time.perf_counter() - began, service.cpu() - cpu
    print(
        f"stream      {count} blocks, {total / 1e6:.0f} MB in {seconds:.1f} s (their making included):"
        f" {total / 1e6 / seconds:.1f} MB/s (goal 20), {total / 1e6 / cpu:.1f} MB per CPU second"
    )
    print(f"replay      one hour of four shards, 2,400 such blocks: {2400 * seconds / count:.1f} s (goal 60)")
    print(f"memory      {' -> '.join(f'{megabytes:.0f}' for megabytes in memory)} MB, at every quarter")
    for session in (consumer, *nodes):
        session.close()
    return total / 1e6 / cpu


async def latency(service: Service, payloads: list[bytes]) -> None:
    consumer, node = await service.consumer(event_type="All"), await service.node()
    waits = []
    for payload in payloads:
        began = time.perf_counter()
        seen = consumer.count
        await node.tell(payload)
        await consumer.until(seen + 1)
        waits.append((consumer.times[-1] - began) * 1000)
        await asyncio.sleep(0.25)
    waits.sort()
    print(
        f"latency     node frame to consumer frame at 4 blocks/s, {len(waits)} blocks:"
        f" p50 {statistics.median(waits):.1f} ms, p99 {waits[int(len(waits) * 0.99)]:.1f} ms (goal 20)"
    )
    consumer.close()
    node.close()


async def fan_out(service: Service, payloads: list[bytes], subscribers: int) -> float:
    """CPU seconds per block with so many subscribers, each with a filter of its own that matches nothing else."""
    consumers = [await service.consumer(event_type="All")]
    rng = random.Random(5)
    for _ in range(subscribers):
        person = address.encode(rng.randbytes(32))
        consumers.append(await service.consumer(event_type="Address", address=person))
    node = await service.node()
    cpu = service.cpu()
    for payload in payloads:
        await node.tell(payload)
    await consumers[0].until(len(payloads))
    spent = (service.cpu() - cpu) / len(payloads)
    for session in (node, *consumers):
        session.close()
    return spent


async def main(quick: bool) -> None:
    sample = list(blocks(100, 9))
    print(f"blocks      {sum(map(len, sample)) / len(sample) / 1000:.0f} KB on average")
    bottom = floor(sample)
    with tempfile.TemporaryDirectory() as directory:
        service = Service(Path(directory))
        try:
            await service.ready()
            speed = await throughput(service, 200 if quick else 2400)
            print(f"floor       {bottom:.1f} MB/s; the notifier's cost is {bottom / speed:.2f} times the floor's")
            await latency(service, list(blocks(40 if quick else 200, 2)))
            one = await fan_out(service, list(blocks(60, 3)), 1)
            many = await fan_out(service, list(blocks(60, 4)), 1000)
            print(
                f"filters     {one * 1000:.1f} ms of CPU per block with 1 filtered subscriber,"
                f" {many * 1000:.1f} with 1,000: {many / one:.2f} times (goal 2)"
            )
        finally:
            service.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the work")
    asyncio.run(main(parser.parse_args().quick))
