"""Short submissions of several connections on their way together: one task, and one wait at each stage, for all.

Each by itself has a task of its own, which is woken four times: that takes as long as what is done for it then. Nobody
waits for another one's special case: what would have to wait for more than signing process and disk goes on by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Raw

from millrace.relayer.protocol.messages import Relay
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.slices import PART
from millrace.relayer.submission.batch import Batch
from millrace.relayer.submission.submitter import Submitter

log = logging.getLogger(__name__)

MOST = 2 * PART
"""Transactions of a group: as many as one client may have between parsed and reserved."""


class Lane(Protocol):
    """The submissions of one connection, see `SubmissionLane`."""

    @property
    def client(self) -> str: ...
    @property
    def has_several(self) -> bool: ...
    def set_out(self) -> None: ...
    def next_shorts(self) -> list[Short]: ...
    def go_on(self, apart: Sequence[Short]) -> None: ...
    def finish_alone(self, short: Short) -> None: ...
    def answer(self, short: Short) -> None: ...
    def fail(self) -> None: ...


class Short(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A submission of one transaction."""

    lane: Lane
    request: Relay
    since: float
    """When it came."""
    raw: Raw
    batch: Batch
    subscribed: dict[bytes, str | Reason]
    """The topics that it subscribed to, by what they are about."""


class Together:
    """Groups under way."""

    def __init__(self, submitter: Submitter) -> None:
        self._submitter = submitter
        self._tasks: set[asyncio.Task[None]] = set()
        """The event loop alone does not hold them."""

    def set_out(self, lanes: Sequence[Lane]) -> None:
        """Begin with what these lanes have waiting. Those of one client are a group, as it waits for its own share."""
        of_client: dict[str, list[Lane]] = {}
        for lane in lanes:
            of_client.setdefault(lane.client, []).append(lane)
        several = [group for group in of_client.values() if len(group) > 1]
        single = [lane for group in of_client.values() if len(group) == 1 for lane in group]
        for group in [*several, single]:
            self._begin(group)

    def _begin(self, lanes: Sequence[Lane]) -> None:
        group: list[Short] = []
        for lane in lanes:
            shorts = lane.next_shorts() if len(lanes) > 1 or lane.has_several else []
            if not shorts:
                lane.set_out()
            if len(group) + len(shorts) > MOST:
                self._spawn(group)
                group = []
            group += shorts
        if group:
            self._spawn(group)

    def _spawn(self, group: list[Short]) -> None:
        task = asyncio.create_task(self._travel(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _travel(self, shorts: list[Short]) -> None:
        taken = await self._take(shorts)
        try:
            apart = set(await self._submitter.finish_together([short.batch for short in taken])) if taken else set()
        except Exception:
            log.exception("submissions were not finished")
            for short in taken:
                short.lane.fail()
            return
        for short in taken:
            if short.batch in apart:
                short.lane.finish_alone(short)
            else:
                short.lane.answer(short)

    async def _take(self, shorts: list[Short]) -> list[Short]:
        """Take submissions, and answer what is refused; those that are to be finished."""
        apart: set[Batch] = set()
        taken: list[Short] = []
        try:
            apart = set(await self._submitter.take_together([(short.batch, short.raw) for short in shorts]))
            taken = [short for short in shorts if short.batch not in apart]
        except Exception:
            log.exception("submissions were not taken")
            for short in shorts:
                short.lane.fail()
        of_lane: dict[Lane, list[Short]] = {short.lane: [] for short in shorts}
        for short in shorts:
            if short.batch in apart:
                of_lane[short.lane].append(short)
        for lane, by_themselves in of_lane.items():
            lane.go_on(by_themselves)
        for short in taken:
            if not short.batch.taken:
                short.lane.answer(short)
        return [short for short in taken if short.batch.taken]
