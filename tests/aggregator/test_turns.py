"""Clients take turns in the thread for slow work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.aggregator.clients import Clients
from millrace.aggregator.shares import TimeShares
from millrace.aggregator.turns import MEMORY, MOST_ASIDE, MOST_REST, REMEMBERED, Turns
from millrace.aggregator.until import Until


def make() -> Turns:
    """Turns of clients whose shares stay whole, as nothing they do takes any time."""
    return Turns("test", TimeShares(1.0, Clients(10, 1), lambda: 0.0), lambda: 0.0, lambda: 0.0)


@pytest.fixture
def turns() -> Iterator[Turns]:
    made = make()
    yield made
    made.close()


@given(st.lists(st.sampled_from("abcd"), max_size=12))
def test_clients_take_turns(asked: list[str]) -> None:
    """One job of each waiting client at a time, in rotation; the jobs of one client in their order."""
    turns, gate = make(), threading.Event()
    begun = threading.Event()
    done: list[tuple[str, int]] = []
    jobs: list[Future[object]] = [turns.submit("gate", lambda: (begun.set(), gate.wait(30)))]
    begun.wait(30)
    jobs += [turns.submit(client, partial(done.append, (client, k))) for k, client in enumerate(asked)]
    gate.set()
    for job in jobs:
        job.result(30)
    turns.close()
    waiting = {client: [k for k, other in enumerate(asked) if other == client] for client in dict.fromkeys(asked)}
    expected = []
    while waiting:
        client = next(iter(waiting))
        numbers = waiting.pop(client)
        expected.append((client, numbers.pop(0)))
        if numbers:
            waiting[client] = numbers
    assert done == expected


def test_who_has_taken_least_is_next() -> None:
    """What a job takes is taken off its client's share, and the client that has taken least comes first."""
    shares, seconds = TimeShares(1.0, Clients(10, 1), lambda: 0.0), [0.0]
    turns, gate, begun = Turns("test", shares, lambda: seconds[0], lambda: 0.0), threading.Event(), threading.Event()
    done: list[str] = []

    def takes(client: str, time: float) -> None:
        done.append(client)
        seconds[0] += time

    jobs: list[Future[object]] = [turns.submit("gate", lambda: (begun.set(), gate.wait(30)))]
    begun.wait(30)
    for client, time in (("dear", 0.5), ("dear", 0.5), ("dear", 0.5), ("cheap", 0.1), ("cheap", 0.1)):
        jobs.append(turns.submit(client, partial(takes, client, time)))
    gate.set()
    for job in jobs:
        job.result(30)
    turns.close()
    assert done == ["dear", "cheap", "cheap", "dear", "dear"]
    assert [round(shares.left(client), 9) for client in ("dear", "cheap", "gate")] == [-0.5, 0.8, 1.0]


def test_what_is_cancelled_never_runs(turns: Turns) -> None:
    """A job cancelled before its turn is passed over, and the next one is done."""
    gate = threading.Event()
    first = turns.submit("a", lambda: gate.wait(30))
    second: Future[None] = turns.submit("b", lambda: pytest.fail("it was cancelled"))
    third = turns.submit("c", lambda: "done")
    assert second.cancel()
    gate.set()
    assert (first.result(30), third.result(30)) == (True, "done")


def test_an_error_belongs_to_its_job(turns: Turns) -> None:
    """What a job raises reaches whoever asked for it; the thread goes on."""

    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        turns.submit("a", broken).result(30)
    assert turns.submit("a", lambda: 1).result(30) == 1


def test_closing_cancels_what_waits() -> None:
    """Nobody waits for ever for a thread that has been stopped."""
    turns, gate, begun = make(), threading.Event(), threading.Event()
    first = turns.submit("a", lambda: (begun.set(), gate.wait(30)))
    second = turns.submit("a", lambda: None)
    begun.wait(30)
    turns.close()
    gate.set()
    first.result(30)
    with pytest.raises(CancelledError):
        second.result(30)


class Timed:
    """Turns under a clock that only jobs move on, in which everything waits until all is submitted."""

    def __init__(self) -> None:
        self.seconds = self.passed = 0.0
        self.done: list[str] = []
        self.jobs: list[Future[object]] = []
        self.shares = TimeShares(1.0, Clients(10_000, 1), lambda: 0.0)
        self.turns = Turns("test", self.shares, lambda: self.seconds, lambda: self.seconds + self.passed)
        self._hold()

    def _hold(self) -> None:
        gate, begun = threading.Event(), threading.Event()
        self._gate = gate
        self.jobs.append(self.turns.submit("gate", lambda: (begun.set(), gate.wait(30))))
        begun.wait(30)

    def ask(self, client: str, steps: int, seconds: float = 0.1) -> None:
        """Submit a job that looks before each of its steps whether to step aside."""

        def job() -> None:
            for step in range(steps):
                self.turns.step_aside()
                self.done.append(f"{client}{step}")
                self.seconds += seconds

        self.jobs.append(self.turns.submit(client, job))

    def later(self, seconds: float) -> None:
        """Let all jobs be done, and so much time pass; what is submitted then waits again until all is."""
        self._gate.set()
        for job in self.jobs:
            job.result(30)
        self.passed += seconds
        self._hold()

    def finish(self) -> None:
        """Let all jobs be done."""
        self._gate.set()
        for job in self.jobs:
            job.result(30)
        self.turns.close()


def test_a_search_steps_aside_for_who_has_taken_far_less() -> None:
    """The other job is done in the middle of the one under way, and each client pays for its own part alone."""
    timed = Timed()
    timed.ask("dear", 2)
    timed.ask("cheap", 2)
    timed.finish()
    assert timed.done == ["dear0", "cheap0", "cheap1", "dear1"]
    assert [round(timed.shares.left(client), 9) for client in ("dear", "cheap")] == [0.8, 0.8]


def test_a_job_does_not_step_aside_for_its_own_client() -> None:
    """A client's jobs are done in their order, whatever the first one has taken, also while that steps aside."""
    timed = Timed()
    timed.ask("dear", 2)
    timed.ask("dear", 2)
    timed.finish()
    assert timed.done == ["dear0", "dear1", "dear0", "dear1"]

    timed = Timed()
    timed.ask("dear", 1, 1.0)
    timed.ask("other", 2, 0.2)
    timed.ask("dear", 2)
    timed.finish()
    assert timed.done == ["dear0", "other0", "other1", "dear0", "dear1"]


def test_what_a_search_has_taken_before_it_stepped_aside_counts() -> None:
    """Nobody steps aside for a second question of the client who has just stepped aside for him."""
    timed = Timed()
    timed.ask("dear", 2, 1.0)
    timed.ask("dear", 2, 1.0)
    timed.ask("other", 2, 0.1)
    timed.finish()
    assert timed.done == ["dear0", "other0", "other1", "dear1", "dear0", "dear1"]


def test_those_who_take_alike_do_not_step_aside_for_each_other() -> None:
    """A job is done as a whole where the waiting client has taken half as much and more."""
    timed = Timed()
    for client in ("one", "other"):
        timed.ask(client, 1, 1.0)
    for client in ("one", "other"):
        timed.ask(client, 3, 0.1)
    timed.finish()
    assert timed.done == ["one0", "other0", *(f"{client}{k}" for client in ("one", "other") for k in range(3))]


def test_who_is_new_does_not_come_before_who_takes_a_little() -> None:
    """What is next to nothing is nothing: he waits for one job of each who came before, and steps aside for none."""
    timed = Timed()
    timed.ask("little", 1, 0.05)
    for client in ("new", "newer"):
        for _ in range(4):
            timed.ask(client, 1, 0.01)
    timed.ask("little", 1, 0.01)
    timed.finish()
    assert timed.done[:4] == ["little0", "new0", "newer0", "little0"]


def test_what_was_taken_long_ago_does_not_count() -> None:
    """Who took much once comes before who took less just now."""
    timed = Timed()
    timed.ask("dear", 1, 1.0)
    timed.ask("other", 1, 20 * MEMORY)
    for client in ("recent", "recent", "dear"):
        timed.ask(client, 1, 0.5)
    timed.finish()
    assert timed.done == ["dear0", "other0", "recent0", "dear0", "recent0"]


def test_strangers_leave_the_last_place_aside_to_others() -> None:
    """Who asks a little all the time waits for none of many who are new to end, whatever these take."""
    timed = Timed()
    for _ in range(3):
        timed.ask("little", 1, 1e-3)
        timed.later(MEMORY / 2)
    timed.ask("a", 4, 0.3)
    timed.ask("b", 4, 0.3)

    def dear() -> None:
        for step in range(3):
            timed.seconds += 0.3
            timed.done.append(f"c{step}")
            if not step:
                timed.ask("little", 1, 0.05)
            timed.turns.step_aside()

    timed.jobs.append(timed.turns.submit("c", dear))
    timed.ask("d", 4, 0.3)
    timed.finish()
    assert timed.done[3:8] == ["a0", "b0", "c0", "little0", "c1"]
    assert timed.turns.kept > 0  # d is a stranger, too


def test_strangers_step_aside_for_who_asks_a_little_all_the_time() -> None:
    """At their next step, although they have taken less than he; and for each other as ever."""
    timed = Timed()
    for _ in range(3):
        timed.ask("little", 1, 0.1)
        timed.later(MEMORY / 2)
    timed.ask("new", 3, 0.06)
    timed.ask("newer", 2, 0.06)
    timed.ask("little", 1, 0.1)
    timed.finish()
    assert timed.done[3:] == ["little0", "new0", "new1", "newer0", "newer1", "new2"]


def test_a_stranger_is_who_has_not_asked_again_and_again() -> None:
    """He is none while he asks with no gap longer than what he has taken counts, once that has gone on as long."""
    timed, found = Timed(), []
    for seconds in (1.0, MEMORY - 2.0, 1.0, MEMORY, MEMORY + 1.0, MEMORY - 1.0, 1.0):
        found.append(timed.turns._is_stranger("one"))
        timed.ask("one", 1, 0.0)
        timed.later(seconds)
    found.append(timed.turns._is_stranger("one"))
    timed.finish()
    assert found == [True, True, True, False, False, True, True, False]


def test_only_so_many_jobs_step_aside() -> None:
    """Each holds the memory of a search: past the bound the next job waits for one to end."""
    timed, deepest = Timed(), 0
    for seconds in (MEMORY / 2, MEMORY / 2, 0.0):  # so that nobody is a stranger
        for client in range(10):
            timed.ask(f"client {client}", 1, 1e-9)
        timed.later(seconds)

    def nested(client: int) -> Callable[[], None]:
        def job() -> None:
            nonlocal deepest
            deepest = max(deepest, timed.turns.aside)
            timed.seconds += 1.0
            timed.jobs.append(timed.turns.submit(f"client {client + 1}", nested(client + 1) if client < 9 else str))
            timed.turns.step_aside()

        return job

    timed.jobs.append(timed.turns.submit("client 0", nested(0)))
    timed.finish()
    assert deepest == MOST_ASIDE
    assert timed.turns.stepped >= MOST_ASIDE
    assert timed.turns.kept > 0


def test_no_more_clients_are_remembered_than_there_is_room_for() -> None:
    """Of more the one that was there longest ago is forgotten, and counts as new."""
    timed = Timed()
    for number in range(REMEMBERED + 1):
        timed.ask(f"client {number} ", 1, 1e-9)
    timed.finish()
    assert len(timed.turns._taken) == REMEMBERED
    assert "client 0 " not in timed.turns._taken
    assert timed.turns.forgotten == 2  # who opened the gate, and the first one


def test_a_thread_has_work_until_the_last_job_is_done() -> None:
    """Also one that is cancelled before its turn; then those behind it rest no more."""
    turns, gate, begun = make(), threading.Event(), threading.Event()
    assert turns.idle.is_set()
    jobs = [turns.submit("a", lambda: (begun.set(), gate.wait(30))), turns.submit("b", lambda: None)]
    begun.wait(30)
    jobs[1].cancel()
    assert not turns.idle.is_set()
    gate.set()
    assert turns.idle.wait(30)
    turns.close()


class Endless:
    """Work ahead that never ends, under the same clock."""

    def __init__(self, timed: Timed) -> None:
        self.idle = self
        self._timed = timed

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self._timed.seconds += seconds
        return False


def test_while_there_is_work_ahead_a_thread_rests_half_of_the_time() -> None:
    """It rests between the steps of its jobs, for a moment, and works as long before it rests again."""
    timed = Timed()
    timed.turns._ahead = Endless(timed)  # type: ignore[assignment]
    timed.ask("long", 100, MOST_REST / 8)
    timed.finish()
    work = 100 * MOST_REST / 8
    assert timed.done == [f"long{k}" for k in range(100)]
    assert work * 1.7 < timed.seconds <= work * 2 + MOST_REST * 1.01
    assert timed.turns.rests == round((timed.seconds - work) / MOST_REST)


def test_only_what_a_search_takes_itself_is_taken_off_its_share() -> None:
    """Others' time while it stood aside is not; once the share was seen to be used up, more of it changes nothing."""
    timed, seen = Timed(), list[bool]()
    until = timed.turns.until("dear", 100.0)

    def dear() -> None:
        for seconds in (0.5, 0.25, 0.5):
            timed.seconds += seconds
            timed.turns.step_aside()
            seen.append(timed.seconds > until)

    timed.jobs.append(timed.turns.submit("dear", dear))
    timed.ask("other", 2, 0.1)
    timed.ask("other", 2, 4.0)
    timed.finish()
    assert timed.done[:2] == ["other0", "other1"]
    assert timed.shares.left("other") < 0.0
    assert (seen, until.cut) == ([False, False, True], True)
    timed.shares.spend("dear", -1.0)
    assert until < 0.0


def test_what_the_asker_is_promised_comes_whatever_the_share() -> None:
    """The answer is there by then, also when the search stood aside; that is no fault of the client."""
    until = Until(10.0, lambda: False)
    assert [until < 9.0, until <= 9.0, until > 9.0, until >= 9.0] == [False, False, True, True]
    assert [until < 11.0, until <= 10.0, until > 10.0, until >= 11.0] == [True, True, False, False]
    assert not until.cut
    used = Until(10.0, lambda: True)
    assert [used < 11.0, used.cut] == [True, False]
    assert [used < 9.0, used <= 9.0, used > 9.0, used >= 9.0] == [True, True, False, False]
    assert used.cut
