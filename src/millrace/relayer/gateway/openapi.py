"""OpenAPI of the REST interface and AsyncAPI of /ws, made from the message types themselves."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from millrace.chain.transaction import TransactionJson
from millrace.relayer.protocol import messages, wallets
from millrace.relayer.statistics.gas import AllGasStatsMessage, GasStatsMessage
from millrace.relayer.statistics.network import LatestBlocks, NetworkStatsMessage

_REQUESTS: tuple[Any, ...] = (messages.Subscribe, messages.Unsubscribe, messages.Relay, messages.Broadcast)
_REPLIES: tuple[Any, ...] = (messages.TopicReply, messages.FailReply, messages.SubmissionReply)
_PUSHES: tuple[Any, ...] = (
    messages.StatusMessage,
    messages.AccountMessage,
    GasStatsMessage,
    AllGasStatsMessage,
    NetworkStatsMessage,
    messages.ShutdownMessage,
)
_COMPONENTS = "#/components/schemas/"


class ErrorBody(msgspec.Struct):
    """Every error of the REST interface."""

    error: str


class KeyReadiness(msgspec.Struct):
    """Whether a relayer key pays; amounts in atomic units, absent while its balance is not known."""

    address: str
    state: Literal["ok", "paused", "short of funds", "unknown balance"]
    spendable: str | UnsetType = UNSET
    """Beyond its floor and what is under way."""
    missing: str | UnsetType = UNSET
    """For the cheapest transaction."""


class Readiness(msgspec.Struct):
    """Whether submissions are taken and their fate can be followed."""

    ready: bool
    relayers: dict[str, KeyReadiness]
    """By shard."""


def asyncapi() -> dict[str, Any]:
    """AsyncAPI 3.0: what clients may send to /ws, and what comes from /ws and /ws/stats."""
    types = (*_REQUESTS, *_REPLIES, *_PUSHES, TransactionJson)
    _, schemas = msgspec.json.schema_components(types, ref_template=_COMPONENTS + "{name}")
    for name in ("Relay", "Broadcast"):
        # A transaction is kept as text until it is looked at by itself; its type is still this one.
        _describe_raw(schemas[name]["properties"])
    named = {kind.__name__: {"payload": {"$ref": _COMPONENTS + kind.__name__}} for kind in types[:-1]}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "millrace relayer", "version": version("millrace")},
        "channels": {
            "ws": {"address": "/ws", "messages": _references(_REQUESTS + _REPLIES + _PUSHES)},
            "stats": {"address": "/ws/stats", "messages": _references((NetworkStatsMessage, messages.ShutdownMessage))},
        },
        "operations": {
            "receiveRequest": _operation("receive", "ws", _REQUESTS),
            "sendReply": _operation("send", "ws", _REPLIES + _PUSHES),
            "sendStatistics": _operation("send", "stats", (NetworkStatsMessage, messages.ShutdownMessage)),
        },
        "components": {"messages": named, "schemas": schemas},
    }


def openapi() -> dict[str, Any]:
    """OpenAPI 3.1 of the REST interface."""
    types: tuple[Any, ...] = (
        messages.SignReply,
        messages.SubmissionReply,
        wallets.RelayersReply,
        wallets.PrepareRequest,
        wallets.PrepareReply,
        wallets.RelayReply,
        wallets.TransactionReply,
        TransactionJson,
        ErrorBody,
        Readiness,
        LatestBlocks,
    )
    _, schemas = msgspec.json.schema_components(types, ref_template=_COMPONENTS + "{name}")
    schemas["History"] = _HISTORY
    schemas["Transactions"] = {
        "type": "object",
        "required": ["transactions"],
        "properties": {"transactions": {"type": "array", "items": {"$ref": _COMPONENTS + "TransactionJson"}}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "millrace relayer", "version": version("millrace")},
        "servers": [{"url": "/", "description": "The service that serves this document"}],
        "paths": {
            "/v1/relayers": {"get": _look("Whom to name as relayer, and on what terms.", _json("RelayersReply"))},
            "/v1/prepare": {
                "post": _post("What would be sponsored, before it is signed.", "PrepareReply", "PrepareRequest")
            },
            "/v1/relay": {"post": _relay()},
            "/v1/transactions/{hash}": {"get": _transaction()},
            "/v1/sign": {"post": _post("Co-sign transactions without broadcasting them.", "SignReply")},
            "/v1/broadcast": {"post": _post("Broadcast fully signed transactions.", "SubmissionReply")},
            "/v1/network-stats/history": {"get": _history()},
            "/v1/network-stats/blocks": {"get": _blocks()},
            "/health": {"get": _look("State of the service.", {"application/json": {"schema": {"type": "object"}}})},
            "/ready": {"get": _ready()},
        },
        "components": {"schemas": schemas},
    }


def _references(types: tuple[Any, ...]) -> dict[str, Any]:
    return {kind.__name__: {"$ref": f"#/components/messages/{kind.__name__}"} for kind in types}


def _operation(action: str, channel: str, types: tuple[Any, ...]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{kind.__name__}"} for kind in types],
    }


def _describe_raw(properties: dict[str, Any]) -> None:
    transaction = {"$ref": _COMPONENTS + "TransactionJson"}
    properties["tx"] = transaction
    properties["txs"] = {"type": "array", "items": transaction}
    properties["traceparent"] = {"type": "string", "description": "W3C trace context; ignored where it is malformed."}


def _relay() -> dict[str, Any]:
    wait = {"name": "wait", "in": "query", "schema": {"enum": ["final"]}, "description": "Answer when all has ended."}
    timeout = {
        "name": "timeout",
        "in": "query",
        "schema": {"type": "integer", "minimum": 0, "maximum": 60, "default": 30},
        "description": "Seconds to wait; then the answer says what is known.",
    }
    return _post("Co-sign and broadcast transactions.", "RelayReply") | {"parameters": [wait, timeout]}


def _transaction() -> dict[str, Any]:
    name = {
        "name": "hash",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "description": "Client hash, SDK hash or chain hash.",
    }
    unknown = {"404": _answer("It was not accepted here, or too long ago.", _json("ErrorBody"))}
    known = {"200": _answer("What is known of it.", _json("TransactionReply"))}
    return {"summary": "What became of a transaction.", "parameters": [name], "responses": known | unknown | _errors()}


def _post(summary: str, answer: str, question: str = "Transactions") -> dict[str, Any]:
    done = {"description": "Done; each transaction is answered by itself.", "content": _json(answer)}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(question)},
        "responses": {"200": done, "401": _answer(_STRANGER, _json("ErrorBody"))} | _errors(),
    }


def _history() -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "integer", "minimum": 0}, "description": text}
        for name, text in (
            ("from", "Milliseconds since the epoch."),
            ("to", "Milliseconds since the epoch."),
            ("resolution", "Seconds: 1, 10, 60, 300 or 3600."),
        )
    ]
    return {
        "summary": "Averages of the network statistics.",
        "parameters": parameters,
        "responses": {"200": _answer("Points in order of time.", _json("History"))} | _errors(),
    }


def _blocks() -> dict[str, Any]:
    after = {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0}}
    return {
        "summary": "The newest final blocks of each shard.",
        "parameters": [after | {"description": "Milliseconds since the epoch: only blocks that were made later."}],
        "responses": {"200": _answer("Oldest first; at most 256 of a shard.", _json("LatestBlocks"))} | _errors(),
    }


def _ready() -> dict[str, Any]:
    wanted = {"name": "for", "in": "query", "schema": {"const": "streams"}}
    answers = {status: _answer(text, _json("Readiness")) for status, text in _READY.items()}
    return {
        "summary": "Whether submissions are taken.",
        "parameters": [wanted | {"description": "`streams`: whether clients are told of the network, whoever signs."}],
        "responses": answers | {"400": _errors()["400"]},
    }


_STRANGER = "The API key is nobody's."
_READY = {"200": "It is so.", "503": "Not now."}
_HISTORY = {
    "type": "object",
    "required": ["resolution", "points"],
    "properties": {
        "resolution": {"type": "integer", "description": "Seconds of a point."},
        "points": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["ts"],
                "properties": {"ts": {"type": "integer", "description": "Milliseconds since the epoch."}},
                "additionalProperties": {"type": "number"},
            },
        },
    },
}


def _look(text: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"summary": text, "responses": {"200": _answer(text, content)}}


def _answer(text: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": content}


def _errors() -> dict[str, Any]:
    texts = {"400": "Refused.", "413": "Too large.", "429": "Too many; see Retry-After.", "503": "Not now."}
    return {status: _answer(text, _json("ErrorBody")) for status, text in texts.items()}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _COMPONENTS + name}}}
