"""Which blocks count: joins headers, results and marks of finality, which come in any order.

A block counts when three things have come: its header, its result, and the finality of a header that brings that
result. A block of the earlier formats brings its own result. One that proposes is executed later: its result is told
once, and a header brings it; when that header is reverted another one brings the same result, which is not told again.
So results are kept by the hash of the block that was executed, and only the final headers say which of them hold.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import NamedTuple, TypeVar

import msgspec

from millrace.relayer.blocks.facts import BlockFacts, Unexecutable, agreed, digest
from millrace.relayer.blocks.rounds import Rounds

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

EARLY_FINALITY_SECONDS = 60.0
"""Between a mark and its block lies what nodes and their ways are apart: no more in long rounds than in short ones."""
HELD_SECONDS = 3_072.0
"""So long blocks wait for their end, which outlasts a halt of the network's finality …"""
MAX_HELD_PER_SHARD = 5_120
"""… but never more than these of them: all there are in rounds of 600 ms."""
MAX_BEHIND = 1_500
"""What has not come to its end after so many further final blocks never will, as after a gap. Blocks, not a time: it is
fifteen times what a network lets its execution lag, which is 100 blocks however long rounds are."""
MAX_EARLY = 4096
"""Marks: a bound of memory. Nodes send one for each block, and most blocks come within the same second."""


class Counted(msgspec.Struct):
    """What begins to count with one event."""

    oldest: int | None = None
    """The oldest event that was needed before it, which is one where there are blocks."""
    blocks: list[BlockFacts] = []
    """Executed, with the header's numbers from their proposal where that is known, in the order of the chain."""
    saved_at: float = 0.0
    """When the newest of them was told."""
    unexecutable: list[Unexecutable] = []


class _Block(msgspec.Struct):
    """A block that has not come to its end."""

    sequence: int
    """The oldest event that speaks of it."""
    born: int
    """How often headers of its shard had become final then."""
    header: BlockFacts | None = None
    result: BlockFacts | None = None
    told_at: float = 0.0
    """When its result came."""
    is_final: bool = False
    lister: bytes = b""
    """The final header that brings its result."""
    counts: bool = False

    @property
    def nonce(self) -> int:
        """Its height; 0 where no header could be read."""
        said = self.header or self.result
        return said.nonce if said else 0


class _Early(NamedTuple):
    """A mark of finality whose block has not come."""

    until: float
    """When it is waited for no more."""
    is_missed: bool
    """Whether the block belongs between final ones: it was told, and is lost, if it does not come."""


class _Shard:
    """One shard's blocks; of the latest that came to their end what they said, and which is final at a height."""

    def __init__(self) -> None:
        self.blocks: OrderedDict[bytes, _Block] = OrderedDict()
        self.ended: OrderedDict[bytes, int] = OrderedDict()
        self.heights: OrderedDict[int, bytes] = OrderedDict()
        self.finalities = 0
        """How often headers became final: many at once, after a halt, are one step."""

    def is_fork(self, block_hash: bytes, nonce: int) -> bool:
        """Whether another block is final at its height. Where a header cannot be read there is none."""
        return nonce > 0 and self.heights.get(nonce, block_hash) != block_hash


class Chains:
    """The blocks of all shards; every method says what counts from now on."""

    def __init__(self, rounds: Rounds | None = None) -> None:
        self._rounds = Rounds() if rounds is None else rounds
        self._shards: dict[int, _Shard] = {}
        """Those that a block was read of: whoever tells of others makes no room here."""
        self._early: OrderedDict[tuple[int, bytes], _Early] = OrderedDict()
        self.forgotten = 0
        """Blocks given up: for want of room, without an end for too long, or between final ones and never heard of."""
        self.reverted_final = 0
        """Blocks reverted after they were final: must not happen, and takes nothing back."""
        self.disputed = 0
        """Blocks of which two nodes told different things; only what both told is believed."""
        self.forks = 0
        """Blocks saved beside another of the same height that is not reverted."""
        self.conflicting_final = 0
        """Blocks called final at a height where another is: must not happen, and nobody is told what they say."""

    # ---- events

    def save(self, block: BlockFacts, sequence: int, now: float) -> Counted:
        """A block was saved; it is event `sequence` of the stream."""
        shard = self._shard(block.shard)
        known = shard.ended.get(block.block_hash)
        if known is not None:  # another copy of a block that counts already
            self.disputed += not block.proposes and known != digest(block)
            return Counted()
        self.forks += any(
            other.header is not None and other.header.nonce == block.nonce != 0
            for name, other in shard.blocks.items()
            if name != block.block_hash
        )
        item = self._new_block(shard, block.block_hash, sequence)
        if item.header is not None and item.header.proposes != block.proposes:
            self.disputed += 1
            return Counted()
        if block.proposes:
            item.header = block if item.header is None else _both(item.header, block)
        else:
            self._hear(item, block, now)
            item.header = item.result
        marked = self._early.pop((block.shard, block.block_hash), None) is not None
        if not (marked or item.lister):
            return Counted()  # at once: `oldest` looks at all that is held
        counted = Counted(self.oldest)
        self._finalise(block.shard, block.block_hash, counted, now)
        self._end(shard, block.block_hash, item, counted)
        return counted

    def execute(self, result: BlockFacts, sequence: int, now: float) -> Counted:
        """The result of a block was told."""
        shard = self._shard(result.shard)
        known = shard.ended.get(result.block_hash)
        if known is not None:
            self.disputed += known != digest(result)
            return Counted()
        if shard.is_fork(result.block_hash, result.nonce):
            return Counted()
        item = self._new_block(shard, result.block_hash, sequence)
        self._hear(item, result, now)
        if not item.lister:
            return Counted()
        counted = Counted(self.oldest)
        self._count(item, counted)
        self._end(shard, result.block_hash, item, counted)
        return counted

    def finalise(self, number: int, block_hash: bytes, now: float) -> Counted:
        """A block is final, and so are all before it; the block itself may arrive later."""
        shard = self._shards.get(number) or _Shard()
        item = shard.blocks.get(block_hash)
        counted = Counted(self.oldest)
        if item is not None and item.header is not None:
            self._finalise(number, block_hash, counted, now)
        elif block_hash not in shard.ended:
            self._mark(number, block_hash, now)
        return counted

    def revert(self, number: int, block_hash: bytes) -> bool:
        """A block was rolled back: what it said is taken back, also what it brought of others, which stay.

        False when it was final already (an alarm).
        """
        self._early.pop((number, block_hash), None)
        shard = self._shards.get(number) or _Shard()
        item = shard.blocks.get(block_hash)
        if block_hash in shard.ended or (item is not None and (item.is_final or item.lister)):
            self.reverted_final += 1
            return False
        shard.blocks.pop(block_hash, None)
        return True

    def expire(self, now: float) -> None:
        """Forget marks whose block never came."""
        while self._early and next(iter(self._early.values())).until <= now:
            self.forgotten += self._early.popitem(last=False)[1].is_missed

    # ---- looking in

    @property
    def oldest(self) -> int | None:
        """The oldest event that is still needed."""
        return min(
            (
                item.sequence
                for shard in self._shards.values()
                for item in shard.blocks.values()
                if item.header is not None or not item.counts  # its proposal was never heard: nothing to read again
            ),
            default=None,
        )

    def holds(self, number: int) -> bool:
        """Whether blocks of a shard wait for their end."""
        return number in self._shards and bool(self._shards[number].blocks)

    @property
    def sizes(self) -> dict[str, int]:
        """How much is held, for metrics."""
        return {
            "held_blocks": sum(len(shard.blocks) for shard in self._shards.values()),
            "early_finality": len(self._early),
        }

    # ---- insides

    @property
    def _most_held(self) -> int:
        return self._rounds.count(HELD_SECONDS, MAX_HELD_PER_SHARD)

    def _shard(self, number: int) -> _Shard:
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = _Shard()
        return shard

    def _block(self, shard: _Shard, block_hash: bytes, sequence: int) -> _Block:
        """What is known of a block, from event `sequence` on if that is nothing yet."""
        item = shard.blocks.get(block_hash)
        if item is None:
            item = shard.blocks[block_hash] = _Block(sequence, shard.finalities)
        return item

    def _new_block(self, shard: _Shard, block_hash: bytes, sequence: int) -> _Block:
        """The same of a block that is told, for which the oldest makes room."""
        item = self._block(shard, block_hash, sequence)
        self.forgotten += _trim(shard.blocks, self._most_held)
        return item

    def _hear(self, item: _Block, result: BlockFacts, now: float) -> None:
        """What one more node says of a block's execution; too late to change anything once it counts."""
        before = item.result
        if before is not None and not _same(before, result):
            self.disputed += 1
            log.error("nodes disagree on a block", extra={"shard": result.shard, "hash": result.block_hash.hex()})
        if not item.counts:
            item.told_at = now
            item.result = result if before is None else before if _same(before, result) else agreed(before, result)

    def _mark(self, number: int, block_hash: bytes, now: float, *, is_missed: bool = False) -> None:
        known = self._early.get((number, block_hash))
        is_missed = is_missed or (known is not None and known.is_missed)
        self._early[(number, block_hash)] = _Early(now + EARLY_FINALITY_SECONDS, is_missed)
        _trim(self._early, MAX_EARLY)

    def _finalise(self, number: int, block_hash: bytes, counted: Counted, now: float) -> None:
        """A header is final, with its ancestors; what they bring counts. Forks at their heights are void."""
        shard = self._shard(number)
        if shard.blocks[block_hash].is_final:
            return
        if shard.is_fork(block_hash, shard.blocks[block_hash].nonce):
            self.conflicting_final += 1
            log.critical("two blocks of one height are final", extra={"nonce": shard.blocks[block_hash].nonce})
            del shard.blocks[block_hash]
            return
        shard.finalities += 1
        todo = [block_hash]
        while todo:
            chain, parent = self._chain(shard, todo.pop())
            if parent:
                height = chain[-1][1].nonce - 1
                self._mark(number, parent, now, is_missed=any(lower < height for lower in shard.heights))
            for name, item in reversed(chain):
                assert item.header is not None
                listed = item.header.results
                todo += [each for each in listed if self._list(shard, each, name, item.sequence, counted)]
                self._end(shard, name, item, counted)
        for name, item in list(shard.blocks.items()):
            if not item.is_final and shard.is_fork(name, item.nonce):
                del shard.blocks[name]
            elif shard.finalities - item.born >= MAX_BEHIND:
                self.forgotten += 1
                del shard.blocks[name]
        # Only now: what gives way to blocks that the headers list may be one that has just become final itself.
        self.forgotten += _trim(shard.blocks, self._most_held)

    def _chain(self, shard: _Shard, link: bytes) -> tuple[list[tuple[bytes, _Block]], bytes]:
        """A header and its ancestors that were not final until now, newest first; they are from now on.

        Beside them the parent of the oldest, where its header has not come: it is final, too.
        """
        chain: list[tuple[bytes, _Block]] = []
        while (item := shard.blocks.get(link)) is not None and item.header is not None:
            if item.is_final or shard.is_fork(link, item.nonce):
                return chain, b""
            item.is_final = True
            if item.nonce:
                shard.heights[item.nonce] = link
                _trim(shard.heights, self._most_held)
            chain.append((link, item))
            link = item.header.prev_hash
        return chain, b"" if link in shard.ended else link

    def _list(self, shard: _Shard, block_hash: bytes, lister: bytes, sequence: int, counted: Counted) -> bool:
        """A final header brings the result of this block; whether the block has become final only by that."""
        if block_hash in shard.ended:
            return False
        item = self._block(shard, block_hash, sequence)
        if shard.is_fork(block_hash, item.nonce):
            self.conflicting_final += 1
            return False
        item.lister = item.lister or lister
        self._count(item, counted)
        self._end(shard, block_hash, item, counted)
        return item.header is not None and not item.is_final

    def _count(self, item: _Block, counted: Counted) -> None:
        """What was executed counts from now on, if it has been told."""
        if item.counts or item.result is None:
            return
        item.counts = True
        block = _joined(item.result, item.header, item.lister)
        counted.blocks.append(block)
        counted.saved_at = max(counted.saved_at, item.told_at)
        counted.unexecutable += block.unexecutable

    def _end(self, shard: _Shard, block_hash: bytes, item: _Block, counted: Counted) -> None:
        """Nothing more is to come of a block that counts and whose proposal is known to be final."""
        if not (item.counts and item.is_final) or shard.blocks.pop(block_hash, None) is None:
            return
        assert item.result is not None and item.header is not None
        shard.ended[block_hash] = digest(item.result)
        _trim(shard.ended, self._most_held)
        if item.result.settled is not None:  # what was proposed and is nowhere in the result: nodes forget to name it
            named = item.result.settled.union(other.tx_hash for other in item.result.unexecutable)
            counted.unexecutable += [
                Unexecutable(tx_hash, b"", item.header.timestamp_ms) for tx_hash in sorted(item.header.sent - named)
            ]


def _same(first: BlockFacts, second: BlockFacts) -> bool:
    """Whether two nodes say the same of a block. In results they tell of accounts as they are just then."""
    return digest(first) == digest(second) if first.carrier and second.carrier else first == second


def _both(first: BlockFacts, second: BlockFacts) -> BlockFacts:
    """Two copies of a proposal: all it lists is proven by its hash, but one may leave out what it proposes."""
    return msgspec.structs.replace(first, sent=first.sent | second.sent)


def _joined(result: BlockFacts, header: BlockFacts | None, lister: bytes) -> BlockFacts:
    """A result with its proposal's header and time, but for the fees, which only the execution knows.

    Accounts are as the header knew them that brought the result. Where that one was reverted, and another brings the
    result again, they may be as nothing left them: their states are left out.
    """
    if header is result:
        return result
    if result.carrier_hash != lister:
        doubtful = result.absent.union(fact.pubkey for fact in result.accounts)
        result = msgspec.structs.replace(result, accounts=(), absent=doubtful)
    if header is None or header.header is None or result.header is None:
        return msgspec.structs.replace(result, header=None)
    fees = result.header
    both = msgspec.structs.replace(
        header.header, accumulated_fees=fees.accumulated_fees, developer_fees=fees.developer_fees
    )
    made_ms = header.timestamp_ms
    missed = tuple(msgspec.structs.replace(item, timestamp_ms=made_ms) for item in result.unexecutable)
    return msgspec.structs.replace(result, header=both, timestamp_ms=made_ms, unexecutable=missed)


def _trim(table: OrderedDict[K, V], capacity: int) -> int:
    """Forget the oldest entries beyond the capacity, which may be a smaller one now; how many were forgotten."""
    surplus = max(0, len(table) - capacity)
    for _ in range(surplus):
        table.popitem(last=False)
    return surplus
