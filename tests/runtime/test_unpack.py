"""Packed bodies."""

from __future__ import annotations

import gzip

import pytest

from millrace.runtime.unpack import MOST_MEMBERS, UnpackError, unpack

WHOLE = b"some text, and more of it " * 100


def packed_as(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the names of the tests show it, and every worker has to find the same ones


@pytest.mark.parametrize(
    "packed", [packed_as(WHOLE), packed_as(WHOLE[:7]) + packed_as(WHOLE[7:])], ids=["one member", "two"]
)
def test_what_was_packed_comes_out(packed: bytes) -> None:
    """In one member or several, and up to the very bound."""
    assert unpack(packed, len(WHOLE)) == WHOLE


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"", "not all"),
        (b"plain", "not what gzip packs"),
        (packed_as(WHOLE)[:-9], "not all"),
        (packed_as(WHOLE)[:-1] + b"x", "not what gzip packs"),
        (packed_as(WHOLE) + b"junk", "not what gzip packs"),
        (packed_as(WHOLE + b"."), f"larger than {len(WHOLE)} bytes"),
        (packed_as(b"") * (MOST_MEMBERS + 1), "parts"),
        (packed_as(b" " * 10_000_000), f"larger than {len(WHOLE)} bytes"),
    ],
    ids=["nothing", "plain", "cut", "spoilt", "more behind it", "a byte too much", "many members", "a bomb"],
)
def test_anything_else_is_refused(packed: bytes, words: str) -> None:
    """Damage, something behind it, and more than the bound, of which no more than the bound is unpacked."""
    with pytest.raises(UnpackError, match=words):
        unpack(packed, len(WHOLE))
