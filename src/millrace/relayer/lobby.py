"""The operators' port of a relayer that shares its keys' claims, until it serves: it waits for a seat, then takes over.

Nothing else listens meanwhile, but what says so to edges (`forwarding.standing_by`). Who watches has to tell one that
is well and stands by from one that is dead, and whoever ends what does not answer is not to end this one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from aiohttp import web
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millrace.relayer.journal.sharing import ALL_TAKEN, Sharing
from millrace.relayer.measures import READY, STANDING_BY
from millrace.relayer.settings import RelayerSettings
from millrace.runtime import http, operators
from millrace.runtime.measures import registry_of
from millrace.runtime.tracing import Tracer
from millrace.runtime.version import version


class Lobby:
    """`start` answers, `stop` leaves the port to who serves."""

    def __init__(self, settings: RelayerSettings, sharing: Sharing, tracer: Tracer) -> None:
        self._settings = settings
        self._sharing = sharing
        self._tracer = tracer
        self._server: http.HttpServer | None = None
        self._started = time.monotonic()

    async def start(self) -> None:
        """Listen. Raises `OSError` when the port is taken."""
        settings = self._settings
        registry = registry_of("relayer", self._tracer)
        registry.register(_Waiting(self._sharing))
        handlers = {"/health": self._health, "/ready": self._ready, "/metrics": http.metrics_handler(registry)}
        self._server, _ = await operators.serve(
            settings.metrics_host, settings.metrics_port, handlers, token=settings.operators_token
        )

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def _health(self, _: web.Request) -> web.Response:
        """GET: 200 as of any relayer that is alive, with what is known so early."""
        network, why = self._settings.network(), self._sharing.no_seat
        body = {
            "status": "standing by" if why == ALL_TAKEN else "degraded",
            "role": "relayer",
            "serviceVersion": version(),
            "uptimeSeconds": int(time.monotonic() - self._started),
            "profile": network.name,
            "chainId": network.chain_id,
            "signer": False,
            "sponsoring": why or "begins: takes over what was accepted",
        }
        return http.json_response(body)

    async def _ready(self, _: web.Request) -> web.Response:
        """GET: not yet."""
        return http.json_response({"ready": False, "relayers": {}}, 503)


class _Waiting(Collector):
    """What tells one that stands by from one that is dead, or takes too long to begin."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing

    def describe(self) -> Iterator[Metric]:
        """The families without values."""
        return (measure.described() for measure in (STANDING_BY, READY))

    def collect(self) -> Iterator[Metric]:
        """One series each."""
        yield STANDING_BY.single(self._sharing.no_seat == ALL_TAKEN)
        yield READY.single(0)
