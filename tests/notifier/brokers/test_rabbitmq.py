"""Delivery to a real RabbitMQ: nothing is lost whatever is killed, and what comes twice has the same id."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue

from millrace.chain import outport
from millrace.chain.proto import hub_pb2
from millrace.chain.shard import METACHAIN
from millrace.notifier import app
from millrace.notifier.app import Notifier
from millrace.notifier.brokers.cursor_file import CursorUnusable
from millrace.notifier.journal.journal import Journal
from millrace.notifier.rules.entry import Entry
from millrace.notifier.settings import NotifierSettings
from millrace.runtime.process import run_service
from millrace.runtime.settings import Secret
from millrace.system.ports import free_ports
from servers.rabbitmq import Broker
from waiting import until

from ..helpers import WAIT, Node, event, notifier, peers, save_block
from ..journal_files import entries
from ..test_operators import get
from ..test_torture import Torture

pytestmark = pytest.mark.usefixtures("quick_back_off")


@pytest.fixture
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait half a second for the next attempt."""
    monkeypatch.setattr("millrace.notifier.brokers.sink.BACK_OFF", (0.01, 0.1))


CURSOR_FILE = "amqp.cursor"


class Row(NamedTuple):
    """An event of the journal."""

    sequence: int
    topic: str
    shard: int
    message_id: str
    payload: bytes


def journal(directory: Path) -> list[Row]:
    """Every event of the journal, in order."""
    return [Row(e.sequence, e.topic, e.shard, e.message_id, e.payload) for e in entries(directory)]


@asynccontextmanager
async def queue(broker: Broker, name: str, key: str = "#", **arguments: Any) -> AsyncIterator[AbstractQueue]:
    """A durable queue bound to the durable exchange `name`; it outlives its connection."""
    async with await broker.connect() as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, durable=True)
        found = await channel.declare_queue(f"{name}-{key}", durable=True, arguments=arguments)
        await found.bind(exchange, key)
        yield found


async def take(source: AbstractQueue, wanted: Iterable[str]) -> list[AbstractIncomingMessage]:
    """Messages until all `wanted` ids were there, and those that still wait behind."""
    missing, taken = set(wanted), []
    async with source.iterator(timeout=WAIT) as messages:
        while missing:
            message = await anext(messages)
            await message.ack()
            missing.discard(message.message_id or "")
            taken.append(message)
    while (more := await source.get(fail=False, no_ack=True)) is not None:
        taken.append(more)
    return taken


def check(taken: list[AbstractIncomingMessage], rows: list[Row]) -> None:
    """Everything came; equal ids are equal messages; without all but the last of each, the order is the journal's."""
    by_id = {row.message_id: row for row in rows}
    assert {message.message_id for message in taken} == set(by_id)
    for message in taken:
        row = by_id[message.message_id or ""]
        assert (message.headers["sequence"], message.headers["topic"]) == (row.sequence, row.topic)
        assert message.body == row.payload
    last = {message.message_id: number for number, message in enumerate(taken)}
    assert sorted(by_id, key=lambda id_: last[id_]) == [row.message_id for row in rows]


def amqp(broker: Broker, name: str, **more: Any) -> dict[str, Any]:
    return {"amqp_url": Secret(broker.url), "amqp_exchange": name, **more}


def sink(running: Notifier) -> Any:
    (found,) = running.sinks
    return found


def count(running: Notifier, name: str) -> float:
    """What a metric of the sink shows."""
    value = running.metrics.registry.get_sample_value(f"notifier_sink_{name}_total", {"sink": "amqp"})
    assert value is not None
    return value


async def test_messages(broker: Broker, tmp_path: Path) -> None:
    """Events of all shards come in order, persistent, with routing key, id, headers and body; each just once."""
    async with queue(broker, "plain") as everything, queue(broker, "plain", "mvx.SaveBlock.1") as one:
        async with notifier(tmp_path, **amqp(broker, "plain", amqp_prefix="mvx")) as running, peers(running) as connect:
            node = await connect.node()
            for nonce in range(20):
                for shard in (0, 1, METACHAIN):
                    block = save_block(shard, nonce, events=[event(b"\1" * 32, "swap", b"x")])
                    await node.save(block)
                    await node.finalise(block)
            await node.save(save_block(0, 19, "fork"))
            await until(lambda: sink(running).lag == 0)
        rows = journal(tmp_path)
        taken = await take(everything, [row.message_id for row in rows])
        check(taken, rows)
        assert len(taken) == len(rows) == 121
        for message, row in zip(taken, rows, strict=True):
            assert message.routing_key == f"mvx.{row.topic}.{row.shard}"
            assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
            assert message.content_type == message.headers["content-type"] == "application/protobuf"
            assert message.headers["shard-id"] == row.shard
        assert "marks" not in taken[0].headers and taken[-1].headers["marks"] == 1
        only = [row for row in rows if (row.topic, row.shard) == (outport.SAVE_BLOCK, 1)]
        check(await take(one, [row.message_id for row in only]), only)


async def test_news_is_not_read_back(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the sink keeps up it publishes what was just committed from memory; the disk is read for what is older."""
    async with queue(broker, "memory"):
        pass
    reads: list[int] = []
    read = Journal.read

    async def noted(self: Journal, after: int, max_bytes: int) -> list[Entry]:
        reads.append(after)
        return await read(self, after, max_bytes)

    monkeypatch.setattr(Journal, "read", noted)
    async with notifier(tmp_path, **amqp(broker, "memory")) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(20):
            await node.save(save_block(0, nonce))
        await until(lambda: sink(running).lag == 0)
        assert not reads
    (tmp_path / CURSOR_FILE).unlink()
    async with notifier(tmp_path, **amqp(broker, "memory")) as running:
        await until(lambda: sink(running).lag == 0)
        assert reads


async def test_large_and_small_messages_keep_their_order(broker: Broker, tmp_path: Path) -> None:
    """Messages that wait for the socket, for their size, and those that do not are published in the journal's order."""
    async with queue(broker, "sizes") as everything:
        async with notifier(tmp_path, **amqp(broker, "sizes", amqp_window=64)) as running, peers(running) as connect:
            node = await connect.node()
            posted = [
                node.post(
                    outport.SAVE_BLOCK,
                    save_block(0, n, events=[event(b"\1" * 32, "e", data=bytes(size))]).SerializeToString(),
                )
                for n, size in enumerate([600_000, 10, 700_000, 1_500_000, 20, 30, 400_000] * 10)
            ]
            for counter in posted:
                await node.acked(counter)
            await until(lambda: sink(running).lag == 0)
        rows = journal(tmp_path)
        taken = await take(everything, [row.message_id for row in rows])
        assert [message.message_id for message in taken] == [row.message_id for row in rows]


async def test_broker_killed(broker: Broker, tmp_path: Path) -> None:
    """The broker dies in the middle, twice: nodes go on being answered, nothing is lost, ids tell what came twice."""
    async with queue(broker, "killed"):
        pass
    await broker.settle()
    async with notifier(tmp_path, **amqp(broker, "killed", amqp_window=16)) as running, peers(running) as connect:
        node = await connect.node()
        for kill in range(2):
            for nonce in range(100):
                await node.save(save_block(nonce % 3, 1000 * kill + nonce, events=[event(b"\1" * 32, "e")] * 50))
                if nonce == 50:
                    confirmed = sink(running).cursor
                    broker.kill()
            await until(lambda: sink(running).problems)
            assert confirmed <= sink(running).cursor < running.journal.head
            status, body = await get(running, "/health")
            assert (status, body["status"], body["sinks"]["amqp"]["connected"]) == (200, "degraded", False)
            await broker.restart()
            await until(lambda: sink(running).lag == 0)
        assert count(running, "reconnects") >= 2
        assert (await get(running, "/health"))[1]["status"] == "ok"
    rows = journal(tmp_path)
    async with queue(broker, "killed") as everything:
        check(await take(everything, [row.message_id for row in rows]), rows)


async def test_notifier_killed(broker: Broker, tmp_path: Path) -> None:
    """The notifier dies again and again: it goes on at its cursor, nothing is lost, ids tell what came twice."""
    kills, per_kill = 4, 60
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["millrace.notifier.app"])
    port = free_ports(1)[0]
    options = amqp(broker, "murdered", amqp_window=8)
    main = functools.partial(
        app.run, NotifierSettings(port=port, http_port=0, metrics_port=0, data_dir=tmp_path, **options)
    )
    reach = Torture(tmp_path)
    reach.port = port
    cursor = tmp_path / CURSOR_FILE
    async with queue(broker, "murdered") as everything:
        for kill in range(kills):
            process = context.Process(target=run_service, args=(main,), daemon=True)
            process.start()
            try:
                async with asyncio.timeout(WAIT):
                    node = await reach.connect(Node, "/save")
                for nonce in range(per_kill):
                    await node.save(save_block(nonce % 2, per_kill * kill + nonce))
                head = journal(tmp_path)[-1].sequence
                if kill % 2:  # the others die before they can tell how far they came
                    await until(lambda head=head: cursor.exists() and int(cursor.read_text().split()[0]) == head)
            finally:
                process.kill()
                await asyncio.to_thread(process.join)
        assert int(cursor.read_text().split()[0]) > journal(tmp_path)[0].sequence
        async with notifier(tmp_path, **options) as running:
            await until(lambda: sink(running).lag == 0)
        rows = journal(tmp_path)
        assert len(rows) == kills * per_kill
        taken = await take(everything, [row.message_id for row in rows])
        check(taken, rows)
        assert len(taken) < 2 * len(rows), "the cursor was not used"


async def test_restart_repeats_nothing(broker: Broker, tmp_path: Path) -> None:
    """After an orderly stop nothing is published again."""
    async with queue(broker, "orderly") as everything:
        for nonce in range(3):
            async with notifier(tmp_path, **amqp(broker, "orderly")) as running, peers(running) as connect:
                await (await connect.node()).save(save_block(0, nonce))
                await until(lambda running=running: sink(running).lag == 0)
        rows = journal(tmp_path)
        assert len(await take(everything, [row.message_id for row in rows])) == len(rows) == 3


async def test_unroutable(broker: Broker, tmp_path: Path) -> None:
    """Messages that no queue is bound for are counted, and delivery goes on."""
    async with queue(broker, "partly", "SaveBlock.1") as bound:
        async with notifier(tmp_path, **amqp(broker, "partly")) as running, peers(running) as connect:
            node = await connect.node()
            for nonce in range(30):
                await node.save(save_block(nonce % 3, nonce))
            await until(lambda: sink(running).lag == 0)
            metrics = running.metrics
            counts = metrics.amqp_unroutable._value.get(), count(running, "confirmed")
            assert counts == (20, 30)
            _, text = await get(running, "/metrics")
            values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            assert float(values['notifier_sink_cursor{sink="amqp"}']) == running.journal.head
            assert (values['notifier_sink_connected{sink="amqp"}'], values['notifier_sink_queue{sink="amqp"}']) == (
                "1.0",
                "0.0",
            )
        wanted = [row for row in journal(tmp_path) if row.shard == 1]
        check(await take(bound, [row.message_id for row in wanted]), wanted)


async def test_broker_down_at_start(broker: Broker, tmp_path: Path) -> None:
    """Without its broker the notifier starts, answers nodes and serves consumers; later it catches up by itself."""
    async with queue(broker, "late"):
        pass
    await broker.settle()
    broker.kill()
    async with notifier(tmp_path, **amqp(broker, "late")) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        node = await connect.node()
        for nonce in range(10):
            await node.save(save_block(0, nonce))
        assert len(await consumer.events(10)) == 10
        status, body = await get(running, "/health")
        assert (status, body["status"], body["sinks"]["amqp"]["lag"]) == (200, "degraded", 10)
        assert "guest" not in str(body)
        assert (await get(running, "/ready"))[0] == 200
        await broker.restart()
        await until(lambda: sink(running).lag == 0)
        assert (await get(running, "/health"))[1]["status"] == "ok"
    rows = journal(tmp_path)
    async with queue(broker, "late") as everything:
        check(await take(everything, [row.message_id for row in rows]), rows)


async def test_silent_broker(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stops answering fills its window and no more; the hub feels nothing; a new connection is tried."""
    monkeypatch.setattr("millrace.notifier.brokers.sink.OPEN_SECONDS", 0.5)
    monkeypatch.setattr("millrace.notifier.brokers.sink.CLOSE_SECONDS", 0.2)
    options = amqp(broker, "silent", amqp_window=4, amqp_confirm_timeout=1.0)
    async with queue(broker, "silent"):
        pass
    async with notifier(tmp_path, **options) as running, peers(running) as connect:
        consumer = await connect.consumer()
        await consumer.subscribe()
        node = await connect.node()
        await node.save(save_block(0, 0))
        await until(lambda: sink(running).lag == 0)
        broker.pause()
        try:
            for nonce in range(1, 60):
                await node.save(save_block(0, nonce, events=[event(b"\1" * 32, "e")] * 100))
                assert sink(running).queued <= 4
            assert len(await consumer.events(60)) == 60
            assert sink(running).lag == 59
            await until(lambda: count(running, "reconnects") >= 2)
            assert any("NoConfirm" in text or "Timeout" in text for text in sink(running).problems)
        finally:
            broker.resume()
        await until(lambda: sink(running).lag == 0)
    rows = journal(tmp_path)
    async with queue(broker, "silent") as everything:
        check(await take(everything, [row.message_id for row in rows]), rows)


async def test_full_queue(broker: Broker, tmp_path: Path) -> None:
    """A queue that refuses holds the cursor until it has room; then all comes."""
    limit = {"x-max-length": 2, "x-overflow": "reject-publish"}
    async with queue(broker, "full", **limit) as small:
        async with notifier(tmp_path, **amqp(broker, "full", amqp_window=1)) as running, peers(running) as connect:
            node = await connect.node()
            for nonce in range(5):
                await node.save(save_block(0, nonce))
            await until(lambda: count(running, "refused") > 1)
            assert sink(running).lag == 3
            rows = journal(tmp_path)
            check(await take(small, [row.message_id for row in rows]), rows)
            await until(lambda: sink(running).lag == 0)


async def test_gaps(broker: Broker, tmp_path: Path) -> None:
    """What is too large, or has left the journal, is told as a gap in its place."""
    async with queue(broker, "gaps") as everything:
        async with notifier(tmp_path) as running, peers(running) as connect:
            node = await connect.node()
            for nonce in range(3):
                await node.save(save_block(0, nonce, events=[event(b"\1" * 32, "e", data=b"x" * 5000 * (nonce == 1))]))
            first = running.journal.oldest
        (tmp_path / CURSOR_FILE).write_text(f"{first - 4}\n")
        async with notifier(tmp_path, **amqp(broker, "gaps", amqp_max_message_bytes=5000)) as running:
            await until(lambda: sink(running).lag == 0)
            assert count(running, "gaps") == 2
        one, _, three = journal(tmp_path)
        early, large = f"gap:{first - 3}:{first - 1}", f"gap:{first + 1}:{first + 1}"
        taken = await take(everything, [three.message_id])
        assert [message.message_id for message in taken] == [early, one.message_id, large, three.message_id]
        assert (taken[0].routing_key, taken[0].headers["topic"]) == ("gap", "gap")
        assert hub_pb2.Gap.FromString(taken[0].body) == hub_pb2.Gap(first=first - 3, last=first - 1, uncounted=True)


async def test_cursor_beyond_the_journal(broker: Broker, tmp_path: Path) -> None:
    """A journal restored from a backup ends before the cursor: a gap is told, and then all it has and what comes."""
    async with queue(broker, "restored") as everything:
        async with notifier(tmp_path) as running, peers(running) as connect:
            await (await connect.node()).save(save_block(0, 0))
            (tmp_path / CURSOR_FILE).write_text(f"{running.journal.head + 100}\n")
        async with notifier(tmp_path, **amqp(broker, "restored")) as running, peers(running) as connect:
            await (await connect.node()).save(save_block(0, 1))
            await until(lambda: sink(running).lag == 0)
        rows = journal(tmp_path)
        gap, *told = await take(everything, [row.message_id for row in rows])
        assert gap.routing_key == "gap"
        check(told, rows)


async def test_damaged_cursor(tmp_path: Path) -> None:
    """A damaged cursor fails the start with what to do, and leaves the journal free."""
    (tmp_path / CURSOR_FILE).write_text("12")
    settings = NotifierSettings(
        port=0, http_port=0, metrics_port=0, data_dir=tmp_path, amqp_url=Secret("amqp://127.0.0.1:1")
    )
    with pytest.raises(CursorUnusable, match="published again"):
        await app.run(settings, asyncio.Event())
    async with notifier(tmp_path):
        pass


@pytest.mark.parametrize(
    "text", ["http://guest:hidden@127.0.0.1/", "amqp://", "guest:hidden@127.0.0.1", "amqp://h:port"]
)
async def test_no_broker(tmp_path: Path, text: str) -> None:
    """What is no URL of a broker fails the start with what is expected, and is not shown."""
    settings = NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=tmp_path, amqp_url=Secret(text))
    with pytest.raises(OSError, match="amqp_url: expected amqp://") as caught:
        await app.run(settings, asyncio.Event())
    assert "hidden" not in str(caught.value)
