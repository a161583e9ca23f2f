"""What is taken out of a node's payload."""

from __future__ import annotations

import hashlib

import pytest

from millrace.chain import outport
from millrace.chain.headers import read_header
from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.rules import messages
from millrace.notifier.rules.messages import Undecodable

from ..helpers import event, save_block


def full_block() -> pb.OutportBlock:
    block = save_block(1, 5, events=[event(b"\1" * 32, "swap", b"x")])
    block.highestFinalBlockNonce, block.highestFinalBlockHash = 4, b"f" * 32
    block.signersIndexes.extend((1, 2, 3))
    block.blockData.proof.aggregatedSignature = b"s" * 48
    for name in ("b", "a"):
        block.alteredAccounts[name].balance = "1"
    return block


def test_header_hash_is_computed_when_it_is_missing() -> None:
    """A block without its hash gets the BLAKE2b-256 of its header."""
    block = full_block()
    block.blockData.ClearField("headerHash")
    decoded = messages.decode(outport.SAVE_BLOCK, block.SerializeToString())
    assert decoded.block_hash == hashlib.blake2b(block.blockData.headerBytes, digest_size=32).digest()


@pytest.mark.parametrize(
    ("topic", "message", "words"),
    [
        (outport.SAVE_BLOCK, pb.OutportBlock(shardID=1), "without header"),
        (outport.FINALIZED_BLOCK, pb.FinalizedBlock(headerHash=b"short"), "5 bytes"),
        (outport.REVERT_INDEXED_BLOCK, pb.BlockData(headerHash=b"x" * 33), "33 bytes"),
    ],
)
def test_blocks_that_cannot_be_named(topic: str, message: pb.OutportBlock, words: str) -> None:
    """A block whose identity cannot be known is refused with the reason."""
    with pytest.raises(Undecodable, match=words):
        messages.decode(topic, message.SerializeToString())


def test_unknown_header_type() -> None:
    """A header type of the future leaves the facts open; the block is decoded all the same."""
    block = full_block()
    block.blockData.headerType = "HeaderV9"
    assert messages.decode(outport.SAVE_BLOCK, block.SerializeToString()).shard == 1
    assert read_header(block.blockData) is None


@pytest.mark.parametrize(("events", "refused"), [(199_999, False), (200_000, True)])
def test_events_of_a_block_are_bounded(events: int, refused: bool) -> None:
    """A block with more events and logs than the bound is refused, however small they are."""
    block = save_block(1, 5)
    log = block.transactionPool.logs.add()
    for _ in range(events):
        log.log.events.add()
    payload = block.SerializeToString()
    if refused:
        with pytest.raises(Undecodable, match="more than 200000 events"):
            messages.decode(outport.SAVE_BLOCK, payload)
    else:
        assert messages.decode(outport.SAVE_BLOCK, payload).block_hash == block.blockData.headerHash
