"""The collector process: collect, serve as `/pools`, write to a file, or both; or once and end."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

import aiohttp
from aiohttp import web

from millrace.collector.collect import Collected, CollectError, Collector
from millrace.collector.gateway import Gateway
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import TokenBook
from millrace.runtime.http import HttpServer, error_response, json_response, make_app
from millrace.runtime.process import wait_first

log = logging.getLogger(__name__)


class Served:
    """The newest document, what it was made of, and what went wrong since."""

    def __init__(self, settings: CollectorSettings) -> None:
        self._settings = settings
        self.latest: Collected | None = None
        self.collected_at = 0.0
        self.last_error: str | None = None
        self.rounds = 0

    def application(self) -> web.Application:
        """`/pools` and `/health`."""
        app = make_app()
        app.router.add_get("/pools", self._pools)
        app.router.add_get("/health", self._health)
        return app

    async def _pools(self, _: web.Request) -> web.Response:
        if self.latest is None:
            return error_response("service unavailable", 503, {"Retry-After": "5"})
        return web.Response(body=self.latest.data, content_type="application/json")

    async def _health(self, _: web.Request) -> web.Response:
        latest = self.latest
        body = {
            "status": "ok" if latest is not None else "starting",
            "source": self._settings.gateway,
            "rounds": self.rounds,
            "pools": 0 if latest is None else len(latest.document.pools),
            "skippedPools": 0 if latest is None else len(latest.skipped),
            "blockNonce": None if latest is None else latest.document.block.nonce,
            "ageSeconds": None if latest is None else round(time.monotonic() - self.collected_at, 3),
            "lastError": self.last_error,
        }
        return json_response(body, 200 if latest is not None else 503)

    async def round(self, collector: Collector) -> Collected:
        """Collect once and keep the result. Raises `CollectError`; what was kept before stays."""
        started = time.monotonic()
        try:
            collected = await collector.collect()
        except CollectError as error:
            self.last_error = str(error)
            raise
        self.latest, self.collected_at, self.last_error = collected, time.monotonic(), None
        self.rounds += 1
        if self._settings.output:
            write(Path(self._settings.output), collected.data)
        log.info(
            "collected",
            extra={
                "pools": len(collected.document.pools),
                "skipped": len(collected.skipped),
                "seconds": round(time.monotonic() - started, 3),
            },
        )
        for pool, reason in collected.skipped:
            log.debug("pool left out", extra={"pool": pool, "reason": reason})
        return collected


def write(path: Path, data: bytes) -> None:
    """Replace a file in whole, so that no reader sees half of it."""
    scratch = path.with_name(path.name + ".new")
    scratch.write_bytes(data)
    scratch.replace(path)


async def run(settings: CollectorSettings, stop: asyncio.Event) -> None:
    """Collect until `stop` is set; with `once`, one document and the end."""
    served = Served(settings)
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(session, settings)
        book = TokenBook(gateway, Path(settings.token_cache) if settings.token_cache else None)
        collector = Collector(settings, gateway, book)
        if settings.once:
            try:
                collected = await served.round(collector)
            except CollectError as error:
                raise SystemExit(f"no document: {error}") from None
            book.save()
            if not settings.output:
                sys.stdout.buffer.write(collected.data + b"\n")
            return
        server = HttpServer(served.application())
        port = await server.start(settings.host, settings.port)
        log.info("ready", extra={"port": port, "source": settings.gateway})
        try:
            await wait_first(stop, _loop(settings, served, collector, book))
        finally:
            await server.stop()


async def _loop(settings: CollectorSettings, served: Served, collector: Collector, book: TokenBook) -> None:
    """Round after round; one that fails leaves the last document in place."""
    while True:
        started = time.monotonic()
        try:
            await served.round(collector)
            book.save()
        except CollectError as error:
            log.warning("no document this round", extra={"reason": str(error)})
        await asyncio.sleep(max(0.05, settings.refresh_seconds - (time.monotonic() - started)))
