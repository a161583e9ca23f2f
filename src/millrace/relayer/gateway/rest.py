"""The REST interface: /v1/sign, /v1/broadcast, and what operators look at."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from msgspec import Raw
from prometheus_client import CollectorRegistry

from millrace.relayer.gateway import openapi
from millrace.relayer.gateway.limits import GONE, TokenBuckets, overloaded
from millrace.relayer.gateway.replies import sign_reply, submission_reply, told_of
from millrace.relayer.gateway.traffic import HeldBytes
from millrace.relayer.protocol import large_messages, messages, reasons, strict_json
from millrace.relayer.protocol.reasons import Reason, Refused
from millrace.relayer.rules.stages import Kind, Origin
from millrace.relayer.statistics.history import HistoryError, HistoryUnavailable
from millrace.relayer.statistics.network import LatestBlocks
from millrace.relayer.submission.batch import Announce, Result
from millrace.relayer.submission.submitter import Submitter
from millrace.runtime import http
from millrace.runtime.client_address import ClientAddress, is_local
from millrace.runtime.tracing import UNTRACED, Tracer, headers_of

_STATUS = {
    reasons.RATE_LIMIT.code: 429,
    reasons.INVALID_API_KEY.code: 401,
    reasons.BUSY.code: 503,
    reasons.NOT_READY.code: 503,
    reasons.MESSAGE_TOO_LARGE.code: 413,
    reasons.BATCH_TOO_LARGE.code: 413,
}


class Readiness(Protocol):
    """The body of GET /ready, which says whether it is."""

    def __call__(self, *, for_streams: bool) -> dict[str, object]: ...


class RestApi:
    """Handlers of the service's HTTP port."""

    def __init__(
        self,
        submitter: Submitter,
        requests: TokenBuckets,
        submissions: TokenBuckets,
        received: TokenBuckets,
        unfinished: HeldBytes,
        clients: ClientAddress,
        max_batch: int,
        max_wait: float,
        health: Callable[[], dict[str, object]],
        readiness: Readiness,
        count: Callable[[Reason], Reason],
        judged: Callable[[str, Sequence[object], float], None],
        history: Callable[[int | None, int | None, int | None], Awaitable[bytes]],
        blocks: Callable[[int], LatestBlocks],
        tracer: Tracer,
    ) -> None:
        self._submitter = submitter
        self._requests = requests
        self._submissions = submissions
        self._bytes = received
        self._unfinished = unfinished
        self._clients = clients
        self._max_batch = max_batch
        self._max_wait = max_wait
        self._health = health
        self._readiness = readiness
        self.count = count
        """Counts a refusal."""
        self._judged = judged
        self._history = history
        self._blocks = blocks
        self._tracer = tracer

    def operators(self, registry: CollectorRegistry) -> dict[str, Handler]:
        """What the operators' port answers, by path."""
        return {
            "/health": self._get_health, "/ready": self._get_ready, "/metrics": http.metrics_handler(registry)
        }  # fmt: skip

    def routes(self) -> list[web.RouteDef]:
        """What to add to the application."""
        return [
            web.get("/v1/network-stats/history", self._get_history),
            web.get("/v1/network-stats/blocks", self._get_blocks),
            web.get("/health", self._get_health),
            web.get("/ready", self._get_ready),
            web.get("/openapi.json", _document(openapi.openapi())),
            web.get("/asyncapi.json", _document(openapi.asyncapi())),
        ]

    def submissions(self) -> list[web.RouteDef]:
        """What a service adds that takes submissions itself."""
        return [web.post("/v1/sign", self._sign), web.post("/v1/broadcast", self._broadcast)]

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Bound the requests of each client, of paths that there are not too; refusals are the error body."""
        client = self.client(request)
        try:
            if not is_local(client):
                _charge(self._requests, client, 1.0, "too many requests from this address")
            return await handler(request)
        except Refused as refusal:
            reason = self.count(refusal.reason)
            text = reason.reason + (f": {reason.detail}" if reason.detail else "")
            wait = reason.retry_after_ms
            headers = {"Retry-After": str(math.ceil(wait / 1000))} if wait else None
            return http.error_response(text, _STATUS.get(reason.code, 400), headers)

    def client(self, request: web.Request) -> str:
        """Whom limits count."""
        return self._clients.of(request.remote or "", http.forwarded_for(request))

    async def _sign(self, request: web.Request) -> web.Response:
        return http.json_response(sign_reply(await self.submit(request, "sign")))

    async def _broadcast(self, request: web.Request) -> web.Response:
        results = await self.submit(request, "broadcast")
        return http.json_response(submission_reply("broadcast", results))

    def origin(self, request: web.Request, kind: Kind) -> Origin:
        """Who asks for what. Raises `Refused` for an API key that the policy does not know."""
        person = self._submitter.person_of(request.headers.get("Authorization"))
        return Origin(kind, self.client(request), person)

    def _traced(self, request: web.Request, origin: Origin) -> Origin:
        """The same, traced if that is to be."""
        if not self._tracer.on:
            return origin
        trace = self._tracer.begin(origin.kind, headers_of(request.headers), sample=True)
        return Origin(origin.kind, origin.ip, origin.person, trace=trace)

    async def submit(self, request: web.Request, kind: Kind, announce: Announce | None = None) -> list[Result]:
        """Take the transactions of a request through their stages, see `Submitter.take`. Raises `Refused`."""
        body, marked, remote = await self.read_body(request)
        transactions = await self.read_transactions(body, marked)
        origin = self._traced(request, self.origin(request, kind))
        admission, size, since = self._submitter.admission, len(transactions), time.monotonic()
        wait = admission.wait(remote, size)
        if wait:
            raise Refused(overloaded(wait))
        self.charge_submissions(remote, size)
        admission.enter(remote, size)

        def given_up() -> Reason | None:
            if request.transport is None:
                return GONE
            waited = time.monotonic() - since
            return overloaded(waited) if waited > self._max_wait else None

        unserved = size
        try:
            with origin.trace or UNTRACED:
                batch = await self._submitter.take(origin, transactions, announce, given_up)
                results = await self._submitter.finish(batch)
            unserved = batch.unserved
            self._judged(remote, results, since)
        finally:
            admission.leave(remote, size, unserved)
        for result in results:
            if isinstance(result, Reason):
                self.count(result)
        if origin.trace is not None:
            origin.trace.end(told_of(results))
        return results

    def charge_submissions(self, client: str, size: int) -> None:
        """Take so many transactions from the client's rate. Raises `Refused` with when to come again."""
        _charge(self._submissions, client, size, "too many transactions from this address")

    async def read_body(self, request: web.Request) -> tuple[bytes, int, str]:
        """The body, its `strict_json.marks` and whose it is. Raises `Refused`, also when the client sends too much."""
        if request.content_type != "application/json":
            raise Refused(reasons.INVALID_MESSAGE.but("send application/json"))
        remote = self.client(request)
        body = await self._receive(request, remote)
        _charge(self._bytes, remote, len(body), "too many bytes from this address")
        large = len(body) > large_messages.LARGE
        marked = await large_messages.marks(body) if large else strict_json.marks(body)
        _charge(self._bytes, remote, strict_json.cost(b"", marked), "too many values from this address")
        return body, marked, remote

    async def _receive(self, request: web.Request, remote: str) -> bytes:
        """The body. Raises `Refused` when it is too large, or when too much of others' is on its way.

        What counts has come: who only announces bytes takes room from nobody.
        """
        if (request.content_length or 0) > request.client_max_size:
            raise Refused(reasons.MESSAGE_TOO_LARGE)
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if not self._unfinished.take(remote, size):
                raise Refused(reasons.RATE_LIMIT.but("too many bytes in unfinished messages", 1_000))
            held += size

        try:
            return await http.read_body(request, hold)
        except web.HTTPRequestEntityTooLarge:
            raise Refused(reasons.MESSAGE_TOO_LARGE) from None
        finally:
            self._unfinished.give(remote, held)

    async def read_transactions(self, body: bytes, marked: int) -> list[Raw]:
        """The transactions in a body. Raises `Refused`."""
        if len(body) <= large_messages.LARGE:
            return messages.decode_rest_submission(body, self._max_batch, marked)
        typed = partial(messages.typed_rest_submission, max_batch=self._max_batch)
        return await large_messages.decode(body, marked, messages.max_marks(self._max_batch), typed)

    async def _get_history(self, request: web.Request) -> web.Response:
        try:
            start, end, resolution = (_number(request, name) for name in ("from", "to", "resolution"))
            body = await self._history(start, end, resolution)
        except HistoryError as error:
            return http.error_response(str(error), 400)
        except HistoryUnavailable as error:
            return http.error_response(str(error), 503, {"Retry-After": "1"})
        return web.Response(body=body, content_type="application/json")

    async def _get_blocks(self, request: web.Request) -> web.Response:
        try:
            return http.json_response(self._blocks(_number(request, "after") or 0))
        except HistoryError as error:
            return http.error_response(str(error), 400)

    async def _get_health(self, _: web.Request) -> web.Response:
        return http.json_response(self._health())

    async def _get_ready(self, request: web.Request) -> web.Response:
        wanted = request.query.get("for")
        if wanted not in (None, "streams"):
            return http.error_response("for: only `streams` is known", 400)
        body = self._readiness(for_streams=wanted is not None)
        return http.json_response(body, 200 if body["ready"] else 503)


def _charge(buckets: TokenBuckets, remote: str, cost: float, detail: str) -> None:
    """Take `cost` from the address's bucket. Raises `Refused` with when to come again."""
    wait = buckets.take(remote, cost, time.monotonic())
    if wait:
        raise Refused(reasons.RATE_LIMIT.but(detail, min(3_600_000, math.ceil(wait * 1000)) if wait < 1e6 else None))


def _number(request: web.Request, name: str) -> int | None:
    """A query parameter of at most 15 digits. Raises `HistoryError`."""
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise HistoryError(f"{name}: expected unsigned integer")
    return int(text)


def _document(document: dict[str, object]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def serve(_: web.Request) -> web.Response:
        return http.json_response(document)

    return serve
