"""One shard: its state, its mempool, its chain of blocks, and the way back."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from typing import Final

import msgspec

from millrace.chain import outport
from millrace.chain.call import MULTI_TRANSFER, CallError, parse_transfer
from millrace.chain.network import NetworkProfile
from millrace.chain.token import NATIVE
from millrace.chain.transaction import Transaction
from millrace.localnet import headers
from millrace.localnet.block import (
    RESULT_BLOCK,
    AlteredAccount,
    Block,
    Content,
    MiniBlock,
    Part,
    digest,
    root_after,
)
from millrace.localnet.calls import BlockInfo, State
from millrace.localnet.faucet import FaucetError, grant
from millrace.localnet.headers import Slot, Validators
from millrace.localnet.ledger import NONCE
from millrace.localnet.market import WRAPPED, Market
from millrace.localnet.mempool import Mempool, Waiting
from millrace.localnet.processor import Outcome, Processor

GRANTS_PER_BLOCK: Final = 200
MAX_SKIPPED: Final = 100
"""Rounds without a block that one SaveRoundsInfo tells; older ones are left out."""

log = logging.getLogger(__name__)


class Grant(msgspec.Struct, frozen=True):
    """Something the faucet owes. An empty `token` sets the receiver's guardian to `guardian`."""

    receiver: bytes
    token: str
    amount: int
    hash: bytes
    guardian: bytes = b""


class Pending(msgspec.Struct, frozen=True):
    """A miniblock from another shard, executed up to the item before `first`."""

    miniblock: MiniBlock
    first: int = 0


class Kept(msgspec.Struct):
    """A block that can be taken back, and what to give back with it. State: `final` turns true."""

    block: Block
    checkpoint: int
    parent: Block
    consumed: list[Pending]
    executed: list[Waiting]
    grants: list[Grant]
    meta_hashes: list[bytes]
    last_round: int
    final: bool = False


class Bounds(msgspec.Struct, frozen=True):
    """How much one block executes, and how many blocks can be taken back."""

    gas: int
    items: int
    kept: int


class ShardChain:
    """One shard's chain. `market` is given to the shard where the contracts are."""

    def __init__(
        self,
        shard: int,
        profile: NetworkProfile,
        state: State,
        mempool: Mempool,
        genesis: Block,
        validators: Validators,
        bounds: Bounds,
        market: Market | None = None,
    ) -> None:
        self.shard = shard
        self.state = state
        self.ledger = state.ledger
        self.mempool = mempool
        self.head = genesis
        self.final = genesis
        self.kept: deque[Kept] = deque()
        self.inbound: deque[Pending] = deque()
        self.meta_hashes: deque[bytes] = deque()
        self.grants: deque[Grant] = deque()
        self._profile = profile
        self._validators = validators
        self._bounds = bounds
        self._market = market
        self._last_round = 0

    def nonce_of(self, pubkey: bytes) -> int:
        """An account's nonce after the latest block."""
        return self.ledger.account(pubkey).nonce

    @property
    def backlog(self) -> int:
        """Items of other shards that wait here."""
        return sum(len(pending.miniblock.items) - pending.first for pending in self.inbound)

    # Making a block

    def make_block(self, slot: Slot, congested: Collection[int] = ()) -> Block:
        """Execute what waits and append a block. Nothing is taken for a receiver in a `congested` shard."""
        content = Content()
        kept = Kept(self.head, self.ledger.checkpoint(), self.head, [], [], [], list(self.meta_hashes), self._last_round)
        self.meta_hashes.clear()
        self.state.block = BlockInfo(slot.nonce, slot.round, slot.epoch, slot.timestamp_ms // 1000)
        processor = Processor(self.shard, self._profile, self.state, content)
        self._execute_grants(processor, content, kept)
        budget = _Budget(self._bounds.gas, self._bounds.items)
        parts = self._execute_inbound(processor, budget, kept)
        self._execute_mempool(processor, budget, kept, congested)
        parts += _outgoing(self.shard, content)
        kept.block = self._seal(slot, kept, content, tuple(parts))
        self.kept.append(kept)
        self.head = kept.block
        self._last_round = slot.round
        return kept.block

    def _execute_grants(self, processor: Processor, content: Content, kept: Kept) -> None:
        for _ in range(min(len(self.grants), GRANTS_PER_BLOCK)):
            wish = self.grants.popleft()
            kept.grants.append(wish)
            if not wish.token:
                self.ledger.set_guardian(wish.receiver, wish.guardian)
                continue
            assert self._market is not None
            local = self._profile.shard_of(wish.receiver) == self.shard
            payer = wish.receiver if local else self._market.addresses.provider
            try:
                grant(self._market, self.state, self.ledger, payer, wish.token, wish.amount)
            except FaucetError as error:
                log.warning("the faucet could not give", extra={"token": wish.token, "reason": str(error)})
                continue
            content.minted += wish.amount if wish.token in (NATIVE, WRAPPED) else 0
            if not local:
                processor.send_grant(payer, wish.receiver, wish.token, wish.amount, wish.hash)

    def _execute_inbound(self, processor: Processor, budget: _Budget, kept: Kept) -> list[Part]:
        parts = []
        while self.inbound and budget.items > 0:
            pending = self.inbound[0]
            miniblock, place = pending.miniblock, pending.first
            while place < len(miniblock.items) and budget.take(miniblock.items[place].gas_limit):
                item, item_hash = miniblock.items[place], miniblock.hashes[place]
                if isinstance(item, Transaction):
                    processor.arrive(item, item_hash)
                else:
                    processor.arrive_result(item, item_hash)
                place += 1
            if place == pending.first:
                break
            self.inbound.popleft()
            kept.consumed.append(pending)
            parts.append(Part(miniblock, pending.first, place - 1))
            if place < len(miniblock.items):
                self.inbound.appendleft(Pending(miniblock, place))
                break
        return parts

    def _execute_mempool(
        self, processor: Processor, budget: _Budget, kept: Kept, congested: Collection[int]
    ) -> None:
        selection = self.mempool.selection(self.nonce_of)
        while budget.items > 0 and (waiting := selection.take()) is not None:
            if congested and self._target(waiting.tx) in congested:
                continue
            if not budget.take(waiting.tx.gas_limit):
                continue
            outcome = processor.execute(waiting.tx, waiting.hash)
            if outcome is Outcome.EXECUTED:
                selection.executed(waiting)
                kept.executed.append(waiting)
            else:
                log.info("transaction dropped: it can no longer be paid for", extra={"hash": waiting.hash.hex()})
                budget.give_back(waiting.tx.gas_limit)
            self.mempool.remove(waiting.hash)

    def _target(self, tx: Transaction) -> int:
        """The shard where a transaction ends."""
        receiver = tx.receiver
        if tx.data.startswith(MULTI_TRANSFER.encode()):
            try:
                receiver = parse_transfer(tx.sender, tx.receiver, tx.value, tx.data).receiver
            except CallError:
                pass
        return self._profile.shard_of(receiver)

    def _seal(self, slot: Slot, kept: Kept, content: Content, parts: tuple[Part, ...]) -> Block:
        altered = self._altered(kept.checkpoint, content)
        root = root_after(self.head.root_hash, altered)
        header = headers.shard_header(
            slot, self.head, self._validators, self._profile.chain_id, parts, content, root, kept.meta_hashes
        )
        raw = outport.serialize(header)
        local = (
            (_miniblock(self.shard, self.shard, RESULT_BLOCK, content.local_results),) if content.local_results else ()
        )
        return Block(
            shard=self.shard,
            nonce=slot.nonce,
            round=slot.round,
            epoch=slot.epoch,
            timestamp_ms=slot.timestamp_ms,
            hash=digest(raw),
            prev_hash=self.head.hash,
            rand_seed=header.header.randSeed,
            root_hash=root,
            header_type="HeaderV2",
            header=header,
            header_bytes=raw,
            parts=parts,
            local_results=local,
            content=content,
            altered=altered,
            notarized=tuple(kept.meta_hashes),
            leader_index=self._validators.leader(self.shard, self.head.rand_seed),
            skipped_rounds=tuple(range(max(self._last_round + 1, slot.round - MAX_SKIPPED), slot.round)),
        )

    def _altered(self, checkpoint: int, content: Content) -> tuple[AlteredAccount, ...]:
        """The accounts that nodes tell: not a relayer which did no more than pay fees."""
        senders = {tx.sender for tx, _ in (*content.transactions.values(), *content.invalid.values())}
        altered = []
        for pubkey, touched in sorted(self.ledger.touched(checkpoint).items()):
            quiet = pubkey in content.fee_payers and pubkey not in content.credited and touched == {NATIVE}
            if quiet:
                continue
            account = self.ledger.account(pubkey)
            tokens = sorted(touched - {NONCE, NATIVE})
            altered.append(
                AlteredAccount(
                    pubkey,
                    account.nonce,
                    account.balance,
                    tuple((token, account.tokens.get(token, 0)) for token in tokens),
                    is_sender=pubkey in senders,
                    balance_changed=NATIVE in touched,
                )
            )
        return tuple(altered)

    # Finality and the way back

    def finalise(self, round_number: int, delay: int) -> list[Block]:
        """Make blocks final that are old enough, or too many to be kept; returns them, oldest first."""
        final = []
        beyond = len(self.kept) - self._bounds.kept
        for place, kept in enumerate(self.kept):
            if not kept.final and (kept.block.round + delay <= round_number or place < beyond):
                kept.final = True
                self.final = kept.block
                final.append(kept.block)
        for _ in range(max(0, beyond)):
            self.ledger.discard(self.kept.popleft().checkpoint)
        return final

    def revert_head(self) -> Kept:
        """Take the latest block back: state, mempool, what it had received. `IndexError` when none is kept."""
        kept = self.kept.pop()
        self.ledger.rollback(kept.checkpoint)
        if kept.consumed:
            last = kept.consumed[-1]
            if self.inbound and self.inbound[0].miniblock is last.miniblock:
                self.inbound.popleft()
            self.inbound.extendleft(reversed(kept.consumed))
        self.meta_hashes.extendleft(reversed(kept.meta_hashes))
        self.grants.extendleft(reversed(kept.grants))
        for waiting in kept.executed:
            self.mempool.restore(waiting)
        self.head = kept.parent
        self._last_round = kept.last_round
        if kept.final:
            self.final = kept.parent
        return kept


class _Budget:
    """What is left of a block's gas and items."""

    def __init__(self, gas: int, items: int) -> None:
        self.gas = gas
        self.items = items

    def take(self, gas: int) -> bool:
        """Use gas for one item, if there is enough."""
        if gas > self.gas or self.items < 1:
            return False
        self.gas -= gas
        self.items -= 1
        return True

    def give_back(self, gas: int) -> None:
        """An item was not executed after all."""
        self.gas += gas
        self.items += 1


def _outgoing(shard: int, content: Content) -> list[Part]:
    """Miniblocks of what begins here, by receiver's shard and kind."""
    parts = []
    for (receiver_shard, kind), items in sorted(content.outgoing.items()):
        miniblock = _miniblock(shard, receiver_shard, kind, items)
        parts.append(Part(miniblock, 0, len(items) - 1))
    return parts


def _miniblock(sender_shard: int, receiver_shard: int, kind: int, items: list[tuple[bytes, object]]) -> MiniBlock:
    return MiniBlock(
        sender_shard,
        receiver_shard,
        kind,
        tuple(item_hash for item_hash, _ in items),
        tuple(item for _, item in items),  # type: ignore[misc]
    )
