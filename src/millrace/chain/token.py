"""Token identifiers: `TICKER-hexcode`, and the two names of the native coin."""

from __future__ import annotations

import re

NATIVE = "EGLD"
NATIVE_IN_TRANSFERS = "EGLD-000000"

_IDENTIFIER = re.compile(r"(?:[a-z0-9]{1,4}-)?[A-Z0-9]{3,10}-[0-9a-f]{6}")


def is_identifier(text: str) -> bool:
    """Whether the text has the form of a fungible token's identifier (3 to 10 characters, six hex digits)."""
    return _IDENTIFIER.fullmatch(text) is not None


def ticker(identifier: str) -> str:
    """The part before the hexadecimal suffix."""
    return identifier.rpartition("-")[0]
