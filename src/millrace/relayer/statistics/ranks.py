"""Which number has a rank among many, of which some come and others go."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

RUN = 512
"""Different numbers in a run, at most: with 180,000 of them a question looks at some 700 runs, and into one of them."""


class Ranks:
    """Numbers with weights, in runs that ascend: a change or a question walks one run and the list of runs at most."""

    def __init__(self) -> None:
        self._weights: dict[int, int] = {}
        self._runs: list[list[int]] = [[]]
        self._starts = [0]
        """No number of a run is less than this, nor any of the run before as large; the first run's does not count."""
        self._sums = [0]
        """What the numbers of each run weigh."""
        self.total = 0
        """What all of them weigh."""

    def add(self, number: int, weight: int) -> None:
        """Add to a number's weight, or take away what was added before: of no weight it is not there."""
        at = max(0, bisect_right(self._starts, number) - 1)
        run, before = self._runs[at], self._weights.get(number, 0)
        self._sums[at] += weight
        self.total += weight
        if before + weight:
            self._weights[number] = before + weight
            if not before:
                insort(run, number)
                if len(run) > RUN:
                    self._halve(at)
            return
        if before:
            del self._weights[number], run[bisect_left(run, number)]
        if not run and len(self._runs) > 1:
            del self._runs[at], self._starts[at], self._sums[at]

    def at(self, rank: int) -> int:
        """The smallest number that, with all that are less, weighs at least `rank`, which is from 1 to the total."""
        place = 0
        while rank > self._sums[place]:
            rank -= self._sums[place]
            place += 1
        for number in self._runs[place]:
            rank -= self._weights[number]
            if rank <= 0:
                return number
        raise AssertionError("a run weighs what its numbers do")

    def _halve(self, at: int) -> None:
        run = self._runs[at]
        upper = run[len(run) // 2 :]
        del run[len(run) // 2 :]
        moved = sum(self._weights[number] for number in upper)
        self._sums[at] -= moved
        self._runs.insert(at + 1, upper)
        self._starts.insert(at + 1, upper[0])
        self._sums.insert(at + 1, moved)
