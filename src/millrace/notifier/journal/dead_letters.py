"""Payloads that could not be decoded, kept for a person to look at."""

from __future__ import annotations

import base64
import contextlib
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

_encoder = msgspec.json.Encoder()


class DeadLetters:
    """A file of JSON lines: `at` (ms), `remote`, `topic`, `version`, `reason`, `payload` (base64).

    Letters come in transactions: what was added since `begin` stays with `keep`; without that the next `begin` takes it
    back. A file of `max_bytes` or more, `<name>.jsonl`, then becomes `<name>.1.jsonl`, in place of the one before it.
    """

    def __init__(self, directory: Path, max_bytes: int, name: str = "dead-letters") -> None:
        self.path = directory / f"{name}.jsonl"
        self._old = directory / f"{name}.1.jsonl"
        self._max = max_bytes
        self._file: BinaryIO | None = None
        self._kept = 0  # size of the file without what may be taken back

    def begin(self) -> None:
        """Take back what was added and not kept, half a line included; from here on letters belong together."""
        self._take_back()
        if self._file is not None and self._kept >= self._max:
            self.close()
            self.path.replace(self._old)

    def add(self, at: int, remote: str, topic: str, version: int, reason: str, payload: bytes) -> None:
        """Append one letter. It is safe on disk after `sync`."""
        line = {
            "at": at,
            "remote": remote,
            "topic": topic[:256],
            "version": version,
            "reason": reason,
            "payload": base64.b64encode(payload).decode(),
        }
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
            self._kept = self._file.tell()
        left = memoryview(_encoder.encode(line) + b"\n")
        while left:
            left = left[self._file.write(left) :]

    def sync(self) -> None:
        """Return once every letter is on disk."""
        if self._file is not None and self._file.tell() > self._kept:
            os.fsync(self._file.fileno())

    def keep(self) -> None:
        """What is on disk since `begin` stays."""
        if self._file is not None:
            self._kept = self._file.tell()

    def close(self) -> None:
        """What was not kept goes, as far as the disk lets it: nobody was answered for it."""
        with contextlib.suppress(OSError):
            self._take_back()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take_back(self) -> None:
        if self._file is not None and self._file.tell() > self._kept:
            self._file.truncate(self._kept)
            self._file.seek(self._kept)
