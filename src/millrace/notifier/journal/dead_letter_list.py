"""The dead letters in the files, as an operator looks at them; nothing here is used while events flow."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

MOST_LISTED = 100
_FILES = (".jsonl", ".1.jsonl")
"""The newer one first."""
_PIECE = 1024 * 1024  # bytes of a file in memory at a time: a letter may be as large as the largest frame
_HEAD = 64 * 1024  # bytes in which all stands that comes before the payload
_PAYLOAD, _END = b',"payload":"', b'"}'


class Letter(msgspec.Struct, frozen=True):
    """A payload that could not be decoded."""

    id: str
    """Its file and where it begins there; another one's as soon as the files were rotated."""
    at: int
    """Milliseconds since the epoch."""
    remote: str
    topic: str
    version: int
    reason: str
    bytes: int


class _Head(msgspec.Struct, frozen=True):
    at: int
    remote: str
    topic: str
    version: int
    reason: str


_decoder = msgspec.json.Decoder(_Head)


def listed(directory: Path, name: str = "dead-letters") -> list[Letter]:
    """The newest letters, newest first. What is no whole line is left out. Raises `OSError`."""
    found: list[Letter] = []
    for number, ending in enumerate(_FILES):
        path = directory / f"{name}{ending}"
        if len(found) < MOST_LISTED and path.exists():
            with path.open("rb") as file:
                letters = (_letter(file, number, start, end) for start, end in _lines(file))
                found += islice(filter(None, letters), MOST_LISTED - len(found))
    return found


def _lines(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Where lines begin and end, the last one first; what stands behind the last newline is none."""
    end, position = -1, file.seek(0, 2)
    while position > 0:
        size = min(_PIECE, position)
        position -= size
        file.seek(position)
        piece = file.read(size)
        at = piece.rfind(b"\n")
        while at >= 0:
            if end >= 0:
                yield position + at + 1, end
            end = position + at
            at = piece.rfind(b"\n", 0, at)
    if end >= 0:
        yield 0, end


def _letter(file: BinaryIO, number: int, start: int, end: int) -> Letter | None:
    """The letter in a line; its payload is not read, and need not be whole."""
    file.seek(start)
    head, payload, _ = file.read(min(_HEAD, end - start)).partition(_PAYLOAD)
    file.seek(max(start, end - len(_END) - 2))
    last = file.read(end - file.tell())
    if not payload or not last.endswith(_END):
        return None
    size = end - start - len(head) - len(_PAYLOAD) - len(_END)
    try:
        known = _decoder.decode(head + b"}")
    except msgspec.DecodeError:
        return None
    fields = {field: getattr(known, field) for field in _Head.__struct_fields__}
    return Letter(f"{number}-{start}", bytes=size // 4 * 3 - last.count(b"="), **fields)


def read(directory: Path, letter: str, name: str = "dead-letters") -> tuple[Letter, bytes] | None:
    """A letter by its id, with its payload; `None` where there is none. Raises `OSError`."""
    number, _, offset = letter.partition("-")
    if number not in ("0", "1") or not (offset.isascii() and offset.isdigit() and len(offset) <= 15):
        return None
    path = directory / f"{name}{_FILES[int(number)]}"
    if not path.exists():
        return None
    with path.open("rb") as file:
        start = file.seek(int(offset))
        line = file.readline()
        found = _letter(file, int(number), start, start + len(line) - 1) if line.endswith(b"\n") else None
    if found is None:
        return None
    payload = line.partition(_PAYLOAD)[2].removesuffix(_END + b"\n")
    try:
        return found, base64.b64decode(payload, validate=True)
    except ValueError:
        return None
