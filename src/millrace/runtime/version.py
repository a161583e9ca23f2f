"""Which version this is: services tell it in /health, and `millrace doctor` compares it with its own."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The installed distribution's version; `unknown` for sources that are not installed."""
    try:
        return metadata.version("millrace")
    except metadata.PackageNotFoundError:
        return "unknown"
