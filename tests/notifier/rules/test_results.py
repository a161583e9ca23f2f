"""Executions leave the block that brings them as blocks of the earlier shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.chain import outport
from millrace.chain.headers import read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedBlock
from millrace.chain.shard import METACHAIN
from millrace.notifier.rules.results import brought, executed_block

from ..helpers import block_hash, event, proposal, ran

VECTORS: list[dict[str, Any]] = [
    vector
    for vector in json.loads((Path(__file__).parents[2] / "vectors" / "supernova.json").read_text())["vectors"]
    if vector["topic"] == outport.SAVE_BLOCK
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["name"])
def test_executions_of_real_blocks(vector: dict[str, Any]) -> None:
    """Each has its header's hash, nonce, time and fees, and its pool, accounts, miniblocks and gas whole."""
    payload = bytes.fromhex(vector["payload"])
    block, sliced = pb.OutportBlock.FromString(payload), SlicedBlock.FromString(payload)
    header = read_header(block.blockData)
    assert header is not None
    found = brought(block.blockData, header)
    assert (found.missing, found.unlisted, found.disordered) == (0, 0, False)
    assert len(found.executions) == len(block.blockData.results)
    for execution in found.executions:
        result = block.blockData.results[execution.block_hash.hex()]
        (entry,) = (entry for entry in sliced.blockData.results if entry.key.decode() == execution.block_hash.hex())
        told = executed_block(sliced, entry.value, block.blockData.headerHash, header, execution).SerializeToString()
        made = pb.OutportBlock.FromString(told)
        assert outport.canonical(made) == told
        assert made.blockData.headerHash == execution.block_hash
        assert made.transactionPool == result.transactionPool
        assert dict(made.alteredAccounts) == dict(result.alteredAccounts)
        assert made.headerGasConsumption == result.headerGasConsumption
        assert made.blockData.body == result.body
        assert list(made.blockData.intraShardMiniBlocks) == list(result.intraShardMiniBlocks)
        assert (made.carryingHeaderHash, made.carryingHeaderNonce) == (block.blockData.headerHash, header.nonce)
        assert made.blockData.headerType == ("MetaBlock" if block.shardID == METACHAIN else "HeaderV2")
        again = read_header(made.blockData)
        assert again is not None and not again.proposes
        assert (again.nonce, again.round, again.epoch) == (execution.nonce, execution.round, execution.epoch)
        assert again.timestamp_ms == made.blockData.timestampMs == result.timestampMs
        assert again.accumulated_fees == execution.accumulated_fees
        assert len(again.miniblocks) == len(result.body.miniBlocks)


def test_what_breaks_the_rules_is_told_and_nothing_is_made_up() -> None:
    """Missing and unlisted results, doubled ones and a strange order are told; listed and present ones remain."""
    old = [proposal(1, nonce) for nonce in (5, 6, 7)]
    executions = [ran(block, event(b"\1" * 32, "swap")) for block in old]
    block = proposal(1, 8, ran=[executions[1], executions[0], executions[0], executions[2]])
    del block.blockData.results[executions[2].block_hash.hex()]
    block.blockData.results[block_hash("nobody's").hex()].headerNonce = 3
    header = read_header(block.blockData)
    assert header is not None
    found = brought(block.blockData, header)
    assert [execution.nonce for execution in found.executions] == [6, 5]
    assert (found.missing, found.unlisted, found.disordered) == (1, 1, True)
