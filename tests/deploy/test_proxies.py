"""The samples for proxies: taken by the proxies themselves, and open to nothing but what is public."""

from __future__ import annotations

import asyncio
import datetime
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.debian import DEPLOY, FOLDERS, check
from millrace.aggregator.page import FILES as PAGE
from millrace.runtime.http import HttpServer
from millrace.system.ports import free_ports
from servers.process import Server

SAMPLES = ("nginx.conf", "haproxy.cfg")
OPERATORS = ("8101", "8202", "8300", "8302", "/metrics")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with a certificate of our own, its key, and both in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "relay.example")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    chain = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for file, content in (("fullchain.pem", chain), ("key.pem", private), ("both.pem", chain + private)):
        (tmp_path / file).write_bytes(content)
    return tmp_path


def sample(name: str, certificates: Path) -> str:
    """A sample with the certificates that there are."""
    return (DEPLOY / "proxy" / name).read_text().replace("/etc/ssl/millrace/", f"{certificates}/")


def test_haproxy_takes_its_sample(certificates: Path) -> None:
    """`haproxy -c` finds no fault and warns of nothing."""
    (certificates / "haproxy.cfg").write_text(sample("haproxy.cfg", certificates))
    output = check("haproxy", "-c", "-V", "-f", "haproxy.cfg", folder=certificates)
    assert "WARNING" not in output.upper()


def whole_nginx(text: str, folder: Path) -> str:
    """A configuration around what is included in `http { … }`."""
    (folder / "millrace.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return (
        f"user root;\npid {folder}/pid;\nerror_log stderr;\ndaemon off;\nevents {{}}\nhttp {{ access_log off;\n"
        + "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        + f"include {folder}/millrace.conf; }}\n"
    )


def test_nginx_takes_its_sample(certificates: Path) -> None:
    """`nginx -t` finds no fault and warns of nothing."""
    (certificates / "nginx.conf").write_text(whole_nginx(sample("nginx.conf", certificates), certificates))
    output = check("nginx", "-t", "-c", certificates / "nginx.conf", "-p", certificates, folder=certificates)
    assert "[warn]" not in output and "[emerg]" not in output


class Proxy(Server):
    """A proxy with its sample after `changes`, on a port of its own, in front of what listens on `behind`."""

    def __init__(self, name: str, certificates: Path, behind: int, changes: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(certificates)
        self._name = name
        text = sample(name, certificates)
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        text = re.sub(r"127\.0\.0\.1:8\d00|127\.0\.0\.1:8201", f"127.0.0.1:{behind}", text)
        text = text.replace("check port 8201", "check")
        if name == "nginx.conf":
            text = whole_nginx(text.replace("listen 443 ssl", f"listen 127.0.0.1:{self.port} ssl"), certificates)
        else:
            text = text.replace("maxconn 20000", "maxconn 500").replace(
                "bind :443 ssl", f"bind 127.0.0.1:{self.port} ssl"
            )
        (certificates / name).write_text(text)

    def command(self) -> list[str]:
        if self._name == "nginx.conf":
            return [_program("nginx"), "-c", f"{self._directory}/{self._name}", "-p", str(self._directory)]
        return [_program("haproxy"), "-f", f"{self._directory}/{self._name}"]


def _program(name: str) -> str:
    program = shutil.which(name, path=FOLDERS)
    assert program, f"{name} is missing: ./run test installs it"
    return program


async def _echo(request: web.Request) -> web.StreamResponse:
    """Any path: itself and whom the proxy says it is for; a WebSocket gives back what it gets."""
    if request.headers.get("Upgrade", "").lower() == "websocket":
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket
    return web.json_response({"path": request.path, "for": request.headers.getall("X-Forwarded-For", [])})


@asynccontextmanager
async def running(
    name: str, certificates: Path, handler: Handler = _echo, changes: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a running proxy, behind which `handler` answers whatever is asked."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    behind = HttpServer(app)
    port = await behind.start("127.0.0.1", 0)
    proxy = Proxy(name, certificates, port, changes)
    trusting = ssl.create_default_context(cafile=certificates / "fullchain.pem")
    trusting.check_hostname = False
    try:
        await proxy.restart()
        async with aiohttp.ClientSession(
            f"https://127.0.0.1:{proxy.port}", connector=aiohttp.TCPConnector(ssl=trusting)
        ) as client:
            yield client
    finally:
        proxy.kill()
        async with aiohttp.request("GET", f"http://127.0.0.1:{port}/"):
            pass  # connections are taken in their order: those of the proxy's last looks at our health were before
        await behind.stop()


@pytest.fixture(params=SAMPLES)
async def proxied(request: pytest.FixtureRequest, certificates: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a running proxy, behind which everything is answered with what was asked."""
    async with running(request.param, certificates) as client:
        yield client


QUOTES, RELAY = {"Host": "quotes.example"}, {"Host": "relay.example"}


async def test_what_is_public_passes(proxied: aiohttp.ClientSession) -> None:
    """Public paths of each host reach a service, which hears of the client's own address, and of no other it names."""
    for host, paths in (
        (QUOTES, ("/api/v1/quote", "/api/v1/quote/stream", "/api/v1/pair-config", "/health", "/openapi.json", *PAGE)),
        (RELAY, ("/v1/relayers", "/v1/network-stats/history", "/health", "/ready", "/asyncapi.json")),
    ):
        for path in paths:
            async with proxied.get(path, headers=host | {"X-Forwarded-For": "203.0.113.9"}) as answer:
                assert (answer.status, await answer.json()) == (200, {"path": path, "for": ["127.0.0.1"]})


async def test_what_is_not_public_does_not_pass(proxied: aiohttp.ClientSession) -> None:
    """Metrics, actions, the notifier's paths, and one host's paths at the other are not found."""
    for host, path in (
        (QUOTES, "/metrics"), (QUOTES, "/v1/sign"), (QUOTES, "/ws"), (RELAY, "/metrics"), (RELAY, "/control/read-keys"),
        (RELAY, "/hub/ws"), (RELAY, "/save"), (RELAY, "/api/v1/quote"), (RELAY, "/ws/edge"), (RELAY, "/wsx"),
    ):  # fmt: skip
        async with proxied.get(path, headers=host) as answer:
            assert answer.status == 404, path


async def test_websockets_pass(proxied: aiohttp.ClientSession) -> None:
    """Both WebSockets of the relayer are upgraded and carry messages both ways."""
    for path in ("/ws", "/ws/stats"):
        async with proxied.ws_connect(path, headers=RELAY) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "hello"


TWO_AGGREGATORS = {
    "nginx.conf": ("    server 127.0.0.1:8100 ", "    server 127.0.0.1:8100;\n    server 127.0.0.1:8100 "),
    "haproxy.cfg": (
        "    server one 127.0.0.1:8100\n",
        "    server one 127.0.0.1:8100\n    server two 127.0.0.1:8100\n",
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_client_over_its_share_is_refused_alone(name: str, certificates: Path) -> None:
    """A 503 is an aggregator's answer to one client: it is asked once, and goes on to answer all others."""
    asked = 0

    async def over_its_share(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        if request.path != "/api/v1/multi-swap":
            return await _echo(request)
        asked += 1
        return web.json_response({"error": "service unavailable"}, status=503, headers={"Retry-After": "7"})

    async with running(name, certificates, over_its_share, [TWO_AGGREGATORS[name]]) as client:
        for _ in range(8):
            async with client.get("/api/v1/multi-swap", headers=QUOTES) as answer:
                assert (answer.status, answer.headers.get("Retry-After")) == (503, "7")
        assert asked == 8
        async with client.get("/api/v1/quote", headers=QUOTES) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_relayer_that_stands_by_costs_no_answer_and_nothing_is_sent_twice(
    name: str, certificates: Path
) -> None:
    """Where none listens the next relayer is asked, and what one has heard is never sent again."""
    heard = 0

    async def breaks_off(request: web.Request) -> web.StreamResponse:
        nonlocal heard
        if request.path == "/v1/sign":
            heard += 1
            assert request.transport is not None
            request.transport.abort()
        return await _echo(request)

    changes = []
    for port in (8200, 8201):
        (nobody,) = free_ports(1)
        if name == "nginx.conf":
            server, another = f"    server 127.0.0.1:{port};\n", f"    server 127.0.0.1:{nobody};\n"
        else:
            server, another = f"    server one 127.0.0.1:{port}\n", f"    server two 127.0.0.1:{nobody}\n"
        changes.append((server, server + another))
    async with running(name, certificates, breaks_off, changes) as client:
        for _ in range(8):
            async with client.ws_connect("/ws", headers=RELAY) as socket:
                await socket.send_str("hello")
                assert await socket.receive_str() == "hello"
            async with client.post("/v1/relay", headers=RELAY, json={}) as answer:
                assert answer.status == 200
        with suppress(aiohttp.ServerDisconnectedError):  # as HAProxy does with a connection it had used before
            async with client.post("/v1/sign", headers=RELAY, json={}) as answer:
                assert answer.status == 502
        assert heard == 1


async def test_what_the_services_allow_passes(proxied: aiohttp.ClientSession) -> None:
    """A client's burst of 4,000 requests at the relayer passes, and leaves the 100 quotes a second untouched."""
    for host, path, count in ((RELAY, "/v1/relayers", 4_000), (QUOTES, "/api/v1/quote", 100)):
        statuses = await asyncio.gather(*(_status(proxied, host, path) for _ in range(count)))
        assert statuses == [200] * count, path


async def _status(client: aiohttp.ClientSession, host: dict[str, str], path: str) -> int:
    async with client.get(path, headers=host) as answer:
        return answer.status


FLOODS = {
    "nginx.conf": [
        (" rate=200r/s", " rate=1r/s"),
        (" rate=2000r/s", " rate=1r/s"),
        ("burst=200 ", ""),
        ("burst=8000 ", ""),
    ],
    "haproxy.cfg": [("sc0_http_req_rate gt 30000", "sc0_http_req_rate gt 1")],
}


@pytest.mark.parametrize("name", SAMPLES)
async def test_floods_are_refused_with_the_services_words(name: str, certificates: Path) -> None:
    """Beyond a proxy's own limit clients get what the services say there: 429, `Retry-After` and a JSON error."""
    async with running(name, certificates, changes=FLOODS[name]) as client:
        for host, path in ((QUOTES, "/api/v1/quote"), (RELAY, "/v1/relayers")):
            for _ in range(2):
                async with client.get(path, headers=host) as answer:
                    last = answer.status, answer.headers.get("Retry-After"), await answer.json()
            assert last == (429, "1", {"error": "rate limit exceeded"})


async def test_too_large_bodies_are_refused_with_the_services_words(certificates: Path) -> None:
    """What nginx does not pass on for its size is refused as the service behind it does."""
    async with running("nginx.conf", certificates) as client:
        for host, path, size, text in (
            (QUOTES, "/api/v1/multi-swap", 1 << 20, "request entity too large"),
            (RELAY, "/v1/relay", 4 << 20, "message too large"),
        ):
            async with client.post(path, headers=host, data=BytesIO(bytes(size))) as answer:
                assert answer.status == 200, "as much as the service takes"
            async with client.post(path, headers=host, data=BytesIO(bytes(size + 1))) as answer:
                assert (answer.status, await answer.json()) == (413, {"error": text})


@pytest.mark.parametrize("name", SAMPLES)
def test_operators_are_not_public(name: str) -> None:
    """No sample passes anything on to an operators' port or to the notifier."""
    lines = (DEPLOY / "proxy" / name).read_text().splitlines()
    rules = "\n".join(line for line in lines if not line.strip().startswith("#"))
    assert not [word for word in OPERATORS if re.search(rf"{re.escape(word)}\b", rules)]
