"""The public chain API: first source of unknown accounts, and another way in for transactions."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import msgspec

from millrace.chain import address
from millrace.chain.transaction import Transaction, to_json

log = logging.getLogger(__name__)

MAX_ANSWER = 1024 * 1024
MAX_CONCURRENT = 32


class _AccountJson(msgspec.Struct, frozen=True):
    nonce: int
    balance: str


class _PeersJson(msgspec.Struct, frozen=True):
    peers: list[str]


class ChainApiError(Exception):
    """The chain API cannot be reached or answers nonsense."""


class ChainApi:
    """Client of `{base_url}/accounts/{address}` and `/transactions`. `close` it when done."""

    def __init__(self, base_url: str, timeout: float) -> None:
        self._base_url = base_url.rstrip("/")
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def account(self, pubkey: bytes) -> tuple[int, int]:
        """Nonce and balance; (0, 0) for an address the chain does not know. Raises `ChainApiError`."""
        status, body = await self._get(f"{self._base_url}/accounts/{address.encode(pubkey)}")
        if status == 404:
            return 0, 0
        try:
            account = msgspec.json.decode(body, type=_AccountJson)
            return account.nonce, int(account.balance)
        except ValueError:
            raise ChainApiError("the chain API answered something that is no account") from None

    async def submit(self, tx: Transaction) -> bool:
        """Hand a transaction to the API; whether it took it."""
        body = msgspec.json.encode(to_json(tx))
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                self._slots,
                self._http.post(f"{self._base_url}/transactions", data=body, headers=headers) as response,
            ):
                if response.status < 300:
                    return True
                log.warning("the chain API refused a transaction", extra={"status": response.status})
        except (aiohttp.ClientError, TimeoutError) as error:
            log.warning("the chain API cannot be reached", extra={"error": str(error)[:200]})
        return False

    async def gossip_peers(self, url: str) -> tuple[str, ...]:
        """The multiaddresses that `url` lists. Raises `ChainApiError`."""
        status, body = await self._get(url)
        try:
            return tuple(msgspec.json.decode(body, type=_PeersJson).peers)
        except msgspec.DecodeError:
            raise ChainApiError(f"{url} answered {status} and no list of peers") from None

    async def _get(self, url: str) -> tuple[int, bytes]:
        try:
            async with self._slots, self._http.get(url, allow_redirects=False) as response:
                body = await response.content.read(MAX_ANSWER)
                if response.status in (200, 404):
                    return response.status, body
                raise ChainApiError(f"the chain API answered {response.status}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ChainApiError(f"the chain API cannot be reached: {error}"[:200]) from None
