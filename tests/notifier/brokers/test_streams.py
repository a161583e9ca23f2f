"""Streams of a real RabbitMQ: one for each shard, in order, to be read again from any place, whoever was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from aio_pika.abc import AbstractIncomingMessage

from millrace.chain.shard import METACHAIN
from servers.rabbitmq import Broker
from waiting import until

from ..helpers import WAIT, notifier, peers, save_block
from .test_rabbitmq import CURSOR_FILE, Row, amqp, count, journal, queue, quick_back_off, sink

__all__ = ["quick_back_off"]
pytestmark = pytest.mark.usefixtures("quick_back_off")
SHARDS = (*range(16), METACHAIN)


async def read(broker: Broker, name: str, wanted: Iterable[str], offset: int = 0) -> list[AbstractIncomingMessage]:
    """The messages of a stream, from an offset on until all `wanted` ids were there."""
    missing = set(wanted)
    async with await broker.connect() as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        stream = await channel.get_queue(name)
        inbox: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await stream.consume(inbox.put, arguments={"x-stream-offset": offset})
        taken = []
        async with asyncio.timeout(WAIT):
            while missing:
                taken.append(await inbox.get())
                missing.discard(taken[-1].message_id or "")
                await taken[-1].ack()
        return taken


def of(rows: list[Row], shard: int) -> list[str]:
    return [row.message_id for row in rows if row.shard == shard]


async def test_sixteen_shards(broker: Broker, tmp_path: Path) -> None:
    """Each shard's events are in its own stream, in the journal's order, and in no other's."""
    options = amqp(broker, "sixteen", amqp_streams="blocks", amqp_prefix="mvx")
    async with notifier(tmp_path, **options) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(3):
            for shard in SHARDS:
                block = save_block(shard, nonce)
                await node.save(block)
                await node.finalise(block)
        await until(lambda: sink(running).lag == 0)
        assert running.metrics.registry.get_sample_value("notifier_amqp_streams") == 17
        assert running.metrics.registry.get_sample_value("notifier_amqp_unroutable_total") == 0
    rows = journal(tmp_path)
    for shard in SHARDS:
        taken = await read(broker, f"blocks.{shard}", of(rows, shard))
        assert [message.message_id for message in taken] == of(rows, shard)
        assert {message.headers["shard-id"] for message in taken} == {shard}
        offsets = [message.headers["x-stream-offset"] for message in taken]
        assert offsets == list(range(6))
    again = await read(broker, "blocks.7", of(rows, 7)[4:], offset=4)
    assert [message.message_id for message in again] == of(rows, 7)[4:], "read again, from the middle"


async def test_deaths(broker: Broker, tmp_path: Path) -> None:
    """After the broker's death and with a lost cursor all is there in order, and what comes twice has one id."""
    options = amqp(broker, "deaths", amqp_streams="deaths", amqp_window=4)
    async with notifier(tmp_path, **options) as running, peers(running) as connect:
        node = await connect.node()
        await node.save(save_block(1, 0))
        await until(lambda: sink(running).lag == 0)
        await broker.settle()  # it keeps what was declared just before a kill only by luck
        await until(lambda: sink(running).connected)
        for nonce in range(1, 10):
            await node.save(save_block(1, nonce))
        broker.kill()
        for nonce in range(10, 20):
            await node.save(save_block(1, nonce))
        await broker.restart()
        await until(lambda: sink(running).lag == 0)
    (tmp_path / CURSOR_FILE).unlink()
    async with notifier(tmp_path, **options) as running:
        await until(lambda: sink(running).lag == 0)
    ids = of(journal(tmp_path), 1)
    taken = [message.message_id for message in await read(broker, "deaths.1", ids)]
    assert list(dict.fromkeys(taken)) == ids


async def test_deleted(broker: Broker, tmp_path: Path) -> None:
    """A stream that is deleted while the notifier publishes is made again and has all that followed; it is told."""
    options = amqp(broker, "deleted", amqp_streams="deleted")
    async with queue(broker, "deleted"), await broker.connect() as connection:
        async with notifier(tmp_path, **options) as running, peers(running) as connect:
            node = await connect.node()
            await node.save(save_block(3, 0))
            await until(lambda: sink(running).lag == 0)
            await (await connection.channel()).queue_delete("deleted.3")
            for nonce in range(1, 6):
                await node.save(save_block(3, nonce))
            await until(lambda: sink(running).lag == 0)
            assert count(running, "reconnects") >= 1, "which health and the log say why"
    ids = of(journal(tmp_path), 3)[1:]
    taken = [message.message_id for message in await read(broker, "deleted.3", ids)]
    assert list(dict.fromkeys(taken)) == ids


async def test_gap(broker: Broker, tmp_path: Path) -> None:
    """What a stream will not get is told in it, in its place."""
    async with notifier(tmp_path, **amqp(broker, "gap", amqp_streams="gap", amqp_max_message_bytes=3000)) as running:
        async with peers(running) as connect:
            node = await connect.node()
            for nonce, fill in enumerate((0, 5000, 0)):
                await node.save(large(nonce, fill))
            await until(lambda: sink(running).lag == 0)
            sequence = running.journal.oldest + 1
    one, _, three = journal(tmp_path)
    taken = await read(broker, "gap.2", [three.message_id])
    assert [message.message_id for message in taken] == [one.message_id, f"gap:{sequence}:{sequence}", three.message_id]


def large(nonce: int, fill: int) -> Any:
    block = save_block(2, nonce)
    block.notarizedHeadersHashes.append("x" * fill)
    return block


async def test_another_kind_of_queue(broker: Broker, tmp_path: Path) -> None:
    """A queue of that name that is no such stream is said to operators, and the cursor waits."""
    async with await broker.connect() as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("taken.0", durable=True)
        async with notifier(tmp_path, **amqp(broker, "taken", amqp_streams="taken")) as running:
            async with peers(running) as connect:
                await (await connect.node()).save(save_block(0, 0))
                await until(lambda: any("PRECONDITION" in text for text in sink(running).problems))
                assert sink(running).lag == 1
                await queue.delete()
                await until(lambda: sink(running).lag == 0)
    assert len(await read(broker, "taken.0", of(journal(tmp_path), 0))) == 1
