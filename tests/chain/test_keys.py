"""Ed25519 keys: signing, strict verification, PEM files."""

from __future__ import annotations

import json
import pickle
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.chain import keys
from millrace.chain.keys import KeyPair, verify

WALLETS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "transactions.json").read_text())[
    "wallets"
]
ORDER = 2**252 + 27742317777372353535851937790883648493
PRIME = 2**255 - 19
SIGN_BIT = 1 << 255
CURVE = -121665 * pow(121666, -1, PRIME) % PRIME
"""`d` of -x² + y² = 1 + d x² y²."""


def _point(number: int) -> bytes:
    return number.to_bytes(32, "little")


ORDER_EIGHT = [
    int.from_bytes(bytes.fromhex(text), "little")
    for text in (
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
]
SMALL_ORDER = sorted(
    {_point(y | sign) for y in (0, 1, PRIME - 1, PRIME, PRIME + 1, *ORDER_EIGHT) for sign in (0, SIGN_BIT)}
)
"""Every encoding, canonical or not, of the eight points whose order divides eight."""


def _on_curve(y: int) -> tuple[int, int]:
    """The point of this height whose other half is even."""
    square = (y * y - 1) * pow(CURVE * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if (x * x - square) % PRIME:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    return (PRIME - x if x % 2 else x), y


def _plus(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two points."""
    (a, b), (c, d) = one, other
    both = CURVE * a * b * c * d
    return (a * d + b * c) * pow(1 + both, -1, PRIME) % PRIME, (b * d + a * c) * pow(1 - both, -1, PRIME) % PRIME


def _times(number: int, point: tuple[int, int]) -> tuple[int, int]:
    """So many of a point added up."""
    total = (0, 1)
    for bit in bin(number)[2:]:
        total = _plus(total, total)
        if bit == "1":
            total = _plus(total, point)
    return total


def _written(point: tuple[int, int]) -> bytes:
    return _point(point[1] | (point[0] & 1) << 255)


@pytest.mark.parametrize(
    ("seed", "public", "message", "signature"),
    [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
    ],
    ids=["empty message", "one byte"],
)
def test_published_signatures(seed: str, public: str, message: str, signature: str) -> None:
    """Keys and signatures are those of RFC 8032, section 7.1."""
    pair = KeyPair.from_seed(bytes.fromhex(seed))
    assert pair.public.hex() == public
    assert pair.sign(bytes.fromhex(message)).hex() == signature
    assert verify(pair.public, bytes.fromhex(message), bytes.fromhex(signature))


@pytest.mark.parametrize("name", WALLETS)
def test_published_wallets(name: str) -> None:
    """A wallet's seed gives its public key."""
    wallet = WALLETS[name]
    assert KeyPair.from_seed(bytes.fromhex(wallet["secretKeySeedHex"])).public.hex() == wallet["publicKeyHex"]


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_own_signatures_verify(seed: bytes, message: bytes) -> None:
    """Whatever a key signs verifies, and signing twice gives the same bytes."""
    pair = KeyPair.from_seed(seed)
    signature = pair.sign(message)
    assert len(signature) == keys.SIGNATURE_SIZE
    assert verify(pair.public, message, signature)
    assert pair.sign(message) == signature


@given(st.integers(0, 511), st.binary(max_size=20))
def test_one_changed_bit_is_noticed(bit: int, message: bytes) -> None:
    """A signature with any one bit turned over is refused."""
    pair = KeyPair.from_seed(b"\7" * 32)
    changed = bytearray(pair.sign(message))
    changed[bit // 8] ^= 1 << bit % 8
    assert not verify(pair.public, message, bytes(changed))


@pytest.mark.parametrize("times", [1, 2, 7, 15])
def test_malleated_signatures_are_refused(times: int) -> None:
    """A signature whose scalar is raised by multiples of the group order is refused."""
    pair = KeyPair.from_seed(b"\1" * 32)
    signature = pair.sign(b"message")
    raised = int.from_bytes(signature[32:], "little") + times * ORDER
    assert raised < 1 << 256
    assert not verify(pair.public, b"message", signature[:32] + raised.to_bytes(32, "little"))


def test_small_order_keys_are_refused() -> None:
    """Under a key of small order some signature fits any message by chance: none is accepted.

    With a zero scalar, lax verifiers accept whenever R = -h*A; over all small-order R and some messages that
    happens for every A.
    """
    assert len(SMALL_ORDER) == 14
    assert not any(
        verify(public, bytes([message]), commitment + bytes(32))
        for public in SMALL_ORDER
        for commitment in SMALL_ORDER
        for message in range(16)
    )


def test_small_order_commitments_are_refused() -> None:
    """A signature that satisfies the equation, but commits to the neutral point, is refused."""
    seed, message = b"\1" * 32, b"message"
    pair = KeyPair.from_seed(seed)
    secret = int.from_bytes(sha512(seed).digest()[:32], "little") & (1 << 254) - 8 | 1 << 254
    neutral = _point(1)
    challenge = int.from_bytes(sha512(neutral + pair.public + message).digest(), "little")
    forged = neutral + (challenge * secret % ORDER).to_bytes(32, "little")
    assert not verify(pair.public, message, forged)


def test_keys_with_a_part_of_small_order_are_judged_as_nodes_do() -> None:
    """Signatures are accepted by the equation without the cofactor: what only eight times it accepts nodes refuse.

    The key has a part of order eight, which leaves that equation true for one challenge in eight.
    """
    base, weak = _on_curve(4 * pow(5, -1, PRIME) % PRIME), _on_curve(ORDER_EIGHT[0])
    secret, once = 0xFEED << 200, 0xBEEF << 190
    public, commitment = _written(_plus(_times(secret, base), weak)), _written(_times(once, base))
    found = []
    for message in (bytes([number]) for number in range(64)):
        challenge = int.from_bytes(sha512(commitment + public + message).digest(), "little") % ORDER
        signature = commitment + ((once + challenge * secret) % ORDER).to_bytes(32, "little")
        assert verify(public, message, signature) == (challenge % 8 == 0)
        found.append(challenge % 8 == 0)
    assert 0 < sum(found) < len(found)


def test_other_keys_messages_and_lengths_are_refused() -> None:
    """A foreign key, another message and wrong lengths are refused, not raised."""
    pair = KeyPair.from_seed(b"\1" * 32)
    signature = pair.sign(b"message")
    for pubkey, message, bad in [
        (KeyPair.from_seed(b"\2" * 32).public, b"message", signature),
        (pair.public, b"other", signature),
        (pair.public, b"message", signature[:-1]),
        (pair.public, b"message", signature + b"\0"),
        (pair.public, b"message", b""),
        (pair.public[:-1], b"message", signature),
        (pair.public + b"\0", b"message", signature),
        (b"", b"message", signature),
        (b"\xff" * 32, b"message", signature),
        (pair.public, b"message", b"\xff" * 64),
        (pair.public, b"message", bytes(64)),
    ]:
        assert not verify(pubkey, message, bad)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_seeds_have_one_length(size: int) -> None:
    """A seed of another length than 32 bytes is refused."""
    with pytest.raises(keys.KeyFormatError, match="32 bytes"):
        KeyPair.from_seed(bytes(size))


def test_generated_keys_differ() -> None:
    """Two generated keys are not the same."""
    assert KeyPair.generate().public != KeyPair.generate().public


def test_pem_round_trip() -> None:
    """A key survives its PEM form; a broken or mixed-up file is refused without showing the secret."""
    pair = KeyPair.from_seed(bytes(range(32)))
    text = pair.to_pem()
    assert KeyPair.from_pem(text).public == pair.public
    assert KeyPair.from_pem("\n" + text.replace("\n", "\r\n") + text).public == pair.public
    body = text.splitlines()
    swapped = "\n".join([body[0], body[2], body[1], *body[3:]])
    foreign = KeyPair.generate().to_pem().replace("erd1", "erd2")
    for broken in ("", text.replace("PRIVATE", "PUBLIC"), swapped, text.replace(body[1], body[1][:-4]), foreign):
        with pytest.raises(keys.KeyFormatError) as error:
            KeyPair.from_pem(broken)
        assert bytes(range(32)).hex() not in str(error.value)


def test_a_key_hides_itself() -> None:
    """Neither repr nor pickle nor formatting gives the secret away."""
    pair = KeyPair.from_seed(b"\x5a" * 32)
    assert "5a5a" not in f"{pair!r} {pair}"
    with pytest.raises(TypeError):
        pickle.dumps(pair)
