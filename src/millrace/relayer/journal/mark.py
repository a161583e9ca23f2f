"""The mark: up to which commit of the journal anything was acknowledged or signed, in a file of its own.

It is written after each commit that changed something and before anybody hears of it: one write of some 90 bytes that
is on disk when it returns. So the journal is at the mark, or one commit past it when the process ended in between; a
journal that ends before it has lost something that was promised, and one further past it belongs to another mark.

Where nobody can put back the mark together with the journal (`mark_path` on another disk) it also tells a folder that
was put back as a whole.
"""

from __future__ import annotations

import contextlib
import os
import struct
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from millrace.relayer.journal.chain import NO_HEAD, Link
from millrace.runtime import files

FILE = "mark"
"""Its name where no other place is set."""

_MAGIC = b"millrace"
_SLOT = struct.Struct(">8s16sQ32s")
_CHECK_BYTES = 16
_SLOT_BYTES = 4096
"""Two slots take turns, so that a write that was cut off leaves the one before: a block of the disk each."""
_FILE_BYTES = 2 * _SLOT_BYTES


class MarkError(Exception):
    """The mark cannot be used, or the journal is not the one it belongs to; the text says why."""


class Seen(NamedTuple):
    """The last commit that was acknowledged; number 0 before the first."""

    sequence: int
    head: bytes


NOTHING = Seen(0, NO_HEAD)


class Mark:
    """The file of one data directory. `open` it, then `write` to it; `close` it last."""

    def __init__(self, path: Path, writer: str) -> None:
        self.path = path
        self.writer = writer
        self._writer = bytes.fromhex(writer)
        self._file = -1

    def make(self, seen: Seen) -> None:
        """Make the file, or put it anew in the place of another. Raises `OSError`."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.replacing(self.path) as file:
            file.write(self._slot(seen).ljust(_SLOT_BYTES, b"\0") * 2)

    def read(self) -> Seen:
        """What was acknowledged last. Raises `MarkError`."""
        try:
            with self.path.open("rb") as file:
                data = file.read(_FILE_BYTES + 1)
        except FileNotFoundError:
            raise MarkError(f"{self.path}, which says what was acknowledged, is missing") from None
        except OSError as error:
            raise MarkError(f"{self.path}: {error.strerror}: let this user read and write it") from None
        found = [self._seen(data[start : start + _SLOT.size + _CHECK_BYTES]) for start in (0, _SLOT_BYTES)]
        if len(data) != _FILE_BYTES or found == [None, None]:
            raise MarkError(f"{self.path}, which says what was acknowledged, is damaged")
        return max(seen for seen in found if seen is not None)

    def open(self) -> None:
        """Begin to write. Raises `OSError`."""
        self._file = os.open(self.path, os.O_WRONLY | os.O_DSYNC)

    def write(self, link: Link) -> None:
        """Have a commit acknowledged; on disk when it returns. Raises `OSError`."""
        data = self._slot(Seen(link.sequence, link.head))
        if os.pwrite(self._file, data, link.sequence % 2 * _SLOT_BYTES) != len(data):
            raise OSError("the mark was written in part")

    def close(self) -> None:
        """Write no more."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _slot(self, seen: Seen) -> bytes:
        data = _SLOT.pack(_MAGIC, self._writer, seen.sequence, seen.head)
        return data + blake2b(data, digest_size=_CHECK_BYTES).digest()

    def _seen(self, data: bytes) -> Seen | None:
        """What a slot says; `None` if it is damaged. Raises `MarkError` for another folder's."""
        content, check = data[: _SLOT.size], data[_SLOT.size :]
        if len(content) < _SLOT.size or blake2b(content, digest_size=_CHECK_BYTES).digest() != check:
            return None
        magic, writer, sequence, head = _SLOT.unpack(content)
        if magic != _MAGIC:
            return None
        if writer != self._writer:
            raise MarkError(
                f"{self.path} belongs to the data directory {writer.hex()}, and this one is {self._writer.hex()}"
            )
        return Seen(sequence, head)


def check_holds(seen: Seen, link: Link | None) -> None:
    """Whether a journal with this last link holds all that was acknowledged. Raises `MarkError`."""
    if seen.sequence == 0:
        return
    if link is None:
        raise MarkError("the journal is of a time before its mark: it is an older copy")
    if link.sequence < seen.sequence:
        raise MarkError(
            f"the journal ends at commit {link.sequence}, and commit {seen.sequence} was acknowledged: its log "
            "(journal.sqlite-wal) is missing or damaged, or it is an older copy"
        )
    before = link.head if link.sequence == seen.sequence else link.before
    if link.sequence <= seen.sequence + 1 and before != seen.head:
        raise MarkError(f"commit {seen.sequence} of the journal is not the one that was acknowledged")


def check_is_newest(seen: Seen, link: Link | None) -> None:
    """Whether the mark of a journal that nobody writes is its own. Raises `MarkError`."""
    check_holds(seen, link)
    check_has_followed(seen, link)


def check_has_followed(seen: Seen, link: Link | None) -> None:
    """Whether a mark that was read after its journal, which may be written, is no older copy. Raises `MarkError`."""
    if link is not None and link.sequence > seen.sequence + 1:
        raise MarkError(
            f"the mark says that commit {seen.sequence} was acknowledged last, and the journal is at {link.sequence}: "
            "the mark is an older copy"
        )
