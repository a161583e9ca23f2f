"""Nodes on /save whose marshaller is JSON, with frames that Go wrote."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from millrace.chain import outport
from millrace.runtime import websocket

from .helpers import WAIT, notifier, peers, save_block

VECTORS: list[dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "outport_go_json.json").read_text()
)["messages"]
TOLD = [vector for vector in VECTORS if not vector["name"].startswith("filled-SaveBlock")]


class JsonNode(websocket.Session):
    """A node that sends frames as they are and keeps the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended = asyncio.Event()

    def on_message(self, kind: websocket.Kind, data: bytes) -> None:
        self.answers.put_nowait(data)

    def on_close(self) -> None:
        self.ended.set()

    async def tell(self, frame: bytes) -> bytes:
        self.send_binary(frame)
        return await asyncio.wait_for(self.answers.get(), WAIT)

    async def end(self) -> int | None:
        await asyncio.wait_for(self.ended.wait(), WAIT)
        return self.close_code


async def json_node(running: Any) -> JsonNode:
    node = JsonNode()
    await websocket.connect(f"ws://127.0.0.1:{running.port}/save", node)
    return node


def frame(topic: str, payload: bytes, counter: int = 7) -> bytes:
    content = base64.b64encode(payload).decode()
    fields = {"withAcknowledge": True, "counter": counter, "type": 2, "payload": content, "topic": topic, "version": 1}
    return json.dumps(fields).encode()


async def stream_of(directory: Path, *, as_json: bool, marshaller: str = "auto") -> list[tuple[str, bytes, int]]:
    """What a consumer gets of the chain that the vectors tell."""
    async with (
        notifier(directory, node_marshaller=marshaller, finalized_wait=600) as running,
        peers(running) as connect,
    ):
        consumer = await connect.consumer()
        await consumer.subscribe()
        node, speaks_json = await connect.node(), await json_node(running)
        for vector in TOLD:
            if as_json:
                assert await speaks_json.tell(vector["json"].encode()) == b'{"counter":7,"type":1}'
            else:
                await node.tell(vector["topic"], bytes.fromhex(vector["protobuf"]))
        count = running.journal.head - running.journal.oldest + 1
        return [(event.topic, event.payload, event.marks) for event in await consumer.events(count)]


async def test_one_stream_whatever_the_marshaller(tmp_path: Path) -> None:
    """A chain told in JSON gives the same events, byte for byte, as the same chain told in protobuf."""
    from_protobuf = await stream_of(tmp_path / "protobuf", as_json=False)
    assert len(from_protobuf) > 10
    assert await stream_of(tmp_path / "json", as_json=True) == from_protobuf


async def test_nodes_of_both_kinds_tell_the_same(tmp_path: Path) -> None:
    """What one node tells in JSON and another in protobuf is one event."""
    async with notifier(tmp_path, finalized_wait=600) as running, peers(running) as connect:
        node, speaks_json = await connect.node(), await json_node(running)
        for vector in TOLD:
            if vector["topic"] == outport.SAVE_BLOCK:
                await speaks_json.tell(vector["json"].encode())
                head = running.journal.head
                await node.tell(vector["topic"], bytes.fromhex(vector["protobuf"]))
                assert running.journal.head == head


@pytest.mark.parametrize("marshaller", ["auto", "json"])
async def test_undecodable_json(tmp_path: Path, marshaller: str) -> None:
    """Unknown topics and payloads that are no such message are acknowledged; the latter are kept with the reason."""
    async with notifier(tmp_path, node_marshaller=marshaller) as running:
        node = await json_node(running)
        bad = (b'{"shardID":"1"}', save_block(0, 1).SerializeToString(), b'{"blockData":{"headerHash":"YQ=="}}')
        for payload in bad:
            assert await node.tell(frame(outport.SAVE_BLOCK, payload)) == b'{"counter":7,"type":1}'
        await node.tell(frame(outport.SAVE_BLOCK, b"").replace(b'"payload": ""', b'"payload": "a"'))
        await node.tell(frame("SaveTheWhales", b"anything", 8))
        assert running.journal.head < running.journal.oldest
        letters = [json.loads(line) for line in (tmp_path / "dead-letters.jsonl").read_text().splitlines()]
    kept = [base64.b64decode(letter["payload"]) for letter in letters]
    assert (kept[:2], kept[3]) == ([*bad[:2]], b'"a"')
    for letter, words in zip(letters, ("shardID", "OutportBlock", "header hash", "base64"), strict=True):
        assert words in letter["reason"]


async def test_bad_envelopes_close(tmp_path: Path) -> None:
    """A frame that is no envelope in the connection's marshaller closes it with 1007; others go on."""
    async with notifier(tmp_path) as running, peers(running) as connect:
        good = await json_node(running)
        await good.tell(frame("SaveTheWhales", b""))
        for first, second in ((frame("x", b""), b"\x08\x01"), (b'{"counter":1', None)):
            bad = await json_node(running)
            bad.send_binary(first)
            if second is not None:
                bad.send_binary(second)
            assert await bad.end() == 1007
        speaks_protobuf = await connect.node()
        await speaks_protobuf.save(save_block(0, 1))
        speaks_protobuf.send_binary(frame("x", b""))
        await asyncio.wait_for(speaks_protobuf.ended.wait(), WAIT)
        assert speaks_protobuf.close_code == 1007
        await good.tell(frame("SaveTheWhales", b""))


@pytest.mark.parametrize(("marshaller", "as_json"), [("json", False), ("protobuf", True)])
async def test_a_marshaller_that_is_set(tmp_path: Path, marshaller: str, as_json: bool) -> None:
    """With a marshaller set, frames in the other one are refused."""
    async with notifier(tmp_path, node_marshaller=marshaller) as running:
        node = await json_node(running)
        node.send_binary(frame("x", b"") if as_json else outport.payload_envelope("x", b"", 1))
        assert await node.end() == 1007


async def test_settings_of_both_marshallers(tmp_path: Path) -> None:
    """A marshaller that is set reads what is written in it."""
    assert await stream_of(tmp_path / "json", as_json=True, marshaller="json")
    assert await stream_of(tmp_path / "protobuf", as_json=False, marshaller="protobuf")
