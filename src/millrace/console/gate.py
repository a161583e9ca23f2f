"""Who may ask for what: names of hosts, pages of other sites, operators.

A page of another site can make a browser send requests here, and by a name whose address it changes (DNS rebinding) it
could even read the answers. So only known names are served, and what is more than reading has to come from this page.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
from urllib.parse import urlsplit

from aiohttp import HttpVersion11, web

from millrace.console.settings import ConsoleSettings
from millrace.runtime.operators import SHORTEST_TOKEN

PROTOCOL = "millrace"
"""WebSocket subprotocol of the page; beside it, `bearer.<token in base64url>` is what stands for an `Authorization`
header, which browsers cannot send with a WebSocket."""
_BEARER = "bearer."
_PROXIES = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via")


class Refused(Exception):
    """A request that is not passed on; the text says why, `reason` is a label."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class Gate:
    """The rules under these settings. Raises `OSError` for a token that is too short."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._hosts = {_host(name) for name in settings.allowed_hosts}
        self._token = settings.operators_token.reveal()
        if self._token and len(self._token) < SHORTEST_TOKEN:
            raise OSError(f"operators_token is too short: give it at least {SHORTEST_TOKEN} characters")
        self.is_public = not is_loopback(settings.host) or bool(self._hosts)

    def check(self, request: web.Request) -> None:
        """Whether the request's host and page are known. Raises `Refused`."""
        host = request.headers.get("Host", "")
        if not self._knows(host):
            raise Refused(403, "host", "unknown host: put its name into allowed_hosts of the console's settings")
        origin = request.headers.get("Origin")
        acts = request.method not in ("GET", "HEAD") or upgrades(request)
        if acts and origin is not None and _page(origin) != host.lower():
            raise Refused(403, "origin", "the request comes from a page of another site")

    def check_operator(self, request: web.Request) -> str | None:
        """Whether an operator asks; the `Authorization` header to pass on. Raises `Refused`."""
        given = request.headers.get("Authorization") or _from_protocols(request)
        if not self._token:
            if self.is_public or _is_passed_on(request) or not is_loopback(request.remote or ""):
                raise Refused(403, "operators", "operators' routes need operators_token in the console's settings")
            return given
        expected = f"Bearer {self._token}".encode()
        if not hmac.compare_digest((given or "").encode("utf-8", "surrogateescape"), expected):
            raise Refused(401, "token", "send the operators' token: Authorization: Bearer TOKEN")
        return given

    @property
    def operators(self) -> str:
        """Who sees operators' routes: `open`, who has the `token`, or nobody (`off`)."""
        return "token" if self._token else "off" if self.is_public else "open"

    def _knows(self, host: str) -> bool:
        name = _host(host)
        return name == "localhost" or name in self._hosts or _is_address(name)


def upgrades(request: web.Request) -> bool:
    """Whether a WebSocket is asked for."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def is_loopback(text: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_passed_on(request: web.Request) -> bool:
    """Whether a proxy speaks for somebody else: by what they add, and by the version that nginx speaks to us."""
    return request.version < HttpVersion11 or any(name in request.headers for name in _PROXIES)


def _host(text: str) -> str:
    """The name in a `Host` header, in lower case; empty if it is none."""
    try:
        return (urlsplit(f"//{text}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _page(origin: str) -> str | None:
    """Host and port in an `Origin` header, in lower case; `None` if it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _from_protocols(request: web.Request) -> str | None:
    for item in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        name = item.strip()
        if name.startswith(_BEARER):
            text = name.removeprefix(_BEARER)
            try:
                token = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            except ValueError:  # no base64, no ASCII before it, or no text in it
                return None
            return f"Bearer {token}"
    return None
