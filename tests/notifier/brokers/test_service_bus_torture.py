"""Whatever is killed: the service bus gets every event of the journal, in order in each session.

Round by round two nodes per shard tell a part of the tale of `test_torture`, while the notifier or the bus is killed
with SIGKILL, and a consumer of the bus loses its connection without settling what it was given. At the end a checker
compares the journal with what the bus ever accepted and with what the consumer was given.
`MILLRACE_TORTURE_ROUNDS` sets the number of rounds.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from millrace.notifier.brokers.bus_messages import BusMessage, messages
from millrace.notifier.brokers.item import Item
from millrace.notifier.settings import EVENT
from millrace.runtime.settings import Secret
from servers.service_bus import Bus

from ..helpers import WAIT
from ..journal_files import entries
from ..test_torture import FINAL, REVERT, ROUNDS, SAVE, SEED, SHARDS, Step, Torture, tale
from .bus_helpers import Received, receive_all, received_from

# The SDK leaves the sockets of connections that broke to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOPICS = {kind: kind for kind in (SAVE, FINAL, REVERT, EVENT)}
CONSUMED = SAVE

Line = tuple[str, str]  # topic and session
Part = list[list[Step]]  # for each node


class Consumer:
    """Receives one topic, session after session, and is cut off again and again."""

    def __init__(self, bus: Bus, rng: random.Random) -> None:
        self.received: list[Received] = []
        self.finished = False
        """No more is wanted. Cancelling alone would not do: the library makes an error of its own of it at times."""
        self._bus = bus
        self._rng = rng

    async def run(self) -> None:
        while not self.finished:
            client = ServiceBusClient.from_connection_string(self._bus.connection_string(), retry_total=0)
            try:
                async with client:
                    await self._receive(client)
            except ServiceBusError:
                await asyncio.sleep(0.05)

    async def _receive(self, client: ServiceBusClient) -> None:
        while self._rng.random() < 0.7 and not self.finished:  # else it dies with messages in its hands
            receiver = client.get_subscription_receiver(
                CONSUMED, "all", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1
            )
            async with receiver:
                for message in await receiver.receive_messages(20, max_wait_time=0.3):
                    self.received.append(received_from(message))
                    if self._rng.random() < 0.8:
                        await receiver.complete_message(message)
                    else:
                        break


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    """A bus that ends with the test."""
    bus = Bus(tmp_path / "bus", TOPICS)
    bus.start()
    yield bus
    bus.kill()
    gc.collect()  # here, where its warnings are known
    assert bus.console() == "", "the broker failed"


@pytest.mark.timeout(900 + 10 * ROUNDS)
async def test_torture(tmp_path: Path, bus: Bus) -> None:
    """Nothing is lost, sessions keep their order, and what comes twice is the same under the same id."""
    rng = random.Random(SEED)
    run = Torture(tmp_path, service_bus_connection=Secret(bus.connection_string()), service_bus_topics=TOPICS)
    consumer = Consumer(bus, random.Random(SEED))
    kill: Callable[[], None] | None = None
    consuming = asyncio.create_task(consumer.run())
    try:
        kill = run.start()
        for quiet, stormy in parts():
            before = {one.message_id for one in bus.accepted()}
            await tell(run, quiet, rng)
            await until(lambda before=before: {one.message_id for one in bus.accepted()} > before)  # type: ignore[misc]
            goal = run.acked + rng.randrange(sum(map(len, stormy)) // 2)
            telling = asyncio.create_task(tell(run, stormy, rng))
            while run.acked < goal:
                run.progress.clear()
                await asyncio.wait_for(run.progress.wait(), WAIT)
            victims = rng.choice(("notifier", "bus", "both"))
            if victims != "notifier":
                bus.kill()
            if victims != "bus":
                await asyncio.to_thread(kill)
                kill = run.start()
            if victims != "notifier":
                await asyncio.sleep(rng.random() * 0.2)
                await bus.restart()
            await telling
        expected = expectation(tmp_path)
        await until(lambda: {one.message_id for one in bus.accepted()} >= {one.message_id for one in expected})
    finally:
        if kill is not None:
            await asyncio.to_thread(kill)
        consumer.finished = True
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
    rest = await receive_all(bus, CONSUMED)
    check_accepted(bus, expected)
    check_received([*consumer.received, *rest], expected)


def parts() -> Iterator[tuple[Part, Part]]:
    """The tale in rounds: for each, what every node tells before and while something is killed."""
    tales = [tale(shard, random.Random(SEED + shard)) for shard in SHARDS for _ in range(2)]
    size = -(-len(tales[0]) // ROUNDS)
    for start in range(0, len(tales[0]), size):
        middle = start + size // 4
        yield [steps[start:middle] for steps in tales], [steps[middle : start + size] for steps in tales]


async def tell(run: Torture, part: Part, rng: random.Random) -> None:
    await asyncio.gather(*(run.tell(steps, random.Random(rng.random())) for steps in part if steps))


async def until(condition: Callable[[], bool]) -> None:
    """Return when `condition` holds."""
    async with asyncio.timeout(6 * WAIT):
        while not condition():
            await asyncio.sleep(0.02)


def expectation(directory: Path) -> list[BusMessage]:
    """What the journal's events are on the bus."""
    items = [Item(e.sequence, e.topic, e.shard, e.marks, e.message_id, e.payload) for e in entries(directory)]
    return [message for item in items for message in messages(item, TOPICS)]


def check_accepted(bus: Bus, expected: list[BusMessage]) -> None:
    """Everything was accepted; in each session the first coming of each message is in the journal's order."""
    told: dict[Line, list[tuple[object, ...]]] = defaultdict(list)
    for one in expected:
        told[one.topic.lower(), one.session_id].append((one.message_id, one.properties, one.body))
    lines: dict[Line, dict[str, tuple[object, ...]]] = defaultdict(dict)
    for got in bus.accepted():
        known = lines[got.topic, got.session].setdefault(got.message_id, (got.message_id, got.properties, got.body))
        assert known == (got.message_id, got.properties, got.body), "two messages with one id"
    assert {line: list(contents.values()) for line, contents in lines.items()} == told


def check_received(received: list[Received], expected: list[BusMessage]) -> None:
    """The consumer was given every message of its topic."""
    wanted = {one.message_id: (one.session_id, one.body) for one in expected if one.topic == CONSUMED}
    assert {one.message_id: (one.session, one.body) for one in received} == wanted
