"""The files of a journal, read and damaged behind its back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from millrace.notifier.journal.file_store import LOG_NAME
from millrace.notifier.journal.memories import FILE_NAME
from millrace.notifier.journal.segments import FILE_HEAD, Commit, Segment, event_heads, events_of
from millrace.notifier.rules.entry import Entry


def log_files(directory: Path) -> list[Path]:
    """Of the log, oldest first."""
    return sorted((directory / LOG_NAME).glob("*.log"))


def commits(directory: Path) -> Iterator[tuple[Segment, BinaryIO, int, Commit]]:
    """Every commit, and where it is; up to one that was cut off, if there is one."""
    for path in log_files(directory):
        segment, offset = Segment.open(path), FILE_HEAD
        with segment.read() as file:
            while (commit := segment.commit_at(file, offset)) is not None:
                yield segment, file, offset, commit
                offset += commit.length


def entries(directory: Path) -> list[Entry]:
    """Every event of the journal, in order; its tables are sound, and its events whole."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found: list[Entry] = []
    for _, file, offset, commit in commits(directory):
        for sequence, entry in events_of(file, offset, commit):
            assert entry is not None, sequence
            found.append(entry)
    return found


def damage(directory: Path, *sequences: int) -> None:
    """Change a byte in the payloads of these events."""
    for segment, file, offset, commit in commits(directory):
        for head in event_heads(file, offset, commit):
            if head is not None and head.sequence in sequences:
                flip(segment.path, file.tell())


def flip(path: Path, offset: int) -> None:
    """Change a byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0xFF]))
