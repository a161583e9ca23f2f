"""What gets to the network: a proxy before the chain's API that writes down every co-signature it sees."""

from __future__ import annotations

import aiohttp
import msgspec
from aiohttp import web

from cluster.history import History, Seen, Signed
from cluster.wallets import NETWORK
from millrace.chain.address import encode
from millrace.chain.fees import initially_paid_fee
from millrace.chain.transaction import Transaction, TransactionJson, client_hash, from_json
from millrace.runtime import http


class Tap:
    """Use it as an async context manager."""

    def __init__(self, history: History, chain_url: str) -> None:
        self._history, self._chain_url = history, chain_url
        self._session: aiohttp.ClientSession | None = None
        self._server: http.HttpServer | None = None
        self.port = 0

    async def __aenter__(self) -> Tap:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        app = http.make_app()
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._server = http.HttpServer(app)
        self.port = await self._server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None and self._server is not None
        await self._server.stop()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.Response:
        assert self._session is not None
        body = await request.read()
        if request.method == "POST" and request.path == "/transactions":
            self._write_down(body)
        try:
            url, json = self._chain_url + request.path_qs, {"Content-Type": "application/json"}
            async with self._session.request(request.method, url, data=body, headers=json) as answer:
                return web.Response(status=answer.status, body=await answer.read(), content_type="application/json")
        except (aiohttp.ClientError, TimeoutError):
            return web.json_response({"error": "the chain does not answer"}, status=502)

    def _write_down(self, body: bytes) -> None:
        tx = from_json(msgspec.json.decode(body, type=TransactionJson))
        if tx.relayer_signature:
            self._history.add(signed(tx, "network"))


def signed(tx: Transaction, seen: Seen, at: int = 0) -> Signed:
    """The record of a transaction with a co-signature, or that is to get one."""
    return Signed(
        at=at,
        key=encode(tx.relayer),
        sender=encode(tx.sender),
        nonce=tx.nonce,
        payload=client_hash(tx).hex(),
        fee=initially_paid_fee(tx, NETWORK.gas),
        seen=seen,
    )
