"""What each relayer key is known to hold: a lower bound, to the unit, that no block can prove wrong.

It starts from a reading of the chain API, together with the block it was read at, and follows final blocks from there:
fees and refunds as they are told of transactions, transfers to the key. Nodes leave the relayer that pays out of the
accounts a block changed, and the balances they tell in the present format are of some later block, so neither is
enough alone. What a reading may hold already is not taken off a second time, what it may lack is not added.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from millrace.relayer.blocks.rounds import Rounds

LAG_SECONDS = 10.0
"""So long behind a final block a reading that names no block may be: a time of caches and indexers, not of rounds."""
HEIGHTS_SECONDS, MAX_HEIGHTS = 615.0, 1024
"""Blocks with fees or transfers are kept for each key for so long, with one in each round, and no more of them."""
KEPT_SECONDS = 60.0
"""Blocks that the anchor holds are kept for so long: a reading without a block may come after one with. What lies
between two answers of a chain API does not depend on rounds."""
MAX_LOOSE = 1024
"""Seconds with fees of blocks of unknown height that are kept for each key; at the bound the two oldest become one."""
FINAL_SECONDS, MAX_FINAL = 154.0, 256
"""So long the hashes of a shard's final blocks are remembered, and no more of them."""
WAIT_SECONDS = 60.0
"""A reading whose block has not become final by then is given up for a newer one: ten of the longest rounds there were,
and as long as a shard may be silent."""


class Reading(msgspec.Struct, frozen=True):
    """What the chain API, or a final block, says a key holds."""

    balance: int
    asked: float
    """When the question was sent (monotonic seconds)."""
    height: int | None = None
    """Of the block it was read at, where that is known."""
    block_hash: bytes = b""
    nonce: int = 0
    """Of the key's account: it moves only when the key sends something itself."""


class _Block(msgspec.Struct):
    """What the key paid and got in one final block."""

    at: float
    """When that was heard last."""
    paid: int = 0
    got: int = 0


class _Final(NamedTuple):
    """A block that is final."""

    block_hash: bytes
    heard: float


class _Held:
    """One key."""

    __slots__ = (
        "anchor", "blocks", "bound", "candidate", "folded_at", "folded_height", "loose", "shard", "since", "told",
    )  # fmt: skip

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.anchor: Reading | None = None
        self.candidate: Reading | None = None
        """Newer, and of a block that is not final yet."""
        self.since = float("-inf")
        """What was heard to be final after that the anchor may lack."""
        self.bound = 0
        """The anchor's balance and what changed since."""
        self.blocks: OrderedDict[int, _Block] = OrderedDict()
        self.folded_height, self.folded_at = -1, float("-inf")
        """Of the newest block that is not kept any more: what is older than that cannot become the anchor."""
        self.told: Reading | None = None
        """What a final block told last: a reading of before the key sent something itself is older."""
        self.loose: dict[int, int] = {}
        """Paid in blocks whose height is not known, by the whole second by whose end that was heard."""

    def counts(self, height: int, block: _Block, anchor: Reading) -> int:
        """What a block changes beyond what the anchor holds."""
        if anchor.height is None:
            return -block.paid if block.at > anchor.asked - LAG_SECONDS else 0
        return block.got - block.paid if height > anchor.height else 0

    def reckon(self) -> None:
        """Make the bound anew."""
        anchor = self.anchor
        if anchor is None:
            return
        self.bound = anchor.balance + sum(self.counts(height, block, anchor) for height, block in self.blocks.items())
        self.bound -= sum(amount for second, amount in self.loose.items() if second > self.since)


class Balances:
    """Lower bounds of what keys hold; a key of which nothing is known has none, and must not pay."""

    def __init__(self, clock: Callable[[], float], rounds: Rounds | None = None) -> None:
        self._clock = clock
        self._rounds = Rounds() if rounds is None else rounds
        self._keys: dict[bytes, _Held] = {}
        self._final: dict[int, OrderedDict[int, _Final]] = {}
        """The last executed final blocks of each shard, by height."""
        self._first: dict[int, int] = {}
        """Of each shard the first height that was heard to be final: of blocks before it nothing is known."""
        self.on_wanted: Callable[[], None] = lambda: None
        """Told when a key should be asked for at once."""
        self.wanted: dict[bytes, float] = {}
        """Keys to be asked for until a reading counts, and at least until a time."""

    def watch(self, by_shard: Mapping[int, bytes]) -> None:
        """These keys pay, and no others; of a new one nothing is known yet."""
        self._keys = {key: self._keys.get(key) or _Held(shard) for shard, key in by_shard.items()}
        self.wanted = {key: until for key, until in self.wanted.items() if key in self._keys}
        for key, held in self._keys.items():
            if held.anchor is None:
                self.want(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    @property
    def keys(self) -> frozenset[bytes]:
        """All keys that pay."""
        return frozenset(self._keys)

    def lower_bound(self, key: bytes) -> int | None:
        """The least the key holds after all final blocks that were heard of, fees not final yet not taken off."""
        held = self._keys.get(key)
        return None if held is None or held.anchor is None else held.bound

    # ---- readings

    def want(self, key: bytes, seconds: float = 0.0) -> None:
        """Have the key asked for at once, until a reading counts, and for some seconds in any case."""
        if key in self._keys:
            self.wanted[key] = max(self.wanted.get(key, 0.0), self._clock() + seconds)
            self.on_wanted()

    def read(self, key: bytes, reading: Reading) -> bool:
        """Take a reading of the chain API; whether it counts now, and does not wait for its block to become final."""
        held = self._keys.get(key)
        if held is None or not _is_newer(held, reading):
            return False
        if reading.height is not None and reading.height < self._first.get(held.shard, -1):
            return False  # it lacks fees that nobody here has heard of, as after a restart
        if reading.height is None or self._is_final(held.shard, reading):
            self._anchor(held, reading)
            if self.wanted.get(key, float("inf")) <= reading.asked:
                del self.wanted[key]
            return True
        waits = held.candidate
        if waits is None or waits.asked < reading.asked - WAIT_SECONDS:
            held.candidate = reading
        return False

    def told(self, key: bytes, reading: Reading, *, runs_ahead: bool, taken: int) -> None:
        """A final block of the key's shard names its balance: after that very block, or after some later one.

        A balance that runs ahead says nothing of what is final. But where the key has sent something itself, or the
        fees that may be in it (`taken`) do not explain it, nothing is known any more until the next reading.
        """
        held = self._keys.get(key)
        if held is None:
            return
        held.told = reading
        if not runs_ahead:
            if _is_newer(held, reading):
                self._anchor(held, reading)
            return
        if held.anchor is None:
            return
        if reading.nonce > held.anchor.nonce or reading.balance < held.bound - taken:
            held.anchor = held.candidate = None
            held.folded_height = max(held.folded_height, reading.height or 0)
            self.want(key)
        elif reading.balance > held.bound:  # it got what no block says plainly, as from a contract of its own shard
            self.want(key)

    def final(self, shard: int, height: int, block_hash: bytes) -> None:
        """A block was executed and is final: readings up to it count."""
        final = self._final.setdefault(shard, OrderedDict())
        known = final.get(height)
        if known is None or known.block_hash != block_hash:  # told again, it was heard of when it was told first
            final[height] = _Final(block_hash, self._clock())
        if shard not in self._first:
            self._first[shard] = height
            self._doubt_others(shard, height, block_hash)
        while len(final) > self._rounds.count(FINAL_SECONDS, MAX_FINAL):
            final.popitem(last=False)
        for key, held in self._keys.items():
            waits = held.candidate
            if held.shard != shard or waits is None or waits.height is None or waits.height > height:
                continue
            held.candidate = None
            if self._is_final(shard, waits) and _is_newer(held, waits):
                self._anchor(held, waits)
            else:  # another block is final at its height
                self.want(key)

    def _doubt_others(self, shard: int, first: int, block_hash: bytes) -> None:
        """Readings counted while nothing was known; those of other blocks than the first heard of do no more.

        What is older lacks fees that nobody here heard of. What is newer may be taken back: it waits to be final.
        """
        for key, held in self._keys.items():
            anchor = held.anchor
            if held.shard != shard or anchor is None or anchor.height is None:
                continue
            if (anchor.height, anchor.block_hash) != (first, block_hash):
                held.anchor = None
                held.candidate = anchor if anchor.height > first else held.candidate
                self.want(key)

    def forget_all(self) -> None:
        """Events are lost: somebody may have taken from the keys meanwhile. They are asked for anew."""
        for key, held in self._keys.items():
            held.anchor = held.candidate = None
            held.folded_height = max(self._final.get(held.shard, {}), default=-1)
            self.want(key)

    # ---- what changes them

    def paid(self, key: bytes, amount: int, height: int | None) -> None:
        """The key paid a fee in a final block; `height` is that of the header that brought its result."""
        held = self._keys.get(key)
        if held is None or not amount:
            return
        if height is None:
            self.paid_at(key, amount, self._clock())
            return
        self._block(held, height).paid += amount
        anchor = held.anchor
        if anchor is not None and (anchor.height is None or height > anchor.height):
            held.bound -= amount  # as `reckon` would

    def paid_at(self, key: bytes, amount: int, at: float) -> None:
        """The key may have paid a fee in a block that was final at a time at the latest."""
        held = self._keys.get(key)
        if held is None:
            return
        second = math.ceil(at)
        held.loose[second] = held.loose.get(second, 0) + amount
        if len(held.loose) > MAX_LOOSE:
            oldest, next_one = sorted(held.loose)[:2]
            held.loose[next_one] += held.loose.pop(oldest)
        held.reckon()

    def got(self, key: bytes, amount: int, height: int) -> None:
        """The key got a transfer or a refund in a final block."""
        held = self._keys.get(key)
        if held is None:
            return
        self._block(held, height).got += amount
        held.reckon()
        if held.anchor is None or held.anchor.height is None:
            self.want(key, LAG_SECONDS)

    # ---- insides

    def _block(self, held: _Held, height: int) -> _Block:
        now = self._clock()
        block = held.blocks.get(height)
        if block is None:
            block = held.blocks[height] = _Block(now)
            while len(held.blocks) > self._rounds.count(HEIGHTS_SECONDS, MAX_HEIGHTS):
                self._fold(held)
        block.at = now
        return block

    def _fold(self, held: _Held) -> None:
        """Let the oldest block go into the anchor."""
        height, block = held.blocks.popitem(last=False)
        held.folded_height, held.folded_at = max(held.folded_height, height), max(held.folded_at, block.at)
        if held.anchor is not None:
            change = held.counts(height, block, held.anchor)
            held.anchor = msgspec.structs.replace(held.anchor, balance=held.anchor.balance + change)

    def _is_final(self, shard: int, reading: Reading) -> bool:
        """Whether a reading's block is one that was heard to be final, or nothing was heard of the shard yet."""
        final = self._final.get(shard)
        assert reading.height is not None
        if not final:
            return True
        if reading.height > max(final):
            return False
        known = final.get(reading.height)
        return known is None or known.block_hash == reading.block_hash

    def _anchor(self, held: _Held, reading: Reading) -> None:
        held.anchor = reading
        held.since = reading.asked - LAG_SECONDS
        final = self._final.get(held.shard)
        named = None if final is None or reading.height is None else final.get(reading.height)
        if named is not None:  # however long ago: fees are heard of in the order of blocks
            held.since = min(held.since, named.heard)
        elif final and reading.height is not None and reading.height < min(final):  # nobody knows any more how long ago
            held.since = -math.inf
        kept = min(held.since, reading.asked - KEPT_SECONDS)
        held.loose = {second: amount for second, amount in held.loose.items() if second > kept}
        while held.blocks:
            height, block = next(iter(held.blocks.items()))
            if held.counts(height, block, reading) or block.at > reading.asked - KEPT_SECONDS:
                break
            del held.blocks[height]
            held.folded_height, held.folded_at = max(held.folded_height, height), max(held.folded_at, block.at)
        held.reckon()


def _is_newer(held: _Held, reading: Reading) -> bool:
    """Whether a reading is not older than the anchor, nor than what is not kept any more."""
    told = held.told
    if told is not None and reading.nonce < told.nonce:  # what the key has sent is not in it yet
        late = reading.height is not None and told.height is not None and reading.height <= told.height
        if late or reading.asked < told.asked + LAG_SECONDS:
            return False
    if reading.height is None:
        asked = held.anchor.asked if held.anchor is not None else reading.asked
        return reading.asked >= max(asked, held.folded_at + LAG_SECONDS)
    known = held.anchor.height if held.anchor is not None and held.anchor.height is not None else -1
    return reading.height >= max(known, held.folded_height)
