"""The REST interface on aiohttp: rate limit, handlers, metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

import msgspec
import prometheus_client
from aiohttp import web

from millrace.aggregator import errors, quote
from millrace.aggregator.answering import Answering
from millrace.aggregator.batch import BatchRequest, batch_quote, price_ladder
from millrace.aggregator.errors import ApiError
from millrace.aggregator.feed import Feed
from millrace.aggregator.limiter import RateLimiter
from millrace.aggregator.openapi import PAGE, document
from millrace.aggregator.query import Query, QuoteRequest, parse_amounts, parse_pair, parse_quote, parse_slippage
from millrace.aggregator.responses import Health
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Snapshot
from millrace.aggregator.stream import Streams
from millrace.runtime.client_address import ClientAddress
from millrace.runtime.http import error_response, json_response, make_app, metrics_handler, read_body

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_QUERY = 8192
ITEMS_PER_REQUEST = 10
FILTER_WEIGHT = 5  # requests that a new combination of filters counts for besides itself
_BATCH = msgspec.json.Decoder(BatchRequest)


class Metrics:
    """Counters and gauges of one process."""

    def __init__(self, feed: Feed, answering: Answering) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "aggregator_requests", "Requests by route and status", ["route", "status"], registry=self.registry
        )
        self.quote_seconds = prometheus_client.Histogram(
            "aggregator_quote_seconds",
            "Time to compute a quote",
            buckets=(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0),
            registry=self.registry,
        )
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "aggregator_snapshot_age_seconds": (
                "Age of the market snapshot; NaN before the first",
                lambda: math.nan if (age := feed.age()) is None else age,
            ),
            "aggregator_pools": ("Pools in the snapshot", lambda: _pools(feed.snapshot)),
            "aggregator_refreshes": ("Snapshots taken in", lambda: feed.refreshes),
            "aggregator_refresh_failures": ("Refreshes that failed", lambda: feed.failures),
            "aggregator_quotes_waiting": ("Long questions in the thread or before it", lambda: answering.waiting),
            "aggregator_quotes_refused": ("Long questions turned away", lambda: answering.refused),
            "aggregator_build_seconds": ("Time to build the last snapshot", lambda: feed.build_seconds),
        }
        for name, (text, read) in gauges.items():
            prometheus_client.Gauge(name, text, registry=self.registry).set_function(read)
        self._children: dict[tuple[str, int], prometheus_client.Counter] = {}

    def count(self, route: str, status: int) -> None:
        """Count one answered request."""
        child = self._children.get((route, status))
        if child is None:
            child = self._children[route, status] = self._requests.labels(route, str(status))
        child.inc()


def _pools(snapshot: Snapshot | None) -> float:
    return 0.0 if snapshot is None else float(len(snapshot.document.pools))


class Api:
    """Handlers over one feed."""

    def __init__(self, settings: AggregatorSettings, feed: Feed) -> None:
        self._settings = settings
        self._feed = feed
        self._started = time.monotonic()
        self._limiter = RateLimiter(settings.requests_per_second, settings.max_clients)
        self._clients = ClientAddress(settings.trusted_proxies)
        self.answering = Answering(settings)
        self.metrics = Metrics(feed, self.answering)
        self.streams = Streams(settings, feed, self.answering)
        self._openapi = document(settings)

    def application(self) -> web.Application:
        """The routes. /health and /metrics are for operators and not rate limited."""
        app = make_app(max_body=1 << 20)
        app.router.add_get("/api/v1/quote", self._guarded("quote", self.quote), allow_head=False)
        app.router.add_get("/api/v1/pair-config", self._guarded("pair-config", self.pair_config), allow_head=False)
        app.router.add_get("/api/v1/price-ladder", self._guarded("ladder", self.ladder), allow_head=False)
        app.router.add_get("/api/v1/quote/stream", self._guarded("stream", self.stream), allow_head=False)
        app.router.add_post("/api/v1/batch-quote", self._guarded("batch", self.batch))
        app.router.add_get("/openapi.json", self.openapi)
        app.router.add_get("/docs", self.page)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", metrics_handler(self.metrics.registry))
        return app

    def _guarded(self, route: str, handler: Handler) -> Handler:
        """Rate limit, documented errors and counting around a handler."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self._admit(request)
                response = await handler(request)
            except ApiError as error:
                headers = None
                if error.retry_after is not None:
                    headers = {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
                response = error_response(error.text, error.status, headers)
            self.metrics.count(route, response.status)
            return response

        return guarded

    def _admit(self, request: web.Request) -> None:
        client = self._clients.of(request.remote or "", request.headers.get("X-Forwarded-For"))
        wait = self._limiter.admit(client, time.monotonic())
        if wait > 0.0:
            raise errors.rate_limited(wait)

    def close(self) -> None:
        """End the streams and the thread for long questions."""
        self.streams.close()
        self.answering.close()

    def _charge(self, request: web.Request, requests: int) -> None:
        """Count further requests of the same client; a single question never costs more than half its rate."""
        for _ in range(min(requests, self._settings.requests_per_second // 2)):
            self._admit(request)

    def usable(self) -> Snapshot:
        """The snapshot to answer from. Raises the documented 503."""
        snapshot = self._feed.usable()
        if snapshot is None:
            raise errors.unavailable()
        return snapshot

    async def quote(self, request: web.Request) -> web.Response:
        """GET /api/v1/quote."""
        snapshot = self.usable()
        question = parse_quote(_query(request), self._settings)
        await self._prepare(request, snapshot, question)
        started = time.perf_counter()
        body = await self.answering.quote(snapshot, question)
        self.metrics.quote_seconds.observe(time.perf_counter() - started)
        return json_response(body, headers=self._age(snapshot))

    async def _prepare(self, request: web.Request, snapshot: Snapshot, question: QuoteRequest, items: int = 1) -> None:
        """Count what a question costs beyond one request, and build the graph of its filter if need be."""
        quote.require_known(snapshot, question)
        chosen = quote.filter_of(question)
        if not snapshot.has(chosen):
            self._charge(request, FILTER_WEIGHT)
            await self.answering.prepare(snapshot, chosen)
        self._charge(request, items * quote.weight(snapshot, question, self._settings))

    async def pair_config(self, request: web.Request) -> web.Response:
        """GET /api/v1/pair-config."""
        snapshot = self.usable()
        token_in, token_out = parse_pair(_query(request))
        return json_response(quote.pair_config(snapshot, token_in, token_out), headers=self._age(snapshot))

    async def ladder(self, request: web.Request) -> web.Response:
        """GET /api/v1/price-ladder: one question, several inputs."""
        snapshot = self.usable()
        query = dict(_query(request))
        amounts = parse_amounts(query, "amounts", self._settings.max_batch)
        self._charge(request, len(amounts) // ITEMS_PER_REQUEST)
        query.pop("amountOut", None)
        question = parse_quote(query | {"amountIn": [str(amounts[0])]}, self._settings)
        await self._prepare(request, snapshot, question, len(amounts))
        body = await self.answering.run(
            lambda deadline: price_ladder(snapshot.behind(), question, amounts, self._settings, deadline)
        )
        return json_response(body, headers=self._age(snapshot))

    async def batch(self, request: web.Request) -> web.Response:
        """POST /api/v1/batch-quote: many inputs, one output."""
        snapshot = self.usable()
        try:
            asked = _BATCH.decode(await read_body(request))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError(f"invalid body: {error}"[:300]) from None
        self._charge(request, len(asked.inputs) // ITEMS_PER_REQUEST)
        text = self._settings.default_slippage if asked.slippage is None else str(asked.slippage)
        slippage = parse_slippage(text)
        body = await self.answering.run(
            lambda deadline: batch_quote(snapshot.behind(), asked, slippage, self._settings, deadline)
        )
        return json_response(body, headers=self._age(snapshot))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """GET /api/v1/quote/stream: a quote per snapshot."""
        question = parse_quote(_query(request), self._settings)
        quote.require_known(self.usable(), question)  # what no later snapshot makes good is refused at once
        client = self._clients.of(request.remote or "", request.headers.get("X-Forwarded-For"))
        return await self.streams.serve(request, question, client)

    async def openapi(self, _: web.Request) -> web.Response:
        """GET /openapi.json."""
        return json_response(self._openapi)

    async def page(self, _: web.Request) -> web.Response:
        """GET /docs."""
        return web.Response(text=PAGE, content_type="text/html")

    async def health(self, _: web.Request) -> web.Response:
        """GET /health: 200 while quotes are served, else 503 with the same body."""
        snapshot, age = self._feed.snapshot, self._feed.age()
        usable = self._feed.usable() is not None
        body = Health(
            status="ok" if usable else "starting" if snapshot is None else "stale",
            pools=0 if snapshot is None else len(snapshot.document.pools),
            tokens=0 if snapshot is None else len(snapshot.tokens),
            uptime_seconds=round(time.monotonic() - self._started, 3),
            snapshot_id=None if snapshot is None else snapshot.id,
            snapshot_age_seconds=None if age is None else round(age, 3),
            block_nonce=None if snapshot is None else snapshot.document.block.nonce,
            source=self._settings.pools_url,
            last_error=self._feed.last_error,
        )
        return json_response(body, 200 if usable else 503)

    def _age(self, snapshot: Snapshot) -> dict[str, str]:
        """The snapshot's age goes into a header: equal questions on one snapshot have equal bodies."""
        return {"X-Snapshot-Age": f"{snapshot.age(time.monotonic()):.3f}", "X-Snapshot-Id": snapshot.id}


def _query(request: web.Request) -> Query:
    if len(request.rel_url.raw_query_string) > MAX_QUERY:
        raise ApiError(f"the query string is longer than {MAX_QUERY} bytes")
    query: dict[str, list[str]] = {}
    for name, value in request.query.items():
        query.setdefault(name, []).append(value)
    return query
