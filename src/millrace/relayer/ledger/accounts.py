"""What is known of accounts: nonce and balance, from the event stream and the chain API. Bounded."""

from __future__ import annotations

from collections import OrderedDict

import msgspec


class Account(msgspec.Struct, frozen=True, gc=False):
    """State of an account; an address the chain does not know has nonce 0 and balance 0."""

    nonce: int
    balance: int
    fetched: float
    """When the chain API last spoke of it (monotonic seconds)."""
    is_final: bool
    """Whether a final block said so, rather than the chain API."""
    order: tuple[int, int] = (0, 0)
    """Of the block that spoke of it: heights of the header that brought its result, and its own."""
    guardian: bytes | None = None
    """The active guardian's public key, empty without one; `None` when the chain API does not say."""
    pending: bool = False
    """Whether another guardian will be the active one with an epoch to come."""


class AccountBook:
    """The newest known state of up to `capacity` accounts; the one unused for longest is forgotten first.

    A forgotten account is asked for again, so forgetting costs time and never truth.
    """

    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._accounts: OrderedDict[bytes, Account] = OrderedDict()
        self._doubted: dict[bytes, float] = {}
        """Of known accounts: when a block changed what only the chain API tells."""

    def __len__(self) -> int:
        return len(self._accounts)

    def __contains__(self, pubkey: bytes) -> bool:
        return pubkey in self._accounts

    def get(self, pubkey: bytes) -> Account | None:
        """What is known of an account, or `None`."""
        account = self._accounts.get(pubkey)
        if account is not None:
            self._accounts.move_to_end(pubkey)
        return account

    def learn_from_event(self, pubkey: bytes, nonce: int, balance: int, order: tuple[int, int] | None = None) -> bool:
        """Take the state after a final block; whether it is not older than what was known.

        Only accounts somebody asked about are kept: others would push them out. Without an `order` (see `Account`)
        nothing but the nonce tells what is newer.
        """
        known = self._accounts.get(pubkey)
        if known is None:
            return True
        order = order or known.order
        if (nonce, order) < (known.nonce, known.order):
            return False
        order = max(order, known.order)
        self._accounts[pubkey] = msgspec.structs.replace(
            known, nonce=nonce, balance=balance, is_final=True, order=order
        )
        return True

    def raise_nonce(self, pubkey: bytes, nonce: int) -> None:
        """A final block has a transaction of the account: its nonce is at least this."""
        known = self._accounts.get(pubkey)
        if known is not None and known.nonce < nonce:
            self._accounts[pubkey] = msgspec.structs.replace(known, nonce=nonce, is_final=True)

    def learn_from_api(
        self,
        pubkey: bytes,
        nonce: int,
        balance: int,
        asked: Account | None,
        now: float,
        guardian: bytes | None = None,
        *,
        pending: bool = False,
    ) -> None:
        """Take an answer of the chain API; an event that came since the question (`asked`) wins.

        An API that lags behind final blocks cannot take a nonce back.
        """
        known = self._accounts.get(pubkey)
        if known is not None and (
            (known is not asked and known.nonce >= nonce) or (known.is_final and known.nonce > nonce)
        ):
            self._accounts[pubkey] = msgspec.structs.replace(known, fetched=now, guardian=guardian, pending=pending)
        else:
            order = known.order if known is not None else (0, 0)
            self._accounts[pubkey] = Account(nonce, balance, now, False, order, guardian, pending)
        self._accounts.move_to_end(pubkey)
        if len(self._accounts) > self._capacity:
            self._doubted.pop(self._accounts.popitem(last=False)[0], None)

    def doubt(self, pubkey: bytes, now: float) -> None:
        """A final block changed the account's guardian: what the chain API said is not true any more."""
        if pubkey in self._accounts:
            self._doubted[pubkey] = now

    def doubted_since(self, pubkey: bytes) -> float | None:
        """When the account's guardian changed, as far as no answer of the chain API has settled that."""
        return self._doubted.get(pubkey)

    def settle(self, pubkey: bytes) -> None:
        """The chain API has told the account's new guardian."""
        self._doubted.pop(pubkey, None)

    def forget_all(self) -> None:
        """After a gap in the events nothing that was known can be trusted."""
        self._accounts.clear()
        self._doubted.clear()
