"""The OpenAPI 3.1 document, made from the response types, and a page that shows it."""

from __future__ import annotations

from typing import Any

import msgspec

from millrace.aggregator.batch import BatchRequest
from millrace.aggregator.responses import (
    BatchResponse,
    ErrorBody,
    Health,
    LadderResponse,
    PairConfig,
    QuoteResponse,
)
from millrace.aggregator.settings import MIN_GAS_PRICE, MOST_GAS_PRICE, MOST_SPLITS, AggregatorSettings
from millrace.routing.costs import CALLS_PER_TRANSACTION

AMOUNT = {"type": "string", "pattern": "^[0-9]{1,78}$"}
TOKEN: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 64}


def document(settings: AggregatorSettings) -> dict[str, Any]:
    """The whole document."""
    types = [QuoteResponse, PairConfig, LadderResponse, BatchRequest, BatchResponse, Health, ErrorBody]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "millrace aggregator",
            "version": "1.0.0",
            "description": "Swap routes over several exchanges, with ready transaction payloads.",
        },
        "paths": {
            "/api/v1/quote": {"get": _quote(settings)},
            "/api/v1/pair-config": {"get": _pair_config()},
            "/api/v1/price-ladder": {"get": _ladder(settings)},
            "/api/v1/batch-quote": {"post": _batch()},
            "/api/v1/quote/stream": {"get": _stream(settings)},
            "/health": {"get": _health()},
        },
        "components": {"schemas": components},
    }


def _quote(settings: AggregatorSettings) -> dict[str, Any]:
    amounts = [
        _parameter("amountIn", AMOUNT, "Input in smallest units; either this or amountOut."),
        _parameter("amountOut", AMOUNT, "Wanted output in smallest units; either this or amountIn."),
    ]
    return {
        "summary": "The best route for a swap, with its transaction payload",
        "parameters": [*_pair(), *amounts, *_options(settings)],
        "responses": _responses("QuoteResponse"),
    }


def _pair_config() -> dict[str, Any]:
    return {
        "summary": "Whether a pair can be traded, with decimals and a minimum",
        "parameters": _pair({"type": "string"}),  # any text is answered: it is a known token or it is not
        "responses": _responses("PairConfig"),
    }


def _ladder(settings: AggregatorSettings) -> dict[str, Any]:
    amounts = _parameter(
        "amounts", {"type": "string"}, f"Up to {settings.max_batch} inputs, comma-separated.", required=True
    )
    return {
        "summary": "The answers for several inputs in one call",
        "parameters": [*_pair(), amounts, *_options(settings)],
        "responses": _responses("LadderResponse"),
    }


def _batch() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/BatchRequest"}
    return {
        "summary": "Many small inputs to one output",
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": _responses("BatchResponse") | {"413": _error("The body is too large")},
    }


def _stream(settings: AggregatorSettings) -> dict[str, Any]:
    described = _quote(settings)
    described["summary"] = "The same as /api/v1/quote, pushed as server-sent events at every snapshot"
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    described["responses"]["200"] = {"description": "Events `quote` and `error`", "content": content}
    return described


def _health() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Health"}
    answer = {"description": "State of the service", "content": {"application/json": {"schema": schema}}}
    return {"summary": "Whether quotes are served, and on what", "responses": {"200": answer, "503": answer}}


def _pair(token: dict[str, Any] = TOKEN) -> list[dict[str, Any]]:
    return [
        _parameter("from", token, "Input token; EGLD for the native coin.", required=True),
        _parameter("to", token, "Output token; the same as from: arbitrage.", required=True),
    ]


def _options(settings: AggregatorSettings) -> list[dict[str, Any]]:
    boolean = {"type": "boolean", "default": False}
    names = {"type": "string"}
    algorithms = {"type": "string", "enum": ["greedy", "lagrangian", "hybrid"], "default": "hybrid"}
    slippage = {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "default": 0.01}
    hops = {"type": "integer", "minimum": 1, "maximum": settings.max_hops, "default": settings.max_hops}
    splits: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": MOST_SPLITS}
    if settings.max_splits is not None:
        splits["default"] = settings.max_splits
    price = {"type": "integer", "minimum": MIN_GAS_PRICE, "maximum": MOST_GAS_PRICE, "default": settings.gas_price}
    most = CALLS_PER_TRANSACTION
    calls = {"type": "integer", "minimum": 1, "maximum": most, "default": most}
    return [
        _parameter("slippage", slippage, "Accepted loss against the quote, a fraction."),
        _parameter("algorithm", algorithms, "How the input is split."),
        _parameter("includePaths", boolean, "Add the path breakdown."),
        _parameter("includeLpRoutes", boolean, "Allow LP tokens to be minted and redeemed between other tokens, too."),
        _parameter("maxHops", hops, "Most pools on one path."),
        _parameter("maxSplits", splits, "Most paths. Without it: as many as are worth what they add to the fee."),
        _parameter("gasPrice", price, "Gas price of the transaction, and of that fee."),
        _parameter("maxPools", {"type": "integer", "minimum": 1, "maximum": 100}, "Most pools in all."),
        _parameter("maxBuiltinCalls", calls, "Most built-in calls of the transaction."),
        _parameter("sender", {"type": "string"}, "bech32 address; adds `transaction`."),
        _parameter("referralId", {"type": "integer", "minimum": 0, "default": 0}, "The contract's referral."),
        _parameter("minProfitBps", {"type": "integer", "minimum": 0, "default": 0}, "Arbitrage: least profit."),
        _parameter("includeExchanges", names, "Only these, comma-separated."),
        _parameter("excludeExchanges", names, "None of these."),
        _parameter("includePools", names, "Only these pool ids."),
        _parameter("excludePools", names, "None of these pool ids."),
    ]


def _parameter(name: str, schema: dict[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": text}


def _responses(name: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {
        "200": {"description": "The answer", "content": {"application/json": {"schema": schema}}},
        "400": _error("The request cannot be answered; the text says why"),
        "429": _error("More requests than the limit; see Retry-After"),
        "503": _error("No usable market snapshot"),
    }


def _error(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ErrorBody"}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>millrace aggregator</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{background:#8882;padding:.1em .3em;border-radius:.2em}td{padding:.15rem .8rem .15rem 0;vertical-align:top}
</style><h1>millrace aggregator</h1><p>Machine-readable: <a href="openapi.json">openapi.json</a></p>
<main id="m">Loading…</main><script>
const el=(t,x)=>Object.assign(document.createElement(t),{textContent:x});
fetch("openapi.json").then(r=>r.json()).then(d=>{const m=document.getElementById("m");m.textContent="";
for(const[p,ops]of Object.entries(d.paths))for(const[v,o]of Object.entries(ops)){
m.append(el("h2",v.toUpperCase()+" "+p),el("p",o.summary));const t=document.createElement("table");
for(const q of o.parameters??[]){const r=document.createElement("tr"),c=document.createElement("td");
c.append(el("code",q.name+(q.required?" *":"")));r.append(c,el("td",q.description));t.append(r)}
m.append(t)}});
</script></html>
"""
