"""What became of each transaction: joins the facts of all shards' blocks, and speaks only when they count.

A state machine without I/O; `Chains` says which blocks count. A transaction ends once:

* any fact says it failed: `fail`;
* it was executed by the receiver's shard, nothing it caused is left to execute elsewhere, and a contract call
  has said that it ended well: `success`.

A step can fail in a block that is heard before any that holds the transaction itself, and so has the hashes its sender
knows: whoever asked for those is told once they are known.

One that was proposed and not executable has not ended on the chain: it can be proposed again, and end then.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

import msgspec

from millrace.relayer.blocks.chains import Chains, Counted
from millrace.relayer.blocks.facts import BlockFacts, TxFact, Unexecutable, join, judge
from millrace.relayer.blocks.rounds import Rounds

PENDING_SECONDS = 900.0
"""A transaction that has not ended so long after the first block that speaks of it is forgotten. A time: it waits for
other shards' blocks as they are full, and networks keep what waits as long in short rounds as in long ones (3,000 of
600 ms, 300 of 6 s)."""


class Included(msgspec.Struct, frozen=True):
    """A final block of the sender's shard has the transaction: its nonce is used up, its fee is known."""

    tx_hash: bytes
    fee: int | None
    height: int | None
    """Of the header that brought the block's result; `None` where that cannot be read."""
    block: BlockFacts | None = None
    paid: tuple[bytes, int] | None = None
    """The watched key that pays for it, and how much at most."""
    client_hash: bytes = b""
    signature: bytes = b""
    """That key's, and what it signed; empty without one."""


class Outcome(msgspec.Struct, frozen=True):
    """The end of a transaction."""

    tx_hash: bytes
    client_hash: bytes
    """Empty unless the transaction was relayed."""
    status: Literal["success", "fail"]
    reason: str
    sdk_hash: bytes = b""
    """Empty where the client hash is."""
    since: int = 0
    """From this event of the stream on there is what told of it."""


class Release(msgspec.Struct, frozen=True):
    """What became final: blocks in their order, and what they settle."""

    blocks: tuple[BlockFacts, ...] = ()
    saved_at: float = 0.0
    """When the newest of the blocks was saved."""
    included: tuple[Included, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    named: tuple[Outcome, ...] = ()
    """Ended before; only now it is known by which hashes its sender knows it."""
    unexecutable: tuple[Unexecutable, ...] = ()
    """Proposed, and not executed."""


class _Pending(msgspec.Struct):
    """What final blocks have said so far about a transaction that has not ended."""

    fact: TxFact
    sequence: int
    """From where in the event stream on its facts are, or earlier; never less than that of an older one."""
    since: float


class _Nameless(msgspec.Struct, frozen=True):
    """An end that was told before any block that holds the transaction itself was heard."""

    outcome: Outcome
    sequence: int
    """As of what is pending."""
    since: float


class _Words:
    """What is to be said of the transactions of blocks that count."""

    def __init__(self) -> None:
        self.included: list[Included] = []
        self.outcomes: list[Outcome] = []
        self.named: list[Outcome] = []


class Tracker:
    """Follows up to `capacity` unfinished transactions and remembers as many ended ones.

    At the bound the oldest is forgotten and counted in `forgotten`: its subscribers hear nothing, as when its
    subscription expires.
    """

    def __init__(self, capacity: int = 200_000, rounds: Rounds | None = None) -> None:
        self._capacity = capacity
        self.chains = Chains(rounds)
        self._pending: OrderedDict[bytes, _Pending] = OrderedDict()
        self._ended: OrderedDict[bytes, None] = OrderedDict()
        self._nameless: OrderedDict[bytes, _Nameless] = OrderedDict()
        self._now = 0.0
        self._forgotten = 0
        self._unheard = 0
        """Of these, those of which no block of the sender's shard was heard."""

    # ---- events

    def save(self, block: BlockFacts, sequence: int, now: float) -> Release:
        """A block was saved; it is event `sequence` of the stream."""
        self._expire(now)
        return self._release(self.chains.save(block, sequence, now))

    def execute(self, result: BlockFacts, sequence: int, now: float) -> Release:
        """The result of a block that was proposed before."""
        self._expire(now)
        return self._release(self.chains.execute(result, sequence, now))

    def finalise(self, shard: int, block_hash: bytes, now: float) -> Release:
        """A block is final, and so are all before it; the block itself may arrive later."""
        self._expire(now)
        return self._release(self.chains.finalise(shard, block_hash, now))

    def revert(self, shard: int, block_hash: bytes) -> bool:
        """A block was rolled back: what it said is taken back. False when it was final already (an alarm)."""
        return self.chains.revert(shard, block_hash)

    # ---- looking in

    def has_ended(self, tx_hash: bytes) -> bool:
        """Whether a transaction came to its end, as far as that is remembered."""
        return tx_hash in self._ended

    @property
    def low_water(self) -> int | None:
        """The oldest event still needed after a restart: of a block not final, of a transaction not ended, or
        whose hashes are not known."""
        first = next(iter(self._pending.values()), None), next(iter(self._nameless.values()), None)
        needed = (self.chains.oldest, *(item.sequence for item in first if item is not None))
        return min((sequence for sequence in needed if sequence is not None), default=None)

    @property
    def forgotten(self) -> int:
        """Blocks and transactions forgotten at a bound."""
        return self._forgotten + self.chains.forgotten

    @property
    def unheard(self) -> int:
        """Of these, what may have used a nonce without a word: blocks, and transactions of no block heard of the
        sender's shard. One that was heard there waits for other shards alone, and a call can do that for ever."""
        return self._unheard + self.chains.forgotten

    @property
    def disputed(self) -> int:
        """Blocks of which two nodes told different things."""
        return self.chains.disputed

    @property
    def conflicting_final(self) -> int:
        """Blocks called final at a height where another is."""
        return self.chains.conflicting_final

    @property
    def sizes(self) -> dict[str, int]:
        """How much is held, for metrics."""
        return self.chains.sizes | {
            "pending": len(self._pending),
            "ended": len(self._ended),
            "nameless": len(self._nameless),
        }

    # ---- insides

    def _release(self, counted: Counted) -> Release:
        words = _Words()
        for block in counted.blocks:
            assert counted.oldest is not None
            # The first of the unfinished has to be the oldest: what others wait for in blocks not final yet counts too.
            for fact in block.transactions:
                self._apply(fact, block, counted.oldest, words)
        return Release(
            tuple(counted.blocks),
            counted.saved_at,
            tuple(words.included),
            tuple(words.outcomes),
            tuple(words.named),
            tuple(item for item in counted.unexecutable if not self._was_executed(item.tx_hash)),
        )

    def _was_executed(self, tx_hash: bytes) -> bool:
        """Whether a block that counts has executed a transaction: then it was needless to propose it again."""
        pending = self._pending.get(tx_hash)
        return tx_hash in self._ended or (pending is not None and (pending.fact.included or pending.fact.executed))

    def _apply(self, fact: TxFact, block: BlockFacts, sequence: int, words: _Words) -> None:
        if fact.included:
            # With results still to be executed elsewhere the block shows only the first part of the fee.
            fee = None if fact.results_out else fact.fee
            height = block.order[0] or None
            words.included.append(
                Included(fact.tx_hash, fee, height, block, fact.paid, fact.client_hash, fact.signature)
            )
        if fact.tx_hash in self._ended:
            self._name(fact, words)
            return
        pending = self._pending.get(fact.tx_hash)
        if pending is None and fact.only_confirms:
            return  # of what was not heard of there is nothing to wait for
        if pending is not None:
            fact = join(pending.fact, fact)
        status = judge(fact)
        if status is not None:
            since = sequence if pending is None else pending.sequence
            outcome = Outcome(fact.tx_hash, fact.client_hash, status, fact.failed, fact.sdk_hash, since)
            self._end(outcome, sequence, is_nameless=not (fact.included or fact.executed))
            words.outcomes.append(outcome)
        elif pending is not None:
            pending.fact = fact
        else:
            self._pending[fact.tx_hash] = _Pending(fact, sequence, self._now)
            if len(self._pending) > self._capacity:
                self._forget_oldest()

    def _end(self, outcome: Outcome, sequence: int, *, is_nameless: bool) -> None:
        self._pending.pop(outcome.tx_hash, None)
        self._ended[outcome.tx_hash] = None
        if is_nameless:
            self._nameless[outcome.tx_hash] = _Nameless(outcome, sequence, self._now)
        if len(self._ended) > self._capacity:
            self._nameless.pop(self._ended.popitem(last=False)[0], None)

    def _name(self, fact: TxFact, words: _Words) -> None:
        """A transaction that has ended is spoken of again, maybe by the first block that holds it."""
        if (fact.included or fact.executed) and (item := self._nameless.pop(fact.tx_hash, None)) is not None:
            named = msgspec.structs.replace(item.outcome, client_hash=fact.client_hash, sdk_hash=fact.sdk_hash)
            words.named += [named] if fact.client_hash else []

    def _expire(self, now: float) -> None:
        self._now = now
        self.chains.expire(now)
        while self._pending and next(iter(self._pending.values())).since + PENDING_SECONDS <= now:
            self._forget_oldest()
        while self._nameless and next(iter(self._nameless.values())).since + PENDING_SECONDS <= now:
            self._nameless.popitem(last=False)

    def _forget_oldest(self) -> None:
        _, item = self._pending.popitem(last=False)
        self._forgotten += 1
        self._unheard += not item.fact.included
