"""The secp256k1 key of a peer: read from a file, derived from a seed, or new."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from pathlib import Path

from millrace.runtime.files import replacing

# Order of the curve's group (SEC 2, secp256k1): a secret is 1 .. order - 1.
_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_PEM = re.compile(r"-----BEGIN PRIVATE KEY for \S+-----\s+([A-Za-z0-9+/=\s]+?)-----END PRIVATE KEY for \S+-----")


class IdentityError(ValueError):
    """A key file that cannot be used; the text names it and says what was expected."""


def secret_key(key_file: str, key_seed: str) -> bytes:
    """The 32-byte secret of a peer: `key_file` wins over `key_seed`; with neither it is random."""
    if key_file:
        return _from_file(Path(key_file))
    if key_seed:
        return from_seed(key_seed)
    return generate()


def generate() -> bytes:
    """A new random secret."""
    return (secrets.randbelow(_ORDER - 1) + 1).to_bytes(32, "big")


def from_seed(seed: str) -> bytes:
    """A secret that depends on the text `seed` alone; for local chains and tests."""
    digest = hashlib.sha512(b"millrace gossip identity\x00" + seed.encode()).digest()
    return (int.from_bytes(digest, "big") % (_ORDER - 1) + 1).to_bytes(32, "big")


def _from_file(path: Path) -> bytes:
    """Read the key in `path`, or make one there (mode 0600) if there is no such file."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return _new_in(path)
    except (OSError, UnicodeDecodeError) as error:
        raise IdentityError(f"cannot read the gossip key file {path}: {error}") from error
    return parse_key(text, str(path))


def _new_in(path: Path) -> bytes:
    """A new secret, kept in a file that is there whole or not at all."""
    secret = generate()
    try:
        with replacing(path) as file:
            file.write(f"{secret.hex()}\n".encode())
    except OSError as error:
        error.filename = str(path)  # a write does not name it
        raise
    return secret


def parse_key(text: str, name: str) -> bytes:
    """The secret in the text of a key file: 64 hex digits, or a node's PEM block (base64 of them)."""
    block = _PEM.search(text)
    try:
        digits = base64.b64decode(block.group(1), validate=False).decode() if block else text.strip()
        secret = bytes.fromhex(digits)
    except (ValueError, binascii.Error) as error:
        raise IdentityError(f"{name} holds neither 64 hex digits nor a node's p2p key in PEM") from error
    if len(secret) != 32 or not 0 < int.from_bytes(secret, "big") < _ORDER:
        raise IdentityError(f"{name} holds no secp256k1 secret of 32 bytes")
    return secret
