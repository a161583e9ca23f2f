"""Big integers, amounts, tokens and keys."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import amount, bigint, keys, token
from millrace.chain.keys import KeyPair, verify

OUTPORT: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "outport.json").read_text())
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize("vector", OUTPORT["bigInt"], ids=lambda v: str(v["value"]))
def test_published_big_integers(vector: dict[str, str]) -> None:
    """The sign-and-magnitude form is the one the Go marshaller writes."""
    number = None if vector["value"] == "nil" else int(vector["value"])
    field = bytes.fromhex(vector["transactionFieldHex"])
    assert field[0] == 0x12
    assert bigint.encode(number) == field[2:]
    assert bigint.decode(field[2:]) == number


@given(st.none() | st.integers(-(2**300), 2**300))
def test_big_integers_are_inverse(number: int | None) -> None:
    """Any number and the absent one survive the way to bytes and back."""
    assert bigint.decode(bigint.encode(number)) == number


@pytest.mark.parametrize("data", [b"", b"\2\1", b"\xff"])
def test_impossible_big_integers(data: bytes) -> None:
    """No bytes, or an unknown sign, are no number."""
    with pytest.raises(ValueError, match="big integer"):
        bigint.decode(data)


@pytest.mark.parametrize(
    "text", ["", "0", "00", "-1", "+1", "1.5", "1e5", " 1", "1 ", "٣", "²", "1_0", "0x1", "9" * 81]
)
def test_amounts_are_unsigned_integers(text: str) -> None:
    """Fractional, signed, zero, non-ASCII, empty and endless texts are no amount."""
    with pytest.raises(amount.AmountError, match="expected unsigned integer amount"):
        amount.parse(text)


@pytest.mark.parametrize(
    ("whole", "slippage", "least"),
    [(100, "0.01", 99), (101, "0.01", 99), (10**30 + 1, "0.1", 9 * 10**29), (1, "0", 1), (1, "0.5", 0), (7, "1", 0)],
)
def test_slippage_is_exact(whole: int, slippage: str, least: int) -> None:
    """The minimum is floor(amount * (1 - slippage)) in exact arithmetic."""
    assert amount.apply_slippage(whole, Decimal(slippage)) == least


def test_short_amounts() -> None:
    """The human number is the amount over its decimals."""
    assert amount.short(1_500_000, 6) == 1.5
    assert amount.short(10**9, 18) == 1e-9
    assert amount.short(0, 2) == 0.0


@pytest.mark.parametrize("text", ["WEGLD-bd4d79", "USDC-c76f1f", "ABC-000000", "1234567890-abcdef"])
def test_token_identifiers(text: str) -> None:
    """A ticker of 3 to 10 capitals or digits, a hyphen and six hex digits make an identifier."""
    assert token.is_identifier(text)
    assert token.ticker(text) == text[:-7]


@pytest.mark.parametrize(
    "text", ["", "EGLD", "AB-000000", "abc-000000", "ABC-00000", "ABC-00000G", "ABC-000000\n", "ABC-ABCDEF"]
)
def test_other_texts_are_no_identifiers(text: str) -> None:
    """The native coin, other lengths, cases and characters are no token identifier."""
    assert not token.is_identifier(text)


def test_pem_round_trip() -> None:
    """A key survives its PEM form; a broken or mixed-up file is refused without showing the secret."""
    pair = KeyPair.from_seed(bytes(range(32)))
    text = pair.to_pem()
    assert KeyPair.from_pem(text).public == pair.public
    body = text.splitlines()
    swapped = "\n".join([body[0], body[2], body[1], *body[3:]])
    foreign = KeyPair.generate().to_pem().replace("erd1", "erd2")
    for broken in ("", text.replace("PRIVATE", "PUBLIC"), swapped, text.replace(body[1], body[1][:-4]), foreign):
        with pytest.raises(keys.KeyFormatError) as error:
            KeyPair.from_pem(broken)
        assert bytes(range(32)).hex() not in str(error.value)


def test_a_key_hides_itself() -> None:
    """Neither repr nor pickle nor formatting gives the secret away."""
    pair = KeyPair.from_seed(b"\x5a" * 32)
    assert "5a5a" not in f"{pair!r} {pair}"
    with pytest.raises(TypeError):
        pickle.dumps(pair)


def test_only_strict_signatures_verify() -> None:
    """Malleated, cut, small-order and foreign signatures are refused."""
    pair = KeyPair.from_seed(b"\1" * 32)
    signature = pair.sign(b"message")
    assert verify(pair.public, b"message", signature)
    malleated = signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    small_order = b"\1" + bytes(31)
    for pubkey, message, bad in [
        (pair.public, b"other", signature),
        (pair.public, b"message", malleated),
        (pair.public, b"message", signature[:-1]),
        (pair.public, b"message", b""),
        (pair.public[:-1], b"message", signature),
        (small_order, b"message", small_order + bytes(32)),
        (bytes(32), b"message", bytes(64)),
    ]:
        assert not verify(pubkey, message, bad)
