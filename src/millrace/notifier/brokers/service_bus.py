"""Delivery to the cloud's service bus: a topic for each kind of event, sessions, batches, the journal as outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from azure.servicebus import parse_connection_string
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from millrace.notifier.brokers import sink
from millrace.notifier.brokers.bus_messages import BusMessage
from millrace.notifier.brokers.bus_publisher import Publisher
from millrace.notifier.brokers.item import Item
from millrace.notifier.brokers.sink import Bounds, Sink
from millrace.notifier.journal.dead_letters import DeadLetters
from millrace.notifier.journal.journal import Journal
from millrace.notifier.metrics import Metrics
from millrace.notifier.rules.entry import now_ms
from millrace.notifier.settings import NotifierSettings

_SLICE = Bounds(messages=1024, bytes=1024 * 1024, confirm_timeout=float("inf"), message_bytes=1 << 62)
"""Events published side by side. The publisher itself looks after time and size, per batch and per message."""


class ServiceBusSink(Sink):
    """Publishes the journal to the service bus."""

    expected = (ServiceBusError, TimeoutError, OSError)
    refusals = (
        ServiceBusServerBusyError,
        ServiceBusQuotaExceededError,
        ServiceBusAuthenticationError,
        ServiceBusAuthorizationError,
        MessagingEntityDisabledError,
        MessagingEntityNotFoundError,
    )

    def __init__(self, settings: NotifierSettings, metrics: Metrics, journal: Journal) -> None:
        super().__init__("service_bus", _SLICE, settings, metrics, journal)
        self._settings = settings
        self._messages = metrics.service_bus_messages
        self._omitted = metrics.service_bus_omitted
        self._kept = DeadLetters(settings.data_dir, settings.dead_letter_bytes, "service-bus-dead-letters")
        self._publisher: Publisher

    async def start(self) -> None:
        """Begin where the cursor stands. Raises `OSError` for what only an operator can mend, saying how."""
        await asyncio.to_thread(_connection_string, self._settings)
        await super().start()  # its tasks begin to run only after this method
        self._publisher = Publisher(
            self._settings.service_bus_topics,
            self._settings.service_bus_timeout,
            self._settings.service_bus_partitioned,
            self._omit,
        )

    async def stop(self) -> None:
        """Let what is on its way arrive, keep the cursor, end the thread."""
        await super().stop()
        await self._publisher.close()
        self._kept.close()

    async def _deliver(self) -> None:
        try:
            # Read again: its key may have been changed.
            await self._publisher.connect(await asyncio.to_thread(_connection_string, self._settings))
            self._opened("the service bus")
            while not self._stopping:
                self._wake.clear()
                if not self.behind:
                    await self._wait()
                    continue
                await self._publish(await self._next_items(self._window.position))
        finally:
            await self._publisher.disconnect()

    async def _publish(self, items: list[Item]) -> None:
        for part in self._slices(items):
            if self._stopping:
                return
            for item in part:
                self._window.sent(item.sequence, len(item.payload), sink.now())
            self._messages.inc(await self._publisher.publish(part))
            for item in part:
                self._confirm(item.sequence)

    def _slices(self, items: list[Item]) -> Iterator[list[Item]]:
        """The items in parts that fit the window."""
        part: list[Item] = []
        size = 0
        for item in items:
            if part and size + len(item.payload) > self.bounds.bytes:
                yield part
                part, size = [], 0
            part.append(item)
            size += len(item.payload)
        if part:
            yield part

    def _omit(self, message: BusMessage, reason: str) -> None:
        """Keep what is too large for the bus, on disk when this returns; in the publisher's thread."""
        self._kept.begin()
        self._kept.add(now_ms(), self.name, message.subject, 1, f"{message.message_id}: {reason}", message.body)
        self._kept.sync()
        self._kept.keep()
        self._omitted.inc()


def _connection_string(settings: NotifierSettings) -> str:
    """Read and looked at, but never shown. Raises `OSError` with a text for the operator."""
    text = settings.reveal_service_bus_connection()
    try:
        only = parse_connection_string(text).entity_path
    except ValueError as error:
        raise OSError(f"the connection string of the service bus is not one: {error}") from None
    others = sorted(set(settings.service_bus_topics.values()) - {only})
    if only and others:
        raise OSError(f"the connection string of the service bus is for {only} alone, and {others[0]} is wanted too")
    return text
