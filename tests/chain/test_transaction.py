"""Transactions against published values, the reference SDK and their own inverse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import address
from millrace.chain.keys import KeyPair, verify
from millrace.chain.transaction import (
    Transaction,
    TransactionError,
    TransactionJson,
    chain_hash,
    client_hash,
    from_json,
    from_proto,
    signing_bytes,
    signing_message,
    to_json,
    to_proto,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "transactions.json").read_text())
IDS = [vector["id"] for vector in VECTORS["vectors"]]


def transaction_of(vector: dict[str, Any]) -> Transaction:
    return from_json(msgspec.convert(vector["transaction"], TransactionJson))


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=IDS)
def test_published_values(vector: dict[str, Any]) -> None:
    """Signing bytes, message, protobuf form and both hashes are those of the SDKs and of the node's library."""
    tx, values = transaction_of(vector), vector["values"]
    assert signing_bytes(tx).decode() == values["signingJson"]
    if "messageToSignHex" in values:
        assert signing_message(tx).hex() == values["messageToSignHex"]
    if "protobufHex" in values:
        assert to_proto(tx).hex() == values["protobufHex"]
        assert chain_hash(tx).hex() == values["hash"]
        assert from_proto(to_proto(tx)) == tx
    if "clientSideHashWithoutRelayerSignature" in values:
        assert client_hash(tx).hex() == values["clientSideHashWithoutRelayerSignature"]
    assert to_json(tx) == msgspec.convert(vector["transaction"], TransactionJson)


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=IDS)
def test_published_signatures(vector: dict[str, Any]) -> None:
    """Each signature is the one our key makes, and verifies exactly where the vector says so."""
    tx = transaction_of(vector)
    if "senderSignatureVerifies" in vector["values"]:
        expected = vector["values"]["senderSignatureVerifies"]
        assert verify(tx.sender, signing_message(tx), tx.signature) is expected
        wallet = VECTORS["wallets"].get(vector["signerWallet"] or "")
        if wallet and expected:
            assert (
                KeyPair.from_seed(bytes.fromhex(wallet["secretKeySeedHex"])).sign(signing_message(tx)) == tx.signature
            )
    if tx.relayer_signature:
        assert verify(tx.relayer, signing_message(tx), tx.relayer_signature)


def test_signed_before_the_relayer_was_set() -> None:
    """A signature made before `relayer` was set verifies only against the bytes without it."""
    tx = transaction_of(VECTORS["vectors"][IDS.index("own-negative-user-signed-before-relayer")])
    assert not verify(tx.sender, signing_message(tx), tx.signature)
    assert verify(tx.sender, signing_message(msgspec.structs.replace(tx, relayer=b"")), tx.signature)


addresses = st.binary(min_size=32, max_size=32)
signatures = st.binary(min_size=64, max_size=64)
transactions = st.builds(
    Transaction,
    nonce=st.integers(0, 2**64 - 1),
    value=st.integers(0, 10**60),
    receiver=addresses,
    sender=addresses,
    gas_price=st.integers(0, 2**64 - 1),
    gas_limit=st.integers(0, 2**64 - 1),
    chain_id=st.sampled_from(["1", "D", "T", "local"]),
    data=st.binary(max_size=100),
    version=st.just(2),
    options=st.integers(0, 3),
    sender_username=st.binary(max_size=32),
    receiver_username=st.binary(max_size=32),
    guardian=st.just(b"") | addresses,
    relayer=st.just(b"") | addresses,
    signature=st.just(b"") | signatures,
    guardian_signature=st.just(b"") | signatures,
    relayer_signature=st.just(b"") | signatures,
)


@given(transactions)
def test_forms_are_inverse(tx: Transaction) -> None:
    """The protobuf form and the JSON object, each read back, give the same transaction."""
    assert from_proto(to_proto(tx)) == tx
    assert from_json(to_json(tx)) == tx
    assert from_json(msgspec.json.decode(msgspec.json.encode(to_json(tx)), type=TransactionJson)) == tx


@given(st.binary(max_size=200))
def test_any_bytes_are_a_transaction_or_an_error(data: bytes) -> None:
    """Arbitrary bytes either are the canonical form of a transaction or raise TransactionError, nothing else."""
    try:
        tx = from_proto(data)
    except TransactionError:
        return
    assert to_proto(tx) == data


@given(transactions, st.binary(min_size=1, max_size=8))
def test_other_forms_of_the_same_fields_are_refused(tx: Transaction, tail: bytes) -> None:
    """Bytes behind a transaction, and fields in another order, are not the canonical form."""
    with pytest.raises(TransactionError):
        from_proto(to_proto(tx) + tail)


GOOD = to_json(
    Transaction(
        nonce=7, value=10**18, receiver=bytes(32), sender=b"\1" * 32, gas_price=10**9, gas_limit=50_000, chain_id="1",
        data=b"hello", signature=bytes(64),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *(("value", bad) for bad in ["", "01", "-1", "+1", "1.0", "1e3", " 1", "٣", "1" * 81, "0x1", "1\n"]),
        *(("chain_id", bad) for bad in ["", "é", "x" * 65, 'a"', "a<", "1\n"]),
        *(("data", bad) for bad in ["a", "YQ", "YQ==\n", "YQ =", "YR==", "-_==", "YQ==YQ=="]),
        *(("signature", bad) for bad in ["00", "0" * 127, "A" * 128, "g" * 128, "0" * 129, "0" * 128 + "\n"]),
        ("sender", address.encode(b"\1" * 32).upper()),
        ("sender", ""),
        ("receiver", address.encode(b"\1" * 32)[:-1] + "q"),
        ("guardian", "erd1"),
        ("relayer", "x"),
        *(("nonce", bad) for bad in [-1, 2**64]),
        *(("gas_price", bad) for bad in [-1, 2**64]),
        *(("gas_limit", bad) for bad in [-1, 2**64]),
        *(("version", bad) for bad in [-1, 0, 2**32]),
        *(("options", bad) for bad in [-1, 2**32]),
        ("sender_username", "YQ" * 30),
    ],
)
def test_impossible_fields_are_named(field: str, bad: Any) -> None:
    """Every impossible text or number is refused, with the name of its field."""
    wire_name = {"chain_id": "chainID"}.get(field) or GOOD.__struct_encode_fields__[GOOD.__struct_fields__.index(field)]
    with pytest.raises(TransactionError) as error:
        from_json(msgspec.structs.replace(GOOD, **{field: bad}))
    assert error.value.field == wire_name


def test_options_need_version_two() -> None:
    """Version 1 is accepted without options and refused with them."""
    assert from_json(msgspec.structs.replace(GOOD, version=1)).version == 1
    with pytest.raises(TransactionError, match="invalid transaction version"):
        from_json(msgspec.structs.replace(GOOD, version=1, options=1))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"nonce":7', b'"nonce":7.0'),
        (b'"nonce":7', b'"nonce":true'),
        (b'"nonce":7', b'"nonce":"7"'),
        (b'"value":"1000000000000000000"', b'"value":1000000000000000000'),
    ],
)
def test_json_types_are_strict(good: bytes, bad: bytes) -> None:
    """A float, a truth value or a text for a number is refused, and so is a number for the value."""
    raw = msgspec.json.encode(GOOD)
    assert good in raw
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw.replace(good, bad), type=TransactionJson)
