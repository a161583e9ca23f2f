"""Contract calls and token transfers against real payloads and SDK-built calls."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import abi, address, call
from millrace.chain.call import Call, CallError, TokenPayment
from millrace.chain.transaction import Transaction

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "txdata.json").read_text())
ALICE = address.decode("erd1qyu5wthldzr8wx5c9ucg8kjagg0jfs53s8nr3zpz3hypefsdd8ssycr6th")
BOB = address.decode("erd1spyavw0956vq68xj8y4tenjpq2wd5a9p2c6j8gsz7ztyrnpxrruqzu66jx")


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


@pytest.mark.parametrize(
    "data",
    [
        b"ESDTTransfer@41@" + b"ff" * 101,
        b"ESDTTransfer@41@" + b"00" * 101,
        b"ESDTNFTTransfer@41@" + b"ff" * 9 + b"@01@" + b"00" * 32,
        b"ESDTNFTTransfer@41@01@01@" + b"00" * 31,
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@" + b"ff" * 5000 + b"@41@@01",
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@01@41@" + b"ff" * 9 + b"@01",
        b"MultiESDTNFTTransfer@" + b"00" * 32 + b"@01@41@@" + b"ff" * 5000,
        b"ESDTTransfer@41@01@ff",
    ],
)
def test_endless_numbers_are_refused(data: bytes) -> None:
    """Amounts of more than 100 bytes, nonces and counts beyond 64 bits are refused, in a short text."""
    with pytest.raises(CallError) as error:
        call.parse_transfer(ALICE, ALICE, 0, data)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("name", [b"EGLD", b"EGLD-000000"])
def test_the_native_coin_is_no_token(name: bytes) -> None:
    """A token transfer cannot pass for a payment of the native coin, and our own builders refuse to make one."""
    for data in (
        call.encode("ESDTTransfer", name, b"\1"),
        call.encode("ESDTNFTTransfer", name, b"\1", b"\1", BOB),
    ):
        with pytest.raises(CallError, match="no token"):
            call.parse_transfer(ALICE, ALICE, 0, data)
    with pytest.raises(CallError, match="no token"):
        call.esdt_transfer(name.decode(), 1)


def test_the_native_coin_in_multi_transfers() -> None:
    """Among several tokens the native coin travels as EGLD-000000, without a nonce; plain EGLD is refused there."""
    payments = [TokenPayment("EGLD", 0, 5), TokenPayment("WEGLD-bd4d79", 0, 7)]
    data = call.multi_transfer(BOB, payments, "swap", b"x")
    assert b"EGLD-000000".hex().encode() in data
    parsed = call.parse_transfer(ALICE, ALICE, 0, data)
    assert parsed == (BOB, tuple(payments), "swap", (b"x",))
    for token, nonce in ((b"EGLD", b""), (b"EGLD-000000", b"\1")):
        with pytest.raises(CallError):
            call.parse_transfer(ALICE, ALICE, 0, call.encode("MultiESDTNFTTransfer", BOB, b"\1", token, nonce, b"\1"))


def test_a_multi_transfer_at_its_receiver() -> None:
    """At the real receiver's shard the same call comes without the receiver, and gives the same payments."""
    payments = (TokenPayment("WEGLD-bd4d79", 0, 7), TokenPayment("NFT-123456", 3, 1))
    there = call.multi_transfer(BOB, list(payments), "f")
    function, _, *rest = there.split(b"@")
    here = b"@".join([function, *rest])
    assert call.parse_transfer(ALICE, BOB, 0, here) == call.parse_transfer(ALICE, ALICE, 0, there)


def test_one_token_with_a_nonce() -> None:
    """A transfer of one token with a nonce names its receiver; the transaction goes to its own sender."""
    data = call.encode("ESDTNFTTransfer", b"NFT-123456", b"\2", b"\7", BOB, b"f", b"arg")
    assert call.parse_transfer(ALICE, ALICE, 0, data) == (BOB, (TokenPayment("NFT-123456", 2, 7),), "f", (b"arg",))


def test_a_transfer_with_a_nonce_is_sent_to_oneself() -> None:
    """Sent to another account, the same data is an ordinary call: nodes move no token for it."""
    data = call.encode("ESDTNFTTransfer", b"NFT-123456", b"\2", b"\7", BOB)
    parsed = call.parse_transfer(ALICE, BOB, 0, data)
    assert (parsed.receiver, parsed.payments, parsed.function) == (BOB, (), "ESDTNFTTransfer")


@pytest.mark.parametrize(
    ("value", "data", "function", "args"),
    [
        (5, b"", "", ()),
        (5, b"swap@0a@", "swap", (b"\n", b"")),
        (0, b"hello", "hello", ()),
        (5, b"not hex@zz", "", ()),
        (5, b"odd@abc", "", ()),
        (5, b"\xff@00", "", ()),
    ],
)
def test_payments_in_the_native_coin(value: int, data: bytes, function: str, args: tuple[bytes, ...]) -> None:
    """Whatever is no token transfer pays the value to the receiver; data that is no call is a plain transfer."""
    tx = Transaction(
        nonce=0, value=value, receiver=BOB, sender=ALICE, gas_price=1, gas_limit=1, chain_id="1", data=data
    )
    payments = (TokenPayment("EGLD", 0, value),) if value else ()
    assert call.payments_of(tx) == (BOB, payments, function, args)


TOKEN, NFT = b"USDC-c76f1f", b"NFT-123456"


@pytest.mark.parametrize(
    ("receiver", "value", "data", "words"),
    [
        (BOB, 5, call.esdt_transfer("USDC-c76f1f", 7), "tx value is not allowed"),
        (ALICE, 5, call.multi_transfer(BOB, [TokenPayment("USDC-c76f1f", 0, 7)]), "tx value is not allowed"),
        (ALICE, 5, call.encode("ESDTNFTTransfer", NFT, b"\2", b"\7", BOB), "tx value is not allowed"),
        (BOB, 0, call.esdt_transfer("USDC-c76f1f", 0), "must be positive"),
        (
            ALICE,
            0,
            call.encode("MultiESDTNFTTransfer", BOB, b"\2", TOKEN, b"", b"\1", NFT, b"\2", b""),
            "must be positive",
        ),
        (ALICE, 0, call.encode("ESDTNFTTransfer", NFT, b"\2", b"\7", ALICE), "can not transfer to self"),
        (ALICE, 0, call.multi_transfer(ALICE, [TokenPayment("USDC-c76f1f", 0, 7)]), "can not transfer to self"),
        (ALICE, 0, call.encode("ESDTNFTTransfer", TOKEN, b"", b"\7", BOB), "does not have metadata"),
        (BOB, 0, call.encode("ESDTNFTTransfer", NFT, b"\2", b"\7", BOB), "goes to the sender itself"),
        (BOB, 0, call.multi_transfer(BOB, [TokenPayment("USDC-c76f1f", 0, 7)]), "goes to the sender itself"),
    ],
)
def test_transfers_that_every_node_fails_are_told(receiver: bytes, value: int, data: bytes, words: str) -> None:
    """What the chain's own function refuses whatever the sender has is no transfer, and the reason says why."""
    tx = Transaction(
        nonce=0, value=value, receiver=receiver, sender=ALICE, gas_price=1, gas_limit=1, chain_id="1", data=data
    )
    with pytest.raises(CallError, match=words):
        call.check_transfer(tx)


def test_one_token_may_go_to_oneself() -> None:
    """Of the three transfers nodes carry out this one to the sender itself."""
    tx = Transaction(
        nonce=0, value=0, receiver=ALICE, sender=ALICE, gas_price=1, gas_limit=1, chain_id="1",
        data=call.esdt_transfer("USDC-c76f1f", 7),
    )  # fmt: skip
    call.check_transfer(tx)
    assert call.payments_of(tx).payments == (TokenPayment("USDC-c76f1f", 0, 7),)


def test_value_and_token_together() -> None:
    """Where a contract pays both in one result, the native value comes first among the payments."""
    data = call.esdt_transfer("WEGLD-bd4d79", 7)
    parsed = call.parse_transfer(ALICE, BOB, 5, data)
    assert parsed.payments == (TokenPayment("EGLD", 0, 5), TokenPayment("WEGLD-bd4d79", 0, 7))


@pytest.mark.parametrize("text", [b"f@ABCD", b"f@abCD"])
def test_hex_in_capitals_is_read_and_written_small(text: bytes) -> None:
    """Capital hex digits are read as nodes read them; we write small ones."""
    assert call.encode(*_flat(call.parse(text))) == b"f@abcd"


@pytest.mark.parametrize(
    "text", [b"f@a", b"f@0", b"f@0x00", b"f@ 00", b"f@00 ", b"f@0g", b"f@\xc3\xa9\xc3\xa9", b"f@00\n"]
)
def test_half_bytes_and_other_characters_are_refused(text: bytes) -> None:
    """An argument is whole bytes in hex digits and nothing else."""
    with pytest.raises(CallError):
        call.parse(text)


tokens = st.from_regex(r"[A-Z0-9]{3,10}-[0-9a-f]{6}", fullmatch=True).filter(lambda token: token != "EGLD-000000")
many = st.lists(
    st.builds(TokenPayment, tokens, st.integers(0, 2**64 - 1), st.integers(0, 2**256))
    | st.builds(TokenPayment, st.just("EGLD"), st.just(0), st.integers(0, 2**256)),
    min_size=1,
    max_size=6,
)


@given(many, st.none() | names, st.lists(st.binary(max_size=20), max_size=4))
def test_multi_transfers_are_inverse(payments: list[TokenPayment], function: str | None, args: list[bytes]) -> None:
    """What a multi-transfer is built from is what it parses to."""
    if function is None:
        args = []
    data = call.multi_transfer(BOB, payments, function, *args)
    assert call.parse_transfer(ALICE, ALICE, 0, data) == (BOB, tuple(payments), function or "", tuple(args))


@given(tokens, st.integers(0, 2**256), st.none() | names, st.lists(st.binary(max_size=20), max_size=4))
def test_single_transfers_are_inverse(token: str, amount: int, function: str | None, args: list[bytes]) -> None:
    """What a single transfer is built from is what it parses to."""
    if function is None:
        args = []
    data = call.esdt_transfer(token, amount, function, *args)
    assert call.parse_transfer(ALICE, BOB, 0, data) == (
        BOB, (TokenPayment(token, 0, amount),), function or "", tuple(args)
    )  # fmt: skip


def _flat(parsed: Call) -> tuple[Any, ...]:
    return (parsed.function, *parsed.args)
