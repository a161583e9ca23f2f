"""A transaction's life where blocks are proposed first and executed later, against a model that knows only the plan.

Proposals, results, marks of finality and reverts come in any order, twice, and across restarts. Some headers are
replaced: what they brought comes again with another header, and is told once. The model looks at sets of what was
heard; it knows nothing of facts, of miniblocks or of how the tracker joins them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from relayer_later import Executed, LaterMaker, results_of
from relayer_support import NETWORK, transfer, wallet

from millrace.chain.proto import outport_pb2 as pb
from millrace.chain.transaction import Transaction, chain_hash
from millrace.relayer.blocks.chains import EARLY_FINALITY_SECONDS
from millrace.relayer.blocks.facts import BlockFacts
from millrace.relayer.blocks.reader import read_block, read_result
from millrace.relayer.blocks.tracker import Release, Tracker

EXAMPLES = int(os.environ.get("MILLRACE_MODEL_EXAMPLES", "250"))
SHARDS = (0, 1)
LENGTH = 5
"""Blocks of each shard that may hold something; as many come after them and bring the last results."""

NOT_EXECUTABLE = "unexecutable"
Name = tuple[int, int, int]
"""Shard, height, and 1 for a header that is replaced."""


class Try(NamedTuple):
    """What becomes of a transaction in one block of its sender's shard, or of its receiver's."""

    at: tuple[int, int]
    end: str
    """`sent` on to the other shard, `success`, `fail`, `invalid`, `named` unexecutable, or `left` out of the result."""


class Plan(NamedTuple):
    """A transaction and all its tries, the last of which may be its end."""

    tx: Transaction
    tries: tuple[Try, ...]


@st.composite
def plans(draw: st.DrawFn) -> list[Plan]:
    """Up to four transactions, each proposed once or twice."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        source, target = draw(st.sampled_from(SHARDS)), draw(st.sampled_from(SHARDS))
        tx = transfer(wallet(source, number), receiver=wallet(target, 20).public)
        height, tries = draw(st.integers(1, 3)), []
        if draw(st.booleans()):
            tries.append(Try((source, height), draw(st.sampled_from(["named", "left"]))))
            height += 1
        if not tries or draw(st.booleans()):
            end = draw(st.sampled_from(["success", "success", "fail", "invalid"]))
            if source == target or end == "invalid":
                tries.append(Try((source, height), end))
            else:
                tries += [Try((source, height), "sent"), Try((target, draw(st.integers(1, LENGTH))), end)]
        made.append(Plan(tx, tuple(tries)))
    return made


class World:
    """Both shards' chains: what is saved, which results are told under which header, and what each lists."""

    def __init__(self, made: list[Plan], lags: list[int], replaced: set[tuple[int, int]]) -> None:
        self.saved: dict[Name, BlockFacts] = {}
        self.results: dict[tuple[int, int], BlockFacts] = {}
        self.lists: dict[Name, list[tuple[int, int]]] = {}
        self.orphans: list[BlockFacts] = []
        """Results of headers that were replaced: executed in vain."""
        for shard in SHARDS:
            self._build(shard, made, lags, replaced)

    def _build(self, shard: int, made: list[Plan], lags: list[int], replaced: set[tuple[int, int]]) -> None:
        maker, waiting = LaterMaker(shard), list[tuple[tuple[int, int], Executed]]()
        for height in range(1, 2 * LENGTH + 1):
            # So many blocks of execution are left to do: none at first, and none at the end.
            behind = lags[height % len(lags)] if height < 2 * LENGTH else 0
            due, waiting = waiting[: max(0, len(waiting) - behind)], waiting[max(0, len(waiting) - behind) :]
            here = [(plan.tx, each.end) for plan in made for each in plan.tries if each.at == (shard, height)]
            proposed = [tx for tx, _ in here]
            if (shard, height) in replaced:  # it brings the same results, or some, and the real one brings all
                few = due[: 1 + height % 2]
                fork = maker.propose(proposed, [item for _, item in few], fork=1)
                self._add((shard, height, 1), fork, [at for at, _ in few])
                above = LaterMaker(shard, nonce=height, previous=fork.blockData.headerHash)
                child = above.propose([], [execution(maker, fork, here)])
                self.orphans += [read_result(item, NETWORK) for item in results_of(child)]
            block = maker.propose(proposed, [item for _, item in due])
            self._add((shard, height, 0), block, [at for at, _ in due])
            waiting.append(((shard, height), execution(maker, block, here)))

    def _add(self, name: Name, block: pb.OutportBlock, lists: list[tuple[int, int]]) -> None:
        self.saved[name] = read_block(block, NETWORK)
        self.lists[name] = lists
        for at, message in zip(lists, results_of(block), strict=True):
            self.results.setdefault(at, read_result(message, NETWORK))


def execution(maker: LaterMaker, block: pb.OutportBlock, here: Iterable[tuple[Transaction, str]]) -> Executed:
    """What a block's execution makes of its transactions."""
    by_end: dict[str, list[Transaction]] = {}
    for tx, end in here:
        by_end.setdefault(end, []).append(tx)
    ran = [tx for end in ("sent", "success", "fail") for tx in by_end.get(end, [])]
    return maker.execute(
        block,
        ran,
        invalid=by_end.get("invalid", ()),
        unexecutable=by_end.get("named", ()),
        failing=by_end.get("fail", ()),
    )


class Model:
    """What was heard, and what follows from it."""

    def __init__(self, world: World, made: list[Plan]) -> None:
        self.world, self.plans = world, made
        self.saved: set[Name] = set()
        self.told: set[tuple[int, int]] = set()
        self.marked: set[Name] = set()
        self.known: set[tuple[int, Try]] = set()
        """Tries whose end is known, by number of the plan."""
        self.heard: dict[int, list[str]] = {number: [] for number in range(len(made))}

    def step(self, kind: str, name: Name) -> None:
        if kind == "save":
            self.saved.add(name)
        elif kind == "result":
            self.told.add(name[:2])
        elif kind == "final":
            self.marked.add(name)
        final, listed = self._final()
        counts = listed & self.told
        new = [
            (number, each)
            for number, plan in enumerate(self.plans)
            for each in plan.tries
            if each.at in counts and (each.end != "left" or (*each.at, 0) in final) and (number, each) not in self.known
        ]
        self.known.update(new)
        over = {number: self._end(number) for number, _ in new}
        for number, end in over.items():
            if end and end not in self.heard[number]:
                self.heard[number].append(end)
        for number, each in new:
            if each.end in ("named", "left") and not self._was_executed(number):
                self.heard[number].append(NOT_EXECUTABLE)

    def _final(self) -> tuple[set[Name], set[tuple[int, int]]]:
        """Headers that are final: marked, the parent of one, or listed by one; and the blocks that they list."""
        final: set[Name] = set()
        listed: set[tuple[int, int]] = set()
        while True:
            due = self.marked | {(shard, height - 1, 0) for shard, height, _ in final} | {(*at, 0) for at in listed}
            more = (due & self.saved) - final
            if not more:
                return final, listed
            final |= more
            listed |= {at for name in more for at in self.world.lists[name]}

    def _end(self, number: int) -> str:
        ends = {each.end for known, each in self.known if known == number}
        return "fail" if ends & {"fail", "invalid"} else "success" if "success" in ends else ""

    def _was_executed(self, number: int) -> bool:
        return any(known == number and each.end not in ("named", "left") for known, each in self.known)


def play(tracker: Tracker, world: World, sequence: int, kind: str, name: Name) -> Release:
    """One event to the tracker."""
    match kind:
        case "save":
            return tracker.save(world.saved[name], sequence, 0.0)
        case "result":
            return tracker.execute(world.results[name[:2]], sequence, 0.0)
        case "orphan":
            return tracker.execute(world.orphans[name[2]], sequence, 0.0)
        case "final":
            return tracker.finalise(name[0], world.saved[name].block_hash, 0.0)
    tracker.revert(name[0], world.saved[name].block_hash)
    return Release()


def heard(release: Release, numbers: dict[bytes, int]) -> list[tuple[int, str]]:
    """What subscribers are told, by number of the plan."""
    ends = [(numbers[item.tx_hash], item.status) for item in release.outcomes]
    return ends + [(numbers[item.tx_hash], NOT_EXECUTABLE) for item in release.unexecutable]


LAGS = st.lists(st.integers(0, 3), min_size=1, max_size=4)
"""How many blocks the execution is behind: a header brings none, one or several results."""
REPLACED = st.sets(st.tuples(st.sampled_from(SHARDS), st.integers(2, LENGTH)), max_size=3)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data(), plans(), LAGS, REPLACED, st.integers(0, 2**32))
def test_row_43_and_row_42_any_order(
    data: st.DataObject, made: list[Plan], lags: list[int], replaced: set[tuple[int, int]], seed: int
) -> None:
    """After every event exactly those ends are told that follow from what was heard, each once, whatever the order."""
    world = World(made, lags, replaced)
    numbers = {chain_hash(plan.tx): number for number, plan in enumerate(made)}
    chance = random.Random(seed)
    events: list[tuple[str, Name]] = [("orphan", (0, 0, number)) for number in range(len(world.orphans))]
    for name in world.saved:
        events += [("save", name)] * chance.randint(1, 2)
        events.append(("revert" if name[2] else "final", name))
    events += [("result", (*at, 0)) for at in world.results for _ in range(chance.randint(1, 2))]
    if data.draw(st.booleans()):  # only the newest block is announced as final
        events = [event for event in events if event[0] != "final" or event[1][1] == 2 * LENGTH]
    chance.shuffle(events)
    tracker, model = Tracker(), Model(world, made)
    told: dict[int, list[str]] = {number: [] for number in range(len(made))}
    included: list[bytes] = []
    for sequence, (kind, name) in enumerate(events, 1):
        release = play(tracker, world, sequence, kind, name)
        for number, end in heard(release, numbers):
            told[number].append(end)
        included += [item.tx_hash for item in release.included]
        model.step(kind, name)
        assert told == model.heard, (kind, name)
    assert len(included) == len(set(included)), "a fee is settled once"
    tracker.chains.expire(EARLY_FINALITY_SECONDS)
    assert tracker.disputed == tracker.conflicting_final == tracker.forgotten == 0
    for number, plan in enumerate(made):
        last = plan.tries[-1].end
        expected = {"invalid": "fail", "named": NOT_EXECUTABLE, "left": NOT_EXECUTABLE}.get(last, last)
        assert told[number][-1] == expected, "everything has come, so everything has ended"


def stream(world: World, chance: random.Random) -> list[tuple[str, Name]]:
    """As the notifier tells it: per shard in order, marks a little late, shards in any order to each other."""
    lanes = []
    for shard in SHARDS:
        lane: list[tuple[str, Name]] = []
        late: list[tuple[str, Name]] = []
        told: set[tuple[int, int]] = set()
        for name in sorted(item for item in world.saved if item[0] == shard):
            for each in ((*name[:2], 1), (*name[:2], 0)):
                if each not in world.saved or ("save", each) in lane:
                    continue
                lane.append(("save", each))
                lane += [("result", (*at, 0)) for at in world.lists[each] if at not in told]
                told |= set(world.lists[each])
                if each[2]:
                    lane.append(("revert", each))
                    continue
                late.append(("final", each))
                while late and chance.random() < 0.7:
                    lane.append(late.pop(0))
        lanes.append(lane + late)
    events = []
    while any(lanes):
        events.append(chance.choice([lane for lane in lanes if lane]).pop(0))
    return events


@settings(max_examples=EXAMPLES, deadline=None)
@given(plans(), LAGS, REPLACED, st.integers(0, 2**32))
def test_restarts(made: list[Plan], lags: list[int], replaced: set[tuple[int, int]], seed: int) -> None:
    """Read again from the oldest event still needed, nothing is missed, and nothing else is told than before."""
    # Nothing arrives before it has left: what leaves at its second try would have to arrive after that.
    made = [plan._replace(tries=plan.tries[-2:] if plan.tries[-2:][0].end == "sent" else plan.tries) for plan in made]
    world = World(made, lags, replaced)
    numbers = {chain_hash(plan.tx): number for number, plan in enumerate(made)}
    chance = random.Random(seed)
    events = stream(world, chance)
    model = Model(world, made)
    for event in events:
        model.step(*event)
    tracker, told, at = Tracker(), set[tuple[int, str]](), 0
    restarts = 4
    while at < len(events):
        told |= set(heard(play(tracker, world, at + 1, *events[at]), numbers))
        at += 1
        if restarts and chance.random() < 0.1:
            restarts -= 1
            at = at if tracker.low_water is None else min(at, tracker.low_water - 1)
            tracker = Tracker()
    assert told == {(number, end) for number, ends in model.heard.items() for end in ends}
    tracker.chains.expire(EARLY_FINALITY_SECONDS)
    assert tracker.forgotten == 0, "what was not read again is not missed"
    assert tracker.low_water is not None, "the last blocks have no results yet"


@settings(max_examples=EXAMPLES, deadline=None)
@given(plans(), LAGS, REPLACED, st.integers(0, 2**32))
def test_lost_marks(made: list[Plan], lags: list[int], replaced: set[tuple[int, int]], seed: int) -> None:
    """Reverts and marks of finality that are never heard change nothing once a later block of the shard is final."""
    world = World(made, lags, replaced)
    numbers = {chain_hash(plan.tx): number for number, plan in enumerate(made)}
    chance = random.Random(seed)
    events = list(enumerate(stream(world, chance), 1))
    top = 2 * LENGTH
    few = [
        (sequence, (kind, name))
        for sequence, (kind, name) in events
        if kind not in ("final", "revert") or name[1] == top or chance.random() < 0.3
    ]
    ends = []
    for heard_of in (events, few):
        tracker, told = Tracker(), set[tuple[int, str]]()
        for sequence, event in heard_of:
            told |= set(heard(play(tracker, world, sequence, *event), numbers))
        assert tracker.disputed == tracker.conflicting_final == tracker.forgotten == 0
        last = dict(sorted(told, key=lambda item: item[1] != NOT_EXECUTABLE))
        ends.append((last, tracker.low_water, tracker.sizes["held_blocks"]))
    assert ends[0] == ends[1], "but for what is told on the way to an end"


def test_low_water_goes_on(seed: int = 5) -> None:
    """When everything has ended only the blocks are read again whose results have not come."""
    chance = random.Random(seed)
    plan = Plan(transfer(wallet(0), receiver=wallet(0, 20).public), (Try((0, 2), "success"),))
    world = World([plan], [0, 2], {(0, 3)})
    events = stream(world, chance)
    tracker: Any = Tracker()
    for sequence, event in enumerate(events, 1):
        play(tracker, world, sequence, *event)
    last = min(events.index(("save", (shard, 2 * LENGTH, 0))) for shard in SHARDS)
    assert tracker.low_water == last + 1
    assert tracker.sizes["held_blocks"] == len(SHARDS)
