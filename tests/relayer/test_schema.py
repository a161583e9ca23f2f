"""The published descriptions name every message and refer to nothing that is not there."""

from __future__ import annotations

from typing import Any

import aiohttp

from millrace.relayer import schema


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


def test_every_reference_leads_somewhere() -> None:
    """All `$ref`s of both documents can be followed."""
    for document in (schema.asyncapi(), schema.openapi()):
        for reference in references(document):
            node: Any = document
            for part in reference.removeprefix("#/").split("/"):
                node = node[part]


def test_messages_are_described_by_their_types() -> None:
    """Requests are told apart by action, pushes by type, with the names of the wire."""
    schemas = schema.asyncapi()["components"]["schemas"]
    assert schemas["Relay"]["properties"]["action"] == {"enum": ["relay"]}
    assert "autoSubscribe" in schemas["Relay"]["properties"]
    assert schemas["StatusMessage"]["properties"]["type"] == {"enum": ["tx-status"]}
    assert "chainID" in schemas["TransactionJson"]["properties"]
    assert "p2pDedupRatio1m" in schemas["Health"]["properties"]


async def test_served(world: Any) -> None:
    """Both documents are served by the service itself."""
    await world.start(key_files=())
    async with aiohttp.ClientSession(world.http) as http:
        for path, field in (("/openapi.json", "openapi"), ("/asyncapi.json", "asyncapi")):
            async with http.get(path) as response:
                assert field in await response.json()
