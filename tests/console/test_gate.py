"""Who may ask for what: hosts, pages of other sites, operators."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import aiohttp
import pytest

from millrace.console.app import Console
from millrace.console.settings import ConsoleSettings
from millrace.runtime.settings import Secret

if TYPE_CHECKING:
    from tests.console.conftest import Behind, Started

TOKEN = "a token of operators"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
        ("192.0.2.7:80", 200),
        ("console.example", 200),
        ("CONSOLE.example:8443", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("console.example.evil.example", 403),
        ("localhost@evil.example", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_only_known_hosts(started: Started, http: aiohttp.ClientSession, host: str, status: int) -> None:
    """Addresses, localhost and the names in the settings; by any other name another site's page might ask."""
    url, _ = await started(allowed_hosts=("console.example",))
    for path in ("", "aggregator/health"):
        async with http.get(f"{url}/{path}", headers={"Host": host}) as answer:
            assert answer.status == status


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://{host}", True),
        ("https://{host}", True),
        ("http://evil.example", False),
        ("null", False),
        ("http://[", False),
        ("", False),
    ],
)
async def test_pages_of_other_sites(
    behind: Behind, started: Started, http: aiohttp.ClientSession, origin: str | None, allowed: bool
) -> None:
    """What acts, and every WebSocket, comes from this page or from no page."""
    url, _ = await started(faucet=True)
    headers = {} if origin is None else {"Origin": origin.format(host=url.removeprefix("http://"))}
    async with http.post(f"{url}/chain/faucet", json={}, headers=headers) as answer:
        assert (answer.status == 200) == allowed
    if allowed:
        async with http.ws_connect(f"{url}/relayer/ws", headers=headers) as socket:
            await socket.send_str("x")
            assert await socket.receive_str() == "x"
    else:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{url}/relayer/ws", headers=headers)
        assert refused.value.status == 403
        assert behind.asked == []


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({}, {}, 200),
        ({}, {"X-Forwarded-For": "203.0.113.7"}, 403),
        ({}, {"X-Real-IP": "203.0.113.7"}, 403),
        ({}, {"Via": "1.1 somebody"}, 403),
        ({"host": "0.0.0.0"}, {}, 403),
        ({"allowed_hosts": ("console.example",)}, {}, 403),
        ({"operators_token": Secret(TOKEN)}, {}, 401),
        ({"operators_token": Secret(TOKEN)}, {"Authorization": "Bearer another token"}, 401),
        ({"operators_token": Secret(TOKEN), "host": "0.0.0.0"}, BEARER, 200),
    ],
)
async def test_operators_routes(
    started: Started,
    http: aiohttp.ClientSession,
    settings: dict[str, object],
    headers: dict[str, str],
    status: int,
) -> None:
    """Without a token who is on this machine may look; a page that others reach shows them to operators only."""
    url, _ = await started(**settings)
    for path in ("operators/relayer/metrics", "operators/notifier/control/log-level"):
        async with http.get(f"{url}/{path}", headers=headers) as answer:
            assert answer.status == status
    if status != 200:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{url}/operators/notifier/hub/ws", headers=headers)
        assert refused.value.status == status


async def test_a_token_in_a_websocket(behind: Behind, started: Started, http: aiohttp.ClientSession) -> None:
    """A browser sends the token as a subprotocol; the hub gets it as a header, and is not offered the subprotocol."""
    url, _ = await started(operators_token=Secret(TOKEN))
    named = "bearer." + base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    async with http.ws_connect(f"{url}/operators/notifier/hub/ws", protocols=("millrace", named)) as socket:
        assert socket.protocol == "millrace"
    assert behind.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Sec-WebSocket-Protocol" not in behind.asked[0].headers
    for wrong in ("bearer.AAAA", "bearer.%", "bearer.gIA", "bearer.\u00e9"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(f"{url}/operators/notifier/hub/ws", protocols=("millrace", wrong))
        assert refused.value.status in (400, 401)


async def test_the_page_knows_who_is_an_operator(started: Started, http: aiohttp.ClientSession) -> None:
    """The page is told whether operators' routes are open, want a token, or are off."""
    for settings, told in (
        ({}, "open"),
        ({"operators_token": Secret(TOKEN)}, "token"),
        ({"host": "0.0.0.0"}, "off"),
    ):
        url, _ = await started(**settings)
        async with http.get(f"{url}/settings.json") as answer:
            assert (await answer.json())["operators"] == told


def test_a_short_token_is_refused() -> None:
    """A token that is guessed is no token."""
    with pytest.raises(OSError, match="at least 16"):
        Console(ConsoleSettings(operators_token=Secret("short")))
