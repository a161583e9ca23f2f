"""Who is let in: a crowd is measured, waits are foretold, and nobody pays for another's queue."""

from __future__ import annotations

import heapq
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.relayer.submission.admission import (
    FIRST_PACE,
    SATURATED,
    STANDING_SECONDS,
    WINDOW_SECONDS,
    Admission,
    _level,
)

LIMIT = 1.0


class Counter:
    """A service of a given pace that serves clients in turn, and what it did with what was asked of it."""

    def __init__(self, pace: float) -> None:
        self.now = 0.0
        self.pace = pace
        self.admission = Admission(LIMIT, clock=lambda: self.now)
        self._queues: dict[str, deque[float]] = {}
        self._turns: deque[str] = deque()
        self._credit = 0.0
        self.waits: list[tuple[str, float]] = []
        self.refused: list[str] = []
        self.late: list[str] = []
        """Let in, and given up when their turn came."""

    def ask(self, client: str, size: int = 1) -> bool:
        if self.admission.wait(client, size):
            self.refused += [client] * size
            return False
        self.admission.enter(client, size)
        if client not in self._queues:
            self._queues[client] = deque()
            self._turns.append(client)
        self._queues[client].extend([self.now] * size)
        return True

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        self._credit = self._credit + seconds * self.pace if self._turns else 0.0
        while self._credit >= 1 and self._turns:
            client = self._turns.popleft()
            waited = self.now - self._queues[client].popleft()
            self.admission.leave(client, 1, int(waited > LIMIT))
            if waited > LIMIT:
                self.late.append(client)
            else:
                self.waits.append((client, waited))
                self._credit -= 1
            if self._queues[client]:
                self._turns.append(client)
            else:
                del self._queues[client]


@pytest.mark.parametrize("pace", [200.0, 1_000.0, 5_000.0])
@pytest.mark.parametrize("times", [2.0, 10.0])
def test_beyond_the_knee_nothing_is_lost_but_what_is_too_much(pace: float, times: float) -> None:
    """Offered more than it can serve, it serves as much as it can: what is let in is worth its while."""
    service = Counter(pace)
    owed = 0.0
    for step in range(1_500):
        owed += pace * times * 0.01
        while owed >= 1:
            owed -= 1
            service.ask(f"client {step % 50}")
        service.go_on(0.01)
        assert service.admission.waiting <= 2.5 * max(FIRST_PACE, pace) * LIMIT
    assert len(service.waits) >= 0.97 * pace * 15
    assert len(service.late) <= 0.5 * len(service.waits)


def test_below_the_knee_nobody_is_refused() -> None:
    """What can be served is, also when it comes in bursts of a client's whole allowance of a moment."""
    service = Counter(1_000.0)
    for _ in range(20):
        for client in range(9):
            assert service.ask(f"client {client}", 100)
        for _ in range(100):
            service.go_on(0.01)
    assert not service.refused


def test_a_heavy_client_waits_for_itself() -> None:
    """Beside one that always has all it may wait with, those who ask little are let in and served at once."""
    service = Counter(1_000.0)
    for _ in range(1_000):
        while service.ask("heavy", 10):
            pass
        service.ask("light")
        service.go_on(0.01)
    assert "light" not in service.refused and "heavy" in service.refused
    assert max(wait for client, wait in service.waits if client == "light") <= 0.05


def test_row_50_a_crowd_of_heavy_clients_keeps_nobody_out() -> None:
    """Twenty that have all they may wait with, before they could be measured: who comes with little is let in."""
    service = Counter(600.0)
    for client in range(20):
        assert service.ask(f"heavy {client}", 100)
    for _ in range(4):
        service.go_on(WINDOW_SECONDS)
        service.admission.wait("light", 1)
    assert service.admission.expected > 2 * LIMIT
    for _ in range(3):
        service.go_on(WINDOW_SECONDS)
        assert not service.admission.wait("light", 5)
        assert service.admission.wait("heavy 1", 5)


def test_a_stall_is_not_held_against_those_who_come_after_it() -> None:
    """After a service that stood still has served what waited, a burst is let in as ever."""
    service = Counter(1_000.0)
    for _ in range(100):
        service.ask("a", 20)
        service.go_on(0.01)
    service.pace = 0.0
    for _ in range(1_000):
        service.ask("a")
        service.go_on(0.01)
    service.pace = 1_000.0
    while service.admission.waiting:
        service.go_on(0.01)
    service.go_on(2 * STANDING_SECONDS)
    assert service.ask("b", 500)


def test_slow_clients_are_not_taken_for_a_slow_service() -> None:
    """Few who wait for each answer say nothing of how fast many would be served."""
    service = Counter(10_000.0)
    for _ in range(200):
        service.ask("slow")
        service.go_on(0.05)
    assert service.ask("crowd", int(FIRST_PACE * LIMIT / 2))


def test_a_few_are_always_let_in() -> None:
    """However slow it is, a queue as short as that is no crowd: it cannot even be measured."""
    service = Counter(1.0)
    for _ in range(10):
        service.admission.enter("a", SATURATED)
        service.go_on(WINDOW_SECONDS)
        service.admission.leave("a", SATURATED)
        assert service.ask("b", SATURATED - 1) or service.admission.waiting >= SATURATED
        service.go_on(60.0)


@given(st.lists(st.integers(1, 50), min_size=1), st.floats(1, 1_000))
def test_the_level_fills_the_room(waiting: list[int], room: float) -> None:
    """With all above it cut down to the level the room is full, or all fit."""
    level = _level(waiting, room)
    filled = sum(min(own, level) for own in waiting)
    assert filled <= room + 1e-6
    if sum(waiting) > room:
        assert filled == pytest.approx(room)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=50))
def test_nothing_is_kept_of_who_has_nothing_waiting(asked: list[tuple[str, int]]) -> None:
    """Whatever came and went, the counts are those of what is there."""
    admission = Admission(LIMIT, clock=lambda: 0.0)
    there: list[tuple[str, int]] = []
    for item in asked:
        admission.enter(*item)
        heapq.heappush(there, item)
        if len(there) > 5:
            admission.leave(*heapq.heappop(there))
        assert admission.waiting == sum(size for _, size in there)
    while there:
        admission.leave(*there.pop())
    assert not admission._of and admission.waiting == 0 and admission.expected == 0


@pytest.mark.parametrize("served", [0, 1])
def test_a_long_stall_is_not_learnt_for_ever(served: int) -> None:
    """After minutes in which next to nothing was served a crowd is let in that is large enough to be measured anew."""
    now = 0.0
    admission = Admission(LIMIT, clock=lambda: now)
    admission.enter("crowd", 100)
    for _ in range(3_000):
        now += WINDOW_SECONDS
        admission.wait("other", 1)
        admission.leave("crowd", served)
        admission.enter("crowd", served)
    admission.leave("crowd", 100)
    now += WINDOW_SECONDS
    admission.wait("other", 1)
    admission.enter("crowd", SATURATED)
    assert admission.wait("other", 1) == 0
