"""A node's connection keeps the protocol: one message at a time, nothing lost, nothing left out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.localnet.edges.observer import Observer
from millrace.localnet.settings import LocalnetSettings
from millrace.runtime import websocket
from millrace.system.ports import free_ports


class Consumer:
    """A notifier that writes down what comes and acknowledges as the test wants."""

    def __init__(self) -> None:
        self.received: list[pb.WsMessage] = []
        self.sessions: list[Any] = []
        self.acknowledge: Callable[[Any, pb.WsMessage], bool] = lambda session, message: True
        self.changed = asyncio.Event()
        self.server: websocket.WsServer | None = None

    async def start(self, port: int = 0) -> int:
        """Listen; the port."""
        self.server = await websocket.serve(self._session, "127.0.0.1", port, max_message_size=1 << 24)
        return self.server.port

    async def stop(self) -> None:
        """Close everything."""
        assert self.server is not None
        await self.server.close(grace=0.2)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something was received that makes the condition hold."""
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    @property
    def payloads(self) -> list[bytes]:
        """Payloads in order of arrival, repeated ones too."""
        return [message.payload for message in self.received if message.type == outport.PAYLOAD]

    def _session(self, request: websocket.Request) -> websocket.Session:
        consumer = self

        class Session(websocket.Session):
            def on_open(self) -> None:
                consumer.sessions.append(self)
                consumer.changed.set()

            def on_message(self, kind: websocket.Kind, data: bytes) -> None:
                assert kind == "binary" and request.path == "/save"
                message = outport.decode_envelope(data)
                consumer.received.append(message)
                if message.type == outport.PAYLOAD and consumer.acknowledge(self, message):
                    self.send_binary(outport.ack_envelope(message.counter))
                consumer.changed.set()

        return Session()


@pytest.fixture
async def consumer() -> AsyncIterator[Consumer]:
    """A listening consumer."""
    consumer = Consumer()
    await consumer.start()
    yield consumer
    await consumer.stop()


@contextlib.asynccontextmanager
async def observing(consumer: Consumer, **fields: Any) -> AsyncIterator[Observer]:
    """An observer of shard 1 that runs against the consumer."""
    assert consumer.server is not None
    url = f"ws://127.0.0.1:{consumer.server.port}/save"
    observer = Observer(1, 0, LocalnetSettings(**({"retry_seconds": 0.01} | fields)), url)
    task = asyncio.create_task(observer.run())
    try:
        yield observer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_events_arrive_in_order_with_rising_counters(consumer: Consumer) -> None:
    """Every event once, in order, as a version 1 payload that wants an acknowledgement; counters from 1."""
    async with observing(consumer) as observer:
        for number in range(20):
            observer.offer("SaveBlock", b"%d" % number)
        await consumer.until(lambda: len(consumer.received) == 20)
    assert consumer.payloads == [b"%d" % number for number in range(20)]
    assert [message.counter for message in consumer.received] == list(range(1, 21))
    assert all(m.withAcknowledge and m.version == 1 and m.topic == "SaveBlock" for m in consumer.received)


async def test_one_message_is_under_way_at_a_time(consumer: Consumer) -> None:
    """Without an acknowledgement the next event does not leave."""
    consumer.acknowledge = lambda session, message: False
    async with observing(consumer) as observer:
        observer.offer("SaveBlock", b"one")
        observer.offer("SaveBlock", b"two")
        await consumer.until(lambda: bool(consumer.received))
        session = consumer.sessions[0]
        session.send_binary(outport.ack_envelope(77))  # no such counter: a warning on a real node, no more
        session.send_binary(outport.ack_envelope(1))
        await consumer.until(lambda: len(consumer.received) == 2)
        assert observer.waiting == 1
    assert consumer.payloads == [b"one", b"two"]


async def test_a_missing_acknowledgement_repeats_the_payload_under_a_new_counter(consumer: Consumer) -> None:
    """After the timeout the identical payload comes again, and only once acknowledged the next one."""
    consumer.acknowledge = lambda session, message: message.counter > 2
    async with observing(consumer, acknowledge_seconds=0.05) as observer:
        observer.offer("SaveBlock", b"one")
        observer.offer("FinalizedBlock", b"two")
        await consumer.until(lambda: len(consumer.received) == 4)
        assert observer.resent == 2
    assert consumer.payloads == [b"one", b"one", b"one", b"two"]
    assert [message.counter for message in consumer.received] == [1, 2, 3, 4]


async def test_a_lost_connection_loses_nothing(consumer: Consumer) -> None:
    """What was not acknowledged comes again on the next connection."""

    def acknowledge(session: Any, message: pb.WsMessage) -> bool:
        if message.payload == b"2" and len(consumer.sessions) == 1:
            session.close(1001)
            return False
        return True

    consumer.acknowledge = acknowledge
    async with observing(consumer) as observer:
        for number in range(5):
            observer.offer("SaveBlock", b"%d" % number)
        await consumer.until(lambda: consumer.payloads[-1:] == [b"4"])
        assert observer.connections == 2
    assert consumer.payloads == [b"0", b"1", b"2", b"2", b"3", b"4"]


async def test_events_wait_while_nobody_listens_and_hold_the_shard_back() -> None:
    """The outbox says when it is full, keeps everything, and empties once the notifier is there."""
    consumer = Consumer()
    port = free_ports(1)[0]
    settings = LocalnetSettings(retry_seconds=0.01, max_outbox=3)
    observer = Observer(0, 0, settings, f"ws://127.0.0.1:{port}/save")
    task = asyncio.create_task(observer.run())
    for number in range(3):
        assert not observer.full
        observer.offer("SaveBlock", b"%d" % number)
    assert observer.full
    await consumer.start(port)
    await consumer.until(lambda: len(consumer.received) == 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await consumer.stop()
    assert consumer.payloads == [b"0", b"1", b"2"]


async def test_a_settings_request_is_acknowledged_and_answered(consumer: Consumer) -> None:
    """The consumer asks on the same connection and gets the node's shard on the topic Settings."""
    async with observing(consumer):
        await consumer.until(lambda: bool(consumer.sessions))
        consumer.sessions[0].send_binary(outport.payload_envelope("Settings", b"", 9))
        await consumer.until(lambda: len(consumer.received) == 2)
    acks = [message for message in consumer.received if message.type == outport.ACK]
    (reply,) = [message for message in consumer.received if message.type == outport.PAYLOAD]
    assert [ack.counter for ack in acks] == [9]
    assert (reply.topic, pb.OutportConfig.FromString(reply.payload).shardID) == ("Settings", 1)


async def test_send_twice_repeats_one_event(consumer: Consumer) -> None:
    """The next event comes a second time under its own counter, later ones once."""
    async with observing(consumer) as observer:
        observer.send_twice()
        observer.offer("SaveBlock", b"one")
        observer.offer("SaveBlock", b"two")
        await consumer.until(lambda: len(consumer.received) == 3)
    assert consumer.payloads == [b"one", b"one", b"two"]


async def test_a_dropped_connection_comes_back(consumer: Consumer) -> None:
    """`drop_connection` ends it without a word; the observer is there again by itself."""
    async with observing(consumer) as observer:
        observer.offer("SaveBlock", b"one")
        await consumer.until(lambda: bool(consumer.received))
        assert observer.drop_connection() and not observer.drop_connection()
        observer.offer("SaveBlock", b"two")
        await consumer.until(lambda: consumer.payloads[-1:] == [b"two"])
    assert len(consumer.sessions) == 2


async def test_nonsense_from_the_notifier_is_ignored(consumer: Consumer) -> None:
    """Frames that are no envelope, or of an unknown type, change nothing."""
    async with observing(consumer) as observer:
        await consumer.until(lambda: bool(consumer.sessions))
        consumer.sessions[0].send_binary(b"\xff\xff\xff")
        consumer.sessions[0].send_binary(pb.WsMessage(type=9, counter=1).SerializeToString())
        observer.offer("SaveBlock", b"one")
        await consumer.until(lambda: bool(consumer.received))
    assert consumer.payloads == [b"one"]
