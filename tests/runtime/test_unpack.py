"""Packed bodies."""

from __future__ import annotations

import gzip

import pytest

from millrace.runtime.unpack import MOST_MEMBERS, UnpackError, unpack

WHOLE = b"some text, and more of it " * 100


@pytest.mark.parametrize("packed", [gzip.compress(WHOLE), gzip.compress(WHOLE[:7]) + gzip.compress(WHOLE[7:])])
def test_what_was_packed_comes_out(packed: bytes) -> None:
    """In one member or several, and up to the very bound."""
    assert unpack(packed, len(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"", "not all"),
        (b"plain", "not what gzip packs"),
        (gzip.compress(WHOLE)[:-9], "not all"),
        (gzip.compress(WHOLE)[:-1] + b"x", "not what gzip packs"),
        (gzip.compress(WHOLE) + b"junk", "not what gzip packs"),
        (gzip.compress(WHOLE + b"."), f"larger than {len(WHOLE)} bytes"),
        (gzip.compress(b"") * (MOST_MEMBERS + 1), "parts"),
        (gzip.compress(b" " * 100_000_000), f"larger than {len(WHOLE)} bytes"),
    ],
)
def test_anything_else_is_refused(packed: bytes, words: str) -> None:
    """Damage, something behind it, and more than the bound, of which no more than the bound is unpacked."""
    with pytest.raises(UnpackError, match=words):
        unpack(packed, len(WHOLE))
