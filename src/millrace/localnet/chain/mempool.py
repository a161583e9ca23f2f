"""Transactions that wait for a block of their sender's shard: by sender in nonce order, best price first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from millrace.chain import fees
from millrace.chain.fees import GasSchedule
from millrace.chain.transaction import Transaction
from millrace.localnet.chain.admission import Refused
from millrace.localnet.chain.selection import Accounts


class Mempool:
    """A bounded pool. At a bound a new transaction is refused; nothing that waits is ever pushed out by it.

    What waits too long is dropped. One transaction per sender and nonce: a second one replaces the first only if
    it pays more per unit of gas.
    """

    def __init__(self, gas: GasSchedule, max_size: int, max_per_sender: int) -> None:
        self._gas = gas
        self._max_size = max_size
        self._max_per_sender = max_per_sender
        self._by_sender: dict[bytes, dict[int, tuple[bytes, Transaction]]] = {}
        self._since: dict[bytes, int] = {}
        """Hash to the round of arrival, oldest first; what has left the pool is cleared away later."""
        self._size = 0
        self.refused = 0
        """Transactions refused because a bound was reached."""
        self.passed: list[bytes] = []
        """Forgotten because their nonce was used or given back to another; whoever makes blocks clears it."""

    def __len__(self) -> int:
        return self._size

    def add(self, tx_hash: bytes, tx: Transaction, round_: int) -> bytes | None:
        """Take a checked transaction that came in this round; the hash of the one it replaces, if it does.

        Raises `Refused` at a bound or when one with the same nonce waits and pays as much.
        """
        waiting = self._by_sender.get(tx.sender, {})
        present = waiting.get(tx.nonce)
        if present is not None:
            if present[0] == tx_hash:
                return None
            if fees.price_per_unit(tx, self._gas) <= fees.price_per_unit(present[1], self._gas):
                raise Refused("a transaction with this nonce and no lower price is waiting already")
        elif self._size >= self._max_size or len(waiting) >= self._max_per_sender:
            self.refused += 1
            raise Refused("the mempool is full")
        else:
            self._size += 1
        self._by_sender.setdefault(tx.sender, {})[tx.nonce] = (tx_hash, tx)
        self._since[tx_hash] = round_
        return None if present is None else present[0]

    def drop_older(self, round_: int) -> list[bytes]:
        """Forget what came before a round and still waits; the hashes of what was forgotten."""
        waiting = {entry[0]: (sender, nonce) for sender, own in self._by_sender.items() for nonce, entry in own.items()}
        self._since = {tx_hash: since for tx_hash, since in self._since.items() if tx_hash in waiting}
        stale = [tx_hash for tx_hash, since in self._since.items() if since < round_]
        for tx_hash in stale:
            self._forget(*waiting[tx_hash])
        return stale

    def put_back(self, tx_hash: bytes, tx: Transaction, round_: int) -> None:
        """Return a transaction of a reverted block; bounds do not hold for what had its place already."""
        waiting = self._by_sender.setdefault(tx.sender, {})
        present = waiting.get(tx.nonce)
        if present is None:
            self._size += 1
        elif present[0] != tx_hash:
            self.passed.append(present[0])
        waiting[tx.nonce] = (tx_hash, tx)
        self._since.setdefault(tx_hash, round_)

    def remove_senders(self, senders: frozenset[bytes]) -> list[bytes]:
        """Forget all that these senders have waiting; the hashes of what was forgotten."""
        gone = [tx_hash for sender in senders for tx_hash, _ in self._by_sender.pop(sender, {}).values()]
        self._size -= len(gone)
        return gone

    def contains(self, sender: bytes, nonce: int, tx_hash: bytes) -> bool:
        """Whether this very transaction waits here."""
        entry = self._by_sender.get(sender, {}).get(nonce)
        return entry is not None and entry[0] == tx_hash

    def select(self, accounts: Accounts, max_gas: int, max_count: int) -> Iterator[tuple[bytes, Transaction]]:
        """Take executable transactions, best price per unit first, until the block's gas or room is used up.

        Whoever iterates executes or proposes each one before asking for the next: the sender's following nonce becomes
        executable by it. A transaction that is not covered waits on, with its sender's later ones; one whose nonce has
        been used is forgotten on the way.
        """
        heap: list[tuple[int, int, bytes, Transaction]] = []
        for sender in list(self._by_sender):
            self._forget_used(sender, accounts.used(sender))
            heap += self._next(sender, accounts.nonce(sender))
        heapq.heapify(heap)
        while heap and max_count > 0:
            _, _, tx_hash, tx = heapq.heappop(heap)
            if tx.gas_limit > max_gas or not accounts.covers(tx):
                continue
            max_gas -= tx.gas_limit
            max_count -= 1
            self._forget(tx.sender, tx.nonce)
            yield tx_hash, tx
            if accounts.nonce(tx.sender) == tx.nonce + 1:
                for entry in self._next(tx.sender, tx.nonce + 1):
                    heapq.heappush(heap, entry)

    def _forget_used(self, sender: bytes, used: int) -> None:
        own = self._by_sender.get(sender, {})
        for passed in [waiting for waiting in own if waiting < used]:
            self.passed.append(own[passed][0])
            self._forget(sender, passed)

    def _next(self, sender: bytes, nonce: int) -> list[tuple[int, int, bytes, Transaction]]:
        """The sender's transaction with a nonce, if it is there, as an entry of the heap."""
        entry = self._by_sender.get(sender, {}).get(nonce)
        if entry is None:
            return []
        tx_hash, tx = entry
        return [(-fees.price_per_unit(tx, self._gas), -tx.gas_limit, tx_hash, tx)]

    def _forget(self, sender: bytes, nonce: int) -> None:
        waiting = self._by_sender.get(sender, {})
        if waiting.pop(nonce, None) is not None:
            self._size -= 1
        if not waiting:
            self._by_sender.pop(sender, None)
