"""One reading of all five formats of headers, against blocks of a real node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import headers, outport
from millrace.chain.headers import Header, read_header
from millrace.chain.proto import outport_pb2 as pb

VECTORS: dict[str, dict[str, Any]] = {
    vector["name"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "supernova.json").read_text())["vectors"]
}
BLOCKS = [name for name, vector in VECTORS.items() if vector["topic"] == outport.SAVE_BLOCK]


def data_of(name: str) -> pb.BlockData:
    return pb.OutportBlock.FromString(bytes.fromhex(VECTORS[name]["payload"])).blockData


def header_of(name: str) -> Header:
    header = read_header(data_of(name))
    assert header is not None
    return header


@pytest.mark.parametrize("name", BLOCKS)
def test_real_headers(name: str) -> None:
    """A node's header hashes to its block's name, and lists the executions whose results the block holds."""
    data, header = data_of(name), header_of(name)
    assert headers.hash_matches(data)
    assert {execution.block_hash.hex() for execution in header.executions} == set(data.results)
    assert [data.results[item.block_hash.hex()].headerNonce for item in header.executions] == [
        execution.nonce for execution in header.executions
    ]
    assert header.timestamp_ms == data.timestampMs
    assert header.proposes == (data.headerType in ("HeaderV3", "MetaBlockV3"))
    if header.executions:
        assert header.last_executed_nonce == header.executions[-1].nonce


def test_the_published_expectations() -> None:
    """Which headers are executed by which block is as the vectors' makers say."""
    assert [item.nonce for item in header_of("real-shard0-58").executions] == [57]
    assert header_of("real-shard0-58").tx_count == 4
    assert [item.nonce for item in header_of("synthetic-three-results-104").executions] == [100, 101, 102]
    assert header_of("real-shard0-45").executions == ()
    assert header_of("real-shard0-101").executions[0].accumulated_fees > 0


def test_milliseconds_in_a_header_of_the_earlier_format() -> None:
    """The last headers before the change of format count milliseconds where seconds were; both give milliseconds."""
    data = data_of("real-shard0-44")
    assert not header_of("real-shard0-44").proposes
    told = data.timestampMs
    data.timestampMs = 0
    late = read_header(data)
    assert late is not None and late.timestamp_ms == told
    early = pb.BlockData(
        headerType="HeaderV2", headerBytes=pb.HeaderV2(header=pb.Header(timeStamp=7)).SerializeToString()
    )
    read = read_header(early)
    assert read is not None and read.timestamp_ms == 7000


def test_a_proposing_header_must_hash_to_its_name() -> None:
    """What a header lists as executed is believed only of the header that goes by that hash."""
    data = data_of("real-shard0-58")
    data.headerHash = bytes(32)
    assert read_header(data) is None


def test_a_big_integer_that_is_none() -> None:
    """A header with an impossible amount is as one that cannot be read."""
    raw = pb.HeaderV2(header=pb.Header(accumulatedFees=b"\7\7")).SerializeToString()
    assert read_header(pb.BlockData(headerType="HeaderV2", headerBytes=raw)) is None


@given(st.sampled_from([*outport.HEADERS, "HeaderV9"]), st.binary(max_size=200))
def test_any_bytes(header_type: str, raw: bytes) -> None:
    """Whatever bytes a block calls its header, reading them gives a header or nothing."""
    data = pb.BlockData(
        headerType=header_type, headerBytes=raw, headerHash=headers.blake2b(raw, digest_size=32).digest()
    )
    assert isinstance(read_header(data), Header | None)
