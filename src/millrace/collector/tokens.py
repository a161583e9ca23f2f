"""Tokens' decimals, and what their managers may do, asked from the system contract and remembered.

Decimals never change. A manager may give up a power, or gain one: so a few tokens a round are asked about again, each
once a day.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from millrace.chain.address import ESDT_SYSTEM_CONTRACT
from millrace.chain.token import is_identifier, ticker
from millrace.collector.gateway import Gateway, GatewayError
from millrace.dex import wire
from millrace.dex.document import TokenInfo

log = logging.getLogger(__name__)

PREFIX = b"NumDecimals-"
MAX_DECIMALS = 18
RENEWED_SECONDS = 86_400.0
RENEWED_AT_ONCE = 8
"""Tokens asked about again in a round: a thousand are done in a quarter of an hour."""
POWERS = {f"Can{power.capitalize()}-true".encode(): power for power in wire.POWERS}
"""The system contract's words for what the pool document calls powers."""


class _Known(NamedTuple):
    """What is remembered of a token."""

    decimals: int
    name: str
    powers: tuple[str, ...]
    asked: float = 0.0
    """When it was asked last, in seconds since 1970."""


class TokenBook:
    """Answers how many decimals a token has. What is known stays known, whatever becomes of later questions."""

    def __init__(self, gateway: Gateway, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._gateway = gateway
        self._file = file
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._asked: dict[str, asyncio.Task[_Known]] = {}
        self._is_saved = True
        if file is not None and file.exists():
            self._load(file)

    async def decimals(self, token: str) -> int:
        """Decimals of a token. Raises `GatewayError` when they cannot be learnt."""
        return (await self._info(token)).decimals

    def info(self, token: str) -> TokenInfo:
        """The document's record of a token whose decimals are known."""
        known = self._known[token]
        return TokenInfo(
            identifier=token, decimals=known.decimals, name=known.name, ticker=ticker(token), powers=known.powers
        )

    async def _info(self, token: str) -> _Known:
        known = self._known.get(token)
        if known is not None:
            return known
        task = self._asked.get(token)
        if task is None:
            task = self._asked[token] = asyncio.ensure_future(self._ask(token))
            task.add_done_callback(partial(self._answered, token))
        # Shielded: whoever else waits for the same token must not suffer from this caller's end.
        self._known[token] = await asyncio.shield(task)
        self._is_saved = False
        return self._known[token]

    async def renew(self) -> None:
        """Ask again about a few of the tokens whose last question is a day old, those first that wait longest.

        One after the other: they keep no more than one of the questions waiting that a document needs.
        """
        due = self._clock() - RENEWED_SECONDS
        waiting = heapq.nsmallest(RENEWED_AT_ONCE, [(known.asked, token) for token, known in self._known.items()])
        for asked, token in waiting:
            if asked <= due:
                await self._renew(token)

    async def _renew(self, token: str) -> None:
        try:
            known = await self._ask(token)
        except GatewayError as error:
            log.debug("a token is not told again", extra={"token": token, "reason": str(error)})
            known = self._known[token]._replace(asked=self._clock())
        self._known[token] = known
        self._is_saved = False

    def _answered(self, token: str, task: asyncio.Task[_Known]) -> None:
        """The question is over; with a round that was given up nobody may be left to hear of its failure."""
        self._asked.pop(token, None)
        if not task.cancelled():
            task.exception()

    async def _ask(self, token: str) -> _Known:
        if not is_identifier(token):
            raise GatewayError(f"{token[:40]!r} is not a token identifier")
        values = await self._gateway.view(ESDT_SYSTEM_CONTRACT, "getTokenProperties", token.encode())
        for value in values:
            digits = value[len(PREFIX) :]
            if value.startswith(PREFIX) and digits.isdigit() and len(digits) <= 2:
                decimals = int(digits)
                if decimals <= MAX_DECIMALS:
                    powers = tuple(sorted({POWERS[value] for value in values if value in POWERS}))
                    name = values[0].decode("utf-8", "replace")[:100]
                    return _Known(decimals, name, powers, self._clock())
        raise GatewayError(f"{token}: the system contract names no usable decimals")

    def save(self) -> None:
        """Write what is known to the file, if there is one and anything is new."""
        if self._file is None or self._is_saved:
            return
        scratch = self._file.with_suffix(".new")
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(self._known), indent=0))
        scratch.replace(self._file)
        self._is_saved = True

    def _load(self, file: Path) -> None:
        try:
            found = msgspec.json.decode(file.read_bytes(), type=dict[str, _Known])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("token cache is not readable", extra={"file": str(file), "reason": str(error)})
            return
        self._known = {token: known for token, known in found.items() if 0 <= known.decimals <= MAX_DECIMALS}
