"""The service bus, by its real SDK on both sides of a broker that can be killed."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.servicebus._pyamqp.aio import AMQPClientAsync

from millrace.chain import address, outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.app import Notifier
from millrace.notifier.brokers import sink
from millrace.runtime.settings import Secret
from servers.redis_server import RedisServer
from servers.service_bus import KEY, Bus
from waiting import until

from ..helpers import WAIT, block_hash, event, notifier, peers, save_block
from .bus_helpers import Received, accepted, receive_all

ALICE, BOB = b"\1" * 32, b"\2" * 32

# The SDK leaves the sockets of connections that broke to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

KINDS = ("SaveBlock", "FinalizedBlock", "RevertIndexedBlock", "Event")


@pytest.fixture(autouse=True)
def quick_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connects again sooner than in earnest; closes without the second for which the SDK's keep-alive sleeps."""

    async def no_keep_alive(_: object) -> None:
        return

    monkeypatch.setattr(sink, "BACK_OFF", (0.05, 0.2))
    monkeypatch.setattr(AMQPClientAsync, "_keep_alive_async", no_keep_alive)


@pytest.fixture
def start_bus(tmp_path: Path) -> Iterator[Callable[..., Bus]]:
    """Starts a bus; it ends with the test."""
    buses: list[Bus] = []

    def start(**options: Any) -> Bus:
        bus = Bus(tmp_path / "bus", KINDS, **options)
        buses.append(bus)
        bus.start()
        return bus

    yield start
    for bus in buses:
        bus.kill()
        assert bus.console() == "", "the broker failed"
    gc.collect()  # here, where its warnings are known


def publishing(bus: Bus, directory: Path, **settings: Any) -> Any:
    """A notifier that publishes some kinds to the bus."""
    topics = {kind: kind for kind in KINDS}
    chosen = {"service_bus_connection": Secret(bus.connection_string()), "service_bus_topics": topics, **settings}
    return notifier(directory / "data", **chosen)


async def ready(running: Notifier) -> dict[str, Any]:
    url = f"http://127.0.0.1:{running.http_port}/ready"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        body: dict[str, Any] = await answer.json()
        return body


async def test_kinds_sessions_properties(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """A block is one message in its shard's session; each of its events one in its account's, with properties."""
    bus = start_bus()
    block = save_block(2, 7, events=[event(ALICE, "swap", b"a"), event(BOB, "mint"), event(ALICE, "burn")])
    async with publishing(bus, tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        await node.save(block)
        await node.finalise(block)
        await accepted(bus, 5)
        first = running.journal.oldest
    hash_, transaction = block.blockData.headerHash.hex(), block_hash(("tx", 2, 7)).hex()
    topics = ("SaveBlock", "FinalizedBlock", "Event")
    (whole,), (final,), events = await asyncio.gather(*(receive_all(bus, topic) for topic in topics))
    assert (whole.session, whole.message_id, whole.subject) == ("2", f"SaveBlock:2:{hash_}:1", "SaveBlock")
    common = {"Shard": "2", "Sequence": str(first), "BlockHash": hash_}
    assert whole.properties == common | {"Kind": "SaveBlock", "Hash": hash_}
    assert pb.OutportBlock.FromString(whole.body).blockData.headerHash == block.blockData.headerHash
    assert (final.session, final.properties["Sequence"]) == ("2", str(first + 1))
    events.sort(key=lambda one: one.session != address.encode(ALICE))
    assert [(one.session, one.message_id, one.properties["Identifier"]) for one in events] == [
        (address.encode(ALICE), f"Event:2:{hash_}:1:1", "swap"),
        (address.encode(ALICE), f"Event:2:{hash_}:1:3", "burn"),
        (address.encode(BOB), f"Event:2:{hash_}:1:2", "mint"),
    ]
    assert events[0].properties == common | {
        "Kind": "Event",
        "Address": address.encode(ALICE),
        "Identifier": "swap",
        "Hash": transaction,
        "OriginalTxHash": transaction,
    }
    assert pb.Event.FromString(events[0].body) == event(ALICE, "swap", b"a")


async def test_wanted_kinds_only(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """Kinds without a topic are passed over, several kinds may share a topic, and the cursor passes all of them."""
    bus = start_bus()
    topics = {"Event": "Event", "RevertIndexedBlock": "Event"}
    async with publishing(bus, tmp_path, service_bus_topics=topics) as running, peers(running) as connect:
        node = await connect.node()
        block = save_block(0, 1, events=[event(ALICE, "x")])
        await node.save(block)
        await node.revert(block)
        await node.finalise(save_block(0, 9))
        await node.tell(outport.SETTINGS, pb.OutportConfig(shardID=1))
        await until(lambda: running.sinks[0].lag == 0)
    hash_ = block.blockData.headerHash.hex()
    assert [message.message_id for message in bus.accepted()] == [
        f"Event:0:{hash_}:1:1",
        f"RevertIndexedBlock:0:{hash_}:1",
    ]


async def test_broker_killed(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """A broker that dies and comes back misses nothing; each session is in order, and what comes twice is the same."""
    bus = start_bus()
    async with publishing(bus, tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(60):
            await node.save(save_block(nonce % 3, nonce, events=[event(ALICE, str(nonce)), event(BOB, "b")]))
            if nonce in (20, 40):
                bus.kill()
                await until(lambda: running.sinks[0].problems)
                assert (await ready(running))["sinks"]["service_bus"]["problems"]
                await bus.restart()
        await until(lambda: running.sinks[0].lag == 0)
        assert (await ready(running))["sinks"]["service_bus"]["problems"] == []
    events, blocks = await asyncio.gather(receive_all(bus, "Event"), receive_all(bus, "SaveBlock"))
    assert [one.properties["Identifier"] for one in unique(events, address.encode(ALICE))] == [*map(str, range(60))]
    for shard in range(3):
        sequences = [int(one.properties["Sequence"]) for one in unique(blocks, str(shard))]
        assert len(sequences) == 20 and sequences == sorted(sequences)


def unique(received: list[Received], session: str) -> list[Received]:
    """A session without repetitions; a repetition must be the same message."""
    first: dict[str, Received] = {}
    for one in received:
        if one.session == session:
            assert first.setdefault(one.message_id, one) == one
    return list(first.values())


async def test_restart_goes_on(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """The next start goes on after the cursor; events of the time without a bus go out then."""
    bus = start_bus()
    async with publishing(bus, tmp_path) as running, peers(running) as connect:
        await (await connect.node()).save(save_block(0, 1))
        await until(lambda: running.sinks[0].lag == 0)
    async with notifier(tmp_path / "data") as running, peers(running) as connect:
        await (await connect.node()).save(save_block(0, 2))
    async with publishing(bus, tmp_path) as running:
        await until(lambda: running.sinks[0].lag == 0)
    assert [message.message_id.split(":")[2] for message in bus.accepted()] == [
        save_block(0, nonce).blockData.headerHash.hex() for nonce in (1, 2)
    ]


async def test_refusals_are_repeated(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """A bus that is busy, full or forbids for a while gets everything in the end, each message once."""
    bus = start_bus()
    bus.refuse("com.microsoft:server-busy", "amqp:resource-limit-exceeded", "amqp:unauthorized-access")
    async with publishing(bus, tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(5):
            await node.save(save_block(0, nonce))
        await until(lambda: running.sinks[0].lag == 0)
        assert running.metrics.sink_refused.labels("service_bus")._value.get() == 3
    assert bus.refusals_left() == 0
    ids = [message.message_id for message in bus.accepted()]
    assert len(ids) == len(set(ids)) == 5


async def test_one_topic_refused(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """While one topic is missing the others do not get the same events again and again."""
    bus = start_bus()
    topics = {"SaveBlock": "SaveBlock", "Event": "missing"}
    async with publishing(bus, tmp_path, service_bus_topics=topics) as running, peers(running) as connect:
        await (await connect.node()).save(save_block(0, 1, events=[event(ALICE, "x")]))
        counter = running.metrics.sink_reconnects.labels("service_bus")
        await until(lambda: counter._value.get() >= 2)
        assert running.sinks[0].cursor < running.journal.head and running.sinks[0].problems
    assert len(bus.accepted()) <= 1


async def test_wrong_key(tmp_path: Path, start_bus: Callable[..., Bus], caplog: pytest.LogCaptureFixture) -> None:
    """A wrong key is told by /ready; consumers of the hub get their events; the key is shown nowhere."""
    bus = start_bus()
    wrong = base64.b64encode(b"another key").decode()
    async with publishing(bus, tmp_path, service_bus_connection=Secret(bus.connection_string(wrong))) as running:
        async with peers(running) as connect:
            consumer = await connect.consumer()
            await consumer.subscribe()
            await (await connect.node()).save(save_block(0, 1))
            await consumer.event()
            await until(lambda: running.metrics.sink_reconnects.labels("service_bus")._value.get() >= 1)
            body = await ready(running)
            assert "Authentication" in body["sinks"]["service_bus"]["problems"][0]
            assert wrong not in json.dumps(body) + caplog.text + repr(running.settings)
    assert bus.accepted() == []


async def test_new_key(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """A key that is put right in the connection file is used at the next attempt, without a restart."""
    bus = start_bus()
    file = tmp_path / "connection"
    file.write_text(bus.connection_string(base64.b64encode(b"the key before").decode()))
    settings = {"service_bus_connection": Secret(), "service_bus_connection_file": file}
    async with publishing(bus, tmp_path, **settings) as running, peers(running) as connect:
        await (await connect.node()).save(save_block(0, 1))
        await until(lambda: running.metrics.sink_reconnects.labels("service_bus")._value.get() >= 1)
        assert bus.accepted() == []
        file.write_text(bus.connection_string())
        await accepted(bus, 1)


async def test_connection_file(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """The connection string may stand in a file; a file that is missing or holds no such string ends the start."""
    bus = start_bus()
    file = tmp_path / "connection"
    file.write_text(bus.connection_string() + "\n")
    async with (
        publishing(bus, tmp_path, service_bus_connection=Secret(), service_bus_connection_file=file) as running,
        peers(running) as connect,
    ):
        await (await connect.node()).save(save_block(0, 1))
        await accepted(bus, 1)
    file.write_text(bus.connection_string() + "EntityPath=Event")
    with pytest.raises(OSError, match="for Event alone"):
        async with publishing(bus, tmp_path, service_bus_connection=Secret(), service_bus_connection_file=file):
            pass
    file.write_text(f"SharedAccessKey={KEY}")
    with pytest.raises(OSError, match="connection string") as failure:
        async with notifier(tmp_path / "data", service_bus_connection_file=file):
            pass
    assert KEY not in str(failure.value)
    file.unlink()
    with pytest.raises(OSError, match="service_bus_connection_file"):
        async with notifier(tmp_path / "data", service_bus_connection_file=file):
            pass


async def test_too_large(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """What the bus cannot carry is kept in a file, told in its place without its body, and delays nothing."""
    bus = start_bus(max_message_bytes=20_000)
    bus.refuse(*["com.microsoft:server-busy"] * 3)  # what is tried again is kept only once
    large = event(ALICE, "large", data=bytes(30_000))
    async with publishing(bus, tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        block = save_block(0, 1, events=[event(ALICE, "before"), large, event(ALICE, "after")])
        await node.save(block)
        await node.save(save_block(0, 2))
        await until(lambda: running.sinks[0].lag == 0)
        assert running.metrics.service_bus_omitted._value.get() == 2
    messages = bus.accepted()
    first, second = [one for one in messages if one.topic == "saveblock"]
    assert (first.body, second.body != b"") == (b"", True)
    assert "too large" in first.properties["Omitted"] and "Omitted" not in second.properties
    events = [one for one in messages if one.topic == "event"]
    assert [(one.properties["Identifier"], one.body == b"") for one in events] == [
        ("before", False),
        ("large", True),
        ("after", False),
    ]
    lines = (tmp_path / "data" / "service-bus-dead-letters.jsonl").read_text().splitlines()
    letters = [json.loads(line) for line in lines]
    assert {letter["topic"] for letter in letters} == {"SaveBlock", "Event"}
    kept = next(letter for letter in letters if letter["topic"] == "Event")
    assert pb.Event.FromString(base64.b64decode(kept["payload"])) == large


async def test_batches(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """Many events fill batches up to the size limit and none beyond, in order."""
    bus = start_bus(max_message_bytes=64 * 1024)
    count = 700
    async with publishing(bus, tmp_path, service_bus_topics={"Event": "Event"}) as running, peers(running) as connect:
        events = [event(ALICE, str(number), data=bytes(number)) for number in range(count)]
        await (await connect.node()).save(save_block(0, 1, events=events))
        await until(lambda: running.sinks[0].lag == 0)
        assert running.metrics.service_bus_omitted._value.get() == 0
    assert [one.properties["Identifier"] for one in bus.accepted()] == [*map(str, range(count))]


@pytest.mark.parametrize("partitioned", [False, True])
async def test_partitioned_topics(tmp_path: Path, start_bus: Callable[..., Bus], partitioned: bool) -> None:
    """Partitioned topics get batches of one session each, other topics mixed ones; each session is in order."""
    bus = start_bus(partitioned=partitioned)
    async with publishing(bus, tmp_path, service_bus_partitioned=partitioned) as running, peers(running) as connect:
        events = [event(account, str(number)) for number in range(5) for account in (ALICE, BOB)]
        await (await connect.node()).save(save_block(0, 1, events=events))
        await until(lambda: running.sinks[0].lag == 0)
        assert running.metrics.sink_reconnects.labels("service_bus")._value.get() == 0
    for account in (ALICE, BOB):
        sent = [one.properties["Identifier"] for one in bus.accepted() if one.session == address.encode(account)]
        assert sent == ["0", "1", "2", "3", "4"]


async def test_gap(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """What left the journal before the bus had it is told as a gap on every topic."""
    bus = start_bus()
    async with publishing(bus, tmp_path) as running, peers(running) as connect:
        await (await connect.node()).save(save_block(0, 1))
        await until(lambda: running.sinks[0].lag == 0)
    async with notifier(tmp_path / "data", retention_bytes=1) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(2, 5):
            await node.save(save_block(0, nonce))
        head = running.journal.head
        await until(lambda: running.journal.oldest > head)
    async with publishing(bus, tmp_path) as running, peers(running) as connect:
        await (await connect.node()).save(save_block(0, 5))
        await until(lambda: running.sinks[0].lag == 0)
    gaps = [one for one in bus.accepted() if one.session == "gap"]
    assert {one.topic for one in gaps} == {kind.lower() for kind in KINDS}
    first = head - 2
    for one in gaps:
        assert one.message_id == f"gap:{first}:{head}"
        assert hub_pb2.Gap.FromString(one.body) == hub_pb2.Gap(first=first, last=head)


async def test_silent_broker(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """A bus that stops answering is left after the timeout, delays nobody, and a stop does not wait for it."""
    bus = start_bus()
    async with (
        asyncio.timeout(3 * WAIT),
        publishing(bus, tmp_path, service_bus_timeout=0.5) as running,
        peers(running) as connect,
    ):
        node, consumer = await connect.node(), await connect.consumer()
        await consumer.subscribe()
        await node.save(save_block(0, 1))
        await until(lambda: running.sinks[0].lag == 0)
        bus.pause()
        await node.save(save_block(0, 2))
        await consumer.events(2)
        await until(lambda: running.sinks[0].problems)
        await node.save(save_block(0, 3))
    bus.resume()


def test_imported_only_when_used() -> None:
    """A notifier without a service bus does not load its SDK."""
    code = (
        "import sys; from millrace.notifier.app import Notifier; from millrace.notifier.settings import *;"
        "Notifier(NotifierSettings()); sys.exit(any(name.startswith('azure') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_two_notifiers(tmp_path: Path, start_bus: Callable[..., Bus]) -> None:
    """Two notifiers that agree over Redis publish each message once; when the first ends the other goes on."""
    bus = start_bus()
    (tmp_path / "redis").mkdir()
    redis = RedisServer(tmp_path / "redis")
    redis.start()
    options = {"redis_url": Secret(redis.url), "claim_lease": 0.5}
    block = save_block(0, 1, events=[event(ALICE, "a"), event(BOB, "b")])
    try:
        async with publishing(bus, tmp_path / "second", **options) as second, peers(second) as to_second:
            node = await to_second.node()
            async with publishing(bus, tmp_path / "first", **options) as first, peers(first) as to_first:
                for connected in (await to_first.node(), node):
                    await connected.save(block)
                await until(lambda: first.sinks[0].lag == second.sinks[0].lag == 0)
                ids = [one.message_id for one in bus.accepted()]
                assert len(ids) == len(set(ids)) == 3
            await node.save(save_block(0, 2))
            await until(lambda: second.sinks[0].lag == 0)
        assert len(bus.accepted()) == 4
    finally:
        redis.kill()
