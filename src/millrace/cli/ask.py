"""What verbs that ask one thing share: where the services are, one question over HTTP, and how an end is told.

The questions are asked with the standard library: the client's HTTP library takes longer to load than these verbs may
take in all. Answers are the client's own values.
"""

from __future__ import annotations

import http.client
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from millrace_client.reading import read

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_SECONDS = 10.0
_MAX_BODY = 64 * 1024 * 1024


class Ended(click.ClickException):
    """Refused, failed or not found: the text goes to standard error. (Wrong use has the exit code 2.)"""

    exit_code = 1


class Unreached(Ended):
    """A service cannot be reached."""

    exit_code = 3


class NotKnown(Ended):
    """What became of it is not known."""

    exit_code = 4


def _option(name: str, variable: str, default: str, what: str) -> Callable[[F], F]:
    return click.option(name, envvar=variable, default=default, show_default=True, show_envvar=True, help=what)


USUAL_AGGREGATOR, USUAL_RELAYER = "http://127.0.0.1:8100", "http://127.0.0.1:8201"
aggregator_option = _option("--aggregator", "MILLRACE_AGGREGATOR_URL", USUAL_AGGREGATOR, "Its address.")
relayer_option = _option("--relayer", "MILLRACE_RELAYER_URL", USUAL_RELAYER, "Its REST address.")
gateway_option = click.option(
    "--gateway",
    envvar="MILLRACE_GATEWAY_URL",
    show_envvar=True,
    metavar="URL",
    help="A gateway of the chain.",
)
operators_option = _option(
    "--operators", "MILLRACE_RELAYER_OPERATORS_URL", "http://127.0.0.1:8202", "The relayer's port for operators."
)
relayer_ws_option = _option("--relayer-ws", "MILLRACE_RELAYER_WS_URL", "ws://127.0.0.1:8200/ws", "Its WebSocket.")
hub_option = _option("--hub", "MILLRACE_HUB_URL", "ws://127.0.0.1:8300/hub/ws", "The notifier's hub.")


def raw(base_url: str, path: str, query: Mapping[str, object]) -> bytes:
    """The body of an answer. Raises `Ended` where the service refuses or cannot be reached."""
    texts = {name: str(value) for name, value in query.items() if value is not None}
    return _body(base_url, f"{base_url.rstrip('/')}{path}" + (f"?{urllib.parse.urlencode(texts)}" if texts else ""))


def _body(base_url: str, url: str, sent: bytes | None = None) -> bytes:
    if not url.lower().startswith(("http://", "https://")):
        raise Ended(f"{base_url} is no address of a service: it begins with http:// or https://")
    try:
        request = urllib.request.Request(url, sent, {"Content-Type": "application/json"} if sent else {})
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            body: bytes = response.read(_MAX_BODY)
            return body
    except urllib.error.HTTPError as error:
        raise Ended(_words(error)) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        text = f"{base_url} cannot be reached ({reason}): is the address right, is it running?"
        raise Unreached(text) from None
    except ValueError as error:  # brackets that do not close, names that cannot be one
        raise Ended(f"{base_url} is no address of a service: {error}") from None


def get(base_url: str, path: str, query: Mapping[str, object], kind: type[T]) -> T:
    """An answer as a value. Raises `Ended`."""
    return decoded(raw(base_url, path, query), kind, base_url)


def posted(base_url: str, path: str, question: object, kind: type[T]) -> T:
    """The same for a question that is sent as JSON. Raises `Ended`."""
    body = _body(base_url, f"{base_url.rstrip('/')}{path}", msgspec.json.encode(question))
    return decoded(body, kind, base_url)


def decoded(body: bytes, kind: type[T], base_url: str) -> T:
    """The value in a body. Raises `Ended`."""
    return understood(lambda: read(body, kind), base_url)


def understood(reading: Callable[[], T], base_url: str) -> T:
    """What reading an answer gives. Raises `Ended`."""
    try:
        return reading()
    except msgspec.MsgspecError as error:
        raise Ended(f"{base_url} answers what this version does not understand: {error}") from None


def _words(error: urllib.error.HTTPError) -> str:
    try:
        told = msgspec.json.decode(error.read(65_536), type=dict[str, Any]).get("error")
    except (msgspec.MsgspecError, OSError):
        told = None
    later = error.headers.get("Retry-After")
    return f"{told or f'HTTP {error.code} of {error.url}'}" + (f"; ask again in {later} s" if later else "")


def is_terminal() -> bool:
    """Whether somebody looks: a pipe gets plain lines."""
    return sys.stdout.isatty()
