"""Blocks that are proposed first and executed later, as nodes send them and as the notifier tells their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from relayer_support import NETWORK, tx_message

from millrace.chain import address, bigint, outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction, chain_hash

ROUND_MS = 600


class Executed(NamedTuple):
    """What the execution of a block gave: what a later header says of it, and what it sends along."""

    listed: pb.ExecutionResult
    data: pb.ExecutionResultData


def hash_of(message: Any) -> bytes:
    """As the network hashes its messages."""
    return blake2b(outport.serialize(message), digest_size=32).digest()


def named(miniblocks: Iterable[pb.MiniBlock], reserved: bytes = b"") -> list[pb.MiniBlockHeader]:
    """What a header says of miniblocks."""
    return [
        pb.MiniBlockHeader(
            hash=hash_of(item),
            senderShardID=item.senderShardID,
            receiverShardID=item.receiverShardID,
            txCount=len(item.txHashes),
            type=item.type,
            reserved=reserved,
        )
        for item in miniblocks
    ]


class LaterMaker:
    """One shard's chain, each block on top of the last one that was not said to be a fork."""

    def __init__(self, shard: int, *, nonce: int = 0, previous: bytes = b"\0" * 32, start_ms: int = 1_790_000_000_000):
        self.shard = shard
        self.nonce = nonce
        self.previous = previous
        self.start_ms = start_ms

    def propose(
        self,
        transactions: Sequence[Transaction] = (),
        results: Sequence[Executed] = (),
        *,
        last_executed: int = 0,
        fork: int = 0,
    ) -> pb.OutportBlock:
        """A block that proposes transactions and brings results; with `fork` the next one takes its place."""
        nonce = self.nonce + 1
        body: dict[int, list[bytes]] = {}
        for tx in transactions:  # all that leave are in one miniblock, whoever receives them
            body.setdefault(NETWORK.shard_of(tx.sender), []).append(chain_hash(tx))
        miniblocks = [
            pb.MiniBlock(txHashes=hashes, senderShardID=sender, receiverShardID=self.shard)
            for sender, hashes in body.items()
        ]
        last = results[-1].listed.baseExecutionResult if results else pb.BaseExecutionResult(headerNonce=last_executed)
        header = pb.HeaderV3(
            nonce=nonce,
            prevHash=self.previous,
            randSeed=bytes([fork]),
            shardID=self.shard,
            timestampMs=self.start_ms + ROUND_MS * nonce,
            round=nonce + 7,
            epoch=3,
            leaderSignature=b"\x0a\x0b",
            miniBlockHeaders=named(miniblocks, b"\x10\x01"),
            txCount=len(transactions),
            softwareVersion=b"3",
            lastExecutionResult=pb.ExecutionResultInfo(executionResult=last),
            executionResults=[item.listed for item in results],
        )
        data = pb.BlockData(
            shardID=self.shard,
            headerBytes=outport.serialize(header),
            headerType="HeaderV3",
            body=pb.Body(miniBlocks=miniblocks),
            timestampMs=header.timestampMs,
            proof=pb.HeaderProof(pubKeysBitmap=b"\xff\x01"),
            results={item.listed.baseExecutionResult.headerHash.hex(): item.data for item in results},
        )
        data.headerHash = blake2b(data.headerBytes, digest_size=32).digest()
        if not fork:
            self.nonce, self.previous = nonce, data.headerHash
        return pb.OutportBlock(shardID=self.shard, blockData=data, transactionPool=pb.TransactionPool())

    def execute(
        self,
        block: pb.OutportBlock,
        transactions: Sequence[Transaction] = (),
        *,
        invalid: Sequence[Transaction] = (),
        unexecutable: Sequence[Transaction] = (),
        failing: Sequence[Transaction] = (),
        accounts: dict[bytes, tuple[int, int]] | None = None,
    ) -> Executed:
        """The execution of a block; of `unexecutable` ones it names those that are given, not those left out."""
        header = pb.HeaderV3.FromString(block.blockData.headerBytes)
        data = pb.ExecutionResultData(headerNonce=header.nonce, timestampMs=header.timestampMs)
        pool = data.transactionPool
        split: dict[tuple[int, int], list[bytes]] = {}
        for tx in transactions:
            shards = NETWORK.shard_of(tx.sender), NETWORK.shard_of(tx.receiver)
            split.setdefault(shards, []).append(chain_hash(tx))
            _add(pool.transactions, tx)
        for (sender, receiver), hashes in split.items():
            data.body.miniBlocks.add(txHashes=hashes, senderShardID=sender, receiverShardID=receiver)
        for tx in invalid:
            _add(pool.invalidTxs, tx)
        if invalid:
            hashes = [chain_hash(tx) for tx in invalid]
            data.intraShardMiniBlocks.add(
                txHashes=hashes, senderShardID=self.shard, receiverShardID=self.shard, type=pb.InvalidBlock
            )
        for tx in (*invalid, *failing):
            event = pb.Event(identifier=b"signalError", topics=[tx.sender, b"no"], data=b"@04")
            pool.logs.append(pb.LogData(txHash=chain_hash(tx).hex(), log=pb.Log(events=[event])))
        for tx in unexecutable:
            pool.unexecutableTransactions[chain_hash(tx).hex()].CopyFrom(tx_message(tx))
        for pubkey, (nonce, balance) in (accounts or {}).items():
            text = address.encode(pubkey)
            data.alteredAccounts[text].CopyFrom(pb.AlteredAccount(address=text, nonce=nonce, balance=str(balance)))
        listed = pb.ExecutionResult(
            baseExecutionResult=pb.BaseExecutionResult(
                headerHash=block.blockData.headerHash,
                headerNonce=header.nonce,
                headerRound=header.round,
                headerEpoch=header.epoch,
            ),
            miniBlockHeaders=named(data.body.miniBlocks),
            accumulatedFees=bigint.encode(9),
            developerFees=bigint.encode(2),
            executedTxCount=len(transactions) + 1,  # contract results count, too
        )
        return Executed(listed, data)


def _add(pool: Any, tx: Transaction) -> None:
    info = pool[chain_hash(tx).hex()]
    info.transaction.CopyFrom(tx_message(tx))
    info.feeInfo.fee = bigint.encode(50_000 * tx.gas_price)


class LaterChain:
    """A chain of one shard for a relayer under test: each block brings what was executed of the one before."""

    def __init__(self, events: Any, shard: int, **start: Any) -> None:
        self._events = events
        self._sequence = 0
        self.maker = LaterMaker(shard, **start)
        self.executed_topic = outport.EXECUTED_BLOCK
        """The name under which the notifier tells executions, its setting."""

    def tell(self, topic: str, message: Any, marks: int = 0) -> None:
        self._sequence += 1
        self._events.on_event(topic, outport.serialize(message), self._sequence, marks)

    def save(self, block: pb.OutportBlock, *, but: Sequence[bytes] = ()) -> pb.OutportBlock:
        """A block and its results, but those of some blocks, which were told before."""
        self.tell(outport.SAVE_BLOCK, block)
        for result in results_of(block):
            if result.blockData.headerHash not in but:
                self.tell(self.executed_topic, result)
        return block

    def finalise(self, block: pb.OutportBlock) -> None:
        message = pb.FinalizedBlock(shardID=block.shardID, headerHash=block.blockData.headerHash)
        self.tell(outport.FINALIZED_BLOCK, message)

    def revert(self, block: pb.OutportBlock) -> None:
        data = pb.BlockData.FromString(block.blockData.SerializeToString())
        data.results.clear()
        self.tell(outport.REVERT_INDEXED_BLOCK, data)

    def propose(self, transactions: Sequence[Transaction] = ()) -> pb.OutportBlock:
        """A final block that proposes, and brings nothing."""
        block = self.save(self.maker.propose(transactions))
        self.finalise(block)
        return block

    def execute(self, block: pb.OutportBlock, *args: Any, **options: Any) -> pb.OutportBlock:
        """A final block that brings a result, see `LaterMaker.execute`."""
        carrier = self.save(self.maker.propose([], [self.maker.execute(block, *args, **options)]))
        self.finalise(carrier)
        return carrier


def results_of(block: pb.OutportBlock) -> list[pb.OutportBlock]:
    """The results a block brings, each as the notifier tells it: as a block that was executed when it was made."""
    data = block.blockData
    is_meta = data.headerType == "MetaBlockV3"
    header: Any = (pb.MetaBlockV3 if is_meta else pb.HeaderV3).FromString(data.headerBytes)
    told = []
    for item in header.executionResults:
        base = item.executionResult.baseExecutionResult if is_meta else item.baseExecutionResult
        result = data.results.get(base.headerHash.hex())
        if result is None:
            continue
        fields: dict[str, Any] = {
            "nonce": base.headerNonce,
            "round": base.headerRound,
            "epoch": base.headerEpoch,
            "timeStamp": result.timestampMs,
            "rootHash": base.rootHash,
            "miniBlockHeaders": item.miniBlockHeaders,
            "txCount": item.executedTxCount,
            "accumulatedFees": item.accumulatedFees,
            "developerFees": item.developerFees,
        }
        made = pb.MetaBlock(**fields) if is_meta else pb.HeaderV2(header=pb.Header(shardID=data.shardID, **fields))
        message = pb.OutportBlock(
            shardID=data.shardID,
            transactionPool=result.transactionPool,
            alteredAccounts=result.alteredAccounts,
            headerGasConsumption=result.headerGasConsumption,
            carryingHeaderHash=data.headerHash,
            carryingHeaderNonce=header.nonce,
            blockData=pb.BlockData(
                shardID=data.shardID,
                headerHash=base.headerHash,
                headerType="MetaBlock" if is_meta else "HeaderV2",
                headerBytes=outport.serialize(made),
                body=result.body,
                intraShardMiniBlocks=result.intraShardMiniBlocks,
                timestampMs=result.timestampMs,
            ),
        )
        told.append(message)
    return told
