"""What an operator can do about a file that cannot be read or written. To lose it is to forget what was signed."""

from __future__ import annotations

import errno
import sqlite3

WHAT_TO_DO = (
    "Put back what belongs there, the whole folder as it was last; or restore a backup into an empty folder "
    "(`millrace relayer restore`), or make a safe start with what is here (`millrace relayer recover`)"
)

_NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_FSYNC")
_HELD = ("SQLITE_BUSY", "SQLITE_LOCKED")
_NOT_OURS = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_PERM")


class UnknownVersion(sqlite3.DatabaseError):
    """A file of a later version of millrace."""


def advice(error: Exception, damage: str = WHAT_TO_DO) -> str:
    """A sentence about an `OSError` or `sqlite3.Error`; `damage` where a file is not as it was written."""
    name, number = getattr(error, "sqlite_errorname", ""), getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or name in _NO_ROOM:
        return "Make room on the disk, and start again: nothing is lost. Leave the files where they are"
    if number == errno.EROFS:
        return "Its disk can only be read: have it mounted for writing"
    if number == errno.EIO:
        return "Its disk fails, and the kernel's log says how: mend that first. Leave the files where they are"
    if name.startswith(_HELD):
        return "Another process has the file open: end that, or try again. Leave the files where they are"
    if isinstance(error, FileExistsError):
        return "Name another file: what is there is not written over"
    if isinstance(error, UnknownVersion):
        return "Start the version of millrace that wrote it, or a later one"
    if isinstance(error, OSError) or name in _NOT_OURS:
        return "Let this user write the file and its folder"
    return damage


def told(error: Exception, place: object = "", damage: str = WHAT_TO_DO) -> str:
    """The same with what went wrong, and where."""
    what: object = error
    if isinstance(error, OSError):
        place, what = error.filename or place, error.strerror or error
    return f"{place}{': ' if place else ''}{what}. {advice(error, damage)}"
