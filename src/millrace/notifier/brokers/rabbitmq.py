"""Delivery to RabbitMQ: a durable topic exchange, publisher confirms, the journal as outbox."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple, cast

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractExchange, HeadersType
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, DeliveryError
from aiormq import Channel
from aiormq.abc import DeliveredMessage, FieldTable
from yarl import URL

from millrace.notifier.brokers import sink
from millrace.notifier.brokers.item import Item
from millrace.notifier.brokers.sink import Bounds, Sink
from millrace.notifier.journal.journal import Journal
from millrace.notifier.metrics import Metrics
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules.hub_protocol import GAP
from millrace.notifier.settings import NotifierSettings
from millrace.runtime.settings import Secret
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)
_log_unroutable = OccasionalLog(log, logging.WARNING, "no queue is bound for a message")

CONTENT_TYPE = "application/protobuf"
_SEGMENT_BYTES = 500_000_000
_DRAIN_BYTES = 1024 * 1024  # handed to the socket before it is waited for; less often than for each message


class StreamGone(ConnectionError):
    """A stream was deleted since it was declared; what it did not get is published again on a new connection."""


class _Target(NamedTuple):
    exchange: str
    """Empty: the queue with the name `key`."""
    key: str
    mandatory: bool
    """The broker returns what comes into no queue by this."""


class AmqpSink(Sink):
    """Publishes the journal to a topic exchange."""

    expected = (*CONNECTION_EXCEPTIONS, TimeoutError)
    refusals = (DeliveryError,)

    def __init__(self, settings: NotifierSettings, metrics: Metrics, journal: Journal) -> None:
        bounds = Bounds(
            settings.amqp_window,
            settings.amqp_window_bytes,
            settings.amqp_confirm_timeout,
            settings.amqp_max_message_bytes,
        )
        super().__init__("amqp", bounds, settings, metrics, journal)
        self._url = _broker(settings.amqp_url)
        self._exchange = settings.amqp_exchange
        self._prefix = f"{settings.amqp_prefix}." if settings.amqp_prefix else ""
        self._unroutable = metrics.amqp_unroutable
        self._streams = Streams(settings, self._prefix, metrics) if settings.amqp_streams else None

    async def _deliver(self) -> None:
        connection = await aio_pika.connect(self._url, timeout=sink.OPEN_SECONDS)
        publishing: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.timeout(sink.OPEN_SECONDS):
                channel = await connection.channel(publisher_confirms=True, on_return_raises=False)
                exchange = await channel.declare_exchange(self._exchange, aio_pika.ExchangeType.TOPIC, durable=True)
                # The library below takes messages without waiting for the socket each time.
                underlay = cast(Channel, await channel.get_underlay_channel())
            channel.close_callbacks.add(self._on_channel_closed)
            if self._streams is not None:
                self._streams.opened(channel, exchange)
            self._opened(exchange.name)
            await self._pump(underlay, publishing)
        finally:
            await end_tasks(publishing)
            await _close(connection)

    def _on_channel_closed(self, _: object, error: BaseException | None) -> None:
        self._fail(error)

    async def _pump(self, channel: Channel, publishing: set[asyncio.Task[None]]) -> None:
        window = self._window
        items: deque[Item] = deque()
        undrained = 0
        while not (self._stopping and not window.unconfirmed):
            self._wake.clear()
            self._require_life()
            if not self._stopping:
                if not items and self.behind:
                    items.extend(await self._next_items(window.position))
                while items and window.has_room(len(items[0].payload)):
                    item = items.popleft()
                    if self._streams is not None and item.shard is not None:
                        await self._streams.require(item.shard)
                    window.sent(item.sequence, len(item.payload), sink.now())
                    # Tasks start in the order of their creation, and the channel's lock is fair: so is the wire.
                    undrained += len(item.payload)
                    drain = undrained >= _DRAIN_BYTES
                    undrained = 0 if drain else undrained
                    task = asyncio.create_task(self._publish(channel, item, drain))
                    publishing.add(task)
                    task.add_done_callback(publishing.discard)
                if not items and self.behind:
                    continue
            await self._wait()

    async def _publish(self, channel: Channel, item: Item, drain: bool) -> None:
        """Send a message and wait for its confirms. With `drain` the ones behind it wait until the socket took it."""
        targets = self._targets(item)
        try:
            sends = [self._send(channel, item, target, drain) for target in targets]
            returned = [target for target, back in zip(targets, await asyncio.gather(*sends), strict=True) if back]
            if returned and not returned[0].exchange:
                raise StreamGone(f"the stream {returned[0].key} is gone")
        except (Exception, asyncio.CancelledError) as error:  # the library also cancels what waits for a confirm
            self._fail(error)
            return
        if returned:
            self._unroutable.inc()
            _log_unroutable(routing_key=returned[0].key)
        self._confirm(item.sequence)

    def _targets(self, item: Item) -> list[_Target]:
        """Where a message goes.

        The broker returns what comes into no queue at all. So a stream is sent its events by its own name, where no
        other queue hides that it is gone; and the exchange returns nothing that is in a stream.
        """
        key = self._prefix + (item.topic if item.shard is None else f"{item.topic}.{item.shard}")
        if self._streams is None or item.shard is None:
            return [_Target(self._exchange, key, mandatory=True)]
        stream = self._streams.name(item.shard)
        return [_Target(self._exchange, key, mandatory=False), _Target("", stream, mandatory=True)]

    async def _send(self, channel: Channel, item: Item, target: _Target, drain: bool) -> bool:
        """Send a message to one target and wait for its confirm; whether it was returned."""
        answer: object = await channel.basic_publish(
            item.payload,
            exchange=target.exchange,
            routing_key=target.key,
            properties=_message(item).properties,
            mandatory=target.mandatory,
            wait=drain,
        )
        return isinstance(answer, DeliveredMessage)


class Streams:
    """A stream for each shard: a log on the broker that keeps what was published, for readers at any place of it."""

    def __init__(self, settings: NotifierSettings, prefix: str, metrics: Metrics) -> None:
        self._name = settings.amqp_streams
        self._prefix = prefix
        self._arguments: FieldTable = {
            "x-queue-type": "stream",
            "x-max-length-bytes": settings.amqp_stream_bytes,
            # Only whole segments leave: a tenth, up to the broker's own default.
            "x-stream-max-segment-size-bytes": min(settings.amqp_stream_bytes // 10 + 1, _SEGMENT_BYTES),
        }
        self._count = metrics.amqp_streams
        self._declared: set[int] = set()

    def opened(self, channel: AbstractChannel, exchange: AbstractExchange) -> None:
        """There is a new connection; what was declared may be gone with the broker's disk."""
        self._channel, self._exchange = channel, exchange
        self._declared.clear()

    def name(self, shard: int) -> str:
        """Of the shard's stream."""
        return f"{self._name}.{shard}"

    async def require(self, shard: int) -> None:
        """Return once the shard has a stream, which also gets gaps: they may concern it."""
        if shard in self._declared:
            return
        async with asyncio.timeout(sink.OPEN_SECONDS):
            stream = await self._channel.declare_queue(self.name(shard), durable=True, arguments=self._arguments)
            await stream.bind(self._exchange, f"{self._prefix}{GAP}")
        self._declared.add(shard)
        self._count.set(len(self._declared))


def _broker(setting: Secret) -> URL:
    """Where the broker is. Raises `OSError` for what is no such URL, without showing it: it may hold a password."""
    try:
        url = URL(setting.reveal())
    except ValueError:
        url = URL()
    if url.scheme not in ("amqp", "amqps") or not url.host:
        raise OSError("amqp_url: expected amqp://user:password@host:port/vhost, or amqps://…")
    return url


def _message(item: Item) -> aio_pika.Message:
    headers: HeadersType = {"content-type": CONTENT_TYPE, "topic": item.topic, "sequence": item.sequence}
    if item.shard is not None:
        headers["shard-id"] = item.shard
    if item.marks:
        headers["marks"] = item.marks
    return aio_pika.Message(
        item.payload,
        message_id=item.message_id,
        content_type=CONTENT_TYPE,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        headers=headers,
    )


async def _close(connection: aio_pika.abc.AbstractConnection) -> None:
    try:
        async with asyncio.timeout(sink.CLOSE_SECONDS):
            await connection.close()
    except Exception as error:  # it is gone in any case
        log.debug("no clean end of the connection", extra={"why": str(error)})
