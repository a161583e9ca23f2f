"""Turn a block as nodes tell it into the block as consumers want it. No I/O.

Only the logs of the transaction pool change; everything else stays as the node sent it. Events are bytes, decoded only
where a rule asks for more than their identifier:

1. a log of a smart-contract result carries the hash of the transaction that caused it;
2. a transfer of several tokens in one event becomes one event per token;
3. transfers that a failure undid are left out;
4. a transfer told by the sender's shard is not told again by the receiver's shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.proto.slices_pb2 import ResultColumns, SlicedPool

MULTI_TRANSFER = b"MultiESDTNFTTransfer"
TRANSFERS = frozenset((b"ESDTTransfer", b"ESDTNFTTransfer", MULTI_TRANSFER, b"transferValueOnly"))
FAILURES = frozenset((b"signalError", b"internalVMErrors"))

_ADDRESS = b"\x0a\x20"  # how an event begins that has an address of 32 bytes
_TOPIC, _AFTER_TOPICS = 0x1A, b"\x22\x2a"  # tags of its fields: of a topic; of data and additional data
_MAX_SPLIT_BYTES = 64 * 1024 * 1024  # what the splitting of a block's transfers may produce
_REMEMBERED_RESULTS = 100_000
_REMEMBERED_TRANSFERS = 100_000

K = TypeVar("K")
V = TypeVar("V")
_Event = tuple[bytes, bytes]
"""An event, encoded, and its identifier."""


class _Newest(Generic[K, V]):
    """The values that came last, between half of `limit` and `limit` of them: the older half goes at once."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._new: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._new.get(key)
        return self._old.get(key) if value is None else value

    def update(self, values: dict[K, V]) -> None:
        if len(self._new) + len(values) < self._half:
            self._new.update(values)
            return
        for key, value in values.items():
            self._new[key] = value
            if len(self._new) >= self._half:
                self._old, self._new = self._new, {}

    def __len__(self) -> int:
        return len(self._new) + len(self._old)


class Memory:
    """What one block needs to know of earlier ones, of all shards; bounded, the oldest is forgotten first."""

    def __init__(self) -> None:
        self._originals: _Newest[str, str] = _Newest(_REMEMBERED_RESULTS)
        self._transfers: _Newest[int, tuple[int, int]] = _Newest(_REMEMBERED_TRANSFERS)

    def remember_results(self, originals: dict[str, str]) -> None:
        """Smart-contract results (hex hash) belong to transactions (hex hash)."""
        self._originals.update(originals)

    def original_of(self, result: str) -> str | None:
        """The transaction of a result seen in an earlier block."""
        return self._originals.get(result)

    def remember_transfers(self, shard: int, told: list[int]) -> None:
        """Transfers which a block of `shard` told, each as often as it did. The shard that told one first counts."""
        seen = {}
        for key, times in Counter(told).items():
            known = self._transfers.get(key)
            if known is None or known[0] == shard:
                seen[key] = shard, times
        self._transfers.update(seen)

    def told_elsewhere(self, shard: int, key: int) -> int:
        """How often another shard told this transfer."""
        known = self._transfers.get(key)
        return 0 if known is None or known[0] == shard else known[1]


class Facts(NamedTuple):
    """What a block, or an execution that a block brings, says besides its logs. Hashes are in hex."""

    shard: int
    originals: dict[str, str]
    """Smart-contract result -> the transaction that it belongs to."""
    invalid: frozenset[str]
    """Transactions that had no effect."""
    arrived: frozenset[str]
    """Transactions and results that came from another shard to be executed here."""


def facts_of(shard: int, pool: SlicedPool, body: pb.Body) -> Facts:
    """The facts of what `shard` executed."""
    arrived = frozenset(
        tx_hash.hex()
        for miniblock in body.miniBlocks
        if miniblock.senderShardID != shard and miniblock.receiverShardID == shard
        for tx_hash in miniblock.txHashes
    )
    invalid = ResultColumns.FromString(b"".join(pool.invalidTxs)).key
    return Facts(shard, _originals(pool.smartContractResults), frozenset(invalid), arrived)


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
    # Each access to a part of a message costs: what is asked for again is taken out once.
    logs = [(log, log.txHash, list(log.log.events)) for log in pool.logs]
    identifiers = [list(map(_identifier, events)) for _, _, events in logs]
    # A failed result takes its own transfers back, a failed transaction those of all its results of this block.
    failed = set(facts.invalid)
    failed.update(
        execution
        for (_, execution, _), inside in zip(logs, identifiers, strict=True)
        if not FAILURES.isdisjoint(inside)
    )
    splitter = splitter or Splitter()
    told: list[int] = []
    confirmed: Counter[int] = Counter()
    for (log, execution, before), inside in zip(logs, identifiers, strict=True):
        owner = facts.originals.get(execution) or memory.original_of(execution) or execution
        if owner != execution:
            log.txHash = owner
        if TRANSFERS.isdisjoint(inside):
            continue
        undone, arrived = execution in failed or owner in failed, execution in facts.arrived
        if not (undone or arrived or MULTI_TRANSFER in inside):  # nearly always: all stays as it is
            told += [_transfer_key(owner, *item) for item in zip(before, inside, strict=True) if item[1] in TRANSFERS]
            continue
        events = splitter.split(list(zip(before, inside, strict=True)))
        kept = events
        if undone:
            kept = [item for item in events if item[1] not in TRANSFERS]
        elif arrived:
            kept = _unconfirmed(events, owner, facts.shard, memory, confirmed)
        else:
            told += [_transfer_key(owner, *item) for item in events if item[1] in TRANSFERS]
        if len(events) != len(before) or len(kept) != len(events):
            log.log.events[:] = [event for event, _ in kept]
    memory.remember_transfers(facts.shard, told)


def _identifier(event: bytes) -> bytes:
    """Of an event; it need not be decoded when it begins as Go writes it, with an address of 32 bytes."""
    if event[:2] == _ADDRESS and event[34:35] == b"\x12" and event[35] < 0x80:
        return event[36 : 36 + event[35]]
    return pb.Event.FromString(event).identifier


def _unconfirmed(events: list[_Event], owner: str, shard: int, memory: Memory, confirmed: Counter[int]) -> list[_Event]:
    """The events without transfers that another shard told; `confirmed` counts the block's tellings of each."""
    kept = []
    for event, identifier in events:
        if identifier in TRANSFERS:
            key = _transfer_key(owner, event, identifier)
            confirmed[key] += 1
            if confirmed[key] <= memory.told_elsewhere(shard, key):
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


def _transfer_key(owner: str, encoded: bytes, identifier: bytes) -> int:
    """Equal for the two tellings of one transfer, by the sender's and by the receiver's shard.

    Python's hash, whose secret is new in every process: 64 bits that nobody can aim at, so two of all the transfers
    remembered are the same once in a thousand million notifiers.
    """
    return hash((owner, _without_data(encoded, identifier)))


def _without_data(encoded: bytes, identifier: bytes) -> bytes:
    """An event's address, identifier and topics as Go writes them; decoded only when it has not written them so."""
    if encoded[:2] == _ADDRESS and encoded[34:35] == b"\x12":
        end, size = 36 + len(identifier), len(encoded)
        while end < size and encoded[end] == _TOPIC and encoded[end + 1] < 0x80:
            end += 2 + encoded[end + 1]
        if end == size or encoded[end] in _AFTER_TOPICS:
            return encoded[:end]
    event = pb.Event.FromString(encoded)
    return pb.Event(address=event.address, identifier=identifier, topics=event.topics).SerializeToString()
