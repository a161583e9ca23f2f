"""What every benchmark prints: a table for people, and one JSON object as the last line for machines."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


@dataclass
class Report:
    """Figures with their bars; `finish` prints them and gives the exit code."""

    title: str
    rows: list[tuple[str, float, str, str, bool]] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str = "", bar: tuple[str, float] | None = None) -> None:
        """A figure; `bar` is a comparison and a number, such as `("<=", 5.0)`."""
        holds = bar is None or bool(_COMPARE[bar[0]](value, bar[1]))
        self.rows.append((name, value, unit, "" if bar is None else f"{bar[0]} {bar[1]:g}", holds))

    def finish(self) -> int:
        """Print the table and the JSON line; 0 when every bar holds, else 1."""
        table = Table("figure", "value", "unit", "bar", "of the bar", "", title=self.title)
        for name, value, unit, bar, holds in self.rows:
            table.add_row(name, _number(value), unit, bar, _ratio(value, bar), "" if not bar else "✓" if holds else "✗")
        Console(width=120).print(table)
        all_hold = all(row[-1] for row in self.rows)
        figures = {
            name: {"value": value, "unit": unit, "bar": bar or None, "holds": holds}
            for name, value, unit, bar, holds in self.rows
        }
        print(json.dumps({"benchmark": self.title, "figures": figures, "all_bars_hold": all_hold}))
        return 0 if all_hold else 1


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _ratio(value: float, bar: str) -> str:
    """A figure in hundredths of its bar."""
    limit = float(bar.split()[1]) if bar else 0.0
    return f"{value / limit:.0%}" if limit else ""
