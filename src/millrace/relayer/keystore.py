"""Loading the relayer's keys: PEM files or, for development, seeds in the environment.

Only the signing process calls this. Texts of errors name files and variables, never their content.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from millrace.chain.keys import KeyFormatError, KeyPair
from millrace.chain.network import NetworkProfile


class KeyStoreError(Exception):
    """A key cannot be used; the text says which and why."""


def load(
    files: tuple[str, ...], variables: tuple[str, ...], network: NetworkProfile, env: Mapping[str, str]
) -> dict[int, KeyPair]:
    """The key of each shard. Raises `KeyStoreError` unless every shard of the network has exactly one."""
    found: dict[int, KeyPair] = {}
    for name, pair in [
        *((path, _from_file(Path(path))) for path in files),
        *((f"variable {name}", _from_variable(name, env)) for name in variables),
    ]:
        shard = network.shard_of(pair.public)
        if shard in found:
            raise KeyStoreError(f"{name}: shard {shard} has a key already")
        if shard >= network.shards:
            raise KeyStoreError(f"{name}: shard {shard} does not exist in network {network.name}")
        found[shard] = pair
    missing = sorted(set(range(network.shards)) - set(found))
    if found and missing:
        raise KeyStoreError(f"no key for shard {', '.join(map(str, missing))}: one per shard is needed")
    return found


def _from_file(path: Path) -> KeyPair:
    """The key in a PEM file that nobody else can read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise KeyStoreError(f"{path}: cannot be opened ({error.strerror}); a link is not followed") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise KeyStoreError(f"{path}: not a regular file")
        if status.st_uid != os.geteuid():
            raise KeyStoreError(f"{path}: belongs to another user")
        if status.st_mode & 0o077:
            raise KeyStoreError(f"{path}: others can read it; chmod 600 it")
        content = file.read(65_536)
    try:
        return KeyPair.from_pem(content.decode("ascii"))
    except (KeyFormatError, UnicodeDecodeError):
        raise KeyStoreError(f"{path}: not a PEM file of a key") from None


def _from_variable(name: str, env: Mapping[str, str]) -> KeyPair:
    text = env.get(name)
    if text is None:
        raise KeyStoreError(f"variable {name} is not set")
    try:
        return KeyPair.from_seed(bytes.fromhex(text))
    except (KeyFormatError, ValueError):
        raise KeyStoreError(f"variable {name} does not hold 64 hex digits") from None
