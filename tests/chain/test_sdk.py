"""Ten thousand random transactions against the public Python SDK: same bytes, same signature, same hash."""

from __future__ import annotations

import random

import msgspec
import multiversx_sdk as sdk

from millrace.chain import address
from millrace.chain.keys import KeyPair
from millrace.chain.transaction import (
    GUARDED,
    HASH_SIGNED,
    Transaction,
    chain_hash,
    client_hash,
    signing_bytes,
    signing_message,
)

SEED = 20261121
COUNT = 10_000


def test_the_reference_sdk_agrees() -> None:
    """Plain, hash-signed, guarded and relayed transactions, with and without usernames and data, are the SDK's."""
    rng = random.Random(SEED)
    seeds = [rng.randbytes(32) for _ in range(16)]
    ours = [KeyPair.from_seed(seed) for seed in seeds]
    theirs = [sdk.UserSecretKey(seed) for seed in seeds]
    addresses = [sdk.Address.new_from_bech32(address.encode(key.public)) for key in ours]
    computer = sdk.TransactionComputer()
    for _ in range(COUNT):
        sender, receiver, guardian, relayer = (rng.randrange(len(seeds)) for _ in range(4))
        options = rng.choice([0, 0, HASH_SIGNED, GUARDED, GUARDED | HASH_SIGNED])
        tx = Transaction(
            nonce=rng.choice([0, 1, rng.getrandbits(64)]),
            value=rng.choice([0, rng.randrange(2**70), rng.randrange(2**200)]),
            receiver=ours[receiver].public,
            sender=ours[sender].public,
            gas_price=rng.randrange(1, 2**40),
            gas_limit=rng.randrange(1, 2**40),
            chain_id=rng.choice(["1", "D", "T", "local"]),
            data=rng.choice([b"", rng.randbytes(rng.randrange(1, 300))]),
            options=options,
            sender_username=rng.choice([b"", b"alice"]),
            receiver_username=rng.choice([b"", b"bob.elrond"]),
            guardian=ours[guardian].public if options & GUARDED else b"",
            relayer=ours[relayer].public if rng.random() < 0.5 else b"",
        )
        message = signing_message(tx)
        tx = msgspec.structs.replace(
            tx,
            signature=ours[sender].sign(message),
            guardian_signature=ours[guardian].sign(message) if tx.guardian else b"",
            relayer_signature=ours[relayer].sign(message) if tx.relayer else b"",
        )
        other = sdk.Transaction(
            nonce=tx.nonce,
            value=tx.value,
            receiver=addresses[receiver],
            sender=addresses[sender],
            gas_price=tx.gas_price,
            gas_limit=tx.gas_limit,
            chain_id=tx.chain_id,
            data=tx.data,
            version=tx.version,
            options=tx.options,
            sender_username=tx.sender_username.decode(),
            receiver_username=tx.receiver_username.decode(),
            guardian=addresses[guardian] if tx.guardian else None,
            relayer=addresses[relayer] if tx.relayer else None,
        )
        their_message = computer.compute_bytes_for_verifying(other)
        assert signing_bytes(tx) == computer.compute_bytes_for_signing(other, ignore_options=True)
        assert message == their_message
        other.signature = theirs[sender].sign(their_message)
        other.guardian_signature = theirs[guardian].sign(their_message) if tx.guardian else b""
        other.relayer_signature = theirs[relayer].sign(their_message) if tx.relayer else b""
        assert tx.signature == other.signature
        assert chain_hash(tx) == computer.compute_transaction_hash(other)
        if tx.relayer:
            other.relayer_signature = b""
            assert client_hash(tx) == computer.compute_transaction_hash(other)
