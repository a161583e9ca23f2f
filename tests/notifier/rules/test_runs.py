"""Whose sequences a journal shares, against journals that are written on, copied and put back."""

from __future__ import annotations

import random

import pytest

from millrace.notifier.rules.runs import Runs


class Copy:
    """A journal's events as they would be in a copy of its directory."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.facts: list[tuple[str, int]] = []
        self.runs: Runs

    def start(self) -> None:
        self.runs = Runs.begin(self.facts, len(self.events))
        self.facts = self.runs.facts

    def copy(self) -> Copy:
        other = Copy()
        other.events, other.facts = list(self.events), list(self.facts)
        other.start()
        return other


@pytest.mark.parametrize("seed", range(50))
def test_shared(seed: int) -> None:
    """However journals are copied, put back and written on: a sequence counts as far as the events are the same."""
    rng = random.Random(seed)
    journals = [Copy(), Copy()]
    for journal in journals:
        journal.start()
    backups = [journals[0].copy()]
    told: list[tuple[str, list[object]]] = []
    for _ in range(200):
        number = rng.randrange(len(journals))
        journal = journals[number]
        match rng.randrange(6):
            case 0:
                journal.start()
            case 1:
                backups.append(journal.copy())
            case 2:
                journals[number] = rng.choice(backups).copy()
            case 3:
                told.append((journal.runs.present.name, journal.events[: rng.randrange(len(journal.events) + 1)]))
            case _:
                journal.events.append(object())
        for name, events in told[-20:]:
            shared = journal.runs.shared(name, len(events))
            if shared is not None:
                assert journal.events[:shared] == events[:shared]


def test_the_writer_of_a_sequence() -> None:
    """It is the run that wrote it, also for later runs; what was before all of them is the oldest one's."""
    journal = Copy()
    names = []
    for _ in range(3):
        journal.start()
        names.append(journal.runs.present.name)
        assert [journal.runs.writer(sequence) for sequence in range(len(journal.events) + 2)] == [
            names[max(0, sequence - 1) // 2] for sequence in range(len(journal.events) + 2)
        ]
        journal.events += [object(), object()]


def test_starts() -> None:
    """A journal that is only started again and written on shares all that any of its runs told."""
    journal, told = Copy(), list[tuple[str, int]]()
    for _ in range(40):
        journal.start()
        journal.events += [object()] * (len(told) % 3)
        told.append((journal.runs.present.name, len(journal.events)))
        assert all(journal.runs.shared(*one) == one[1] for one in told)


def test_bounded() -> None:
    """Of very many starts the newest are remembered."""
    runs = Runs.begin([("origin", 5)], 0)
    first = runs.present
    for after in range(1, 200):
        runs = Runs.begin([*runs.facts, ("origin", 5)], after)
    assert len(runs.facts) == 64 and runs.shared(first.name, 0) is None
    assert runs.shared(runs.present.name, 999) == 999


def test_idle_starts() -> None:
    """However many starts write nothing, those that wrote are remembered, and the newest."""
    journal, told = Copy(), list[tuple[str, int]]()
    for _ in range(40):
        journal.start()
        journal.events.append(object())
        told.append((journal.runs.present.name, len(journal.events)))
    for _ in range(100):
        journal.start()
        assert all(journal.runs.shared(*one) == one[1] for one in told)
        assert journal.runs.shared(journal.runs.present.name, 40) == 40
    assert len(journal.facts) == 64
