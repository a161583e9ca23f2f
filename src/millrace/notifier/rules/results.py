"""Executions of earlier headers, out of the block that brings them. No I/O.

A header that proposes says nothing of what its transactions did: that comes with a later header of the shard, as a
result by the executed header's hash. Each becomes a block as consumers have always known them, told under the topic
`ExecutedBlock`: of the executed header's hash, nonce and time, with pool, logs, accounts and gas of its execution.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from millrace.chain import bigint, outport
from millrace.chain.headers import Execution, Header
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedBlock, SlicedResult
from millrace.chain.shard import METACHAIN

_HASH_SIZE = 32


class Brought(msgspec.Struct, frozen=True):
    """The executions that a block brings, and in what it breaks the rules."""

    executions: tuple[Execution, ...]
    """Those that the header lists and whose results the block holds, each once, in the header's order."""
    missing: int = 0
    """Executions that the header lists and whose results the block does not hold."""
    unlisted: int = 0
    """Results for which the header lists no execution."""
    disordered: bool = False
    """The header does not list them by ascending, adjoining nonces."""
    impossible: int = 0
    """Executions that the header lists and that no header of its shard can have: they count as none."""
    contradicted: int = 0
    """Executions whose results are of another header, by what the header says of them: they count as none."""


def brought(data: pb.BlockData, header: Header) -> Brought:
    """What a block with this header brings."""
    found: dict[bytes, Execution] = {}
    missing = contradicted = 0
    possible = header.possible_executions
    impossible = len(header.executions) - len(possible)
    for execution in possible:
        key = execution.block_hash.hex()
        if key not in data.results:
            missing += 1
        elif not _fits(data.results[key], execution):
            contradicted += 1
        else:
            found.setdefault(execution.block_hash, execution)
    nonces = [execution.nonce for execution in header.executions]
    disordered = nonces != list(range(nonces[0], nonces[0] + len(nonces))) if nonces else False
    unlisted = len(data.results.keys() - {execution.block_hash.hex() for execution in header.executions})
    return Brought(tuple(found.values()), missing, unlisted, disordered, impossible, contradicted)


def _fits(result: pb.ExecutionResultData, execution: Execution) -> bool:
    """Whether a result is the execution's: no hash stands for all of it, but one does for each of its miniblocks."""
    if result.headerNonce != execution.nonce:
        return False
    named = {miniblock.hash for miniblock in execution.miniblocks}
    return all(
        blake2b(outport.canonical(miniblock), digest_size=_HASH_SIZE).digest() in named
        for miniblock in result.body.miniBlocks
    )


def executed_block(
    block: SlicedBlock, result: SlicedResult, block_hash: bytes, header: Header, execution: Execution
) -> SlicedBlock:
    """The execution as a block of the earlier shape; `block` with its hash and header is the one that brings it.

    Its header is made up from what is known of the execution, so it does not hash to the block's hash.
    """
    message = SlicedBlock(
        shardID=block.shardID,
        transactionPool=result.transactionPool,
        headerGasConsumption=result.headerGasConsumption,
        alteredAccounts=result.alteredAccounts,
        numberOfShards=block.numberOfShards,
        highestFinalBlockNonce=block.highestFinalBlockNonce,
        highestFinalBlockHash=block.highestFinalBlockHash,
        carryingHeaderHash=block_hash,
        carryingHeaderNonce=header.nonce,
    )
    data = message.blockData
    data.shardID = block.blockData.shardID
    data.headerHash = execution.block_hash
    data.headerType = b"MetaBlock" if data.shardID == METACHAIN else b"HeaderV2"
    data.headerBytes = _header(data.shardID, execution, result.timestampMs).SerializeToString()
    data.body.extend(result.body or (b"",))
    data.intraShardMiniBlocks.extend(result.intraShardMiniBlocks)
    data.timestampMs = result.timestampMs
    return message


def _header(shard: int, execution: Execution, timestamp_ms: int) -> pb.HeaderV2 | pb.MetaBlock:
    header = pb.MetaBlock() if shard == METACHAIN else pb.Header(shardID=shard)
    header.nonce, header.round, header.epoch = execution.nonce, execution.round, execution.epoch
    header.timeStamp = timestamp_ms // 1000
    header.rootHash = execution.root_hash
    header.miniBlockHeaders.extend(execution.miniblocks)
    header.txCount = execution.tx_count
    header.accumulatedFees = bigint.encode(execution.accumulated_fees)
    header.developerFees = bigint.encode(execution.developer_fees)
    return header if isinstance(header, pb.MetaBlock) else pb.HeaderV2(header=header)
