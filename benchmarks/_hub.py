"""A stand-in for the notifier's hub, and blocks to send through it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from millrace.chain import bigint, outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.runtime import websocket


class Told(NamedTuple):
    """A block as the notifier tells it."""

    saved: pb.OutportBlock
    executed: pb.OutportBlock
    """The one before, whose execution it brings."""


class Hub:
    """Sends events to whoever has subscribed; a relayer does so twice at its start, once for the prices of before."""

    def __init__(self) -> None:
        self._links: list[websocket.Session] = []
        self._server: websocket.WsServer | None = None
        self._sequence = 0

    async def start(self) -> str:
        """Listen; the URL."""
        hub = self

        class Link(websocket.Session):
            def on_message(self, kind: websocket.Kind, data: bytes) -> None:
                envelope = outport.decode_envelope(data)
                if envelope.type != outport.ACK:
                    wish = hub_pb2.SubscribeEvent.FromString(envelope.payload)
                    reply = hub_pb2.SubscribeReply(subscription_id=wish.subscription_id, ok=True, head=hub._sequence)
                    self.send_binary(outport.payload_envelope("subscribe", reply.SerializeToString(), 0))
                    hub._links.append(self)

            def on_close(self) -> None:
                if self in hub._links:
                    hub._links.remove(self)

        self._server = await websocket.serve(lambda _: Link(), "127.0.0.1", 0)
        return f"ws://127.0.0.1:{self._server.port}/hub/ws"

    def save(self, told: Told) -> None:
        """A block, the execution that it brings, and its finality, at once."""
        block = told.saved
        final = pb.FinalizedBlock(shardID=block.shardID, headerHash=block.blockData.headerHash)
        self._push(outport.SAVE_BLOCK, block.SerializeToString())
        self._push(outport.EXECUTED_BLOCK, told.executed.SerializeToString())
        self._push(outport.FINALIZED_BLOCK, final.SerializeToString())

    def _push(self, topic: str, payload: bytes) -> None:
        assert self._links, "the relayer has not come"
        self._sequence += 1
        for link in self._links:
            link.send_binary(outport.payload_envelope(topic, payload, self._sequence))

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            await self._server.close(grace=0.2)


class Blocks:
    """Blocks of one shard, one on top of the other, with transfers inside the shard.

    Each brings what was executed of the one before. That one does not name what it proposes: it went out before anybody
    knew what would be asked for.
    """

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._nonce = 0
        self._newest = bytes(32)

    def next(self, hashes: Sequence[bytes]) -> Told:
        """A block that brings the execution of transactions with these hashes."""
        stamp = time.time_ns() // 1_000_000
        inside = pb.MiniBlock(txHashes=hashes, senderShardID=self._shard, receiverShardID=self._shard, type=0)  # type: ignore[arg-type]
        named = pb.MiniBlockHeader(hash=_hash(outport.canonical(inside)), txCount=len(hashes))
        listed = pb.ExecutionResult(
            baseExecutionResult=pb.BaseExecutionResult(headerHash=self._newest, headerNonce=self._nonce),
            miniBlockHeaders=[named], executedTxCount=len(hashes),
            accumulatedFees=bigint.encode(10**15), developerFees=bigint.encode(0),
        )  # fmt: skip
        result = pb.ExecutionResultData(headerNonce=self._nonce, timestampMs=stamp - 1)
        result.body.miniBlocks.append(inside)
        _transfer(result.transactionPool, bytes([1] * 31 + [self._shard]), hashes)
        self._nonce += 1
        header = pb.HeaderV3(
            nonce=self._nonce, round=self._nonce, prevHash=self._newest, shardID=self._shard, timestampMs=stamp,
            leaderSignature=bytes(48), executionResults=[listed],
            lastExecutionResult=pb.ExecutionResultInfo(executionResult=listed.baseExecutionResult),
        )  # fmt: skip
        saved = pb.OutportBlock(shardID=self._shard, transactionPool=pb.TransactionPool())
        data = saved.blockData
        data.shardID, data.headerType, data.timestampMs = self._shard, "HeaderV3", stamp
        data.headerBytes = outport.serialize(header)
        data.results[self._newest.hex()].CopyFrom(result)
        data.headerHash = self._newest = _hash(data.headerBytes)
        return Told(saved, _executed(saved, self._nonce, listed, result))


def _executed(
    saved: pb.OutportBlock, nonce: int, listed: pb.ExecutionResult, result: pb.ExecutionResultData
) -> pb.OutportBlock:
    """An execution as the notifier tells it: a block of the earlier shape, with the one that brought it."""
    base = listed.baseExecutionResult
    header = pb.Header(
        nonce=base.headerNonce, shardID=saved.shardID, timeStamp=result.timestampMs // 1000,
        txCount=listed.executedTxCount, miniBlockHeaders=listed.miniBlockHeaders,
        accumulatedFees=listed.accumulatedFees, developerFees=listed.developerFees,
    )  # fmt: skip
    message = pb.OutportBlock(
        shardID=saved.shardID, transactionPool=result.transactionPool,
        carryingHeaderHash=saved.blockData.headerHash, carryingHeaderNonce=nonce,
    )  # fmt: skip
    data = message.blockData
    data.shardID, data.headerHash, data.headerType = saved.shardID, base.headerHash, "HeaderV2"
    data.headerBytes = pb.HeaderV2(header=header).SerializeToString()
    data.body.CopyFrom(result.body)
    data.timestampMs = result.timestampMs
    return message


def _transfer(pool: pb.TransactionPool, address: bytes, hashes: Sequence[bytes]) -> None:
    """Put transfers of an account to itself into what was executed."""
    for number, name in enumerate(hashes):
        info = pool.transactions[name.hex()]
        info.transaction.CopyFrom(
            pb.Transaction(
                nonce=number,
                value=bigint.encode(10**18),
                receiver=address,
                sender=address,
                gasLimit=50_000,
                gasPrice=10**9 + number % 7 * 10**8,
                chainID=b"1",
                version=2,
                signature=bytes(64),
            )
        )
        info.feeInfo.fee = bigint.encode(5 * 10**13)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()
