"""What the chain API says of a sender: the nonce that a transaction in an answer would have.

An answer does not wait for long, and never fails for it: where the API is slow, down, or asked too much already, there
is no nonce.
"""

from __future__ import annotations

import logging

import aiohttp
import msgspec

from millrace.aggregator.settings import AggregatorSettings

log = logging.getLogger(__name__)

MAX_WAITING = 64
"""Most questions under way; further ones are not asked. At the limit of 100 a second this is half a second's."""
MAX_ANSWER = 256 * 1024
"""Bytes of an account that are read; its nonce comes long before."""


class _Account(msgspec.Struct):
    nonce: int


_ACCOUNT = msgspec.json.Decoder(_Account)


class Nonces:
    """Asks `GET {chain_api_url}/accounts/{address}`. Without a URL nobody is asked."""

    def __init__(self, settings: AggregatorSettings) -> None:
        self._url = settings.chain_api_url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=settings.chain_api_timeout)
        self._session: aiohttp.ClientSession | None = None
        self.waiting = 0
        self.missed = 0
        """Questions without an answer, those not asked included."""

    @property
    def known(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self._url)

    async def of(self, sender: str) -> int | None:
        """The next nonce of an account; None where it is not known."""
        if not self._url:
            return None
        if self.waiting >= MAX_WAITING:
            self.missed += 1
            return None
        self.waiting += 1
        try:
            return await self._asked(sender)
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError, ValueError, RecursionError) as error:
            self.missed += 1
            log.debug("no nonce", extra={"sender": sender, "reason": str(error) or type(error).__name__})
            return None
        finally:
            self.waiting -= 1

    async def _asked(self, sender: str) -> int:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        async with self._session.get(f"{self._url}/accounts/{sender}") as answer:
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            parts, size = [], 0
            async for part in answer.content.iter_chunked(1 << 16):
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER:
                    raise ValueError(f"more than {MAX_ANSWER} bytes")
        nonce = _ACCOUNT.decode(b"".join(parts)).nonce
        if not 0 <= nonce < 1 << 64:
            raise ValueError(f"{nonce} is no nonce")
        return nonce

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
