"""Blocks cut into parts that are passed on as they came, and what two nodes must agree on in them.

To decode and to encode a block costs little; a wrapper for each of its parts does. So a block is cut by the messages of
`slices.proto`, where transactions, accounts and events are bytes, and only what a rule asks for is taken out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from itertools import islice
from operator import lt
from typing import NamedTuple

from blake3 import blake3
from google.protobuf.message import Message

from millrace.chain import outport
from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import SlicedBlock, SlicedPool, SlicedResult

_DIGEST_SIZE = 24  # bytes, which no earlier version had. SHA-256 takes twice as long as BLAKE3, BLAKE2b four times
_OF_THE_MOMENT = ("highestFinalBlockNonce", "highestFinalBlockHash", "signersIndexes")
# Fields that stand behind those.
_LAST = ("leaderIndex", "leaderKey", "stateAccesses", "stateAccessesForBlock")


class Cut(NamedTuple):
    """A block in slices."""

    block: SlicedBlock
    payload: bytes
    """The block's bytes, entries of maps in the order of their keys."""
    results: list[bytes]
    """The entries of its smart-contract results; to take them out again would cost as much as to look at them."""


def cut(payload: bytes, block: pb.OutportBlock) -> Cut:
    """The slices of a payload; `block` is the payload decoded."""
    sliced = SlicedBlock.FromString(payload)
    results = list(sliced.transactionPool.smartContractResults)
    in_order = _ascends(results, block.transactionPool.smartContractResults)
    if in_order and all(_ascends(list(told), read) for told, read in _other_maps(sliced, block)):
        return Cut(sliced, payload, results)
    payload = outport.canonical(block)  # no Go node writes so
    sliced = SlicedBlock.FromString(payload)
    return Cut(sliced, payload, list(sliced.transactionPool.smartContractResults))


def _other_maps(sliced: SlicedBlock, block: pb.OutportBlock) -> Iterator[tuple[Iterable[bytes], Sized]]:
    """The entries of every map in a block as they came, and decoded; smart-contract results of its pool left out."""
    yield sliced.alteredAccounts, block.alteredAccounts
    yield from _other_maps_of_pool(sliced.transactionPool, block.transactionPool)
    if sliced.blockData.results:
        results = block.blockData.results
        yield [entry.SerializeToString() for entry in sliced.blockData.results], results
        for entry in sliced.blockData.results:
            told, read = entry.value, results[entry.key.decode()]
            yield told.alteredAccounts, read.alteredAccounts
            yield told.transactionPool.smartContractResults, read.transactionPool.smartContractResults
            yield from _other_maps_of_pool(told.transactionPool, read.transactionPool)


def _other_maps_of_pool(told: SlicedPool, read: pb.TransactionPool) -> Iterator[tuple[Iterable[bytes], Sized]]:
    yield told.transactions, read.transactions
    yield told.rewards, read.rewards
    yield told.receipts, read.receipts
    yield told.invalidTxs, read.invalidTxs
    yield told.unexecutableTransactions, read.unexecutableTransactions


def _ascends(told: list[bytes], read: Sized) -> bool:
    """Whether the keys of a map ascend, for keys of one length, up to 127 bytes, that stand before their values.

    Entries that ascend and begin alike have keys that do, if no key comes twice: then fewer were read.
    """
    if len(told) < 2:
        return True
    first, last = told[0], told[-1]
    begins_alike = first[:2] == last[:2] and first[:1] == b"\x0a" and first[1] <= 127
    return begins_alike and len(read) == len(told) and all(map(lt, told, islice(told, 1, None)))


def block_digest(block: SlicedBlock, payload: bytes) -> bytes:
    """Bytes that two nodes agree on when they tell the same block; `block` and `payload` are what `cut` gave.

    Parts in which honest nodes differ do not count: how far finality had come when it was sent, and which signatures
    this node had collected. They stand near the payload's ends, so what is between is not encoded again: it counts as
    it was written, which every Go node does in the order of the fields' numbers.
    """
    head = SlicedBlock(shardID=block.shardID, blockData=block.blockData)
    told_first = head.SerializeToString()
    head.blockData.ClearField("proof")
    moment = _only(block, *_OF_THE_MOMENT).SerializeToString()
    told_last = _only(block, *_LAST).SerializeToString()
    if payload.startswith(told_first) and payload.endswith(moment + told_last):
        content = blake3(head.SerializeToString())
        content.update(memoryview(payload)[len(told_first) : len(payload) - len(moment) - len(told_last)])
        content.update(told_last)
        return content.digest(length=_DIGEST_SIZE)
    with _without(block, *_OF_THE_MOMENT), _without(block.blockData, "proof"):  # no Go node writes so
        return digest(block.SerializeToString())


def _only(block: SlicedBlock, *names: str) -> SlicedBlock:
    """A block that has only these fields."""
    return SlicedBlock(**{name: getattr(block, name) for name in names})


def proposal_digests(block: SlicedBlock) -> tuple[bytes, dict[str, bytes]]:
    """The same of a block that proposes, and of each result that it brings, by its key.

    Here honest nodes also differ in results' accounts, whose values are those of the moment a node sent them, in what
    they still know of transactions that could not be executed, and in storage accesses, which few collect.
    """
    results = {entry.key.decode(): _result_digest(entry.value) for entry in block.blockData.results}
    with _without(block, *_OF_THE_MOMENT, "stateAccessesForBlock"), _without(block.blockData, "proof", "results"):
        whole = digest(block.SerializeToString())
    told = b"".join(key.encode() + results[key] for key in sorted(results))
    return digest(whole + told), results


def _result_digest(result: SlicedResult) -> bytes:
    with _without(result, "alteredAccounts"), _without(result.transactionPool, "unexecutableTransactions"):
        return digest(result.SerializeToString())


def digest(content: bytes) -> bytes:
    """What is remembered of a block's content."""
    return blake3(content).digest(length=_DIGEST_SIZE)


@contextmanager
def _without(message: Message, *names: str) -> Iterator[None]:
    """Take fields, which are numbers, bytes or lists of those, out of a message for a while."""
    kept = {name: getattr(message, name) for name in names}
    kept = {name: value if isinstance(value, int | bytes) else list(value) for name, value in kept.items()}
    for name in names:
        message.ClearField(name)
    yield
    for name, value in kept.items():
        if isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
