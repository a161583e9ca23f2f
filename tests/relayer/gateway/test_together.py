"""Short submissions of several connections on their way together, and what of them goes by itself."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from millrace.relayer.gateway.together import MOST, Short, Together
from millrace.relayer.protocol.messages import Relay
from millrace.relayer.rules.slices import PART
from millrace.relayer.rules.stages import Origin
from millrace.relayer.submission.batch import Batch


class Submitter:
    """Takes and finishes at once, but for what the test names; or fails."""

    def __init__(self) -> None:
        self.taken: list[list[int]] = []
        self.finished: list[list[int]] = []
        self.not_taken: set[int] = set()
        self.refused: set[int] = set()
        self.not_finished: set[int] = set()
        self.take_fails = self.finish_fails = False

    async def take_together(self, company: Any) -> list[Batch]:
        assert not self.take_fails
        self.taken.append([batch.stretch for batch, _ in company])
        for batch, _ in company:
            is_there = batch.stretch not in self.not_taken | self.refused
            batch.taken = [cast(Any, batch.stretch)] if is_there else []
        return [batch for batch, _ in company if batch.stretch in self.not_taken]

    async def finish_together(self, batches: Any) -> list[Batch]:
        assert not self.finish_fails
        self.finished.append([batch.stretch for batch in batches])
        return [batch for batch in batches if batch.stretch in self.not_finished]


class Lane:
    """A connection with submissions of these numbers; what becomes of each is noted."""

    def __init__(self, client: str, *numbers: int) -> None:
        self.client = client
        self.numbers = numbers
        self.has_several = len(numbers) > 1
        self.events: list[Any] = []

    def set_out(self) -> None:
        self.events.append("alone")

    def next_shorts(self) -> list[Short]:
        return [self._short(number) for number in self.numbers]

    def _short(self, number: int) -> Short:
        batch = Batch(Origin("relay", self.client), 1, None)
        batch.stretch = number  # what the submitter knows it by
        return Short(self, Relay(), 0.0, msgspec.Raw(), batch, {})

    def go_on(self, apart: Any) -> None:
        self.events.append(("on", [short.batch.stretch for short in apart]))

    def finish_alone(self, short: Short) -> None:
        self.events.append(("finish", short.batch.stretch))

    def answer(self, short: Short) -> None:
        self.events.append(("answer", short.batch.stretch))

    def fail(self) -> None:
        self.events.append("failed")


async def travel(submitter: Submitter, *lanes: Lane) -> None:
    """Have these set out, and wait until all have arrived."""
    Together(cast(Any, submitter)).set_out(lanes)
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_client_with_several_waits_for_itself_and_all_others_go_together() -> None:
    """A group is one client's, whose share of the stages it waits for, or holds one connection of each client."""
    submitter = Submitter()
    lanes = Lane("a", 0), Lane("b", 1), Lane("a", 2, 3), Lane("c", 4), Lane("d")
    await travel(submitter, *lanes)
    assert submitter.taken == submitter.finished == [[0, 2, 3], [1, 4]]
    assert lanes[2].events == [("on", []), ("answer", 2), ("answer", 3)] and lanes[4].events == ["alone"]


async def test_who_has_no_company_goes_alone() -> None:
    """One submission by itself has its own task, as ever; several of one connection are company."""
    submitter, lane = Submitter(), Lane("a", 0)
    await travel(submitter, lane)
    assert lane.events == ["alone"] and submitter.taken == []
    await travel(submitter, Lane("a", 0, 1))
    assert submitter.taken == [[0, 1]]


async def test_a_group_is_no_longer_than_what_a_client_may_have_between_two_stages() -> None:
    """So that others pass between two groups of one client; a connection's stay together."""
    submitter = Submitter()
    numbers = iter(range(100))
    await travel(submitter, *(Lane("a", *(next(numbers) for _ in range(PART - 1))) for _ in range(3)))
    assert [len(group) for group in submitter.taken] == [2 * (PART - 1), PART - 1] and 2 * (PART - 1) <= MOST


async def test_what_would_hold_up_others_goes_by_itself() -> None:
    """What is not taken comes first on its connection again, what is not finished has a task of its own."""
    submitter = Submitter()
    submitter.not_taken, submitter.not_finished = {1, 3}, {2}
    first, second = Lane("a", 0, 1), Lane("a", 2, 3)
    await travel(submitter, first, second)
    assert submitter.finished == [[0, 2]]
    assert first.events == [("on", [1]), ("answer", 0)]
    assert second.events == [("on", [3]), ("finish", 2)]


async def test_who_is_refused_waits_for_nobody() -> None:
    """The answer is there before others' are finished; where nothing is left to finish nobody is asked to."""
    submitter, lane, other = Submitter(), Lane("a", 0), Lane("a", 1)
    submitter.refused, submitter.finish_fails = {1}, True
    await travel(submitter, lane, other)
    assert lane.events == [("on", []), "failed"] and other.events == [("on", []), ("answer", 1)]
    submitter.refused = {0, 1}
    await travel(submitter, lane, other)
    assert lane.events[2:] == [("on", []), ("answer", 0)]


async def test_a_defect_ends_nothing_but_what_it_met() -> None:
    """Connections whose submissions it met are told, and go on."""
    submitter, lanes = Submitter(), (Lane("a", 0), Lane("a", 1))
    submitter.take_fails = True
    await travel(submitter, *lanes)
    submitter.take_fails, submitter.finish_fails = False, True
    await travel(submitter, *lanes)
    assert [lane.events for lane in lanes] == [["failed", ("on", []), ("on", []), "failed"]] * 2
