"""Times of the chain: nodes tell them in seconds, and since the last headers of the earlier formats in milliseconds."""

from __future__ import annotations

FIRST_MS = 100_000_000_000
"""No time in seconds is so late, and none in milliseconds so early."""


def milliseconds(stamp: int) -> int:
    """A time that is in seconds or in milliseconds."""
    return stamp if stamp >= FIRST_MS else stamp * 1000
