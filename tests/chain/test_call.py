"""Contract calls and the ABI's number forms against real payloads and the SDK's codec."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import abi, address, call
from millrace.chain.call import CallError, TokenPayment

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "txdata.json").read_text())
ALICE = address.decode("erd1qyu5wthldzr8wx5c9ucg8kjagg0jfs53s8nr3zpz3hypefsdd8ssycr6th")

TOP: dict[str, Callable[[Any], bytes]] = {
    "BigUint": lambda v: abi.top_uint(int(v)),
    "BigInt": lambda v: abi.top_int(int(v)),
    "bool": lambda v: abi.top_bool(v in (True, "true", "True")),
    **{f"u{bits}": (lambda v: abi.top_uint(int(v))) for bits in (8, 16, 32, 64)},
}
NESTED: dict[str, Callable[[Any], bytes]] = {
    "BigUint": lambda v: abi.nested_biguint(int(v)),
    "BigInt": lambda v: abi.nested_bigint(int(v)),
    "bool": lambda v: abi.nested_bool(v in (True, "true", "True")),
    "u8": lambda v: abi.nested_uint(int(v), 1),
    "u16": lambda v: abi.nested_uint(int(v), 2),
    "u32": lambda v: abi.nested_uint(int(v), 4),
    "u64": lambda v: abi.nested_uint(int(v), 8),
}


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS["codec"]["single"] if v["type"] in TOP], ids=lambda v: f"{v['type']} {v['value']}"
)
def test_published_numbers(vector: dict[str, Any]) -> None:
    """Numbers and truth values have the published top and nested forms, and read back."""
    kind, value = vector["type"], vector["value"]
    top, nested = TOP[kind](value), NESTED[kind](value)
    assert (top.hex(), nested.hex()) == (vector["top"], vector["nested"])
    if kind == "BigInt":
        assert abi.decode_int(top) == int(value) == abi.Reader(nested).bigint()
    elif kind == "BigUint":
        assert abi.decode_uint(top) == int(value) == abi.Reader(nested).biguint()


@pytest.mark.parametrize("kind", ["bytes", "TokenIdentifier", "Address"])
def test_published_byte_strings(kind: str) -> None:
    """Byte strings carry their length when nested; addresses do not."""
    vectors = [v for v in VECTORS["codec"]["single"] if v["type"] == kind]
    assert vectors
    for vector in vectors:
        raw = bytes.fromhex(vector["top"])
        assert vector["nested"] == (raw if kind == "Address" else abi.nested_bytes(raw)).hex()


@pytest.mark.parametrize("vector", VECTORS["calls"], ids=lambda v: v["what"][:40])
def test_published_calls(vector: dict[str, Any]) -> None:
    """Calls built by the SDK parse and encode to the same text."""
    data = vector["data"].encode()
    assert base64.b64decode(vector["data_base64"]) == data
    parsed = call.parse(data)
    assert call.encode(parsed.function, *parsed.args) == data


def test_published_transfers() -> None:
    """The SDK-built transfers are what our builders build, and parse to their payments."""
    swap, _, add, remove, wrap = VECTORS["calls"]
    pair = address.decode(swap["receiver"])
    assert swap["data"].encode() == call.esdt_transfer(
        "WEGLD-bd4d79", 10**18, "swapTokensFixedInput", b"USDC-c76f1f", abi.top_uint(40 * 10**6)
    )
    parsed = call.parse_transfer(ALICE, pair, 0, swap["data"].encode())
    assert parsed == (
        pair, (TokenPayment("WEGLD-bd4d79", 0, 10**18),), "swapTokensFixedInput", (b"USDC-c76f1f", b"\x02\x62\x5a\x00")
    )  # fmt: skip
    parsed = call.parse_transfer(ALICE, ALICE, 0, add["data"].encode())
    assert (parsed.receiver, parsed.function) == (pair, "addLiquidity")
    assert [payment.token for payment in parsed.payments] == ["WEGLD-bd4d79", "USDC-c76f1f"]
    assert add["data"].encode() == call.multi_transfer(pair, list(parsed.payments), parsed.function, *parsed.args)
    assert call.parse_transfer(ALICE, pair, 0, remove["data"].encode()).function == "removeLiquidity"
    parsed = call.parse_transfer(ALICE, pair, int(wrap["value"]), wrap["data"].encode())
    assert (parsed.payments, parsed.function) == ((TokenPayment("EGLD", 0, 10**18),), "wrapEgld")


@pytest.mark.parametrize("vector", [v for v in VECTORS["payloads"] if "tx_data_text" in v], ids=lambda v: v["id"])
def test_real_payloads(vector: dict[str, Any]) -> None:
    """Real mainnet call data gives the published transfers, function and arguments."""
    decoded = vector["decoded"]
    parsed = call.parse_transfer(ALICE, bytes(32), 0, vector["tx_data_text"].encode())
    assert parsed.function == decoded["function"]
    assert [(p.token, str(p.amount)) for p in parsed.payments] == [
        (transfer["token"], transfer["amount"]) for transfer in decoded["transfers"]
    ]


names = st.text("abcdefghijklmnopqrstuvwxyzABC_0123", min_size=1, max_size=20)


@given(names, st.lists(st.binary(max_size=40), max_size=6))
def test_calls_are_inverse(function: str, args: list[bytes]) -> None:
    """Any function and arguments survive the way to text and back."""
    assert call.parse(call.encode(function, *args)) == (function, tuple(args))


@given(st.integers(-(2**300), 2**300))
def test_numbers_are_inverse(number: int) -> None:
    """Numbers of any size survive both forms, in the fewest bytes."""
    assert abi.decode_int(abi.top_int(number)) == number
    assert abi.Reader(abi.nested_bigint(number)).bigint() == number
    if number >= 0:
        assert abi.decode_uint(abi.top_uint(number)) == number
        assert not abi.top_uint(number).startswith(b"\0")


@given(st.binary(max_size=200))
def test_any_data_is_parsed_or_refused(data: bytes) -> None:
    """Arbitrary transaction data gives a parsed call or CallError, nothing else."""
    for receiver in (ALICE, bytes(32)):
        try:
            call.parse_transfer(ALICE, receiver, 0, data)
        except CallError:
            continue


@pytest.mark.parametrize(
    "data",
    [
        b"ESDTTransfer",
        b"ESDTTransfer@41",
        b"MultiESDTNFTTransfer",
        b"MultiESDTNFTTransfer@" + b"00" * 31 + b"@01@41@@01",
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@02@41@@01",
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@" + b"ff" * 40 + b"@41@@01",
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@00",
        b"ESDTNFTTransfer@41@01@01",
        b"ESDTTransfer@ff@01",
    ],
)
def test_broken_transfers_are_refused(data: bytes) -> None:
    """A token transfer without its arguments, or with impossible ones, is refused rather than half understood."""
    with pytest.raises(CallError):
        call.parse_transfer(ALICE, ALICE, 0, data)


def test_reader_bounds() -> None:
    """A nested list that claims more items than there are bytes is refused at once; leftovers are noticed."""
    with pytest.raises(abi.AbiError, match="a list of"):
        abi.Reader(b"\xff\xff\xff\xff\0").array(lambda: None)
    reader = abi.Reader(abi.nested_list([abi.nested_uint(1, 1), abi.nested_uint(2, 1)]) + b"\0")
    assert reader.array(lambda: reader.uint(1)) == [1, 2]
    assert reader.option(lambda: reader.uint(1)) is None
    reader.end()
    with pytest.raises(abi.AbiError):
        reader.take(1)
    items = abi.Reader(b"\1\2\3")
    assert items.items(lambda: items.uint(1)) == [1, 2, 3]
    for bad in (lambda: abi.nested_uint(256, 1), lambda: abi.nested_int(128, 1), lambda: abi.decode_uint(b"\1\0", 1)):
        with pytest.raises(abi.AbiError):
            bad()
