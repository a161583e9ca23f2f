"""Waiting transactions of one shard: by sender in nonce order, chosen by price per unit of gas.

Bounds. A sender beyond its count is refused. A full pool takes a transaction only if it is dearer than the
cheapest that is the last of its sender; then the cheapest hundredth of those goes. A second transaction with
the same sender and nonce takes the place of the first only if it pays more. What waits too long is dropped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from millrace.chain.transaction import Transaction


class MempoolFull(Exception):
    """The transaction is not kept; the text says which bound holds."""


class Waiting(msgspec.Struct, frozen=True):
    """A transaction that waits. `price` is its fee per unit of gas, `size` its bytes on the wire."""

    tx: Transaction
    hash: bytes
    price: int
    size: int
    since_round: int

    @property
    def rank(self) -> tuple[int, int, bytes]:
        """Sorts the best one first: dearest, then the larger gas limit, then the lower hash."""
        return -self.price, -self.tx.gas_limit, self.hash


class Limits(NamedTuple):
    """The bounds of a mempool: transactions, bytes, transactions of one sender, rounds to wait."""

    transactions: int = 20_000
    bytes: int = 64 * 1024 * 1024
    of_sender: int = 5001
    rounds: int = 3000


class Mempool:
    """Waiting transactions of one shard."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._senders: dict[bytes, dict[int, Waiting]] = {}
        self._hashes: dict[bytes, Waiting] = {}
        self._bytes = 0
        self.dropped = 0
        """Transactions put out by a bound or by age, since the start."""

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, tx_hash: bytes) -> bool:
        return tx_hash in self._hashes

    def add(self, waiting: Waiting) -> list[Waiting]:
        """Keep a transaction; returns those that had to go for it. Raises `MempoolFull`."""
        if waiting.hash in self._hashes:
            return []
        queue = self._senders.get(waiting.tx.sender, {})
        rival = queue.get(waiting.tx.nonce)
        if rival is not None and rival.price >= waiting.price:
            raise MempoolFull("another transaction with this nonce is waiting and pays as much")
        if rival is None and len(queue) >= self._limits.of_sender:
            raise MempoolFull("too many waiting transactions of this sender")
        gone = [rival] if rival is not None else []
        freed = rival.size if rival is not None else 0
        over_count = rival is None and len(self) >= self._limits.transactions
        if over_count or self._bytes - freed + waiting.size > self._limits.bytes:
            gone += self._make_room(waiting)
        for entry in gone:
            self._remove(entry)
        self.dropped += len(gone)
        self._insert(waiting)
        return gone

    def restore(self, waiting: Waiting) -> None:
        """Put back what a reverted block had executed, whatever the bounds: it was inside them before."""
        if waiting.hash in self._hashes:
            return
        rival = self._senders.get(waiting.tx.sender, {}).get(waiting.tx.nonce)
        if rival is not None:
            self._remove(rival)
        self._insert(waiting)

    def remove(self, tx_hash: bytes) -> None:
        """Forget a transaction, if it is there."""
        if tx_hash in self._hashes:
            self._remove(self._hashes[tx_hash])

    def remove_sender(self, sender: bytes) -> list[Waiting]:
        """Forget and return all of one sender."""
        gone = list(self._senders.get(sender, {}).values())
        for waiting in gone:
            self._remove(waiting)
        return gone

    def next_nonce(self, sender: bytes, nonce: int) -> int:
        """The first nonce from the account's own on that no waiting transaction has."""
        queue = self._senders.get(sender, {})
        while nonce in queue:
            nonce += 1
        return nonce

    def sweep(self, round_number: int, nonce_of: Callable[[bytes], int]) -> list[Waiting]:
        """Drop and return what waited too long or whose nonce the account has passed."""
        oldest = round_number - self._limits.rounds
        gone = []
        for sender, queue in self._senders.items():
            nonce = nonce_of(sender)
            gone += [entry for entry in queue.values() if entry.since_round < oldest or entry.tx.nonce < nonce]
        for entry in gone:
            self._remove(entry)
        self.dropped += len(gone)
        return gone

    def selection(self, nonce_of: Callable[[bytes], int]) -> Selection:
        """The transactions for a block, best first; see `Selection`."""
        return Selection(self._senders, nonce_of)

    def _make_room(self, waiting: Waiting) -> list[Waiting]:
        last = [queue[max(queue)] for sender, queue in self._senders.items() if sender != waiting.tx.sender]
        count = max(1, len(self._hashes) // 100)
        cheapest = heapq.nlargest(count, last, key=lambda entry: entry.rank)
        room = [entry for entry in cheapest if entry.price < waiting.price]
        freed = sum(entry.size for entry in room)
        if not room or self._bytes - freed + waiting.size > self._limits.bytes:
            raise MempoolFull("the mempool is full; a higher gas price or a later attempt may help")
        return room

    def _insert(self, waiting: Waiting) -> None:
        self._senders.setdefault(waiting.tx.sender, {})[waiting.tx.nonce] = waiting
        self._hashes[waiting.hash] = waiting
        self._bytes += waiting.size

    def _remove(self, waiting: Waiting) -> None:
        queue = self._senders[waiting.tx.sender]
        del queue[waiting.tx.nonce]
        if not queue:
            del self._senders[waiting.tx.sender]
        del self._hashes[waiting.hash]
        self._bytes -= waiting.size


class Selection:
    """Hands out the dearest executable transaction; per sender in nonce order.

    The next one of a sender becomes available only when `executed` says that its predecessor was.
    """

    def __init__(self, senders: dict[bytes, dict[int, Waiting]], nonce_of: Callable[[bytes], int]) -> None:
        self._senders = senders
        self._heap: list[tuple[tuple[int, int, bytes], Waiting]] = []
        for sender, queue in senders.items():
            first = queue.get(nonce_of(sender))
            if first is not None:
                self._heap.append((first.rank, first))
        heapq.heapify(self._heap)

    def take(self) -> Waiting | None:
        """The best transaction left, or `None`."""
        return heapq.heappop(self._heap)[1] if self._heap else None

    def executed(self, waiting: Waiting) -> None:
        """The transaction is in the block: its sender's next one may follow."""
        following = self._senders.get(waiting.tx.sender, {}).get(waiting.tx.nonce + 1)
        if following is not None:
            heapq.heappush(self._heap, (following.rank, following))
