"""Token identifiers."""

from __future__ import annotations

import pytest

from millrace.chain import token


@pytest.mark.parametrize("text", ["WEGLD-bd4d79", "USDC-c76f1f", "ABC-000000", "1234567890-abcdef", "sov-ABC-123456"])
def test_token_identifiers(text: str) -> None:
    """A ticker of 3 to 10 capitals or digits, a hyphen and six hex digits make an identifier; a prefix may lead."""
    assert token.is_identifier(text)
    assert token.ticker(text) == text[:-7]


@pytest.mark.parametrize(
    "text",
    ["", "EGLD", "AB-000000", "abc-000000", "ABC-00000", "ABC-00000G", "ABC-000000\n", "ABC-ABCDEF",
     "ABCDEFGHIJK-000000", "-ABC-000000", "ABC-000000-01", "ÄBC-000000", "ABC-00000٣"],
)  # fmt: skip
def test_other_texts_are_no_identifiers(text: str) -> None:
    """The native coin, other lengths, cases and characters are no token identifier."""
    assert not token.is_identifier(text)


def test_the_native_coin_in_transfers_has_a_token_form() -> None:
    """Inside transfers the native coin is written like a token."""
    assert token.is_identifier(token.NATIVE_IN_TRANSFERS)
    assert token.ticker(token.NATIVE_IN_TRANSFERS) == token.NATIVE
