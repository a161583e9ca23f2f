"""What became of each transaction: joins the facts of all shards' blocks, and speaks only when they are final.

A state machine without I/O. Blocks are saved, finalised and reverted in any order; a block counts from the
moment it is both saved and final. A transaction ends once:

* any fact says it failed: `fail`;
* it was executed by the receiver's shard, nothing it caused is left to execute elsewhere, and a contract call
  has said that it ended well: `success`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Literal, TypeVar

import msgspec

from millrace.relayer.blocks import BlockFacts, TxFact

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

EARLY_FINALITY_SECONDS = 60.0
PENDING_SECONDS = 900.0
"""A transaction that has not ended so long after the first block that speaks of it is forgotten."""
MAX_HELD_PER_SHARD = 512
MAX_EARLY = 4096


class Included(msgspec.Struct, frozen=True):
    """A final block of the sender's shard has the transaction: its nonce is used up, its fee is known."""

    tx_hash: bytes
    fee: int | None


class Outcome(msgspec.Struct, frozen=True):
    """The end of a transaction."""

    tx_hash: bytes
    client_hash: bytes
    """Empty unless the transaction was relayed."""
    status: Literal["success", "fail"]
    reason: str


class Release(msgspec.Struct, frozen=True):
    """What became final: blocks in their order, and what they settle."""

    blocks: tuple[BlockFacts, ...] = ()
    saved_at: float = 0.0
    """When the newest of the blocks was saved."""
    included: tuple[Included, ...] = ()
    outcomes: tuple[Outcome, ...] = ()


class _Held(msgspec.Struct):
    """A saved block that is not final yet."""

    facts: BlockFacts
    sequence: int
    saved_at: float


class _Pending(msgspec.Struct):
    """What final blocks have said so far about a transaction that has not ended."""

    fact: TxFact
    sequence: int
    """From where in the event stream on its facts are, or earlier; never less than that of an older one."""
    since: float


class Tracker:
    """Follows up to `capacity` unfinished transactions and remembers as many ended ones.

    At the bound the oldest is forgotten and counted in `forgotten`: its subscribers hear nothing, as when its
    subscription expires.
    """

    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._held: dict[int, OrderedDict[bytes, _Held]] = {}
        self._early: OrderedDict[tuple[int, bytes], float] = OrderedDict()
        self._final: dict[int, OrderedDict[bytes, int]] = {}
        """Of the latest final blocks what they said, as a digest; and below, which block is final at a height."""
        self._heights: dict[int, OrderedDict[int, bytes]] = {}
        self._pending: OrderedDict[bytes, _Pending] = OrderedDict()
        self._ended: OrderedDict[bytes, None] = OrderedDict()
        self._now = 0.0
        self.forgotten = 0
        self.reverted_final = 0
        """Blocks reverted after they were final: must not happen, and takes nothing back."""
        self.disputed = 0
        """Blocks of which two nodes told different things; only what both told is believed."""
        self.forks = 0
        """Blocks saved beside another of the same height that is not reverted."""
        self.conflicting_final = 0
        """Blocks called final at a height where another is: must not happen, and nobody is told what they say."""

    # ---- events

    def save(self, block: BlockFacts, sequence: int, now: float) -> Release:
        """A block was saved; it is event `sequence` of the stream."""
        self._expire(now)
        final = self._final.get(block.shard)
        known = None if final is None else final.get(block.block_hash)
        if known is not None:  # another copy of a block that counts already
            self.disputed += known != _digest(block)
            return Release()
        held = self._held.setdefault(block.shard, OrderedDict())
        other = held.get(block.block_hash)
        if other is not None and other.facts != block:
            self.disputed += 1
            log.error("nodes disagree on a block", extra={"shard": block.shard, "hash": block.block_hash.hex()})
            block = agreed(other.facts, block)
        if any(item.facts.nonce == block.nonce != 0 for name, item in held.items() if name != block.block_hash):
            self.forks += 1
        held[block.block_hash] = _Held(block, sequence if other is None else other.sequence, now)
        if len(held) > MAX_HELD_PER_SHARD:
            held.popitem(last=False)
            self.forgotten += 1
        if self._early.pop((block.shard, block.block_hash), None) is not None:
            return self._finalise(block.shard, block.block_hash)
        return Release()

    def finalise(self, shard: int, block_hash: bytes, now: float) -> Release:
        """A block is final, and so are all before it; the block itself may arrive later."""
        self._expire(now)
        if block_hash in self._held.get(shard, {}):
            return self._finalise(shard, block_hash)
        if block_hash not in self._final.get(shard, {}):
            self._early[(shard, block_hash)] = now + EARLY_FINALITY_SECONDS
            if len(self._early) > MAX_EARLY:
                self._early.popitem(last=False)
        return Release()

    def holds(self, shard: int) -> bool:
        """Whether blocks of a shard wait to become final."""
        return bool(self._held.get(shard))

    def revert(self, shard: int, block_hash: bytes) -> bool:
        """A block was rolled back: what it said is taken back. False when it was final already (an alarm)."""
        self._early.pop((shard, block_hash), None)
        self._held.get(shard, OrderedDict()).pop(block_hash, None)
        if block_hash in self._final.get(shard, {}):
            self.reverted_final += 1
            return False
        return True

    # ---- looking in

    @property
    def low_water(self) -> int | None:
        """The oldest event still needed after a restart: of a block not final, of a transaction not ended."""
        needed = [held.sequence for blocks in self._held.values() for held in blocks.values()]
        first = next(iter(self._pending.values()), None)
        if first is not None:
            needed.append(first.sequence)
        return min(needed, default=None)

    @property
    def sizes(self) -> dict[str, int]:
        """How much is held, for metrics."""
        return {
            "held_blocks": sum(len(blocks) for blocks in self._held.values()),
            "early_finality": len(self._early),
            "pending": len(self._pending),
            "ended": len(self._ended),
        }

    # ---- insides

    def _finalise(self, shard: int, block_hash: bytes) -> Release:
        """Release a held block and its held ancestors, oldest first; forks up to its height are void."""
        held = self._held[shard]
        top = held[block_hash].facts
        heights = self._heights.setdefault(shard, OrderedDict())
        if heights.get(top.nonce, block_hash) != block_hash:
            self.conflicting_final += 1
            log.critical("two blocks of one height are final", extra={"shard": shard, "nonce": top.nonce})
            del held[block_hash]
            return Release()
        # The first of the unfinished has to be the oldest: what others wait for in blocks not final yet counts too.
        oldest = min(item.sequence for blocks in self._held.values() for item in blocks.values())
        chain = []
        link = block_hash
        while link in held:
            chain.append(held.pop(link))
            link = chain[-1].facts.prev_hash
        # A header that cannot be read has no height (0): such a block is no fork of anything.
        for fork in [name for name, other in held.items() if 0 < other.facts.nonce <= top.nonce]:
            del held[fork]
        included: list[Included] = []
        outcomes: list[Outcome] = []
        final = self._final.setdefault(shard, OrderedDict())
        for block in reversed(chain):
            final[block.facts.block_hash] = _digest(block.facts)
            _trim(final, MAX_HELD_PER_SHARD)
            if block.facts.nonce:  # a header that cannot be read has none
                heights[block.facts.nonce] = block.facts.block_hash
                _trim(heights, MAX_HELD_PER_SHARD)
            for fact in block.facts.transactions:
                self._apply(fact, oldest, included, outcomes)
        blocks = tuple(block.facts for block in reversed(chain))
        return Release(blocks, chain[0].saved_at, tuple(included), tuple(outcomes))

    def _apply(self, fact: TxFact, sequence: int, included: list[Included], outcomes: list[Outcome]) -> None:
        if fact.included:
            # With results still to be executed elsewhere the block shows only the first part of the fee.
            included.append(Included(fact.tx_hash, None if fact.results_out else fact.fee))
        if fact.tx_hash in self._ended:
            return
        pending = self._pending.get(fact.tx_hash)
        if pending is not None:
            fact = join(pending.fact, fact)
        status = judge(fact)
        if status is None:
            if pending is not None:
                pending.fact = fact
            else:
                self._pending[fact.tx_hash] = _Pending(fact, sequence, self._now)
                self.forgotten += _trim(self._pending, self._capacity)
            return
        self._pending.pop(fact.tx_hash, None)
        self._ended[fact.tx_hash] = None
        _trim(self._ended, self._capacity)
        outcomes.append(Outcome(fact.tx_hash, fact.client_hash, status, fact.failed))

    def _expire(self, now: float) -> None:
        self._now = now
        while self._early and next(iter(self._early.values())) <= now:
            self._early.popitem(last=False)
        while self._pending and next(iter(self._pending.values())).since + PENDING_SECONDS <= now:
            self._pending.popitem(last=False)
            self.forgotten += 1


def _trim(table: OrderedDict[K, V], capacity: int) -> int:
    """Forget the oldest entry beyond the capacity; how many were forgotten."""
    if len(table) <= capacity:
        return 0
    table.popitem(last=False)
    return 1


def agreed(first: BlockFacts, second: BlockFacts) -> BlockFacts:
    """What two nodes both say of one block. What one alone says, or says otherwise, may be made up."""
    others = set(second.transactions)
    accounts = {fact.pubkey: fact for fact in second.accounts}
    return msgspec.structs.replace(
        first,
        transactions=tuple(fact for fact in first.transactions if fact in others),
        accounts=tuple(fact for fact in first.accounts if accounts.get(fact.pubkey) == fact),
    )


def _digest(block: BlockFacts) -> int:
    return hash((block.transactions, block.nonce, block.prev_hash))


def join(first: TxFact, second: TxFact) -> TxFact:
    """What two blocks together say about the end of one transaction; the order matters to the words alone."""
    return TxFact(
        tx_hash=first.tx_hash,
        client_hash=first.client_hash or second.client_hash,
        failed=first.failed or second.failed,
        included=first.included or second.included,
        executed=first.executed or second.executed,
        is_call=first.is_call or second.is_call,
        completed=first.completed or second.completed,
        ran_ok=first.ran_ok or second.ran_ok,
        results_out=first.results_out | second.results_out,
        calls_out=first.calls_out | second.calls_out,
        results_in=first.results_in | second.results_in,
    )


def judge(fact: TxFact) -> Literal["success", "fail"] | None:
    """The end of a transaction, or `None` while something is still to come."""
    if fact.failed:
        return "fail"
    if not fact.executed or fact.calls_out - fact.results_in:
        return None
    if fact.results_out - fact.results_in and not fact.completed:
        return None
    if fact.is_call and not (fact.completed or fact.ran_ok):
        return None
    return "success"
