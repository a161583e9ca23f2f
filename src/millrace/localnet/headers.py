"""Headers of shard blocks and metachain blocks, and who signs them.

Keys and signatures have the shape of BLS ones (96 and 48 bytes) and follow from the seed; nothing verifies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from millrace.chain import bigint, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.localnet.block import Block, Content, Part, bytes_from, digest

SOFTWARE_VERSION: Final = b"millrace"
KEY_SIZE, SIGNATURE_SIZE = 96, 48


class Slot(NamedTuple):
    """Where a block stands: its shard, nonce, round, epoch and time (milliseconds since the epoch of Unix)."""

    shard: int
    nonce: int
    round: int
    epoch: int
    timestamp_ms: int


class Validators:
    """The validators of all shards, which follow from the seed."""

    def __init__(self, seed: int, shards: Sequence[int], per_shard: int) -> None:
        self.keys = {
            shard: tuple(bytes_from(KEY_SIZE, "validator", seed, shard, number) for number in range(per_shard))
            for shard in shards
        }
        """96-byte public keys per shard."""

    def leader(self, shard: int, rand_seed: bytes) -> int:
        """Index of the leader that the previous block's random seed chooses."""
        return int.from_bytes(digest(rand_seed)[:4], "big") % len(self.keys[shard])

    def bitmap(self, shard: int) -> bytes:
        """Every validator signed."""
        count = len(self.keys[shard])
        return ((1 << count) - 1).to_bytes((count + 7) // 8, "little")


def genesis(shard: int, chain_id: str, seed: int, timestamp_ms: int, root_hash: bytes) -> Block:
    """The block with nonce 0, which is not told to observers."""
    header = pb.HeaderV2(header=pb.Header(shardID=shard, timeStamp=timestamp_ms // 1000, chainID=chain_id.encode()))
    header.header.rootHash = root_hash
    header.header.randSeed = bytes_from(SIGNATURE_SIZE, "seed", seed, shard)
    raw = outport.serialize(header)
    return Block(
        shard, 0, 0, 0, timestamp_ms, digest(raw), b"", header.header.randSeed, root_hash, "HeaderV2", header, raw
    )


def shard_header(
    slot: Slot,
    parent: Block,
    validators: Validators,
    chain_id: str,
    parts: Sequence[Part],
    content: Content,
    root_hash: bytes,
    meta_hashes: Sequence[bytes],
) -> pb.HeaderV2:
    """The header of a shard's block."""
    rand_seed = next_seed(parent, slot)
    results = b"".join(content.results)
    header = pb.Header(
        nonce=slot.nonce,
        prevHash=parent.hash,
        prevRandSeed=parent.rand_seed,
        randSeed=rand_seed,
        pubKeysBitmap=validators.bitmap(slot.shard),
        shardID=slot.shard,
        timeStamp=slot.timestamp_ms // 1000,
        round=slot.round,
        epoch=slot.epoch,
        signature=bytes_from(SIGNATURE_SIZE, "signature", rand_seed.hex()),
        leaderSignature=bytes_from(SIGNATURE_SIZE, "leader", rand_seed.hex()),
        miniBlockHeaders=[part.to_header() for part in parts],
        rootHash=root_hash,
        metaBlockHashes=meta_hashes,
        txCount=sum(len(part.miniblock.items) for part in parts),
        receiptsHash=digest(results),
        chainID=chain_id.encode(),
        softwareVersion=SOFTWARE_VERSION,
        accumulatedFees=bigint.encode(content.fees),
        developerFees=bigint.encode(content.developer_fees),
    )
    return pb.HeaderV2(
        header=header,
        scheduledRootHash=parent.root_hash,
        scheduledAccumulatedFees=bigint.encode(0),
        scheduledDeveloperFees=bigint.encode(0),
    )


def meta_header(
    slot: Slot, parent: Block, validators: Validators, chain_id: str, shard_blocks: Sequence[Block], epoch_start: bool
) -> pb.MetaBlock:
    """The header of a metachain block that notarises blocks of the shards."""
    rand_seed = next_seed(parent, slot)
    infos = [_shard_data(block, validators) for block in shard_blocks]
    header = pb.MetaBlock(
        nonce=slot.nonce,
        epoch=slot.epoch,
        round=slot.round,
        timeStamp=slot.timestamp_ms // 1000,
        shardInfo=infos,
        signature=bytes_from(SIGNATURE_SIZE, "signature", rand_seed.hex()),
        leaderSignature=bytes_from(SIGNATURE_SIZE, "leader", rand_seed.hex()),
        pubKeysBitmap=validators.bitmap(slot.shard),
        prevHash=parent.hash,
        prevRandSeed=parent.rand_seed,
        randSeed=rand_seed,
        rootHash=digest(b"".join(block.hash for block in shard_blocks)),
        receiptsHash=digest(b""),
        chainID=chain_id.encode(),
        softwareVersion=SOFTWARE_VERSION,
        accumulatedFees=bigint.encode(sum(block.content.fees for block in shard_blocks)),
        developerFees=bigint.encode(sum(block.content.developer_fees for block in shard_blocks)),
        txCount=sum(info.txCount for info in infos),
    )
    if epoch_start:
        latest = {block.shard: block for block in shard_blocks}
        header.epochStart.lastFinalizedHeaders.extend(
            pb.EpochStartShardData(
                shardID=block.shard,
                headerHash=block.hash,
                rootHash=block.root_hash,
                round=block.round,
                nonce=block.nonce,
                epoch=block.epoch,
            )
            for block in latest.values()
        )
    return header


def next_seed(parent: Block, slot: Slot) -> bytes:
    """The random seed of the block after `parent`."""
    return bytes_from(SIGNATURE_SIZE, "random", parent.rand_seed.hex(), slot.shard, slot.round)


def _shard_data(block: Block, validators: Validators) -> pb.ShardData:
    assert isinstance(block.header, pb.HeaderV2)
    header = block.header.header
    return pb.ShardData(
        shardID=block.shard,
        headerHash=block.hash,
        shardMiniBlockHeaders=header.miniBlockHeaders,
        prevRandSeed=header.prevRandSeed,
        pubKeysBitmap=validators.bitmap(block.shard),
        signature=header.signature,
        txCount=header.txCount,
        round=block.round,
        prevHash=block.prev_hash,
        nonce=block.nonce,
        accumulatedFees=header.accumulatedFees,
        developerFees=header.developerFees,
        epoch=block.epoch,
    )
