"""Client of an aggregator's REST interface and quote stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Self

import msgspec

from millrace_client import address
from millrace_client.errors import ClientError, Refused, Unreachable
from millrace_client.http import Http, Patience, Traceparent, answer, without_none
from millrace_client.mailbox import Mailbox, Policy, Subscription
from millrace_client.messages import Missed
from millrace_client.quotes import (
    AggregatorConfig,
    AggregatorHealth,
    BatchQuote,
    Ladder,
    MultiSwap,
    PairConfig,
    Pools,
    Prices,
    Quote,
    Tokens,
    quote_of,
)
from millrace_client.swap_checks import ANY_CONTRACT, Bounds, checked_multi_swap, checked_quote

_SILENCE = 45.0  # seconds: the service sends a sign of life every 15
_STREAM_PAUSES = Patience(tries=1_000_000, seconds=float("inf"))  # a stream goes on until it is closed
_LONGEST_WAIT = 60.0  # seconds; one that was told to come back much later looks from time to time
Option = str | int | float | Decimal | bool | Sequence[str] | None


class Aggregator:
    """Asks for quotes. `options` of a question are the service's further parameters by their names on the wire.

    Transactions in answers are compared with the question, see `Mismatch`. They call the contract that is known on
    their chain, or the one that `contract` names; "any" takes the service's word for it. `max_gas_price`: the highest
    that the service may choose, ten times the network's least without it. `traceparent` gives the W3C trace context of
    each question.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        patience: Patience | None = None,
        headers: Mapping[str, str] | None = None,
        contract: str | None = None,
        max_gas_price: int | None = None,
        traceparent: Traceparent | None = None,
    ) -> None:
        if contract is not None and contract != ANY_CONTRACT:
            address.decode(contract)  # a typing error is told now, and not when money waits
        self._contract = contract
        self._gas_price = Bounds().gas_price if max_gas_price is None else max_gas_price
        self._http = Http(url, timeout, patience or Patience(), headers or {}, traceparent)

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
        slippage: str | Decimal | float | None = None,
        sender: str | None = None,
        amount_in_max: int | None = None,
        amount_out_min: int | None = None,
        **options: Option,
    ) -> Quote:
        """The best swap of `amount_in`, or the cheapest for `amount_out` (smallest units).

        With `sender` the answer holds a transaction. The same token twice looks for arbitrage. Raises `Refused`, and
        `Mismatch` for a transaction that does something else, or that sells more than `amount_in_max` or promises
        less than `amount_out_min`.
        """
        asked = _question(from_token, to_token, amount_in, amount_out, slippage, sender, options)
        bounds = Bounds(amount_in_max, amount_out_min, self._gas_price)
        told = await self._http.get("/api/v1/quote", msgspec.Raw, asked)
        return self._checked(_quote_of(told, self._http.base_url), asked, bounds)

    async def stream(
        self,
        from_token: str,
        to_token: str,
        *,
        amount_in: int | None = None,
        amount_out: int | None = None,
        slippage: str | Decimal | float | None = None,
        sender: str | None = None,
        amount_in_max: int | None = None,
        amount_out_min: int | None = None,
        size: int = 16,
        policy: Policy = "latest",
        **options: Option,
    ) -> Subscription[Quote | Refused]:
        """The same quote on every new state of the market, until it is closed; connects again by itself.

        What cannot be answered on one state comes as a `Refused`, what was missed as a `Missed`.
        """
        asked = _question(from_token, to_token, amount_in, amount_out, slippage, sender, options)
        mailbox: Mailbox[Quote | Refused] = Mailbox("quote stream", size, policy)
        reading = asyncio.create_task(
            self._read(asked, Bounds(amount_in_max, amount_out_min, self._gas_price), mailbox)
        )

        async def leave() -> None:
            reading.cancel()
            await asyncio.wait([reading])

        return Subscription(mailbox, leave)

    async def pair_config(self, from_token: str, to_token: str) -> PairConfig:
        """Whether a pair can be traded, its decimals and its smallest input."""
        return await self._http.get("/api/v1/pair-config", PairConfig, {"from": from_token, "to": to_token})

    async def ladder(self, from_token: str, to_token: str, amounts: Sequence[int], **options: Option) -> Ladder:
        """Prices of several inputs, at most 100."""
        asked = {"from": from_token, "to": to_token, "amounts": list(amounts), **options}
        return await self._http.get("/api/v1/price-ladder", Ladder, asked)

    async def multi_swap(
        self,
        inputs: Mapping[str, int],
        to_token: str,
        *,
        slippage: str | Decimal | float | None = None,
        sender: str | None = None,
        dust_mode: bool | None = None,
        **options: Option,
    ) -> MultiSwap:
        """Sell many inputs (amounts by token) for one output; with `sender` each batch holds a transaction."""
        body = without_none(slippage=_number(slippage), sender=sender, dust_mode=dust_mode, **options)
        answer = await self._http.post("/api/v1/multi-swap", MultiSwap, _inputs(inputs, to_token) | body)
        return checked_multi_swap(
            answer,
            sender=sender,
            inputs=inputs,
            to_token=to_token,
            slippage=_number(slippage),
            contract=self._contract,
            referral_id=_referral(options),
            gas_price=self._gas_price,
        )

    async def batch_quote(
        self,
        inputs: Mapping[str, int],
        to_token: str,
        *,
        slippage: str | Decimal | float | None = None,
        **options: Option,
    ) -> BatchQuote:
        """The same for who builds transactions by himself."""
        body = without_none(slippage=_number(slippage), **options)
        return await self._http.post("/api/v1/batch-quote", BatchQuote, _inputs(inputs, to_token) | body)

    async def tokens(self, search: str | None = None, *, offset: int = 0, limit: int = 100) -> Tokens:
        """Tokens whose identifier, name or ticker contains `search`, those with most liquidity first."""
        return await self._http.get("/api/v1/tokens", Tokens, {"search": search, "offset": offset, "limit": limit})

    async def pools(
        self, *, token: str | None = None, exchange: str | None = None, offset: int = 0, limit: int = 100
    ) -> Pools:
        """Pools, those with most liquidity first."""
        asked = {"token": token, "exchange": exchange, "offset": offset, "limit": limit}
        return await self._http.get("/api/v1/pools", Pools, asked)

    async def prices(self, *tokens: str) -> Prices:
        """Prices in EGLD and USDC, of all tokens where none is named."""
        return await self._http.get("/api/v1/prices", Prices, {"tokens": tokens or None})

    async def config(self) -> AggregatorConfig:
        """How the service is set."""
        return await self._http.get("/api/v1/config", AggregatorConfig)

    async def health(self) -> AggregatorHealth:
        """How the service is; it answers 503 with the same while it has no market."""
        return await self._http.get("/health", AggregatorHealth, answers=503)

    async def _read(self, asked: Mapping[str, Any], bounds: Bounds, mailbox: Mailbox[Quote | Refused]) -> None:
        """Read the stream into the mailbox, and connect again whenever it ends."""
        tried, since = 0, time.time()
        url = self._http.base_url + "/api/v1/quote/stream"
        while True:
            asked_for = None
            try:
                async for name, data in self._http.events("/api/v1/quote/stream", asked, _SILENCE):
                    if tried:
                        mailbox.missed(
                            Missed(topic="quote stream", why="connection lost", since=since, until=time.time())
                        )
                    tried, since = 0, time.time()
                    mailbox.put(self._event(name, data, url, asked, bounds))
            except Refused as refused:
                if refused.status not in (429, 503):
                    mailbox.end(refused)
                    return
                asked_for = None if refused.retry_after is None else min(refused.retry_after, _LONGEST_WAIT)
            except Unreachable:
                pass
            except ClientError as error:
                mailbox.end(error)
                return
            await asyncio.sleep(_STREAM_PAUSES.pause(min(tried, 8), asked_for, 0.0) or 5.0)
            tried += 1

    def _event(self, name: str, data: bytes, url: str, asked: Mapping[str, Any], bounds: Bounds) -> Quote | Refused:
        if name == "error":
            return Refused(str(answer(data, dict[str, object], url).get("error", "")))
        return self._checked(_quote_of(data, url), asked, bounds)

    def _checked(self, quote: Quote, asked: Mapping[str, Any], bounds: Bounds) -> Quote:
        return checked_quote(
            quote,
            sender=asked["sender"],
            from_token=asked["from"],
            to_token=asked["to"],
            amount_in=asked["amountIn"],
            amount_out=asked["amountOut"],
            slippage=asked["slippage"],
            contract=self._contract,
            bounds=bounds,
            referral_id=_referral(asked),
        )


def _quote_of(body: bytes | msgspec.Raw, url: str) -> Quote:
    try:
        return quote_of(body)
    except msgspec.MsgspecError as error:
        raise ClientError(f"{url} answers what this client does not understand: {error}") from None


def _question(
    from_token: str,
    to_token: str,
    amount_in: int | None,
    amount_out: int | None,
    slippage: str | Decimal | float | None,
    sender: str | None,
    options: Mapping[str, Option],
) -> dict[str, Any]:
    asked: dict[str, Any] = {"from": from_token, "to": to_token, "amountIn": amount_in, "amountOut": amount_out}
    return asked | {"slippage": slippage, "sender": sender, **options}


def _inputs(inputs: Mapping[str, int], to_token: str) -> dict[str, object]:
    return {"inputs": [{"token": token, "amount": str(amount)} for token, amount in inputs.items()], "to": to_token}


def _number(slippage: str | Decimal | float | None) -> float | None:
    return None if slippage is None else float(slippage)


def _referral(options: Mapping[str, Any]) -> int:
    """Who is credited by the options of a question, as it may be named in either way; nobody: 0."""
    return int(options.get("referral_id") or options.get("referralId") or 0)
