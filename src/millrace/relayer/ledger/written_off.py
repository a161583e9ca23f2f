"""Fees that were written off although their transactions may still run: a signature never expires.

They take from nobody's budget or share any more, but the key has to be able to pay them until their nonce is used.
"""

from __future__ import annotations

from collections import Counter

import msgspec

MAX_WRITTEN_OFF = 200_000
"""Beyond it nothing more is written off: it stays at risk."""


class WrittenOffFee(msgspec.Struct, frozen=True, gc=False):
    """One of them."""

    key: bytes
    """The relayer key that would pay."""
    sender: bytes
    nonce: int
    chain_hash: bytes
    """Empty where the co-signature is not known."""
    fee: int


class WrittenOff:
    """By sender and nonce, and by the hash a block would name."""

    def __init__(self) -> None:
        self._by_sender: dict[bytes, dict[int, WrittenOffFee]] = {}
        self._by_hash: dict[bytes, WrittenOffFee] = {}
        self._sums: Counter[bytes] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be written off."""
        return self._count >= MAX_WRITTEN_OFF

    def of_key(self, key: bytes) -> int:
        """What the key may still have to pay for them."""
        return self._sums.get(key, 0)

    def senders(self) -> list[bytes]:
        """Whose nonces are waited for."""
        return list(self._by_sender)

    def waits_below(self, sender: bytes, nonce: int) -> bool:
        """Whether one of the sender's has a lower nonce."""
        return any(at < nonce for at in self._by_sender.get(sender, ()))

    def add(self, item: WrittenOffFee) -> None:
        """Keep one; there is one of a sender and nonce at most."""
        self._by_sender.setdefault(item.sender, {})[item.nonce] = item
        if item.chain_hash:
            self._by_hash[item.chain_hash] = item
        self._sums[item.key] += item.fee
        self._count += 1

    def take(self, chain_hash: bytes) -> WrittenOffFee | None:
        """A block has the transaction of this hash: it is not waited for any more."""
        item = self._by_hash.get(chain_hash)
        if item is not None:
            self._drop(item)
        return item

    def take_below(self, sender: bytes, nonce: int) -> list[WrittenOffFee]:
        """The chain is at this nonce of the sender: what is below it cannot run any more."""
        found = [item for at, item in self._by_sender.get(sender, {}).items() if at < nonce]
        for item in found:
            self._drop(item)
        return found

    def _drop(self, item: WrittenOffFee) -> None:
        of_sender = self._by_sender[item.sender]
        del of_sender[item.nonce]
        if not of_sender:
            del self._by_sender[item.sender]
        self._by_hash.pop(item.chain_hash, None)
        self._sums[item.key] -= item.fee
        if not self._sums[item.key]:
            del self._sums[item.key]
        self._count -= 1
