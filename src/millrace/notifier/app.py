"""The notifier, wired: nodes and consumers on one port, operators on another."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from aiohttp import web

from millrace.notifier.brokers.sink import Sink
from millrace.notifier.hub import Hub, HubSession
from millrace.notifier.journal.journal import Journal
from millrace.notifier.metrics import Metrics
from millrace.notifier.nodes import PATH as SAVE_PATH
from millrace.notifier.nodes import Ingest
from millrace.notifier.rules.entry import Entry, now_ms
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import http, process, websocket

log = logging.getLogger(__name__)

HUB_PATH = "/hub/ws"
_ENVELOPE_BYTES = 1024


class Notifier:
    """A running notifier: what `run` starts, and what tests look into."""

    def __init__(self, settings: NotifierSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.hub = Hub(settings, self.metrics)
        self.journal = Journal(settings, self.metrics, self._publish)
        self.sinks = _sinks(settings, self.metrics, self.journal)
        self.ingest = Ingest(settings, self.journal, self.metrics)
        self.started_ms = now_ms()
        self.port = 0
        self.http_port = 0

    async def start(self, stack: AsyncExitStack) -> None:
        """Open the journal, then the ports; `stack` undoes it in the right order.

        At the end the consumers' deliveries cease first and the sockets close last: what was queued still
        gets to disk, and its nodes still get their answers.
        """
        settings = self.settings
        await self.journal.start()
        self.hub.start(self.journal)
        try:
            server = await self._serve_websockets()
        except OSError:
            await self.journal.stop()
            raise
        stack.push_async_callback(server.close)
        stack.push_async_callback(self.journal.stop)
        for sink in self.sinks:
            await sink.start()
            stack.push_async_callback(sink.stop)
        stack.push_async_callback(self.hub.stop)
        self.port = server.port
        operators = http.HttpServer(self._operator_app())
        stack.push_async_callback(operators.stop)
        self.http_port = await operators.start(settings.host, settings.http_port)

    def _publish(self, entries: list[Entry]) -> None:
        """New events are on disk."""
        self.hub.publish(entries)
        for sink in self.sinks:
            sink.wake()

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

    def _operator_app(self) -> web.Application:
        app = http.make_app()
        serve_metrics = http.metrics_handler(self.metrics.registry)

        async def metrics(request: web.Request) -> web.Response:
            self._refresh_gauges()
            return await serve_metrics(request)

        app.router.add_get("/health", self._health)
        app.router.add_get("/ready", self._ready)
        app.router.add_get("/metrics", metrics)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        """The process lives; `degraded` when it does so with a sink in trouble."""
        body: dict[str, object] = {"status": "ok", "uptimeSeconds": (now_ms() - self.started_ms) // 1000}
        if self.sinks:
            body["sinks"] = {
                sink.name: {"connected": sink.connected, "cursor": sink.cursor, "lag": sink.lag} for sink in self.sinks
            }
        problems = [problem for sink in self.sinks for problem in sink.problems]
        if problems:
            body |= {"status": "degraded", "reasons": problems}
        return http.json_response(body)

    async def _ready(self, _: web.Request) -> web.Response:
        """Events flow: the disk takes them, and every known shard had a block lately."""
        ages = self._block_ages()
        stale = [shard for shard, age in ages.items() if age > self.settings.ready_max_age]
        reasons = [f"no block of shard {shard} for {ages[shard]:.0f} s" for shard in stale]
        if not ages:
            reasons.append("no block yet")
        if self.journal.failing:
            reasons.append(f"the journal cannot be written: {self.journal.failing}")
        body = {
            "status": "not ready" if reasons else "ready",
            "reasons": reasons,
            "secondsSinceBlock": {str(shard): round(age, 3) for shard, age in ages.items()},
            "nodes": len(self.ingest.nodes),
            "consumers": len(self.hub.sessions),
            "journal": {"oldest": self.journal.oldest, "head": self.journal.head},
            "sinks": {
                sink.name: {"cursor": sink.cursor, "lag": sink.lag, "problems": sink.problems} for sink in self.sinks
            },
        }
        return http.json_response(body, 503 if reasons else 200)

    def _block_ages(self) -> dict[int, float]:
        now = now_ms()
        return {shard: (now - at) / 1000 for shard, at in sorted(self.journal.last_block_ms.items())}

    def _refresh_gauges(self) -> None:
        metrics = self.metrics
        metrics.head.set(self.journal.head)
        metrics.oldest.set(self.journal.oldest)
        metrics.consumers.set(len(self.hub.sessions))
        metrics.subscriptions.set(self.hub.filter_count)
        metrics.consumer_lag.set(self.hub.lag())
        for sink in self.sinks:
            sink.refresh_gauges()
        for shard, age in self._block_ages().items():
            metrics.block_age.labels(metrics.shard(shard)).set(age)

    async def work(self, stop: asyncio.Event) -> None:
        """Follow the nodes in server mode until `stop`, or until the journal gives up."""
        followers = [self.ingest.follow(url) for url in self.settings.node_urls]
        await process.wait_first(stop, self.journal.defect, *followers)


def _sinks(settings: NotifierSettings, metrics: Metrics, journal: Journal) -> list[Sink]:
    """The brokers to publish to. A client library is loaded only when it is used."""
    sinks: list[Sink] = []
    if settings.amqp_url:
        from millrace.notifier.brokers.rabbitmq import AmqpSink

        sinks.append(AmqpSink(settings, metrics, journal))
    if settings.service_bus_connection or settings.service_bus_connection_file:
        from millrace.notifier.brokers.service_bus import ServiceBusSink

        sinks.append(ServiceBusSink(settings, metrics, journal))
    return sinks


async def run(settings: NotifierSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `OSError` with a text for the operator when it cannot start."""
    notifier = Notifier(settings)
    async with AsyncExitStack() as stack:
        await notifier.start(stack)
        log.info("ready", extra={"port": notifier.port, "http_port": notifier.http_port})
        await notifier.work(stop)
