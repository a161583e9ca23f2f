"""How fast the notifier takes blocks from nodes to disk and on to consumers.

Bars: CPU of one block of 266 KB at most 4.0 ms with a consumer of the hub, 4.6 ms with RabbitMQ beside it, and with
the hub 1.3 times the floor; 20 MB/s and more with the journal on; from a node's frame to the consumer's at most 15 ms
in 99 of 100 cases at four shards of 600 ms; in RabbitMQ's queue within 60 ms in 99 of 100 cases at 80 % of its own full
rate; 1,000 filtered subscribers cost at most twice one; an hour of four shards (2,400 blocks) in 60 s; memory at most
100 MB.

The notifier runs in a process of its own; what is measured of it is the time that passes here and the CPU time
there. The floor is what a service cannot save that is written with the usual libraries: the same blocks decoded,
digested and encoded, and each committed as a row of SQLite, and so its execution (WAL, synchronous = FULL, pages of
2 KB, no checkpoint). That is what the journal did when the bar of 1.3 was set, and it does not move with what the
journal does now. The second floor, the same with our own log of today in SQLite's place, says what is left to save. It
has no bar: each gain of the log would count as a loss of the service.
Floor and notifier take a hundred blocks each by turns, and the median of the turns' ratios counts: measured once and
before all else, the floor met another machine than the notifier did.
Blocks come in today's format, in which a block brings the execution of the one before and a consumer is told both; with
`--earlier` in the earlier one.
Usage: `python benchmarks/notifier.py [--quick] [--without-rabbitmq] [--earlier]`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import aio_pika
import aiohttp

from _node_blocks import EARLIER, TODAY, Format, blocks
from _report import Report
from millrace.chain import address, outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.journal.file_store import Store
from millrace.notifier.rules import slices
from millrace.runtime import websocket
from millrace.system.ports import free_ports

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from servers.rabbitmq import Broker

_CPU_CLOCK = 2  # how Linux names the clock of what a process has run, whose number stands before it: nanoseconds
_TURN = 100  # blocks for the notifier, and as many for the floor before them: the machine's speed changes in seconds


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

    def __init__(self, directory: Path, **settings: object) -> None:
        self.port, self.http_port = free_ports(2)
        given = {"port": self.port, "http_port": self.http_port, "metrics_port": 0, "data_dir": directory} | settings
        arguments = [f"{name}={value}" for name, value in given.items()]
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

    async def drained(self) -> None:
        """Return once every broker has what the journal has."""
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"http://127.0.0.1:{self.http_port}/health") as answer:
                    sinks = (await answer.json()).get("sinks", {})
                if all(sink["lag"] == 0 for sink in sinks.values()):
                    return
                await asyncio.sleep(0.02)

    def cpu(self) -> float:
        """CPU seconds used so far."""
        return time.clock_gettime(~self.process.pid << 3 | _CPU_CLOCK)

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


async def send_all(nodes: list[Node], payloads: Iterator[bytes]) -> tuple[int, int]:
    """Each node sends its shard's next block when the last is acknowledged; returns blocks and bytes."""
    sent = []

    async def one(node: Node) -> None:
        for payload in payloads:
            sent.append(len(payload))
            await node.tell(payload)

    await asyncio.gather(*(one(node) for node in nodes))
    return len(sent), sum(sent)


def encoded(payload: bytes) -> list[bytes]:
    """A block decoded and encoded again, and the executions that it brings."""
    block = pb.OutportBlock.FromString(payload)
    return [one.SerializeToString(deterministic=True) for one in (block, *block.blockData.results.values())]


def floor(payloads: Sequence[bytes]) -> float:
    """CPU seconds a block of decoding, digesting, encoding and committing to SQLite, one block per commit."""
    with tempfile.TemporaryDirectory() as directory:
        database = sqlite3.connect(Path(directory) / "floor.sqlite3", isolation_level=None)
        for setting in ("page_size = 2048", "journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
            database.execute(f"PRAGMA {setting}")
        database.execute("CREATE TABLE events (sequence INTEGER PRIMARY KEY, digest BLOB, payload BLOB)")
        began = time.process_time()
        for payload in payloads:
            rows = encoded(payload)
            digest = hashlib.blake2b(rows[0], digest_size=16).digest()
            database.execute("BEGIN")
            database.executemany("INSERT INTO events (digest, payload) VALUES (?,?)", [(digest, row) for row in rows])
            database.execute("COMMIT")
        seconds = time.process_time() - began
        database.close()
    return seconds / len(payloads)


def floor_of_log(payloads: list[bytes]) -> float:
    """CPU seconds a block of decoding, digesting, encoding and committing to our own log, one block per commit."""
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        began = time.process_time()
        for payload in payloads:
            rows = encoded(payload)
            digest = slices.digest(rows[0])
            store.begin()
            for row in rows:
                store.append("SaveBlock", 0, 0, digest.hex(), 0, row)
            store.commit()
        seconds = time.process_time() - began
        store.close()
    return seconds / len(payloads)


class Stream(NamedTuple):
    """What streaming as fast as the notifier takes it came to."""

    cpu: float
    """CPU seconds of the notifier a block."""
    floors: list[float]
    """CPU seconds of the floor a block, in each turn."""
    ratios: list[float]
    """CPU of the notifier by that of the floor, in each turn."""
    rate: float
    """Blocks a second."""
    megabytes: float
    """A second."""
    memory: float
    """Resident MB, the most after any turn."""


async def throughput(service: Service, form: Format, count: int, seed: int, some: Sequence[bytes] = ()) -> Stream:
    """Stream `count` blocks from four nodes, with one consumer of the hub; before each turn the floor takes `some`."""
    consumer = await service.consumer(event_type="All")
    nodes = [await service.node() for _ in range(4)]
    payloads = list(blocks(count, seed, form))
    cpu, seconds, memory = service.cpu(), 0.0, 0.0
    floors, ratios = [], []
    for first in range(0, count, _TURN):
        turn = payloads[first : first + _TURN]
        if some:
            floors.append(floor(some))
        turn_cpu, began = service.cpu(), time.perf_counter()
        await send_all(nodes, iter(turn))
        await consumer.until(form.told * (first + len(turn)))
        if some:
            ratios.append((service.cpu() - turn_cpu) / len(turn) / floors[-1])
        seconds += time.perf_counter() - began
        memory = max(memory, service.memory())
    began = time.perf_counter()
    await service.drained()
    seconds, cpu = seconds + time.perf_counter() - began, service.cpu() - cpu
    for session in (consumer, *nodes):
        session.close()
    return Stream(cpu / count, floors, ratios, count / seconds, sum(map(len, payloads)) / 1e6 / seconds, memory)


async def latency(service: Service, form: Format, payloads: list[bytes]) -> tuple[float, float]:
    """Milliseconds from a node's frame to the consumer's, median and 99th percentile, at four shards of 600 ms."""
    consumer = await service.consumer(event_type="All")
    nodes = [await service.node() for _ in range(4)]
    waits = []
    for number, payload in enumerate(payloads):
        began = time.perf_counter()
        seen = consumer.count
        await nodes[number % 4].tell(payload)
        await consumer.until(seen + form.told)
        waits.append((consumer.times[-1] - began) * 1000)
        await asyncio.sleep(max(0.0, 0.15 - (time.perf_counter() - began)))
    for session in (consumer, *nodes):
        session.close()
    return statistics.median(waits), percentile_99(waits)


async def bind_queue(url: str) -> None:
    """Have a queue take every message and keep a few: the broker returns, body and all, what no queue takes."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("millrace", aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue("kept", durable=True, arguments={"x-max-length": 64})
        await queue.bind(exchange, "#")


async def rabbitmq_lag(service: Service, url: str, payloads: list[bytes], rate: float) -> tuple[float, float]:
    """Milliseconds from a node's frame to a queue's consumer, median and 99th percentile; `rate` in blocks a second."""
    nodes = [await service.node() for _ in range(4)]
    sent: dict[str, float] = {}
    waits: list[float] = []
    done = asyncio.Event()

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        began = sent.get((message.message_id or "::").split(":")[2])
        if began is not None:
            waits.append((time.perf_counter() - began) * 1000)
            if len(waits) == len(payloads):
                done.set()

    connection = await aio_pika.connect(url)
    try:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("millrace", aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "SaveBlock.*")
        await queue.consume(take, no_ack=True)
        began = time.perf_counter()

        async def one(node: Node, start: int) -> None:
            for number in range(start, len(payloads), 4):
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
                name = pb.OutportBlock.FromString(payloads[number]).blockData.headerHash.hex()
                sent[name] = time.perf_counter()
                await node.tell(payloads[number])

        async with asyncio.timeout(120):
            await asyncio.gather(*(one(node, start) for start, node in enumerate(nodes)))
            await done.wait()
    finally:
        await connection.close()
        for node in nodes:
            node.close()
    return statistics.median(waits), percentile_99(waits)


def percentile_99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


async def fan_out(service: Service, form: Format, payloads: list[bytes], subscribers: int) -> float:
    """CPU seconds per block with so many subscribers, each with a filter of its own that matches nothing else."""
    consumers = [await service.consumer(event_type="All")]
    rng = random.Random(5)
    for _ in range(subscribers):
        person = address.encode(rng.randbytes(32))
        consumers.append(await service.consumer(event_type="Address", address=person))
    node = await service.node()
    for payload in payloads[:4]:  # nothing is known of what came before them, and all are told so
        await node.tell(payload)
    await consumers[0].until(4 * form.told)
    cpu = service.cpu()
    for payload in payloads[4:]:
        await node.tell(payload)
    await consumers[0].until(form.told * len(payloads))
    spent = (service.cpu() - cpu) / len(payloads[4:])
    for session in (node, *consumers):
        session.close()
    return spent


async def with_hub(report: Report, form: Format, count: int, few: int) -> None:
    some = list(blocks(100, 9, form))
    with tempfile.TemporaryDirectory() as directory:
        service = Service(Path(directory))
        try:
            await service.ready()
            stream = await throughput(service, form, count, 1, some)
            report.add("blocks", 266.0, "KB")
            report.add("stream to disk and one consumer", stream.megabytes, "MB/s", (">=", 20.0))
            report.add("an hour of four shards", 2400 / stream.rate, "s", ("<=", 60.0))
            report.add("CPU a block, hub", stream.cpu * 1000, "ms", ("<=", 4.0))
            report.add("floor: decode, digest, encode, a row of SQLite", statistics.median(stream.floors) * 1000, "ms")
            report.add("times the floor", statistics.median(stream.ratios), "", ("<=", 1.3))
            report.add("the same with our own log", floor_of_log(some) * 1000, "ms")
            report.add("memory", stream.memory, "MB", ("<=", 100.0))
            middle, most = await latency(service, form, list(blocks(few, 2, form)))
            report.add("node to consumer at 6.7 blocks/s, p50", middle, "ms")
            report.add("node to consumer at 6.7 blocks/s, p99", most, "ms", ("<=", 15.0))
            one = await fan_out(service, form, list(blocks(60, 3, form)), 1)
            many = await fan_out(service, form, list(blocks(60, 4, form)), 1000)
            report.add("1,000 filtered subscribers against one", many / one, "", ("<=", 2.0))
        finally:
            service.stop()


async def with_rabbitmq(report: Report, form: Format, count: int, few: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "broker").mkdir()
        broker = Broker(Path(directory) / "broker")
        broker.start()
        try:
            service = Service(Path(directory) / "data", amqp_url=broker.url)
            try:
                await service.ready()
                await bind_queue(broker.url)
                stream = await throughput(service, form, count, 5)
                report.add("stream with RabbitMQ", stream.megabytes, "MB/s")
                report.add("CPU a block, hub and RabbitMQ", stream.cpu * 1000, "ms", ("<=", 4.6))
                report.add("memory with RabbitMQ", stream.memory, "MB", ("<=", 100.0))
                rate = 0.8 * stream.rate
                middle, most = await rabbitmq_lag(service, broker.url, list(blocks(few, 6, form)), rate)
                report.add(f"node to queue at {rate:.0f} blocks/s, p50", middle, "ms")
                report.add(f"node to queue at {rate:.0f} blocks/s, p99", most, "ms", ("<=", 60.0))
            finally:
                service.stop()
        finally:
            broker.close()


async def main(quick: bool, rabbitmq: bool, form: Format) -> int:
    report = Report("notifier" if form is TODAY else "notifier_earlier")
    count, few = (200, 60) if quick else (2400, 400)
    await with_hub(report, form, count, few)
    if rabbitmq:
        await with_rabbitmq(report, form, count // 4, few)
    return report.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--without-rabbitmq", action="store_true", help="the hub alone")
    parser.add_argument("--earlier", action="store_true", help="blocks that bring their own execution")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.quick, not given.without_rabbitmq, EARLIER if given.earlier else TODAY)))
