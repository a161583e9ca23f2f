"""The protobuf form of big integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import bigint

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors" / "outport.json").read_text())[
    "bigInt"
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: str(v["value"]))
def test_published_big_integers(vector: dict[str, str]) -> None:
    """The sign-and-magnitude form is the one the Go marshaller writes."""
    number = None if vector["value"] == "nil" else int(vector["value"])
    field = bytes.fromhex(vector["transactionFieldHex"])
    assert field[0] == 0x12
    assert field[1] == len(field) - 2
    assert bigint.encode(number) == field[2:]
    assert bigint.decode(field[2:]) == number


@given(st.none() | st.integers(-(2**300), 2**300))
def test_forms_are_inverse(number: int | None) -> None:
    """Any number and the absent one survive the way to bytes and back."""
    assert bigint.decode(bigint.encode(number)) == number


@given(st.integers(-(2**300), 2**300).filter(bool))
def test_no_leading_zeros(number: int) -> None:
    """The magnitude is written in the fewest bytes, behind a sign byte of 0 or 1."""
    sign, *magnitude = bigint.encode(number)
    assert sign == (number < 0)
    assert magnitude[0] != 0


@given(st.binary(max_size=40))
def test_any_bytes_are_a_number_or_an_error(data: bytes) -> None:
    """Arbitrary bytes give a number, or ValueError and nothing else."""
    try:
        number = bigint.decode(data)
    except ValueError:
        assert not data or data[0] > 1
        return
    assert bigint.decode(bigint.encode(number)) == number


@pytest.mark.parametrize("data", [b"", b"\2\1", b"\xff"])
def test_impossible_big_integers(data: bytes) -> None:
    """No bytes, or an unknown sign, are no number."""
    with pytest.raises(ValueError, match="big integer"):
        bigint.decode(data)
