"""The notifier, wired: nodes and consumers on one port, operators on another."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from millrace.notifier.hub import Hub, HubSession
from millrace.notifier.journal.journal import Journal
from millrace.notifier.metrics import Metrics
from millrace.notifier.nodes import PATH as SAVE_PATH
from millrace.notifier.nodes import Ingest
from millrace.notifier.rules.entry import Entry
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import extras, process, websocket
from millrace.runtime.tasks import end_tasks
from millrace.runtime.tracing import Tracer, tracing

if TYPE_CHECKING:
    from millrace.notifier.brokers.sink import Sink

log = logging.getLogger(__name__)

HUB_PATH = "/hub/ws"
_ENVELOPE_BYTES = 1024
_FIRST_SECONDS = 0.5  # for the first node; those that wait for a notifier try every few seconds


class Notifier:
    """A running notifier: what `run` starts, and what tests look into."""

    def __init__(self, settings: NotifierSettings, tracer: Tracer | None = None) -> None:
        self.settings = settings
        tracer = Tracer(settings) if tracer is None else tracer
        self.metrics = Metrics(tracer)
        self.hub = Hub(settings, self.metrics, tracer)
        self.journal = Journal(settings, self.metrics, self._publish)
        self.sinks: list[Sink] = []
        self.ingest = Ingest(settings, self.journal, self.metrics)
        self._followers: list[asyncio.Task[None]] = []
        self.port = 0
        self.http_port = self.metrics_port = 0

    async def start(self, stack: AsyncExitStack) -> None:
        """Start everything; `stack` undoes it in the right order."""
        await self.listen(stack)
        await self.start_others(stack)

    async def listen(self, stack: AsyncExitStack) -> None:
        """Open the journal and the port, and call nodes in server mode; return when nodes are answered.

        At the end the consumers' deliveries cease first and the sockets close last: what was queued still
        gets to disk, and its nodes still get their answers.
        """
        await self.journal.start()
        self.hub.start(self.journal)
        try:
            server = await self._serve_websockets()
        except OSError:
            await self.journal.stop()
            raise
        stack.push_async_callback(server.close)
        stack.push_async_callback(self.journal.stop)
        self._followers += [asyncio.create_task(self.ingest.follow(url)) for url in self.settings.node_urls]
        stack.push_async_callback(end_tasks, self._followers)
        self.port = server.port
        await self.journal.warmed()
        log.info("nodes are answered", extra={"port": self.port})

    async def start_others(self, stack: AsyncExitStack) -> None:
        """Publish to the brokers and open the operators' ports."""
        settings = self.settings
        for sink in await _sinks(settings, self.metrics, self.journal):
            await sink.start()
            stack.push_async_callback(sink.stop)
            self.sinks.append(sink)
        stack.push_async_callback(self.hub.stop)
        await _load("millrace.notifier.operators")
        from millrace.notifier.operators import Operators

        operators = Operators(settings, self.metrics, self.journal, self.ingest, self.hub, self.sinks)
        stack.push_async_callback(operators.stop)
        self.http_port, self.metrics_port = await operators.start()

    def _publish(self, entries: list[Entry]) -> None:
        """New events are on disk."""
        self.hub.publish(entries)
        for sink in self.sinks:
            sink.tell(entries)

    async def _serve_websockets(self) -> websocket.WsServer:
        settings = self.settings
        return await websocket.serve(
            self._session,
            settings.host,
            settings.port,
            max_message_size=settings.max_frame_bytes + _ENVELOPE_BYTES,
            max_sessions=settings.max_connections,
            ping_interval=settings.ping_interval,
            pong_timeout=settings.pong_timeout,
        )

    def _session(self, request: websocket.Request) -> websocket.Session:
        if request.path == SAVE_PATH:
            return self.ingest.accept(request)
        if request.path == HUB_PATH:
            return HubSession(self.hub)
        raise websocket.Refuse(404, f"nodes connect to {SAVE_PATH}, consumers to {HUB_PATH}")

    async def work(self, stop: asyncio.Event) -> None:
        """Serve until `stop`, or until the journal gives up."""
        await process.wait_first(stop, self.journal.defect, *self._followers)


async def _load(module: str) -> None:
    """Import a module while the loop goes on."""
    await asyncio.to_thread(importlib.import_module, module)


async def _sinks(settings: NotifierSettings, metrics: Metrics, journal: Journal) -> list[Sink]:
    """The brokers to publish to. A client library is loaded only when it is used."""
    sinks: list[Sink] = []
    if settings.amqp_url:
        await _load("millrace.notifier.brokers.rabbitmq")
        from millrace.notifier.brokers.rabbitmq import AmqpSink

        sinks.append(AmqpSink(settings, metrics, journal))
    if settings.service_bus_connection or settings.service_bus_connection_file:
        extras.require("azure", "the notifier's Azure Service Bus")
        await _load("millrace.notifier.brokers.service_bus")
        from millrace.notifier.brokers.service_bus import ServiceBusSink

        sinks.append(ServiceBusSink(settings, metrics, journal))
    return sinks


async def run(settings: NotifierSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `OSError` with a text for the operator when it cannot start."""
    # A busy block makes more than a thousand objects that the collector counts, and all go when it is done: it need not
    # look each time 700 are there, as by default (0.95 of the writer's CPU; with 5,000 it was 0.97).
    gc.set_threshold(20_000, 20, 100)
    async with AsyncExitStack() as stack:
        notifier = Notifier(settings, stack.enter_context(tracing("notifier", settings)))
        await notifier.listen(stack)
        # Nodes stand still while a notifier is away. To load what only others need would keep the first one waiting for
        # 30 to 50 ms: threads take turns.
        await notifier.ingest.wait_answered(_FIRST_SECONDS)
        await notifier.start_others(stack)
        log.info(
            "ready",
            extra={"port": notifier.port, "http_port": notifier.http_port, "metrics_port": notifier.metrics_port},
        )
        await notifier.work(stop)
