"""Blocks of the present format have the parts that those of a live node have, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from millrace.chain import outport
from millrace.chain.call import esdt_transfer
from millrace.chain.proto import outport_pb2 as pb

VECTORS = Path(__file__).parents[2] / "vectors" / "supernova.json"
TOKEN = "USDC-c76f1f"
META = 0xFFFFFFFF
NOT_COLLECTED = {"stateAccessesForBlock"}
"""Only nodes that are told to collect state accesses have them."""
NOT_AT_HAND = ("header.epochStart.", "blockData.results.alteredAccounts.tokens")
"""Parts of blocks of which none of a live node is at hand: the first of an epoch, and one that moves tokens."""
MAY_BE_ZERO = {
    *("type", "senderShardID", "receiverShardID", "leaderIndex"),
    *("gasRefunded", "hadRefund", "numPendingMiniBlocks"),
}
"""Numbers that happen to be zero in the live blocks at hand."""


def parts(message: Message, under: str = "") -> set[str]:
    """The fields that are set in a message, and in those inside it, as paths; the header of a block is looked into."""
    found = set()
    for field, value in message.ListFields():
        path = f"{under}.{field.name}" if under else field.name
        found.add(path)
        if field.message_type is None:
            continue
        entries = value if field.is_repeated else (value,)
        if field.message_type.GetOptions().map_entry:
            entries = [entry for entry in value.values() if isinstance(entry, Message)]
        for entry in entries:
            found |= parts(entry, path)
    if isinstance(message, pb.BlockData):
        header = outport.decode_header(message.headerType, message.headerBytes)
        assert header is not None
        found |= parts(header, "header")
    return found


def live(shard_blocks: bool) -> list[set[str]]:
    """The parts of a live node's blocks, of shards or of the metachain."""
    vectors = json.loads(VECTORS.read_text())["vectors"]
    blocks = [
        pb.OutportBlock.FromString(bytes.fromhex(vector["payload"]))
        for vector in vectors
        if vector["topic"] == outport.SAVE_BLOCK and vector["name"].startswith("real")
    ]
    kind = "HeaderV3" if shard_blocks else "MetaBlockV3"
    return [parts(block) for block in blocks if block.blockData.headerType == kind]


@pytest.mark.parametrize("of_shards", [True, False])
def test_parts_are_those_of_a_live_node(make_present: Any, wallet: Any, of_shards: bool) -> None:
    """What every live block has, ours have; beyond what some live block has there are only values that may be zero."""
    bench = make_present(rounds_per_epoch=7)
    for shard in range(3):
        bench.give(wallet(shard))
    bench.give(wallet(0), TOKEN, 1000)
    data, at = esdt_transfer(TOKEN, 4), bench.chain.market.addresses
    bench.chain.submit(bench.tx(wallet(0), wallet(1).public, 0, data, gas_limit=300_000 + 1500 * len(data)))
    bench.chain.submit(bench.tx(wallet(1), at.wrapper, 5, b"wrapEgld", gas_limit=10_000_000))
    bench.chain.submit(bench.tx(wallet(2), at.aggregator, 5, b"xo@01", gas_limit=10_000_000, relayed=True))
    bench.rounds(16)
    ours = [parts(block) for block in bench.saved() if (block.shardID != META) == of_shards]
    reference = live(of_shards)
    assert set.intersection(*reference) - set.union(*ours) <= NOT_COLLECTED
    more = {path for path in set.union(*ours) - set.union(*reference) if not path.startswith(NOT_AT_HAND)}
    assert {path for path in more if path.rpartition(".")[2] not in MAY_BE_ZERO} == set()
