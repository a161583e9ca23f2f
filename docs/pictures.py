"""Draws the pictures of routing.md from the numbers of its examples: `python docs/pictures.py`.

Every number in them is worked out here, by the formulas of the page. The same input, the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
INK, GREY, LIGHT, BLUE, RED, GREEN = "#23364a", "#8496a8", "#e6ecf2", "#2b6cb0", "#c05621", "#2f855a"
FONT = 'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13"'
FEE = 0.003


class Pool(NamedTuple):
    """A constant-product pool that holds `r_in` of one token and `r_out` of another."""

    r_in: float
    r_out: float

    def pays(self, x: float) -> float:
        """What it pays for an input."""
        kept = x * (1.0 - FEE)
        return self.r_out * kept / (self.r_in + kept)

    def profit(self, v_in: float, v_out: float) -> float:
        """The most that a trade earns whose input and output have these prices."""
        gain = math.sqrt(self.r_out * v_out) - math.sqrt(self.r_in * v_in / (1.0 - FEE))
        return max(0.0, gain) ** 2

    def best(self, v_in: float, v_out: float) -> float:
        """The input of that trade: where the slope of `pays` is the price ratio."""
        slope = math.sqrt(v_out / v_in * self.r_in * self.r_out * (1.0 - FEE)) - self.r_in
        return max(0.0, slope / (1.0 - FEE))


AMOUNT = 100.0
PARALLEL = (Pool(1000.0, 2050.0), Pool(400.0, 800.0))
"""Two pools between the same tokens, the example of the first two pictures."""

TOKENS = ("A", "C", "D", "B")
NETWORK = {
    ("A", "B"): Pool(400.0, 800.0),
    ("A", "C"): Pool(900.0, 1800.0),
    ("C", "B"): Pool(1500.0, 1530.0),
    ("A", "D"): Pool(300.0, 880.0),
    ("D", "B"): Pool(700.0, 480.0),
    ("C", "D"): Pool(200.0, 270.0),
}
"""Six pools between four tokens: A is sold, B is bought."""

MANY = tuple(Pool(r, 2.0 * r * (1.0 + 0.004 * k)) for k, r in enumerate((900.0, 30.0, 420.0, 12.0, 150.0, 60.0)))
"""Six pools between the same tokens, of very different size."""
TOLL = 0.3
"""What the row of one more pool costs in the third example, in the token that is bought."""


def least(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a convex function is least between two ends."""
    for _ in range(90):
        one, other = low + (high - low) / 3.0, high - (high - low) / 3.0
        low, high = (low, other) if function(one) < function(other) else (one, high)
    return (low + high) / 2.0


def dual(pools: Sequence[Pool], price: float) -> float:
    """G of pools side by side: the amount at its price, and what each pool could earn at it."""
    return AMOUNT * price + sum(pool.profit(price, 1.0) for pool in pools)


def split(pools: Sequence[Pool]) -> tuple[float, list[float]]:
    """The price at which pools side by side take all of the amount, and what each takes."""
    price = least(lambda v: dual(pools, v), 0.1, 4.0)
    return price, [pool.best(price, 1.0) for pool in pools]


def network_dual(prices: dict[str, float]) -> float:
    """G of the network at prices in B."""
    return AMOUNT * prices["A"] + sum(pool.profit(prices[a], prices[b]) for (a, b), pool in NETWORK.items())


def network_prices() -> dict[str, float]:
    """Prices at which G of the network is least: one after the other, until none moves."""
    prices = dict.fromkeys(TOKENS, 1.0)
    for _ in range(400):
        for token in ("A", "C", "D"):
            prices[token] = least(lambda v, token=token: network_dual({**prices, token: v}), 0.05, 4.0)  # type: ignore[misc]
    return prices


def network_flow() -> dict[tuple[str, str], float]:
    """What each pool of the network takes at these prices."""
    prices = network_prices()
    return {(a, b): pool.best(prices[a], prices[b]) for (a, b), pool in NETWORK.items()}


class Chart:
    """Axes with lines, areas and words. Coordinates are those of the data."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], labels: tuple[str, str], title: str) -> None:
        self._x, self._y = x, y
        self._parts = [f'<rect width="640" height="320" fill="#fff"/><title>{title}</title>']
        self._parts.append(f'<path d="M70 20V270H620" fill="none" stroke="{INK}"/>')
        self._parts.append(f'<text x="620" y="306" text-anchor="end" fill="{INK}">{labels[0]}</text>')
        self._parts.append(f'<text x="76" y="26" fill="{INK}">{labels[1]}</text>')

    def at(self, x: float, y: float) -> str:
        """A point, as SVG writes it."""
        across = 70 + 550 * (x - self._x[0]) / (self._x[1] - self._x[0])
        down = 270 - 235 * (y - self._y[0]) / (self._y[1] - self._y[0])
        return f"{across:.1f} {down:.1f}"

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> None:
        """A line through points."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        path = "L".join(self.at(x, y) for x, y in points)
        self._parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')

    def curve(self, function: Callable[[float], float], colour: str) -> None:
        """The graph of a function over the whole width."""
        steps = [self._x[0] + (self._x[1] - self._x[0]) * k / 120 for k in range(121)]
        self.line([(x, function(x)) for x in steps], colour)

    def dot(self, x: float, y: float, colour: str) -> None:
        """A point that is meant."""
        across, down = self.at(x, y).split()
        self._parts.append(f'<circle cx="{across}" cy="{down}" r="4.5" fill="{colour}"/>')

    def word(self, x: float, y: float, text: str, colour: str = INK, anchor: str = "start") -> None:
        """A word beside a point."""
        across, down = self.at(x, y).split()
        self._parts.append(f'<text x="{across}" y="{down}" fill="{colour}" text-anchor="{anchor}">{text}</text>')

    def tick(self, x: float, text: str) -> None:
        """A mark below."""
        across = self.at(x, self._y[0]).split()[0]
        self._parts.append(f'<path d="M{across} 270v5" stroke="{INK}"/>')
        self._parts.append(f'<text x="{across}" y="288" text-anchor="middle" fill="{INK}">{text}</text>')

    def bar(self, x: float, height: float, colour: str) -> None:
        """A bar."""
        across, down = self.at(x, height).split()
        base = self.at(x, self._y[0]).split()[1]
        tall = float(base) - float(down)
        self._parts.append(
            f'<rect x="{float(across) - 20:.1f}" y="{down}" width="40" height="{tall:.1f}" fill="{colour}"/>'
        )

    def svg(self) -> str:
        """The picture."""
        return _svg(640, 320, self._parts)


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {FONT}>\n{body}\n</svg>\n'
    )


def draw_split() -> str:
    """What two pools pay together, by the part that the first one gets."""
    first, second = PARALLEL

    def paid(part: float) -> float:
        return first.pays(AMOUNT * part) + second.pays(AMOUNT * (1.0 - part))

    _, taken = split(PARALLEL)
    best = taken[0] / AMOUNT
    chart = Chart((0.0, 1.0), (154.0, 192.0), ("part of the 100 A that pool 1 gets", "B paid"), "Output of a split")
    chart.curve(paid, BLUE)
    chart.line([(best, 154.0), (best, paid(best))], GREY, dashed=True)
    chart.dot(best, paid(best), RED)
    chart.word(best, paid(best) + 2.5, f"{paid(best):.2f} B: both slopes are equal", RED, "middle")
    chart.word(0.02, paid(0.0) - 3.5, f"pool 2 alone: {paid(0.0):.2f}", INK)
    chart.word(1.0, paid(1.0) - 4.5, f"pool 1 alone: {paid(1.0):.2f}", INK, "end")
    for part in (0.0, 0.5, 1.0):
        chart.tick(part, f"{part:g}")
    chart.tick(best, f"{best:.3f}")
    return chart.svg()


def draw_dual() -> str:
    """G over the price of the input, and what the best split pays, which it touches from above."""
    price, taken = split(PARALLEL)
    paid = sum(pool.pays(x) for pool, x in zip(PARALLEL, taken, strict=True))
    chart = Chart((1.5, 2.1), (180.0, 215.0), ("price of A in B", "B"), "The dual")
    chart.curve(lambda v: dual(PARALLEL, v), BLUE)
    chart.line([(1.5, paid), (2.1, paid)], GREEN, dashed=True)
    chart.dot(price, dual(PARALLEL, price), RED)
    chart.word(price, paid + 3.0, f"least at {price:.4f}", RED, "middle")
    chart.word(2.09, paid - 2.6, f"what the best split pays: {paid:.2f} B", GREEN, "end")
    chart.word(2.09, 210.0, "G: at every price a bound", BLUE, "end")
    for value in (1.5, 1.7, 1.9, 2.1):
        chart.tick(value, f"{value:g}")
    return chart.svg()


PLACES = {"A": (60, 160), "C": (320, 60), "D": (320, 260), "B": (580, 160)}


def draw_network() -> str:
    """Tokens with their prices, pools with what they take; those that earn nothing are thin."""
    prices, flow = network_prices(), network_flow()
    parts = ['<rect width="640" height="320" fill="#fff"/><title>Prices of a network</title>']
    parts.append(
        f'<defs><marker id="m" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" markerHeight="6" orient="auto" '
        f'markerUnits="userSpaceOnUse"><path d="M0 0L10 5L0 10z" fill="{GREY}"/></marker></defs>'
    )
    for (a, b), amount in flow.items():
        (x1, y1), (x2, y2) = PLACES[a], PLACES[b]
        length = math.hypot(x2 - x1, y2 - y1)
        dx, dy = (x2 - x1) / length * 34, (y2 - y1) / length * 34
        colour, wide = (BLUE, 1.5 + amount / 12.0) if amount > 0.0 else (GREY, 1.0)
        dash = "" if amount > 0.0 else ' stroke-dasharray="4 4" marker-end="url(#m)"'
        line = f"M{x1 + dx:.1f} {y1 + dy:.1f}L{x2 - dx:.1f} {y2 - dy:.1f}"
        parts.append(f'<path d="{line}" stroke="{colour}" stroke-width="{wide:.1f}"{dash}/>')
        pool = NETWORK[a, b]
        said = f"{amount:.1f} {a} → {pool.pays(amount):.1f} {b}" if amount > 0.0 else f"{a} → {b}: nothing to earn"
        slope = 18 if y1 != y2 else 0  # words stand clear of lines that rise or fall
        lift = -12 - slope - wide / 2 if y1 + y2 <= 320 else 20 + slope + wide / 2
        side = "start" if a == "C" and b == "D" else "middle"
        x = (x1 + x2) / 2 + (8 if side == "start" else 0)
        y = (y1 + y2) / 2 + (30 if side == "start" else lift)
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{side}" fill="{INK}">{said}</text>')
    for token, (x, y) in PLACES.items():
        parts.append(f'<circle cx="{x}" cy="{y}" r="30" fill="{LIGHT}" stroke="{INK}"/>')
        parts.append(f'<text x="{x}" y="{y - 2}" text-anchor="middle" font-weight="bold" fill="{INK}">{token}</text>')
        parts.append(f'<text x="{x}" y="{y + 15}" text-anchor="middle" fill="{RED}">{prices[token]:.3f}</text>')
    return _svg(640, 320, parts)


def kept(count: int) -> float:
    """What the example's pools pay if so many of them are kept, those that earn most."""
    price, _ = split(MANY)
    best = sorted(MANY, key=lambda pool: -pool.profit(price, 1.0))[:count]
    _, taken = split(best)
    return sum(pool.pays(x) for pool, x in zip(best, taken, strict=True))


def draw_prune() -> str:
    """What is left of the output after the fee, by the number of pools."""
    net = [kept(count) - TOLL * count for count in range(1, 7)]
    top = max(net)
    chart = Chart((0.4, 6.6), (top - 2.0, top + 0.4), ("pools kept", "B left after the fee"), "Output less the fee")
    for count, value in enumerate(net, 1):
        chart.bar(count, max(value, top - 1.95), RED if value == top else LIGHT)
        chart.word(count, max(value, top - 1.95) + 0.06, f"{value:.2f}", INK, "middle")
        chart.tick(count, str(count))
    return chart.svg()


PICTURES = {
    "routing-split.svg": draw_split,
    "routing-dual.svg": draw_dual,
    "routing-network.svg": draw_network,
    "routing-prune.svg": draw_prune,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), encoding="utf-8")
