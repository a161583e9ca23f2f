"""An answer of the search with the proof of how good it is, or that there is none."""

from __future__ import annotations

import math
from typing import NamedTuple

from millrace.routing.plan import Execution


class NoRoute(Exception):
    """The tokens are not connected, or no cycle earns anything."""


class Route(NamedTuple):
    """An executed plan. `gap` bounds how far (relative) any split over the market could be above it."""

    execution: Execution
    gap: float | None

    def bound(self) -> float:
        """What no split over the market pays more than; infinite where that is not known."""
        return math.inf if self.gap is None or self.gap >= 1.0 else self.execution.amount_out / (1.0 - self.gap)

    def below(self, upper: float) -> Route:
        """The same with another bound; it says nothing where that is infinite."""
        gap = gap_of(self.execution.amount_out, upper)
        return self._replace(gap=1.0 if gap is None else gap)


def gap_of(paid: int, upper: float) -> float | None:
    """How far an output is below its bound, relative; None where there is no bound."""
    return max(0.0, 1.0 - paid / upper) if 0.0 < upper < math.inf else None
