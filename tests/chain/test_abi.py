"""The ABI's top and nested forms against the SDK's codec, and their inverses."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import abi, address
from millrace.chain.abi import AbiError, Reader

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "txdata.json").read_text())
SINGLE: list[dict[str, str]] = VECTORS["codec"]["single"]
MULTI: dict[str, dict[str, Any]] = {f"{v['type']} {v['value']}": v for v in VECTORS["codec"]["multi"]}
WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}


def both(kind: str, text: str) -> tuple[bytes, bytes]:
    """Our top and nested form of a vector's value."""
    if kind == "BigUint":
        return abi.top_uint(int(text)), abi.nested_biguint(int(text))
    if kind == "BigInt":
        return abi.top_int(int(text)), abi.nested_bigint(int(text))
    if kind in WIDTHS:
        return abi.top_uint(int(text)), abi.nested_uint(int(text), WIDTHS[kind])
    if kind == "bool":
        return abi.top_bool(text == "true"), abi.nested_bool(text == "true")
    if kind == "Address":
        return address.decode(text), address.decode(text)
    if kind in ("bytes", "TokenIdentifier"):
        raw = text.encode() if kind != "bytes" else bytes.fromhex(text.removeprefix("(empty)").removeprefix("0x"))
        return raw, abi.nested_bytes(raw)
    if match := re.fullmatch(r"Option<(\w+)>", kind):
        some = re.fullmatch(r"Some\((\d+)\)", text)
        item = both(match[1], some[1])[1] if some else None
        return abi.top_option(item), abi.nested_option(item)
    if match := re.fullmatch(r"List<(\w+)>", kind):
        items = [both(match[1], str(number))[1] for number in ast.literal_eval(text)]
        return b"".join(items), abi.nested_list(items)
    if kind == "tuple<u8,BigUint>":
        small, big = ast.literal_eval(text)
        fields = abi.nested_uint(small, 1) + abi.nested_biguint(big)
        return fields, fields
    variant, field = re.fullmatch(r"variant (\d), no fields|variant 1 with field u8=5", text), abi.nested_uint(5, 1)
    assert kind == "enum" and variant, kind
    if variant[1] is None:
        return abi.nested_uint(1, 1) + field, abi.nested_uint(1, 1) + field
    return abi.top_uint(int(variant[1])), abi.nested_uint(int(variant[1]), 1)


@pytest.mark.parametrize("vector", SINGLE, ids=lambda v: f"{v['type']} {v['value']}"[:40])
def test_published_values(vector: dict[str, str]) -> None:
    """Every published value has the published top and nested form."""
    top, nested = both(vector["type"], vector["value"])
    assert (top.hex(), nested.hex()) == (vector["top"], vector["nested"])


@pytest.mark.parametrize("vector", [v for v in SINGLE if v["type"] in (*WIDTHS, "BigUint", "BigInt", "bool")], ids=str)
def test_published_values_are_read(vector: dict[str, str]) -> None:
    """Published numbers and truth values are read from both forms, to the last byte."""
    kind, top, reader = vector["type"], bytes.fromhex(vector["top"]), Reader(bytes.fromhex(vector["nested"]))
    if kind == "bool":
        expected: int = vector["value"] == "true"
        read = (abi.decode_bool(top), reader.flag())
    else:
        expected = int(vector["value"])
        if kind == "BigInt":
            read = (abi.decode_int(top), reader.bigint())
        elif kind == "BigUint":
            read = (abi.decode_uint(top), reader.biguint())
        else:
            read = (abi.decode_uint(top, WIDTHS[kind]), reader.uint(WIDTHS[kind]))
    assert read == (expected, expected)
    reader.end()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("variadic<u8> [1, 0, 2]", [abi.top_uint(n) for n in (1, 0, 2)]),
        (
            'counted-variadic<TokenIdentifier> then counted-variadic<BigUint> ["A-123456"], [0, 7]',
            [abi.top_uint(1), b"A-123456", abi.top_uint(2), abi.top_uint(0), abi.top_uint(7)],
        ),
        ("counted-variadic<Address> []", [abi.top_uint(0)]),
        ("variadic<multi<u8,u16>> [(1, 0), (2, 256)]", [abi.top_uint(n) for n in (1, 0, 2, 256)]),
        ("optional<u8> absent", []),
        ("optional<u8> 5", [abi.top_uint(5)]),
    ],
)
def test_published_argument_lists(name: str, args: list[bytes]) -> None:
    """Multi-argument types are nothing but their top-encoded items in order, counts included."""
    assert [arg.hex() for arg in args] == MULTI[name]["args"]


def test_all_argument_lists_are_covered() -> None:
    """Every published multi-argument type is in the test above."""
    assert len(MULTI) == 6


STEPS = next(payload for payload in VECTORS["payloads"] if "steps_hex" in payload)


def test_a_real_list_of_structures() -> None:
    """The steps of a real mainnet payload are read to the published fields, and written to the same bytes."""
    reader = Reader(bytes.fromhex(STEPS["steps_hex"]))
    written, steps = b"", []
    while reader.remaining:
        token_in, token_out, amount = reader.blob(), reader.blob(), reader.biguint()
        pool, function = reader.take(32), reader.blob()
        arguments = reader.array(reader.blob)
        steps.append(
            {
                "token_in": token_in.decode(), "token_out": token_out.decode(), "amount_in": str(amount),
                "pool_address": address.encode(pool), "function_name": function.decode(),
                "arguments": [argument.hex() for argument in arguments],
            }
        )  # fmt: skip
        written += abi.nested_bytes(token_in) + abi.nested_bytes(token_out) + abi.nested_biguint(amount) + pool
        written += abi.nested_bytes(function) + abi.nested_list(abi.nested_bytes(item) for item in arguments)
    assert steps == STEPS["decoded"]["steps"]
    assert written.hex() == STEPS["steps_hex"]


def test_real_limits() -> None:
    """The limits of the same payload, a top-encoded list of (token, amount), survive reading and writing."""
    reader = Reader(bytes.fromhex(STEPS["limits_hex"]))
    limits = reader.items(lambda: (reader.blob(), reader.biguint()))
    written = b"".join(abi.nested_bytes(token) + abi.nested_biguint(amount) for token, amount in limits)
    assert written.hex() == STEPS["limits_hex"]
    assert [
        {"token": token.decode(), "amount": str(amount)} for token, amount in limits
    ] == STEPS["decoded"]["limits"]  # fmt: skip


@given(st.integers(-(2**300), 2**300))
def test_numbers_are_inverse(number: int) -> None:
    """Numbers of any size survive both forms, in the fewest bytes."""
    assert abi.decode_int(abi.top_int(number)) == number
    assert abi.Reader(abi.nested_bigint(number)).bigint() == number
    if number >= 0:
        assert abi.decode_uint(abi.top_uint(number)) == number
        assert Reader(abi.nested_biguint(number)).biguint() == number
        assert not abi.top_uint(number).startswith(b"\0")


@given(st.sampled_from([1, 2, 4, 8]), st.data())
def test_fixed_widths_are_inverse(size: int, data: st.DataObject) -> None:
    """Numbers of fixed width survive both forms at every width, signed and unsigned."""
    unsigned = data.draw(st.integers(0, (1 << 8 * size) - 1))
    signed = data.draw(st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1))
    assert Reader(abi.nested_uint(unsigned, size)).uint(size) == unsigned
    assert Reader(abi.nested_int(signed, size)).sint(size) == signed
    assert abi.decode_uint(abi.top_uint(unsigned), size) == unsigned
    assert abi.decode_int(abi.top_int(signed), size) == signed


@given(st.integers(0, 2**64), st.integers(0, 12))
def test_numbers_need_not_be_minimal(number: int, zeros: int) -> None:
    """Leading zero bytes change nothing, as contracts read them; nor do leading sign bytes."""
    assert abi.decode_uint(bytes(zeros) + abi.top_uint(number)) == number
    assert abi.decode_int(b"\xff" * zeros + abi.top_int(-number - 1)) == -number - 1


structures = st.tuples(
    st.lists(st.binary(max_size=20), max_size=5),
    st.none() | st.integers(0, 2**100),
    st.booleans(),
    st.binary(max_size=50),
    st.binary(min_size=32, max_size=32),
)


@given(structures)
def test_structures_are_inverse(value: tuple[list[bytes], int | None, bool, bytes, bytes]) -> None:
    """A structure of a list, an option, a truth value, bytes and an address survives."""
    items, maybe, flag, blob, raw = value
    written = (
        abi.nested_list(abi.nested_bytes(item) for item in items)
        + abi.nested_option(None if maybe is None else abi.nested_biguint(maybe))
        + abi.nested_bool(flag)
        + abi.nested_bytes(blob)
        + raw
    )
    reader = Reader(written)
    read = (reader.array(reader.blob), reader.option(reader.biguint), reader.flag(), reader.blob(), reader.take(32))
    assert read == value
    reader.end()
    with pytest.raises(AbiError):
        Reader(written[:-1]).take(len(written))


READS: list[Callable[[Reader], object]] = [
    lambda reader: reader.uint(8),
    lambda reader: reader.sint(4),
    Reader.blob,
    Reader.biguint,
    Reader.bigint,
    Reader.flag,
    lambda reader: reader.option(reader.blob),
    lambda reader: reader.array(reader.blob),
    lambda reader: reader.array(lambda: reader.take(32)),
    lambda reader: reader.items(reader.biguint),
]


@given(st.binary(max_size=100), st.lists(st.sampled_from(READS), max_size=8))
def test_any_bytes_are_read_or_refused(data: bytes, reads: list[Callable[[Reader], object]]) -> None:
    """Arbitrary bytes read in any order give values or AbiError, and never more bytes than there are."""
    reader = Reader(data)
    try:
        for read in reads:
            read(reader)
            assert 0 <= reader.remaining <= len(data)
        reader.end()
    except AbiError:
        return
    assert reader.remaining == 0


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: abi.top_uint(-1),
        lambda: abi.nested_uint(256, 1),
        lambda: abi.nested_uint(-1, 1),
        lambda: abi.nested_int(128, 1),
        lambda: abi.nested_int(-129, 1),
        lambda: abi.nested_biguint(-1),
        lambda: abi.decode_uint(b"\1\0", 1),
        lambda: abi.decode_int(b"\x00\x80", 1),
        lambda: abi.decode_bool(b"\2"),
        lambda: Reader(b"\2").flag(),
        lambda: Reader(b"\2").option(lambda: None),
        lambda: Reader(b"\0\0\0\2\1").blob(),
        lambda: Reader(b"\0").end(),
        lambda: Reader(b"\0").items(lambda: None),
    ],
)
def test_impossible_values(attempt: Callable[[], object]) -> None:
    """Numbers beyond their width, other truth values, missing and surplus bytes are refused."""
    with pytest.raises(AbiError):
        attempt()


def test_a_list_cannot_lie_about_its_length() -> None:
    """A list that claims more items than there are bytes is refused at once, not after four billion tries."""
    with pytest.raises(AbiError, match="a list of"):
        Reader(b"\xff\xff\xff\xff\0").array(lambda: None)


def test_errors_are_short_whatever_the_input() -> None:
    """The text of an error shows a part of endless bytes only, and no endless number."""
    for attempt in (
        lambda: abi.decode_uint(b"\xff" * 100_000, 8),
        lambda: abi.decode_int(b"\x7f" * 100_000, 8),
        lambda: abi.decode_bool(b"\xff" * 100_000),
        lambda: abi.nested_uint(1 << 100_000, 8),
        lambda: abi.nested_int(1 << 100_000, 8),
    ):
        with pytest.raises(AbiError) as error:
            attempt()
        assert len(str(error.value)) < 200
