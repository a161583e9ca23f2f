"""Addresses, transactions, hashes and ciphers against values of foreign origin, and against the services' own code."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from Crypto.Cipher import AES
from Crypto.Hash import keccak

from millrace.chain import address as reference_address
from millrace.chain import shard as reference_shard
from millrace.chain import transaction as reference
from millrace_client import Transaction, TransactionError, Wallet, address, sign
from millrace_client.aes import counter_mode
from millrace_client.keccak import keccak256
from millrace_client.transaction import replaced

VECTORS = Path(__file__).parents[1] / "vectors"
UPSTREAM = msgspec.json.decode((VECTORS / "transactions.json").read_bytes())
SDKS = msgspec.json.decode((VECTORS / "sdk_hashes.json").read_bytes())


def test_published_signing_bytes() -> None:
    """The signing bytes of transactions that the official SDKs publish are these."""
    found = [vector for vector in UPSTREAM["vectors"] if "signingJson" in vector["values"]]
    assert found
    for vector in found:
        tx = replaced(msgspec.convert(vector["transaction"], Transaction), options=0)
        if not vector["transaction"].get("options"):
            assert tx.signing_message().decode() == vector["values"]["signingJson"], vector["id"]


@pytest.mark.parametrize("vector", SDKS["vectors"], ids=lambda vector: vector["name"])
def test_the_hashes_of_both_sdks(vector: dict[str, object]) -> None:
    """What the official Python and JavaScript SDKs compute before a relayer signs is `client_hash` and `sdk_hash`."""
    tx = msgspec.convert(vector["transaction"], Transaction)
    if tx.relayer_signature:
        assert tx.chain_hash() == vector["python"] == vector["javascript"]
        return
    assert tx.client_hash() == vector["python"]
    assert tx.sdk_hash() == vector["javascript"]


def test_random_transactions_are_the_services() -> None:
    """Signing bytes and hashes of 300 random transactions are those of the relayer's own code."""
    rng = random.Random(7)
    for _ in range(300):
        raw = reference.Transaction(
            nonce=rng.getrandbits(64),
            value=rng.choice([0, rng.getrandbits(200)]),
            receiver=rng.randbytes(32),
            sender=rng.randbytes(32),
            gas_price=rng.getrandbits(40),
            gas_limit=rng.getrandbits(30),
            chain_id="D",
            data=rng.randbytes(rng.choice([0, 40])),
            options=rng.choice([0, 1, 2, 3]),
            sender_username=rng.choice([b"", b"alice"]),
            guardian=rng.choice([b"", rng.randbytes(32)]),
            relayer=rng.choice([b"", rng.randbytes(32)]),
            signature=rng.randbytes(64),
        )
        if raw.relayer:
            raw = msgspec.structs.replace(raw, relayer_signature=rng.choice([b"", rng.randbytes(64)]))
        ours = msgspec.json.decode(msgspec.json.encode(reference.to_json(raw)), type=Transaction)
        assert ours.signing_message() == reference.signing_message(raw)
        assert ours.client_hash() == reference.client_hash(raw).hex()
        assert ours.chain_hash() == reference.chain_hash(raw).hex()


def test_random_addresses_are_the_services() -> None:
    """Addresses as text, and shards by both rules, are those of the services' own code."""
    rng = random.Random(8)
    for _ in range(300):
        raw = rng.choice([rng.randbytes(32), bytes(8) + rng.randbytes(24), bytes(31) + b"\xff"])
        assert address.encode(raw) == reference_address.encode(raw)
        assert address.decode(address.encode(raw)) == raw
        for shards in (2, 3, 5):
            assert address.shard_of(raw, "mask", shards) == reference_shard.shard_by_mask(raw, shards)
            assert address.shard_of(raw, "modulo", shards) == reference_shard.shard_by_modulo(raw, shards)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "erd1",
        "erd1qyu5wthldzr8wx5c9ucg8kjagg0jfs53s8nr3zpz3hypefsdd8ssycr6tg",
        "ERD1QYU5WTHLDZR8WX5C9UCG8KJAGG0JFS53S8NR3ZPZ3HYPEFSDD8SSYCR6TH",
        "bnb1qyu5wthldzr8wx5c9ucg8kjagg0jfs53s8nr3zpz3hypefsdd8ssycr6th",
    ],
)
def test_wrong_addresses(text: str) -> None:
    """What is not exactly an address is refused."""
    with pytest.raises(TransactionError):
        address.decode(text)


@pytest.mark.parametrize("size", [0, 1, 135, 136, 137, 500])
def test_keccak(size: int) -> None:
    """Digests around the block size are those of a known library."""
    data = bytes(range(256))[:1] * size
    assert keccak256(data) == keccak.new(digest_bits=256, data=data).digest()


def test_counter_mode() -> None:
    """The published vector of SP 800-38A F.5.1, and random texts as a known library encrypts them."""
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    first = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    secret = "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
    assert counter_mode(key, first, plain).hex() == secret
    rng = random.Random(9)
    for _ in range(50):
        key, first, text = rng.randbytes(16), rng.randbytes(16), rng.randbytes(rng.randrange(80))
        known = AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=first)
        assert counter_mode(key, first, text) == known.encrypt(text)


async def test_nobody_signs_what_is_not_his() -> None:
    """A wallet refuses a transaction of another sender, one without a nonce, and one whose value is no number."""
    wallet = Wallet(bytes(32))
    tx = Transaction(
        nonce=1,
        value="0",
        sender=wallet.address,
        receiver=wallet.address,
        gas_price=1,
        gas_limit=1,
        chain_id="D",
        version=2,
    )
    assert len((await sign(tx, wallet)).signature) == 128
    for wrong in ({"nonce": None}, {"value": "-1"}, {"value": "01"}, {"data": "a"}, {"chain_id": ""}):
        with pytest.raises(TransactionError):
            await sign(replaced(tx, **wrong), wallet)
    with pytest.raises(ValueError, match="the wallet is"):
        await sign(tx, Wallet(b"\1" * 32))
