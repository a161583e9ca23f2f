"""What the handlers of the local chain's HTTP share: envelopes, errors, and how addresses and transactions are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from millrace.chain import address
from millrace.chain.transaction import Transaction, TransactionError, TransactionJson, from_json
from millrace.localnet.chain.index import Record
from millrace.localnet.chain.machine import Chain
from millrace.runtime.http import json_response

_REASONS = {400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.Response]]


class ApiError(Exception):
    """An answer in the chain API's error shape."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def errors(handler: Handler) -> Handler:
    """The handler, whose `ApiError` is an answer."""

    async def guarded(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except ApiError as error:
            body = {"statusCode": error.status, "message": str(error), "error": _REASONS[error.status]}
            return json_response(body, error.status)

    return guarded


def gateway(data: dict[str, Any]) -> web.Response:
    """An answer in a gateway's envelope."""
    return json_response({"data": data, "error": "", "code": "successful"})


def transaction_of(raw: TransactionJson) -> Transaction:
    """The transaction in a JSON object. Raises `ApiError`."""
    try:
        return from_json(raw)
    except TransactionError as error:
        raise ApiError(400, f"transaction generation failed: {error}") from None


async def posted(request: web.Request) -> Transaction:
    """The transaction in a request's body. Raises `ApiError`."""
    return transaction_of(await decoded(request, TransactionJson, "transaction generation failed"))


async def decoded(request: web.Request, kind: type[T], otherwise: str) -> T:
    """A request's body as what is expected. Raises `ApiError` that begins with `otherwise`."""
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"{otherwise}: {error}") from None


def address_in(request: web.Request) -> bytes:
    """The address in a request's path. Raises `ApiError`."""
    try:
        return address.decode(request.match_info["address"])
    except address.AddressError as error:
        raise ApiError(400, f"Validation failed for argument 'address': {error}") from None


def record_in(request: web.Request, chain: Chain) -> Record:
    """What is known of the transaction whose hash is in a request's path. Raises `ApiError`."""
    text = request.match_info["hash"]
    try:
        record = chain.index.find(bytes.fromhex(text)) if len(text) == 64 else None
    except ValueError:
        record = None
    if record is None:
        raise ApiError(404, "Transaction not found")
    return record
