"""The REST interface on aiohttp: rate limit, handlers, metrics."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from millrace.aggregator import drawing, errors, quote
from millrace.aggregator.answering import Answer, Answering, Prepared
from millrace.aggregator.batch_answers import batch_quote, from_nonce, multi_swap
from millrace.aggregator.batch_requests import (
    BatchRequest,
    MultiSwapRequest,
    Order,
    decode,
    make_order,
    multi_swap_order,
)
from millrace.aggregator.batch_responses import MultiSwapResponse
from millrace.aggregator.clients import Clients
from millrace.aggregator.directory import Directory
from millrace.aggregator.errors import ApiError
from millrace.aggregator.feed import AGE, ID, Feed
from millrace.aggregator.health import Workers, health
from millrace.aggregator.ladder import price_ladder
from millrace.aggregator.limiter import RateLimiter
from millrace.aggregator.metrics import Metrics
from millrace.aggregator.nonces import Nonces
from millrace.aggregator.openapi import document
from millrace.aggregator.page import Page
from millrace.aggregator.query import Query, QuoteRequest, parse_ladder, parse_pair, parse_quote
from millrace.aggregator.referrals import Referrals
from millrace.aggregator.responses import encode
from millrace.aggregator.settings import ANY_REFERRAL, AggregatorSettings, parse_referral
from millrace.aggregator.shares import TimeShares
from millrace.aggregator.sharing import Sharing
from millrace.aggregator.simulation import Simulations
from millrace.aggregator.snapshot import Snapshot
from millrace.aggregator.stream import Streams
from millrace.aggregator.transactions import with_nonce
from millrace.runtime.answers import error_json, json_body
from millrace.runtime.client_address import ClientAddress
from millrace.runtime.doors import Doors
from millrace.runtime.http import (
    Ask,
    AtOnce,
    Json,
    Later,
    error_response,
    forwarded_for,
    in_turn,
    json_response,
    make_app,
    read_body,
)
from millrace.runtime.tracing import UNTRACED, Trace, Tracer, headers_of

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Listing = Callable[[Snapshot, Query], Awaitable[object]]
MAX_QUERY = 8192


class Api:
    """Handlers over one feed."""

    def __init__(
        self, settings: AggregatorSettings, feed: Feed[Snapshot], clients: Clients, tracer: Tracer | None = None
    ) -> None:
        self._settings = settings
        self._tracer = Tracer(settings) if tracer is None else tracer
        self._feed = feed
        self._started = time.monotonic()
        self._limiter = RateLimiter(settings.requests_per_second, clients)
        self._clients = ClientAddress(settings.trusted_proxies)
        self.doors = Doors(settings.max_connections, settings.max_connections_per_client, self._clients)
        """For the connections of the server that serves this."""
        self.answering = Answering(settings, feed.pace, TimeShares(settings.client_search_seconds, clients))
        self.nonces = Nonces(settings)
        self.simulations = Simulations(settings)
        self.sharing = Sharing(settings, self.simulations)
        self.directory = Directory(settings, self.answering)
        self.referrals = Referrals(settings, self.simulations, self._adopt)
        self.metrics = Metrics(
            feed, self.answering, self.doors, self.nonces, self.simulations, self.referrals, self._tracer
        )
        self.streams = Streams(settings, feed, self.answering, self.referrals.note)
        self.at_once: dict[str, AtOnce] = {"/api/v1/quote": self.quote}
        """For plain requests that the same server answers as soon as they are read."""
        self.workers = Workers()
        """How many processes answer."""
        self._openapi = document(settings)

    def application(self) -> web.Application:
        """The public routes; /health is not rate limited."""
        app = make_app(max_body=1 << 20)
        app.router.add_get("/api/v1/quote", in_turn(self.quote), allow_head=False)
        app.router.add_get("/api/v1/pair-config", self._guarded("pair-config", self.pair_config), allow_head=False)
        lists: dict[str, Listing] = {
            "tokens": self.directory.tokens,
            "pools": self.directory.pools,
            "prices": self.directory.prices,
        }
        for name, ask in lists.items():
            handler = self._guarded(name, partial(self._listed, ask))
            app.router.add_get(f"/api/v1/{name}", handler, allow_head=False)
        referral = self._guarded("referrals", self.referral)
        app.router.add_get("/api/v1/referrals/{id}", referral, allow_head=False)
        app.router.add_get("/api/v1/config", self._guarded("config", self.config), allow_head=False)
        app.router.add_get("/api/v1/price-ladder", self._guarded("ladder", self.ladder), allow_head=False)
        app.router.add_get("/api/v1/quote.svg", self._guarded("svg", self.picture), allow_head=False)
        app.router.add_get("/api/v1/quote/stream", self._guarded("stream", self.stream), allow_head=False)
        app.router.add_post("/api/v1/batch-quote", self._guarded("batch", self.batch))
        app.router.add_post("/api/v1/multi-swap", self._guarded("multi-swap", self.multi_swap))
        app.router.add_get("/openapi.json", self.openapi)
        Page().add_routes(app)
        app.router.add_get("/health", self.health)
        return app

    def _guarded(self, route: str, handler: Handler) -> Handler:
        """Rate limit, documented errors and counting around a handler."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            trace = self._tracer.begin(route, headers_of(request.headers)) if self._tracer.on else None
            try:
                self._admit(self._client(request))
                with trace or UNTRACED:
                    response = await handler(request)
            except ApiError as error:
                self.metrics.refused(error)
                response = error_response(error.text, error.status, _retry(error))
            self.metrics.requests[route, response.status] += 1
            if trace is not None:
                trace.end({"status": response.status})
            return response

        return guarded

    def _client(self, request: web.Request) -> str:
        """Whom limits count."""
        return self._clients.of(request.remote or "", forwarded_for(request))

    def _admit(self, client: str) -> None:
        wait = self._limiter.admit(client, time.monotonic())
        if wait > 0.0:
            raise errors.rate_limited(wait)

    def _adopt(self, settings: AggregatorSettings) -> None:
        """Answer by these settings, in which the fees of referrals are others; earlier answers count no more.

        Where they are none, answers stay: anybody may ask for ids that cost nothing.
        """
        if settings.referrals == self._settings.referrals:
            return
        self._settings = settings
        self.answering.adopt(settings)
        self.sharing.adopt(settings)
        self.directory.adopt(settings)
        self.streams.adopt(settings)
        snapshot = self._feed.snapshot
        if snapshot is not None:
            snapshot.forget_answers()

    def close(self) -> None:
        """End the streams and the threads for long questions."""
        self.streams.close()
        self.answering.close()

    def usable(self) -> Snapshot:
        """The snapshot to answer from. Raises the documented 503."""
        snapshot = self._feed.usable()
        if snapshot is None:
            raise errors.unavailable()
        return snapshot

    def _require_fresh(self, snapshot: Snapshot, question: QuoteRequest | Order) -> None:
        """Raise `ApiError` for a snapshot that is older than the request allows."""
        if question.max_age_ms is not None:
            age = snapshot.age(time.monotonic())
            if age * 1000 > question.max_age_ms:
                raise errors.too_old(age, question.max_age_ms)

    def quote(self, ask: Ask) -> Json | Later:
        """GET /api/v1/quote: at once if it takes a moment only, else later."""
        trace = self._tracer.begin("quote", ask.traceparents) if self._tracer.on else None
        if trace is None:
            return self._quote(ask)
        with trace:
            answer = self._quote(ask)
        if isinstance(answer, Json):
            trace.end({"status": answer.status})
            return answer
        return partial(_traced, trace, answer)

    def _quote(self, ask: Ask) -> Json | Later:
        try:
            client = self._clients.of(ask.peer, ask.forwarded)
            self._admit(client)
            snapshot = self.usable()
            body = snapshot.answered(ask.query)
            if body is not None:
                self.metrics.reused += 1
                return self._quoted(snapshot, body)
            question = parse_quote(_parsed(ask.query), self._settings)
            self._require_fresh(snapshot, question)
            self.referrals.note(question.referral_id, snapshot.wrapped)
            asked = self.answering.ready(snapshot, question, client)
            if question.simulate or (question.sender and self.nonces.known):
                return partial(self._quote_asking, snapshot, question, client, asked)
            if asked is not None:
                started = time.perf_counter()
                answer = self.answering.at_once(asked)
                if answer is not None:
                    return self._computed(snapshot, question, ask.query, answer, started)
        except ApiError as error:
            return self._refused(error)
        return partial(self._quote_later, snapshot, question, client, asked, ask.query)

    async def _quote_later(
        self, snapshot: Snapshot, question: QuoteRequest, client: str, asked: Prepared | None, text: str
    ) -> Json:
        """The answer to a question that takes long, or whose graph has to be built."""
        settings = self._settings
        try:
            if asked is not None:
                started = time.perf_counter()
                answer = await self.answering.in_thread(asked)
            else:
                asked = await self.answering.prepare(snapshot, question, client)
                started = time.perf_counter()
                answer = await self.answering.answer(asked)
            self._require_fresh(snapshot, question)
        except ApiError as error:
            return self._refused(error)
        # With fees that have changed meanwhile it is no answer for whoever asks next.
        lasting = answer._replace(whole=answer.whole and settings is self._settings)
        return self._computed(snapshot, question, text, lasting, started)

    async def _quote_asking(
        self, snapshot: Snapshot, question: QuoteRequest, client: str, asked: Prepared | None
    ) -> Json:
        """The answer with what others have to be asked for, the sender's nonce and a simulation; it is not remembered.
        The nonce is asked meanwhile."""
        asking = asyncio.create_task(self._nonce(question.sender))
        try:
            asked = asked or await self.answering.prepare(snapshot, question, client)
            started = time.perf_counter()
            body = (await self.answering.answer(asked)).body
            self.metrics.quote_took(time.perf_counter() - started)
            if question.simulate and body.transaction is not msgspec.UNSET:
                body = msgspec.structs.replace(body, simulation=await self.simulations.of(body.transaction))
            nonce = await asking
            self._require_fresh(snapshot, question)
        except ApiError as error:
            return self._refused(error)
        finally:
            asking.cancel()
        if nonce is not None:
            body = msgspec.structs.replace(body, transaction=with_nonce(body.transaction, nonce))
        return self._quoted(snapshot, encode(body))

    def _computed(self, snapshot: Snapshot, question: QuoteRequest, text: str, answer: Answer, started: float) -> Json:
        self.metrics.quote_took(time.perf_counter() - started)
        body = encode(answer.body)
        # One cut short by its deadline is no answer for whoever asks next, and the age of one is looked at every time.
        if answer.whole and question.max_age_ms is None:
            snapshot.remember(text, body)
        return self._quoted(snapshot, body)

    def _quoted(self, snapshot: Snapshot, body: bytes) -> Json:
        self.metrics.requests["quote", 200] += 1
        return Json(body, headers=self._age(snapshot))

    def _refused(self, error: ApiError) -> Json:
        self.metrics.requests["quote", error.status] += 1
        self.metrics.refused(error)
        return error_json(error.text, error.status, _retry(error))

    async def pair_config(self, request: web.Request) -> web.Response:
        """GET /api/v1/pair-config."""
        snapshot = self.usable()
        pair = parse_pair(_query(request))
        known = all(token in snapshot.decimals for token in pair)  # else that is all there is to say
        if known and snapshot.main.trades_liquidity(*map(snapshot.inner, pair), liquidity=False):
            body = await self._pair_of_liquidity(snapshot, *pair, self._client(request))
        else:
            body = encode(quote.pair_config(snapshot, *pair, self._settings.max_hops))
        return json_body(body, headers=self._age(snapshot))

    async def _pair_of_liquidity(self, snapshot: Snapshot, token_in: str, token_out: str, client: str) -> bytes:
        """The record of a pair with an LP token, which takes long, and is asked for again and again."""
        asked = f"\n{token_in}\n{token_out}"  # no query string has such lines
        most = self._settings.max_hops

        async def make() -> bytes:
            found = await self.answering.run(
                lambda _: quote.pair_config(snapshot, token_in, token_out, most, snapshot.twin(snapshot.main)), client
            )
            body = encode(found)
            snapshot.remember(asked, body)
            return body

        known = snapshot.answered(asked)
        return known if known is not None else await self.answering.once((snapshot.id, asked), make)

    async def _listed(self, ask: Listing, request: web.Request) -> web.Response:
        """GET /api/v1/tokens, /pools and /prices."""
        snapshot = self.usable()
        body = await ask(snapshot, _query(request))
        return json_response(body, headers=self._age(snapshot))

    async def config(self, request: web.Request) -> web.Response:
        """GET /api/v1/config."""
        snapshot = self.usable()
        return json_response(self.directory.config(snapshot), headers=self._age(snapshot))

    async def referral(self, request: web.Request) -> web.Response:
        """GET /api/v1/referrals/{id}: what the contract charges, as it was read last."""
        snapshot = self.usable()
        referral_id = parse_referral(request.match_info["id"])
        if referral_id is None:
            raise ApiError(f"invalid referralId: expected a whole number from 1 to {ANY_REFERRAL}")
        self.referrals.note(referral_id, snapshot.wrapped)
        return json_response(self.referrals.of(referral_id), headers=self._age(snapshot))

    async def ladder(self, request: web.Request) -> web.Response:
        """GET /api/v1/price-ladder: one question, several inputs."""
        snapshot = self.usable()
        question, amounts = parse_ladder(_query(request), self._settings)
        self._require_fresh(snapshot, question)
        _require_no_simulation(question)
        self.referrals.note(question.referral_id, snapshot.wrapped)
        client = self._client(request)
        asked = await self.answering.prepare(snapshot, question, client)
        body = await self.answering.run_in_turns(
            lambda deadline: price_ladder(snapshot, asked.planner, question, amounts, self._settings, deadline),
            client,
        )
        self._require_fresh(snapshot, question)
        return json_response(body, headers=self._age(snapshot))

    async def picture(self, request: web.Request) -> web.Response:
        """GET /api/v1/quote.svg: the route of a quote, drawn."""
        snapshot = self.usable()
        question = msgspec.structs.replace(parse_quote(_query(request), self._settings), include_paths=True)
        self._require_fresh(snapshot, question)
        _require_no_simulation(question)
        self.referrals.note(question.referral_id, snapshot.wrapped)
        asked = await self.answering.prepare(snapshot, question, self._client(request))
        body = (await self.answering.answer(asked)).body
        self._require_fresh(snapshot, question)
        headers = self._age(snapshot) | {"Content-Security-Policy": drawing.POLICY}
        return web.Response(body=drawing.draw(body), content_type="image/svg+xml", headers=headers)

    async def batch(self, request: web.Request) -> web.Response:
        """POST /api/v1/batch-quote: many inputs, one output."""
        snapshot, settings = self.usable(), self.sharing.settings
        asked, ignored = decode(await read_body(request), BatchRequest)
        order = make_order(asked, settings, ignored)
        self._require_fresh(snapshot, order)
        self.referrals.note(order.referral_id, snapshot.wrapped)
        client = self._client(request)
        planner = await self.answering.planner(snapshot, order.chosen, client)
        body = await self.answering.run_in_turns(
            lambda deadline: batch_quote(snapshot, planner, order, settings, deadline), client
        )
        self._require_fresh(snapshot, order)
        return json_body(encode(body), headers=self._age(snapshot))

    async def multi_swap(self, request: web.Request) -> web.Response:
        """POST /api/v1/multi-swap: the same, with everything a client needs to send it."""
        snapshot = self.usable()
        asked, ignored = decode(await read_body(request), MultiSwapRequest)
        order, sender = multi_swap_order(asked, self._settings, ignored), asked.sender or ""
        self._require_fresh(snapshot, order)
        self.referrals.note(order.referral_id, snapshot.wrapped)
        client = self._client(request)
        planner = await self.answering.planner(snapshot, order.chosen, client)

        async def made(settings: AggregatorSettings) -> MultiSwapResponse:
            return await self.answering.run_in_turns(
                lambda deadline: multi_swap(snapshot, planner, order, sender, settings, deadline), client
            )

        asking = asyncio.create_task(self._nonce(sender))
        try:
            body = await self.sharing.answer(made)
            nonce = await asking
        finally:
            asking.cancel()
        self._require_fresh(snapshot, order)
        body = body if nonce is None else from_nonce(body, nonce)
        return json_body(encode(body), headers=self._age(snapshot))

    async def _nonce(self, sender: str) -> int | None:
        """The sender's next nonce, if there is a sender and somebody who knows."""
        return await self.nonces.of(sender) if sender else None

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """GET /api/v1/quote/stream: a quote per snapshot."""
        question = parse_quote(_query(request), self._settings)
        _require_no_simulation(question)
        snapshot = self.usable()
        quote.require_known(snapshot, question)  # what no later snapshot makes good is refused at once
        self._require_fresh(snapshot, question)
        return await self.streams.serve(request, question, self._client(request))

    async def openapi(self, _: web.Request) -> web.Response:
        """GET /openapi.json."""
        return json_response(self._openapi)

    async def health(self, _: web.Request) -> web.Response:
        """GET /health: 200 while quotes are served, else 503 with the same body."""
        return health(self._feed, self._settings, self._started, self.workers)

    def _age(self, snapshot: Snapshot) -> dict[str, str]:
        """The snapshot's age goes into a header: equal questions on one snapshot have equal bodies."""
        return {AGE: f"{snapshot.age(time.monotonic()):.3f}", ID: snapshot.id}


async def _traced(trace: Trace, later: Later) -> Json:
    """The answer to a question that takes long, traced."""
    with trace:
        answer = await later()
    trace.end({"status": answer.status})
    return answer


def _retry(error: ApiError) -> dict[str, str]:
    """When to ask again, where the error says so."""
    return {} if error.retry_after is None else {"Retry-After": str(max(1, math.ceil(error.retry_after)))}


def _require_no_simulation(question: QuoteRequest) -> None:
    """Raise `ApiError` where many answers would have to be simulated."""
    if question.simulate:
        raise ApiError("invalid simulate: only a single quote is simulated")


def _query(request: web.Request) -> Query:
    return _parsed(request.rel_url.raw_query_string)


def _parsed(raw: str) -> Query:
    """The values of each name of a query string. Raises `ApiError` for one that is too long."""
    if len(raw) > MAX_QUERY:
        raise ApiError(f"the query string is longer than {MAX_QUERY} bytes")
    query: dict[str, list[str]] = {}
    if "%" in raw or "+" in raw:
        for name, value in parse_qsl(raw, keep_blank_values=True):
            query.setdefault(name, []).append(value)
        return query
    for pair in raw.split("&"):  # nothing to decode: the usual case, at a third of the price
        if not pair:
            continue
        name, _, value = pair.partition("=")
        if name in query:
            query[name].append(value)
        else:
            query[name] = [value]
    return query
