"""Trace context as the W3C writes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.runtime.spans import Context, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
DIGITS = st.text("0123456789abcdef", min_size=1)


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_what_is_written_is_read(trace: int, span: int, flags: int) -> None:
    """Every trace id and span id but zero is read, and of the flags whether it is sampled; others mean nothing."""
    context = parse(f"00-{trace:032x}-{span:016x}-{flags:02x}")
    assert context == Context(f"{trace:032x}", f"{span:016x}", bool(flags & 1))
    assert parse(str(context)) == context


@given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{30,34}-[0-9a-f]{14,18}-[0-9a-f]{0,4}"))
def test_nothing_else_is(text: str) -> None:
    """What is read has the one form, whatever comes."""
    context = parse(text)
    if context is not None:
        assert text[:55] == f"{text[:2]}-{context.trace_id}-{context.span_id}-{text[53:55]}"
        assert text.isascii() and (len(text) == 55 or text[:2] != "00")


@pytest.mark.parametrize(
    "text",
    [
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-what-came-later",
        f"01-{TRACE}-{SPAN}-01.",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}",
        "",
    ],
)
def test_malformed_ones_are_ignored(text: str) -> None:
    """Zeros, the version ff, more than version 00 has, capitals, and what is cut short are no context."""
    assert parse(text) is None


def test_later_versions_may_add() -> None:
    """Of a later version what is known is read, with or without what it adds behind a hyphen."""
    assert parse(f"01-{TRACE}-{SPAN}-03-more") == parse(f"cc-{TRACE}-{SPAN}-01") == Context(TRACE, SPAN, True)
