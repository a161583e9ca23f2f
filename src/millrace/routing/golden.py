"""The best part of something: a search for the summit of a function of one number, of which each look is dear."""

from __future__ import annotations

from collections.abc import Callable

SEARCH_STEPS = 6  # each leaves 0.618 of the range: 6 % of it in the end, near a flat optimum
_GOLDEN = 0.6180339887498949  # (√5 - 1) / 2: one of two points of a step serves in the next one


def golden_section(worth: Callable[[float], int]) -> dict[float, int]:
    """What parts are worth, around the best one: golden section, then the peak of a parabola."""
    tried: dict[float, int] = {}

    def ask(part: float) -> int:
        tried[part] = worth(part)
        return tried[part]

    low, high = 0.0, 1.0
    a, b = high - _GOLDEN, low + _GOLDEN
    worth_a, worth_b = ask(a), ask(b)
    for _ in range(SEARCH_STEPS):
        if worth_a > worth_b:
            high, b, worth_b = b, a, worth_a
            a = high - _GOLDEN * (high - low)
            worth_a = ask(a)
        else:
            low, a, worth_a = a, b, worth_b
            b = low + _GOLDEN * (high - low)
            worth_b = ask(b)
    most = max(
        tried.values()
    )  # floats tell what is less than the best apart, not two amounts of which little is earned
    peak = _peak([(part, float(units - most)) for part, units in tried.items() if units])
    if peak is not None and peak not in tried:
        ask(peak)
    return tried


def _peak(points: list[tuple[float, float]]) -> float | None:
    """Where the parabola through the highest point and its neighbours is highest; None if there is none."""
    points.sort()
    top = max(range(len(points)), key=lambda k: points[k][1], default=0)
    if not 0 < top < len(points) - 1:
        return None
    (x0, y0), (x1, y1), (x2, y2) = points[top - 1 : top + 2]
    left, right = (x1 - x0) * (y1 - y2), (x1 - x2) * (y1 - y0)
    if left == right:
        return None
    return x1 - 0.5 * ((x1 - x0) * left - (x1 - x2) * right) / (left - right)
