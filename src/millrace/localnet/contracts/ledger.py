"""The state of one shard: accounts, pools and contract storage, with an undo journal.

Every change is written down with what undoes it, so that a checkpoint costs nothing and a rollback costs as
much as the changes it takes back. Checkpoints nest, and the oldest may be given up while newer ones stand:
a block keeps one until it is final, and each transaction in it opens another.

The native coin is `EGLD` here, also when a caller writes `EGLD-000000`. Amounts are in smallest units.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from millrace.chain.token import NATIVE, NATIVE_IN_TRANSFERS
from millrace.dex.pool import Pool
from millrace.localnet.contracts.guardians import NOBODY, Guarding

MAX_ACCOUNTS: Final = 1_000_000
"""Accounts a ledger opens before it refuses new ones; all on a machine's memory, some hundred bytes each."""

NONCE: Final = ""
"""In `Ledger.touched`: the account's nonce or guardians changed, rather than a balance."""


class LedgerError(Exception):
    """The ledger refuses a change; nothing was changed."""


class InsufficientFunds(LedgerError):
    """An account does not hold the amount that should leave it."""


class TooManyAccounts(LedgerError):
    """The ledger is full: only accounts that exist already can receive."""


class Account(msgspec.Struct):
    """One account. Read it freely; change it through the ledger, which writes down how to undo.

    `tokens` holds positive balances only.
    """

    nonce: int = 0
    balance: int = 0
    tokens: dict[str, int] = msgspec.field(default_factory=dict)
    guarding: Guarding = NOBODY


class Ledger:
    """Accounts, pools and contract storage of one shard."""

    def __init__(self, max_accounts: int = MAX_ACCOUNTS) -> None:
        self.accounts: dict[bytes, Account] = {}
        self.pools: dict[str, Pool] = {}
        self.epoch = 0
        """Of the block that is executed, or was last."""
        self._storage: dict[tuple[bytes, str], Any] = {}
        self._max_accounts = max_accounts
        self._journal: list[tuple[Any, ...]] = []
        self._dropped = 0
        self._checkpoints: dict[int, int] = {}
        self._next_checkpoint = 1

    # Checkpoints

    def checkpoint(self) -> int:
        """Remember the present state; the number names it for `rollback`, `discard` and `touched`."""
        name = self._next_checkpoint
        self._next_checkpoint += 1
        self._checkpoints[name] = self._dropped + len(self._journal)
        return name

    def rollback(self, checkpoint: int) -> None:
        """Return to the state at a checkpoint. It and every later one are gone. Unknown: `KeyError`."""
        position = self._checkpoints[checkpoint] - self._dropped
        journal = self._journal
        while len(journal) > position:
            _, _, undo, *arguments = journal.pop()
            undo(*arguments)
        for name in [name for name in self._checkpoints if name >= checkpoint]:
            del self._checkpoints[name]

    def discard(self, checkpoint: int) -> None:
        """Give up a checkpoint and keep the changes. What no checkpoint needs any more is forgotten."""
        del self._checkpoints[checkpoint]
        # In a dict the first checkpoint is the oldest: names only grow.
        oldest = next(iter(self._checkpoints.values()), self._dropped + len(self._journal))
        if oldest > self._dropped:
            del self._journal[: oldest - self._dropped]
            self._dropped = oldest

    def touched(self, checkpoint: int) -> dict[bytes, set[str]]:
        """What changed since a checkpoint: per account the tokens (`EGLD` for the balance), or `NONCE`."""
        changed: dict[bytes, set[str]] = {}
        for address, what, *_ in self._journal[self._checkpoints[checkpoint] - self._dropped :]:
            if address:
                changed.setdefault(address, set()).add(what)
        return changed

    def _note(self, address: bytes, what: str, undo: Callable[..., object], *arguments: Any) -> None:
        if self._checkpoints:
            self._journal.append((address, what, undo, *arguments))

    # Accounts

    def account(self, pubkey: bytes) -> Account:
        """The account, or an empty one that is not part of the ledger."""
        return self.accounts.get(pubkey) or Account()

    def balance_of(self, pubkey: bytes, token: str = NATIVE) -> int:
        """What an account holds of a token."""
        account = self.accounts.get(pubkey)
        if account is None:
            return 0
        if token in (NATIVE, NATIVE_IN_TRANSFERS):
            return account.balance
        return account.tokens.get(token, 0)

    def credit(self, pubkey: bytes, token: str, amount: int) -> None:
        """Add an amount to an account, which opens it if need be."""
        if amount < 0:
            raise LedgerError("an amount must not be negative")
        self._set(pubkey, token, self.balance_of(pubkey, token) + amount)

    def debit(self, pubkey: bytes, token: str, amount: int) -> None:
        """Take an amount from an account. Raises `InsufficientFunds`."""
        if amount < 0:
            raise LedgerError("an amount must not be negative")
        balance = self.balance_of(pubkey, token)
        if balance < amount:
            raise InsufficientFunds(f"insufficient funds: have {balance} {token}, need {amount}")
        self._set(pubkey, token, balance - amount)

    def move(self, sender: bytes, receiver: bytes, token: str, amount: int) -> None:
        """Debit one account and credit another one of the same shard."""
        self.debit(sender, token, amount)
        self.credit(receiver, token, amount)

    def set_nonce(self, pubkey: bytes, nonce: int) -> None:
        """Set an account's nonce."""
        self._set_field(pubkey, NONCE, "nonce", nonce)

    def set_guarding(self, pubkey: bytes, guarding: Guarding) -> None:
        """Set an account's guardians."""
        self._set_field(pubkey, NONCE, "guarding", guarding)

    def _set(self, pubkey: bytes, token: str, amount: int) -> None:
        if token in (NATIVE, NATIVE_IN_TRANSFERS):
            self._set_field(pubkey, NATIVE, "balance", amount)
            return
        if amount == 0 and pubkey not in self.accounts:
            return
        tokens = self._open(pubkey).tokens
        self._put(pubkey, token, tokens, token, amount or None)

    def _set_field(self, pubkey: bytes, what: str, field: str, value: object) -> None:
        account = self._open(pubkey)
        self._note(pubkey, what, setattr, account, field, getattr(account, field))
        setattr(account, field, value)

    def _open(self, pubkey: bytes) -> Account:
        account = self.accounts.get(pubkey)
        if account is None:
            if len(self.accounts) >= self._max_accounts:
                raise TooManyAccounts(f"the ledger holds {len(self.accounts)} accounts and opens no more")
            account = self.accounts[pubkey] = Account()
            self._note(b"", "", operator.delitem, self.accounts, pubkey)
        return account

    # Pools and contract storage

    def pool(self, pool_id: str) -> Pool:
        """A pool by id. Unknown: `KeyError`."""
        return self.pools[pool_id]

    def put_pools(self, pools: Iterable[Pool]) -> None:
        """Put pools in place of those with the same id, or add them."""
        for pool in pools:
            self._put(b"", "", self.pools, pool.id, pool)

    def load(self, contract: bytes, key: str, default: Any = None) -> Any:
        """A value from a contract's storage. Values are immutable: store a new one to change it."""
        return self._storage.get((contract, key), default)

    def store(self, contract: bytes, key: str, value: Any) -> None:
        """Put an immutable value into a contract's storage; `None` removes it."""
        self._put(b"", "", self._storage, (contract, key), value)

    def _put(self, address: bytes, what: str, table: dict[Any, Any], key: Any, value: Any) -> None:
        if key in table:
            self._note(address, what, operator.setitem, table, key, table[key])
        else:
            self._note(address, what, table.pop, key, None)
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
