"""Client of the aggregator's REST interface."""

from __future__ import annotations

from typing import Any, Self

import aiohttp


class QuoteError(Exception):
    """The aggregator refused; `text` is its `error` field, `status` the HTTP status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(f"{text} (HTTP {status})")
        self.text = text
        self.status = status


class AggregatorClient:
    """Asks for quotes. Use it as an async context manager, or call `close`."""

    def __init__(self, base_url: str, *, timeout: float = 10.0) -> None:
        self._base_url = base_url.rstrip("/")
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def quote(
        self,
        from_token: str,
        to_token: str,
        *,
        amount_in: int | None = None,
        amount_out: int | None = None,
        **options: str | int | bool,
    ) -> dict[str, Any]:
        """The best swap of `amount_in`, or the cheapest for `amount_out` (smallest units).

        `options` are the further query parameters by their wire names, such as `slippage="0.005"`,
        `includePaths=True`, `sender="erd1…"`. Raises `QuoteError`.
        """
        query: dict[str, str | int | bool] = {"from": from_token, "to": to_token, **options}
        if amount_in is not None:
            query["amountIn"] = str(amount_in)
        if amount_out is not None:
            query["amountOut"] = str(amount_out)
        return await self._get("/api/v1/quote", query)

    async def pair_config(self, from_token: str, to_token: str) -> dict[str, Any]:
        """Whether the pair can be traded, its decimals and its smallest input."""
        return await self._get("/api/v1/pair-config", {"from": from_token, "to": to_token})

    async def health(self) -> dict[str, Any]:
        """Pool and token counts, uptime, and the snapshot in use."""
        return await self._get("/health", {})

    async def _get(self, path: str, query: dict[str, str | int | bool]) -> dict[str, Any]:
        texts = {name: _as_text(value) for name, value in query.items()}
        async with self._http.get(self._base_url + path, params=texts) as response:
            body: dict[str, Any] = await response.json()
            if response.status != 200:
                raise QuoteError(str(body.get("error", "")), response.status)
            return body


def _as_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
