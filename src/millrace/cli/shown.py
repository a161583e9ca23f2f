"""How tables, amounts and CSV are shown: coloured and fitted in a terminal, whole and plain in a pipe."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from millrace.cli.ask import is_terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPE_WIDTH = 500  # nothing is cut or wrapped where nobody looks


def console() -> Console:
    """Where tables go. `NO_COLOR` and pipes have no colours."""
    from rich.console import Console

    return Console(width=None if is_terminal() else _PIPE_WIDTH, highlight=False, markup=False, soft_wrap=False)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> RenderableType:
    """A table without lines; columns named in `right` hold numbers."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(head))
    for number, name in enumerate(head):
        is_number = number in right
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
    """An exact amount in whole tokens."""
    whole, rest = divmod(amount, 10**decimals)
    return f"{whole:,}" + (f".{rest:0{decimals}d}".rstrip("0") if rest else "")


def to_units(text: str, decimals: int) -> int:
    """Smallest units of an amount in whole tokens. Raises `click.BadParameter`."""
    from decimal import Decimal, InvalidOperation

    try:
        amount = Decimal(text.replace(",", "").replace("_", "")).scaleb(decimals)
    except InvalidOperation:
        raise click.BadParameter(f"{text!r} is no amount") from None
    if not amount.is_finite() or amount <= 0 or amount != amount.to_integral_value():
        raise click.BadParameter(f"{text} is no amount above zero with at most {decimals} decimals")
    return int(amount)


def percent(value: float | None) -> str:
    """A fraction in percent."""
    return "-" if value is None else f"{100 * value:.3g} %"
