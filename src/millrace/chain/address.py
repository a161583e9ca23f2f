"""Addresses: 32 raw bytes inside, bech32 text at the edges (BIP-173 checksum, prefix `erd`).

A user's address is its Ed25519 public key; a contract's begins with eight zero bytes.
"""

from __future__ import annotations

from functools import lru_cache

from Crypto.Hash import keccak

HRP = "erd"
SIZE = 32
ZERO = bytes(SIZE)
SYSTEM_ACCOUNT = b"\xff" * SIZE
ESDT_SYSTEM_CONTRACT = bytes.fromhex("000000000000000000010000000000000000000000000000000000000002ffff")
WASM_VM = b"\x05\x00"

_ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_GROUPS = 52  # 32 bytes are 51.2 groups of five bits
_CHECKSUM_GROUPS = 6


class AddressError(ValueError):
    """A text is not the bech32 form of a 32-byte address."""


def _folds() -> tuple[int, ...]:
    """For each value of a checksum's top five bits, what they fold back into it."""
    folds = []
    for top in range(32):
        fold = 0
        for bit, generator in enumerate(_GENERATOR):
            fold ^= generator if top >> bit & 1 else 0
        folds.append(fold)
    return tuple(folds)


_FOLD = _folds()


def _checksum(state: int, values: list[int]) -> int:
    fold = _FOLD
    for value in values:
        state = (state & 0x1FFFFFF) << 5 ^ value ^ fold[state >> 25]
    return state


@lru_cache(maxsize=16)
def _prefix_state(hrp: str) -> int:
    """The checksum after the human-readable part."""
    return _checksum(1, [*(ord(c) >> 5 for c in hrp), 0, *(ord(c) & 31 for c in hrp)])


@lru_cache(maxsize=65_536)
def encode(pubkey: bytes, hrp: str = HRP) -> str:
    """The bech32 text of 32 raw bytes. Raises `AddressError` for another length."""
    if len(pubkey) != SIZE:
        raise AddressError(f"an address has {SIZE} bytes, not {len(pubkey)}")
    number = int.from_bytes(pubkey, "big") << 4
    values = [number >> 5 * (_GROUPS - 1 - index) & 31 for index in range(_GROUPS)]
    state = _checksum(_prefix_state(hrp), values + [0] * _CHECKSUM_GROUPS) ^ 1
    values += [state >> 5 * (_CHECKSUM_GROUPS - 1 - index) & 31 for index in range(_CHECKSUM_GROUPS)]
    return hrp + "1" + "".join([_ALPHABET[value] for value in values])


@lru_cache(maxsize=65_536)
def decode(text: str, hrp: str = HRP) -> bytes:
    """The 32 raw bytes of a bech32 text; lower case only.

    Raises `AddressError` for another prefix, length, alphabet, checksum or padding.
    """
    start = len(hrp) + 1
    if len(text) != start + _GROUPS + _CHECKSUM_GROUPS or text[:start] != hrp + "1":
        raise AddressError(f"an address is {hrp}1 and {_GROUPS + _CHECKSUM_GROUPS} further characters")
    try:
        values = [_VALUES[character] for character in text[start:]]
    except KeyError as unknown:
        raise AddressError(f"{unknown.args[0]!r} is no lower-case bech32 character") from None
    if _checksum(_prefix_state(hrp), values) != 1:
        raise AddressError("the checksum of the address is wrong")
    number = 0
    for value in values[:_GROUPS]:
        number = number << 5 | value
    if number & 0xF:
        raise AddressError("the padding bits of the address are not zero")
    return (number >> 4).to_bytes(SIZE, "big")


def is_contract(pubkey: bytes) -> bool:
    """Whether the address belongs to a contract: its first eight bytes are zero."""
    return pubkey[:8] == bytes(8)


def contract_address(deployer: bytes, nonce: int, vm: bytes = WASM_VM) -> bytes:
    """The address a contract gets that `deployer` deploys with its transaction `nonce`.

    Keccak-256 of deployer and little-endian nonce, bytes 10 to 29, between eight zero bytes with the VM type
    and the last two bytes of the deployer, so that the contract lives in the deployer's shard.
    """
    digest = keccak.new(digest_bits=256, data=deployer + nonce.to_bytes(8, "little")).digest()
    return bytes(8) + vm + digest[10:30] + deployer[-2:]
