"""Lines for people: wrapped at words to the terminal they go to, as they are in a pipe."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click

_NARROWEST = 20


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
