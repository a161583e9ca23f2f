"""Keystore files: a secret key or a mnemonic in JSON, under a password (scrypt, AES-128-CTR, HMAC-SHA256)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from typing import Any

import msgspec

from millrace_client.aes import counter_mode
from millrace_client.errors import WalletError

_N, _R, _P, _KEY_BYTES = 4096, 8, 1, 32  # as official wallets write them
_MAX_N, _MAX_MEMORY = 1 << 20, 256 * 1024 * 1024
"""What a file may ask of this machine: a wrong or hostile one must not take all of its memory."""


class _Kdf(msgspec.Struct):
    salt: str
    n: int
    r: int
    p: int
    dklen: int


class _CipherParameters(msgspec.Struct):
    iv: str


class _Crypto(msgspec.Struct):
    ciphertext: str
    cipherparams: _CipherParameters
    cipher: str
    kdf: str
    kdfparams: _Kdf
    mac: str


class _Keystore(msgspec.Struct):
    crypto: _Crypto
    kind: str = "secretKey"


def open_keystore(text: str | bytes, password: str) -> tuple[str, bytes]:
    """Kind (`secretKey` or `mnemonic`) and content of a keystore's text. Raises `WalletError`."""
    try:
        stored = msgspec.json.decode(text, type=_Keystore)
        crypto = stored.crypto
        ciphertext, mac = bytes.fromhex(crypto.ciphertext), bytes.fromhex(crypto.mac)
        salt, first = bytes.fromhex(crypto.kdfparams.salt), bytes.fromhex(crypto.cipherparams.iv)
    except (msgspec.MsgspecError, ValueError):
        raise WalletError("not a keystore file: it lacks parts, or they are no hex digits") from None
    if crypto.kdf != "scrypt" or crypto.cipher != "aes-128-ctr" or stored.kind not in ("secretKey", "mnemonic"):
        raise WalletError(f"a keystore of kind {stored.kind} with {crypto.kdf} and {crypto.cipher} cannot be read")
    if len(first) != 16 or len(ciphertext) > 4096:
        raise WalletError("not a keystore file: its counter or its content has an impossible length")
    key = _stretched(password, salt, crypto.kdfparams)
    if not hmac.compare_digest(hmac.digest(key[16:32], ciphertext, "sha256"), mac):
        raise WalletError("the keystore's password is wrong")
    return stored.kind, counter_mode(key[:16], first, ciphertext)


def make_keystore(seed: bytes, public: bytes, bech32: str, password: str) -> str:
    """The keystore text of a secret key."""
    salt, first = secrets.token_bytes(32), secrets.token_bytes(16)
    parameters = _Kdf(salt.hex(), _N, _R, _P, _KEY_BYTES)
    key = _stretched(password, salt, parameters)
    ciphertext = counter_mode(key[:16], first, seed + public)
    crypto = _Crypto(
        ciphertext.hex(),
        _CipherParameters(first.hex()),
        "aes-128-ctr",
        "scrypt",
        parameters,
        hmac.digest(key[16:32], ciphertext, "sha256").hex(),
    )
    body: dict[str, Any] = {"version": 4, "kind": "secretKey", "id": str(uuid.uuid4())}
    body |= {"address": public.hex(), "bech32": bech32, "crypto": crypto}
    return msgspec.json.format(msgspec.json.encode(body), indent=4).decode()


def _stretched(password: str, salt: bytes, kdf: _Kdf) -> bytes:
    if kdf.n > _MAX_N or 128 * kdf.n * kdf.r > _MAX_MEMORY or kdf.p > 16 or not 32 <= kdf.dklen <= 64:
        raise WalletError("the keystore asks for more memory or time than any wallet does; it is not opened")
    try:
        return hashlib.scrypt(
            password.encode(), salt=salt, n=kdf.n, r=kdf.r, p=kdf.p, dklen=kdf.dklen, maxmem=2 * _MAX_MEMORY
        )
    except ValueError:
        raise WalletError("not a keystore file: scrypt has no such parameters") from None
