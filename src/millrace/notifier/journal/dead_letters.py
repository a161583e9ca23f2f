"""Payloads that could not be decoded, kept for a person to look at."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

_encoder = msgspec.json.Encoder()


class DeadLetters:
    """A file of JSON lines: `at` (ms), `remote`, `topic`, `version`, `reason`, `payload` (base64).

    At `max_bytes` the file `<name>.jsonl` becomes `<name>.1.jsonl`, in place of the one before it.
    """

    def __init__(self, directory: Path, max_bytes: int, name: str = "dead-letters") -> None:
        self.path = directory / f"{name}.jsonl"
        self._old = directory / f"{name}.1.jsonl"
        self._max = max_bytes
        self._file: BinaryIO | None = None
        self._synced = 0  # size of the file when it was last known to be on disk

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
        file = self._ready_file()
        left = memoryview(_encoder.encode(line) + b"\n")
        while left:
            left = left[file.write(left) :]

    def _ready_file(self) -> BinaryIO:
        if self._file is not None and self._file.tell() >= self._max:
            self.close()
            self.path.replace(self._old)
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
            self._synced = self._file.tell()
        return self._file

    def sync(self) -> None:
        """Return once every letter is on disk."""
        if self._file is not None and self._file.tell() > self._synced:
            os.fsync(self._file.fileno())
            self._synced = self._file.tell()

    def undo(self) -> None:
        """Take back what was added since the last `sync`, half a line included."""
        if self._file is not None:
            self._file.truncate(self._synced)
            self._file.seek(self._synced)

    def close(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None
