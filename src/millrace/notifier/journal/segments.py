"""The files of the journal's log: commits, one behind the other, each whole or not at all.

A file begins with its head: what it is, the number of its first commit, the sequence of its first event, and a salt.
A commit is a head, what it changed in the memory of the rules, and its events. Checksums begin with the salt, which no
node knows: nothing in a payload is ever taken for a commit.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from millrace.notifier.journal.rows import checksum
from millrace.notifier.occasional import OccasionalLog
from millrace.notifier.rules.entry import Entry
from millrace.runtime import files

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

log = logging.getLogger(__name__)
_log_bad_sector = OccasionalLog(log, logging.ERROR, "the disk cannot read a part of the journal")

_FORMAT = b"mill log 1\n\0\0\0\0\0"
_FILE = struct.Struct("<16sQQII")  # format, number of the first commit, sequence of the first event, salt, checksum
FILE_HEAD = _FILE.size
_MARK = b"\xc7MLC"
_COMMIT = struct.Struct("<4sIIIQQQQQQ")
"""Mark, checksum of what follows and of the changes, bytes of changes, events, and the numbers of `Commit`."""
_EVENT = struct.Struct("<IQIIQBH")  # checksum, bytes of payload, shard, marks, received, bytes of topic and of id
_MAX_PARTS = 512  # in one call to the system, which takes 1,024
_SECTOR = 4096  # bytes that a disk gives or refuses together
_READ_AHEAD = 8192  # bytes; heads of small commits are read together, and little is read in vain before large ones


class SegmentDamaged(ValueError):
    """A file of the log is not what was written; the text says which and where."""


def path_of(directory: Path, number: int, first: int) -> Path:
    """The file that begins with the commit `number` and the event `first`."""
    return directory / f"{number:020}-{first:020}.log"


class Place(NamedTuple):
    """Where a commit begins."""

    segment: int
    offset: int


class Commit(NamedTuple):
    """The head of a commit, and what it changed in the memory of the rules."""

    number: int
    """Each commit has one more than the one before."""
    first: int
    """The sequence of its first event, or of the next to come."""
    size: int
    """Bytes of its events, heads included."""
    oldest: int
    """The oldest sequence that the journal keeps."""
    kept: int
    """Bytes of the payloads that the journal keeps."""
    horizon: int
    """What the rules heard of before this sequence is forgotten."""
    events: int = 0
    """How many."""
    changes: bytes = b""

    @property
    def next(self) -> int:
        """The sequence behind it."""
        return self.first + self.events

    @property
    def length(self) -> int:
        """Bytes in the file."""
        return _COMMIT.size + len(self.changes) + self.size


class Segment:
    """One file of the log."""

    def __init__(self, path: Path, number: int, first: int, salt: int, size: int) -> None:
        self.path = path
        self.number = number
        """Of its first commit."""
        self.first = first
        """The sequence of its first event."""
        self.salt = salt
        self.size = size
        """Bytes that are committed."""

    @classmethod
    def create(cls, directory: Path, number: int, first: int) -> Segment:
        """A new file, safe on disk. One of that name is what an attempt before left, and holds no commit."""
        path = path_of(directory, number, first)
        salt = int.from_bytes(os.urandom(4))
        head = _FILE.pack(_FORMAT, number, first, salt, 0)[:-4]
        with path.open("wb") as file:
            file.write(head + zlib.crc32(head).to_bytes(4, "little"))
            file.flush()
            os.fsync(file.fileno())
        files.sync(directory)
        return cls(path, number, first, salt, FILE_HEAD)

    @classmethod
    def open(cls, path: Path) -> Segment:
        """A file that is there. Raises `SegmentDamaged` when it has no whole head."""
        with path.open("rb") as file:
            head = file.read(FILE_HEAD)
        if len(head) == FILE_HEAD and zlib.crc32(head[:-4]).to_bytes(4, "little") == head[-4:]:
            form, number, first, salt, _ = _FILE.unpack(head)
            if form == _FORMAT and path == path_of(path.parent, number, first):
                return cls(path, number, first, salt, path.stat().st_size)
        raise SegmentDamaged(f"{path.name} does not begin as a file of the log does")

    def read(self) -> BinaryIO:
        return self.path.open("rb", buffering=_READ_AHEAD)

    def read_past_bad_sectors(self) -> BinaryIO:
        """What the disk cannot give reads as zeros, which no checksum takes for what was written.

        Not for who cuts a log behind its last whole commit: there may be more behind what cannot be read.
        """
        return io.BufferedReader(_PastBadSectors(self.path), _READ_AHEAD)

    def commit_at(self, file: BinaryIO, offset: int) -> Commit | None:
        """The commit that begins there, if one does and lies within what is committed. Its events are not checked."""
        file.seek(offset)
        head = file.read(_COMMIT.size)
        if len(head) < _COMMIT.size or head[:4] != _MARK:
            return None
        _, check, changed, events, number, first, size, oldest, kept, horizon = _COMMIT.unpack(head)
        if offset + _COMMIT.size + changed + size > self.size:
            return None
        changes = file.read(changed)
        if zlib.crc32(changes, zlib.crc32(head[8:], self.salt)) != check:
            return None
        return Commit(number, first, size, oldest, kept, horizon, events, changes)

    def find_commit(self, file: BinaryIO, offset: int) -> tuple[int, Commit] | None:
        """The next commit that begins there or behind, whatever stands before it."""
        file.seek(offset)
        rest = file.read(self.size - offset)
        at = rest.find(_MARK)
        while at >= 0:
            commit = self.commit_at(file, offset + at)
            if commit is not None:
                return offset + at, commit
            at = rest.find(_MARK, at + 1)
        return None

    def encode(self, commit: Commit, events: Sequence[Entry]) -> tuple[Commit, list[bytes]]:
        """A commit with these events, and its bytes in parts."""
        parts: list[bytes] = []
        for entry in events:
            topic, name = entry.topic.encode(), entry.message_id.encode()
            size, shard, marks, at = len(entry.payload), entry.shard, entry.marks, entry.received_ms
            head = _EVENT.pack(checksum(entry), size, shard, marks, at, len(topic), len(name))
            parts += (head + topic + name, entry.payload)
        commit = commit._replace(size=sum(map(len, parts)), events=len(events))
        numbers = _COMMIT.pack(_MARK, 0, len(commit.changes), commit.events, *commit[:6])[8:]
        check = zlib.crc32(commit.changes, zlib.crc32(numbers, self.salt))
        return commit, [_MARK + check.to_bytes(4, "little") + numbers + commit.changes, *parts]


class _PastBadSectors(io.RawIOBase):
    """A file for reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}
        self._at = offset + (begin[whence] if whence in begin else os.fstat(self._descriptor).st_size)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        try:
            count = os.preadv(self._descriptor, [view], self._at)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            count = self._read_sector(view)
        self._at += count
        return count

    def _read_sector(self, view: memoryview) -> int:
        """Up to the end of one: a read of many fails for any of them."""
        view = view[: _SECTOR - self._at % _SECTOR]
        try:
            return os.preadv(self._descriptor, [view], self._at)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            _log_bad_sector(file=str(self._path), at=self._at)
            count = min(len(view), os.fstat(self._descriptor).st_size - self._at)
            view[:count] = bytes(count)
            return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class EventHead(NamedTuple):
    """What stands before the payload of an event."""

    sequence: int
    size: int
    """Bytes of payload."""
    received_ms: int
    checksum: int
    shard: int
    marks: int
    names: bytes
    """Topic and id, one behind the other."""
    topic_size: int

    def entry(self, payload: bytes) -> Entry | None:
        """The event, if it is what was written."""
        try:
            topic, name = self.names[: self.topic_size].decode(), self.names[self.topic_size :].decode()
        except UnicodeDecodeError:
            return None
        entry = Entry(self.sequence, topic, self.shard, self.marks, name, self.received_ms, payload)
        return entry if len(payload) == self.size and checksum(entry) == self.checksum else None


def event_heads(file: BinaryIO, offset: int, commit: Commit) -> Iterator[EventHead | None]:
    """The events of the commit at `offset`; `None` for those that cannot be found.

    When one has been taken the file stands at its payload.
    """
    at = offset + commit.length - commit.size
    end = offset + commit.length
    for sequence in range(commit.first, commit.next):
        file.seek(at)
        head = file.read(_EVENT.size)
        if at + _EVENT.size <= end and len(head) == _EVENT.size:
            check, size, shard, marks, received, topic, name = _EVENT.unpack(head)
            at += _EVENT.size + topic + name + size
            if at <= end:
                yield EventHead(sequence, size, received, check, shard, marks, file.read(topic + name), topic)
                continue
        at = end  # where the next one begins is not known any more
        yield None


def events_of(file: BinaryIO, offset: int, commit: Commit, after: int = 0) -> Iterator[tuple[int, Entry | None]]:
    """Sequence and event of those in the commit at `offset` that follow `after`; `None` for what is damaged."""
    for sequence, head in enumerate(event_heads(file, offset, commit), commit.first):
        if sequence > after:
            yield sequence, None if head is None else head.entry(file.read(head.size))


def write_all(descriptor: int, parts: Sequence[bytes], offset: int) -> None:
    """Write the parts to a file, and return once they are on the disk. Raises `OSError`; some may be written then."""
    for start in range(0, len(parts), _MAX_PARTS):
        group = parts[start : start + _MAX_PARTS]
        size = sum(map(len, group))
        written = os.pwritev(descriptor, group, offset)
        if written < size:  # a disk that is nearly full: the next call says so
            rest = memoryview(b"".join(group))
            while written < size:
                written += os.pwrite(descriptor, rest[written:], offset + written)
        offset += size
    os.fdatasync(descriptor)
