"""What the demonstration asks of the local chain over HTTP: accounts, faucet, control."""

from __future__ import annotations

from typing import Any, Self

import aiohttp


class LocalChainError(Exception):
    """The local chain refused a request; the text is its own."""


class LocalChain:
    """Client of the local chain's HTTP interface. Use it as an async context manager."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def balances(self, address: str) -> dict[str, int]:
        """Every balance of an account in smallest units, `EGLD` included; tokens it never held are absent."""
        account = await self._get(f"/accounts/{address}")
        tokens: Any = await self._get(f"/accounts/{address}/tokens")
        return {"EGLD": int(account["balance"])} | {token["identifier"]: int(token["balance"]) for token in tokens}

    async def nonce(self, address: str) -> int:
        """The next nonce of an account."""
        return int((await self._get(f"/accounts/{address}"))["nonce"])

    async def transaction(self, tx_hash: str) -> dict[str, Any]:
        """A transaction as the chain knows it. Raises `LocalChainError` while it is unknown."""
        return await self._get(f"/transactions/{tx_hash}")

    async def fund(self, address: str, token: str, amount: int) -> None:
        """Give `amount` smallest units of `token` (or `EGLD`) to an account."""
        await self._post("/faucet", {"address": address, "token": token, "amount": str(amount)})

    async def newest_block(self) -> int:
        """The block nonce of the pool document: the market's newest state."""
        return int((await self._get("/pools"))["block"]["nonce"])

    async def stop_traders(self) -> int:
        """Pause the background traders; the market stands still from the block nonce that is returned."""
        answer = await self._post("/control/traders", {"enabled": False})
        return int(answer["blockNonce"])

    async def start_traders(self) -> None:
        """Let the background traders go on."""
        await self._post("/control/traders", {"enabled": True})

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._http.get(self._base_url + path) as response:
            return await _body(response)

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self._http.post(self._base_url + path, json=body) as response:
            return await _body(response)


async def _body(response: aiohttp.ClientResponse) -> dict[str, Any]:
    body: dict[str, Any] = await response.json()
    if response.status >= 400:
        raise LocalChainError(f"{response.url.path}: {body}")
    return body
