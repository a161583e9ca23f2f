"""Busy blocks as nodes send them, in both formats."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from millrace.chain import address, outport
from millrace.chain.proto import outport_pb2 as pb


class Format(NamedTuple):
    """How blocks come."""

    header_type: str
    told: int
    """Events that a consumer of all is told of one."""
    make: Callable[[int, pb.OutportBlock, pb.OutportBlock, bytes], pb.OutportBlock]
    """A block of a nonce, with what is proposed in it, what was in the one before, and that one's hash."""


def _content(shard: int, nonce: int, rng: random.Random) -> pb.OutportBlock:
    """What happens in a busy block: 120 transactions, 180 results, 180 logs with 520 events, 250 accounts."""
    block = pb.OutportBlock(shardID=shard, numberOfShards=3, highestFinalBlockNonce=max(0, nonce - 1))
    data = block.blockData
    data.shardID, data.timestampMs = shard, 1_700_000_000_000 + nonce
    pool = block.transactionPool
    people = [rng.randbytes(32) for _ in range(250)]
    hashes = [rng.randbytes(32) for _ in range(120)]
    for order, tx_hash in enumerate(hashes):
        info = pool.transactions[tx_hash.hex()]
        info.executionOrder = order
        info.transaction.nonce, info.transaction.value = nonce, b"\0\x0d\xe0\xb6\xb3\xa7\x64\0\0"
        info.transaction.sender, info.transaction.receiver = rng.choice(people), rng.choice(people)
        info.transaction.data, info.transaction.signature = rng.randbytes(180), rng.randbytes(64)
        info.feeInfo.gasUsed, info.feeInfo.fee = 5_000_000, b"\0\x2d\x79\x88\x3d\x20\0"
    data.body.miniBlocks.add(senderShardID=shard, receiverShardID=shard, txHashes=hashes)
    owners = list(hashes)
    for order in range(180):
        result = rng.randbytes(32)
        info = pool.smartContractResults[result.hex()]
        info.executionOrder = 120 + order
        content = info.smartContractResult
        content.originalTxHash = content.prevTxHash = rng.choice(hashes)
        content.sender, content.receiver = rng.choice(people), rng.choice(people)
        content.data, content.value = rng.randbytes(120), b"\0\0"
        owners.append(result)
    for owner in rng.sample(owners, 180):
        log = pool.logs.add(txHash=owner.hex())
        log.log.address = rng.choice(people)
        for _ in range(rng.choice((2, 3, 3, 4))):
            log.log.events.add(
                address=rng.choice(people),
                identifier=rng.choice((b"ESDTTransfer", b"swap", b"writeLog", b"completedTxEvent")),
                topics=[b"WEGLD-bd4d79", b"", rng.randbytes(8), rng.choice(people)],
                data=rng.randbytes(40),
            )
    for person in people:
        text = address.encode(person)
        account = block.alteredAccounts[text]
        account.address, account.nonce, account.balance = text, nonce, str(rng.randrange(10**21))
        account.tokens.add(identifier=b"WEGLD-bd4d79", balance=str(rng.randrange(10**21)))
    return block


def _earlier(nonce: int, content: pb.OutportBlock, _: pb.OutportBlock, previous: bytes) -> pb.OutportBlock:
    """A block that brings its own execution."""
    header = pb.Header(nonce=nonce, prevHash=previous, round=nonce, shardID=content.shardID, txCount=300)
    block = pb.OutportBlock()
    block.CopyFrom(content)
    block.blockData.headerType, block.blockData.headerBytes = "HeaderV2", outport.serialize(pb.HeaderV2(header=header))
    return block


def _later(nonce: int, content: pb.OutportBlock, before: pb.OutportBlock, previous: bytes) -> pb.OutportBlock:
    """A block that proposes, and brings the execution of the one before."""
    miniblocks = before.blockData.body.miniBlocks
    executed = pb.ExecutionResult(
        baseExecutionResult=pb.BaseExecutionResult(headerHash=previous, headerNonce=nonce - 1, headerRound=nonce - 1),
        miniBlockHeaders=[pb.MiniBlockHeader(hash=_hash(outport.canonical(item))) for item in miniblocks],
        executedTxCount=300,
    )
    executed.accumulatedFees = executed.developerFees = b"\0\0"
    header = pb.HeaderV3(
        nonce=nonce, prevHash=previous, round=nonce, shardID=content.shardID, txCount=120, executionResults=[executed]
    )
    block = pb.OutportBlock(shardID=content.shardID, numberOfShards=content.numberOfShards)
    block.transactionPool.SetInParent()
    data = block.blockData
    data.shardID, data.headerType, data.timestampMs = content.shardID, "HeaderV3", content.blockData.timestampMs
    data.headerBytes = outport.serialize(header)
    data.body.CopyFrom(content.blockData.body)
    result = data.results[previous.hex()]
    result.headerNonce, result.timestampMs = nonce - 1, before.blockData.timestampMs
    result.body.CopyFrom(before.blockData.body)
    result.transactionPool.CopyFrom(before.transactionPool)
    for name, account in before.alteredAccounts.items():
        result.alteredAccounts[name].CopyFrom(account)
    return block


EARLIER, TODAY = Format("HeaderV2", 1, _earlier), Format("HeaderV3", 2, _later)


def blocks(count: int, seed: int, form: Format = TODAY, shards: int = 4) -> Iterator[bytes]:
    """Blocks of several shards, in turn: a few different ones, each on top of the last one of its shard."""
    rng = random.Random(seed)
    contents = [_content(number % shards, 1, rng) for number in range(10 * shards)]
    newest = [rng.randbytes(32) for _ in range(shards)]
    for number in range(count):
        shard = number % shards
        content, before = contents[number % len(contents)], contents[(number - shards) % len(contents)]
        block = form.make(number // shards + 1 + 10_000 * seed, content, before, newest[shard])
        newest[shard] = block.blockData.headerHash = _hash(block.blockData.headerBytes)
        yield outport.canonical(block)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=32).digest()
