"""Node messages against bytes written by the Go code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from chain.go_json import TEXTS_OF_USERS
from millrace.chain import bigint, outport
from millrace.chain.fees import GasSchedule, initially_paid_fee
from millrace.chain.proto import outport_pb2, p2p_pb2
from millrace.chain.transaction import chain_hash, from_proto

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "outport.json").read_text())
SUPERNOVA: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "supernova.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda v: v["name"])
def test_published_bytes(vector: dict[str, Any]) -> None:
    """Every reference message decodes and encodes to the same bytes, through our own serializer too."""
    kind = getattr(outport_pb2, vector["message"], None) or getattr(p2p_pb2, vector["message"])
    raw = bytes.fromhex(vector["protobufHex"])
    message = kind.FromString(raw)
    assert outport.serialize(message) == raw
    if vector.get("topic") in outport.PAYLOADS and vector["message"] != "WsMessage":
        assert outport.decode_payload(vector["topic"], raw) == message


@pytest.mark.parametrize("vector", SUPERNOVA["vectors"], ids=lambda v: v["name"])
def test_bytes_of_the_present_format(vector: dict[str, Any]) -> None:
    """What nodes send of blocks that are executed later decodes without a field left over, and encodes to its bytes."""
    raw = bytes.fromhex(vector["payload"])
    message = outport.decode_payload(vector["topic"], raw)
    assert unknown_fields(message) == 0
    assert outport.serialize(message) == raw
    if isinstance(message, outport_pb2.OutportBlock | outport_pb2.BlockData):
        data = message.blockData if isinstance(message, outport_pb2.OutportBlock) else message
        header = outport.decode_header(data.headerType, data.headerBytes)
        assert header is not None
        assert unknown_fields(header) == 0
        assert outport.serialize(header) == data.headerBytes


def unknown_fields(message: Any) -> int:
    """How many fields of a message, at any depth, its definition does not have."""
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            is_message = field.message_type.fields_by_name["value"].message_type is not None
            count += sum(unknown_fields(value[key]) for key in value) if is_message else 0
        else:
            count += sum(map(unknown_fields, value if field.is_repeated else (value,)))
    return count


def test_keys_of_shards_are_in_go_s_order() -> None:
    """The metachain's entry, whose key is the largest number, is written last; nothing else changes."""
    message = outport_pb2.ValidatorsPubKeys(shardID=1, epoch=7)
    for shard in (4294967295, 2, 0, 1):
        message.validatorsPubKeys[shard].keys.append(b"%d" % shard)
    raw = outport.serialize(message)
    assert outport_pb2.ValidatorsPubKeys.FromString(raw) == message
    places = [raw.index(b"%d" % shard) for shard in (0, 1, 2, 4294967295)]
    assert places == sorted(places)


def test_empty_messages_are_written_as_go_writes_them() -> None:
    """Empty big integers become one zero byte and the epoch start is always written, at any depth."""
    assert outport.serialize(outport_pb2.Transaction()) == bytes.fromhex("120100")
    block = outport_pb2.OutportBlock()
    block.transactionPool.transactions["aa"].transaction.nonce = 1
    outport.serialize(block)
    assert block.transactionPool.transactions["aa"].transaction.value == b"\0"
    meta = outport_pb2.MetaBlock()
    outport.serialize(meta)
    assert meta.HasField("epochStart")
    assert meta.epochStart.economics.totalSupply == b"\0"


def test_acknowledgement_bytes() -> None:
    """An acknowledgement holds the counter and the type, and nothing else."""
    assert outport.ack_envelope(42).hex() == "102a1801"
    envelope = outport.decode_envelope(outport.payload_envelope("SaveBlock", b"x", 7))
    assert (envelope.topic, envelope.counter, envelope.payload, envelope.withAcknowledge, envelope.version) == (
        "SaveBlock", 7, b"x", True, 1
    )  # fmt: skip


def test_headers_by_type() -> None:
    """A known header type is decoded, an unknown one or unreadable bytes give nothing, never an error."""
    header = outport_pb2.HeaderV2(header=outport_pb2.Header(nonce=5))
    decoded = outport.decode_header("HeaderV2", outport.serialize(header))
    assert isinstance(decoded, outport_pb2.HeaderV2)
    assert decoded.header.nonce == 5
    assert outport.decode_header("HeaderV4", b"\1\2") is None
    assert outport.decode_header("MetaBlock", b"\xff") is None


def test_executed_range_of_a_miniblock() -> None:
    """An empty reserved field means that all transactions were executed; otherwise it says which."""
    assert outport.decode_reserved(outport_pb2.MiniBlockHeader(txCount=3)).indexOfLastTxProcessed == 2
    partial = outport_pb2.MiniBlockHeaderReserved(state=2, indexOfLastTxProcessed=1).SerializeToString()
    assert outport.decode_reserved(outport_pb2.MiniBlockHeader(txCount=3, reserved=partial)).state == 2
    with pytest.raises(outport.OutportError):
        outport.decode_reserved(outport_pb2.MiniBlockHeader(reserved=b"\xff"))


@given(st.binary(max_size=300), st.sampled_from([*outport.PAYLOADS, "nonsense"]))
def test_any_bytes_decode_or_are_refused(data: bytes, topic: str) -> None:
    """Arbitrary frames and payloads decode or raise OutportError, nothing else."""
    for attempt in (
        lambda: outport.decode_envelope(data),
        lambda: outport.decode_payload(topic, data),
        lambda: outport.shard_of_payload(data),
    ):
        try:
            attempt()
        except outport.OutportError:
            continue


def plain(message: Any) -> dict[str, Any]:
    """A message in the notation of the reference decoding: bytes as hex, big integers as numbers."""
    result: dict[str, Any] = {}
    big = outport._BIG_INTEGERS.get(message.DESCRIPTOR.name, ())
    for field, value in message.ListFields():
        if field.name in big:
            result[field.name] = bigint.decode(value)
        elif f"{message.DESCRIPTOR.name}.{field.name}" in TEXTS_OF_USERS:
            result[field.name] = value.decode()
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            result[field.name] = {str(key): plain(value[key]) for key in value}
        elif field.is_repeated:
            result[field.name] = [scalar(item) for item in value]
        else:
            result[field.name] = scalar(value)
    return result


def scalar(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return plain(value) if hasattr(value, "DESCRIPTOR") else value


def without_big_texts(value: Any) -> Any:
    """Decimal texts above 2^53 as integers: the reference decoding writes large integers as texts."""
    if isinstance(value, dict):
        return {key: without_big_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_big_texts(item) for item in value]
    if isinstance(value, str) and value.isdigit() and int(value) > 2**53:
        return int(value)
    return value


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda v: v["name"])
def test_published_contents(vector: dict[str, Any]) -> None:
    """Every field of every reference message holds what the reference decoding says."""
    kind = getattr(outport_pb2, vector["message"], None) or getattr(p2p_pb2, vector["message"])
    message = kind.FromString(bytes.fromhex(vector["protobufHex"]))
    assert without_big_texts(plain(message)) == without_big_texts(vector["decoded"])


def test_the_header_inside_a_published_block() -> None:
    """The header bytes of the reference block are a HeaderV2 with the block's shard, and encode to the same bytes."""
    block = outport_pb2.OutportBlock.FromString(bytes.fromhex(VECTORS["messages"][0]["protobufHex"]))
    header = outport.decode_header(block.blockData.headerType, block.blockData.headerBytes)
    assert isinstance(header, outport_pb2.HeaderV2)
    assert header.header.shardID == block.blockData.shardID == block.shardID
    assert header.header.nonce == block.blockData.proof.headerNonce
    assert outport.serialize(header) == block.blockData.headerBytes
    assert len(header.header.miniBlockHeaders) == len(block.blockData.body.miniBlocks)


def test_transactions_inside_a_published_block() -> None:
    """A transaction of the reference block is its own canonical form, and hashes to its key in the pool."""
    block = outport_pb2.OutportBlock.FromString(bytes.fromhex(VECTORS["messages"][0]["protobufHex"]))
    assert len(block.transactionPool.transactions) == 2
    for tx_hash, info in block.transactionPool.transactions.items():
        assert chain_hash(from_proto(info.transaction.SerializeToString())).hex() == tx_hash
        fee = bigint.decode(info.feeInfo.initialPaidFee)
        assert initially_paid_fee(from_proto(info.transaction.SerializeToString()), GasSchedule()) == fee


@given(st.dictionaries(st.text("0123456789abcdef", min_size=1, max_size=8), st.integers(0, 2**64 - 1), max_size=20))
def test_map_keys_are_sorted(nonces: dict[str, int]) -> None:
    """The bytes of a block do not depend on the order in which its pool was filled."""
    blocks = []
    for keys in (sorted(nonces), sorted(nonces, reverse=True)):
        block = outport_pb2.OutportBlock()
        for key in keys:
            block.transactionPool.transactions[key].transaction.nonce = nonces[key]
        blocks.append(outport.serialize(block))
    assert blocks[0] == blocks[1]
    again = outport_pb2.OutportBlock.FromString(blocks[0])
    assert {key: info.transaction.nonce for key, info in again.transactionPool.transactions.items()} == nonces
    assert outport.serialize(again) == blocks[0]


def test_unknown_fields_and_values_are_kept_or_ignored() -> None:
    """A newer node's extra field does not stop us: the rest is read."""
    newer = outport_pb2.FinalizedBlock(shardID=1, headerHash=b"h").SerializeToString() + b"\xfa\x06\x03new"
    message = outport.decode_payload(outport.FINALIZED_BLOCK, newer)
    assert isinstance(message, outport_pb2.FinalizedBlock)
    assert (message.shardID, message.headerHash) == (1, b"h")
    assert outport_pb2.MiniBlock.FromString(b"\x20\x07").type == 7


def test_the_settings_request() -> None:
    """A consumer asks for a node's settings with an empty payload; the bytes are the reference's."""
    reference = next(v for v in VECTORS["messages"] if v["name"] == "ws-settings-request")
    frame = outport_pb2.WsMessage(counter=1, type=outport.PAYLOAD, topic=outport.SETTINGS, version=outport.VERSION)
    assert frame.SerializeToString().hex() == reference["protobufHex"]
    assert outport.payload_envelope(outport.SETTINGS, b"", 1, with_acknowledge=False).hex() == reference["protobufHex"]
