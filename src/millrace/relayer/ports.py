"""What listens: the public WebSocket, the public HTTP port, and the port of those who operate the service."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from aiohttp import web

from millrace.relayer.forwarding.rest import ForwardedRest
from millrace.relayer.gateway.limits import TokenBuckets
from millrace.relayer.gateway.rest import RestApi
from millrace.relayer.gateway.wallets import WalletApi
from millrace.relayer.measures import Measured
from millrace.relayer.metrics import make_registry
from millrace.relayer.operators import RelayerOperators
from millrace.relayer.readiness import Readiness
from millrace.relayer.standing import Ledger
from millrace.relayer.statistics.history import History
from millrace.relayer.submission.preparer import Preparer
from millrace.relayer.submission.submitter import Submitter
from millrace.runtime import http, operators
from millrace.runtime.origins import Origins


class Ports:
    """`start` listens over HTTP, `open_gateway` to WebSockets; `stop` answers first what is under way, also after a
    start that failed."""

    def __init__(
        self,
        parts: Measured,
        submitter: Submitter,
        readiness: Readiness,
        history: History,
        read_keys: Callable[[], None],
    ) -> None:
        """`read_keys` has the key files read again."""
        self._parts = parts
        self._settings = parts.shared.settings
        self._submitter = submitter
        self._readiness = readiness
        self._history = history
        self._want_keys_read = read_keys
        self._started = contextlib.AsyncExitStack()
        self.websocket = self.http = self.metrics = 0
        """The ports, once it listens."""

    async def start(self) -> None:
        """Listen over HTTP. Raises `OSError` when a port is taken."""
        settings, parts = self._settings, self._parts
        rest = self._rest()
        app = http.make_app(max_body=settings.max_message_bytes)
        app.middlewares.append(rest.guard)
        app.add_routes(rest.routes())
        if parts.signers is None:
            app.add_routes(rest.submissions())
            app.add_routes(self._wallets(rest).routes())
        else:
            forwarded = ForwardedRest(rest, parts.signers, settings.network())
            self._started.push_async_callback(forwarded.stop)
            await forwarded.start()
            app.add_routes(forwarded.routes())
        watching = self._watching()
        ledger = Ledger(parts.relayers, parts.lifecycle, parts.journal.path)
        handlers = rest.operators(make_registry(parts, parts.shared.tracer)) | watching.handlers()
        handlers["/ledger"] = ledger.get
        server = http.HttpServer(app, doors=parts.http_doors, origins=Origins(settings.allowed_origins))
        self._started.push_async_callback(server.stop)
        self._started.push_async_callback(parts.gateway.stop)
        self.http = await server.start(settings.host, settings.http_port)
        watched, self.metrics = await operators.serve(
            settings.metrics_host,
            settings.metrics_port,
            handlers,
            {"/control/read-keys": self._read_keys, "/control/drain": self._drain} | watching.actions(),
            settings.operators_token,
        )
        self._started.push_async_callback(watched.stop)

    async def open_gateway(self) -> None:
        """Listen to WebSockets, last: edges are greeted there with the HTTP port. Raises `OSError`."""
        self.websocket = await self._parts.gateway.start(self._parts.ws_doors)

    async def stop(self) -> None:
        """Listen no more."""
        await self._started.aclose()

    def _rest(self) -> RestApi:
        settings, shared = self._settings, self._parts.shared
        return RestApi(
            self._submitter,
            TokenBuckets(settings.request_rate, settings.request_burst),
            shared.submissions,
            shared.bytes,
            shared.unfinished,
            shared.clients,
            settings.max_batch,
            settings.max_wait,
            self._readiness.health,
            self._readiness.ready,
            shared.count,
            shared.judged,
            lambda start, end, step: self._history.query(start, end, step, _now_ms()),
            self._parts.statistics.numbers.final_blocks,
            shared.tracer,
        )

    def _watching(self) -> RelayerOperators:
        parts, readiness = self._parts, self._readiness
        return RelayerOperators(
            parts.lifecycle,
            parts.journal,
            parts.relayers,
            parts.shared.refused,
            readiness.is_ready,
            readiness.why_not,
            self._settings.network().shards,
        )

    def _wallets(self, rest: RestApi) -> WalletApi:
        parts, is_ready, network = self._parts, self._readiness.is_ready, self._settings.network()
        price = parts.statistics.gas.p50
        preparer = Preparer(
            network, parts.relayers, parts.accounts, parts.lifecycle, parts.journal, is_ready, price, _now_ms
        )
        gap = self._settings.max_nonce_gap
        return WalletApi(rest, preparer, network, parts.relayers, parts.lifecycle, is_ready, gap)

    async def _read_keys(self, _: web.Request) -> web.Response:
        """POST: read the key files again, as SIGHUP does; the log tells how that ended."""
        self._want_keys_read()
        return http.json_response({"status": "accepted"}, 202)

    async def _drain(self, _: web.Request) -> web.Response:
        """POST: send the clients away, and let no more in; `/ready` says so. The service ends when it is told to."""
        gateway = self._parts.gateway
        gateway.send_away()
        return http.json_response({"draining": True, "connections": gateway.connections}, 202)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
