"""What clients in other languages are held to is what this package computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millrace.chain import address, keys
from millrace.chain.transaction import (
    Transaction,
    TransactionError,
    TransactionJson,
    chain_hash,
    early_hashes,
    from_json,
    signing_bytes,
    signing_message,
    to_proto,
)

FILE: dict[str, Any] = json.loads((Path(__file__).parent.parent / "vectors" / "clients.json").read_text())
SIGNERS = {"signature": 0, "guardianSignature": 2, "relayerSignature": 3}
"""Whose key made which signature."""


def read(fields: dict[str, Any]) -> Transaction:
    """A vector's transaction: numbers that JavaScript would round are texts there."""
    numbers = {name: int(fields[name]) for name in ("nonce", "gasPrice", "gasLimit")}
    return from_json(msgspec.convert({**fields, **numbers}, TransactionJson))


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: vector["name"])
def test_bytes_and_hashes(vector: dict[str, Any]) -> None:
    """Signing bytes, message, protobuf form, hashes and signatures are those of the file."""
    tx = read(vector["transaction"])
    client, sdk = early_hashes(tx)
    assert signing_bytes(tx).decode() == vector["signingJson"]
    assert signing_message(tx).hex() == vector["messageHex"]
    assert to_proto(tx).hex() == vector["protobufHex"]
    assert (client.hex(), sdk.hex()) == (vector["clientHash"], vector.get("sdkHash", ""))
    if "chainHash" in vector:
        assert chain_hash(tx).hex() == vector["chainHash"]
    for field, signer in SIGNERS.items():
        if field in vector["transaction"]:
            public = bytes.fromhex(FILE["keys"][signer]["publicKey"])
            assert keys.verify(public, signing_message(tx), bytes.fromhex(vector["transaction"][field]))


@pytest.mark.parametrize("vector", FILE["refused"], ids=lambda vector: vector["field"])
def test_impossible_fields(vector: dict[str, Any]) -> None:
    """A transaction that cannot be is refused, and the field is named."""
    with pytest.raises(TransactionError) as refused:
        read(vector["transaction"])
    assert refused.value.field == vector["field"]


@pytest.mark.parametrize("vector", FILE["keys"], ids=lambda vector: vector["address"])
def test_keys(vector: dict[str, Any]) -> None:
    """Seed, public key, address and PEM file are of one key."""
    key = keys.KeyPair.from_seed(bytes.fromhex(vector["seed"]))
    assert key.public.hex() == vector["publicKey"]
    assert address.encode(key.public) == vector["address"]
    assert keys.KeyPair.from_pem(vector["pem"]).public == key.public
