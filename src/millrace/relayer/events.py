"""From the event stream to what clients are told: statuses, account updates, and the end of what is in flight."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from google.protobuf.message import DecodeError
from msgspec import UNSET

from millrace.chain import address, outport
from millrace.chain.network import NetworkProfile
from millrace.chain.proto import outport_pb2 as pb
from millrace.relayer import messages
from millrace.relayer.accounts import AccountBook
from millrace.relayer.blocks import AccountFact, BlockFacts, read_accounts, read_block, time_of
from millrace.relayer.desk import Desk
from millrace.relayer.held_accounts import HeldAccounts
from millrace.relayer.topics import AddressTopic, TxStatusTopic
from millrace.relayer.tracker import Outcome, Release, Tracker

log = logging.getLogger(__name__)


class Publisher(Protocol):
    """Tells clients."""

    def tell_status(self, topic: TxStatusTopic, make: Callable[[], bytes]) -> int:
        """Tell each open subscription of a transaction its end; to how many it was told."""

    def tell_account(self, topic: AddressTopic, make: Callable[[], bytes]) -> None:
        """Tell the subscribers of an account, and those of all accounts."""


class Observer(Protocol):
    """Hears of everything for statistics."""

    def block_saved(self, block: BlockFacts, now: float, age: float) -> None:
        """A block was saved, final or not; `age` seconds ago, where it is read late."""

    def block_final(self, block: BlockFacts, now: float) -> None:
        """A saved block became final."""

    def told(self, since: float) -> None:
        """Clients were told everything that followed from a block saved at `since`."""

    def validators(self, message: pb.ValidatorsPubKeys) -> None:
        """The validators of an epoch."""


class Events:
    """Takes the hub's events one after the other; nothing here waits."""

    def __init__(
        self,
        network: NetworkProfile,
        tracker: Tracker,
        book: AccountBook,
        desk: Desk,
        publisher: Publisher,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network = network
        self._tracker = tracker
        self._book = book
        self._desk = desk
        self._publisher = publisher
        self._observer = observer
        self._clock = clock
        self.taken = 0
        self.unreadable = 0
        self.statuses_told = 0
        self.gaps = 0
        self.head: Callable[[], int] = lambda: 0
        """The newest event that there was when reading (again) began: what comes up to it comes late."""
        self._held_accounts = HeldAccounts()
        self._started = clock()
        self.block_at: dict[int, float] = {}
        """When each shard's last block came."""

    def on_event(self, topic: str, payload: bytes, sequence: int) -> None:
        """One event of the stream; what cannot be read is counted and skipped."""
        self.taken += 1
        try:
            self._take(topic, payload, sequence)
        except (outport.OutportError, DecodeError, ValueError) as error:
            self.unreadable += 1
            log.error("unreadable event", extra={"topic": topic, "sequence": sequence, "error": str(error)[:200]})

    def silence(self, shard: int, limit: float) -> float | None:
        """For how many seconds a shard has sent no block, if that is longer than `limit`."""
        silent = self._clock() - self.block_at.get(shard, self._started)
        return silent if silent > limit else None

    def on_gap(self, first: int, last: int) -> None:
        """Events are lost: what accounts were thought to be may be wrong now."""
        self.gaps += 1
        self._book.forget_all()

    def _take(self, topic: str, payload: bytes, sequence: int) -> None:
        now = self._clock()
        match topic:
            case outport.SAVE_BLOCK:
                block = read_block(pb.OutportBlock.FromString(payload), self._network)
                self.block_at[block.shard] = now
                self._observer.block_saved(block, now, self._age(block, sequence))
                self._release(self._tracker.save(block, sequence, now), now)
            case outport.FINALIZED_BLOCK:
                message = pb.FinalizedBlock.FromString(payload)
                self._release(self._tracker.finalise(message.shardID, message.headerHash, now), now)
            case outport.REVERT_INDEXED_BLOCK:
                data = pb.BlockData.FromString(payload)
                if self._tracker.revert(data.shardID, data.headerHash):
                    self._held_accounts.revert(data.shardID, time_of(data))
                else:
                    log.critical("a final block was reverted", extra={"shard": data.shardID})
            case outport.SAVE_ACCOUNTS:
                accounts = pb.Accounts.FromString(payload)
                stamp = accounts.blockTimestampMs or accounts.blockTimestamp * 1000
                facts = read_accounts(accounts.alteredAccounts.values())
                unfinished = self._tracker.holds(accounts.shardID)
                for fact in self._held_accounts.announce(accounts.shardID, stamp, facts, unfinished=unfinished):
                    self._account(fact, accounts.shardID, stamp, "")
            case outport.SAVE_VALIDATORS_PUB_KEYS:
                self._observer.validators(pb.ValidatorsPubKeys.FromString(payload))

    def _age(self, block: BlockFacts, sequence: int) -> float:
        """How long ago a block was made that is read after the relayer, or the hub, was away; 0 of any other."""
        return max(0.0, time.time() - block.timestamp_ms / 1000) if sequence <= self.head() else 0.0

    def _release(self, release: Release, now: float) -> None:
        """Something became final. First what is in flight, then the accounts, then the words to clients."""
        for item in release.included:
            moved = self._desk.included(item.tx_hash, item.fee)
            if moved is not None:
                self._book.raise_nonce(*moved)
        for block in release.blocks:
            self._observer.block_final(block, now)
            for pubkey in block.guarding:
                self._book.doubt(pubkey, now)
            for stamp, facts in self._held_accounts.finalise(block.shard, block.timestamp_ms):
                for fact in facts:
                    self._account(fact, block.shard, stamp, "")
            for fact in block.accounts:
                self._account(fact, block.shard, block.timestamp_ms, block.block_hash.hex())
        for outcome in release.outcomes:
            self._desk.treasury.ended(outcome.tx_hash, failed=outcome.status == "fail")
            self._tell(outcome)
        if release.blocks:
            self._observer.told(release.saved_at)

    def _account(self, fact: AccountFact, shard: int, timestamp_ms: int, block_hash: str) -> None:
        """An account's state after a final block, or as announced beside one (`block_hash` is empty).

        Final blocks come in their order and each is told, whatever the chain API or a later block has said already;
        an announcement is told unless it is older than what is known.
        """
        is_newest = self._book.learn_from_event(fact.pubkey, fact.nonce, fact.balance)
        if not is_newest and not block_hash:
            return
        self._desk.nonce_moved(fact.pubkey, fact.nonce)

        def make() -> bytes:
            data = messages.AccountData(
                address=address.encode(fact.pubkey),
                shard_id=shard,
                timestamp=timestamp_ms,
                balances={"EGLD": str(fact.balance)} | fact.tokens,
                nonce=fact.nonce,
                block_hash=block_hash,
            )
            return messages.encode(messages.AccountMessage(data))

        self._publisher.tell_account(AddressTopic(fact.pubkey), make)

    def _tell(self, outcome: Outcome) -> None:
        """Tell both hashes' subscribers; each hears the hash it asked for."""
        chain = outcome.tx_hash.hex()
        for tx_hash in {outcome.tx_hash, outcome.client_hash} - {b""}:
            subscribed = tx_hash.hex()

            def make(subscribed: str = subscribed) -> bytes:
                data = messages.StatusData(
                    hash=subscribed,
                    status=outcome.status,
                    reason=outcome.reason or UNSET,
                    chain_hash=UNSET if subscribed == chain else chain,
                )
                return messages.encode(messages.StatusMessage(data))

            self.statuses_told += self._publisher.tell_status(TxStatusTopic(tx_hash), make)
