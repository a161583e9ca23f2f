"""What operators see of a notifier: `/health`, `/ready` and `/metrics`."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from millrace.notifier.brokers.sink import Sink
from millrace.notifier.hub import Hub
from millrace.notifier.journal.journal import Journal
from millrace.notifier.metrics import Metrics
from millrace.notifier.nodes import Ingest
from millrace.notifier.rules.entry import now_ms
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import http, operators
from millrace.runtime.measures import free_bytes
from millrace.runtime.version import version


class Operators:
    """The HTTP server for them."""

    def __init__(
        self,
        settings: NotifierSettings,
        metrics: Metrics,
        journal: Journal,
        ingest: Ingest,
        hub: Hub,
        sinks: Sequence[Sink],
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._journal = journal
        self._ingest = ingest
        self._hub = hub
        self._sinks = sinks
        self._started_ms = now_ms()
        self._servers: list[http.HttpServer] = []

    async def start(self) -> tuple[int, int]:
        """Listen; the port of state, and that of metrics. Raises `OSError`."""
        settings, state = self._settings, {"/health": self._health, "/ready": self._ready}
        ports = []
        for host, port, handlers in (
            (settings.host, settings.http_port, state),
            (settings.metrics_host, settings.metrics_port, state | {"/metrics": self._serve_metrics}),
        ):
            token = settings.operators_token if "/metrics" in handlers else None
            server, taken = await operators.serve(host, port, handlers, token=token)
            self._servers.append(server)
            ports.append(taken)
        return ports[0], ports[1]

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop()

    async def _serve_metrics(self, request: web.Request) -> web.StreamResponse:
        self._refresh_gauges()
        return await http.metrics_handler(self._metrics.registry)(request)

    async def _health(self, _: web.Request) -> web.Response:
        """The process lives; `degraded` when it does so with a sink in trouble."""
        body: dict[str, object] = {"status": "ok", "serviceVersion": version()}
        body["uptimeSeconds"] = (now_ms() - self._started_ms) // 1000
        if self._sinks:
            body["sinks"] = {
                sink.name: {"connected": sink.connected, "cursor": sink.cursor, "lag": sink.lag} for sink in self._sinks
            }
        problems = [problem for sink in self._sinks for problem in sink.problems]
        if problems:
            body |= {"status": "degraded", "reasons": problems}
        return http.json_response(body)

    async def _ready(self, _: web.Request) -> web.Response:
        """Events flow: the disk takes them, and every known shard had a block lately."""
        ages = self._block_ages()
        stale = [shard for shard, age in ages.items() if age > self._settings.ready_max_age]
        reasons = [f"no block of shard {shard} for {ages[shard]:.0f} s" for shard in stale]
        if not ages:
            reasons.append("no block yet")
        if self._journal.failing:
            reasons.append(f"the journal cannot be written: {self._journal.failing}")
        body = {
            "status": "not ready" if reasons else "ready",
            "reasons": reasons,
            "serviceVersion": version(),
            "secondsSinceBlock": {str(shard): round(age, 3) for shard, age in ages.items()},
            "nodes": len(self._ingest.nodes),
            "consumers": len(self._hub.sessions),
            "journal": {"oldest": self._journal.oldest, "head": self._journal.head},
            "sinks": {
                sink.name: {"cursor": sink.cursor, "lag": sink.lag, "problems": sink.problems} for sink in self._sinks
            },
        }
        return http.json_response(body, 503 if reasons else 200)

    def _block_ages(self) -> dict[int, float]:
        now = now_ms()
        return {shard: (now - at) / 1000 for shard, at in sorted(self._journal.last_block_ms.items())}

    def _refresh_gauges(self) -> None:
        metrics = self._metrics
        metrics.head.set(self._journal.head)
        metrics.oldest.set(self._journal.oldest)
        metrics.nodes.set(len(self._ingest.nodes))
        metrics.failing.set(bool(self._journal.failing))
        metrics.disk_free.set(free_bytes(self._settings.data_dir))
        metrics.consumers.set(len(self._hub.sessions))
        metrics.subscriptions.set(self._hub.filter_count)
        metrics.consumer_lag.set(self._hub.lag())
        for sink in self._sinks:
            sink.refresh_gauges()
        for shard, age in self._block_ages().items():
            metrics.block_age.labels(metrics.shard(shard)).set(age)
