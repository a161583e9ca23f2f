"""Turn a block as nodes tell it into the block as consumers want it. No I/O.

Only the logs of the transaction pool change; everything else stays as the node sent it:

1. a log of a smart-contract result carries the hash of the transaction that caused it;
2. a transfer of several tokens in one event becomes one event per token;
3. transfers that a failure undid are left out;
4. a transfer told by the sender's shard is not told again by the receiver's shard.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Sequence

from millrace.chain.proto import outport_pb2 as pb

MULTI_TRANSFER = b"MultiESDTNFTTransfer"
TRANSFERS = frozenset((b"ESDTTransfer", b"ESDTNFTTransfer", MULTI_TRANSFER, b"transferValueOnly"))
FAILURES = frozenset((b"signalError", b"internalVMErrors"))

_MAX_SPLIT_BYTES = 64 * 1024 * 1024  # what the splitting of a block's transfers may produce
_REMEMBERED_RESULTS = 100_000
_REMEMBERED_TRANSFERS = 100_000


class Memory:
    """What one block needs to know of earlier ones, of all shards; bounded, the oldest is forgotten first."""

    def __init__(self) -> None:
        self._originals: OrderedDict[str, str] = OrderedDict()
        self._transfers: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def remember_result(self, result: str, original: str) -> None:
        """A smart-contract result (hex hash) belongs to a transaction (hex hash)."""
        self._originals[result] = original
        if len(self._originals) > _REMEMBERED_RESULTS:
            self._originals.popitem(last=False)

    def original_of(self, result: str) -> str | None:
        """The transaction of a result seen in an earlier block."""
        return self._originals.get(result)

    def remember_transfers(self, shard: int, seen: Counter[bytes]) -> None:
        """Transfers which a block of `shard` told, with how often. The shard that told one first counts."""
        for key, times in seen.items():
            if self._transfers.get(key, (shard, 0))[0] == shard:
                self._transfers[key] = shard, times
                self._transfers.move_to_end(key)
        while len(self._transfers) > _REMEMBERED_TRANSFERS:
            self._transfers.popitem(last=False)

    def told_elsewhere(self, shard: int, key: bytes) -> int:
        """How often another shard told this transfer."""
        where, times = self._transfers.get(key, (shard, 0))
        return 0 if where == shard else times


def normalise(block: pb.OutportBlock, memory: Memory, splitter: Splitter | None = None) -> None:
    """Apply the rules to `block`, in place, and remember what later blocks will need."""
    pool = block.transactionPool
    originals = {}
    for result, info in pool.smartContractResults.items():
        original = info.smartContractResult.originalTxHash
        if original:
            originals[result] = original.hex()
            memory.remember_result(result, originals[result])
    if not pool.logs:
        return
    # Each access to a part of a message costs: what is asked for again is taken out once.
    logs = [(log, log.txHash, list(log.log.events)) for log in pool.logs]
    identifiers = [[event.identifier for event in events] for _, _, events in logs]
    # A failed result takes its own transfers back, a failed transaction those of all its results of this block.
    failed = set(pool.invalidTxs)
    failed.update(
        execution
        for (_, execution, _), inside in zip(logs, identifiers, strict=True)
        if not FAILURES.isdisjoint(inside)
    )
    arrived = _arrived(block)
    splitter = splitter or Splitter()
    told: Counter[bytes] = Counter()
    confirmed: Counter[bytes] = Counter()
    for (log, execution, before), inside in zip(logs, identifiers, strict=True):
        owner = originals.get(execution) or memory.original_of(execution) or execution
        if owner != execution:
            log.txHash = owner
        if TRANSFERS.isdisjoint(inside):
            continue
        undone = execution in failed or owner in failed
        confirms = execution in arrived
        events = splitter.split(before, inside)
        kept = []
        for event, identifier in events:
            if identifier in TRANSFERS:
                if undone:
                    continue
                key = _transfer_key(owner, identifier, event)
                if confirms:
                    confirmed[key] += 1
                    if confirmed[key] <= memory.told_elsewhere(block.shardID, key):
                        continue
                else:
                    told[key] += 1
            kept.append(event)
        if len(events) != len(before) or len(kept) != len(events):
            _replace(log.log, kept)
    memory.remember_transfers(block.shardID, told)


def _arrived(block: pb.OutportBlock) -> set[str]:
    """Hex hashes of transactions and results that came from another shard to be executed here."""
    shard = block.shardID
    return {
        tx_hash.hex()
        for miniblock in block.blockData.body.miniBlocks
        if miniblock.senderShardID != shard and miniblock.receiverShardID == shard
        for tx_hash in miniblock.txHashes
    }


class Splitter:
    """Makes one event per token of the transfers of a block.

    Every new event repeats the data of the old one, so what they take together is bounded: beyond
    `_MAX_SPLIT_BYTES` the rest of the block's transfers stay as they are. No honest block comes near.
    """

    def __init__(self) -> None:
        self._left = _MAX_SPLIT_BYTES

    def split(self, events: Sequence[pb.Event], identifiers: Sequence[bytes]) -> list[tuple[pb.Event, bytes]]:
        """The events, each with its identifier; transfers of several tokens are made one event per token.

        Topics of such an event: token, nonce, amount for each token, then the receiver.
        """
        result = []
        for event, identifier in zip(events, identifiers, strict=True):
            if identifier == MULTI_TRANSFER:
                count = len(event.topics)
                size = event.ByteSize() * (count // 3)
                if count >= 7 and count % 3 == 1 and size <= self._left:
                    self._left -= size
                    result += [(single, identifier) for single in _one_per_token(event)]
                    continue
            result.append((event, identifier))
        return result


def _one_per_token(event: pb.Event) -> list[pb.Event]:
    topics = list(event.topics)
    singles = []
    for first in range(0, len(topics) - 1, 3):
        single = pb.Event()
        single.CopyFrom(event)
        single.topics[:] = [*topics[first : first + 3], topics[-1]]
        singles.append(single)
    return singles


def _transfer_key(owner: str, identifier: bytes, event: pb.Event) -> bytes:
    """Equal for the two tellings of one transfer, by the sender's and by the receiver's shard."""
    parts = (owner.encode(), identifier, event.address, *event.topics)
    lengths = ",".join([str(len(part)) for part in parts]).encode()  # else two different lists could join to the same
    return hashlib.blake2b(b"".join((lengths, b"|", *parts)), digest_size=16).digest()


def _replace(log: pb.Log, events: list[pb.Event]) -> None:
    copies = []
    for event in events:
        copy = pb.Event()
        copy.CopyFrom(event)
        copies.append(copy)
    del log.events[:]
    log.events.extend(copies)
