"""What the console passes on, and what it bounds."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import aiohttp
import pytest
from yarl import URL

if TYPE_CHECKING:
    from tests.console.conftest import Behind, Started


async def test_a_request_is_passed_on(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """Path, query, body and who asked reach the service; its status, body and times to come again come back."""
    url, _ = await started()
    ask = {"X-Forwarded-For": "203.0.113.7", "Cookie": "a=b", "Content-Type": "application/json"}
    async with http.post(
        URL(f"{url}/relayer/v1/prepare?a=%2Fb&status=429", encoded=True), data=b'{"x":1}', headers=ask
    ) as answer:
        body = await answer.json()
        assert answer.status == 429
        assert answer.headers["Retry-After"] == "7"
        assert "X-Inner" not in answer.headers
    assert (body["method"], body["path"], body["body"]) == ("POST", "/v1/prepare?a=%2Fb&status=429", '{"x":1}')
    assert body["headers"]["X-Forwarded-For"] == "203.0.113.7, 127.0.0.1"
    assert "Cookie" not in body["headers"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "aggregator/metrics"),
        ("GET", "aggregator/api/v1/../../metrics"),
        ("GET", "aggregator/api/v1/%2e%2e%2fmetrics"),
        ("GET", "aggregator//evil.example/"),
        ("POST", "aggregator/api/v1/quote"),
        ("DELETE", "relayer/v1/relayers"),
        ("GET", "chain/pools"),
        ("POST", "chain/control/stop"),
        ("POST", "chain/faucet"),
        ("POST", "chain/transactions"),
        ("GET", "chain/vm-values/query"),
        ("POST", "chain/vm-values/hex"),
        ("GET", "http://evil.example/"),
        ("GET", "vendor/../settings.py"),
        ("GET", "nowhere"),
    ],
)
async def test_nothing_else_is_passed_on(
    behind: Behind, started: Started, http: aiohttp.ClientSession, method: str, path: str
) -> None:
    """What is not in the table reaches no service: a faucet only where the settings say that there is one."""
    url, _ = await started()
    async with http.request(method, URL(f"{url}/{path}", encoded=True)) as answer:
        assert answer.status == 404, await answer.text()
    assert behind.asked == []


async def test_the_faucet_of_a_local_chain(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """With the setting the faucet is asked."""
    url, _ = await started(faucet=True)
    async with http.post(f"{url}/chain/faucet", json={}) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("path", "own", "policy"),
    [
        ("aggregator/api/v1/quote.svg", "style-src 'unsafe-inline'", "style-src 'unsafe-inline', sandbox"),
        ("aggregator/api/v1/quote", "", "default-src 'none', sandbox"),
        ("chain/transactions/00", "script-src *", "script-src *, sandbox"),
        ("operators/relayer/v1/state", "", "default-src 'none', sandbox"),
        ("aggregator/docs", "script-src 'self'", "script-src 'self'"),
    ],
)
async def test_answers_run_nothing(
    started: Started, http: aiohttp.ClientSession, path: str, own: str, policy: str
) -> None:
    """An answer opened as a document is in a sandbox, whatever its service says: scripts in it would be this page's."""
    url, _ = await started()
    async with http.get(f"{url}/{path}", params={"policy": own}) as answer:
        assert answer.status == 200
        assert answer.headers.getall("Content-Security-Policy") == [policy]


async def test_views_of_the_chain(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """A contract's view is asked of the chain as it came: the page compares decimals with it."""
    url, _ = await started()
    async with http.post(f"{url}/chain/vm-values/query", json={"funcName": "getTokenProperties"}) as answer:
        assert (await answer.json())["body"] == '{"funcName": "getTokenProperties"}'
    assert behind.asked[-1].path == "/vm-values/query"


async def test_a_service_that_is_away(started: Started, http: aiohttp.ClientSession) -> None:
    """No service: 503 with when to come again, and the same for a WebSocket."""
    url, console = await started(aggregator_url="http://127.0.0.1:9", relayer_ws_url="ws://127.0.0.1:9")
    for path in ("aggregator/health", "aggregator/api/v1/quote/stream?from=a"):
        async with http.get(f"{url}/{path}") as answer:
            assert answer.status == 503
            assert answer.headers["Retry-After"] == "1"
            assert (await answer.json())["error"] == "service unavailable: no answer from aggregator"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect(f"{url}/relayer/ws")
    assert refused.value.status == 503
    assert console.counts.failures == {"aggregator": 2, "relayer": 1}


async def test_too_many_at_once(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """Over the bounds: 503, and place again as soon as one has ended."""
    url, console = await started(max_requests=1, max_sockets=1)
    first = asyncio.ensure_future(http.get(f"{url}/relayer/v1/held"))
    while not console.proxy.requests:
        await asyncio.sleep(0)
    async with http.get(f"{url}/relayer/v1/relayers") as answer:
        assert answer.status == 503
    behind.hold.set()
    (await first).close()
    async with http.get(f"{url}/relayer/v1/relayers") as answer:
        assert answer.status == 200
    async with http.ws_connect(f"{url}/relayer/ws"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{url}/relayer/ws")
        assert refused.value.status == 503
    await behind.closed.wait()
    assert console.counts.refused == {"requests": 1, "sockets": 1}


async def test_a_large_body_is_refused(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """A body over the bound: 413, and no service sees it."""
    url, _ = await started(max_body_bytes=1000)
    async with http.post(f"{url}/relayer/v1/prepare", data=b"x" * 1001) as answer:
        assert answer.status == 413
    assert behind.asked == []


async def test_a_large_answer_comes_whole(started: Started, http: aiohttp.ClientSession) -> None:
    """An answer of megabytes is passed on as it comes."""
    url, _ = await started()
    async with http.get(f"{url}/relayer/v1/large") as answer:
        assert await answer.read() == b"x" * 3_000_000


async def test_an_answer_that_breaks_off(started: Started, http: aiohttp.ClientSession) -> None:
    """Half an answer is never taken for a whole one."""
    url, _ = await started()
    with pytest.raises(aiohttp.ClientError):
        async with http.get(f"{url}/relayer/v1/cut") as answer:
            await answer.read()


async def test_messages_both_ways(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """Texts and bytes go both ways as they are, and so does the code of a close."""
    url, _ = await started()
    async with http.ws_connect(f"{url}/relayer/ws", max_msg_size=0) as socket:
        for text in ("{}", "ä" * 70_000):
            await socket.send_str(text)
            assert await socket.receive_str() == text
        await socket.send_bytes(b"\x00" * 2_000_000)
        assert await socket.receive_bytes() == b"\x00" * 2_000_000
        await socket.send_str("close")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 4008


async def test_a_page_that_leaves(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """When a page leaves, the service's connection ends, too."""
    url, console = await started()
    socket = await http.ws_connect(f"{url}/relayer/ws")
    await socket.close()
    await behind.closed.wait()
    while console.counts.sockets["relayer"]:
        await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["sse", "socket"])
async def test_a_stream(behind: Behind, started: Started, http: aiohttp.ClientSession, way: str) -> None:
    """A stream comes piece by piece, also over a WebSocket; when its reader leaves, it ends at the service."""
    url, console = await started()
    path = f"{url}/aggregator/api/v1/quote/stream?from=a"
    if way == "sse":
        async with http.get(path) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert (await answer.content.readuntil(b"\n\n")).startswith(b"event: quote\ndata: 0")
    else:
        async with http.ws_connect(path) as socket:
            head = json.loads(await socket.receive_str())
            assert head == {"status": 200, "headers": {"Content-Type": "text/event-stream"}}
            assert (await socket.receive_bytes()).startswith(b"event: quote\ndata: 0")
    await behind.closed.wait()
    while console.counts.sockets["aggregator"]:
        await asyncio.sleep(0)


async def test_a_refused_stream(started: Started, http: aiohttp.ClientSession) -> None:
    """Over a WebSocket the service's refusal comes with its status, like any answer."""
    url, _ = await started()
    async with http.ws_connect(f"{url}/aggregator/api/v1/quote/stream") as socket:
        assert json.loads(await socket.receive_str())["status"] == 400
        assert json.loads(await socket.receive_bytes()) == {"error": "unknown token_in"}
        await socket.receive()
        assert socket.close_code == 1000
