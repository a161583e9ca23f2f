"""The aggregator process: feed, REST."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys

from millrace.aggregator.api import Api
from millrace.aggregator.feed import Feed
from millrace.aggregator.settings import AggregatorSettings
from millrace.runtime import operators
from millrace.runtime.http import HttpServer
from millrace.runtime.origins import Origins
from millrace.runtime.process import wait_first
from millrace.runtime.tracing import Tracer, tracing

log = logging.getLogger(__name__)

# The snapshot is built in a thread; a short switch interval keeps that thread from delaying quotes.
SWITCH_SECONDS = 0.0001
# A snapshot is tens of thousands of objects that live until the next one, and are then freed without the collector. To
# walk all of them takes 20 ms in which nothing else runs: once in a hundred walks of the young ones is enough.
GC_THRESHOLDS = 700, 10, 100


async def run(settings: AggregatorSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    with tracing("aggregator", settings) as tracer:
        gc.collect()
        gc.freeze()  # modules stay: walking them again and again would hold up quotes
        await serve(settings, stop, tracer)


async def serve(settings: AggregatorSettings, stop: asyncio.Event, tracer: Tracer) -> None:
    """The service itself, in a process that may do more."""
    feed = Feed(settings)
    api = Api(settings, feed, tracer)
    origins = Origins(settings.allowed_origins)
    server = HttpServer(api.application(), at_once=api.at_once, doors=api.doors, origins=origins)
    port = await server.start(settings.host, settings.port)
    try:
        watched, metrics_port = await operators.serve(
            settings.metrics_host, settings.metrics_port, api.operators(), token=settings.operators_token
        )
    except OSError:
        await server.stop()
        api.close()
        feed.close()
        raise
    log.info(
        "ready",
        extra={"port": port, "metrics_port": metrics_port, "source": settings.pools_url, "contract": settings.contract},
    )
    try:
        await wait_first(stop, feed.run())
    finally:
        api.streams.close()
        await server.stop()  # what is in flight is answered
        await watched.stop()
        api.close()
        await api.nonces.close()
        await api.simulations.close()
        feed.close()
