"""The published descriptions name every message and refer to nothing that is not there."""

from __future__ import annotations

import asyncio
import copy
import sys
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import schemathesis
from relayer_support import BlockMaker, as_json, connected, transfer, wallet

from millrace.relayer.gateway import openapi


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


def test_every_reference_leads_somewhere() -> None:
    """All `$ref`s of both documents can be followed."""
    for document in (openapi.asyncapi(), openapi.openapi()):
        for reference in references(document):
            node: Any = document
            for part in reference.removeprefix("#/").split("/"):
                node = node[part]


def test_messages_are_described_by_their_types() -> None:
    """Requests are told apart by action, pushes by type, with the names of the wire."""
    schemas = openapi.asyncapi()["components"]["schemas"]
    assert schemas["Relay"]["properties"]["action"] == {"enum": ["relay"]}
    assert "autoSubscribe" in schemas["Relay"]["properties"]
    assert schemas["StatusMessage"]["properties"]["type"] == {"enum": ["tx-status"]}
    assert "chainID" in schemas["TransactionJson"]["properties"]
    assert "p2pDedupRatio1m" in schemas["Health"]["properties"]


def test_what_a_client_branches_on_is_named() -> None:
    """Every status has its words, and each request that may carry an API key says that a wrong one gets 401."""
    schemas = openapi.asyncapi()["components"]["schemas"]
    words = {
        "TopicReply": ["ok"],
        "FailReply": ["fail"],
        "SubmissionReply": ["completed", "failed", "partial"],
        "StatusData": ["fail", "success"],
    }
    assert {name: sorted(schemas[name]["properties"]["status"]["enum"]) for name in words} == words
    assert schemas["ResultItem"]["properties"]["state"]["enum"] == ["pending"]
    paths = openapi.openapi()["paths"]
    assert all("401" in path["post"]["responses"] for path in paths.values() if "post" in path)


async def test_served(world: Any) -> None:
    """Both documents are served by the service itself."""
    await world.start(key_files=())
    async with aiohttp.ClientSession(world.http) as http:
        for path, field in (("/openapi.json", "openapi"), ("/asyncapi.json", "asyncapi")):
            async with http.get(path) as response:
                assert field in await response.json()


def test_the_description_of_rest_is_valid() -> None:
    """The REST description is OpenAPI 3.1 by somebody else's reading of that standard."""
    schemathesis.openapi.from_dict(openapi.openapi()).validate()


async def test_schemathesis_finds_nothing(world: Any, tmp_path: Path) -> None:
    """Generated requests, right and wrong, get only what the OpenAPI document says: status, type, schema, never a 5xx.

    Two checks are off: no schema can say what is signed, and a transaction that is none is answered by itself.
    """
    await world.start()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{world.http}/openapi.json", "--checks", "all"),
        *(
            "--exclude-checks",
            "positive_data_acceptance,negative_data_rejection",
            "--max-examples",
            "10",
            "--seed",
            "1",
        ),
        *("--request-timeout", "10", "--continue-on-failure", "--no-color"),
        cwd=tmp_path,  # it leaves a cache behind
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()


def closed(schemas: dict[str, Any]) -> dict[str, Any]:
    """The same descriptions, by which an object has no fields but those it names."""

    def close(node: Any) -> None:
        for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            close(value)
        if isinstance(node, dict) and isinstance(node.get("properties"), dict) and node.get("type") == "object":
            node.setdefault("additionalProperties", False)

    schemas = copy.deepcopy(schemas)
    close(schemas)
    return schemas


class Described:
    """What one of the documents says of its messages."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._components = {"schemas": closed(document["components"]["schemas"])}

    def problems(self, name: str, message: Any) -> list[str]:
        """What is wrong with a message that should be of this type."""
        checker = jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": self._components})
        return [f"{name}: {error.message}" for error in checker.iter_errors(message)]


PUSHES = {
    "tx-status": "StatusMessage",
    "accountDelta": "AccountMessage",
    "gasStats": "GasStatsMessage",
    "gasStats/all": "AllGasStatsMessage",
    "networkStats": "NetworkStatsMessage",
    "serverShutdown": "ShutdownMessage",
}


def name_of(message: dict[str, Any]) -> str:
    """The type a message should be of, by what clients tell it by."""
    if "type" in message:
        return PUSHES[message["type"]]
    if "hashes" in message:
        return "SubmissionReply"
    return "TopicReply" if message["status"] == "ok" else "FailReply"


async def test_everything_sent_is_as_described(world: Any) -> None:
    """Every message of /ws and /ws/stats has the fields of its type in the AsyncAPI document, and no others."""
    await world.start()
    alice, seen = wallet(1), []
    stopping: asyncio.Task[None] | None = None
    tx = transfer(alice, value=5)
    async with connected(world.ws) as client, connected(f"{world.ws}/stats") as stats:
        topics = ["gasStats", "gasStats/all", "networkStats", "accounts", "x"]
        await client.socket.send_json({"action": "subscribe", "topics": topics})
        await client.socket.send_json({"action": "unsubscribe", "topic": "gasStats", "requestId": 5})
        await client.socket.send_json({"action": "relay", "requestId": "r", "tx": as_json(tx), "autoSubscribe": True})
        await client.socket.send_json({"action": "relay", "txs": [{}, as_json(transfer(alice, 9))]})
        await client.socket.send_json({"action": "relay", "txs": []})
        for text in ("", "[]", "{}", '{"action":"subscribe","topic":"a","requestId":"q","requestId":"q"}'):
            await client.socket.send_str(text)
        while (received := await client.socket.receive(10)).type is aiohttp.WSMsgType.TEXT:
            seen.append(received.json())
            if seen[-1].get("requestId") == "r":
                (entry,) = world.service.lifecycle.inflight.entries()
                world.hub.save(BlockMaker(1).block([entry.tx], accounts={alice.public: (1, 5)}))
            if stopping is None and {"tx-status", "networkStats"} <= {message.get("type") for message in seen}:
                stopping = asyncio.create_task(world.stop())
        while (received := await stats.socket.receive(10)).type is aiohttp.WSMsgType.TEXT:
            seen.append(received.json())
    assert stopping is not None
    await stopping
    described = Described(openapi.asyncapi())
    assert [problem for message in seen for problem in described.problems(name_of(message), message)] == []
    assert {name_of(message) for message in seen} == {
        *PUSHES.values(), "SubmissionReply", "TopicReply", "FailReply",
    }  # fmt: skip


async def test_every_answer_is_as_described(world: Any) -> None:
    """Answers and errors of the REST interface have the fields of the OpenAPI document, and no others."""
    await world.start()
    body = {"transactions": [as_json(transfer(wallet(1))), as_json(transfer(wallet(1), 9)), {}]}
    described = Described(openapi.openapi())
    async with aiohttp.ClientSession(world.http) as http:
        for path, name in (("/v1/sign", "SignReply"), ("/v1/broadcast", "SubmissionReply")):
            async with http.post(path, json=body) as answer:
                assert described.problems(name, await answer.json()) == []
            async with http.post(path, json={"transactions": []}) as answer:
                assert answer.status == 400 and described.problems("ErrorBody", await answer.json()) == []
        for path, name in (("/v1/relay?wait=final&timeout=0", "RelayReply"), ("/v1/relay", "RelayReply")):
            async with http.post(path, json=body) as answer:
                assert described.problems(name, await answer.json()) == []
        (entry, *_) = world.service.lifecycle.inflight.entries()
        wish = {name: body["transactions"][0][name] for name in ("sender", "receiver")}
        for asked in (wish, wish | {"nonce": 99}):
            async with http.post("/v1/prepare", json={"transaction": asked}) as answer:
                assert described.problems("PrepareReply", await answer.json()) == []
        for path, name in (
            ("/v1/relayers", "RelayersReply"),
            (f"/v1/transactions/{entry.client_hash.hex()}", "TransactionReply"),
            (f"/v1/transactions/{'00' * 32}", "ErrorBody"),
        ):
            async with http.get(path) as answer:
                assert described.problems(name, await answer.json()) == []
        for query, name in (("resolution=1", "History"), ("resolution=2", "ErrorBody")):
            async with http.get(f"/v1/network-stats/history?{query}") as answer:
                assert described.problems(name, await answer.json()) == []
        async with http.get("/ready") as answer:
            assert described.problems("Readiness", await answer.json()) == []
