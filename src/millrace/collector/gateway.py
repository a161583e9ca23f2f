"""Contract views through a gateway: `POST /vm-values/query`, with patience for a busy one."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import random
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from millrace.chain import address
from millrace.chain.times import milliseconds
from millrace.collector.settings import CollectorSettings
from millrace.dex.document import Block
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

MAX_ANSWER = 16 * 1024 * 1024
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 8.0


class GatewayError(Exception):
    """The gateway could not be asked, or answered something that is no answer."""


class LostAnswer(GatewayError):
    """No answer came, however often it was asked for."""


class ViewError(GatewayError):
    """The contract refused the call; asking again would not help."""


class _Output(msgspec.Struct, rename="camel"):
    return_code: str = ""
    return_message: str = ""
    return_data: list[str | None] | None = None


class _Inner(msgspec.Struct):
    data: _Output


class _Answer(msgspec.Struct):
    data: _Inner | None = None
    error: str = ""


class _Busy(Exception):
    """Worth another try, after `pause` seconds if the gateway said so."""

    def __init__(self, text: str, pause: float | None = None) -> None:
        super().__init__(text)
        self.pause = pause


class Gateway:
    """Asks contracts for views; at most `settings.parallel` questions at a time."""

    def __init__(self, session: aiohttp.ClientSession, settings: CollectorSettings) -> None:
        self._session = session
        self._url = settings.gateway.rstrip("/")
        self._attempts = max(settings.attempts, 1)
        self._timeout = aiohttp.ClientTimeout(total=settings.query_timeout_seconds)
        self._slots = asyncio.Semaphore(settings.parallel)
        self.queries = 0

    async def view(self, contract: bytes, function: str, *args: bytes) -> list[bytes]:
        """The values a contract's view returns. Raises `ViewError` if it refuses, `GatewayError` if lost."""
        body = {
            "scAddress": address.encode(contract),
            "funcName": function,
            "args": [arg.hex() for arg in args],
        }
        raw = await self._ask("POST", "/vm-values/query", body)
        try:
            answer = msgspec.json.decode(raw, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise GatewayError(f"{function}: the gateway's answer is no answer: {error}") from None
        if answer.data is None:
            raise ViewError(f"{function}: {answer.error or 'no data'}")
        output = answer.data.data
        if output.return_code not in ("ok", "0"):
            raise ViewError(f"{function}: {output.return_message or output.return_code}")
        try:
            return [base64.b64decode(item or "", validate=True) for item in output.return_data or []]
        except (binascii.Error, ValueError):
            raise GatewayError(f"{function}: the values are not base64") from None

    async def value(self, contract: bytes, function: str, *args: bytes) -> bytes:
        """The only value of a view; empty when the view returns nothing, which stands for zero."""
        values = await self.view(contract, function, *args)
        if len(values) > 1:
            raise GatewayError(f"{function}: {len(values)} values for one")
        return values[0] if values else b""

    async def key(self, contract: bytes, key: bytes) -> bytes:
        """What a contract stores under a key; empty where it stores nothing."""
        path = f"/address/{address.encode(contract)}/key/{key.hex()}"
        raw = await self._ask("GET", path, None)
        try:
            stored: str = msgspec.json.decode(raw)["data"]["value"]
            return bytes.fromhex(stored)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise GatewayError(f"{path}: unusable answer: {error!r}"[:300]) from None

    async def block(self, shard: int) -> Block:
        """The block whose state a shard's views tell: the newest, or the last executed one where that comes later."""
        raw = await self._ask("GET", f"/network/status/{shard}", None)
        try:
            status: dict[str, Any] = msgspec.json.decode(raw)["data"]["status"]
            numbers = [status[key] for key in ("erd_current_round", "erd_nonce", "erd_block_timestamp")]
            round_, nonce, stamp = map(int, numbers)
            nonce = int(status.get("erd_last_executed_nonce", nonce))
            return Block(round_, nonce, milliseconds(stamp) // 1000)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise GatewayError(f"/network/status/{shard}: unusable answer: {error!r}") from None

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        pause = FIRST_PAUSE
        for attempt in range(1, self._attempts + 1):
            try:
                async with self._slots:
                    self.queries += 1
                    return await self._once(method, path, body)
            except (_Busy, aiohttp.ClientError, OSError, TimeoutError) as error:
                text = str(error) or type(error).__name__
                if attempt == self._attempts:
                    raise LostAnswer(f"{path}: {text} ({attempt} attempts)") from None
                asked = error.pause if isinstance(error, _Busy) else None
                wait = pause if asked is None else asked
                log.debug("gateway is asked again", extra={"path": path, "reason": text, "after": wait})
            await asyncio.sleep(min(wait, LONGEST_PAUSE) * (1 + random.random() / 4))
            pause *= 2
        raise AssertionError("unreachable")

    async def _once(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        async with self._session.request(method, self._url + path, json=body, timeout=self._timeout) as response:
            if response.status == 429 or response.status >= 500:
                asked = response.headers.get("Retry-After", "")
                raise _Busy(f"status {response.status}", float(asked) if asked.isascii() and asked.isdigit() else None)
            raw = await response.content.read(MAX_ANSWER + 1)
            while len(raw) <= MAX_ANSWER and not response.content.at_eof():
                raw += await response.content.read(MAX_ANSWER + 1 - len(raw))
            if len(raw) > MAX_ANSWER:
                raise GatewayError(f"{path}: the answer exceeds {MAX_ANSWER} bytes")
            return raw


async def gather(work: Sequence[Any]) -> list[Any]:
    """Run all, end the rest at the first error."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        await end_tasks(tasks)
        raise
