"""What clients and lifecycle are told of accounts: from final blocks, from announcements, or asked for.

A result's accounts are as they were after its block or later, up to the header that brought it, so they are never added
up and never taken back: they are "not older than" their block. The chain API may be ahead of the stream, or behind it:
whoever speaks, a nonce that is less than the last one told is not.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET

from millrace.chain import address
from millrace.relayer.blocks.facts import AccountFact, BlockFacts
from millrace.relayer.events.absent_accounts import AbsentAccounts, Where
from millrace.relayer.events.unconfirmed_accounts import UnconfirmedAccounts
from millrace.relayer.ledger.accounts import AccountBook
from millrace.relayer.ledger.balances import Reading
from millrace.relayer.ledger.lifecycle import Lifecycle
from millrace.relayer.protocol import messages
from millrace.relayer.protocol.topics import AddressTopic

MAX_AHEAD = 100_000
"""As many as there may be transactions in flight: each waits for the end of at most one sender's news."""


MAX_TOLD = 65_536
"""Accounts whose last nonce is remembered; of one forgotten an old one may be told if the chain API is out of step."""


class Publisher(Protocol):
    """Tells clients."""

    def tell_account(self, topic: AddressTopic, make: Callable[[], bytes]) -> None:
        """Tell the subscribers of an account, and those of all accounts."""

    def hears(self, topic: AddressTopic) -> bool:
        """Whether anybody would be told."""


class AccountFeed:
    """Takes accounts as blocks become final; nothing here waits."""

    def __init__(
        self, book: AccountBook, lifecycle: Lifecycle, publisher: Publisher, absent: AbsentAccounts | None
    ) -> None:
        self._book = book
        self._lifecycle = lifecycle
        self._publisher = publisher
        self._absent = absent
        if absent is not None:
            absent.on_answer = self._answered
        self._held = UnconfirmedAccounts()
        self._newest: dict[int, tuple[int, int]] = {}
        """Of each shard's final blocks the one whose accounts are newest."""
        self._ahead: dict[int, deque[tuple[int, bytes, int]]] = {}
        """By shard: height of the header that brought it, account, nonce; what led to it may still be to come."""
        self._told: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """Of accounts that somebody hears of, the one told last at the end: shard, nonce."""
        self._spoken: OrderedDict[tuple[int, bytes], int] = OrderedDict()
        """Of accounts in final blocks, by shard, the one in the latest at the end: the time of that block."""

    def final(self, block: BlockFacts, now: float) -> None:
        """A block counts. Its accounts are told, in the order of blocks."""
        for pubkey in block.guarding:
            self._book.doubt(pubkey, now)
        for stamp, facts in self._held.finalise(block.shard, block.timestamp_ms):
            for fact in facts:
                self._announced(fact, block.shard, stamp)
        is_late = block.order < self._newest.get(block.shard, (0, 0))
        if not is_late:
            self._newest[block.shard] = block.order
        self._tell_ledger(block, now)
        where = Where(block.shard, block.timestamp_ms, block.block_hash, now, block.nonce or None)
        for fact in block.accounts:
            before = self._speak(fact.pubkey, block)
            is_newest = self._book.learn_from_event(fact.pubkey, fact.nonce, fact.balance, block.order)
            self._nonce_moved(fact, block)
            # A late block's words on an account may be older than what was told of it.
            is_newest &= fact.pubkey in self._book
            if not is_late or is_newest or (before is not None and before < block.timestamp_ms):
                self._tell(fact, where)
            elif before is None:
                self._ask(fact.pubkey, where)
        for moved in self._due(block):
            self._lifecycle.nonce_moved(*moved)
        for pubkey in block.absent:
            self._speak(pubkey, block)
            self._ask(pubkey, where)

    def _ask(self, pubkey: bytes, where: Where) -> None:
        """The chain API will say what an account has that somebody wants to know of."""
        if self._absent is not None and (pubkey in self._book or self._publisher.hears(AddressTopic(pubkey))):
            self._absent.want(pubkey, where)

    def _tell_ledger(self, block: BlockFacts, now: float) -> None:
        """What relayer keys got in a final block, and what it says they hold."""
        sponsor = self._lifecycle.sponsor
        if block.proposes:
            return
        if not block.nonce:  # nobody knows what came after it
            for key in {key for key, _ in block.credits} | {fact.pubkey for fact in block.accounts}:
                sponsor.balances.want(key)
            return
        sponsor.balances.final(block.shard, block.nonce, block.block_hash)
        for key, amount in block.credits:
            sponsor.balances.got(key, amount, block.nonce)
        for fact in block.accounts:
            if fact.pubkey in sponsor.balances:
                reading = Reading(fact.balance, now, block.nonce, block.block_hash, fact.nonce)
                runs_ahead, taken = block.carrier > 0, sponsor.committed(fact.pubkey)
                sponsor.balances.told(fact.pubkey, reading, runs_ahead=runs_ahead, taken=taken)

    def announce(self, shard: int, time_ms: int, facts: tuple[AccountFact, ...], *, unfinished: bool) -> None:
        """Accounts named beside a block of this time; `unfinished`: some of the shard's blocks are not final."""
        for fact in self._held.announce(shard, time_ms, facts, unfinished=unfinished):
            self._announced(fact, shard, time_ms)

    def revert(self, shard: int, time_ms: int) -> None:
        """The block of this time was rolled back: what accounts had from its execution never was."""
        self._held.revert(shard, time_ms)
        # What the chain API said may have been of that block.
        self._told = OrderedDict(item for item in self._told.items() if item[1][0] != shard)

    def forget_told(self) -> None:
        """After a gap the chain may be another one."""
        self._told.clear()
        self._spoken.clear()

    def _speak(self, pubkey: bytes, block: BlockFacts) -> int | None:
        """A final block says that an account changed: what is announced of times before is old.

        Returns the time of the newest block that had said so, where that is known.
        """
        name = block.shard, pubkey
        before = self._spoken.pop(name, None)
        self._spoken[name] = max(block.timestamp_ms, before or 0)
        if len(self._spoken) > MAX_TOLD:
            self._spoken.popitem(last=False)
        return before

    def _announced(self, fact: AccountFact, shard: int, time_ms: int) -> None:
        """Told unless it is older than what is known, whoever said that, or than the account's newest block."""
        if time_ms < self._spoken.get((shard, fact.pubkey), 0):
            return
        if self._book.learn_from_event(fact.pubkey, fact.nonce, fact.balance):
            self._lifecycle.nonce_moved(fact.pubkey, fact.nonce)
            self._tell(fact, Where(shard, time_ms))

    def _nonce_moved(self, fact: AccountFact, block: BlockFacts) -> None:
        """What is in flight below the nonce was superseded, unless it was executed in a block still to be told.

        The header that brought the nonce knew no execution later than its own: once that has been told, all has. That
        header is final, so no revert of another takes back what it knew.
        """
        if block.carrier <= block.nonce:
            self._lifecycle.nonce_moved(fact.pubkey, fact.nonce)
        elif self._lifecycle.waits_below(fact.pubkey, fact.nonce):
            waiting = self._ahead.setdefault(block.shard, deque(maxlen=MAX_AHEAD))
            waiting.append((block.carrier, fact.pubkey, fact.nonce))

    def _due(self, block: BlockFacts) -> list[tuple[bytes, int]]:
        """Accounts and nonces of which nothing is to come any more after this block."""
        waiting = self._ahead.get(block.shard, deque())
        due = []
        while waiting and waiting[0][0] <= block.nonce:
            due.append(waiting.popleft()[1:])
        return due

    def _answered(self, pubkey: bytes, nonce: int, balance: int, where: Where) -> None:
        """The chain API has told an account that a block left out."""
        self._tell(AccountFact(pubkey, nonce, balance, {}), where)

    def _tell(self, fact: AccountFact, where: Where) -> None:
        topic = AddressTopic(fact.pubkey)
        if not self._publisher.hears(topic) or fact.nonce < self._told.get(fact.pubkey, (0, 0))[1]:
            return
        self._told[fact.pubkey] = where.shard, fact.nonce
        self._told.move_to_end(fact.pubkey)
        if len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)

        def make() -> bytes:
            data = messages.AccountData(
                address=address.encode(fact.pubkey),
                shard_id=where.shard,
                timestamp=where.timestamp_ms,
                # A token may be called like the coin: what comes last holds, at the place of the first.
                balances=(coin := {"EGLD": str(fact.balance)}) | fact.tokens | coin,
                nonce=fact.nonce,
                block_hash=where.block_hash.hex(),
                block_nonce=UNSET if where.block_nonce is None else where.block_nonce,
            )
            return messages.encode(messages.AccountMessage(data))

        self._publisher.tell_account(topic, make)
