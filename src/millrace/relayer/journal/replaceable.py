"""Files by which nothing was promised: the history, what became of transactions, our name among gossip peers. Damage of
one stops nobody.

Each row has a checksum, so that what was changed is left out and not told. A file that SQLite can use no more is put
aside, under a name of its own for whoever wants to look at it, and begun anew.
"""

from __future__ import annotations

import os
import sqlite3
from hashlib import blake2b
from pathlib import Path

HISTORY, FATES, GOSSIP_KEY = "history.sqlite", "fates.sqlite", "gossip.key"
NAMES = (HISTORY, FATES, GOSSIP_KEY)

ASIDE = ".damaged"
_ENDINGS = ("-shm", "-wal", "")
"""The database is put aside last: without it SQLite throws away what is left of its log."""

_SEAL = b"\xc1"
"""What MessagePack never begins with: a row without it is of an earlier version, which had no checksums."""
_CHECK_BYTES = 8

_PRIMARY = 0xFF
"""These bits of an extended result code of SQLite say the kind of error."""
_PASSES = frozenset(
    (
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
    )
)  # fmt: skip
"""Of a full disk, a lock, rights, memory. What we ask is always the same, so anything else is of the file."""


def seal(body: bytes, name: bytes = b"") -> bytes:
    """MessagePack with a checksum of it and of the name by which the row is found."""
    return _SEAL + _check(body, name) + body


def opened(data: object, name: bytes = b"") -> bytes | None:
    """What was sealed; `None` if it was changed. A row of an earlier version is given as it is: it may be anything."""
    if not isinstance(data, bytes):
        return None
    if not is_sealed(data):
        return data
    check, body = data[1 : 1 + _CHECK_BYTES], data[1 + _CHECK_BYTES :]
    return body if check == _check(body, name) else None


def is_sealed(data: bytes) -> bool:
    """Whether a row has a checksum."""
    return data[:1] == _SEAL


def _check(body: bytes, name: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK_BYTES, key=name).digest()


def is_damage(error: Exception, path: Path) -> bool:
    """Whether a file will never be of use again: a full disk, a lock or missing rights may pass."""
    if not isinstance(error, sqlite3.Error):
        return False
    if any(_beside(path, ending).is_dir() for ending in _ENDINGS):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # Python's own: of text that is none, or of a connection that is closed
        return isinstance(error, sqlite3.OperationalError)
    kind = code & _PRIMARY
    return kind not in _PASSES or (kind == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK))


def put_aside(path: Path) -> Path:
    """Rename a database that nobody has open, or whatever is in its place; to what. Raises `OSError`.

    What was put aside before is replaced: there is one of each file at most.
    """
    aside = path.with_name(path.name + ASIDE)
    for ending in _ENDINGS:
        found, target = _beside(path, ending), _beside(aside, ending)
        if found.exists():
            found.replace(target)
        else:
            target.unlink(missing_ok=True)
    return aside


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
