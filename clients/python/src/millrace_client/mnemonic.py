"""Mnemonics (BIP-39, English) and the keys derived from them (SLIP-10, path m/44'/508'/0'/0'/index')."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import unicodedata
from functools import cache
from importlib import resources

from millrace_client.errors import WalletError

_HARDENED = 0x80000000
_PATH = (44, 508, 0, 0)  # purpose, the chain's registered coin type, account, change
_ROUNDS = 2048


@cache
def _words() -> dict[str, int]:
    text = resources.files("millrace_client").joinpath("bip39_english.txt").read_text(encoding="ascii")
    return {word: number for number, word in enumerate(text.split())}


def generate() -> str:
    """A new mnemonic of 24 words."""
    entropy = secrets.token_bytes(32)
    number = int.from_bytes(entropy + hashlib.sha256(entropy).digest()[:1], "big")
    words = list(_words())
    return " ".join(words[number >> shift & 2047] for shift in range(23 * 11, -1, -11))


def normalised(text: str) -> str:
    """The words in lower case with single spaces. Raises `WalletError` unless they are a whole mnemonic."""
    words = unicodedata.normalize("NFKD", text).lower().split()
    if len(words) not in (12, 15, 18, 21, 24):
        raise WalletError(f"a mnemonic has 12, 15, 18, 21 or 24 words, not {len(words)}")
    known = _words()
    for place, word in enumerate(words, 1):
        if word not in known:
            raise WalletError(f"word {place} of the mnemonic is none of the English list: look for a typing error")
    number = 0
    for word in words:
        number = number << 11 | known[word]
    check_bits = len(words) * 11 // 33
    entropy = (number >> check_bits).to_bytes(check_bits * 4, "big")
    if hashlib.sha256(entropy).digest()[0] >> 8 - check_bits != number & (1 << check_bits) - 1:
        raise WalletError("the mnemonic's checksum is wrong: a word is another one, or two have changed places")
    return " ".join(words)


def seed(text: str, index: int = 0) -> bytes:
    """The 32-byte seed of the key with this index. Raises `WalletError`."""
    if not 0 <= index < _HARDENED:
        raise WalletError(f"an address index is a number from 0 to {_HARDENED - 1}")
    stretched = hashlib.pbkdf2_hmac("sha512", normalised(text).encode(), b"mnemonic", _ROUNDS)
    node = hmac.digest(b"ed25519 seed", stretched, "sha512")
    for step in (*_PATH, index):
        data = b"\0" + node[:32] + (step + _HARDENED).to_bytes(4, "big")
        node = hmac.digest(node[32:], data, "sha512")
    return node[:32]
