"""Ed25519 keys: sign, verify, and the PEM form of MultiversX wallets."""

from __future__ import annotations

import base64
import binascii
import ctypes
import re
import sys

from nacl._sodium import ffi, lib  # type: ignore[import-not-found]
from nacl.signing import SigningKey  # also makes libsodium ready

from millrace.chain.address import encode

SIGNATURE_SIZE = 64

_BYTES = ffi.typeof("unsigned char[]")
_NULL = ffi.NULL

_PEM = re.compile(
    r"\s*-----BEGIN PRIVATE KEY for ([a-z0-9]+)-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END PRIVATE KEY for \1-----"
)


class KeyFormatError(ValueError):
    """A key file or a secret has the wrong form; the text never holds any of it."""


class KeyPair:
    """A secret key and its public half. Neither `repr` nor a traceback shows the secret."""

    __slots__ = ("_signing", "public")

    def __init__(self, signing: SigningKey) -> None:
        self._signing = signing
        self.public: bytes = bytes(signing.verify_key)
        """32 bytes: the address."""

    @classmethod
    def from_seed(cls, seed: bytes) -> KeyPair:
        """The key pair of a 32-byte seed. Raises `KeyFormatError` for another length."""
        if len(seed) != 32:
            raise KeyFormatError("a secret seed has 32 bytes")
        return cls(SigningKey(seed))

    @classmethod
    def generate(cls) -> KeyPair:
        """A new random key pair."""
        return cls(SigningKey.generate())

    @classmethod
    def from_pem(cls, text: str) -> KeyPair:
        """The first key of a PEM file: base64 of 128 hex digits, the seed and the public key.

        Raises `KeyFormatError` when the text has another form or the two halves do not belong together.
        """
        match = _PEM.match(text)
        if match is None:
            raise KeyFormatError("not a PEM file of a MultiversX key")
        try:
            raw = bytes.fromhex(base64.b64decode("".join(match[2].split()), validate=True).decode("ascii"))
        except (binascii.Error, ValueError):
            raise KeyFormatError("the PEM body is not base64 of hex digits") from None
        if len(raw) != 64:
            raise KeyFormatError("the PEM body does not hold a seed and a public key of 32 bytes each")
        pair = cls.from_seed(raw[:32])
        if pair.public != raw[32:] or encode(pair.public) != match[1]:
            raise KeyFormatError("the PEM file's secret, public key and address do not belong together")
        return pair

    def to_pem(self) -> str:
        """The PEM form that `from_pem` reads."""
        address = encode(self.public)
        body = base64.b64encode((bytes(self._signing).hex() + self.public.hex()).encode()).decode()
        lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
        return f"-----BEGIN PRIVATE KEY for {address}-----\n{lines}\n-----END PRIVATE KEY for {address}-----\n"

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of a message."""
        signed = ffi.new(_BYTES, SIGNATURE_SIZE + len(message))
        if lib.crypto_sign(signed, _NULL, message, len(message), self._signing._signing_key):
            raise RuntimeError("libsodium does not sign")
        return bytes(ffi.buffer(signed, SIGNATURE_SIZE))

    def lock(self) -> bool:
        """Keep the secret out of swap for as long as this process lives; whether the kernel agreed."""
        libc = ctypes.CDLL(None, use_errno=True)
        # The bytes objects themselves, where the library keeps them; a page is never unlocked again.
        return all(
            libc.mlock(ctypes.c_void_p(id(secret)), ctypes.c_size_t(sys.getsizeof(secret))) == 0
            for secret in (self._signing._seed, self._signing._signing_key)
        )

    def __repr__(self) -> str:
        return f"KeyPair({encode(self.public)})"

    def __reduce__(self) -> str:
        raise TypeError("a secret key is never pickled")


def verify(pubkey: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is the key's; small-order keys and non-canonical signatures are refused.

    libsodium's own function: the wrappers around it copy the message twice, into buffers they make for that.
    """
    if len(signature) != SIGNATURE_SIZE or len(pubkey) != 32:
        return False
    signed = signature + message
    return bool(lib.crypto_sign_open(_NULL, _NULL, signed, len(signed), pubkey) == 0)
