"""Services in this process that answer as an aggregator, a relayer and a hub do, and break off when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from millrace.system.ports import free_ports

PAYER = "erd1qqqqqqqqqqqqqpgq5rf2sppxk2xu4m0pkmugw2es4gak3rgjah0sxvajva"
"""Any address will do."""


class FakeRelayer:
    """`/ws`, `/ws/stats` and `/v1/…`. `answer` makes the reply to a request; what came is in `requests`."""

    def __init__(self) -> None:
        self.sockets: list[web.WebSocketResponse] = []
        self.stats: list[web.WebSocketResponse] = []
        self.requests: list[dict[str, Any]] = []
        self.outcomes: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.chain_of_transactions = "local"
        """Of what it prepares."""
        self.told: dict[str, Any] = {}
        """What it prepares in another way than asked."""
        self.http: list[web.Response] = []
        """Answers that come before the usual ones, each once."""
        self.more: dict[str, web.Response] = {}
        """Answers of other paths."""
        self.seen: list[web.Request] = []
        """Requests of those paths."""
        self.answer: Callable[[dict[str, Any]], dict[str, Any] | None] = usual
        self.changed = asyncio.Condition()
        self._server: TestServer | None = None
        self._port = free_ports(1)[0]
        self._transports: list[asyncio.WriteTransport] = []

    async def start(self) -> None:
        """Serve, on the same port as before."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/ws", self._socket),
                web.get("/ws/stats", self._stats),
                web.get("/v1/transactions/{hash}", self._transaction),
                web.get("/v1/relayers", self._relayers),
                web.post("/v1/prepare", self._prepare),
                web.route("*", "/{path:.*}", self._other),
            ]
        )
        self._server = TestServer(app, port=self._port)
        await self._server.start_server(shutdown_timeout=0.1)

    async def stop(self) -> None:
        """End every connection, and refuse new ones."""
        self.abort()
        self.sockets.clear()
        self.stats.clear()
        if self._server is not None:
            await self._server.close()

    def abort(self) -> None:
        """End every connection without a word, as a kill does."""
        for transport in self._transports:
            transport.abort()
        self._transports.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self._port}/ws"

    async def push(self, message: dict[str, Any]) -> None:
        """Push to every connection."""
        for socket in self.sockets:
            await socket.send_str(msgspec.json.encode(message).decode())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds after a request or a connection."""
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(condition)

    def topics(self) -> list[str]:
        """Every topic asked for, in order."""
        return [request["topic"] for request in self.requests if request["action"] == "subscribe"]

    def _keep(self, request: web.Request) -> None:
        assert isinstance(request.transport, asyncio.WriteTransport)
        self._transports.append(request.transport)

    async def _note(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        self._keep(request)
        await self._note()
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                asked = msgspec.json.decode(frame.data)
                self.requests.append(asked)
                reply = self.answer(asked)
                if reply is not None:
                    await socket.send_str(msgspec.json.encode({"requestId": asked.get("requestId")} | reply).decode())
                await self._note()
        return socket

    async def _stats(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.stats.append(socket)
        self._keep(request)
        await self._note()
        async for _ in socket:
            pass
        return socket

    async def _other(self, request: web.Request) -> web.Response:
        self.seen.append(request)
        return self.more.get(request.path) or web.Response(status=404)

    async def _transaction(self, request: web.Request) -> web.Response:
        tx_hash = request.match_info["hash"]
        self.asked.append(tx_hash)
        await self._note()
        if self.http:
            return self.http.pop(0)
        if tx_hash not in self.outcomes:
            return web.json_response({"error": "unknown transaction"}, status=404)
        return web.json_response({"hash": tx_hash, "clientHash": tx_hash} | self.outcomes[tx_hash])

    async def _relayers(self, _: web.Request) -> web.Response:
        if self.http:
            return self.http.pop(0)
        return web.json_response({"chainId": "local", "shardRule": "mask", "shards": 3, "relayers": [], "gas": {}})

    async def _prepare(self, request: web.Request) -> web.Response:
        if self.http:
            return self.http.pop(0)
        asked = (await request.json())["transaction"]
        filled = {"value": "0", "gasPrice": 10**9, "gasLimit": 100_000, "version": 2, "nonce": 3}
        filled |= {"relayer": PAYER, "chainID": self.chain_of_transactions}
        return web.json_response(
            {"sponsored": True, "shard": 0, "extraGas": 50_000, "transaction": filled | asked | self.told}
        )


def usual(request: dict[str, Any]) -> dict[str, Any]:
    """Everything is accepted."""
    if request["action"] in ("subscribe", "unsubscribe"):
        return {"action": request["action"], "status": "ok", "topic": request["topic"]}
    count = len(request.get("txs", [0]))
    results = [{"index": index, "hash": f"{index:064x}"} for index in range(count)]
    hashes = [result["hash"] for result in results]
    return {"action": request["action"], "status": "completed", "hashes": hashes, "failed": [], "results": results}


def status_of(tx_hash: str, status: str = "success", **more: str) -> dict[str, Any]:
    """A pushed status."""
    return {"type": "tx-status", "data": {"hash": tx_hash, "status": status, **more}}
