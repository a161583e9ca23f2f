"""Turn a block as nodes tell it into the block as consumers want it. No I/O.

Only the logs of the transaction pool change; everything else stays as the node sent it. Most logs change in nothing but
their hash: which others there are shows in their bytes, and only those are taken apart.

1. a log of a smart-contract result carries the hash of the transaction that caused it;
2. a transfer of several tokens in one event becomes one event per token;
3. transfers that a failure undid are left out;
4. a transfer told by the sender's shard is not told again by the receiver's shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import compress, repeat
from operator import contains, itemgetter
from typing import NamedTuple

from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import LogColumns, ResultColumns, SlicedLogData, SlicedPool
from millrace.notifier.rules.earlier import Memory
from millrace.notifier.rules.raw_events import (
    FAILURES,
    IN_FAILURES,
    IN_TRANSFERS,
    MULTI_TRANSFER,
    TRANSFERS,
    events_of,
    hash_of,
    identifier_of,
)

_MAX_SPLIT_BYTES = 64 * 1024 * 1024  # what the splitting of a block's transfers may produce

_HASH = b"\x0a"  # how a log begins that begins with a hash
_HEX = 64  # characters of a hash
_LONG_HASH = _HASH + bytes((_HEX,))

_Event = tuple[bytes, bytes]
"""An event, encoded, and its identifier."""


class Facts(NamedTuple):
    """What a block, or an execution that a block brings, says besides its logs. Hashes are in hex."""

    shard: int
    originals: dict[str, str]
    """Smart-contract result -> the transaction that it belongs to."""
    invalid: frozenset[str]
    """Transactions that had no effect."""
    arrived: frozenset[str]
    """Transactions and results that came from another shard to be executed here."""
    leaving: frozenset[str]
    """Transactions that go on in another shard, or whose results do."""


def facts_of(shard: int, pool: SlicedPool, body: pb.Body, results: Sequence[bytes] | None = None) -> Facts:
    """The facts of what `shard` executed; `results` are the pool's smart-contract results, if they are out already."""
    arrived: set[str] = set()
    gone: set[str] = set()
    for miniblock in body.miniBlocks:
        if miniblock.senderShardID != miniblock.receiverShardID:
            if miniblock.receiverShardID == shard:
                arrived.update(map(bytes.hex, miniblock.txHashes))
            elif miniblock.senderShardID == shard:
                gone.update(map(bytes.hex, miniblock.txHashes))
    invalid = ResultColumns.FromString(b"".join(pool.invalidTxs)).key
    originals = _originals(pool.smartContractResults if results is None else results)
    leaving = frozenset(originals.get(name) or name for name in gone)
    return Facts(shard, originals, frozenset(invalid), frozenset(arrived), leaving)


def _originals(results: Sequence[bytes]) -> dict[str, str]:
    """Hex hash of each result that names its transaction -> hex hash of that one."""
    columns = ResultColumns.FromString(b"".join(results))
    keys, originals = columns.key, columns.value.smartContractResult.originalTxHash
    if len(keys) == len(originals) == len(results):  # Go writes a field once or not at all
        return dict(zip(keys, map(bytes.hex, originals), strict=True))
    if len(results) == 1:
        return {key: original.hex() for key in keys[-1:] or ("",) for original in originals[-1:] if original}
    return {key: original for result in results for key, original in _originals((result,)).items()}


def normalise(pool: SlicedPool, facts: Facts, memory: Memory, splitter: Splitter | None = None) -> None:
    """Apply the rules to the logs of `pool`, in place, and remember what later blocks will need."""
    memory.remember_results(facts.originals)
    logs, executions = _tidy(pool.logs)
    original_before = memory.original_of
    owners = [
        here or original_before(execution) or execution
        for here, execution in zip(map(facts.originals.get, executions), executions, strict=True)
    ]
    tells = list(map(contains, logs, repeat(IN_TRANSFERS)))
    together = b"".join(logs)  # one look through all costs half of one through each
    failed = facts.invalid
    if IN_FAILURES in together:
        # A failed result takes its own transfers back, a failed transaction those of all its results of this block.
        failed |= {execution for log, execution in zip(logs, executions, strict=True) if _fails(log)}
    may_split, special = MULTI_TRANSFER in together, failed | facts.arrived
    if may_split or special:  # nearly all logs stay as they are
        rules = _Rules(facts, failed, memory, splitter or Splitter())
        for index, (log, execution, owner) in enumerate(zip(logs, executions, owners, strict=True)):
            if tells[index] and (execution in special or owner in failed or (may_split and MULTI_TRANSFER in log)):
                logs[index], tells[index] = rules.apply(log, execution, owner)
    if logs:  # to assign nothing would make a pool where the block has none
        pool.logs[:] = [
            log if owner == execution else _renamed(log, owner)
            for log, execution, owner in zip(logs, executions, owners, strict=True)
        ]
    memory.remember_transfers(facts.shard, list(compress(zip(owners, logs, strict=True), tells)), facts.leaving)


def _fails(log: bytes) -> bool:
    return IN_FAILURES in log and not FAILURES.isdisjoint(map(identifier_of, events_of(log)))


def _tidy(logs: Sequence[bytes]) -> tuple[list[bytes], list[str]]:
    """Logs that begin with their hash and have no other, and those hashes."""
    logs = list(logs)
    hashes = list(LogColumns.FromString(b"".join(logs)).txHash)
    if len(hashes) == len(logs) and all(map(bytes.startswith, logs, repeat(_HASH))):
        return logs, hashes
    read = list(map(SlicedLogData.FromString, logs))  # no Go node writes so
    return [log.SerializeToString() for log in read], [log.txHash for log in read]


def _renamed(log: bytes, owner: str) -> bytes:
    """A tidy log under another hash."""
    if len(owner) == _HEX and log.startswith(_LONG_HASH):
        return _LONG_HASH + owner.encode() + log[len(_LONG_HASH) + _HEX :]
    read = SlicedLogData.FromString(log)
    read.txHash = owner
    return read.SerializeToString()


class _Rules:
    """What becomes of the transfers of one block."""

    def __init__(self, facts: Facts, failed: frozenset[str], memory: Memory, splitter: Splitter) -> None:
        self._facts = facts
        self._failed = failed
        self._memory = memory
        self._splitter = splitter
        self._elsewhere: dict[str, dict[int, int]] = {}
        self._confirmed: Counter[tuple[str, int]] = Counter()

    def apply(self, log: bytes, execution: str, owner: str) -> tuple[bytes, bool]:
        """The log by the rules, and whether transfers of it are to be remembered."""
        before = [(event, identifier_of(event)) for event in events_of(log)]
        inside = {identifier for _, identifier in before}
        if TRANSFERS.isdisjoint(inside):
            return log, False
        undone, arrived = execution in self._failed or owner in self._failed, execution in self._facts.arrived
        events = self._splitter.split(before) if undone or arrived or MULTI_TRANSFER in inside else before
        kept = events
        if undone:
            kept = [item for item in events if item[1] not in TRANSFERS]
        elif arrived:
            kept = self._unconfirmed(events, owner)
        if len(events) != len(before) or len(kept) != len(events):
            read = SlicedLogData.FromString(log)
            read.log.events[:] = [event for event, _ in kept]
            log = read.SerializeToString()
        # An arrived transaction moves tokens, too, and on to other shards.
        return log, not undone and not TRANSFERS.isdisjoint(map(itemgetter(1), kept))

    def _unconfirmed(self, events: list[_Event], owner: str) -> list[_Event]:
        """The events without transfers that another shard told; each is left out as often as it did."""
        elsewhere = self._elsewhere.get(owner)
        if elsewhere is None:
            elsewhere = self._elsewhere[owner] = self._memory.told_elsewhere(self._facts.shard, owner)
        if not elsewhere:
            return events
        kept = []
        for event, identifier in events:
            if identifier in TRANSFERS:
                transfer = hash_of(event)
                self._confirmed[owner, transfer] += 1
                if self._confirmed[owner, transfer] <= elsewhere.get(transfer, 0):
                    continue
            kept.append((event, identifier))
        return kept


class Splitter:
    """Makes one event per token of the transfers of a block.

    Every new event repeats the data of the old one, so what they take together is bounded: beyond
    `_MAX_SPLIT_BYTES` the rest of the block's transfers stay as they are. No honest block comes near.
    """

    def __init__(self) -> None:
        self._left = _MAX_SPLIT_BYTES

    def split(self, events: list[_Event]) -> list[_Event]:
        """The events, with transfers of several tokens made one event per token.

        Topics of such an event: token, nonce, amount for each token, then the receiver.
        """
        result = []
        for encoded, identifier in events:
            if identifier == MULTI_TRANSFER:
                event = pb.Event.FromString(encoded)
                count = len(event.topics)
                size = len(encoded) * (count // 3)
                if count >= 7 and count % 3 == 1 and size <= self._left:
                    self._left -= size
                    result += [(single, identifier) for single in _one_per_token(event)]
                    continue
            result.append((encoded, identifier))
        return result


def _one_per_token(event: pb.Event) -> list[bytes]:
    topics = list(event.topics)
    singles = []
    for first in range(0, len(topics) - 1, 3):
        event.topics[:] = [*topics[first : first + 3], topics[-1]]
        singles.append(event.SerializeToString())
    return singles
