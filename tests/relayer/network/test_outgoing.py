"""Where the relayer connects to: listed hosts, checked addresses, no redirects."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from relayer_support import transfer, wallet

from millrace.relayer.network import outgoing
from millrace.relayer.network.chain_api import ChainApi, ChainApiError
from millrace.runtime import http

ALICE = wallet(1)


@pytest.fixture
async def trap() -> AsyncIterator[tuple[str, list[str]]]:
    """A server nobody should be sent to; its URL, and the paths it was asked for."""
    asked: list[str] = []

    async def take(request: web.Request) -> web.Response:
        asked.append(request.path)
        return http.json_response({"nonce": 1, "balance": "1", "peers": ["x"]})

    app = http.make_app()
    app.add_routes([web.route("*", "/{path:.*}", take)])
    server = http.HttpServer(app)
    yield f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}", asked
    await server.stop()


@pytest.fixture
async def redirecting(trap: tuple[str, list[str]]) -> AsyncIterator[str]:
    """A chain API that answers everything with a way to the trap."""

    async def send_away(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"{trap[0]}/secret"})

    app = http.make_app()
    app.add_routes([web.route("*", "/{path:.*}", send_away)])
    server = http.HttpServer(app)
    yield f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"
    await server.stop()


async def test_row_40_redirects_are_not_followed(trap: tuple[str, list[str]], redirecting: str) -> None:
    """A chain API that redirects is one that does not answer, whatever it was asked."""
    api = ChainApi(redirecting, 3.0, f"{redirecting}/peers")
    try:
        assert await api.submit(transfer(ALICE)) == "later"
        with pytest.raises(ChainApiError, match="307"):
            await api.account(ALICE.public)
        with pytest.raises(ChainApiError, match="307"):
            await api.gossip_peers(f"{redirecting}/peers")
    finally:
        await api.close()
    assert trap[1] == []


async def test_row_40_only_hosts_of_the_settings(trap: tuple[str, list[str]]) -> None:
    """A URL of another host, or of another scheme, is not fetched."""
    api = ChainApi("http://localhost:1", 3.0)
    try:
        for url in (trap[0], "file:///etc/passwd", "ftp://localhost:1/", "http://localhost.evil.example/"):
            with pytest.raises(ChainApiError, match="no host of the settings"):
                await api.gossip_peers(url)
    finally:
        await api.close()
    assert trap[1] == []


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "[fe80::1]", "0.0.0.0", "[::ffff:169.254.169.254]", "224.0.0.1", "100.100.100.200"],
)
async def test_row_40_metadata_services_are_never_asked(host: str) -> None:
    """Link-local and other addresses no chain API can have stop the start, even with private ones allowed."""
    with pytest.raises(outgoing.ForbiddenError, match="never connected"):
        ChainApi(f"http://{host}", 3.0, private=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "[::1]", "[fd00::1]", "[::ffff:10.0.0.1]"])
async def test_row_40_private_addresses_by_setting(host: str) -> None:
    """Addresses of this machine and its network are refused where only public ones are meant."""
    with pytest.raises(outgoing.ForbiddenError, match="outgoing_private"):
        ChainApi(f"http://{host}:8400", 3.0, private=False)
    await ChainApi(f"http://{host}:8400", 3.0, private=True).close()


class Rebinding(AbstractResolver):
    """A name server that answers differently each time."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = self.answers.pop(0)
        return [ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass


class Both(Rebinding):
    """A name server that gives all its answers at once."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [(await super(Both, self).resolve(host, port, family))[0] for _ in range(len(self.answers))]


async def test_row_40_a_name_of_several_addresses() -> None:
    """Of a name's addresses only those that may be connected to are handed out."""
    public = ("93.184.216.34", "2606:2800:220:1::1")
    for private, allowed in ((False, public), (True, ("10.0.0.1", *public))):
        names = Both("169.254.169.254", "10.0.0.1", *public)
        results = await outgoing.CheckedResolver(names, private=private).resolve("api.example")
        assert tuple(result["host"] for result in results) == allowed


async def test_row_40_dns_rebinding(trap: tuple[str, list[str]]) -> None:
    """A public name that turns out to be a private address is not connected to; nor is it at the second look."""
    port = trap[0].rpartition(":")[2]
    resolver = Rebinding("127.0.0.1", "169.254.169.254")
    async with outgoing.session(2.0, private=False, resolver=resolver) as client:
        for _ in range(2):
            with pytest.raises(aiohttp.ClientError):
                await client.get(f"http://api.example:{port}/")
    assert trap[1] == [] and resolver.answers == []
    async with outgoing.session(2.0, private=True, resolver=Rebinding("127.0.0.1")) as client:
        async with client.get(f"http://api.example:{port}/") as response:
            assert response.status == 200, "where private addresses are meant, the same name is reached"


async def test_row_40_neither_proxies_nor_cookies(trap: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not asked, and what a server wants remembered is not brought back to it."""
    brought: list[str | None] = []

    async def remember(request: web.Request) -> web.Response:
        brought.append(request.headers.get("Cookie"))
        return web.Response(headers={"Set-Cookie": "who=you"})

    app = http.make_app()
    app.router.add_get("/", remember)
    server = http.HttpServer(app)
    url = f"http://localhost:{await server.start('127.0.0.1', 0)}/"
    monkeypatch.setenv("http_proxy", trap[0])
    async with outgoing.session(5.0, private=True) as client:
        for _ in range(2):
            async with client.get(url) as response:
                assert response.status == 200
    await server.stop()
    assert trap[1] == [] and brought == [None, None]
