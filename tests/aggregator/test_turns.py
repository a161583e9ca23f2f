"""Clients take turns in the thread for slow work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.aggregator.clients import Clients
from millrace.aggregator.shares import TimeShares
from millrace.aggregator.turns import Turns


def make() -> Turns:
    """Turns of clients whose shares stay whole, as nothing they do takes any time."""
    return Turns("test", TimeShares(1.0, Clients(10, 1), lambda: 0.0), lambda: 0.0)


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


def test_who_has_most_left_is_next() -> None:
    """What a job takes is taken off its client's share, and the client with most left comes first."""
    shares, seconds = TimeShares(1.0, Clients(10, 1), lambda: 0.0), [0.0]
    turns, gate, begun = Turns("test", shares, lambda: seconds[0]), threading.Event(), threading.Event()
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
