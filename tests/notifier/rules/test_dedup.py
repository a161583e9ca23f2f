"""What is news and what is not, against histories of one chain told by several nodes."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.chain import outport
from millrace.notifier.rules import dedup
from millrace.notifier.rules.dedup import CONFLICT, HISTORICAL, INCOMPLETE, UNJOINED, Block, Event, Observer

from ..helpers import block_hash

SAVE, FINAL, REVERT = outport.SAVE_BLOCK, outport.FINALIZED_BLOCK, outport.REVERT_INDEXED_BLOCK


class Memory:
    """`dedup.Index` in dictionaries."""

    def __init__(self) -> None:
        self.next_sequence = 1
        self.blocks: dict[tuple[int, bytes], Block] = {}
        self.newest: dict[int, int] = {}
        self.contents: set[tuple[str, int, bytes]] = set()
        self.latest: dict[tuple[str, int], bytes] = {}

    def block(self, shard: int, hash_: bytes) -> Block | None:
        return self.blocks.get((shard, hash_))

    def put_block(self, shard: int, hash_: bytes, block: Block) -> None:
        self.blocks[shard, hash_] = block

    def live_at(self, shard: int, nonce: int) -> list[bytes]:
        return [
            hash_
            for (where, hash_), block in self.blocks.items()
            if where == shard and block.nonce == nonce and block.state in (dedup.State.SAVED, dedup.State.FINAL)
        ]

    def newest_nonce(self, shard: int) -> int | None:
        return self.newest.get(shard)

    def set_newest_nonce(self, shard: int, nonce: int) -> None:
        self.newest[shard] = nonce

    def waiting(self, before_ms: int) -> list[tuple[int, bytes, Block]]:
        return [(s, h, b) for (s, h), b in self.blocks.items() if 0 < b.held_since < before_ms]

    def add_content(self, topic: str, shard: int, digest: bytes) -> bool:
        known = (topic, shard, digest) in self.contents
        self.contents.add((topic, shard, digest))
        return not known

    def swap_latest(self, topic: str, shard: int, digest: bytes) -> bool:
        before = self.latest.get((topic, shard))
        self.latest[topic, shard] = digest
        return before != digest


class Journal:
    """Applies what nodes tell and keeps the news."""

    def __init__(self) -> None:
        self.index = Memory()
        self.events: list[Event] = []
        self.now = 1

    def observer(self) -> Observer:
        return Observer(self.index.next_sequence)

    def tell(self, observer: Observer, topic: str, nonce: int, fork: int = 0, shard: int = 0) -> dedup.Verdict:
        hash_ = block_hash((nonce, fork))
        if topic == SAVE:
            verdict = dedup.save(self.index, observer, shard, hash_, nonce, hash_[:16])
        elif topic == FINAL:
            verdict = dedup.finalise(self.index, shard, hash_, self.now)
        else:
            verdict = dedup.revert(self.index, observer, shard, hash_)
        self.take(verdict.events)
        return verdict

    def take(self, events: tuple[Event, ...]) -> None:
        self.events += events
        self.index.next_sequence += len(events)

    @property
    def topics(self) -> list[str]:
        return [event.topic for event in self.events]


SEEDS = st.integers(0, 2**32)

Step = tuple[str, int, int]  # topic, nonce, fork


@st.composite
def chains(draw: st.DrawFn) -> list[Step]:
    """What one correct node tells of a shard: blocks, reverts of the newest, the same or other ones again."""
    steps: list[Step] = []
    stack: list[tuple[int, bool]] = []  # fork of the block at each nonce, and whether it is final
    for choice in draw(st.lists(st.sampled_from(("save", "save", "final", "revert", "fork")), max_size=14)):
        if choice in ("save", "fork"):
            fork = 1 if choice == "fork" else 0
            early = draw(st.booleans())
            announce = draw(st.booleans())
            if announce and early:
                steps.append((FINAL, len(stack), fork))
            steps.append((SAVE, len(stack), fork))
            stack.append((fork, announce))
            if announce and not early:
                steps.append((FINAL, len(stack) - 1, fork))
        elif choice == "revert" and stack:
            fork, _ = stack.pop()
            steps.append((REVERT, len(stack), fork))
    return steps


def expected(steps: list[Step]) -> list[Step]:
    """The news in a correct node's tale: finality right behind its block when it came before it."""
    result: list[Step] = []
    announced: set[tuple[int, int]] = set()
    saved: set[tuple[int, int]] = set()
    for topic, nonce, fork in steps:
        if topic == FINAL and (nonce, fork) not in saved:
            announced.add((nonce, fork))
            continue
        result.append((topic, nonce, fork))
        if topic == SAVE:
            saved.add((nonce, fork))
            if (nonce, fork) in announced:
                announced.discard((nonce, fork))
                result.append((FINAL, nonce, fork))
        elif topic == REVERT:
            saved.discard((nonce, fork))
    return result


def named(events: list[Event]) -> list[Step]:
    names = {block_hash((nonce, fork)): (nonce, fork) for nonce in range(40) for fork in range(3)}
    return [(event.topic, *names[event.subject]) for event in events]


@settings(max_examples=200, deadline=None)
@given(chains(), SEEDS)
def test_one_node_with_resends(steps: list[Step], seed: int) -> None:
    """Every step of one node is news once, in order, though any of them is sent several times."""
    rng = random.Random(seed)
    journal = Journal()
    observer = journal.observer()
    for step in steps:
        for _ in range(rng.choice((1, 1, 2, 3))):
            journal.tell(observer, *step)
    assert named(journal.events) == expected(steps)


@settings(max_examples=300, deadline=None)
@given(chains(), SEEDS, st.integers(2, 4))
def test_several_nodes_in_step_or_behind(steps: list[Step], seed: int, nodes: int) -> None:
    """Nodes connected from the start add nothing, however far behind the first they tell the same tale."""
    rng = random.Random(seed)
    journal = Journal()
    observers = [journal.observer() for _ in range(nodes)]
    places = [0] * nodes
    while any(place < len(steps) for place in places):
        number = rng.randrange(nodes)
        if places[number] < len(steps):
            journal.tell(observers[number], *steps[places[number]])
            places[number] += 1
    saves_and_reverts = [step for step in expected(steps) if step[0] != FINAL]
    assert [step for step in named(journal.events) if step[0] != FINAL] == saves_and_reverts


@settings(max_examples=300, deadline=None)
@given(chains(), SEEDS, st.integers(1, 3))
def test_reconnecting_nodes_lose_nothing(steps: list[Step], seed: int, nodes: int) -> None:
    """Whatever connections break: every step is in the news, and the last word on each block is the right one."""
    rng = random.Random(seed)
    journal = Journal()
    observers = [journal.observer() for _ in range(nodes)]
    places = [0] * nodes
    while any(place < len(steps) for place in places):
        number = rng.randrange(nodes)
        if rng.random() < 0.2:
            observers[number] = journal.observer()
            places[number] = max(0, places[number] - rng.choice((0, 1)))  # the unacknowledged one again
        if places[number] < len(steps):
            journal.tell(observers[number], *steps[places[number]])
            places[number] += 1
    last: dict[tuple[int, int], str] = {}
    told: dict[Step, int] = defaultdict(int)
    for step in named(journal.events):
        told[step] += 1
        if step[0] != FINAL:
            last[step[1:]] = step[0]
    right: dict[tuple[int, int], str] = {}
    for step in steps:
        if step[0] != FINAL:
            right[step[1:]] = step[0]
            assert told[step]
    assert last == right


def test_four_events_of_one_block() -> None:
    """Saved, finalised, reverted, saved again: four events with four message ids."""
    journal = Journal()
    observer = journal.observer()
    for topic in (SAVE, SAVE, FINAL, FINAL, REVERT, REVERT, SAVE, SAVE):
        journal.tell(observer, topic, 3)
    assert journal.topics == [SAVE, FINAL, REVERT, SAVE]
    assert len({event.message_id for event in journal.events}) == 4


def test_final_before_saved_is_joined() -> None:
    """A finalised mark that comes first waits and follows its block at once."""
    journal = Journal()
    observer = journal.observer()
    assert not journal.tell(observer, FINAL, 3).duplicate
    assert journal.tell(observer, FINAL, 3).duplicate
    journal.tell(observer, SAVE, 3)
    assert journal.topics == [SAVE, FINAL] and not any(event.marks for event in journal.events)


def test_final_without_block_is_released() -> None:
    """A finalised mark whose block stays away is delivered alone; the block, when it comes, is final again."""
    journal = Journal()
    observer = journal.observer()
    journal.tell(observer, FINAL, 3)
    journal.take(dedup.release(journal.index, journal.now))
    assert journal.topics == []
    journal.take(dedup.release(journal.index, journal.now + 1))
    journal.take(dedup.release(journal.index, journal.now + 1))
    assert [(e.topic, e.marks) for e in journal.events] == [(FINAL, UNJOINED)]
    journal.tell(observer, SAVE, 3)
    assert journal.topics == [FINAL, SAVE, FINAL]
    assert len({event.message_id for event in journal.events}) == 3


def test_revert_of_a_block_only_announced() -> None:
    """A finalised mark still waiting when its block is reverted is not lost."""
    journal = Journal()
    observer = journal.observer()
    journal.tell(observer, FINAL, 3)
    journal.tell(observer, REVERT, 3)
    assert journal.topics == [FINAL, REVERT]


def test_gap_is_counted() -> None:
    """Nonces that a shard's blocks skip are counted; the first block and one after a revert skip none."""
    journal = Journal()
    observer = journal.observer()
    assert journal.tell(observer, SAVE, 7).missing_blocks == 0
    assert journal.tell(observer, SAVE, 8).missing_blocks == 0
    assert journal.tell(observer, SAVE, 12).missing_blocks == 3
    journal.tell(observer, REVERT, 12)
    assert journal.tell(observer, SAVE, 12, fork=1).missing_blocks == 0
    assert journal.tell(observer, SAVE, 5, shard=1).missing_blocks == 0


def test_two_blocks_at_one_nonce() -> None:
    """Two live blocks at one nonce are both delivered, the second marked; after a revert there is no conflict."""
    journal = Journal()
    observer = journal.observer()
    journal.tell(observer, SAVE, 5)
    assert journal.tell(observer, SAVE, 5, fork=1).fork
    journal.tell(observer, REVERT, 5, fork=1)
    journal.tell(observer, REVERT, 5)
    assert not journal.tell(observer, SAVE, 5, fork=2).fork
    assert [e.marks for e in journal.events if e.topic == SAVE] == [CONFLICT * 0, CONFLICT, 0]


def test_revert_of_one_branch_keeps_the_height() -> None:
    """When one of two blocks at a nonce is reverted, the other still is the newest: the next block skips none."""
    journal = Journal()
    observer = journal.observer()
    journal.tell(observer, SAVE, 5)
    journal.tell(observer, SAVE, 5, fork=1)
    journal.tell(observer, REVERT, 5)
    assert journal.tell(observer, SAVE, 6).missing_blocks == 0


def test_disagreement_is_marked() -> None:
    """A node that tells another content of a block is delivered too, marked, once per content."""
    journal = Journal()
    first, second = journal.observer(), journal.observer()
    hash_ = block_hash("h")
    for observer, digest in ((first, b"a"), (second, b"b"), (second, b"b"), (first, b"a"), (first, b"c")):
        journal.take(dedup.save(journal.index, observer, 0, hash_, 1, digest).events)
    assert [e.marks for e in journal.events] == [0, CONFLICT, CONFLICT]
    assert len({e.message_id for e in journal.events}) == 3


def test_replayed_block_is_historical() -> None:
    """A block below the shard's newest that was never seen is delivered, marked as historical."""
    journal = Journal()
    observer = journal.observer()
    journal.tell(observer, SAVE, 9)
    journal.tell(observer, SAVE, 4)
    journal.tell(observer, SAVE, 4)
    assert [e.marks for e in journal.events] == [0, HISTORICAL]


@pytest.mark.parametrize(("topic", "count"), [(outport.SAVE_ROUNDS_INFO, 2), (outport.SETTINGS, 3)])
def test_messages_without_a_block(topic: str, count: int) -> None:
    """Such a message is news when its content is new; settings whenever they differ from the latest."""
    journal = Journal()
    for digest in (b"a", b"a", b"b", b"b", b"a"):
        journal.take(dedup.other(journal.index, topic, 0, digest).events)
    assert len(journal.events) == count
    assert len({event.message_id for event in journal.events}) == count


def test_unknown_height_is_accepted() -> None:
    """A block whose header type is unknown has no nonce: it is delivered and counts for no gap."""
    journal = Journal()
    verdict = dedup.save(journal.index, journal.observer(), 0, block_hash("x"), None, b"")
    assert len(verdict.events) == 1 and not verdict.fork and not verdict.missing_blocks


# Executions.

EXECUTED = outport.EXECUTED_BLOCK
FIRST, SECOND = b"\1" * 24, b"\2" * 24


def test_an_execution_is_news_once() -> None:
    """Whoever brings it again, in whichever block, tells nothing new; its id is made of shard and executed hash."""
    memory = Memory()
    first = dedup.execute(memory, 1, block_hash("a"), 7, FIRST)
    assert [item.message_id for item in first.events] == [f"ExecutedBlock:1:{block_hash('a').hex()}:1"]
    assert dedup.execute(memory, 1, block_hash("a"), 7, FIRST).duplicate
    assert not dedup.execute(memory, 2, block_hash("a"), 7, FIRST).duplicate  # another shard's


def test_an_execution_after_its_header_was_saved_again() -> None:
    """A header that was taken back and saved anew is executed anew: that is news, under the new generation."""
    memory, node = Memory(), Observer(1)
    dedup.save(memory, node, 1, block_hash("a"), 7, FIRST)
    assert dedup.execute(memory, 1, block_hash("a"), 7, FIRST).events[0].generation == 1
    dedup.revert(memory, node, 1, block_hash("a"))
    assert dedup.execute(memory, 1, block_hash("a"), 7, FIRST).duplicate
    dedup.save(memory, node, 1, block_hash("a"), 7, FIRST)
    again = dedup.execute(memory, 1, block_hash("a"), 7, FIRST)
    assert again.events[0].message_id == f"ExecutedBlock:1:{block_hash('a').hex()}:2"


def test_nodes_that_disagree_on_an_execution() -> None:
    """Another content of the same execution is told too, once, and marked."""
    memory = Memory()
    dedup.execute(memory, 1, block_hash("a"), 7, FIRST)
    other = dedup.execute(memory, 1, block_hash("a"), 7, SECOND)
    assert other.events[0].marks == CONFLICT
    assert other.events[0].message_id.endswith(SECOND.hex())
    assert dedup.execute(memory, 1, block_hash("a"), 7, SECOND).duplicate
    assert dedup.execute(memory, 1, block_hash("a"), 7, FIRST).duplicate


@pytest.mark.parametrize("earlier", [b"\1" * 16, b"\1" * 20])
def test_what_an_earlier_version_remembered_is_no_contradiction(earlier: bytes) -> None:
    """Its digests are of another size and say nothing against a block or an execution that is told again."""
    memory, node = Memory(), Observer(1)
    dedup.save(memory, node, 1, block_hash("a"), 7, earlier)
    dedup.execute(memory, 1, block_hash("a"), 7, earlier)
    assert dedup.save(memory, Observer(1), 1, block_hash("a"), 7, FIRST).duplicate
    assert dedup.execute(memory, 1, block_hash("a"), 7, FIRST).duplicate


def test_holes_are_told_in_both_chains_of_nonces() -> None:
    """A block or an execution behind a hole is marked, and the hole counted; what fills it later is not."""
    memory, node = Memory(), Observer(1)
    for nonce, missing in ((5, 0), (6, 0), (9, 2), (8, 0), (10, 0)):
        verdict = dedup.execute(memory, 1, block_hash(nonce), nonce, FIRST)
        assert verdict.missing_blocks == missing
        assert bool(verdict.events[0].marks & INCOMPLETE) == bool(missing)
        verdict = dedup.save(memory, node, 1, block_hash(("b", nonce)), nonce, FIRST)
        assert verdict.missing_blocks == missing
        assert bool(verdict.events[0].marks & INCOMPLETE) == bool(missing)


def test_what_is_remembered_of_executions_is_no_block() -> None:
    """Executions neither fork with blocks nor move the newest block of their shard."""
    memory, node = Memory(), Observer(1)
    dedup.save(memory, node, 1, block_hash("a"), 7, FIRST)
    dedup.execute(memory, 1, block_hash("b"), 7, FIRST)
    assert memory.live_at(1, 7) == [block_hash("a")]
    assert memory.newest_nonce(1) == 7
    assert not dedup.save(memory, node, 1, block_hash("c"), 8, FIRST).fork
