"""The collector process: collect, serve as `/pools`, write to a file, or both; or once and end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from millrace.collector.collect import Collected, CollectError, Collector
from millrace.collector.gateway import Gateway
from millrace.collector.settings import CollectorSettings
from millrace.collector.tokens import TokenBook
from millrace.runtime.http import HttpServer, error_response, json_response, make_app
from millrace.runtime.logs import Seldom
from millrace.runtime.process import wait_first

log = logging.getLogger(__name__)

LOG_SECONDS, LOGGED_FAULTS = 60.0, 10
"""The same fault of a round is not logged again for so long, nor more different ones in that time."""


class Served:
    """The newest document, what it was made of, and what went wrong since."""

    def __init__(self, settings: CollectorSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self.latest: Collected | None = None
        self.collected_at = 0.0
        self.block_nonce = -1
        self.block_at = 0.0
        """When the newest block was first told of."""
        self.last_error: str | None = None
        self.rounds = 0

    def application(self) -> web.Application:
        """`/pools` and `/health`."""
        app = make_app()
        app.router.add_get("/pools", self._pools)
        app.router.add_get("/health", self._health)
        return app

    def age(self) -> float | None:
        """Seconds since the newest document was asked for, or, if longer, since the gateway's block last moved."""
        return None if self.latest is None else self._clock() - min(self.collected_at, self.block_at)

    async def _pools(self, request: web.Request) -> web.Response:
        """The newest document; 304 to who has it already."""
        age = self.age()
        if self.latest is None or age is None or age > self._settings.max_age_seconds:
            return error_response("service unavailable", 503, {"Retry-After": "5"})
        # Rounded up: to who reads it the document is never younger than it is.
        headers = {"ETag": f'"{self.latest.digest}"', "Cache-Control": "no-cache", "Age": str(math.ceil(age))}
        if any(tag.value in (self.latest.digest, "*") for tag in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=self.latest.data, content_type="application/json", headers=headers)

    async def _health(self, _: web.Request) -> web.Response:
        latest, age = self.latest, self.age()
        stale = age is not None and age > self._settings.max_age_seconds
        body = {
            "status": "starting" if latest is None else "stale" if stale else "ok",
            "source": self._settings.gateway,
            "rounds": self.rounds,
            "pools": 0 if latest is None else len(latest.document.pools),
            "skippedPools": 0 if latest is None else len(latest.skipped),
            "blockNonce": None if latest is None else latest.document.block.nonce,
            "ageSeconds": None if age is None else round(age, 3),
            "lastError": self.last_error,
        }
        return json_response(body, 503 if latest is None or stale else 200)

    async def round(self, collector: Collector) -> Collected:
        """Collect once and keep the result. Raises `CollectError`; what was kept before stays."""
        started, asked = time.monotonic(), self._clock()
        try:
            collected = await collector.collect()
            self._follow(collected.document.block.nonce, asked)
        except CollectError as error:
            self.last_error = str(error)
            raise
        self.latest, self.collected_at, self.last_error = collected, asked, None
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

    def _follow(self, nonce: int, asked: float) -> None:
        """Note how far the chain is. Raises `CollectError` for a block older than one told of before.

        Only its number tells: rounds go by a node's clock, also where it is cut off, and of several observers behind a
        gateway one may stand still.
        """
        if nonce < self.block_nonce:
            raise CollectError(
                f"the gateway's block {nonce} is older than {self.block_nonce}, which it told before: "
                "one of its observers lags; if the chain began anew, start the collector again"
            )
        if nonce > self.block_nonce:
            self.block_nonce, self.block_at = nonce, asked


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
            if not settings.output:
                sys.stdout.buffer.write(collected.data + b"\n")
                sys.stdout.buffer.flush()
            if settings.token_cache:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(settings.query_timeout_seconds):
                        await book.renew()
                book.save()
            return
        server = HttpServer(served.application())
        port = await server.start(settings.host, settings.port)
        log.info("ready", extra={"port": port, "source": settings.gateway})
        try:
            await wait_first(stop, _loop(settings, served, collector, book), _renewals(settings, book))
        finally:
            await server.stop()


async def _loop(settings: CollectorSettings, served: Served, collector: Collector, book: TokenBook) -> None:
    """Round after round; one that fails leaves the last document in place, and is logged if that is news."""
    lines = Seldom(LOG_SECONDS, LOGGED_FAULTS)

    def is_due(error: Exception) -> bool:
        return lines.is_due(repr(error), time.monotonic())

    while True:
        started = time.monotonic()
        try:
            await served.round(collector)
            book.save()
        except CollectError as error:
            if is_due(error):
                log.warning("no document this round", extra={"reason": str(error)})
        except OSError as error:  # a full disk, say: what is served needs none
            if is_due(error):
                log.error("the document or the token cache cannot be written", extra={"error": str(error)})
        except Exception as error:  # a defect of ours must not end the collector
            if is_due(error):
                log.exception("a round failed")
            served.last_error = f"internal error: {type(error).__name__}"
        await asyncio.sleep(max(0.05, settings.refresh_seconds - (time.monotonic() - started)))


async def _renewals(settings: CollectorSettings, book: TokenBook) -> None:
    """Tokens are asked about again beside the rounds, which wait for no answer that only concerns a warning."""
    while True:
        await asyncio.sleep(settings.refresh_seconds)
        try:
            await book.renew()
        except Exception:  # a defect of ours must not end the collector
            log.exception("tokens could not be asked about again")
