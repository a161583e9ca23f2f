"""The submissions of one connection: taken in their order, bounded, answered whatever becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from relayer_support import as_json, connected, start, transfer, wallet

from millrace.relayer.gateway.gathering import BUSY_PACE, LONG, WINDOW_SECONDS, Gathering
from millrace.relayer.gateway.limits import GONE
from millrace.relayer.gateway.submission_lane import SubmissionLane
from millrace.relayer.gateway.submitting import MAX_WAITING
from millrace.relayer.gateway.together import Together
from millrace.relayer.protocol import messages, reasons
from millrace.relayer.protocol.messages import Relay
from millrace.relayer.protocol.reasons import Reason
from millrace.relayer.rules.slices import PART
from millrace.relayer.submission.admission import Admission
from millrace.relayer.submission.batch import Batch
from millrace.runtime.tasks import end_tasks
from millrace.runtime.tracing import Tracer, TracingSettings

TX = msgspec.json.encode(as_json(transfer(wallet(1))))


class Submitter:
    """Takes one submission at a time and finishes any, both when the test says so."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.together: list[int] = []
        self.may_take_together = asyncio.Event()
        self.may_take_together.set()
        self.batches: list[Batch] = []
        self.may_take = asyncio.Semaphore(0)
        self.finished: dict[int, asyncio.Future[None]] = {}
        self.results: list[Reason] = [reasons.NONCE_TOO_LOW]
        self.takes_none_together = False
        self.admission = Admission(1.0, clock=lambda: 0.0)

    def person_of(self, authorization: str | None) -> str:
        return ""

    async def take(self, origin: Any, raws: Any, announce: Any, given_up: Any) -> Batch:
        number = len(self.taken)
        self.taken.append(len(raws))
        await self.may_take.acquire()
        batch = Batch(origin, len(raws), announce, given_up)
        batch.stretch = number  # what `finish` knows it by
        self.batches.append(batch)
        return batch

    async def take_together(self, company: Any) -> list[Batch]:
        self.together.append(len(company))
        await self.may_take_together.wait()
        if self.takes_none_together:
            return [batch for batch, _ in company]
        for batch, _ in company:
            batch.results = list(self.results)
        return []

    async def finish_together(self, batches: Any) -> list[Batch]:
        return []

    async def finish(self, batch: Batch) -> list[Reason]:
        done = self.finished[batch.stretch] = asyncio.get_running_loop().create_future()
        await done
        return self.results


class Nobody:
    """A connection with nothing to submit."""

    client = "client"
    has_several = False

    def set_out(self) -> None:
        """There is nothing."""

    def next_shorts(self) -> list[Any]:
        return []


class Session:
    """What the lane needs of a connection."""

    client = "client"
    authorization = None

    def __init__(self) -> None:
        self.closed = False
        self.code = 0
        self.can_pay = True
        self.replies: list[dict[str, Any]] = []
        self.refused: list[tuple[str | None, str, Any]] = []
        self.told: list[tuple[str, int | None, Any]] = []
        self.slowed: list[float] = []
        self.unread: list[str] = []
        self.control: list[Any] = []

    def charge(self, cost: float) -> bool:
        return self.can_pay

    def answer(self, reply: Any) -> None:
        self.replies.append(msgspec.json.decode(msgspec.json.encode(reply)))

    def refuse(self, action: str | None, reason: Reason, request_id: Any) -> None:
        self.refused.append((action, reason.reason, request_id))

    def tell_refused(self, action: str | None, reason: Reason, request_id: Any) -> None:
        self.told.append((reason.code, reason.retry_after_ms, request_id))

    def slow_down(self, wait: float) -> None:
        self.slowed.append(wait)

    def refuse_unread(self, data: bytes, reason: Reason, number: int | None = None) -> None:
        self.unread.append(reason.reason)

    def control_message(self, request: Any) -> None:
        self.control.append(request)

    def close(self, code: int, reason: str) -> None:
        self.code, self.closed = code, True


class Setting:
    """A lane, and everything around it."""

    def __init__(self) -> None:
        self.session, self.submitter = Session(), Submitter()
        self.wait = self.now = self.owed = 0.0
        self.judged: list[Any] = []
        self.counted: list[str] = []
        self.gateway = SimpleNamespace(
            settings=SimpleNamespace(max_batch=100, max_wait=1.0),
            submitter=self.submitter,
            submissions=SimpleNamespace(take=lambda client, size, now: self.wait, owes=lambda client, now: self.owed),
            judged=lambda client, results, since: self.judged.append(results),
            clock=lambda: self.now,
            count=lambda reason: self.counted.append(reason.code),
            tracer=Tracer(TracingSettings()),
            stopping=False,
            under_way=0,
            gathering=Gathering(Together(cast(Any, self.submitter)).set_out, lambda: self.now),
        )
        self.lane = SubmissionLane(cast(Any, self.gateway), cast(Any, self.session))

    def add(self, request_id: int) -> None:
        self.lane.add(Relay(request_id=request_id, tx=msgspec.Raw(TX)))

    def busy(self, connections: int) -> Gathering:
        """Let a window end at a busy pace with so many connections in it: as many make a departure in the next."""
        gathering = self.gateway.gathering
        for _ in range(int(BUSY_PACE * WINDOW_SECONDS)):
            gathering.accepted(1)
        for _ in range(connections):
            gathering.join(1, 0, cast(Any, Nobody()))
        self.now += WINDOW_SECONDS
        return cast(Gathering, gathering)


async def settle() -> None:
    """Let every task do what it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    """What is under way at a test's end is ended with it: nobody else holds these tasks."""
    made = Setting()
    yield made
    here = asyncio.current_task()
    await end_tasks(task for task in asyncio.all_tasks() if task is not here)


async def test_the_next_is_taken_while_earlier_ones_are_finished(setting: Setting) -> None:
    """Taken one by one in their order, answered as each is finished, whatever the order of that."""
    for number in range(3):
        setting.add(number)
    await settle()
    assert setting.submitter.taken == [1]
    for count in (2, 3, 3):
        setting.submitter.may_take.release()
        await settle()
        assert len(setting.submitter.taken) == count
    for number in (2, 0, 1):
        setting.submitter.finished[number].set_result(None)
        await settle()
    assert [reply["requestId"] for reply in setting.session.replies] == [2, 0, 1]
    assert setting.gateway.under_way == 0 and setting.counted == ["nonce_too_low"] * 3


async def test_what_waits_for_others_is_under_way_and_ends_with_its_connection(setting: Setting) -> None:
    """At a busy pace a submission sets out with others'; what its connection sends meanwhile goes along, in order."""
    gathering = setting.busy(3)
    other = SubmissionLane(cast(Any, setting.gateway), cast(Any, Session()))
    setting.add(0)
    setting.add(1)
    other.add(Relay(request_id=2, tx=msgspec.Raw(TX)))
    await settle()
    assert setting.submitter.taken == [] and setting.gateway.under_way == 3
    other.clear()
    assert setting.gateway.under_way == 2
    gathering.join(1, 0, cast(Any, Nobody()))  # all three are there
    await settle()
    assert setting.submitter.together == [2] and setting.submitter.taken == []
    assert [reply["requestId"] for reply in setting.session.replies] == [0, 1] and setting.gateway.under_way == 0


async def test_what_comes_while_others_are_taken_sets_out_with_others(setting: Setting) -> None:
    """Else a connection that is served slowly would go alone from then on, each time dearer than in company."""
    gathering = setting.busy(2)
    setting.submitter.may_take_together.clear()
    setting.add(0)
    other = SubmissionLane(cast(Any, setting.gateway), cast(Any, Session()))
    other.add(Relay(request_id=1, tx=msgspec.Raw(TX)))
    await settle()
    setting.add(2)
    await settle()
    assert setting.submitter.together == [2]
    setting.submitter.may_take_together.set()
    await settle()
    assert setting.submitter.together == [2] and setting.submitter.taken == [] and setting.gateway.under_way == 1
    gathering.join(1, 0, cast(Any, Nobody()))
    await settle()
    assert setting.submitter.together == [2, 1] and setting.submitter.taken == []
    assert [reply["requestId"] for reply in setting.session.replies] == [0, 2]


async def test_what_goes_by_itself_is_in_company_once(setting: Setting) -> None:
    """Else each of several whose bytes came before would have its signature checked again with each one before it."""
    gathering = setting.busy(2)
    setting.submitter.takes_none_together = True
    for number in range(3):
        setting.add(number)
    gathering.join(1, 0, cast(Any, Nobody()))
    await settle()
    assert setting.submitter.together == [3] and setting.submitter.taken == [1]
    setting.add(3)
    for count in (2, 3, 3):
        setting.submitter.may_take.release()
        await settle()
        assert setting.submitter.together == [3] and len(setting.submitter.taken) == count
    gathering.join(1, 0, cast(Any, Nobody()))  # what came behind them waits for company
    await settle()
    assert setting.submitter.taken == [1] * 4


async def test_who_has_company_behind_it_waits_for_no_other(setting: Setting) -> None:
    """A connection with many under way is not held to a few for each departure, beside others that are slow."""
    gathering = setting.busy(2)
    for number in range(PART + LONG):
        setting.add(number)
    gathering.join(1, 0, cast(Any, Nobody()))
    await settle()
    assert setting.submitter.together == [PART, LONG] and setting.submitter.taken == []
    assert [reply["requestId"] for reply in setting.session.replies] == list(range(PART + LONG))
    setting.add(0)
    for number in range(1, LONG):
        setting.add(number)
    await settle()
    assert len(setting.submitter.together) == 2, "the first of few waits for the next departure"


async def test_one_connection_with_several_is_company_for_itself(setting: Setting) -> None:
    """What waits behind its first one goes together, with nobody else there."""
    setting.add(0)
    for number in range(1, 1 + LONG):
        setting.add(number)
    await settle()
    assert setting.submitter.taken == [1] and setting.submitter.together == []
    setting.submitter.may_take.release()
    await settle()
    assert setting.submitter.taken == [1] and setting.submitter.together == [LONG]


async def test_only_what_could_wait_for_others_makes_others_wait(world: Any) -> None:
    """Who submits over REST takes nobody along: only connections' submissions that were accepted are a pace."""
    counted: list[int] = []
    await start(world)
    service = world.service
    service.shared.gathering.accepted = counted.append
    async with aiohttp.ClientSession() as http:
        body = {"transactions": [as_json(transfer(wallet(1), relayed=False))]}
        async with http.post(f"http://127.0.0.1:{service.http_port}/v1/broadcast", json=body) as answer:
            assert len((await answer.json())["results"]) == 1
    assert counted == []
    async with connected(world.ws) as client:
        for tx in (transfer(wallet(2)), transfer(wallet(2), data=b"another")):  # the second has the same nonce
            await client.ask(action="relay", tx=as_json(tx))
    assert counted == [1]


async def test_so_many_may_be_under_way(setting: Setting) -> None:
    """One more is refused with its action and id; an answer makes room for another."""
    setting.submitter.may_take_together.clear()
    for number in range(MAX_WAITING + 1):
        setting.add(number)
    assert setting.session.refused == [("relay", "relayer busy", MAX_WAITING)]
    assert setting.gateway.under_way == MAX_WAITING
    setting.submitter.may_take.release()
    await settle()
    setting.add(100)
    assert len(setting.session.refused) == 2  # taken is not answered
    setting.submitter.finished[0].set_result(None)
    await settle()
    setting.add(101)
    assert len(setting.session.refused) == 2 and setting.gateway.under_way == MAX_WAITING


async def test_beyond_its_rate_a_submission_is_refused(setting: Setting) -> None:
    """The client's rate counts, and what it refuses is not under way."""
    setting.wait = 2.5
    setting.add(1)
    assert setting.session.refused == [("relay", "rate limit exceeded", 1)]
    assert setting.gateway.under_way == 0


async def test_nothing_is_begun_at_a_shutdown(setting: Setting) -> None:
    """A service that stops refuses new submissions; it can be asked again soon."""
    setting.gateway.stopping = True
    setting.add(1)
    assert setting.session.refused == [("relay", "not ready", 1)] and setting.gateway.under_way == 0


async def test_what_was_not_begun_ends_with_the_connection(setting: Setting) -> None:
    """After `clear` only what was begun is still under way, and that is finished."""
    for number in range(3):
        setting.add(number)
    await settle()
    setting.session.closed = True
    setting.lane.clear()
    assert setting.gateway.under_way == 1
    setting.submitter.may_take.release()
    await settle()
    setting.submitter.finished[0].set_result(None)
    await settle()
    assert setting.submitter.taken == [1] and setting.gateway.under_way == setting.submitter.admission.waiting == 0


async def test_what_nobody_waits_for_any_more_is_given_up(setting: Setting) -> None:
    """The submitter is told when the client has gone, or waited longer than it is promised to."""
    setting.add(1)
    setting.add(2)
    await settle()
    setting.submitter.may_take.release()
    setting.submitter.may_take.release()
    await settle()
    first, second = (setting.submitter.batches[number].given_up for number in range(2))
    assert first() is second() is None
    setting.now = 1.1
    assert first().reason == "relayer busy" and first().retry_after_ms == 1_100
    setting.now, setting.owed = 0.5, 4.0
    assert second().reason == "rate limit exceeded" and second().retry_after_ms == 4_000
    setting.session.closed = True
    assert second() == GONE


async def test_who_would_wait_too_long_is_told_so(setting: Setting) -> None:
    """It hears when to come again, is not under way, and is no flooder for it: it is the service that is late."""
    setting.submitter.admission.enter("somebody", 2_500)
    setting.submitter.admission.enter("client", 2_000)
    setting.add(1)
    ((code, retry, request_id),) = setting.session.told
    assert (code, request_id) == ("relayer_busy", 1) and retry is not None and retry >= 1_000
    assert setting.gateway.under_way == 0 and not setting.session.refused
    setting.submitter.admission.leave("client", 2_000)
    setting.add(2)
    assert setting.gateway.under_way == 1, "its own queue is short: others wait for themselves"
    assert setting.submitter.admission.waiting == 2_501


@pytest.mark.parametrize("stage", ["take", "finish"])
async def test_a_defect_closes_this_connection_and_is_not_under_way(setting: Setting, stage: str) -> None:
    """An exception in either stage closes with 1011; nothing stays counted, so that a shutdown does not wait."""

    async def defect(*_: Any) -> Any:
        raise RuntimeError("a defect")

    setattr(setting.submitter, stage, defect)
    setting.submitter.may_take.release()
    setting.add(1)
    await settle()
    assert (
        setting.session.code == 1011
        and setting.gateway.under_way == setting.submitter.admission.waiting == 0
        and not setting.session.replies
    )


async def test_a_large_message_is_read_in_its_turn(setting: Setting) -> None:
    """A submission in it is taken like any other, something else is answered at once, and neither passes the other."""
    body = b'{"action":"relay","requestId":7,"tx":' + TX + b"}"
    setting.lane.read_later(body)
    setting.lane.read_later(b'{"action":"subscribe","topic":"accounts"}')
    async with asyncio.timeout(5):
        while not setting.submitter.taken:
            await asyncio.sleep(0)
    assert setting.submitter.taken == [1] and not setting.session.control
    setting.submitter.may_take.release()
    async with asyncio.timeout(5):
        while not setting.session.control or 0 not in setting.submitter.finished:
            await asyncio.sleep(0)
    assert isinstance(setting.session.control[0], messages.Subscribe)
    setting.submitter.finished[0].set_result(None)
    await settle()
    assert [reply["requestId"] for reply in setting.session.replies] == [7]
    assert setting.gateway.under_way == setting.submitter.admission.waiting == 0


@pytest.mark.parametrize(
    ("data", "pays", "unread"),
    [
        (b'{"action":"relay","txs":[]}', True, ["empty batch"]),
        (b'{"action":"relay"', True, ["invalid message"]),
        (b'{"action":"relay","txs":[]}', False, []),
    ],
)
async def test_a_large_message_that_is_not_read(setting: Setting, data: bytes, pays: bool, unread: list[str]) -> None:
    """What cannot be read is refused once, what is not paid for was refused by the session; neither is under way."""
    setting.session.can_pay = pays
    setting.lane.read_later(data)
    async with asyncio.timeout(5):
        while setting.gateway.under_way:
            await asyncio.sleep(0)
    assert setting.session.unread == unread and not setting.submitter.taken
