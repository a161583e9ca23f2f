"""Answers of nodes and gateways: whose fault, and whether to try again."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from relayer_support import transfer, wallet

from millrace.relayer.network.chain_api import ChainApi
from millrace.relayer.network.node_errors import classify
from millrace.runtime import http

GATEWAY = '{{"data":null,"error":"transaction generation failed: {}","code":"bad_request"}}'

ANSWERS = [
    (400, GATEWAY.format("ed25519: invalid signature"), "transaction"),
    (400, GATEWAY.format("invalid transaction lowerNonceInTx: true, veryHighNonceInTx: false"), "transaction"),
    (400, GATEWAY.format("invalid transaction lowerNonceInTx: false, veryHighNonceInTx: true"), "transient"),
    (400, GATEWAY.format("insufficient funds, for address: erd1.., wanted 2, have 1"), "transient"),
    (400, GATEWAY.format("insufficient gas limit in tx"), "transaction"),
    (400, GATEWAY.format("insufficient gas price in tx"), "transaction"),
    (400, GATEWAY.format("more gas was provided than gas limit per block"), "transaction"),
    (400, GATEWAY.format("invalid chain ID"), "transaction"),
    (400, GATEWAY.format("tx value is out of bounds"), "transaction"),
    (400, GATEWAY.format("invalid relayed transaction"), "transaction"),
    (400, GATEWAY.format("shard ID missmatch"), "transaction"),
    (400, GATEWAY.format("relayed by guardian not allowed"), "transaction"),
    (400, GATEWAY.format("transaction is not executable and gas will not be consumed, guardian"), "transaction"),
    (500, GATEWAY.format("ed25519: invalid signature"), "transaction"),
    (400, '{"statusCode":400,"message":"Validation failed for argument","error":"Bad Request"}', "request"),
    (404, '{"statusCode":404,"message":"Cannot POST /transactions","error":"Not Found"}', "request"),
    (405, "", "request"),
    (415, "unsupported media type", "request"),
    (429, '{"statusCode":429,"message":"ThrottlerException: Too Many Requests"}', "transient"),
    (400, '{"data":null,"error":"system busy","code":"system_busy"}', "transient"),
    (500, '{"data":null,"error":"sending request error","code":"internal_issue"}', "transient"),
    (500, '{"data":null,"error":"internal","code":"internal_issue"}', "provider"),
    (502, "<html>Bad Gateway</html>", "provider"),
    (503, "", "provider"),
    (307, "", "provider"),
]


@pytest.mark.parametrize(("status", "text", "kind"), ANSWERS)
def test_row_46_error_classes(status: int, text: str, kind: str) -> None:
    """Each answer of a node, the gateway or the API is of one kind."""
    assert classify(status, text) == kind


@pytest.mark.parametrize(("status", "text", "kind"), ANSWERS)
async def test_row_46_only_its_own_trouble_counts_against_the_api(status: int, text: str, kind: str) -> None:
    """A transaction nobody will take leaves the API's health alone and is not pressed on it; trouble is retried."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    app = http.make_app()
    app.add_routes([web.post("/transactions", answer)])
    server = http.HttpServer(app)
    api: Any = ChainApi(f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}", 3.0)
    try:
        taken = await api.submit(transfer(wallet(1)))
    finally:
        await api.close()
        await server.stop()
    retried = kind in ("transient", "provider")
    assert taken == ("later" if retried else "never")
    assert (api.failures, api.refused) == ((1, 0) if retried else (0, 1))
