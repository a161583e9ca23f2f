"""The OpenAPI document says all there is to say, and nothing that is not so."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec
import pytest

from millrace.aggregator.openapi import document
from millrace.aggregator.openapi_fields import FIELDS, OF_TYPES
from millrace.aggregator.query import PARAMETERS
from millrace.aggregator.settings import AggregatorSettings
from servers.aggregator_service import Service

DOCUMENT = document(AggregatorSettings())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
PROPERTIES = [(name, field) for name, schema in SCHEMAS.items() for field in schema.get("properties", {})]
USDC = "USDC-c76f1f"
WRAPPED = "WEGLD-bd4d79"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, verb, told) for path, verbs in DOCUMENT["paths"].items() for verb, told in verbs.items()]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its reference followed."""
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return schema


def holds_objects(schema: dict[str, Any]) -> bool:
    """Whether a field's own fields have the examples."""
    kinds = [resolved(schema), *map(resolved, schema.get("anyOf", []))]
    inner = [
        resolved(kind[key])
        for kind in kinds
        for key in ("items", "additionalProperties")
        if isinstance(kind.get(key), dict)
    ]
    return any("properties" in kind for kind in (*kinds, *inner))


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is of the schema's type, as far as this document's schemas go."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return any(fits(value, option) for option in schema["anyOf"])
    types: dict[str, Any] = {
        "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
        "null": type(None),
    }  # fmt: skip
    kind = schema.get("type")
    if not isinstance(value, types[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if kind == "array":
        return "items" not in schema or all(fits(item, schema["items"]) for item in value)
    if kind == "object" and "properties" in schema:
        required = set(schema.get("required", ()))
        known = schema["properties"]
        return required <= value.keys() <= known.keys() and all(fits(item, known[key]) for key, item in value.items())
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return all(fits(item, schema["additionalProperties"]) for item in value.values())
    return True


@pytest.mark.parametrize(("name", "field"), PROPERTIES)
def test_every_field_is_described_with_an_example(name: str, field: str) -> None:
    """A sentence, and an example of the field's own type wherever it is not made of further fields."""
    schema = SCHEMAS[name]["properties"][field]
    assert schema["description"].endswith((".", ")"))
    if holds_objects(schema):
        assert "examples" not in schema
    else:
        assert all(fits(example, schema) for example in schema["examples"])


def test_no_text_is_left_of_fields_that_are_gone() -> None:
    """Every text belongs to a field."""
    assert set(FIELDS) <= {field for _, field in PROPERTIES}
    assert set(OF_TYPES) <= {f"{name}.{field}" for name, field in PROPERTIES}


def test_every_operation_has_an_id_its_errors_and_its_parameters() -> None:
    """Ids are unique, every parameter has an example that fits, errors have theirs; there is a server."""
    found = operations()
    ids = [told["operationId"] for _, _, told in found]
    assert len(set(ids)) == len(ids) == len(found)
    assert DOCUMENT["servers"]
    for path, _, told in found:
        if path == "/health":
            continue
        assert {"200", "400", "429", "503"} <= set(told["responses"])
        for status in set(told["responses"]) - {"200"}:
            assert told["responses"][status]["content"]["application/json"]["examples"]
        for parameter in told.get("parameters", ()):
            assert parameter["description"].endswith(".")
            assert fits(parameter["example"], parameter["schema"]), parameter["name"]
    (quote,) = [told for path, _, told in found if path == "/api/v1/quote"]
    assert {parameter["name"] for parameter in quote["parameters"]} == PARAMETERS


def test_headers_are_in_the_document() -> None:
    """Of which market an answer is and how old, when to ask again, and what a stream is taken up with."""
    for path, _, told in operations():
        if path != "/health":
            assert all("Retry-After" in told["responses"][status]["headers"] for status in ("429", "503"))
            answer = told["responses"]["200"].get("headers", {})
            assert {*answer} == (set() if path.endswith("/stream") else {"X-Snapshot-Age", "X-Snapshot-Id"})
    (stream,) = [told for path, _, told in operations() if path == "/api/v1/quote/stream"]
    assert [option["name"] for option in stream["parameters"] if option["in"] == "header"] == ["Last-Event-ID"]


@pytest.mark.parametrize(
    ("path", "without"),
    [
        ("/api/v1/quote/stream", {"simulate"}),
        ("/api/v1/quote.svg", {"simulate", "sender", "includePaths", "slippage"}),
        ("/api/v1/price-ladder", {"simulate", "sender", "includePaths", "slippage", "amountIn", "amountOut"}),
    ],
)
def test_no_parameter_is_told_that_changes_nothing(path: str, without: set[str]) -> None:
    """Ladders and pictures have neither a transaction nor a minimum, and all of their paths or none."""
    (told,) = [told for where, _, told in operations() if where == path]
    names = {option["name"] for option in told["parameters"]}
    assert names - {"amounts", "Last-Event-ID"} == PARAMETERS - without


@pytest.mark.parametrize("path", ["/api/v1/multi-swap", "/api/v1/batch-quote"])
async def test_what_is_no_body_is_refused_as_the_document_says(service: Service, path: str) -> None:
    """A body that is too large, and one that is compressed, in the document's own words."""
    (told,) = [told for where, verb, told in operations() if (where, verb) == (path, "post")]
    too_large, packed = b" " * (1 << 20) + b" ", {"Content-Encoding": "gzip"}
    for status, body, headers in (("413", too_large, {}), ("415", b"{}", packed)):
        examples = told["responses"][status]["content"]["application/json"]["examples"]
        async with service.session.post(service.base + path, data=BytesIO(body), headers=headers) as answer:
            assert (str(answer.status), await answer.json()) == (status, examples["example 1"]["value"])


SENDER = AggregatorSettings().contract
ASKED = {
    "/api/v1/quote": {"from": "EGLD", "to": USDC, "amountIn": "1000000000000000000", "maxSplit": "1"},
    "/api/v1/pair-config": {"from": "EGLD", "to": USDC},
    "/api/v1/price-ladder": {"from": "EGLD", "to": USDC, "amounts": "1,1000000000000000000", "sender": SENDER},
    "/api/v1/tokens": {"limit": "1000"},
    "/api/v1/pools": {"limit": "1000"},
    "/api/v1/prices": {},
    "/api/v1/config": {},
    "/health": {},
}


@pytest.mark.parametrize("path", ASKED)
async def test_answers_are_as_the_document_says(service: Service, path: str) -> None:
    """Every field of an answer is in the document with its type, and every required one is there."""
    status, body = await service.get(path, **ASKED[path])
    assert status == 200
    (told,) = [told for where, verb, told in operations() if (where, verb) == (path, "get")]
    assert fits(body, told["responses"]["200"]["content"]["application/json"]["schema"])


@pytest.mark.parametrize("path", ["/api/v1/multi-swap", "/api/v1/batch-quote"])
async def test_answers_to_many_inputs_are_as_the_document_says(service: Service, path: str) -> None:
    """The same, with a failed input, a single batch and a transaction."""
    asked = {"inputs": [{"token": WRAPPED, "amount": "1" + "0" * 18}, {"token": "NO-1", "amount": "1"}], "to": USDC}
    sender = {"sender": AggregatorSettings().contract} if path.endswith("multi-swap") else {}
    async with service.session.post(service.base + path, data=msgspec.json.encode(asked | sender)) as answer:
        assert answer.status == 200
        body = msgspec.json.decode(await answer.read())
    (told,) = [told for where, _, told in operations() if where == path]
    assert fits(body, told["responses"]["200"]["content"]["application/json"]["schema"])
    assert fits(asked | sender, told["requestBody"]["content"]["application/json"]["schema"])
