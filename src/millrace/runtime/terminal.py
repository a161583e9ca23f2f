"""Lines for people: wrapped at words to the terminal they go to, as they are in a pipe."""

from __future__ import annotations

import codecs
import contextlib
import io
import math
import os
import shutil
import sys
import textwrap
from typing import Any

import click

_NARROWEST = 20
_LONGEST = 1e9
_PLAIN = {"→": "->", "✓": "+", "✗": "x", "…": "..."} | dict(zip("▁▂▃▄▅▆▇█", "__.--==#", strict=True))
"""What stands for our signs where the locale's letters have none of them."""


class Seconds(click.FloatRange):
    """A time of so long at least, and thirty years at most. To click `nan` is in any range."""

    def __init__(self, least: float = 0.0) -> None:
        super().__init__(least, _LONGEST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is no number.", param, ctx)
        return seconds


def accept_locale() -> None:
    """Write what the locale has no letters for in others, in place of ending with an error in the middle."""
    codecs.register_error("millrace-plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="millrace-plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def nobody_reads() -> None:
    """Whoever read standard output has left: what is still to be written goes nowhere, and is no error at the end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def say(text: str, *, err: bool = False, indent: int = 0) -> None:
    """Print lines; what goes on in the next line is indented by so many columns."""
    click.echo(wrapped(text, err=err, indent=indent), err=err)


def wrapped(text: str, *, err: bool = False, indent: int = 0) -> str:
    """Lines as they are printed. Words stay whole: addresses and hashes are copied."""
    if not (sys.stderr if err else sys.stdout).isatty():
        return text
    width, rest = max(_NARROWEST, shutil.get_terminal_size().columns), " " * indent
    return "\n".join(
        textwrap.fill(
            line,
            width,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
        for line in text.split("\n")
    )
