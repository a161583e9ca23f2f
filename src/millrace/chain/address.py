"""Addresses: 32 raw bytes inside, bech32 text at the edges (BIP-173 checksum, prefix `erd`).

A user's address is its Ed25519 public key; a contract's begins with eight zero bytes.
"""

from __future__ import annotations

from functools import lru_cache

HRP = "erd"
SIZE = 32
ZERO = bytes(SIZE)
SYSTEM_ACCOUNT = b"\xff" * SIZE
ESDT_SYSTEM_CONTRACT = bytes.fromhex("000000000000000000010000000000000000000000000000000000000002ffff")
WASM_VM = b"\x05\x00"

_ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # what int(text, 32) reads
_TO_DIGITS = dict.fromkeys(range(128), "?") | str.maketrans(_ALPHABET, _DIGITS)
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_GROUPS = 52  # 32 bytes are 51.2 groups of five bits
_CHECKSUM_GROUPS = 6
_TAIL_BITS = 4 + 5 * _CHECKSUM_GROUPS  # behind the bytes: four zero bits of padding, then the checksum
_PAIR_SHIFTS = range(5 * (_GROUPS + _CHECKSUM_GROUPS - 2), -1, -10)


class AddressError(ValueError):
    """A text is not the bech32 form of a 32-byte address."""


def _step(state: int, value: int) -> int:
    """The checksum (BIP-173 "polymod") after one more group of five bits."""
    top = state >> 25
    state = (state & 0x1FFFFFF) << 5 ^ value
    for bit, generator in enumerate(_GENERATOR):
        if top >> bit & 1:
            state ^= generator
    return state


def _byte_table() -> list[list[int]]:
    """For each position and value of an address byte, what it adds to the checksum.

    The checksum is linear over GF(2), so that of 32 bytes is the exclusive or of 32 table entries.
    """
    basis = []  # of each bit of the 260, the last one first
    for bit in range(5):
        state = 1 << bit
        for _ in range(_CHECKSUM_GROUPS):
            state = _step(state, 0)
        basis.append(state)
    while len(basis) < 5 * _GROUPS:
        basis.append(_step(basis[-5], 0))
    table = []
    for position in range(SIZE):
        first = 4 + 8 * (SIZE - 1 - position)  # four bits of padding behind the bytes
        row = [0]
        for bit in range(first, first + 8):
            row += [entry ^ basis[bit] for entry in row]
        table.append(row)
    return table


_BYTE_TABLE = _byte_table()


@lru_cache(maxsize=16)
def _checksum_of_zero(hrp: str) -> int:
    """The checksum of 32 zero bytes under a human-readable part."""
    state = 1
    for value in (*(ord(c) >> 5 for c in hrp), 0, *(ord(c) & 31 for c in hrp)):
        state = _step(state, value)
    for _ in range(_GROUPS + _CHECKSUM_GROUPS):
        state = _step(state, 0)
    return state ^ 1


def _checksum(pubkey: bytes, hrp: str) -> int:
    """The 30 bits of checksum that follow 32 bytes."""
    state = _checksum_of_zero(hrp)
    for row, byte in zip(_BYTE_TABLE, pubkey, strict=True):
        state ^= row[byte]
    return state


@lru_cache(maxsize=65_536)
def encode(pubkey: bytes, hrp: str = HRP) -> str:
    """The bech32 text of 32 raw bytes. Raises `AddressError` for another length."""
    if len(pubkey) != SIZE:
        raise AddressError(f"an address has {SIZE} bytes, not {len(pubkey)}")
    number = int.from_bytes(pubkey, "big") << _TAIL_BITS | _checksum(pubkey, hrp)
    return hrp + "1" + "".join([_PAIRS[number >> shift & 1023] for shift in _PAIR_SHIFTS])


@lru_cache(maxsize=65_536)
def decode(text: str, hrp: str = HRP) -> bytes:
    """The 32 raw bytes of a bech32 text; lower case only.

    Raises `AddressError` for another prefix, length, alphabet, checksum or padding.
    """
    start = len(hrp) + 1
    if len(text) != start + _GROUPS + _CHECKSUM_GROUPS or text[:start] != hrp + "1":
        raise AddressError(f"an address is {hrp}1 and {_GROUPS + _CHECKSUM_GROUPS} further characters")
    digits = text[start:].translate(_TO_DIGITS)
    if "?" in digits or not digits.isascii():
        raise AddressError("an address has lower-case letters and digits, without 1, b, i and o, behind its prefix")
    number = int(digits, 32)
    pubkey = (number >> _TAIL_BITS).to_bytes(SIZE, "big")
    if number & (1 << _TAIL_BITS) - 1 != _checksum(pubkey, hrp):
        raise AddressError("the checksum of the address is wrong, or its padding bits are not zero")
    return pubkey


def is_contract(pubkey: bytes) -> bool:
    """Whether the address belongs to a contract: its first eight bytes are zero."""
    return pubkey[:8] == bytes(8)


def contract_address(deployer: bytes, nonce: int, vm: bytes = WASM_VM) -> bytes:
    """The address a contract gets that `deployer` deploys with its transaction `nonce`.

    Keccak-256 of deployer and little-endian nonce, bytes 10 to 29, between eight zero bytes with the VM type
    and the last two bytes of the deployer, so that the contract lives in the deployer's shard.
    """
    from Crypto.Hash import keccak  # takes long to load, and most who have to do with addresses need it not

    digest = keccak.new(digest_bits=256, data=deployer + nonce.to_bytes(8, "little")).digest()
    return bytes(8) + vm + digest[10:30] + deployer[-2:]
