"""The hashes that official SDKs compute, by vectors made with them (tests/foreign/sdk makes them again)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from multiversx_sdk import Transaction as SdkTransaction
from multiversx_sdk import TransactionComputer

from millrace.chain import keys
from millrace.chain.transaction import (
    Transaction,
    TransactionJson,
    chain_hash,
    client_hash,
    early_hashes,
    early_hashes_of,
    from_json,
    signing_message,
    to_proto,
)

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "vectors" / "sdk_hashes.json").read_text())[
    "vectors"
]


def read(vector: dict[str, Any]) -> Transaction:
    return from_json(msgspec.convert(vector["transaction"], TransactionJson))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_each_sdk_computes_one_of_our_hashes(vector: dict[str, Any]) -> None:
    """Before a relayer has signed the Python SDK computes the client hash and the JavaScript SDK the SDK hash.

    Of what has every signature, or names no relayer, both compute the chain hash.
    """
    tx = read(vector)
    client, sdk = early_hashes(tx)
    if tx.relayer and not tx.relayer_signature:
        assert (vector["python"], vector["javascript"]) == (client.hex(), sdk.hex())
    else:
        assert vector["python"] == vector["javascript"] == chain_hash(tx).hex()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_python_sdk_still_says_so(vector: dict[str, Any]) -> None:
    """The vectors are what the installed Python SDK computes from the same object."""
    computed = TransactionComputer().compute_transaction_hash(SdkTransaction.new_from_dictionary(vector["transaction"]))
    assert computed.hex() == vector["python"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_what_the_javascript_sdk_signs_is_what_we_verify(vector: dict[str, Any]) -> None:
    """Its signatures are over our signing message."""
    tx = read(vector)
    assert keys.verify(tx.sender, signing_message(tx), tx.signature)


def test_a_signature_changes_no_early_hash() -> None:
    """The early hashes are those of before the relayer signed, also when read from a co-signed transaction."""
    cosigned = next(read(vector) for vector in VECTORS if vector["name"] == "relayed, co-signed")
    before = msgspec.structs.replace(cosigned, relayer_signature=b"")
    assert early_hashes(cosigned) == early_hashes(before) == early_hashes_of(to_proto(before), is_relayed=True)
    assert early_hashes(cosigned)[0] == client_hash(cosigned)
    assert len({*early_hashes(cosigned), chain_hash(cosigned)}) == 3


def test_without_a_relayer_there_is_one_hash() -> None:
    """What names no relayer has no SDK hash of its own, and its client hash is its chain hash."""
    plain = next(read(vector) for vector in VECTORS if vector["name"] == "plain")
    assert early_hashes(plain) == (chain_hash(plain), b"")
