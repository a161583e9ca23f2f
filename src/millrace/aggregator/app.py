"""The aggregator: feed, REST, operators' port; in one process, or in several workers behind one port."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING

from aiohttp import web

from millrace.aggregator.clients import Clients
from millrace.aggregator.crew import Crew
from millrace.aggregator.feed import Feed
from millrace.aggregator.health import Workers, health
from millrace.aggregator.metrics import WORKERS, Report, Shown, of_market, together
from millrace.aggregator.publish import document_handler
from millrace.aggregator.service import Service, clients_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder, Snapshot
from millrace.runtime import operators
from millrace.runtime.http import metrics_handler
from millrace.runtime.measures import registry_of
from millrace.runtime.process import wait_first
from millrace.runtime.tracing import Tracer, check, tracing

if TYPE_CHECKING:
    from millrace.aggregator.fleet import Fleet

log = logging.getLogger(__name__)


async def run(settings: AggregatorSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    if settings.workers > 1:
        check(settings)  # workers trace: each of them would end for want of it
        await _run_crew(settings, stop)
        return
    with tracing("aggregator", settings) as tracer:
        await serve(settings, stop, tracer)


async def serve(settings: AggregatorSettings, stop: asyncio.Event, tracer: Tracer) -> None:
    """The service in this process alone, which may do more."""
    clients = clients_of(settings)
    fleet = fleet_of(settings, clients)
    feed: Feed[Snapshot] = Feed(settings, Builder(settings.table()))
    service = Service(settings, feed, clients, tracer)
    metrics, registry = service.api.metrics, registry_of("aggregator")

    def report() -> Report:
        parts = (metrics.report(), of_market(feed), Report({WORKERS.name: 1.0}))
        return together(parts if fleet is None else (*parts, fleet.report()))

    registry.register(Shown(report))
    port = await service.start()
    try:
        watched, metrics_port = await operators.serve(
            settings.metrics_host,
            settings.metrics_port,
            {
                "/health": service.api.health,
                "/metrics": metrics_handler(registry),
                "/pools": document_handler(feed),
            },
            token=settings.operators_token,
        )
    except OSError:
        await service.stop()
        raise
    _log_ready(settings, port, metrics_port)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, log.warning, "one process alone: there are no workers to replace")
    try:
        await wait_first(stop, feed.run(), *([] if fleet is None else [fleet.run()]))
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        await service.stop()
        await watched.stop()


async def _run_crew(settings: AggregatorSettings, stop: asyncio.Event) -> None:
    crew, started = Crew(settings), time.monotonic()
    fleet = fleet_of(settings, crew.clients)
    latest = Report()
    registry = registry_of("aggregator", children=crew.pids)
    registry.register(Shown(lambda: latest))
    shown = metrics_handler(registry)

    async def metrics(request: web.Request) -> web.Response:
        nonlocal latest
        latest = await crew.report()
        if fleet is not None:
            latest = together((latest, fleet.report()))
        return await shown(request)

    async def healthy(_: web.Request) -> web.Response:
        return health(crew.feed, settings, started, Workers(crew.serving, settings.workers))

    port = crew.listen()
    try:
        watched, metrics_port = await operators.serve(
            settings.metrics_host,
            settings.metrics_port,
            {"/health": healthy, "/metrics": metrics, "/pools": document_handler(crew.feed)},
            token=settings.operators_token,
        )
    except OSError:
        crew.close_sockets()
        crew.feed.close()
        raise
    _log_ready(settings, port, metrics_port)
    try:
        await crew.run(stop, *([] if fleet is None else [fleet.run()]))
    finally:
        await watched.stop()


def fleet_of(settings: AggregatorSettings, clients: Clients) -> Fleet | None:
    """What tells other machines of our clients, if that is wanted. Raises `OSError`."""
    if not settings.redis_url:
        return None
    from millrace.aggregator.fleet import Fleet  # its library takes 0.1 s to load

    return Fleet(settings, clients)


def _log_ready(settings: AggregatorSettings, port: int, metrics_port: int) -> None:
    place = {"port": port, "metrics_port": metrics_port, "workers": settings.workers}
    log.info("ready", extra={**place, "source": settings.pools_url, "contract": settings.contract})
