"""Headers in their real protobuf form, linked by hash, in both formats.

In the earlier one (`HeaderV2`, `MetaBlock`) a block is executed when it is made. In the present one (`HeaderV3`,
`MetaBlockV3`) a header proposes, and tells which earlier headers were executed meanwhile.
"""

from __future__ import annotations

from hashlib import blake2b, sha256

import msgspec

from millrace.chain import bigint, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.localnet.chain.block import Block, Execution, LastResult, MiniBlock, Work

SOFTWARE_VERSION = b"millrace-local"
PRESENT_VERSION = b"3"  # of every header in the present format on live networks
SIGNERS = b"\x0f"
PROPOSED = pb.MiniBlockHeaderReserved(state=pb.Proposed).SerializeToString()


class Place(msgspec.Struct, frozen=True):
    """Where a new block goes: its number, its time and the block before it."""

    shard: int
    nonce: int
    round: int
    epoch: int
    timestamp_ms: int
    previous: bytes
    """Hash of the block before."""
    fork: int
    """How often this shard was taken back: a block made again has another hash."""
    chain_id: str
    leader: bytes
    proposes: bool
    """Whether the block is executed later, in the present format."""
    stamp: int
    """The time as headers of the earlier format say it: seconds, from the epoch of the change-over on milliseconds."""

    @property
    def root(self) -> bytes:
        """The root hash of the state after the block."""
        return digest(b"root", self)


def shard_header(place: Place, execution: Execution, work: Work) -> pb.HeaderV2:
    """The header of a shard's block that has been executed."""
    content = execution.content
    header = pb.Header(
        nonce=place.nonce,
        prevHash=place.previous,
        prevRandSeed=digest(b"previous", place),
        randSeed=digest(b"rand", place),
        pubKeysBitmap=SIGNERS,
        shardID=place.shard,
        timeStamp=place.stamp,
        round=place.round,
        epoch=place.epoch,
        leaderSignature=signature(place),
        miniBlockHeaders=[mini.header() for mini in execution.miniblocks],
        rootHash=place.root,
        metaBlockHashes=work.meta_hashes,
        txCount=_count(execution.miniblocks),
        chainID=place.chain_id.encode(),
        softwareVersion=SOFTWARE_VERSION,
        accumulatedFees=bigint.encode(max(content.fees, 0)),
        developerFees=bigint.encode(content.developer_fees),
    )
    return pb.HeaderV2(
        header=header, scheduledAccumulatedFees=bigint.encode(0), scheduledDeveloperFees=bigint.encode(0)
    )


def proposing_header(
    place: Place, body: list[MiniBlock], work: Work, results: list[Block], last: LastResult
) -> pb.HeaderV3:
    """The header of a shard's block that is executed later, and tells of earlier ones."""
    return pb.HeaderV3(
        nonce=place.nonce,
        prevHash=place.previous,
        prevRandSeed=digest(b"previous", place),
        randSeed=digest(b"rand", place),
        shardID=place.shard,
        timestampMs=place.timestamp_ms,
        round=place.round,
        epoch=place.epoch,
        leaderSignature=signature(place),
        miniBlockHeaders=[mini.header(PROPOSED) for mini in body],
        metaBlockHashes=work.meta_hashes,
        txCount=_count(body),
        chainID=place.chain_id.encode(),
        softwareVersion=PRESENT_VERSION,
        lastExecutionResult=pb.ExecutionResultInfo(notarizedInRound=last.told_in, executionResult=_base(last)),
        executionResults=[
            pb.ExecutionResult(
                baseExecutionResult=_base(block.result(place.round)),
                receiptsHash=_receipts(block),
                miniBlockHeaders=_executed(block),
                developerFees=bigint.encode(block.content.developer_fees),
                accumulatedFees=bigint.encode(max(block.content.fees, 0)),
                executedTxCount=_executed_count(block),
            )
            for block in results
        ],
    )


def meta_header(place: Place, named: list[Block]) -> pb.MetaBlock:
    """The header of a metachain block, which names the shards' final blocks."""
    return pb.MetaBlock(
        nonce=place.nonce,
        epoch=place.epoch,
        round=place.round,
        timeStamp=place.stamp,
        shardInfo=[_shard_data(block) for block in named],
        leaderSignature=signature(place),
        pubKeysBitmap=SIGNERS,
        prevHash=place.previous,
        prevRandSeed=digest(b"previous", place),
        randSeed=digest(b"rand", place),
        rootHash=place.root,
        validatorStatsRootHash=digest(b"stats", place),
        chainID=place.chain_id.encode(),
        softwareVersion=SOFTWARE_VERSION,
        accumulatedFees=bigint.encode(0),
        accumulatedFeesInEpoch=bigint.encode(0),
        developerFees=bigint.encode(0),
        devFeesInEpoch=bigint.encode(0),
        txCount=_named_count(named),
    )


def proposing_meta_header(
    place: Place, named: list[Block], results: list[Block], last: LastResult, *, closes_epoch: bool, began: list[Block]
) -> pb.MetaBlockV3:
    """The header of a metachain block in the present format.

    It names the shards' newly executed blocks, and the final headers that told them. `began` are the shards' newest
    final blocks if the block is the first of its epoch.
    """
    return pb.MetaBlockV3(
        nonce=place.nonce,
        epoch=place.epoch,
        round=place.round,
        timestampMs=place.timestamp_ms,
        shardInfo=[_shard_data(executed) for block in named for executed in block.told],
        leaderSignature=signature(place),
        prevHash=place.previous,
        prevRandSeed=digest(b"previous", place),
        randSeed=digest(b"rand", place),
        epochChangeProposed=closes_epoch,
        epochStart=pb.EpochStart(lastFinalizedHeaders=[_at_epoch_start(block) for block in began]),
        chainID=place.chain_id.encode(),
        softwareVersion=PRESENT_VERSION,
        txCount=_named_count([executed for block in named for executed in block.told]),
        lastExecutionResult=pb.MetaExecutionResultInfo(notarizedInRound=last.told_in, executionResult=_meta_base(last)),
        executionResults=[
            pb.MetaExecutionResult(executionResult=_meta_base(block.result(place.round)), receiptsHash=_receipts(block))
            for block in results
        ],
        shardInfoProposal=[_proposal(block) for block in named if block.proposes],
    )


def seal(place: Place, header: outport.AnyHeader, body: list[MiniBlock], work: Work) -> Block:
    """The block of a header, whose hash is that of the header's bytes."""
    raw = outport.serialize(header)
    return Block(
        shard=place.shard,
        nonce=place.nonce,
        round=place.round,
        epoch=place.epoch,
        timestamp_ms=place.timestamp_ms,
        hash=blake2b(raw, digest_size=32).digest(),
        root=place.root,
        header_type=header.DESCRIPTOR.name,
        header=raw,
        leader=place.leader,
        miniblocks=body,
        work=work,
    )


def proof(block: Block) -> pb.HeaderProof:
    """What stands for the validators' agreement on a header; nothing can verify it."""
    half = sha256(b"proof" + block.hash).digest()
    return pb.HeaderProof(
        pubKeysBitmap=SIGNERS,
        aggregatedSignature=half + half[:16],
        headerHash=block.hash,
        headerEpoch=block.epoch,
        headerNonce=block.nonce,
        headerShardId=block.shard,
        headerRound=block.round,
    )


def _base(result: LastResult) -> pb.BaseExecutionResult:
    return pb.BaseExecutionResult(
        headerHash=result.hash,
        headerNonce=result.nonce,
        headerRound=result.round,
        headerEpoch=result.epoch,
        rootHash=result.root,
        gasUsed=result.gas_used,
    )


def _meta_base(result: LastResult) -> pb.BaseMetaExecutionResult:
    stats = sha256(b"stats" + result.root).digest()
    return pb.BaseMetaExecutionResult(baseExecutionResult=_base(result), validatorStatsRootHash=stats)


def _executed(block: Block) -> list[pb.MiniBlockHeader]:
    """A block's miniblocks once executed, each whole: the index of its last transaction says so."""
    minis = block.execution.miniblocks if block.execution is not None else []
    if not block.proposes:
        return [mini.header() for mini in minis]
    return [
        mini.header(pb.MiniBlockHeaderReserved(indexOfLastTxProcessed=len(mini.tx_hashes) - 1).SerializeToString())
        for mini in minis
    ]


def _executed_count(block: Block) -> int:
    return _count(block.execution.miniblocks) if block.execution is not None else 0


def _named_count(named: list[Block]) -> int:
    return sum(_executed_count(block) for block in named)


def _count(minis: list[MiniBlock]) -> int:
    return sum(len(mini.tx_hashes) for mini in minis)


def _receipts(block: Block) -> bytes:
    return sha256(b"receipts" + block.hash).digest()


def _shard_data(block: Block) -> pb.ShardData:
    minis = _executed(block)
    return pb.ShardData(
        shardID=block.shard,
        headerHash=block.hash,
        shardMiniBlockHeaders=minis,
        txCount=_executed_count(block),
        round=block.round,
        nonce=block.nonce,
        epoch=block.epoch,
        accumulatedFees=bigint.encode(max(block.content.fees, 0)),
        developerFees=bigint.encode(block.content.developer_fees),
        numPendingMiniBlocks=sum(mini.receiverShardID != block.shard != METACHAIN for mini in minis),
    )


def _proposal(block: Block) -> pb.ShardDataProposal:
    return pb.ShardDataProposal(
        headerHash=block.hash,
        round=block.round,
        nonce=block.nonce,
        shardID=block.shard,
        epoch=block.epoch,
        numPendingMiniBlocks=sum(mini.receiver_shard != mini.sender_shard for mini in block.miniblocks),
    )


def _at_epoch_start(block: Block) -> pb.EpochStartShardData:
    return pb.EpochStartShardData(
        shardID=block.shard,
        headerHash=block.hash,
        rootHash=block.last_result.root,
        round=block.round,
        nonce=block.nonce,
        epoch=block.epoch,
    )


def digest(label: bytes, place: Place) -> bytes:
    """A 32-byte value for header fields whose content the local chain does not model."""
    text = f"{place.shard}/{place.nonce}/{place.round}/{place.fork}".encode()
    return sha256(label + text + place.previous).digest()


def signature(place: Place) -> bytes:
    """48 bytes, the size of a BLS signature."""
    return digest(b"leader", place) + digest(b"signature", place)[:16]
