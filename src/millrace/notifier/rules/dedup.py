"""Which messages of many nodes are news. Rules only: the memory they work on comes from outside.

A block lives through generations: saved, perhaps finalised, perhaps reverted, perhaps saved again. Each of
these is one event, however many nodes tell it and however often. A node that runs behind the others tells
old news: it may save a block which others have reverted already. Such news is recognised exactly when its
connection is older than the block; of a connection that is younger nobody can know what the node said on an
earlier one, and its word counts as new. Then an event may be repeated, but none is ever lost, and the last
word about every block is the right one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

import msgspec

from millrace.chain import outport

CONFLICT = 1
"""Mark: another node said something else about the same block, or another block has the same nonce."""
UNJOINED = 2
"""Mark: a finalised mark whose block did not arrive in time."""
HISTORICAL = 4
"""Mark: a block below the newest of its shard that had never been seen; a node was replaying."""
INCOMPLETE = 8
"""Mark: something before this is missing: blocks of the shard, or executions of its headers."""

_EXECUTION = b"execution "
"""What is remembered of executions stands beside the blocks: of the newest under this name, of each under it and its
header's hash. No hash is so short or so long."""
_EARLIER_DIGESTS = 16, 20  # bytes, of blocks that earlier versions remembered
_REMEMBERED_PER_NODE = 4096  # blocks, whatever time they take: no node takes back so many on one connection


class State(IntEnum):
    """Where a block stands in its present generation."""

    UNSEEN = 0
    SAVED = 1
    FINAL = 2
    REVERTED = 3


class Block(msgspec.Struct, frozen=True):
    """What is remembered of one block of one shard."""

    generation: int = 0
    """How often it was saved as news."""
    state: State = State.UNSEEN
    nonce: int | None = None
    digest: bytes = b""
    """Of its content as first seen."""
    first_sequence: int = 0
    """The journal's next sequence when the block was first heard of."""
    announced: bool = False
    """Finalised before it was saved (again)."""
    held_since: int = 0
    """When (ms) an announcement began to wait for the block; 0: none waits."""


class Event(NamedTuple):
    """News: goes into the journal."""

    topic: str
    shard: int
    subject: bytes
    """The block's hash, or the digest of a message without a block."""
    generation: int
    marks: int = 0
    alone: bool = False
    """A finalised mark made up from memory, not the message in hand."""
    variant: bytes = b""
    """Digest of a content that contradicts the one first seen."""

    @property
    def message_id(self) -> str:
        """`<topic>:<shard>:<hash>:<generation>`; `-unjoined` or `-<digest>` follow for what the marks tell."""
        suffix = "-unjoined" if self.marks & UNJOINED else f"-{self.variant.hex()}" if self.variant else ""
        return f"{self.topic}:{self.shard}:{self.subject.hex()}:{self.generation}{suffix}"


class Verdict(NamedTuple):
    """What to do with one message."""

    events: tuple[Event, ...]
    missing_blocks: int = 0
    """Nonces skipped between the shard's newest block and this one; of an execution, since the newest executed."""
    fork: bool = False
    """Another block of the shard, not reverted, has the same nonce."""
    waits: bool = False
    """The message is kept until its block comes."""
    unheard: bool = False
    """An execution of a header that was never told of, or not with this nonce."""

    @property
    def duplicate(self) -> bool:
        """It tells nothing new."""
        return not self.events and not self.waits


def memory_key(message_id: str) -> tuple[int, bytes]:
    """Shard and name under which an index remembers the block, or the execution, that an event's id is about.

    Raises `ValueError` for what is no such id.
    """
    topic, shard, subject, _ = message_id.split(":")
    name = bytes.fromhex(subject)
    return int(shard), _EXECUTION + name if topic == outport.EXECUTED_BLOCK else name


DUPLICATE = Verdict(())
WAITS = Verdict((), waits=True)


class Index(Protocol):
    """The memory of the rules; it must survive the process together with the journal."""

    next_sequence: int

    def block(self, shard: int, block_hash: bytes) -> Block | None: ...
    def put_block(self, shard: int, block_hash: bytes, block: Block) -> None: ...
    def live_at(self, shard: int, nonce: int) -> list[bytes]:
        """Hashes of blocks at this nonce that are saved and not reverted."""

    def newest_nonce(self, shard: int) -> int | None: ...
    def set_newest_nonce(self, shard: int, nonce: int) -> None: ...
    def waiting(self, before_ms: int) -> list[tuple[int, bytes, Block]]:
        """Blocks whose announcement has waited since before this time."""

    def add_content(self, topic: str, shard: int, digest: bytes) -> bool:
        """Remember a content; false when it was known."""

    def swap_latest(self, topic: str, shard: int, digest: bytes) -> bool:
        """Remember the latest content of a topic; false when it is the same as before."""


class _Told(NamedTuple):
    generation: int
    reverted: bool


class Observer:
    """One connection of a node: what it has told of each block."""

    def __init__(self, opened_at: int) -> None:
        self.opened_at = opened_at
        """The journal's next sequence when the connection opened."""
        self._told: OrderedDict[tuple[int, bytes], _Told] = OrderedDict()
        self._before: dict[tuple[int, bytes], _Told | None] = {}
        """What it had told of the blocks of an open transaction."""

    def saves(self, shard: int, block_hash: bytes, block: Block) -> int:
        """The generation which this node means when it now saves the block."""
        told = self._told.get((shard, block_hash))
        if told is not None:
            generation = told.generation + 1 if told.reverted else told.generation
        elif self.opened_at <= block.first_sequence and block.generation:
            generation = 1
        elif block.state in (State.SAVED, State.FINAL):
            generation = block.generation
        else:
            generation = block.generation + 1
        self._remember(shard, block_hash, _Told(generation, False))
        return generation

    def reverts(self, shard: int, block_hash: bytes, block: Block) -> int:
        """The generation which this node means when it now reverts the block."""
        told = self._told.get((shard, block_hash))
        generation = block.generation if told is None else told.generation
        self._remember(shard, block_hash, _Told(generation, True))
        return generation

    def keep(self) -> None:
        """What it told is on disk."""
        self._before.clear()

    def take_back(self) -> None:
        """What it told since `keep` is not, and will be gone through once more."""
        for key, told in self._before.items():
            if told is None:
                self._told.pop(key, None)
            else:
                self._told[key] = told
        self._before.clear()

    def _remember(self, shard: int, block_hash: bytes, told: _Told) -> None:
        self._before.setdefault((shard, block_hash), self._told.get((shard, block_hash)))
        self._told[shard, block_hash] = told
        self._told.move_to_end((shard, block_hash))
        if len(self._told) > _REMEMBERED_PER_NODE:
            self._told.popitem(last=False)


def save(
    index: Index,
    observer: Observer,
    shard: int,
    block_hash: bytes,
    nonce: int | None,
    digest: bytes,
    closer: Callable[[], bytes] | None = None,
) -> Verdict:
    """A node saved a block. `closer` gives a digest of what must not differ, where `digest` differs from another's."""
    known = index.block(shard, block_hash) or Block(first_sequence=index.next_sequence)
    meant = observer.saves(shard, block_hash, known)
    live = known.state in (State.SAVED, State.FINAL)
    if live or meant <= known.generation:
        if not live or meant != known.generation or _agree(digest, known.digest):
            return DUPLICATE
        digest = closer() if closer is not None else digest
        if _agree(digest, known.digest):
            return DUPLICATE
        if not index.add_content(outport.SAVE_BLOCK, shard, block_hash + digest):
            return DUPLICATE
        return Verdict((Event(outport.SAVE_BLOCK, shard, block_hash, known.generation, CONFLICT, variant=digest),))
    generation = known.generation + 1
    fork, missing, marks = _place(index, shard, block_hash, nonce)
    events = [Event(outport.SAVE_BLOCK, shard, block_hash, generation, marks)]
    if known.announced:
        events.append(Event(outport.FINALIZED_BLOCK, shard, block_hash, generation, alone=True))
    index.put_block(
        shard,
        block_hash,
        Block(
            generation=generation,
            state=State.FINAL if known.announced else State.SAVED,
            nonce=nonce,
            digest=digest,
            first_sequence=known.first_sequence,
        ),
    )
    return Verdict(tuple(events), missing, fork)


def _agree(digest: bytes, known: bytes) -> bool:
    """Whether two digests are of one content. Those that an earlier version made say nothing against it."""
    return digest == known or len(known) in _EARLIER_DIGESTS


def _place(index: Index, shard: int, block_hash: bytes, nonce: int | None) -> tuple[bool, int, int]:
    """Compare a new block with its shard's newest: (fork, missing nonces, marks)."""
    if nonce is None:
        return False, 0, 0
    newest = index.newest_nonce(shard)
    if newest is None or nonce > newest:  # no live block has such a nonce
        index.set_newest_nonce(shard, nonce)
        missing = 0 if newest is None else nonce - newest - 1
        return False, missing, INCOMPLETE if missing else 0
    fork = any(other != block_hash for other in index.live_at(shard, nonce))
    return fork, 0, CONFLICT if fork else HISTORICAL


def execute(
    index: Index,
    shard: int,
    block_hash: bytes,
    nonce: int,
    digest: bytes,
    closer: Callable[[], bytes] | None = None,
) -> Verdict:
    """A block of a shard brought the execution of the header `block_hash`, which has this nonce; `closer` as in `save`.

    It is news once for each time that its header was saved as news. That another header brings it again is not: the
    one that brought it first may have been taken back, the execution was not.
    """
    header = index.block(shard, block_hash) or Block()
    unheard = not header.generation or header.nonce not in (None, nonce)
    generation = max(1, header.generation)
    name = _EXECUTION + block_hash
    known = index.block(shard, name)
    if known is not None and known.generation >= generation:
        if _agree(digest, known.digest):
            return DUPLICATE
        digest = closer() if closer is not None else digest
        if _agree(digest, known.digest) or not index.add_content(outport.EXECUTED_BLOCK, shard, block_hash + digest):
            return DUPLICATE
        event = Event(outport.EXECUTED_BLOCK, shard, block_hash, known.generation, CONFLICT, variant=digest)
        return Verdict((event,))
    index.put_block(shard, name, Block(generation=generation, digest=digest, first_sequence=index.next_sequence))
    newest = index.block(shard, _EXECUTION)
    missing = 0
    if newest is None or newest.nonce is None or nonce > newest.nonce:
        missing = 0 if newest is None or newest.nonce is None else nonce - newest.nonce - 1
        index.put_block(shard, _EXECUTION, Block(nonce=nonce, first_sequence=index.next_sequence))
    marks = INCOMPLETE if missing else 0
    return Verdict((Event(outport.EXECUTED_BLOCK, shard, block_hash, generation, marks),), missing, unheard=unheard)


def finalise(index: Index, shard: int, block_hash: bytes, now: int) -> Verdict:
    """A node called a block final; the mark waits when the block is not here (yet, or again)."""
    known = index.block(shard, block_hash) or Block(first_sequence=index.next_sequence)
    if known.state == State.FINAL or known.announced:
        return DUPLICATE
    if known.state == State.SAVED:
        index.put_block(shard, block_hash, msgspec.structs.replace(known, state=State.FINAL))
        return Verdict((Event(outport.FINALIZED_BLOCK, shard, block_hash, known.generation),))
    index.put_block(shard, block_hash, msgspec.structs.replace(known, announced=True, held_since=now))
    return WAITS


def revert(index: Index, observer: Observer, shard: int, block_hash: bytes) -> Verdict:
    """A node took a block back."""
    known = index.block(shard, block_hash) or Block(first_sequence=index.next_sequence)
    meant = observer.reverts(shard, block_hash, known)
    if known.state == State.REVERTED or meant < known.generation:
        return DUPLICATE
    events = []
    if known.held_since:
        events.append(_alone(shard, block_hash, known))
    events.append(Event(outport.REVERT_INDEXED_BLOCK, shard, block_hash, known.generation))
    index.put_block(
        shard,
        block_hash,
        msgspec.structs.replace(known, state=State.REVERTED, announced=False, held_since=0),
    )
    nonce = known.nonce
    if nonce is not None and nonce == index.newest_nonce(shard) and not index.live_at(shard, nonce):
        index.set_newest_nonce(shard, nonce - 1)
    return Verdict(tuple(events))


def release(index: Index, before_ms: int) -> tuple[Event, ...]:
    """Finalised marks whose block did not come in time: they are delivered alone.

    When the block comes after all, it is followed by its mark once more.
    """
    events = []
    for shard, block_hash, block in index.waiting(before_ms):
        events.append(_alone(shard, block_hash, block))
        index.put_block(shard, block_hash, msgspec.structs.replace(block, held_since=0))
    return tuple(events)


def _alone(shard: int, block_hash: bytes, block: Block) -> Event:
    return Event(outport.FINALIZED_BLOCK, shard, block_hash, block.generation, UNJOINED, alone=True)


def other(index: Index, topic: str, shard: int, digest: bytes) -> Verdict:
    """A message that belongs to no block: news when its content is; settings: when they changed."""
    if topic == outport.SETTINGS:
        # The same may come back, and is news again: its generation tells the two apart.
        news, generation = index.swap_latest(topic, shard, digest), index.next_sequence
    else:
        news, generation = index.add_content(topic, shard, digest), 1
    return Verdict((Event(topic, shard, digest, generation),)) if news else DUPLICATE
