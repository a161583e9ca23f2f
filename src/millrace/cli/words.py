"""Words of the command line that are looked at before anything is asked for: wrong ones are wrong use, exit code 2.

Each function is the `type` of an option or argument, and raises `click.BadParameter`, to which click adds whose it is.
"""

from __future__ import annotations

import re

import click

from millrace.cli.shown import to_units

_MOST_DECIMALS = 78
"""No amount of 256 bits has more digits; how many its token has is not known yet."""


def address(text: str) -> str:
    """An address."""
    from millrace_client.address import decode
    from millrace_client.errors import TransactionError

    try:
        decode(text)
    except TransactionError as error:
        raise click.BadParameter(str(error)) from None
    return text


def tx_hash(text: str) -> str:
    """A hash of a transaction, in lower case."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise click.BadParameter(f"{text[:80]!r} is no hash of a transaction: 64 digits of 0-9 and a-f")
    return text.lower()


def amount(text: str) -> str:
    """An amount as it was typed: how many units it is depends on the token."""
    to_units(text, _MOST_DECIMALS)
    return text


def fraction(text: str) -> str:
    """A fraction, such as a slippage, as it was typed."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or float(text) >= 1:
        raise click.BadParameter(f"{text[:80]!r} is no fraction from 0 to below 1, such as 0.01 for 1 %")
    return text
