"""The log of the journal: every commit appended to the newest of a row of files, and synced.

One thread writes. Others read what is committed: `Log.end` moves once a commit is on disk, and nobody looks behind it.
Files go from the front, whole, once nothing in them is wanted. A write that a crash cut off is taken away at the next
start; whatever else is not as it was written is refused where the memory of the rules would suffer, and otherwise told
as events that are damaged.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from millrace.notifier.journal import segments
from millrace.notifier.journal.segments import FILE_HEAD, Commit, Place, Segment, SegmentDamaged
from millrace.notifier.rules.entry import Entry
from millrace.runtime import files

log = logging.getLogger(__name__)

SEGMENT_BYTES = 16 * 1024 * 1024  # from which the next commit begins a new file
_KNOWN_PLACES = 256  # where readers stopped


class Log:
    """The files in one directory, and the state that the newest commit tells."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments: tuple[Segment, ...] = ()
        """Oldest first; replaced as a whole, as other threads look at it."""
        self.end = Commit(0, 0, 0, 0, 0, 0)
        """The newest commit."""
        self.oldest = 0
        """The oldest sequence that readers get."""
        self.bytes = 0
        """How long the files are together."""
        self._descriptor = -1
        self._unfinished = False  # behind the newest commit stands part of another
        self._begun: Path | None = None  # a new file that was made in vain, or in part

    # Start and end.

    def begin(self, first: int, horizon: int) -> None:
        """Make a new log whose first event will have the sequence `first`. Raises `SegmentDamaged` if one is there."""
        self.directory.mkdir(exist_ok=True)
        left = segments.path_of(self.directory, 1, first)  # by a start that came no further
        if others := [path.name for path in sorted(self.directory.glob("*.log")) if path != left]:
            raise SegmentDamaged(f"the log's file {others[0]} and others belong to other tables")
        files.sync(self.directory.parent)
        self.end = Commit(0, first, 0, first, 0, horizon)
        self.oldest = first
        self.roll()

    def recover(self, start: Place, number: int, newest_file: int) -> Iterator[tuple[Place, Commit]]:
        """Open the log that is there; gives the commits from `start` on, and the log can be used once it has all.

        `number` is one that the log has had for certain, and `newest_file` a file. Raises `SegmentDamaged`.
        """
        found = sorted(self.directory.glob("*.log"))
        if not found or _number(found[-1]) < newest_file:
            raise SegmentDamaged(f"the file {newest_file:020}-… of the log is missing")
        self.segments = self._open_all(found, newest_file)
        self._descriptor = os.open(self.segments[-1].path, os.O_RDWR)
        wanted = [segment for segment in self.segments if segment.number >= start.segment]
        if not wanted or wanted[0].number != start.segment:
            raise SegmentDamaged(f"the file {start.segment:020}-… of the log is missing")
        self.end = Commit(wanted[0].number - 1, wanted[0].first, 0, wanted[0].first, 0, wanted[0].first)
        begins = True
        for segment in wanted:
            if not begins and (segment.number, segment.first) != (self.end.number + 1, self.end.next):
                raise SegmentDamaged(f"between {self.end.number} and {segment.path.name} commits are missing")
            offset = start.offset if begins else FILE_HEAD
            for place, commit in self._walk(segment, offset, checked=not (begins and offset > FILE_HEAD)):
                self.end = commit
                yield place, commit
            begins = False
        if self.end.number < number:
            raise SegmentDamaged(f"the log ends with commit {self.end.number}, and had {number}")
        self.oldest = self.end.oldest
        self.bytes = sum(segment.size for segment in self.segments)
        # A process that was killed between writing and syncing leaves a commit that only memory has. It counts from now
        # on: its nodes are answered at once when they send it again.
        os.fsync(self._descriptor)

    def _open_all(self, paths: Sequence[Path], newest_file: int) -> tuple[Segment, ...]:
        """The files; a newest one of which nobody took note holds no commit, whole head or not, and goes.

        The file before it may have gone on, and then this one does not follow it any more.
        """
        newest = paths[-1]
        if _number(newest) > newest_file and newest.stat().st_size <= FILE_HEAD:
            newest.unlink()
            files.sync(self.directory)
            paths = paths[:-1]
        return tuple(map(Segment.open, paths))

    def _walk(self, segment: Segment, offset: int, *, checked: bool) -> Iterator[tuple[Place, Commit]]:
        """The commits of a file from `offset` on; `checked`: the first follows `end`.

        Behind the last one of the newest file may stand what is left of a write, or that one may be it.
        """
        last: tuple[Place, Commit] | None = None
        before = self.end if checked else None
        with segment.read() as file:
            while (commit := segment.commit_at(file, offset)) is not None:
                if before and (commit.number, commit.first) != (before.number + 1, before.next):
                    raise SegmentDamaged(f"{segment.path.name} has commit {commit.number} behind {before.number}")
                if last:
                    yield last
                last = Place(segment.number, offset), commit
                before = commit
                offset += commit.length
            if segment is self.newest and segment.find_commit(file, offset + 1) is None:
                if last and not all(entry for _, entry in segments.events_of(file, last[0].offset, last[1])):
                    offset, last = last[0].offset, None
                self._cut(segment, offset)
        if offset < segment.size:
            raise SegmentDamaged(f"{segment.path.name} is damaged at byte {offset}")
        if last:
            yield last

    def _cut(self, segment: Segment, offset: int) -> None:
        """Take away what stands behind the last whole commit."""
        if offset == segment.size:
            return
        log.warning(
            "a write that was never finished is taken back",
            extra={"file": segment.path.name, "bytes": segment.size - offset},
        )
        segment.size = offset
        os.ftruncate(self._descriptor, offset)
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # Writing.

    @property
    def newest(self) -> Segment:
        """The file that is written to."""
        return self.segments[-1]

    @property
    def place(self) -> Place:
        """Where the next commit will begin, if it does not begin a new file."""
        return Place(self.newest.number, self.newest.size)

    @property
    def full(self) -> bool:
        """Whether it is time for a new file."""
        return self.newest.size >= SEGMENT_BYTES

    def roll(self) -> None:
        """Begin a new file. One begun in vain goes: commits may have gone into the old one since."""
        if self._unfinished:  # nor may the old one end with a commit that the new one will have again
            os.ftruncate(self._descriptor, self.newest.size)
            os.fsync(self._descriptor)
            self._unfinished = False
        if self._begun is not None:
            self._begun.unlink(missing_ok=True)
        self._begun = segments.path_of(self.directory, self.end.number + 1, self.end.next)
        segment = Segment.create(self.directory, self.end.number + 1, self.end.next)
        descriptor = os.open(segment.path, os.O_RDWR)
        self.close()
        self._descriptor, self._unfinished = descriptor, False
        self.segments = (*self.segments, segment)
        self.bytes += segment.size
        self._begun = None

    def append(self, commit: Commit, events: Sequence[Entry]) -> None:
        """Return once a commit with these events is on disk. Raises `OSError`; it is not in the log then."""
        segment = self.newest
        if self._unfinished:
            # What was written and not synced may be gone from memory and not on the disk: all is written again.
            os.ftruncate(self._descriptor, segment.size)
        commit, parts = segment.encode(commit, events)
        self._unfinished = True
        try:
            segments.write_all(self._descriptor, parts, segment.size)
        except OSError:
            with suppress(OSError):  # a full disk gets its room back now: others need it
                os.ftruncate(self._descriptor, segment.size)
            raise
        self._unfinished = False
        segment.size += commit.length
        self.bytes += commit.length
        self.end = commit
        self.oldest = commit.oldest

    def droppable(self) -> list[Segment]:
        """Files of which no event is kept."""
        following = self.segments[1:]
        return [old for old, new in zip(self.segments, following, strict=False) if new.first <= self.oldest]

    def drop(self, before: int) -> None:
        """Delete those of them that come before the file `before`."""
        for segment in self.droppable():
            if segment.number < before:
                self.segments = self.segments[1:]
                self.bytes -= segment.size
                segment.path.unlink(missing_ok=True)

    # Reading, from any thread.

    def around(self, sequence: int) -> tuple[Segment, Segment | None]:
        """The file that has this event, if one does, and the file behind it."""
        held = self.segments
        behind = bisect_right(held, sequence, lo=1, key=lambda segment: segment.first)
        return held[behind - 1], held[behind] if behind < len(held) else None


class _Found(NamedTuple):
    """A commit that holds events which a reader wants."""

    file: BinaryIO
    offset: int
    commit: Commit
    wanted: int
    """The first of them."""


class LogReader:
    """Reads a log; each thread has its own."""

    def __init__(self, source: Log) -> None:
        self._log = source
        self._places: OrderedDict[int, Place] = OrderedDict()  # where commits are that begin with a sequence

    def read(self, after: int, max_bytes: int, max_rows: int) -> tuple[list[Entry], list[int]]:
        """Events beyond the sequence `after`, at least one if there is one; and the sequences found damaged."""
        entries: list[Entry] = []
        damaged: list[int] = []
        size = 0
        with closing(self.events(after)) as events:
            for sequence, entry in events:
                if entry is None:
                    damaged.append(sequence)
                else:
                    entries.append(entry)
                    size += len(entry.payload)
                if size >= max_bytes or len(entries) + len(damaged) >= max_rows:
                    break
        return entries, damaged

    def events(self, after: int) -> Generator[tuple[int, Entry | None]]:
        """All beyond the sequence `after`; `None` for those that are damaged."""
        for found in self._commits(after):
            if isinstance(found, range):
                yield from ((sequence, None) for sequence in found)
            else:
                yield from segments.events_of(found.file, found.offset, found.commit, found.wanted - 1)

    def sizes(self, after: int, max_rows: int) -> list[tuple[int, int, int]]:
        """Sequence, bytes and time of events beyond `after`; what is damaged has no bytes, and came long ago."""
        rows: list[tuple[int, int, int]] = []
        with closing(self._commits(after)) as commits:
            for found in commits:
                if isinstance(found, range):
                    rows += [(sequence, 0, 0) for sequence in found]
                else:
                    heads = segments.event_heads(found.file, found.offset, found.commit)
                    rows += [
                        (sequence, 0, 0) if head is None else (sequence, head.size, head.received_ms)
                        for sequence, head in enumerate(heads, found.commit.first)
                        if sequence >= found.wanted
                    ]
                if len(rows) >= max_rows:
                    break
        return rows[:max_rows]

    def _commits(self, after: int) -> Generator[_Found | range]:
        """Commits with events beyond `after`, and the sequences between them that are not where they should be."""
        end, wanted = self._log.end.next, max(after + 1, self._log.oldest)
        while wanted < end:
            segment, following = self._log.around(wanted)
            bound = end if following is None else min(end, following.first)
            wanted = max(wanted, self._log.oldest)  # what left meanwhile: it does so before its file goes
            if wanted >= bound:
                continue
            try:
                with segment.read_past_bad_sectors() as file:
                    yield from self._commits_of(segment, file, wanted, bound)
            except FileNotFoundError:
                if segment in self._log.segments:  # and not gone because nobody wants it
                    yield range(wanted, bound)
            wanted = bound

    def _commits_of(self, segment: Segment, file: BinaryIO, wanted: int, bound: int) -> Generator[_Found | range]:
        """The same of one file, up to the sequence `bound`."""
        known = [first for first, at in self._places.items() if first <= wanted and at.segment == segment.number]
        offset = self._places[max(known)].offset if known else FILE_HEAD
        seen: list[tuple[int, Place]] = []  # the first and the last
        try:
            while wanted < bound:
                commit = segment.commit_at(file, offset)
                if commit is None:
                    found = segment.find_commit(file, offset + 1)
                    if found is None:
                        yield range(wanted, bound)
                        return
                    offset, commit = found
                if commit.first > wanted:
                    yield range(wanted, min(commit.first, bound))
                    wanted = commit.first
                if commit.next > wanted:
                    seen[1:] = [(commit.first, Place(segment.number, offset))]
                    yield _Found(file, offset, commit, wanted)
                    wanted = commit.next
                offset += commit.length
        finally:
            self.remember(seen)

    def remember(self, places: list[tuple[int, Place]]) -> None:
        """Who asks next goes on near here, or asks for the same again."""
        self._places.update(places)
        while len(self._places) > _KNOWN_PLACES:
            self._places.popitem(last=False)


def _number(path: Path) -> int:
    """Of a file's first commit, by its name; 0 if that is none of the log's."""
    number = path.name.split("-")[0]
    return int(number) if number.isdigit() else 0
