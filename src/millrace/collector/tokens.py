"""Tokens' decimals, and what their managers may do, asked once from the system contract and remembered."""

from __future__ import annotations

import asyncio
import logging
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
POWERS = {f"Can{power.capitalize()}-true".encode(): power for power in wire.POWERS}
"""The system contract's words for what the pool document calls powers."""


class _Known(NamedTuple):
    """What is remembered of a token."""

    decimals: int
    name: str
    powers: tuple[str, ...]


class TokenBook:
    """Answers how many decimals a token has. They never change, so what is known stays known.

    A manager may give up a power, or gain one: until its cache is begun anew, the token is shown as it was.
    """

    def __init__(self, gateway: Gateway, file: Path | None = None) -> None:
        self._gateway = gateway
        self._file = file
        self._known: dict[str, _Known] = {}
        self._asked: dict[str, asyncio.Task[_Known]] = {}
        self._saved = 0
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
        return self._known[token]

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
                    return _Known(decimals, values[0].decode("utf-8", "replace")[:100], powers)
        raise GatewayError(f"{token}: the system contract names no usable decimals")

    def save(self) -> None:
        """Write what is known to the file, if there is one and anything is new."""
        if self._file is None or len(self._known) == self._saved:
            return
        scratch = self._file.with_suffix(".new")
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(self._known), indent=0))
        scratch.replace(self._file)
        self._saved = len(self._known)

    def _load(self, file: Path) -> None:
        try:
            found = msgspec.json.decode(file.read_bytes(), type=dict[str, _Known])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning("token cache is not readable", extra={"file": str(file), "reason": str(error)})
            return
        self._known = {token: known for token, known in found.items() if 0 <= known.decimals <= MAX_DECIMALS}
        self._saved = len(found)
