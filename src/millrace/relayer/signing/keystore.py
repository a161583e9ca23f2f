"""Loading the relayer's keys: PEM files, encrypted keystore files (JSON) or, for development, the environment.

Only the signing process loads secrets. Texts of errors name files and variables, never their content. The
keystore format is that of MultiversX wallets, version 4: scrypt, AES-128-CTR, HMAC-SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from Crypto.Cipher import AES

from millrace.chain import address
from millrace.chain.keys import KeyFormatError, KeyPair
from millrace.chain.network import NetworkProfile

MAX_FILE = 65_536
MAX_HEAD = 256
"""Bytes of a PEM file's first line."""
MAX_SCRYPT_MEMORY = 256 * 1024 * 1024
SEED = 32
"""Bytes of a secret key's seed, and of the public key that stands behind it."""
_PEM_HEAD = "-----BEGIN PRIVATE KEY for "


class KeyStoreError(Exception):
    """A key cannot be used; the text says which and why."""


class _KdfParams(msgspec.Struct, frozen=True):
    dklen: int
    salt: str
    n: int
    r: int
    p: int


class _CipherParams(msgspec.Struct, frozen=True):
    iv: str


class _Crypto(msgspec.Struct, frozen=True):
    ciphertext: str
    cipherparams: _CipherParams
    cipher: Literal["aes-128-ctr"]
    kdf: Literal["scrypt"]
    kdfparams: _KdfParams
    mac: str


class _KeystoreFile(msgspec.Struct, frozen=True):
    version: Literal[4]
    crypto: _Crypto
    kind: Literal["secretKey"] = "secretKey"


class _Named(msgspec.Struct, frozen=True):
    """What a keystore file says of itself without being decrypted."""

    bech32: str = ""
    address: str = ""


def load(
    files: tuple[str, ...],
    variables: tuple[str, ...],
    network: NetworkProfile,
    env: Mapping[str, str],
    passphrase_file: str = "",
) -> dict[int, KeyPair]:
    """The key of each shard. Raises `KeyStoreError` unless every shard of the network has exactly one."""
    found: dict[int, KeyPair] = {}
    for name, pair in [
        *((path, _from_file(path, passphrase_file)) for path in files),
        *((f"variable {name}", _from_variable(name, env)) for name in variables),
    ]:
        shard = network.shard_of(pair.public)
        if shard in found:
            raise KeyStoreError(f"{name}: shard {shard} has a key already")
        if shard >= network.shards:
            raise KeyStoreError(f"{name}: shard {shard} does not exist in network {network.name}")
        found[shard] = pair
    missing = sorted(set(range(network.shards)) - set(found))
    if missing:
        raise KeyStoreError(f"no key for shard {', '.join(map(str, missing))}: one per shard is needed")
    return found


def public_keys(files: tuple[str, ...], variables: tuple[str, ...] = ()) -> list[bytes]:
    """Whose key each file holds, by the address it names in clear: no secret is read but those of variables.

    Raises `KeyStoreError`.
    """
    found = [_from_variable(name, os.environ).public for name in variables]
    for path in files:
        try:
            with Path(path).open("rb") as file:
                head = file.read(MAX_FILE) if path.endswith(".json") else file.readline(MAX_HEAD)
            found.append(address.decode(_address_in(path, head)))
        except OSError as error:
            raise KeyStoreError(f"{path}: cannot be opened ({error.strerror})") from None
        except (ValueError, msgspec.DecodeError):
            raise KeyStoreError(f"{path}: does not say whose key it is") from None
    return found


def _address_in(path: str, head: bytes) -> str:
    if not path.endswith(".json"):
        return head.decode("ascii").strip().removeprefix(_PEM_HEAD).removesuffix("-----")
    named = msgspec.json.decode(head, type=_Named)
    return named.bech32 or address.encode(bytes.fromhex(named.address))


def _from_file(path: str, passphrase_file: str) -> KeyPair:
    content = _read_private(Path(path))
    if path.endswith(".json"):
        if not passphrase_file:
            raise KeyStoreError(f"{path}: needs key_passphrase_file")
        return _decrypt(path, content, _read_private(Path(passphrase_file)).rstrip(b"\r\n"))
    try:
        return KeyPair.from_pem(content.decode("ascii"))
    except (KeyFormatError, UnicodeDecodeError):
        raise KeyStoreError(f"{path}: not a PEM file of a key") from None


def _read_private(path: Path) -> bytes:
    """The content of a regular file that belongs to us and that nobody else can read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise KeyStoreError(f"{path}: cannot be opened ({error.strerror}); a link is not followed") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyStoreError(f"{path}: not a regular file")
        if status.st_uid != os.geteuid():
            raise KeyStoreError(f"{path}: belongs to another user")
        if status.st_mode & 0o077:
            raise KeyStoreError(f"{path}: others can read it; chmod 600 it")
        return os.read(descriptor, MAX_FILE)
    finally:
        os.close(descriptor)


def _decrypt(path: str, content: bytes, passphrase: bytes) -> KeyPair:
    try:
        crypto = msgspec.json.decode(content, type=_KeystoreFile).crypto
        params = crypto.kdfparams
        derived = hashlib.scrypt(
            passphrase,
            salt=bytes.fromhex(params.salt),
            n=params.n,
            r=params.r,
            p=params.p,
            dklen=params.dklen,
            maxmem=MAX_SCRYPT_MEMORY,
        )
        counter = int.from_bytes(bytes.fromhex(crypto.cipherparams.iv), "big")
        cipher = AES.new(derived[:16], AES.MODE_CTR, nonce=b"", initial_value=counter)
        ciphertext, mac = bytes.fromhex(crypto.ciphertext), bytes.fromhex(crypto.mac)
    except (
        msgspec.DecodeError,
        ValueError,
        TypeError,
        OverflowError,
    ):  # the last two of numbers that scrypt cannot take
        raise KeyStoreError(f"{path}: not a keystore file of a secret key, version 4") from None
    if not hmac.compare_digest(hmac.digest(derived[16:32], ciphertext, "sha256"), mac):
        raise KeyStoreError(f"{path}: wrong passphrase, or a damaged file")
    plain = cipher.decrypt(ciphertext)
    pair = KeyPair.from_seed(plain[:SEED]) if len(plain) == 2 * SEED else None
    if pair is None or pair.public != plain[SEED:]:
        raise KeyStoreError(f"{path}: its secret and public key do not belong together")
    return pair


def _from_variable(name: str, env: Mapping[str, str]) -> KeyPair:
    text = env.get(name)
    if text is None:
        raise KeyStoreError(f"variable {name} is not set")
    try:
        return KeyPair.from_seed(bytes.fromhex(text))
    except (KeyFormatError, ValueError):
        raise KeyStoreError(f"variable {name} does not hold 64 hex digits") from None
