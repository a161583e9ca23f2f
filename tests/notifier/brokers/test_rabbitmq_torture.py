"""Whatever is killed: RabbitMQ gets every event of the journal, in order, and says so under the same message ids.

Round by round two nodes per shard tell a part of the tale of `test_torture`, while the notifier, RabbitMQ or both are
killed with SIGKILL, and a consumer loses its connection with messages in its hands. At the end a checker compares the
journal with a queue that nobody read meanwhile, and with what the consumer was given.
`MILLRACE_TORTURE_ROUNDS` sets the number of rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import AMQPError

from millrace.runtime.settings import Secret
from servers.rabbitmq import Broker

from ..helpers import WAIT
from ..test_torture import ROUNDS, SEED, Torture
from .test_rabbitmq import check, journal, queue
from .test_service_bus_torture import parts, tell

EXCHANGE = "tortured"
READ_LATER, READ_NOW = "#", "SaveBlock.#"


class Reader:
    """Takes messages, acknowledges most, and drops its connection with the others in its hands."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        self.received: list[AbstractIncomingMessage] = []
        self.finished = False
        """No more is wanted. Cancelling alone would not do: the library makes an error of its own of it at times."""
        self._broker = broker
        self._rng = rng

    async def run(self) -> None:
        while not self.finished:
            with contextlib.suppress(OSError, AMQPError, TimeoutError):
                async with queue(self._broker, EXCHANGE, READ_NOW) as source:
                    while self._rng.random() < 0.95 and not self.finished:
                        message = await source.get(fail=False)
                        if message is None:
                            await asyncio.sleep(0.02)
                            continue
                        self.received.append(message)
                        if self._rng.random() < 0.9:
                            await message.ack()
            await asyncio.sleep(0.02)


async def take_all(source: AbstractQueue, missing: set[str]) -> list[AbstractIncomingMessage]:
    """Messages until all `missing` ones were there, however long the notifier waits before it connects again."""
    taken = []
    async with asyncio.timeout(6 * WAIT):
        while (message := await source.get(fail=False)) is not None or missing:
            if message is None:
                await asyncio.sleep(0.02)
                continue
            await message.ack()
            missing.discard(message.message_id or "")
            taken.append(message)
    return taken


@pytest.mark.timeout(900 + 10 * ROUNDS)
async def test_torture(tmp_path: Path, broker: Broker) -> None:
    """Nothing is lost, the order per shard holds, and what comes twice is the same under the same id."""
    rng = random.Random(SEED)
    for key in (READ_LATER, READ_NOW):
        async with queue(broker, EXCHANGE, key):
            pass
    await broker.settle()
    run = Torture(tmp_path, amqp_url=Secret(broker.url), amqp_exchange=EXCHANGE, amqp_window=16)
    reader = Reader(broker, random.Random(SEED))
    reading = asyncio.create_task(reader.run())
    kill: Callable[[], None] = run.start()
    try:
        for number, (quiet, stormy) in enumerate(parts()):
            await tell(run, quiet, rng)
            goal = run.acked + rng.randrange(sum(map(len, stormy)) // 2)
            telling = asyncio.create_task(tell(run, stormy, rng))
            while run.acked < goal:
                run.progress.clear()
                await asyncio.wait_for(run.progress.wait(), WAIT)
            victim = ("RabbitMQ", "notifier", "both", "notifier")[number % 4]
            if victim != "notifier":
                broker.kill()
            if victim != "RabbitMQ":
                await asyncio.to_thread(kill)
                kill = run.start()
            if victim != "notifier":
                await broker.restart()
            await telling
        rows = journal(tmp_path)
        async with queue(broker, EXCHANGE, READ_LATER) as everything:
            taken = await take_all(everything, {row.message_id for row in rows})
    finally:
        await asyncio.to_thread(kill)
        reader.finished = True
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    check(taken, rows)
    saved = {row.message_id: row.payload for row in rows if row.topic == "SaveBlock"}
    async with queue(broker, EXCHANGE, READ_NOW) as source:
        missing = set(saved) - {message.message_id for message in reader.received}
        rest = await take_all(source, missing)
    assert {message.message_id: message.body for message in (*reader.received, *rest)} == saved
