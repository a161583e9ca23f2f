"""Node messages and gossip messages against bytes written by the Go code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import gossip, outport
from millrace.chain.proto import outport_pb2, p2p_pb2

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "outport.json").read_text())
NOW = 1_800_000_000


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda v: v["name"])
def test_published_bytes(vector: dict[str, Any]) -> None:
    """Every reference message decodes and encodes to the same bytes, through our own serializer too."""
    kind = getattr(outport_pb2, vector["message"], None) or getattr(p2p_pb2, vector["message"])
    raw = bytes.fromhex(vector["protobufHex"])
    message = kind.FromString(raw)
    assert outport.serialize(message) == raw
    if vector.get("topic") in outport.PAYLOADS and vector["message"] != "WsMessage":
        assert outport.decode_payload(vector["topic"], raw) == message


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
    assert outport.decode_header("HeaderV3", b"\1\2") is None
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


def test_transactions_travel_in_batches() -> None:
    """Wrapped transactions come out as they went in."""
    assert gossip.unwrap_transactions(gossip.wrap_transactions([b"a", b"b"], NOW), NOW) == [b"a", b"b"]
    with pytest.raises(gossip.GossipError, match="empty"):
        gossip.wrap_transactions([], NOW)


@pytest.mark.parametrize(
    "data",
    [
        p2p_pb2.TopicMessage(Version=2, Payload=b"x", Timestamp=NOW).SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW - 601).SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW + 21).SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW, Pk=b"k").SerializeToString(),
        p2p_pb2.TopicMessage(Version=1, Payload=b"x", Timestamp=NOW, SignatureOnPid=b"k").SerializeToString(),
        b"\xff",
        bytes(gossip.MAX_MESSAGE + 1),
        gossip.wrap(b"", NOW),
        gossip.wrap(p2p_pb2.Batch(data=[b""]).SerializeToString(), NOW),
        gossip.wrap(b"\xff", NOW),
    ],
)
def test_broken_gossip_is_refused(data: bytes) -> None:
    """A message that would get its sender black-listed is refused: version, time, keys, size, empty batches."""
    with pytest.raises(gossip.GossipError):
        gossip.unwrap_transactions(data, NOW)


def test_the_time_window_is_inclusive() -> None:
    """Ten minutes old and twenty seconds ahead are still taken."""
    for time in (NOW - 600, NOW + 20):
        assert gossip.unwrap(gossip.wrap(b"x", time), NOW) == b"x"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=40), st.integers(1, 100))
def test_batches_are_bounded_and_complete(items: list[bytes], limit: int) -> None:
    """Splitting keeps every item in order; a batch stays below the limit unless a single item is larger."""
    batches = gossip.split_batches(items, limit)
    assert [item for batch in batches for item in batch] == items
    assert all(len(batch) == 1 or sum(map(len, batch)) < limit for batch in batches)


def test_groups_never_mix_topics() -> None:
    """Items are grouped by topic in their order."""
    assert gossip.group_by([1, 2, 3, 4], lambda n: f"t{n % 2}") == {"t1": [1, 3], "t0": [2, 4]}


def test_heartbeats() -> None:
    """A heartbeat comes out as it went in; impossible lengths are refused."""
    beat = gossip.Heartbeat(public_key=b"k" * 96, timestamp=NOW, version="v1", name="node", nonce=9)
    assert gossip.unwrap_heartbeat(gossip.wrap_heartbeat(beat, NOW), NOW) == beat
    for broken in (
        gossip.Heartbeat(public_key=b"", timestamp=NOW, version="v1"),
        gossip.Heartbeat(public_key=b"k" * 129, timestamp=NOW, version="v1"),
        gossip.Heartbeat(public_key=b"k" * 96, timestamp=NOW, version="v1", name="n" * 129),
    ):
        with pytest.raises(gossip.GossipError):
            gossip.unwrap_heartbeat(gossip.wrap_heartbeat(broken, NOW), NOW)
