"""Claims to carry from one journal to another: per sender the highest nonce that one of our keys may have signed for.

Lines of JSON: a head, a line per sender, and an end with the number and the checksum of all before it, so that a file
that was cut off is known for one. What is imported only ever adds: of two claims of a sender the higher one stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from millrace.chain import address
from millrace.relayer.journal import identity, memory
from millrace.relayer.journal.advice import told
from millrace.relayer.journal.mark import Mark
from millrace.relayer.journal.reading import SHARED, meta, read_only
from millrace.relayer.journal.submissions import MAX_NONCE
from millrace.runtime import files

FORMAT = "millrace relayer claims 1"
MAX_LINE = 4096
ROWS_AT_ONCE = 1000

_CLAIMS = """
CREATE TABLE IF NOT EXISTS imported_claims (
    sender BLOB PRIMARY KEY,
    nonce INTEGER NOT NULL,       -- the highest that may have been signed for elsewhere
    client_hash BLOB NOT NULL     -- of what was signed for it
) WITHOUT ROWID;
"""
_FIRST_SEEN = """
CREATE TABLE IF NOT EXISTS first_seen (
    sender BLOB PRIMARY KEY,
    epoch INTEGER NOT NULL,       -- of the safe start that it belongs to
    nonce INTEGER NOT NULL        -- of the account when it came first after that
) WITHOUT ROWID;
"""
SCHEMA = f"{_CLAIMS}{_FIRST_SEEN}"

_CLAIMS_OF = {
    "submissions": "SELECT sender, nonce, client_hash FROM submissions WHERE relayer IS NOT NULL",
    "imported_claims": "SELECT sender, nonce, client_hash FROM imported_claims",
}
"""By table: of earlier versions, and of folders that no relayer has run on yet, not all are there."""

Read = Callable[[str, tuple[Any, ...]], list[Any]]


class ClaimsError(Exception):
    """The claims cannot be written or read; the text says why."""


class Claim(NamedTuple):
    """The highest nonce of a sender, and the client hash of what claims it."""

    nonce: int
    client_hash: bytes


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    id: str
    chainId: str  # noqa: N815 - a file that others read, in the words of the interface
    madeMs: int  # noqa: N815


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sender: str
    nonce: Annotated[int, msgspec.Meta(ge=0, le=MAX_NONCE)]
    hash: str


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: int
    sha256: str


def find(read: Read, sender: bytes) -> Claim | None:
    """What was imported of a sender."""
    found = read("SELECT nonce, client_hash FROM imported_claims WHERE sender = ?", (sender,))
    return Claim(*found[0]) if found else None


def export(data_dir: Path, file: Path, chain_id: str, mark_path: str = "") -> int:
    """Write all claims of a folder's journal, also of a running relayer's, to a new file; their number.

    Raises `ClaimsError`, also for a folder that a start would refuse: what it has forgotten would be missing.
    """
    try:
        ours = identity.read(data_dir)
        identity.check_may_start(data_dir, ours)
        memory.require_end(data_dir, ours, mark_path)
        head = _Head(FORMAT, ours.id, chain_id, time.time_ns() // 1_000_000)
        digest, count = hashlib.sha256(), 0
        with files.replacing(file) as output:
            for item in (head, *_claims(data_dir)):
                line = msgspec.json.encode(item) + b"\n"
                digest.update(line)
                output.write(line)
                count += isinstance(item, _Line)
            output.write(msgspec.json.encode(_End(count, digest.hexdigest())) + b"\n")
    except (identity.IdentityError, memory.MemoryLost) as error:
        raise ClaimsError(str(error)) from None
    except (OSError, sqlite3.Error) as error:
        raise ClaimsError(told(error)) from None
    return count


def gaps(data_dir: Path) -> list[str]:
    """What a whole folder's claims do not have, in words. Raises `ClaimsError`."""
    path, found = data_dir / identity.JOURNAL, []
    try:
        if identity.read(data_dir).recovered or meta(path, "recovery"):
            found.append(
                "A safe start was made of this folder: what was signed before and is not known here is NOT in the "
                "file, though this folder signs nothing in its place. With this file, no `recover --ahead 0`."
            )
        if meta(path, SHARED):
            found.append("What others with the same keys claimed at `claims_url` is NOT in the file.")
    except (identity.IdentityError, sqlite3.Error) as error:
        raise ClaimsError(str(error)) from None
    return found


def _claims(data_dir: Path) -> Iterator[_Line]:
    """What our keys may have signed, and what was imported before."""
    path = data_dir / identity.JOURNAL
    if not path.exists():
        return
    with contextlib.closing(read_only(path)) as connection:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        claims = " UNION ALL ".join(query for table, query in _CLAIMS_OF.items() if table in there)
        if not claims:
            return
        rows = connection.execute(  # of the row that has the maximum, as SQLite promises for a lone max()
            f"SELECT sender, max(nonce), client_hash FROM ({claims}) GROUP BY sender"
        )
        for sender, nonce, client_hash in rows:
            yield _Line(address.encode(sender), nonce, client_hash.hex())


def import_(data_dir: Path, file: Path, chain_id: str, mark_path: str = "") -> int:
    """Take claims over from a file, all or none; their number. No relayer may run. Raises `ClaimsError`."""
    path = data_dir / identity.JOURNAL
    try:
        owner = identity.read(data_dir)
        mark = Mark(memory.mark_place(path, mark_path), owner.id)
        with file.open("rb") as lines, memory.amended(path, mark, owner) as connection:
            connection.execute(_CLAIMS)
            count = 0
            for claim in _checked(file, lines, chain_id):
                connection.execute(
                    "INSERT INTO imported_claims VALUES (?, ?, ?) ON CONFLICT (sender) DO UPDATE SET "
                    "nonce = excluded.nonce, client_hash = excluded.client_hash WHERE excluded.nonce > nonce",
                    claim,
                )
                count += 1
    except (identity.IdentityError, memory.MemoryLost, memory.InDoubt) as error:
        raise ClaimsError(str(error)) from None
    except (OSError, sqlite3.Error) as error:
        raise ClaimsError(told(error)) from None
    return count


def _checked(file: Path, lines: Any, chain_id: str) -> Iterator[tuple[bytes, int, bytes]]:
    """The claims of a file; its end is checked last. Raises `ClaimsError`."""
    digest, count, head = hashlib.sha256(), 0, None
    while line := lines.readline(MAX_LINE):
        try:
            if head is None:
                head = _head_of(file, line, chain_id)
            elif line.startswith(b'{"count"'):
                if msgspec.json.decode(line, type=_End) != _End(count, digest.hexdigest()) or lines.read(1):
                    raise ClaimsError(f"{file} was changed or cut off: its end does not fit; export it again")
                return
            else:
                item = msgspec.json.decode(line, type=_Line)
                yield address.decode(item.sender), item.nonce, bytes.fromhex(item.hash)
                count += 1
        except ValueError as error:
            raise ClaimsError(f"{file}, line {count + 2}: {error}; export it again") from None
        digest.update(line)
    raise ClaimsError(f"{file} was cut off: its end is missing; export it again")


def _head_of(file: Path, line: bytes, chain_id: str) -> _Head:
    head = msgspec.json.decode(line, type=_Head)
    if head.format != FORMAT:
        raise ClaimsError(f"{file} is in the format {head.format!r}, this version reads {FORMAT!r}")
    if head.chainId != chain_id:
        raise ClaimsError(f"{file} is of the chain {head.chainId!r}, this relayer of {chain_id!r}")
    return head
