"""What services tell each other of a trace (W3C trace context), and what they record of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

LENGTH = 55
"""Characters of what version 00 of trace context writes; a later version may add to it."""
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1


class Context(NamedTuple):
    """What a `traceparent` says."""

    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits: of whoever sent it."""
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


def parse(text: str) -> Context | None:
    """The context in a `traceparent`; `None` for what the W3C has ignored: a wrong form, zeros, the version ff."""
    found = _PARENT.match(text)
    if found is None:
        return None
    version, trace_id, span_id, flags = found.groups()
    if version == "ff" or (len(text) > LENGTH and (version == "00" or text[LENGTH] != "-")):
        return None
    if not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return Context(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


class Span(NamedTuple):
    """A thing done, as it is recorded when it has ended."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty: nobody asked for it."""
    began_ns: int
    """Unix time, as `ended_ns`."""
    ended_ns: int
    attributes: dict[str, str | int]


Export = Callable[[Span], None]
