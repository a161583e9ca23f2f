"""What a block's header says, in whichever of the five formats.

In the earlier formats (`Header`, `HeaderV2`, `MetaBlock`) a block was executed when it was made. In the present ones
(`HeaderV3`, `MetaBlockV3`) a header proposes, and lists which earlier headers of its shard were executed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from millrace.chain import bigint, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.shard import METACHAIN
from millrace.chain.times import milliseconds

_PROPOSING = (pb.HeaderV3, pb.MetaBlockV3)
_HASH_SIZE = 32
_MAX_EXECUTIONS = 1024  # of a header are looked at; nodes list 20 at most


class Execution(msgspec.Struct, frozen=True):
    """What a header says of the execution of an earlier one. Fees in atomic units."""

    block_hash: bytes
    nonce: int
    round: int
    epoch: int
    root_hash: bytes
    miniblocks: tuple[pb.MiniBlockHeader, ...]
    accumulated_fees: int
    developer_fees: int
    tx_count: int
    """Transactions and contract results together, as the network counts."""


class Header(msgspec.Struct, frozen=True):
    """A header, as far as anything here asks for it. Fees in atomic units, 0 where a header only proposes."""

    nonce: int
    round: int
    epoch: int
    prev_hash: bytes
    timestamp_ms: int
    tx_count: int
    leader_signature: bytes
    miniblocks: tuple[pb.MiniBlockHeader, ...]
    shard: int
    accumulated_fees: int = 0
    developer_fees: int = 0
    proposes: bool = False
    """Its own transactions are executed later."""
    executions: tuple[Execution, ...] = ()
    """Of earlier headers, in their order."""
    last_executed_nonce: int | None = None
    """The newest header executed, this one's executions included; `None` where headers do not say."""

    @property
    def possible_executions(self) -> tuple[Execution, ...]:
        """Those of `executions` that earlier headers of the shard can have had."""
        return tuple(item for item in self.executions[:_MAX_EXECUTIONS] if self._may_list(item))

    def _may_list(self, execution: Execution) -> bool:
        """The earlier shape of blocks, in which executions are told, counts transactions in 32 bits."""
        has_hash = len(execution.block_hash) == _HASH_SIZE
        return has_hash and execution.nonce < self.nonce and execution.tx_count < 1 << 32


def proposes(header_type: str) -> bool:
    """Whether blocks of a header type are proposed first and executed later."""
    return outport.HEADERS.get(header_type) in _PROPOSING


def hash_matches(data: pb.BlockData) -> bool:
    """Whether a block's header bytes hash to the hash that it goes by."""
    return blake2b(data.headerBytes, digest_size=32).digest() == data.headerHash


def read_header(data: pb.BlockData) -> Header | None:
    """The header inside a block.

    `None` for a type this version does not know, for bytes that are no such header, and for a proposing header whose
    bytes do not hash to the block's hash: what it lists as executed decides over money.
    """
    header = outport.decode_header(data.headerType, data.headerBytes)
    try:
        return _read(header, data)
    except ValueError:  # a big integer that is none
        return None


def _read(header: outport.AnyHeader | None, data: pb.BlockData) -> Header | None:
    match header:
        case pb.HeaderV2():
            return _earlier(header.header, data.timestampMs)
        case pb.Header() | pb.MetaBlock():
            return _earlier(header, data.timestampMs)
        case pb.HeaderV3() if hash_matches(data):
            return _proposing(
                header,
                data.timestampMs,
                [(_shard_execution(item)) for item in header.executionResults],
                header.lastExecutionResult.executionResult,
            )
        case pb.MetaBlockV3() if hash_matches(data):
            return _proposing(
                header,
                data.timestampMs,
                [_meta_execution(item) for item in header.executionResults],
                header.lastExecutionResult.executionResult.baseExecutionResult,
            )
    return None


def _earlier(header: pb.Header | pb.MetaBlock, timestamp_ms: int) -> Header:
    return Header(
        nonce=header.nonce,
        round=header.round,
        epoch=header.epoch,
        prev_hash=header.prevHash,
        timestamp_ms=timestamp_ms or milliseconds(header.timeStamp),
        tx_count=header.txCount,
        leader_signature=header.leaderSignature,
        miniblocks=tuple(header.miniBlockHeaders),
        shard=METACHAIN if isinstance(header, pb.MetaBlock) else header.shardID,
        accumulated_fees=_amount(header.accumulatedFees),
        developer_fees=_amount(header.developerFees),
    )


def _proposing(
    header: pb.HeaderV3 | pb.MetaBlockV3,
    timestamp_ms: int,
    executions: Iterable[Execution],
    last: pb.BaseExecutionResult,
) -> Header:
    return Header(
        nonce=header.nonce,
        round=header.round,
        epoch=header.epoch,
        prev_hash=header.prevHash,
        timestamp_ms=timestamp_ms or header.timestampMs,
        tx_count=header.txCount,
        leader_signature=header.leaderSignature,
        miniblocks=tuple(header.miniBlockHeaders),
        shard=METACHAIN if isinstance(header, pb.MetaBlockV3) else header.shardID,
        proposes=True,
        executions=tuple(executions),
        last_executed_nonce=last.headerNonce,
    )


def _shard_execution(result: pb.ExecutionResult) -> Execution:
    return _execution(result.baseExecutionResult, result)


def _meta_execution(result: pb.MetaExecutionResult) -> Execution:
    return _execution(result.executionResult.baseExecutionResult, result)


def _execution(base: pb.BaseExecutionResult, result: pb.ExecutionResult | pb.MetaExecutionResult) -> Execution:
    return Execution(
        block_hash=base.headerHash,
        nonce=base.headerNonce,
        round=base.headerRound,
        epoch=base.headerEpoch,
        root_hash=base.rootHash,
        miniblocks=tuple(result.miniBlockHeaders),
        accumulated_fees=_amount(result.accumulatedFees),
        developer_fees=_amount(result.developerFees),
        tx_count=result.executedTxCount,
    )


def _amount(field: bytes) -> int:
    return (bigint.decode(field) or 0) if field else 0
