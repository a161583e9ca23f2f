"""Wallets: who signs. `Wallet` holds a key in memory; whatever has an address and signs bytes will do as well."""

from __future__ import annotations

import base64
import binascii
import inspect
import re
from pathlib import Path
from typing import Any, Protocol

from millrace_client import address as addresses
from millrace_client.errors import WalletError
from millrace_client.transaction import GUARDED, Transaction, replaced

_PEM = re.compile(r"-----BEGIN PRIVATE KEY for (\w+)-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END PRIVATE KEY for \1-----")
_MAX_FILE = 1024 * 1024


class Signer(Protocol):
    """Anything that signs: a hardware wallet, a remote service, an account of the official SDK.

    `address` is bech32 text, or an object with `to_bech32()`. `sign` takes what is to be signed and gives the 64 bytes
    of the signature, or an awaitable of them.
    """

    @property
    def address(self) -> Any: ...

    def sign(self, data: bytes, /) -> Any: ...


class Wallet:
    """An Ed25519 key in memory; `repr` does not show it, and it is never pickled."""

    __slots__ = ("_key", "address", "public")

    def __init__(self, seed: bytes) -> None:
        from nacl.signing import SigningKey

        if len(seed) != 32:
            raise WalletError(f"a secret key has 32 bytes, not {len(seed)}")
        self._key = SigningKey(seed)
        self.public: bytes = bytes(self._key.verify_key)
        """The public key, 32 bytes: the raw address."""
        self.address: str = addresses.encode(self.public)
        """The address as bech32 text."""

    @classmethod
    def generate(cls) -> Wallet:
        """A new random key."""
        import secrets

        return cls(secrets.token_bytes(32))

    @classmethod
    def from_pem(cls, file: str | Path, index: int = 0) -> Wallet:
        """The key with this place in a PEM file. Raises `WalletError`."""
        return cls.from_pem_text(_read(file), index)

    @classmethod
    def from_pem_text(cls, text: str, index: int = 0) -> Wallet:
        """The same of the file's text."""
        found = list(_PEM.finditer(text))
        if not 0 <= index < len(found):
            raise WalletError(f"the PEM file has {len(found)} keys of a MultiversX wallet, none with index {index}")
        try:
            raw = bytes.fromhex(base64.b64decode("".join(found[index][2].split()), validate=True).decode("ascii"))
        except (binascii.Error, ValueError):
            raise WalletError("the PEM file's body is not base64 of hex digits") from None
        wallet = cls(raw[:32])
        if raw[32:] != wallet.public or found[index][1] != wallet.address:
            raise WalletError("the PEM file's secret, public key and address do not belong together")
        return wallet

    @classmethod
    def from_keystore(cls, file: str | Path, password: str, index: int = 0) -> Wallet:
        """The key in a keystore file; of one that holds a mnemonic that with this index. Raises `WalletError`."""
        return cls.from_keystore_text(_read(file), password, index)

    @classmethod
    def from_keystore_text(cls, text: str, password: str, index: int = 0) -> Wallet:
        """The same of the file's text."""
        from millrace_client.keystore import open_keystore

        kind, content = open_keystore(text, password)
        if kind == "mnemonic":
            return cls.from_mnemonic(content.decode("utf-8", "replace"), index)
        if index:
            raise WalletError("the keystore holds one key and no mnemonic: it has no other index than 0")
        if len(content) not in (32, 64):
            raise WalletError("the keystore holds no secret key of 32 bytes")
        return cls(content[:32])

    @classmethod
    def from_mnemonic(cls, words: str, index: int = 0) -> Wallet:
        """The key with this index of a mnemonic. Raises `WalletError`."""
        from millrace_client import mnemonic

        return cls(mnemonic.seed(words, index))

    def sign(self, data: bytes) -> bytes:
        """The 64-byte signature."""
        return bytes(self._key.sign(data).signature)

    def to_pem(self) -> str:
        """The text of a PEM file, unprotected."""
        body = base64.b64encode((bytes(self._key).hex() + self.public.hex()).encode()).decode()
        lines = "\n".join(body[start : start + 64] for start in range(0, len(body), 64))
        return (
            f"-----BEGIN PRIVATE KEY for {self.address}-----\n{lines}\n-----END PRIVATE KEY for {self.address}-----\n"
        )

    def to_keystore(self, password: str) -> str:
        """The text of a keystore file under a password."""
        from millrace_client.keystore import make_keystore

        return make_keystore(bytes(self._key), self.public, self.address, password)

    def __repr__(self) -> str:
        return f"Wallet({self.address})"

    def __reduce__(self) -> str:
        raise TypeError("a secret key is never pickled")


def address_of(signer: Signer) -> str:
    """The bech32 address of whoever signs. Raises `WalletError` when it has none."""
    given = signer.address
    if callable(given):
        given = given()
    text = given if isinstance(given, str) else getattr(given, "to_bech32", lambda: "")()
    if not isinstance(text, str) or not text:
        raise WalletError(f"{type(signer).__name__} has no address: give it one as bech32 text")
    return text


async def sign(tx: Transaction, signer: Signer, guardian: Signer | None = None) -> Transaction:
    """The transaction with the signature of its sender, and of its guardian if it has one. Raises `WalletError`."""
    if tx.sender != address_of(signer):
        raise WalletError(f"the transaction is {tx.sender}'s, and the wallet is {address_of(signer)}")
    if bool(tx.options & GUARDED) != (guardian is not None):
        raise WalletError("a guarded transaction needs the guardian's wallet, and no other one may have it")
    if guardian is not None and tx.guardian != address_of(guardian):
        raise WalletError(f"the guardian is {tx.guardian}, and the guardian's wallet is {address_of(guardian)}")
    message = tx.signing_message()
    signed = replaced(tx, signature=await _signature(signer, message))
    if guardian is None:
        return signed
    return replaced(signed, guardian_signature=await _signature(guardian, message))


def guarded(tx: Transaction, guardian: Signer | None, gas: int) -> Transaction:
    """The transaction of a guarded account, with the `gas` that one costs. Raises `WalletError` for another's."""
    if guardian is None or (tx.options & GUARDED and tx.guardian == address_of(guardian)):
        return tx
    if tx.guardian:
        raise WalletError(f"the guardian is {tx.guardian}, and the guardian's wallet is {address_of(guardian)}")
    limit = tx.gas_limit + gas if tx.gas_limit else 0
    return replaced(tx, options=tx.options | GUARDED, guardian=address_of(guardian), gas_limit=limit)


async def _signature(signer: Signer, message: bytes) -> str:
    made = signer.sign(message)
    if inspect.isawaitable(made):
        made = await made
    if not isinstance(made, bytes) or len(made) != 64:
        raise WalletError(f"{type(signer).__name__} did not give a signature of 64 bytes")
    return made.hex()


def _read(file: str | Path) -> str:
    path = Path(file).expanduser()
    try:
        if path.stat().st_size > _MAX_FILE:
            raise WalletError(f"{path} is too large for a key file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WalletError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WalletError(f"{path} is not a text file") from None
