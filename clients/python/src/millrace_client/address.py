"""Addresses: 32 bytes as bech32 text (BIP-173), and the shard in which they live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from millrace_client.errors import TransactionError

ShardRule = Literal["modulo", "mask"]
HRP = "erd"
SIZE = 32
METACHAIN = 0xFFFFFFFF

_ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_LENGTH = len(HRP) + 1 + 52 + 6  # 32 bytes are 52 groups of five bits, and six more are the checksum


def encode(pubkey: bytes) -> str:
    """The bech32 text of 32 bytes. Raises `TransactionError` for another length."""
    if len(pubkey) != SIZE:
        raise TransactionError(f"an address has {SIZE} bytes, not {len(pubkey)}")
    number = int.from_bytes(pubkey, "big") << 4  # 260 bits
    groups = [number >> shift & 31 for shift in range(255, -1, -5)]
    checksum = _polymod([*_PREFIX, *groups, 0, 0, 0, 0, 0, 0]) ^ 1
    groups += [checksum >> shift & 31 for shift in range(25, -1, -5)]
    return HRP + "1" + "".join(_ALPHABET[group] for group in groups)


def decode(text: str) -> bytes:
    """The 32 bytes of a bech32 text. Raises `TransactionError` for anything that is not exactly one."""
    groups = [_VALUES.get(letter, -1) for letter in text[len(HRP) + 1 :]]
    if len(text) != _LENGTH or not text.startswith(HRP + "1") or -1 in groups:
        raise TransactionError(f"{text[:80]!r} is not an address: {HRP}1 and 58 lower-case letters and digits")
    number = 0
    for group in groups[:52]:
        number = number << 5 | group
    if _polymod([*_PREFIX, *groups]) != 1 or number & 15:
        raise TransactionError(f"{text!r} is not an address: its checksum is wrong, look for a typing error")
    return (number >> 4).to_bytes(SIZE, "big")


def shard_of(pubkey: bytes, rule: ShardRule = "mask", shards: int = 3) -> int:
    """The shard of an address: its last byte `modulo` the shards, or by the bit `mask` of live nodes."""
    last = pubkey[-1]
    if rule == "modulo":
        return last % shards
    if last == 0xFF and pubkey[:8] == bytes(8) and pubkey[10:25] == bytes(15):
        return METACHAIN
    bits = (shards - 1).bit_length()
    shard = last & (1 << bits) - 1
    return shard if shard < shards else last & (1 << bits - 1) - 1


def _polymod(values: Iterable[int]) -> int:
    state = 1
    for value in values:
        top = state >> 25
        state = (state & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATOR):
            if top >> bit & 1:
                state ^= generator
    return state


_PREFIX = (*(ord(letter) >> 5 for letter in HRP), 0, *(ord(letter) & 31 for letter in HRP))
