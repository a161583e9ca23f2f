"""What one block needs to know of earlier ones, of all shards. Bounded: the oldest is forgotten first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from operator import itemgetter
from typing import Generic, TypeVar

from millrace.chain.proto.slices_pb2 import SlicedLogData
from millrace.notifier.rules.raw_events import TRANSFERS, identifier_of, without_data

_REMEMBERED_RESULTS = 100_000
_LEAVING_BYTES = 12 * 1024 * 1024  # of logs whose transfers other shards will confirm, and …
_STAYING_BYTES = 4 * 1024 * 1024  # … of those that no other shard should know of
_LOG_BYTES = 300  # what keeping one takes besides its bytes

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


class Memory:
    """Results and transfers of earlier blocks. Hashes are in hex."""

    def __init__(self) -> None:
        self._originals: _Newest[str, str] = _Newest(_REMEMBERED_RESULTS)
        self._tellings = 0
        self._leaving, self._staying = _ToldLogs(_LEAVING_BYTES), _ToldLogs(_STAYING_BYTES)

    def remember_results(self, originals: dict[str, str]) -> None:
        """Smart-contract results belong to transactions."""
        self._originals.update(originals)

    def original_of(self, result: str) -> str | None:
        """The transaction of a result seen in an earlier block."""
        return self._originals.get(result)

    def remember_transfers(self, shard: int, told: Sequence[tuple[str, bytes]], leaving: Set[str]) -> None:
        """What a block of `shard` told: transactions, and logs (`SlicedLogData`) with all their transfers.

        `leaving` are the transactions that go on elsewhere: their logs are remembered for longer.
        """
        self._tellings += 1
        if leaving:
            self._leaving.add(self._tellings, shard, [item for item in told if item[0] in leaving])
            told = [item for item in told if item[0] not in leaving]
        self._staying.add(self._tellings, shard, told)

    def told_elsewhere(self, shard: int, owner: str) -> dict[bytes, int]:
        """Transfers of a transaction, without their data, that another shard told, and how often.

        The shard that told one first counts, and what it said last: it tells a block again that it took back.
        """
        tellings: dict[int, tuple[int, Counter[bytes]]] = {}
        for telling, teller, log in sorted(self._leaving.get(owner) + self._staying.get(owner), key=itemgetter(0)):
            transfers = tellings.setdefault(telling, (teller, Counter()))[1]
            for event in SlicedLogData.FromString(log).log.events:
                identifier = identifier_of(event)
                if identifier in TRANSFERS:
                    transfers[without_data(event, identifier)] += 1
        known: dict[bytes, tuple[int, int]] = {}
        for teller, transfers in tellings.values():
            for transfer, times in transfers.items():
                if known.get(transfer, (teller,))[0] == teller:
                    known[transfer] = teller, times
        return {transfer: times for transfer, (first, times) in known.items() if first != shard}
