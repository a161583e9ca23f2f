"""Small files with a checksum, each replaced as a whole."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeVar

import msgspec

from millrace.runtime import files

T = TypeVar("T", bound=msgspec.Struct)

MAX_SEALED = 1 << 20
"""Bytes of such a file that are read; theirs are some hundred."""


class _Sealed(msgspec.Struct, frozen=True):
    check: str
    """SHA-256 of the body."""
    body: msgspec.Raw


class NotWhole(ValueError):
    """The file is there and is not as it was written."""


def write_sealed(path: Path, body: msgspec.Struct) -> None:
    """Put `body` in the place of the file; on disk when this returns. Raises `OSError`, then the old one stands."""
    raw = msgspec.json.encode(body)
    with files.replacing(path) as file:
        file.write(msgspec.json.encode(_Sealed(hashlib.sha256(raw).hexdigest(), msgspec.Raw(raw))) + b"\n")


def read_sealed(path: Path, kind: type[T]) -> T:
    """What `write_sealed` put there. Raises `OSError`, or `NotWhole`."""
    with path.open("rb") as file:
        data = file.read(MAX_SEALED)
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if hashlib.sha256(sealed.body).hexdigest() != sealed.check:
            raise NotWhole(f"{path}: its checksum does not fit")
        return msgspec.json.decode(sealed.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotWhole(f"{path}: {error}") from None
