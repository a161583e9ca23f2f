"""Transactions against published values, the reference SDK and their own inverse."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import address, bigint
from millrace.chain.keys import KeyPair, verify
from millrace.chain.proto import outport_pb2
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
def test_bytes_behind_a_transaction_are_refused(tx: Transaction, tail: bytes) -> None:
    """Whatever follows a transaction, known fields included, makes it another one: refused."""
    with pytest.raises(TransactionError):
        from_proto(to_proto(tx) + tail)


@given(transactions)
def test_our_bytes_are_the_libraries(tx: Transaction) -> None:
    """The hand-written protobuf form is the one the protobuf library writes."""
    message = outport_pb2.Transaction(
        nonce=tx.nonce, value=bigint.encode(tx.value), receiver=tx.receiver, rcvUserName=tx.receiver_username,
        sender=tx.sender, sndUserName=tx.sender_username, gasPrice=tx.gas_price, gasLimit=tx.gas_limit, data=tx.data,
        chainID=tx.chain_id.encode(), version=tx.version, signature=tx.signature, options=tx.options,
        guardian=tx.guardian, guardianSignature=tx.guardian_signature, relayer=tx.relayer,
        relayerSignature=tx.relayer_signature,
    )  # fmt: skip
    assert to_proto(tx) == message.SerializeToString()


@given(transactions)
def test_signing_bytes_are_compact_json(tx: Transaction) -> None:
    """The signing bytes are what a JSON encoder makes of the fields in order, without the signatures."""
    fields = msgspec.to_builtins(to_json(tx))
    order = [
        "nonce",
        "value",
        "receiver",
        "sender",
        "senderUsername",
        "receiverUsername",
        "gasPrice",
        "gasLimit",
        "data",
        "chainID",
        "version",
        "options",
        "guardian",
        "relayer",
    ]
    expected = json.dumps({name: fields[name] for name in order if name in fields}, separators=(",", ":"))
    assert signing_bytes(tx) == expected.encode()


@given(transactions, signatures)
def test_signatures_are_not_signed(tx: Transaction, signature: bytes) -> None:
    """The signed message depends on no signature, and on the relayer and guardian addresses."""
    signed = msgspec.structs.replace(tx, signature=signature, guardian_signature=signature, relayer_signature=signature)
    assert signing_message(signed) == signing_message(tx)
    other = bytes(31) + b"\1"
    for field in ("relayer", "guardian"):
        changed = msgspec.structs.replace(tx, **{field: b"" if getattr(tx, field) == other else other})
        assert signing_message(changed) != signing_message(tx)


@given(transactions)
def test_the_client_hash_leaves_out_the_relayers_signature(tx: Transaction) -> None:
    """The client hash is the chain hash of the transaction before a relayer co-signed, and the same without one."""
    before = msgspec.structs.replace(tx, relayer_signature=b"")
    assert client_hash(tx) == client_hash(before) == chain_hash(before)
    assert (client_hash(tx) == chain_hash(tx)) is (not tx.relayer_signature)


GOOD = to_json(
    Transaction(
        nonce=7, value=10**18, receiver=bytes(32), sender=b"\1" * 32, gas_price=10**9, gas_limit=50_000, chain_id="1",
        data=b"hello", signature=bytes(64),
    )
)  # fmt: skip


def _raw(**changes: Any) -> bytes:
    """A canonical transaction's message with some fields replaced by raw values."""
    message = outport_pb2.Transaction.FromString(to_proto(from_json(GOOD)))
    for name, value in changes.items():
        setattr(message, name, value)
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("value", {"value": b""}),
        ("value", {"value": b"\0"}),
        ("value", {"value": b"\1\1"}),
        ("value", {"value": b"\2\1"}),
        ("value", {"value": b"\0" + b"\xff" * 34}),
        ("value", {"value": b"\0" + b"\xff" * 10_000}),
        ("transaction", {"value": b"\0\0\1"}),
        ("transaction", {"value": b"\1\0"}),
        ("receiver", {"receiver": b""}),
        ("receiver", {"receiver": bytes(31)}),
        ("sender", {"sender": bytes(33)}),
        ("guardian", {"guardian": b"x"}),
        ("relayer", {"relayer": bytes(31)}),
        ("signature", {"signature": bytes(63)}),
        ("guardianSignature", {"guardianSignature": bytes(65)}),
        ("relayerSignature", {"relayerSignature": b"x"}),
        ("senderUsername", {"sndUserName": bytes(33)}),
        ("receiverUsername", {"rcvUserName": bytes(33)}),
        ("chainID", {"chainID": b""}),
        ("chainID", {"chainID": b'1","version":2,"x":"'}),
        ("chainID", {"chainID": "é".encode()}),
        ("chainID", {"chainID": b"\xff"}),
        ("version", {"version": 0}),
        ("version", {"version": 1, "options": 1}),
    ],
    ids=lambda part: str(part)[:40],
)
def test_impossible_protobuf_fields_are_named(field: str, changes: dict[str, Any]) -> None:
    """Every impossible field of a protobuf transaction is refused by its name, in a short text."""
    assert from_proto(_raw()) == from_json(GOOD)
    with pytest.raises(TransactionError) as error:
        from_proto(_raw(**changes))
    assert error.value.field == field
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "other",
    [
        lambda raw: raw[2:] + raw[:2],
        lambda raw: raw[:2] + raw,
        lambda raw: b"\x08\x87\x00" + raw[2:],
        lambda raw: raw + b"\x68\x00",
        lambda raw: raw + b"\x4a\x00",
        lambda raw: raw + b"\xa0\x06\x01",
        lambda raw: raw[:-1],
    ],
    ids=["order", "twice", "long number", "zero options", "empty data", "unknown field", "cut"],
)
def test_other_forms_of_the_same_fields_are_refused(other: Callable[[bytes], bytes]) -> None:
    """Fields in another order, given twice, padded, empty or unknown are not the canonical form."""
    raw = to_proto(from_json(GOOD))
    assert raw.startswith(b"\x08\x07")
    with pytest.raises(TransactionError):
        from_proto(other(raw))


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *(("value", bad) for bad in ["", "01", "-1", "+1", "1.0", "1e3", " 1", "٣", "1" * 81, "0x1", "1\n"]),
        *(("chain_id", bad) for bad in ["", "é", "x" * 65, 'a"', "a<", "1\n"]),
        *(
            ("data", bad)
            for bad in ["a", "YQ", "YQ==\n", "YQ =", "YR==", "-_==", "YQ==YQ==", "é", "=", "YQ===", "\ud800"]
        ),
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


@pytest.mark.parametrize("bad", [7.0, True, "7", None])
@pytest.mark.parametrize("field", ["nonce", "gas_price", "gas_limit", "version", "options"])
def test_numbers_are_integers(field: str, bad: Any) -> None:
    """A float, a truth value or a text that reached a numeric field by another way than JSON is refused by name."""
    with pytest.raises(TransactionError) as error:
        from_json(msgspec.structs.replace(GOOD, **{field: bad}))
    assert error.value.field == {"gas_price": "gasPrice", "gas_limit": "gasLimit"}.get(field, field)


@pytest.mark.parametrize(("field", "limit"), [("data", 1_048_576), ("sender_username", 32), ("receiver_username", 32)])
def test_sizes_at_their_limits(field: str, limit: int) -> None:
    """Data of a mebibyte and usernames of 32 bytes are taken, one byte more is not."""
    good, bad = (base64.b64encode(bytes(size)).decode() for size in (limit, limit + 1))
    assert getattr(from_json(msgspec.structs.replace(GOOD, **{field: good})), field) == bytes(limit)
    with pytest.raises(TransactionError, match=str(limit)):
        from_json(msgspec.structs.replace(GOOD, **{field: bad}))


@pytest.mark.parametrize(("bits", "guarded", "hashed"), [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 0, 0)])
def test_option_bits(bits: int, guarded: bool, hashed: bool) -> None:
    """Bit 0 asks for hash signing, bit 1 for a guardian; other bits mean nothing but are signed and hashed."""
    tx, plain = from_json(msgspec.structs.replace(GOOD, options=bits)), from_json(GOOD)
    assert (tx.is_guarded, tx.is_hash_signed) == (guarded, hashed)
    assert (signing_message(tx) == signing_bytes(tx)) is not bool(hashed)
    assert len(signing_message(tx)) == 32 or not hashed
    assert (chain_hash(tx) == chain_hash(plain)) is (bits == 0)
    assert (signing_bytes(tx) == signing_bytes(plain)) is (bits == 0)


def test_version_one_knows_no_hash_signing() -> None:
    """Options mean nothing in version 1: the signing bytes themselves are signed."""
    old = msgspec.structs.replace(from_json(GOOD), version=1, options=1)
    assert not old.is_hash_signed
    assert signing_message(old) == signing_bytes(old)


def test_a_relayer_or_its_signature_makes_it_relayed() -> None:
    """A transaction counts as relayed as soon as either part of a relayer is there."""
    tx = from_json(GOOD)
    assert not tx.is_relayed
    assert msgspec.structs.replace(tx, relayer=bytes(32)).is_relayed
    assert msgspec.structs.replace(tx, relayer_signature=bytes(64)).is_relayed


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
