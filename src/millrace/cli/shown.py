"""How tables, amounts and CSV are shown: coloured and fitted in a terminal, whole and plain in a pipe."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from millrace.cli.ask import is_terminal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

MOST_DECIMALS = 18
"""That the chain allows."""
_MAX_AMOUNT = 120  # 2^256 has 78 digits, and 25 commas between them
_AMOUNT = re.compile(r"(?P<whole>[0-9]{1,3}(?:(?:,[0-9]{3})+|(?:_[0-9]{3})+)|[0-9]*)(?:\.(?P<rest>[0-9]+))?")
_PIPE_WIDTH = 500  # nothing is cut or wrapped where nobody looks
_GAP = 2  # columns between those of a table
_FOLDED = 16  # letters of a word in a table that is not broken: a token's identifier has as many


def console() -> Console:
    """Where tables go. `NO_COLOR` and pipes have no colours."""
    from rich.console import Console

    return Console(width=None if is_terminal() else _PIPE_WIDTH, highlight=False, markup=False, soft_wrap=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> RenderableType:
    """A table without lines; columns named in `right` hold numbers. Where it is too wide, see `_Fitted`."""
    return _Fitted(head, list(rows), frozenset(right))


class _Fitted:
    """A table, or where numbers would be cut to fit the terminal a list: for each cell of a row a line."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[int]) -> None:
        self._head, self._rows, self._numbers = head, rows, numbers

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if self._least_width() <= options.max_width:
            yield self._made(self._head, self._rows, self._numbers)
            return
        for place, row in enumerate(self._rows):
            if place:
                yield ""
            yield self._made(("", ""), list(zip(self._head, row, strict=True)), frozenset())

    def _least_width(self) -> int:
        from rich.cells import cell_len

        least = _GAP * (len(self._head) - 1)
        for place, cells in enumerate(zip(self._head, *self._rows, strict=True)):
            parts = cells if place in self._numbers else [word for cell in cells for word in cell.split()]
            width = max(map(cell_len, parts), default=0)
            least += width if place in self._numbers else min(width, _FOLDED)
        return least

    def _made(self, head: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[int]) -> Table:
        from rich.table import Table
        from rich.text import Text

        made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", show_header=any(head))
        for place, name in enumerate(head):
            is_number = place in numbers
            made.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
        for row in rows:
            made.add_row(*(Text(cell) for cell in row))
        return made


def as_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write CSV."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow(["" if cell is None else cell for cell in row])


def number(value: float | None, digits: int = 6) -> str:
    """A number for people: grouped, with as many significant digits as help."""
    if value is None:
        return "-"
    if value != 0 and abs(value) < 1:
        return f"{value:.{digits or 1}g}"
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def units(amount: int, decimals: int) -> str:
    """An exact amount in whole tokens; in smallest units where the decimals are none that a token can have."""
    if not 0 <= decimals <= MOST_DECIMALS:
        return f"{amount} smallest units"
    whole, rest = divmod(amount, 10**decimals)
    return f"{whole:,}" + (f".{rest:0{decimals}d}".rstrip("0") if rest else "")


def to_units(text: str, decimals: int) -> int:
    """Smallest units of an amount in whole tokens, exactly. Raises `click.BadParameter`."""
    found = _AMOUNT.fullmatch(text)
    if found is None or len(text) > _MAX_AMOUNT:
        raise click.BadParameter(
            f"{text[:_MAX_AMOUNT]!r} is no amount: digits, a point before decimals, commas only between groups of three"
        )
    whole, rest = re.sub("[,_]", "", found["whole"]), found["rest"] or ""
    amount = int(whole + rest.ljust(decimals, "0") or "0")
    if len(rest) > decimals or amount == 0:
        raise click.BadParameter(f"{text} is no amount above zero with at most {decimals} decimals")
    return amount


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.3g} %"
