"""The OpenAPI 3.1 document, made from the response types."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import msgspec

from millrace.aggregator.batch_requests import BatchRequest, MultiSwapRequest
from millrace.aggregator.batch_responses import BatchResponse, MultiSwapResponse
from millrace.aggregator.catalogue import PoolsResponse, PricesResponse, TokensResponse
from millrace.aggregator.directory import LONGEST_PAGE, MAX_PRICES, PAGE, ConfigResponse
from millrace.aggregator.feed import AGE, ID
from millrace.aggregator.openapi_fields import ADDRESS, describe
from millrace.aggregator.query import MAX_POOLS, MOST_AGE_MS, WITHOUT_TRANSACTION
from millrace.aggregator.referrals import ReferralResponse
from millrace.aggregator.responses import ErrorBody, Health, LadderResponse, PairConfig, QuoteResponse
from millrace.aggregator.settings import (
    MIN_GAS_PRICE,
    MOST_GAS_PRICE,
    MOST_PROFIT_BPS,
    MOST_SPLITS,
    AggregatorSettings,
)
from millrace.routing.costs import CALLS_PER_TRANSACTION

Described = dict[str, Any]
AMOUNT: Described = {"type": "string", "pattern": "^[0-9]{1,78}$"}
TOKEN: Described = {"type": "string", "minLength": 1, "maxLength": 64}
TEXT: Described = {"type": "string"}
OF_MARKET: Described = {
    AGE: {
        "description": "Seconds since the market was last seen upstream.",
        "required": True,
        "schema": {"type": "number", "minimum": 0},
    },
    ID: {"description": "Id of the market state: equal ids, equal answers.", "required": True, "schema": TEXT},
}
"""Headers of all answers that are of a market."""
RETRY: Described = {
    "description": "In how many seconds to ask again.",
    "required": True,
    "schema": {"type": "integer", "minimum": 1},
}
ERRORS: dict[str, tuple[str, list[str]]] = {
    "400": (
        "The request cannot be answered; the text says why, and clients match a part of it",
        [
            "unknown token_in 'INVALID-123456'",
            "routing failed: no path between tokens",
            "invalid amount_in: expected unsigned integer amount",
            "specify either amount_in or amount_out, not both",
            "simulation failed",
        ],
    ),
    "429": ("More requests than the limit; Retry-After says in how many seconds", ["rate limit exceeded"]),
    "503": ("No usable market, or too much is waiting; Retry-After says in how many seconds", ["service unavailable"]),
}


def document(settings: AggregatorSettings) -> Described:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "millrace aggregator",
            "version": "1.0.0",
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
            "description": "Swap routes over several exchanges, with ready transaction payloads. Amounts are whole "
            "numbers of smallest units, as decimal strings; fields that end in Short are the same in whole tokens.",
        },
        "security": [],  # nobody needs to say who he is
        "servers": [{"url": "/", "description": "The service that serves this document"}],
        "paths": _paths(settings),
        "components": {"schemas": _components()},
    }


def _components() -> Described:
    batches = [BatchRequest, BatchResponse, MultiSwapRequest, MultiSwapResponse]
    lists = [TokensResponse, PoolsResponse, PricesResponse, ConfigResponse, ReferralResponse]
    types = [QuoteResponse, PairConfig, LadderResponse, *batches, *lists, Health, ErrorBody]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for name in ("BatchRequest", "MultiSwapRequest"):  # they have defaults so that their absence has words of its own
        components[name]["required"] = ["inputs", "to"]
        for field in ("inputs", "to"):
            components[name]["properties"][field].pop("default", None)
    for schema in components.values():
        for field in schema.get("properties", {}).values():
            if field.get("format") == "decimal":  # sent as a number, see `responses.encode`
                field.update(type="number")
                del field["format"]
    describe(components)
    return components


def _paths(settings: AggregatorSettings) -> Described:
    text = f"Up to {settings.max_batch} inputs in smallest units, comma-separated."
    ladder = [
        *_pair(),
        _parameter("amounts", TEXT, text, "1000000,2000000", required=True),
        *_options(settings, WITHOUT_TRANSACTION | {"simulate"}),
    ]
    search = _parameter("search", TEXT, "A part of identifier, name or ticker, in capitals or not.", "usd")
    token = _parameter("token", TOKEN, "Only pools that trade this token.", "EGLD")
    exchange = _parameter("exchange", TEXT, "Only pools of these exchanges, comma-separated.", "xExchange,JEX")
    tokens = _parameter(
        "tokens", TEXT, f"Up to {MAX_PRICES} tokens, comma-separated; without it all.", "EGLD,USDC-c76f1f"
    )
    return {
        "/api/v1/quote": _get(
            "getQuote", "The best route for a swap, with its transaction payload", "QuoteResponse", _quote(settings)
        ),
        "/api/v1/quote.svg": _picture(settings),
        "/api/v1/pair-config": _get(
            "getPairConfig",
            "Whether a pair can be traded, with decimals and a minimum",
            "PairConfig",
            _pair(TEXT),  # any text is answered: it is a known token or it is not
        ),
        "/api/v1/price-ladder": _get(
            "getPriceLadder", "The answers for several inputs in one call", "LadderResponse", ladder
        ),
        "/api/v1/batch-quote": _post(
            "postBatchQuote", "BatchRequest", "BatchResponse", "Many small inputs to one output"
        ),
        "/api/v1/multi-swap": _post(
            "postMultiSwap", "MultiSwapRequest", "MultiSwapResponse", "Many inputs to one output, ready to be sent"
        ),
        "/api/v1/quote/stream": _stream(settings),
        "/api/v1/tokens": _get("getTokens", "Tokens with prices and liquidity", "TokensResponse", [search, *_page()]),
        "/api/v1/pools": _get("getPools", "Pools with their reserves", "PoolsResponse", [token, exchange, *_page()]),
        "/api/v1/prices": _get("getPrices", "Prices of tokens through the market", "PricesResponse", [tokens]),
        "/api/v1/config": _get("getConfig", "Contract, limits and defaults", "ConfigResponse", []),
        "/api/v1/referrals/{id}": _get("getReferral", "What the contract charges", "ReferralResponse", [_referral()]),
        "/health": {"get": _health()},
    }


def _get(operation: str, summary: str, answer: str, parameters: list[Described]) -> Described:
    described = {
        "operationId": operation,
        "summary": summary,
        "parameters": parameters,
        "responses": _responses(answer),
    }
    return {"get": described}


def _post(operation: str, asked: str, answered: str, summary: str) -> Described:
    schema = {"$ref": f"#/components/schemas/{asked}"}
    refused = {
        "408": _error("The body did not come in time", ["request timeout"]),
        "413": _error("The body is larger than 1 MiB", ["request entity too large"]),
        "415": _error("The body is compressed", ["send the body uncompressed"]),
    }
    return {
        "post": {
            "operationId": operation,
            "summary": summary,
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": _responses(answered) | refused,
        }
    }


def _stream(settings: AggregatorSettings) -> Described:
    summary = "The same as /api/v1/quote, pushed as server-sent events whenever it has changed"
    said = "Id of the event that the client has: it gets none while the answer is the same."
    last = _parameter("Last-Event-ID", TEXT, said, "d8f5a321090f1785") | {"in": "header"}
    described = _get("streamQuotes", summary, "QuoteResponse", [*_quote(settings, {"simulate"}), last])
    fields = {
        "event": {"type": "string", "enum": ["quote", "error"], "description": "What the data is."},
        "id": {"type": "string", "description": "Digest of the answer; the same as long as it is."},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "The quote, or the error."},
    }
    event = {"type": "object", "properties": fields, "required": list(fields)}
    content = {"text/event-stream": {"schema": event}}
    described["get"]["responses"]["200"] = {"description": "Events `quote` and `error`", "content": content}
    return described


def _picture(settings: AggregatorSettings) -> Described:
    summary = "The route of a quote as a picture, for light and dark pages"
    described = _get("drawQuote", summary, "QuoteResponse", _quote(settings, WITHOUT_TRANSACTION | {"simulate"}))
    content = {"image/svg+xml": {"schema": {"type": "string", "description": "The picture."}}}
    described["get"]["responses"]["200"] = {"description": "The picture", "headers": OF_MARKET, "content": content}
    return described


def _health() -> Described:
    schema = {"$ref": "#/components/schemas/Health"}
    answer = {"description": "State of the service", "content": {"application/json": {"schema": schema}}}
    summary = "Whether quotes are served, and on what"
    wrong = _error("Another method than GET", ["method not allowed"])
    responses = {"200": answer, "503": answer, "405": wrong}
    return {"operationId": "getHealth", "summary": summary, "responses": responses}


def _quote(settings: AggregatorSettings, unused: Set[str] = frozenset()) -> list[Described]:
    amounts = [
        _parameter("amountIn", AMOUNT, "Input in smallest units; either this or amountOut.", "1000000000000000000"),
        _parameter("amountOut", AMOUNT, "Wanted output in smallest units; either this or amountIn.", "39871234"),
    ]
    return [*_pair(), *amounts, *_options(settings, unused)]


def _pair(token: Described = TOKEN) -> list[Described]:
    return [
        _parameter("from", token, "Input token; EGLD for the native coin.", "EGLD", required=True),
        _parameter("to", token, "Output token; the same as from: arbitrage.", "USDC-c76f1f", required=True),
    ]


def _referral() -> Described:
    text = "Id of the referral; up to 2^64 - 1."
    return _parameter("id", _whole(1, None, None), text, 7, required=True) | {"in": "path"}


def _page() -> list[Described]:
    limit = _whole(1, LONGEST_PAGE, PAGE)
    return [
        _parameter("offset", _whole(0, None, 0), "Rows before the page.", 100),
        _parameter("limit", limit, "Most rows on the page.", 20),
    ]


def _options(settings: AggregatorSettings, unused: Set[str]) -> list[Described]:
    """What a quote may be asked with, but for what is unused."""
    algorithms = {"type": "string", "enum": ["greedy", "lagrangian", "hybrid"], "default": "hybrid"}
    slippage = {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "default": float(settings.default_slippage)}
    impact = {"type": "number", "minimum": 0, "maximum": 1}
    hops = _whole(1, settings.max_hops, settings.max_hops)
    splits = _whole(1, MOST_SPLITS, settings.max_splits)
    price = _whole(MIN_GAS_PRICE, MOST_GAS_PRICE, settings.gas_price)
    calls = _whole(1, CALLS_PER_TRANSACTION, CALLS_PER_TRANSACTION)
    profit = _whole(0, MOST_PROFIT_BPS, settings.min_profit_bps)
    lp = "Allow LP tokens to be minted and redeemed between other tokens, too."
    simulate = "With a sender: have a gateway simulate the transaction; adds `simulation`, where this is offered."
    age = "Oldest market to answer from, in milliseconds since it was last seen; an older one is a 503."
    options = [
        _parameter("slippage", slippage, "Accepted loss against the quote, a fraction.", 0.01),
        _parameter("algorithm", algorithms, "How the input is split.", "hybrid"),
        _parameter("includePaths", _boolean(settings.include_paths), "Add the path breakdown.", True),
        _parameter("includeLpRoutes", _boolean(False), lp, False),
        _parameter("maxHops", hops, "Most pools on one path.", 4),
        _parameter("maxSplits", splits, "Most paths. Without it: as many as are worth what they add to the fee.", 5),
        _parameter("gasPrice", price, "Gas price of the transaction, and of that fee.", MIN_GAS_PRICE),
        _parameter("maxPools", _whole(1, MAX_POOLS, MAX_POOLS), "Most pools in all.", 20),
        _parameter("maxBuiltinCalls", calls, "Most built-in calls of the transaction.", 60),
        _parameter("sender", TEXT, "bech32 address; adds `transaction`.", ADDRESS),
        _parameter("referralId", _whole(0, None, 0), "The contract's referral.", 7),
        _parameter("minProfitBps", profit, "Arbitrage: least profit, in basis points of the input.", 5),
        _parameter("maxPriceImpact", impact, "Largest price impact, a fraction; more is refused.", 0.05),
        _parameter("maxAgeMs", _whole(1, MOST_AGE_MS, None), age, 10000),
        _parameter("simulate", _boolean(False), simulate, False),
        _parameter("includeExchanges", TEXT, "Only these, comma-separated, in capitals or not.", "xExchange,OneDex"),
        _parameter("excludeExchanges", TEXT, "None of these.", "JEX"),
        _parameter("includePools", TEXT, "Only these pool ids, at most 64.", f"x:{ADDRESS}"),
        _parameter("excludePools", TEXT, "None of these pool ids.", f"x:{ADDRESS}"),
    ]
    return [option for option in options if option["name"] not in unused]


def _whole(low: int, high: int | None, default: int | None) -> Described:
    schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return {name: value for name, value in schema.items() if value is not None}


def _boolean(default: bool) -> Described:
    return {"type": "boolean", "default": default}


def _parameter(name: str, schema: Described, text: str, example: object, *, required: bool = False) -> Described:
    described = {"name": name, "in": "query", "required": required, "schema": schema}
    return {**described, "description": text, "example": example}


def _responses(name: str) -> Described:
    schema = {"$ref": f"#/components/schemas/{name}"}
    answer = {"description": "The answer", "headers": OF_MARKET, "content": {"application/json": {"schema": schema}}}
    errors = {status: _error(*error) for status, error in ERRORS.items()}
    for status in ("429", "503"):
        errors[status]["headers"] = {"Retry-After": RETRY}
    return {"200": answer} | errors


def _error(text: str, examples: list[str]) -> Described:
    schema = {"$ref": "#/components/schemas/ErrorBody"}
    shown = {f"example {number}": {"value": {"error": error}} for number, error in enumerate(examples, 1)}
    return {"description": text, "content": {"application/json": {"schema": schema, "examples": shown}}}
