"""Node events in Go's JSON: bytes that Go wrote, random messages through an encoder of our own, and bad input."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from chain.go_json import TEXTS_OF_USERS, dump, frame_of, go_json
from millrace.chain import bigint, outport, outport_json
from millrace.chain.headers import hash_matches
from millrace.chain.outport import OutportError
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto import state_access_pb2 as state

FOLDER = Path(__file__).parents[1] / "vectors"
GO_JSON: list[dict[str, str]] = json.loads((FOLDER / "outport_go_json.json").read_text())["messages"]
BLOCKS = (outport.SAVE_BLOCK, outport.REVERT_INDEXED_BLOCK)


def through(frame: bytes) -> bytes:
    """The protobuf form of a frame's payload."""
    envelope, payload = outport_json.decode_envelope(frame)
    return outport_json.to_protobuf(envelope.topic, outport_json.unwrap(payload))


@pytest.mark.parametrize("vector", GO_JSON, ids=lambda v: v["name"])
def test_bytes_that_go_wrote(vector: dict[str, str]) -> None:
    """Go's JSON becomes the bytes of Go's protobuf, header bytes included, byte for byte."""
    frame = vector["json"].encode()
    assert outport_json.is_json(frame)
    envelope, _ = outport_json.decode_envelope(frame)
    assert (envelope.withAcknowledge, envelope.counter, envelope.type) == (True, 7, outport.PAYLOAD)
    assert (envelope.topic, envelope.version) == (vector["topic"], 1)
    assert through(frame).hex() == vector["protobuf"]


def test_header_hashes() -> None:
    """Header bytes made again from a real node's JSON hash to the header hash, which the node made before."""
    blocks = [vector for vector in GO_JSON if vector["name"].startswith("real-") and vector["topic"] in BLOCKS]
    assert len(blocks) >= 4
    for vector in blocks:
        block = pb.OutportBlock.FromString(through(vector["json"].encode()))
        assert hash_matches(block.blockData)


def test_go_wrote_every_field() -> None:
    """The bytes that Go wrote have every field of every message that a node sends."""
    seen: set[str] = set()
    for vector in GO_JSON:
        message = outport.decode_payload(vector["topic"], bytes.fromhex(vector["protobuf"]))
        collect(message, seen)
        if vector["topic"] in BLOCKS:
            data = message.blockData if isinstance(message, pb.OutportBlock) else message
            assert isinstance(data, pb.BlockData)
            header = outport.decode_header(data.headerType, data.headerBytes)
            if header is not None:
                collect(header, seen)
    kinds = {name.split(".")[0] for name in seen}
    of_the_hub = {"OutportBlock.carryingHeaderHash", "OutportBlock.carryingHeaderNonce"}
    messages = pb.DESCRIPTOR.message_types_by_name
    assert set(messages) - kinds == {"WsMessage", "Shard", "UnreadBlock", "UnreadBlockData", "MiniBlockHeaderReserved"}
    assert {f"{kind}.{field.name}" for kind in kinds for field in messages[kind].fields} - seen == of_the_hub


def collect(message: Message, seen: set[str]) -> None:
    """Note which fields a message has, at any depth."""
    for field, value in message.ListFields():
        seen.add(f"{message.DESCRIPTOR.name}.{field.name}")
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            value = [value[key] for key in value]
        for part in value if field.is_repeated else [value]:
            collect(part, seen)


def filled(kind: Callable[[], Any], rng: random.Random, skip: float = 0.2) -> Any:
    """A message with random content, in the form in which Go writes it."""
    message = kind()
    probe = kind()
    outport.fill_empty(probe)
    big = {field.name for field, value in probe.ListFields() if value == b"\0"}
    for field in message.DESCRIPTOR.fields:
        if field.number > 1000 or rng.random() < skip:
            continue
        name, entry = field.name, field.message_type
        if name.startswith("stateAccesses") and field.type == FieldDescriptor.TYPE_BYTES:
            entries = [state_entry(name, rng) for _ in range(rng.randrange(3))]
            getattr(message, name).extend(item.SerializeToString() for item in sorted(entries, key=lambda e: e.key))
        elif name in big:
            setattr(message, name, bigint.encode(rng.choice((None, 0, -7, 10 ** rng.randrange(40)))))
        elif entry is not None and entry.GetOptions().map_entry:
            part = pb.__dict__[entry.fields_by_name["value"].message_type.name]
            number = entry.fields_by_name["key"].type == FieldDescriptor.TYPE_UINT32
            for _ in range(rng.randrange(3)):
                key = rng.choice((rng.randrange(3), 4294967295)) if number else rng.randbytes(4).hex()
                getattr(message, name)[key].CopyFrom(filled(part, rng, skip))
        elif entry is not None:
            part = pb.__dict__[entry.name]
            if field.is_repeated:
                getattr(message, name).extend(filled(part, rng, skip) for _ in range(rng.randrange(3)))
            else:
                getattr(message, name).CopyFrom(filled(part, rng, skip))
        elif field.is_repeated:
            getattr(message, name).extend(scalar(field, rng) for _ in range(rng.randrange(4)))
        elif f"{message.DESCRIPTOR.name}.{name}" in TEXTS_OF_USERS:
            setattr(message, name, text(rng).encode())
        else:
            setattr(message, name, scalar(field, rng))
    if isinstance(message, pb.BlockData):
        message.headerType = rng.choice(list(outport.HEADERS))
        message.headerBytes = outport.serialize(filled(outport.HEADERS[message.headerType], rng, skip))
    outport.fill_empty(message)
    return message


def text(rng: random.Random) -> str:
    return "".join(rng.choices('ab<>&"\\/\u2028\u00e9\U0001f40d\x01', k=rng.randrange(6)))


def scalar(field: FieldDescriptor, rng: random.Random) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.randrange(6))
        case FieldDescriptor.TYPE_STRING:
            return text(rng)
        case FieldDescriptor.TYPE_FLOAT:
            return rng.choice((0.0, 99.5, 33.3, 1e-9, 3e38))
        case FieldDescriptor.TYPE_ENUM:
            return rng.choice([value.number for value in field.enum_type.values])
        case FieldDescriptor.TYPE_INT64:
            return rng.choice((0, -1, 4, 2**63 - 1))
        case FieldDescriptor.TYPE_UINT64:
            return rng.choice((0, 1, 2**53 + 1, 2**64 - 1))
    return rng.choice((0, 1, 2**31 - 1))


def state_entry(name: str, rng: random.Random) -> Any:
    if name == "stateAccessesForBlock":
        by_block = state.StateAccessesForBlockEntry(key=rng.randbytes(32).hex().encode())
        entries = [state_entry("stateAccesses", rng) for _ in range(3)]
        by_block.value.stateAccesses.extend(sorted(entries, key=lambda entry: entry.key))
        return by_block
    entry = state.StateAccessesEntry(key=rng.randbytes(32))
    access = entry.value.stateAccess.add(type=rng.randrange(2), index=rng.randrange(3), txHash=entry.key)
    access.mainTrieKey, access.mainTrieVal = rng.randbytes(4), rng.randbytes(5)
    access.operation, access.accountChanges = rng.randrange(9), rng.randrange(9)
    access.dataTrieChanges.add(type=1, key=b"k", val=rng.randbytes(3), version=1, operation=rng.randrange(3))
    return entry


@pytest.mark.parametrize("topic", outport.PAYLOADS)
@pytest.mark.parametrize("seed", range(12))
def test_random_messages(topic: str, seed: int) -> None:
    """Whatever a message holds, its JSON form becomes its protobuf form."""
    rng = random.Random(f"{topic}{seed}")
    message = filled(outport.PAYLOADS[topic], rng)
    raw = outport.serialize(message)
    assert through(frame_of(topic, dump(go_json(message, rng)).encode())) == raw


def test_acknowledgement_as_go_writes_it() -> None:
    """The acknowledgement is Go's JSON of the same two fields; a counter of 0 is left out."""
    assert outport_json.ack_envelope(42) == b'{"counter":42,"type":1}'
    assert outport_json.ack_envelope(0) == b'{"type":1}'


def test_what_is_not_known_does_no_harm() -> None:
    """Names of newer versions and header types of newer versions are passed over."""
    assert through(frame_of("Settings", b'{"shardID":1,"new":{"a":[1,{}]}}')) == b"\x08\x01"
    block = {"shardID": 1, "headerType": "HeaderV9", "headerBytes": base64.b64encode(b"{}").decode()}
    raw = through(frame_of(outport.REVERT_INDEXED_BLOCK, json.dumps(block).encode()))
    assert pb.BlockData.FromString(raw) == pb.BlockData(shardID=1, headerType="HeaderV9", headerBytes=b"{}")


def test_entries_without_a_value() -> None:
    """Go's nil in a map is an entry whose message is empty."""
    raw = through(frame_of(outport.SAVE_BLOCK, b'{"blockData":{"results":{"aa":null}},"alteredAccounts":{"b":null}}'))
    block = pb.OutportBlock.FromString(raw)
    assert list(block.blockData.results) == ["aa"]
    assert list(block.alteredAccounts) == ["b"]


DEEP = b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "Expecting value"),
        (b"[]", "BlockData: expected an object"),
        (b"null", "BlockData: expected an object"),
        (b'{"shardID":1', "delimiter"),
        (b'{"shardID":1}x', "Extra data"),
        (b'{"shardID":"1"}', "BlockData.shardID: expected an integer"),
        (b'{"shardID":1.0}', "BlockData.shardID: expected an integer"),
        (b'{"shardID":true}', "BlockData.shardID: expected an integer"),
        (b'{"shardID":-1}', "BlockData.shardID: Value out of range"),
        (b'{"shardID":4294967296}', "BlockData.shardID: Value out of range"),
        (b'{"timestampMs":1e999}', "BlockData.timestampMs: expected an integer"),
        (b'{"timestampMs":' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b'{"timestampMs":NaN}', "NaN is no number"),
        (b'{"headerHash":"a"}', "BlockData.headerHash: not base64"),
        (b'{"headerHash":"YWE=\\n"}', "BlockData.headerHash: not base64"),
        (b'{"headerHash":[1]}', "BlockData.headerHash: expected base64"),
        (b'{"headerType":7}', "BlockData.headerType: expected text"),
        (b'{"headerType":"\\ud800"}', "BlockData.headerType"),
        (b'{"headerType":"\xff"}', "text that is not Unicode"),
        (b'{"body":[]}', "Body: expected an object"),
        (b'{"body":{"miniBlocks":{}}}', "Body.miniBlocks: expected a list"),
        (b'{"body":{"miniBlocks":[null]}}', "MiniBlock: expected an object"),
        (b'{"body":{"miniBlocks":[{"txHashes":"YQ=="}]}}', "MiniBlock.txHashes: expected a list"),
        (b'{"results":[]}', "BlockData.results: expected an object"),
        (b'{"results":{"a":7}}', "ExecutionResultData: expected an object"),
        (b'{"results":{"a":{},"a":{}}}', "BlockData.results: a name stands there twice"),
        (b'{"shardID":1,"shardID":1}', "BlockData: a name stands there twice"),
        (b'{"headerType":"HeaderV3","headerBytes":"CAE="}', "Expecting value"),
        (b'{"headerType":"HeaderV2","headerBytes":"eyJoZWFkZXIiOjF9"}', "Header: expected an object"),
        (DEEP, "nested too deeply"),
    ],
)
def test_bad_payloads(text: bytes, words: str) -> None:
    """What is no such message is refused with words that name the place."""
    with pytest.raises(OutportError, match="not a BlockData in JSON: ") as refused:
        through(frame_of(outport.REVERT_INDEXED_BLOCK, text))
    assert words in str(refused.value)


@pytest.mark.parametrize("payload", [b"7", b'"a"', b'"YQ=\xff="', b"{}", b"[" * 200_000], ids=range(5))
def test_payloads_that_are_no_base64(payload: bytes) -> None:
    """A payload that is no base64 is refused; none at all is empty, as in Go."""
    with pytest.raises(OutportError, match="not a payload in base64"):
        outport_json.unwrap(payload)
    assert outport_json.unwrap(b"null") == outport_json.unwrap(b'""') == b""


@pytest.mark.parametrize(
    "frame",
    [b"{", b"{}x", b'{"counter":-1}', b'{"counter":"1"}', b'{"type":2147483648}', b'{"topic":"\xff"}',
     b'{"payload":' + b"[" * 200_000, b'{"withAcknowledge":1}'],
    ids=range(8),
)  # fmt: skip
def test_bad_envelopes(frame: bytes) -> None:
    """What is no envelope is refused as such."""
    with pytest.raises(OutportError, match="not a WsMessage in JSON"):
        outport_json.decode_envelope(frame)


def test_ratings_fit_into_32_bits() -> None:
    """A rating that 32 bits cannot hold, or that is no number, is refused; large and small ones that fit are not."""
    text = '{"validatorsRatingInfo":[{"rating":%s}]}'
    good = {"3.4028234663852886e38": 3.4028234663852886e38, "1e-50": 0.0, "7": 7.0}
    for number, expected in good.items():
        raw = through(frame_of(outport.SAVE_VALIDATORS_RATING, (text % number).encode()))
        assert pb.ValidatorsRating.FromString(raw).validatorsRatingInfo[0].rating == expected
    for number in ("3.5e38", "1e999", '"7"', "true", "Infinity"):
        with pytest.raises(OutportError):
            through(frame_of(outport.SAVE_VALIDATORS_RATING, (text % number).encode()))


@pytest.mark.parametrize("keys", ['"a"', '"-1"', '"4294967296"', '"\u0661"', '"1":{},"1"'])
def test_keys_that_are_numbers(keys: str) -> None:
    """Keys of shards are numbers of 32 bits, each once."""
    with pytest.raises(OutportError):
        through(frame_of(outport.SAVE_VALIDATORS_PUB_KEYS, f'{{"validatorsPubKeys":{{{keys}:{{}}}}}}'.encode()))
