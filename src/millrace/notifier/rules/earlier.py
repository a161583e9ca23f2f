"""What one block needs to know of earlier ones, of all shards. Bounded: the oldest is forgotten first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from operator import itemgetter
from struct import Struct
from typing import Generic, TypeVar

from millrace.notifier.rules.raw_events import transfers_of

_REMEMBERED_RESULTS = 100_000
_LEAVING_BYTES = 12 * 1024 * 1024  # of transfers that other shards will confirm, and …
_STAYING_BYTES = 4 * 1024 * 1024  # … of logs with those that no other shard should know of
_LOG_BYTES = 300  # what keeping one takes besides its bytes
_OWNER_BYTES = 150  # what the transfers of a transaction take besides theirs
_TRANSFER = Struct("=QIq")  # the telling that it belongs to, the shard that told it, and its hash

K = TypeVar("K")
V = TypeVar("V")


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


_Log = tuple[int, int, bytes]
"""The number of the telling that it belongs to, the shard that told it, and its bytes."""


class _ToldLogs:
    """The logs that came last, between half of `limit` and `limit` bytes of them: the older half goes at once.

    They are kept as they are and read when they are asked for: most transfers stay in their shard, and are never.
    """

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._size = 0
        self._new: dict[str, list[_Log]] = {}
        self._old: dict[str, list[_Log]] = {}

    def add(self, telling: int, shard: int, told: Sequence[tuple[str, bytes]]) -> None:
        """Logs that one block told, each with the transaction that it belongs to; no honest block tells too much."""
        size = sum([len(log) for _, log in told]) + _LOG_BYTES * len(told)
        if size > self._half:
            told, size = self._what_fits(told)
        new = self._new
        for owner, log in told:
            item = telling, shard, log
            if owner in new:
                new[owner].append(item)
            else:
                new[owner] = [item]
        self._size += size
        if self._size >= self._half:
            self._old, self._new, self._size = new, {}, 0

    def _what_fits(self, told: Sequence[tuple[str, bytes]]) -> tuple[list[tuple[str, bytes]], int]:
        """Those of the logs that are kept of too many, or of too long ones; and what they take."""
        kept, size = [], 0
        for owner, log in told:
            more = len(log) + _LOG_BYTES
            if size + more <= self._half:
                kept.append((owner, log))
                size += more
        return kept, size

    def get(self, owner: str) -> list[_Log]:
        """Of a transaction."""
        return self._old.get(owner, []) + self._new.get(owner, [])


class _ToldTransfers:
    """The transfers that came last, between half of `limit` and `limit` bytes of them: the older half goes at once.

    A heavy block has 60 KB of logs with transfers, and a shard may stand still for minutes: what it will confirm is
    kept as hashes, in a seventh of that.
    """

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._size = 0
        self._new: dict[int, bytes] = {}
        self._old: dict[int, bytes] = {}

    def add(self, telling: int, shard: int, told: Sequence[tuple[str, bytes]]) -> None:
        """Logs that one block told, each with the transaction that it belongs to; too many of one are not kept."""
        found: dict[int, list[bytes]] = {}
        for (owner, _), transfers in zip(told, transfers_of([log for _, log in told]), strict=True):
            packed = [_TRANSFER.pack(telling, shard, transfer) for transfer in transfers]
            found.setdefault(hash(owner), []).extend(packed)
        for key, all_packed in found.items():
            size = len(all_packed) * _TRANSFER.size + _OWNER_BYTES
            if size > self._half:
                continue
            self._new[key] = self._new.get(key, b"") + b"".join(all_packed)
            self._size += size
            if self._size >= self._half:
                self._old, self._new, self._size = self._new, {}, 0

    def get(self, owner: str) -> Iterator[tuple[int, int, int]]:
        """Of a transaction: telling, shard and hash of each."""
        key = hash(owner)
        return _TRANSFER.iter_unpack(self._old.get(key, b"") + self._new.get(key, b""))


class Memory:
    """Results and transfers of earlier blocks. Hashes are in hex."""

    def __init__(self) -> None:
        self._originals: _Newest[str, str] = _Newest(_REMEMBERED_RESULTS)
        self._tellings = 0
        self._leaving, self._staying = _ToldTransfers(_LEAVING_BYTES), _ToldLogs(_STAYING_BYTES)

    def remember_results(self, originals: dict[str, str]) -> None:
        """Smart-contract results belong to transactions."""
        self._originals.update(originals)

    def original_of(self, result: str) -> str | None:
        """The transaction of a result seen in an earlier block."""
        return self._originals.get(result)

    def remember_transfers(self, shard: int, told: Sequence[tuple[str, bytes]], leaving: Set[str]) -> None:
        """What a block of `shard` told: transactions, and logs (`SlicedLogData`) with all their transfers.

        `leaving` are the transactions that go on elsewhere: their transfers are remembered for longer.
        """
        self._tellings += 1
        if leaving:
            self._leaving.add(self._tellings, shard, [item for item in told if item[0] in leaving])
            told = [item for item in told if item[0] not in leaving]
        self._staying.add(self._tellings, shard, told)

    def told_elsewhere(self, shard: int, owner: str) -> dict[int, int]:
        """Hashes of a transaction's transfers that another shard told, and how often.

        The shard that told one first counts, and what it said last: it tells a block again that it took back.
        """
        told = list(self._leaving.get(owner))
        for telling, teller, log in self._staying.get(owner):
            told += [(telling, teller, transfer) for transfer in transfers_of([log])[0]]
        tellings: dict[int, tuple[int, Counter[int]]] = {}
        for telling, teller, transfer in sorted(told, key=itemgetter(0)):
            tellings.setdefault(telling, (teller, Counter()))[1][transfer] += 1
        known: dict[int, tuple[int, int]] = {}
        for teller, transfers in tellings.values():
            for transfer, times in transfers.items():
                if known.get(transfer, (teller,))[0] == teller:
                    known[transfer] = teller, times
        return {transfer: times for transfer, (first, times) in known.items() if first != shard}
