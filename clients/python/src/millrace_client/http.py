"""Questions over HTTP: typed answers, errors as exceptions, and waits as the service asks, within bounds."""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from millrace_client.errors import ClientError, Refused, Unreachable
from millrace_client.reading import read

if TYPE_CHECKING:  # aiohttp takes as long to load as all else together, and is loaded when something is asked
    import aiohttp

T = TypeVar("T")

_MAX_BODY = 64 * 1024 * 1024  # prices of ten thousand tokens are 1 MB; a stranger's endless body must end
_LATER = (429, 503)
Traceparent = Callable[[], str | None]
"""Tells the W3C trace context (`traceparent`) of what is asked now, None where it is not traced."""


async def load_aiohttp() -> None:
    """Load the HTTP library on another thread where it is not loaded yet: the loop goes on meanwhile."""
    global _is_loaded
    if not _is_loaded:
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        _is_loaded = True


_is_loaded = False


class Patience(msgspec.Struct, frozen=True):
    """How often something is tried, and how many seconds all waits may take, when a service is busy or away."""

    tries: int = 5
    seconds: float = 30.0

    def pause(self, tried: int, asked: float | None, waited: float) -> float | None:
        """Seconds to wait after `tried` tries, at least what was `asked` for; None: enough was waited."""
        wanted = max(0.0, asked) if asked is not None else min(0.1 * 2 ** min(tried, 8), 5.0) * random.uniform(0.5, 1.0)
        return wanted if tried + 1 < self.tries and waited + wanted <= self.seconds else None


class _ErrorBody(msgspec.Struct):
    error: str = ""


class _Question(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    body: bytes | None
    answers: int | None
    """A status beside those of success whose body is an answer."""
    extra_seconds: float = 0.0


class Http:
    """One service's REST interface; connections are made when first needed."""

    def __init__(
        self,
        base_url: str,
        timeout: float,
        patience: Patience,
        headers: Mapping[str, str],
        traceparent: Traceparent | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._timeout, self._patience, self._headers = timeout, patience, dict(headers)
        self._traceparent = traceparent
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    def session(self) -> aiohttp.ClientSession:
        """The session, which a WebSocket may share; `load_aiohttp` comes first. Raises `Unreachable` once closed."""
        import aiohttp

        if self._is_closed:
            raise Unreachable("this client was closed")
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=self._timeout), headers=self._headers
            )
        return self._session

    async def close(self) -> None:
        """Close the connections; no more are made."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def get(
        self, path: str, kind: type[T], query: Mapping[str, object] | None = None, *, answers: int | None = None
    ) -> T:
        """The answer to a GET; `answers`: an HTTP status that is one, too. Raises `Refused` and `Unreachable`."""
        return await self._ask(_Question("GET", path, query_texts(query or {}), None, answers), kind)

    async def post(
        self,
        path: str,
        kind: type[T],
        body: object,
        query: Mapping[str, object] | None = None,
        *,
        extra_seconds: float = 0.0,
    ) -> T:
        """The answer to a POST that may be made again without harm. Raises `Refused` and `Unreachable`.

        It may take `extra_seconds` beyond the usual time.
        """
        asked = _Question("POST", path, query_texts(query or {}), msgspec.json.encode(body), None, extra_seconds)
        return await self._ask(asked, kind)

    async def _ask(self, asked: _Question, kind: type[T]) -> T:
        waited, tried = 0.0, 0
        while True:
            try:
                return answer(await self._once(asked), kind, self.base_url + asked.path)
            except (Refused, Unreachable) as error:
                told = error.retry_after if isinstance(error, Refused) else None
                passes = isinstance(error, Unreachable) or error.status in _LATER
                pause = self._patience.pause(tried, told, waited) if passes else None
                if pause is None:
                    raise
            waited, tried = waited + pause, tried + 1
            await asyncio.sleep(pause)

    async def _once(self, asked: _Question) -> bytes:
        await load_aiohttp()
        import aiohttp

        own = {} if asked.body is None else {"Content-Type": "application/json"}
        own |= self._traced()
        url = self.base_url + asked.path
        timeout = aiohttp.ClientTimeout(total=self._timeout + asked.extra_seconds, sock_connect=self._timeout)
        try:
            async with self.session().request(
                asked.method, url, params=asked.query, data=asked.body, headers=own, timeout=timeout
            ) as response:
                content = bytearray()
                async for chunk in response.content.iter_chunked(1 << 16):
                    content += chunk
                    if len(content) > _MAX_BODY:
                        raise ClientError(f"{url} answers with more than {_MAX_BODY} bytes")
                if not response.ok and response.status != asked.answers:
                    raise _refused(response.status, bytes(content), response.headers)
                return bytes(content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or type(error).__name__
            raise Unreachable(
                f"{self.base_url} does not answer ({what}): is the address right, is it running?"
            ) from None

    def _traced(self) -> dict[str, str]:
        told = None if self._traceparent is None else self._traceparent()
        return {} if told is None else {"traceparent": told}

    async def events(self, path: str, query: Mapping[str, object], silence: float) -> AsyncIterator[tuple[str, bytes]]:
        """The server-sent events of one connection, as (name, data), until it ends or is silent for `silence` seconds.

        Raises `Refused` and `Unreachable`.
        """
        await load_aiohttp()
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=silence)
        try:
            async with self.session().get(
                self.base_url + path, params=query_texts(query), timeout=timeout, headers=self._traced()
            ) as response:
                if response.status != 200:
                    body = await response.content.read(1 << 16)
                    raise _refused(response.status, body, response.headers)
                name, data, size = "message", [], 0
                async for line in _lines(response.content):
                    if line.startswith(b"event:"):
                        name = line[6:].strip().decode("utf-8", "replace")
                    elif line.startswith(b"data:"):
                        data.append(line[5:].removeprefix(b" "))
                        size += len(line)
                        if size > _MAX_BODY:
                            raise ClientError(f"{self.base_url}{path} sends an event of more than {_MAX_BODY} bytes")
                    elif not line:
                        if data:
                            yield name, b"\n".join(data)
                        name, data, size = "message", [], 0
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{self.base_url} stopped sending ({str(error) or type(error).__name__})") from None


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length within `_MAX_BODY`, without their ends."""
    rest = bytearray()
    async for chunk in content.iter_any():
        rest += chunk
        while (end := rest.find(b"\n")) >= 0:
            yield bytes(rest[:end]).removesuffix(b"\r")
            del rest[: end + 1]
        if len(rest) > _MAX_BODY:
            raise ClientError(f"a line of more than {_MAX_BODY} bytes came")


def query_texts(query: Mapping[str, object]) -> dict[str, str]:
    """Query parameters as texts; those that are None are left out, lists are comma-separated."""
    texts = {}
    for name, value in query.items():
        if isinstance(value, bool):
            texts[name] = str(value).lower()
        elif isinstance(value, list | tuple):
            texts[name] = ",".join(str(item) for item in value)
        elif value is not None:
            texts[name] = str(value)
    return texts


def _refused(status: int, body: bytes, headers: Mapping[str, str]) -> Refused:
    try:
        reason = read(body, _ErrorBody).error
    except msgspec.MsgspecError:
        reason = ""  # a proxy's own page: the status alone speaks
    return Refused(reason or f"HTTP {status}", retry_after=_seconds(headers), status=status)


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds of `Retry-After`, which is their number or a date by the service's clock: `Date` is that clock's."""
    after = headers.get("Retry-After", "").strip()
    if after.isascii() and after.isdigit():
        return float(after)
    from email.utils import parsedate_to_datetime  # loaded with aiohttp

    try:
        until = parsedate_to_datetime(after)
        now = parsedate_to_datetime(headers["Date"]) if "Date" in headers else datetime.now(UTC)
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def answer(body: bytes | msgspec.Raw, kind: type[T], url: str) -> T:
    """The value in an answer's bytes. Raises `ClientError`."""
    try:
        return read(body, kind)
    except msgspec.MsgspecError as error:
        raise ClientError(f"{url} answers what this client does not understand: {error}") from None


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name, value in fields.items() if value is not None}
