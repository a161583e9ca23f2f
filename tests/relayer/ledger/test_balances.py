"""What a key is known to hold, against a small model of a chain: never more than it holds, and in the end all of it."""

from __future__ import annotations

import os
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace.relayer.blocks.rounds import Rounds
from millrace.relayer.ledger.balances import LAG_SECONDS, MAX_FINAL, MAX_HEIGHTS, MAX_LOOSE, Balances, Reading

KEY, SHARD = b"key", 1
AMOUNTS = st.integers(0, 50)


class Made(NamedTuple):
    """A block of the model: what the key paid and got in it, and what it holds after it."""

    height: int
    name: bytes
    paid: int
    got: int
    sent: int
    """What its operator took away, by a transaction of the key itself."""
    holds: int
    nonce: int


class World(RuleBasedStateMachine):
    """Blocks that are executed, taken back and final, and readings of any of them that come late."""

    later = False
    """Whether blocks are executed later, with the header after them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.balances = Balances(lambda: self.now)
        self.balances.watch({SHARD: KEY})
        self.final = [Made(0, b"genesis", 0, 0, 0, 1000, 0)]
        self.final_at = [self.now]
        self.balances.final(SHARD, 0, b"genesis")  # of a shard nobody spoke of any reading counts
        self.tail: list[Made] = []
        self.forks = 0
        self.under_way: list[Reading] = []
        self.has_heard = True
        """Whether a block became final since the last restart: before that any reading counts."""

    @rule(paid=AMOUNTS, got=AMOUNTS, sent=st.sampled_from([0, 0, 0, 7]))
    def execute(self, paid: int, got: int, sent: int) -> None:
        before = (self.final + self.tail)[-1]
        self.forks += 1
        holds, nonce = before.holds - paid + got - sent, before.nonce + bool(sent)
        self.tail.append(Made(before.height + 1, b"%d" % self.forks, paid, got, sent, holds, nonce))

    @precondition(lambda self: self.tail)
    @rule()
    def revert(self) -> None:
        self.tail.pop()

    @precondition(lambda self: self.tail)
    @rule(ahead=st.integers(0, 5))
    def finalise(self, ahead: int) -> None:
        block = self.tail.pop(0)
        self.final.append(block)
        self.has_heard = True
        self.final_at.append(self.now)
        self.balances.paid(KEY, block.paid, block.height + self.later)
        self.balances.final(SHARD, block.height, block.name)
        self.balances.got(KEY, block.got, block.height)
        if not block.got and not block.sent:
            return  # nodes leave out who only paid
        shown = ([block, *self.tail])[min(ahead, len(self.tail))] if self.later else block
        reading = Reading(shown.holds, self.now, block.height, block.name, shown.nonce)
        taken = sum(item.paid for item in self.tail)
        self.balances.told(KEY, reading, runs_ahead=self.later, taken=taken)

    @rule(back=st.integers(0, 3), by_header=st.booleans())
    def ask(self, back: int, by_header: bool) -> None:
        """The chain API reads the state after a block, final or not, and calls it by it or by the header after it."""
        blocks = self.final + self.tail
        place = max(0, len(blocks) - 1 - back)
        block = blocks[place]
        named = blocks[place + 1] if by_header and self.later and place + 1 < len(blocks) else block
        self.under_way.append(Reading(block.holds, self.now, named.height, named.name, block.nonce))

    @rule(back=st.integers(0, 3))
    def ask_without_a_block(self, back: int) -> None:
        """The chain API is behind by less than it may be, and says nothing of blocks."""
        place = max(0, len(self.final) - 1 - back)
        while place + 1 < len(self.final) and self.final_at[place + 1] <= self.now - LAG_SECONDS:
            place += 1
        self.under_way.append(Reading(self.final[place].holds, self.now, nonce=self.final[place].nonce))

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 100))
    def answer(self, which: int) -> None:
        self.balances.read(KEY, self.under_way.pop(which % len(self.under_way)))

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def lose_events(self) -> None:
        self.balances.forget_all()

    @precondition(lambda self: self.was_only_paid_lately)
    @rule()
    def restart(self) -> None:
        """Fees of the last seconds are in the journal; nothing else is known, and the next block is the first."""
        self.balances = Balances(lambda: self.now)
        self.balances.watch({SHARD: KEY})
        for block, at in zip(self.final, self.final_at, strict=True):
            if at > self.now - LAG_SECONDS:
                self.balances.paid_at(KEY, block.paid, at)
        self.under_way.clear()
        self.has_heard = False

    @property
    def was_only_paid_lately(self) -> bool:
        """Whether its operator took nothing away in the last seconds, which no journal has."""
        blocks = zip(self.final, self.final_at, strict=True)
        return not any(block.sent for block, at in blocks if at > self.now - LAG_SECONDS)

    @invariant()
    def never_more_than_it_holds(self) -> None:
        if not self.has_heard:
            return
        bound = self.balances.lower_bound(KEY)
        assert bound is None or bound <= self.final[-1].holds

    @rule()
    def read_the_last_final_block(self) -> None:
        """A reading of the last block that everybody has heard of tells it to the unit, when nothing is late."""
        self.wait(LAG_SECONDS + 1)
        self.execute(0, 0, 0)
        while self.tail:
            self.finalise(0)
        self.wait(LAG_SECONDS + 1)
        last = self.final[-1]
        self.balances.read(KEY, Reading(last.holds, self.now, last.height, last.name, last.nonce))
        assert self.balances.lower_bound(KEY) == last.holds


class LaterWorld(World):
    later = True


EXAMPLES = int(os.environ.get("MILLRACE_MODEL_EXAMPLES", "50"))
TestBlocksExecutedWhenMade = World.TestCase
TestBlocksExecutedLater = LaterWorld.TestCase
TestBlocksExecutedWhenMade.settings = settings(max_examples=EXAMPLES, stateful_step_count=30, deadline=None)
TestBlocksExecutedLater.settings = TestBlocksExecutedWhenMade.settings


def held(clock: list[float], balance: int = 1000, height: int | None = 5, round_ms: int = 600) -> Balances:
    balances = Balances(lambda: clock[0], Rounds(round_ms))
    balances.watch({SHARD: KEY})
    balances.read(KEY, Reading(balance, clock[0], height, b"5" if height is not None else b""))
    return balances


def test_a_new_key_holds_nothing_that_is_known() -> None:
    """Until its first reading a key has no lower bound, and somebody is told to ask; one that is gone has none."""
    balances = Balances(lambda: 0.0)
    asked: list[bool] = []
    balances.on_wanted = lambda: asked.append(True)
    balances.watch({SHARD: KEY})
    assert balances.lower_bound(KEY) is None and asked and KEY in balances.wanted
    assert balances.read(KEY, Reading(7, 0.0)) and balances.lower_bound(KEY) == 7 and not balances.wanted
    balances.watch({SHARD: b"other"})
    assert balances.lower_bound(KEY) is None


def test_fees_and_refunds_count_once() -> None:
    """What the anchor's block has is not taken off again; refunds and refills of later final blocks are added."""
    balances = held([100.0])
    balances.paid(KEY, 10, 5)
    assert balances.lower_bound(KEY) == 1000
    balances.paid(KEY, 10, 6)
    balances.got(KEY, 3, 6)
    balances.got(KEY, 500, 5)
    assert balances.lower_bound(KEY) == 993


def test_a_reading_from_before_the_first_final_block_waits_if_it_is_ahead_of_it() -> None:
    """After a start the chain API may be ahead: what it saw in a block that is not final yet is not there yet."""
    balances = held([100.0], balance=1001, height=5)
    balances.final(SHARD, 4, b"4")
    assert balances.lower_bound(KEY) is None and KEY in balances.wanted
    balances.final(SHARD, 5, b"5")
    assert balances.lower_bound(KEY) == 1001
    balances = held([100.0], balance=1001, height=5)
    balances.final(SHARD, 4, b"4")
    balances.final(SHARD, 5, b"another")
    assert balances.lower_bound(KEY) is None
    balances = held([100.0], balance=1001, height=5)
    balances.final(SHARD, 5, b"another")
    assert balances.lower_bound(KEY) is None


def test_a_reading_of_before_the_key_sent_something_is_old_however_late_it_comes() -> None:
    """A chain API that is far behind names its block: a final one of that height has told of a later nonce."""
    clock = [100.0]
    balances = Balances(lambda: clock[0])
    balances.watch({SHARD: KEY})
    for height in (4, 5):
        balances.final(SHARD, height, b"%d" % height)
    balances.told(KEY, Reading(993, 100.0, 5, b"5", 1), runs_ahead=True, taken=0)
    clock[0] += LAG_SECONDS + 1
    assert not balances.read(KEY, Reading(1000, clock[0], 4, b"4", 0))
    assert balances.lower_bound(KEY) is None
    assert balances.read(KEY, Reading(993, clock[0], 5, b"5", 1))
    assert balances.lower_bound(KEY) == 993


def test_a_reading_counts_when_its_block_is_final() -> None:
    """A refill seen by the chain API in a block that is taken back was never there."""
    balances = held([100.0])
    balances.final(SHARD, 5, b"5")
    assert not balances.read(KEY, Reading(2000, 100.0, 6, b"fork"))
    assert balances.lower_bound(KEY) == 1000
    balances.final(SHARD, 6, b"6")
    assert balances.lower_bound(KEY) == 1000 and KEY in balances.wanted
    assert not balances.read(KEY, Reading(1500, 101.0, 7, b"7"))
    balances.final(SHARD, 7, b"7")
    assert balances.lower_bound(KEY) == 1500


def test_a_reading_without_a_block_may_lack_the_last_seconds() -> None:
    """Fees of the seconds before such a reading are taken off, whether it has them or not; the next one settles it."""
    clock = [100.0]
    balances = held(clock, height=None)
    balances.paid(KEY, 10, 6)
    clock[0] += LAG_SECONDS / 2
    balances.read(KEY, Reading(990, clock[0]))
    assert balances.lower_bound(KEY) == 980
    clock[0] += LAG_SECONDS
    balances.read(KEY, Reading(990, clock[0]))
    assert balances.lower_bound(KEY) == 990


def test_a_reading_of_before_the_first_block_does_not_count() -> None:
    """A chain API that is behind at a start lacks fees of long ago: what it says ends with the first final block."""
    balances = held([100.0], height=500)
    balances.final(SHARD, 1000, b"1000")
    assert balances.lower_bound(KEY) is None and KEY in balances.wanted
    assert not balances.read(KEY, Reading(1000, 101.0, 500, b"5")) and balances.lower_bound(KEY) is None
    assert balances.read(KEY, Reading(40, 102.0, 1000, b"1000")) and balances.lower_bound(KEY) == 40


def test_fees_without_a_height_leave_one_by_one() -> None:
    """Under steady traffic a reading settles those of long before it, though there are some of the last seconds."""
    clock, holds = [100.0], 10_000
    balances = held(clock, balance=holds, height=None)
    for _ in range(600):
        clock[0] += 1.0
        holds -= 1
        balances.paid(KEY, 1, None)
        balances.read(KEY, Reading(holds, clock[0]))
        bound = balances.lower_bound(KEY)
        assert bound is not None and holds - LAG_SECONDS - 1 <= bound <= holds


def test_a_reading_of_a_block_of_long_ago_lacks_what_came_after_it() -> None:
    """A fee without a height that was heard of after a reading's block is not in it, however far the API is behind."""
    clock = [100.0]
    balances = held(clock, height=5)
    for height in (5, 6, 7):
        balances.final(SHARD, height, b"%d" % height)
        clock[0] += 20
    balances.paid(KEY, 30, None)
    clock[0] += 2 * LAG_SECONDS
    assert balances.read(KEY, Reading(1000, clock[0], 7, b"7"))
    assert balances.lower_bound(KEY) == 970
    balances.final(SHARD, 8, b"8")
    assert balances.read(KEY, Reading(970, clock[0] + 3 * LAG_SECONDS, 8, b"8"))
    assert balances.lower_bound(KEY) == 970


def test_a_reading_of_a_block_that_nobody_remembers_forgets_no_fee() -> None:
    """However long the chain API stays at one block, and whether or not that is told as final once more."""
    clock = [100.0]
    balances = held(clock, height=1)
    balances.final(SHARD, 1, b"1")
    clock[0] += 2 * LAG_SECONDS
    balances.paid(KEY, 30, None)
    for height in range(2, MAX_FINAL + 10):
        clock[0] += 1
        balances.final(SHARD, height, b"%d" % height)
        if height < MAX_FINAL:
            balances.final(SHARD, 1, b"1")
        balances.read(KEY, Reading(1000, clock[0], 1, b"1"))
        assert balances.lower_bound(KEY) == 970


def test_fees_without_a_height_are_bounded() -> None:
    """While no reading comes the oldest seconds become one, and nothing of what was paid is forgotten."""
    clock = [100.0]
    balances = held(clock, balance=10**6)
    for _ in range(2 * MAX_LOOSE):
        clock[0] += 1.0
        balances.paid(KEY, 1, None)
    assert len(balances._keys[KEY].loose) == MAX_LOOSE
    assert balances.lower_bound(KEY) == 10**6 - 2 * MAX_LOOSE


@pytest.mark.parametrize(("round_ms", "most"), [(600, MAX_HEIGHTS), (6_000, 102), (60, MAX_HEIGHTS)])
def test_blocks_that_are_kept_are_bounded(round_ms: int, most: int) -> None:
    """By a time and by room; at the bound the oldest goes into the anchor, and no reading of before it is taken."""
    balances = held([100.0], balance=10**6, round_ms=round_ms)
    for height in range(6, 6 + 2 * MAX_HEIGHTS):
        balances.paid(KEY, 1, height)
    assert balances.lower_bound(KEY) == 10**6 - 2 * MAX_HEIGHTS
    assert len(balances._keys[KEY].blocks) == most
    assert not balances.read(KEY, Reading(10**6, 100.0, 7, b"7"))
    assert balances.read(KEY, Reading(10**6 - 2 * MAX_HEIGHTS, 100.0, 5 + 2 * MAX_HEIGHTS, b"last"))
    assert balances.lower_bound(KEY) == 10**6 - 2 * MAX_HEIGHTS


@pytest.mark.parametrize(("round_ms", "most"), [(600, MAX_FINAL), (6_000, 25), (60, MAX_FINAL)])
def test_final_blocks_that_are_remembered_are_bounded(round_ms: int, most: int) -> None:
    """By a time and by room, the oldest go first; a reading of one that is remembered under another name counts not."""
    balances = held([100.0], height=1, round_ms=round_ms)
    newest = 2 * MAX_FINAL
    for height in range(1, newest + 1):
        balances.final(SHARD, height, b"%d" % height)
    assert len(balances._final[SHARD]) == most and min(balances._final[SHARD]) == newest - most + 1
    assert not balances.read(KEY, Reading(1000, 100.0, newest, b"another"))
    assert balances.read(KEY, Reading(1000, 100.0, newest, b"%d" % newest))
