"""A stand-in for the notifier's hub, and blocks to send through it."""

from __future__ import annotations

import os
import time

from millrace.chain import bigint, outport
from millrace.chain.proto import hub_pb2
from millrace.chain.proto import outport_pb2 as pb
from millrace.runtime import websocket


class Hub:
    """Sends events to one consumer."""

    def __init__(self) -> None:
        self._link: websocket.Session | None = None
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
                    hub._link = self

        self._server = await websocket.serve(lambda _: Link(), "127.0.0.1", 0)
        return f"ws://127.0.0.1:{self._server.port}/hub/ws"

    def save(self, block: pb.OutportBlock) -> None:
        """A block and its finality, at once."""
        final = pb.FinalizedBlock(shardID=block.shardID, headerHash=block.blockData.headerHash)
        self._push(outport.SAVE_BLOCK, block.SerializeToString())
        self._push(outport.FINALIZED_BLOCK, final.SerializeToString())

    def _push(self, topic: str, payload: bytes) -> None:
        assert self._link is not None, "the relayer has not come"
        self._sequence += 1
        self._link.send_binary(outport.payload_envelope(topic, payload, self._sequence))

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            await self._server.close(grace=0.2)


class Blocks:
    """Blocks of one shard, one on top of the other, with transfers inside the shard."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._nonce = 0
        self._previous = bytes(32)

    def next(self, hashes: list[bytes]) -> pb.OutportBlock:
        """A block whose transactions have these hashes."""
        self._nonce += 1
        stamp = time.time_ns() // 1_000_000
        header = pb.Header(
            nonce=self._nonce, round=self._nonce, prevHash=self._previous, shardID=self._shard,
            timeStamp=stamp // 1000, txCount=len(hashes), accumulatedFees=bigint.encode(10**15),
            developerFees=bigint.encode(0), leaderSignature=bytes(48),
        )  # fmt: skip
        self._previous = os.urandom(32)
        message = pb.OutportBlock(shardID=self._shard)
        data = message.blockData
        data.shardID, data.headerHash, data.headerType = self._shard, self._previous, "HeaderV2"
        data.headerBytes = pb.HeaderV2(header=header).SerializeToString()
        data.timestampMs = stamp
        inside = pb.MiniBlock(txHashes=hashes, senderShardID=self._shard, receiverShardID=self._shard, type=0)  # type: ignore[arg-type]
        data.body.miniBlocks.append(inside)
        address = bytes([1] * 31 + [self._shard])
        for number, name in enumerate(hashes):
            info = message.transactionPool.transactions[name.hex()]
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
        return message
