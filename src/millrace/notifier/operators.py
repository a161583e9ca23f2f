"""What operators see of a notifier: `/health`, `/ready`, `/metrics`, and the dead letters, which can be sent again."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence

import msgspec
from aiohttp import web

from millrace.notifier.brokers.sink import Sink
from millrace.notifier.hub import Hub
from millrace.notifier.journal import dead_letter_list
from millrace.notifier.journal.journal import Journal
from millrace.notifier.journal.processor import Arrival
from millrace.notifier.metrics import Metrics
from millrace.notifier.nodes import Ingest
from millrace.notifier.rules.dedup import Observer
from millrace.notifier.rules.entry import now_ms
from millrace.notifier.settings import NotifierSettings
from millrace.runtime import http, operators
from millrace.runtime.measures import free_bytes
from millrace.runtime.version import version

SHOWN_BYTES = 64 * 1024
"""Of a dead letter's payload."""
REPLAY_SECONDS = 10.0
"""That the journal has for a payload that is sent again."""
_NO_LETTER = "no such dead letter: ask for the list again"


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    id: str


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
        self._started = time.monotonic()
        self._servers: list[http.HttpServer] = []

    async def start(self) -> tuple[int, int]:
        """Listen; the port of state, and that of metrics. Raises `OSError`."""
        settings, state = self._settings, {"/health": self._health, "/ready": self._ready}
        ports = []
        watched = {
            "/metrics": self._serve_metrics,
            "/v1/state": self._state,
            "/v1/dead-letters": self._dead_letters,
            "/v1/dead-letters/{id}": self._show,
        }
        actions = {"/control/replay-dead-letter": self._replay}
        for host, port, handlers in (
            (settings.host, settings.http_port, state),
            (settings.metrics_host, settings.metrics_port, state | watched),
        ):
            token = settings.operators_token if "/metrics" in handlers else None
            server, taken = await operators.serve(host, port, handlers, actions, token)
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
        body["uptimeSeconds"] = int(time.monotonic() - self._started)
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

    async def _state(self, _: web.Request) -> web.Response:
        """GET: the journal, and how far behind its readers are, in events and in seconds."""
        hub, head = self._hub, self._journal.head
        lag = hub.lag()
        body = {
            "head": head,
            "oldest": self._journal.oldest,
            "nodes": len(self._ingest.nodes),
            "consumers": len(hub.sessions),
            "hub": {"lag": lag, "lagSeconds": round(hub.seconds_behind(head - lag), 3) if lag else 0.0},
            "sinks": [
                {
                    "name": sink.name,
                    "connected": sink.connected,
                    "lag": sink.lag,
                    "lagSeconds": round(hub.seconds_behind(sink.cursor), 3) if sink.lag else 0.0,
                    "problems": list(sink.problems),
                }
                for sink in self._sinks
            ],
        }
        return http.json_response(body)

    async def _dead_letters(self, _: web.Request) -> web.Response:
        """GET: the newest ones, without their payloads."""
        try:
            letters = await asyncio.to_thread(dead_letter_list.listed, self._settings.data_dir)
        except OSError as error:
            return http.error_response(f"the dead letters cannot be read: {error.strerror}", 503)
        return http.json_response({"letters": letters})

    async def _letter(self, name: str) -> tuple[dead_letter_list.Letter, bytes] | None:
        try:
            return await asyncio.to_thread(dead_letter_list.read, self._settings.data_dir, name)
        except OSError:
            return None

    async def _show(self, request: web.Request) -> web.Response:
        """GET: one with the beginning of its payload in base64."""
        found = await self._letter(request.match_info["id"])
        if found is None:
            return http.error_response(_NO_LETTER, 404)
        letter, payload = found
        shown = base64.b64encode(payload[:SHOWN_BYTES]).decode()
        return http.json_response({"letter": letter, "payload": shown, "whole": len(payload) <= SHOWN_BYTES})

    async def _replay(self, request: web.Request) -> web.Response:
        """POST {"id": …}: take a payload in as if a node sent it now; what is not understood again is a new letter."""
        try:
            found = await self._letter(msgspec.json.decode(await request.read(), type=_Named).id)
        except msgspec.DecodeError:
            found = None
        if found is None:
            return http.error_response(_NO_LETTER, 404)
        letter, payload = found
        as_json = payload[:1] in (b"{", b'"')  # as a node wrote it, unwrapped or not: protobuf begins otherwise
        if payload[:1] == b"{":
            payload = msgspec.json.encode(payload)
        head, done = self._journal.head, asyncio.Event()
        sender = f"replay of {letter.remote.removeprefix('replay of ')}"
        arrival = Arrival(Observer(head + 1), sender, letter.topic, letter.version, payload, now_ms())
        self._journal.submit(arrival, done.set, as_json=as_json)
        try:
            async with asyncio.timeout(REPLAY_SECONDS):
                await done.wait()
        except TimeoutError:
            return http.error_response("the journal did not take it in time; it may still", 503)
        return http.json_response({"head": self._journal.head, "before": head})

    def _block_ages(self) -> dict[int, float]:
        now, blocks = now_ms(), self._journal.last_block_ms
        for shard, at in sorted(blocks.items()):
            blocks[shard] = min(at, now)  # where the clock was set back it counts from here on
        return {shard: (now - at) / 1000 for shard, at in sorted(blocks.items())}

    def _refresh_gauges(self) -> None:
        metrics = self._metrics
        metrics.head.set(self._journal.head)
        metrics.oldest.set(self._journal.oldest)
        metrics.journal_disk.set(self._journal.disk_bytes)
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
