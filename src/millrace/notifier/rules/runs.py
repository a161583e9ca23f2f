"""Whose sequence a number is: processes write a journal in turn, and it may be put back to an earlier state.

Each process gives its run a random name, and notes behind which sequence it began. So it is known how far a journal
shares the history in which a consumer, or a broker, was told a sequence: to the end of that run. It ends earlier than
that consumer remembers when the journal is an older copy of the one that told it; and another journal, which may have
the same event under the same sequence by chance, shares nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

_KEPT = 64
"""Runs that are remembered: who was told a sequence before so many goes on by ids, or from the oldest event. Those that
wrote nothing go first: a process that fails at every start makes the journal forget nobody who was told anything."""
_FACT = "run"


class Run(NamedTuple):
    """One process that wrote the journal."""

    number: int
    name: str
    after: int
    """The newest sequence when it began."""


class Runs:
    """Of one journal, the oldest first; the last one is the present."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    @classmethod
    def begin(cls, facts: Iterable[tuple[str, int]], after: int) -> Self:
        """Those that are kept as `facts`, and one more, which begins behind the sequence `after`."""
        known = sorted(_run_of(name, value) for name, value in facts if name.startswith(f"{_FACT} "))
        number = known[-1].number + 1 if known else 1
        runs = [*known, Run(number, secrets.token_hex(8), after)]
        while len(runs) > _KEPT:
            del runs[next((at for at, (run, later) in enumerate(pairwise(runs)) if run.after == later.after), 0)]
        return cls(runs)

    @property
    def facts(self) -> list[tuple[str, int]]:
        """To keep."""
        return [(f"{_FACT} {run.number} {run.name}", run.after) for run in self._runs]

    @property
    def present(self) -> Run:
        return self._runs[-1]

    def writer(self, sequence: int) -> str:
        """Name of the run that wrote a sequence: after restarts the same, in another journal another.

        Of a sequence from before all that are kept, the oldest one's.
        """
        return next((run for run in reversed(self._runs) if run.after < sequence), self._runs[0]).name

    def shared(self, name: str, sequence: int) -> int | None:
        """How far, up to `sequence`, this journal is the one that the run `name` wrote; `None`: it is another."""
        for number, run in enumerate(self._runs):
            if run.name == name:
                following = self._runs[number + 1 : number + 2]
                return min(sequence, *(after.after for after in following)) if following else sequence
        return None


def _run_of(fact: str, after: int) -> Run:
    _, number, name = fact.split()
    return Run(int(number), name, after)
