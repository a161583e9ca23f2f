"""The dead letters in the files, as an operator looks at them; nothing here is used while events flow."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import BinaryIO

import msgspec

TAIL_BYTES = 16 * 1024 * 1024
"""Of the end of each file: what is listed."""
MOST_LISTED = 100
_FILES = (".jsonl", ".1.jsonl")
"""The newer one first."""


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


class _Line(msgspec.Struct, frozen=True):
    at: int
    remote: str
    topic: str
    version: int
    reason: str
    payload: str


_decoder = msgspec.json.Decoder(_Line)


def listed(directory: Path, name: str = "dead-letters") -> list[Letter]:
    """The newest letters, newest first. What is no whole line is left out. Raises `OSError`."""
    found: list[Letter] = []
    for number, ending in enumerate(_FILES):
        path = directory / f"{name}{ending}"
        if len(found) < MOST_LISTED and path.exists():
            with path.open("rb") as file:
                found += reversed(_tail(file, number))
    return found[:MOST_LISTED]


def _tail(file: BinaryIO, number: int) -> list[Letter]:
    start = max(0, file.seek(0, 2) - TAIL_BYTES)
    file.seek(start)
    if start:
        file.readline()  # its beginning is not here
    letters: list[Letter] = []
    while True:
        at = file.tell()
        line = file.readline()
        if not line.endswith(b"\n"):
            return letters[-MOST_LISTED:]
        try:
            letters.append(_letter(f"{number}-{at}", _decoder.decode(line)))
        except msgspec.DecodeError:
            continue


def read(directory: Path, letter: str, name: str = "dead-letters") -> tuple[Letter, bytes] | None:
    """A letter by its id, with its payload; `None` where there is none. Raises `OSError`."""
    number, _, offset = letter.partition("-")
    if number not in ("0", "1") or not (offset.isascii() and offset.isdigit() and len(offset) <= 15):
        return None
    path = directory / f"{name}{_FILES[int(number)]}"
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(int(offset))
        try:
            line = _decoder.decode(file.readline())
            return _letter(letter, line), base64.b64decode(line.payload, validate=True)
        except (msgspec.DecodeError, ValueError):
            return None


def _letter(name: str, line: _Line) -> Letter:
    size = len(line.payload) // 4 * 3 - line.payload[-2:].count("=")
    return Letter(name, line.at, line.remote, line.topic, line.version, line.reason, size)
