"""Whether a data directory still has what its relayer remembered: asked at each start before anything is changed.

What is found out is in docs/relayer-operating.md, "Memory". The journal is read by a connection that cannot write: one
that can would copy what is left of a damaged log into the database when it is closed, and delete the log.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from millrace.chain import address
from millrace.relayer.journal import audit, chain, outcomes, programmes, submissions
from millrace.relayer.journal.advice import WHAT_TO_DO
from millrace.relayer.journal.chain import Chain, Chained, ChainError, Kind, Link
from millrace.relayer.journal.identity import JOURNAL, Identity
from millrace.relayer.journal.mark import (
    FILE,
    NOTHING,
    Mark,
    MarkError,
    Seen,
    check_has_followed,
    check_holds,
    check_is_newest,
)
from millrace.relayer.journal.reading import read_only
from millrace.relayer.journal.versions import check_known

log = logging.getLogger(__name__)

META = Kind("meta", "meta", (), ("{}name", "{}value"))
KINDS = (
    *submissions.KINDS,
    audit.KIND,
    outcomes.KIND,
    outcomes.BEFORE,
    META,
    Kind("claim", "imported_claims", ("{}sender", "{}client_hash"), ("{}nonce",)),
    Kind("first", "first_seen", ("{}sender",), ("{}epoch", "{}nonce")),
    *programmes.KINDS,
)
"""What may not be lost or changed. Wishes (`write_offs`) are put in by other processes; one that was changed or lost is
none, as it names a transaction by its hash, and its operator sees that its fee is still at risk."""

TRIES, TRY_SECONDS = 10, 0.5
"""How often a command tries what may not be left half done; a running relayer tries until its end."""


class MemoryLost(Exception):
    """Something that was promised may be forgotten; the text says what is wrong and what to do."""


class InDoubt(Exception):
    """What a command was to change may be there or not; the text says what to do."""


def mark_place(journal: Path, mark_path: str) -> Path:
    """Where the mark of a journal lies: where the setting says, or beside it."""
    return Path(mark_path) if mark_path else journal.with_name(FILE)


def recall(journal: Path, mark: Mark, identity: Identity) -> Link | None:
    """Compare journal and mark, and every row with what was written; the last link, `None` where nothing was begun.

    A folder that was never started gets its mark. Raises `MemoryLost`, `sqlite3.Error` or `OSError`.
    """
    if journal.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    is_first = _is_first(journal, mark, identity)
    try:
        if is_first:
            mark.make(NOTHING)
        seen = mark.read()
        if not _is_there(journal, seen):  # SQLite would delete the log beside an empty file
            return None
        with contextlib.closing(read_only(journal)) as connection:
            check_known(connection)
            return _last_link(connection, seen, identity.id)
    except (ChainError, MarkError) as error:
        raise MemoryLost(f"{error}. {WHAT_TO_DO}") from None
    except (TypeError, ValueError, OverflowError) as error:  # values of types that nobody wrote
        raise MemoryLost(f"a row is damaged: {error}. {WHAT_TO_DO}") from None


def catch_up(mark: Mark, link: Link | None) -> None:
    """Open the mark, and have what was recalled acknowledged, before a further commit is begun. Raises `OSError`.

    The journal may be one commit past its mark, not two: a process that ends behind the next commit would leave that.
    """
    mark.open()
    if link is not None:
        mark.write(link)


def _last_link(connection: sqlite3.Connection, seen: Seen, writer: str) -> Link | None:
    """The last link of a journal that holds all that it says and all that was acknowledged."""
    link = chain.last(connection, writer)
    check_is_newest(seen, link)
    if link is not None:
        _check_names(connection)
        chain.check(connection, KINDS, writer, link, _tell_progress)
    return link


def look(journal: Path, mark: Mark, identity: Identity) -> None:
    """Whether a start would find the journal's end where its mark is; not whether each row is as it was written.

    Changes nothing, also beside a running relayer. Raises `ChainError`, `MarkError`, `sqlite3.Error` or `OSError`.
    """
    if _is_first(journal, mark, identity):
        return
    seen = mark.read()  # first: commits go on meanwhile
    if _is_there(journal, seen):
        with contextlib.closing(read_only(journal)) as connection:
            check_known(connection)
            link = chain.last(connection, identity.id)
        check_holds(seen, link)
        check_has_followed(mark.read(), link)


def require_end(data_dir: Path, ours: Identity, mark_path: str) -> None:
    """`look` of a command, which takes what it finds there for all there is. Raises `MemoryLost`, `sqlite3.Error` or
    `OSError`."""
    journal = data_dir / JOURNAL
    try:
        look(journal, Mark(mark_place(journal, mark_path), ours.id), ours)
    except (ChainError, MarkError) as error:
        raise MemoryLost(f"{error}. {WHAT_TO_DO}") from None


def _is_first(journal: Path, mark: Mark, identity: Identity) -> bool:
    """Whether the folder was never started."""
    return identity.state == "new" and not mark.path.exists() and not is_begun(journal)


def _is_there(journal: Path, seen: Seen) -> bool:
    """Whether there is a journal. Raises `MarkError` where there is none and anything was acknowledged."""
    there = _has_content(journal)
    if not there and seen.sequence:
        raise MarkError(f"{journal.name} is {'empty' if journal.exists() else 'missing'}")
    return there


def is_begun(journal: Path) -> bool:
    """Whether there is a journal, and a chain was begun in it, by whomever."""
    if not _has_content(journal):
        return False
    with contextlib.closing(read_only(journal)) as connection:
        return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'chain'").fetchone())


def _has_content(journal: Path) -> bool:
    return journal.exists() and journal.stat().st_size > 0


def _check_names(connection: sqlite3.Connection) -> None:
    found = submissions.misnamed(connection)
    if found is not None:
        sender, nonce = found
        raise ChainError(
            f"the transaction of {address.encode(sender)} with nonce {nonce} does not hash to its client hash"
        )


def _tell_progress(rows: int) -> None:
    log.info("checking what the journal holds", extra={"rows": rows})


def accept(journal: Path, mark: Mark, identity: Identity) -> None:
    """Begin a new chain over what a journal holds and mark its end: a safe start has made sure that this is harmless.

    For nobody who writes the journal meanwhile. Raises `sqlite3.Error`, also for a damaged file, or `OSError`.
    """
    with contextlib.closing(sqlite3.connect(journal, isolation_level=None)) as connection:
        try:
            chain.check_whole(connection)
        except ChainError as error:
            raise sqlite3.DatabaseError(str(error)) from None
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(chain.SCHEMA)
        link = chain.begin(connection, KINDS, identity.id)
        connection.execute("COMMIT")
    mark.make(Seen(link.sequence, link.head))


@contextlib.contextmanager
def amended(journal: Path, mark: Mark, identity: Identity) -> Iterator[sqlite3.Connection]:
    """A transaction on a journal that no relayer has open, which its chain and its mark say, too, where it has them.

    An error undoes all of it, but `InDoubt`. Raises also `MemoryLost`, `sqlite3.Error` or `OSError`.
    """
    has_chain = identity.state == "ready" or is_begun(journal)  # begun by a start that ended before it said so
    link = recall(journal, mark, identity) if has_chain else None
    connection = sqlite3.connect(journal, isolation_level=None, factory=Chained)
    assert isinstance(connection, Chained)
    with contextlib.closing(mark), contextlib.closing(connection):
        if link is not None:
            catch_up(mark, link)
        connection.execute("PRAGMA synchronous = FULL")
        kept = Chain(connection, KINDS, identity.id, link) if link is not None else None
        connection.execute("BEGIN IMMEDIATE")
        if kept is not None:
            kept.begin()
        yield connection
        if kept is None:
            connection.execute("COMMIT")
        else:
            _commit(connection, kept, mark)


def _commit(connection: Chained, kept: Chain, mark: Mark) -> None:
    """End the transaction in the chain, and have the mark say so; what is told to have failed is not there."""
    is_sealed = kept.seal()
    try:
        connection.execute("COMMIT")
    except Exception as error:
        chain.roll_back(connection)
        if chain.may_be_in_log(error):
            _again(kept.take_back, f"a commit failed ({error}) and cannot be taken back")
        raise
    if is_sealed:
        link = kept.committed()
        _again(lambda: mark.write(link), f"the mark {mark.path} cannot be written")


def _again(work: Callable[[], None], doubt: str) -> None:
    """Do what has to be done, as often as a command may take. Raises `InDoubt`."""
    for left in reversed(range(TRIES)):
        try:
            work()
            break
        except Exception as error:  # of memory, say
            if not left:
                raise InDoubt(
                    f"{doubt}: {error}. What it was to write may be there or not: repeat it once the disk works"
                ) from error
        time.sleep(TRY_SECONDS)


def still_holds(connection: sqlite3.Connection, mark: Mark) -> None:
    """Whether a journal that is being written holds what was acknowledged. Raises `MemoryLost` or `sqlite3.Error`."""
    try:
        seen = mark.read()  # first: commits go on meanwhile
        check_holds(seen, chain.last(connection, mark.writer))
    except (ChainError, MarkError) as error:
        raise MemoryLost(f"{error}. {WHAT_TO_DO}") from None
