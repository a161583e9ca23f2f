"""Which data directory this is, and of which time: what leases, marks and backups tell folders apart by.

A small file of the folder. The journal says in its table `meta` whose it is, so that a journal without the file is
known for one whose file was lost, and not for one of an earlier version.
"""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from millrace.relayer.journal.advice import told
from millrace.relayer.journal.durable import NotWhole, read_sealed, write_sealed
from millrace.relayer.journal.reading import SHARED, meta

FILE = "identity"
JOURNAL = "journal.sqlite"
ID_BYTES = 16

State = Literal["new", "ready", "restored", "moved"]
"""`new`: never started, so that it may be without a mark; `restored`: of the time of its backup, nothing may be signed
before a safe start; `moved`: its place is elsewhere."""


SHARES = (
    "who shares claims needs neither a safe start nor a move: stop this relayer, and start one with a new data_dir "
    "(`millrace relayer init`); it finds what it has to know at `claims_url`"
)


class IdentityError(Exception):
    """The folder has no identity that can be used; the text says what to do."""


@dataclass(frozen=True)
class Identity:
    """Of one data directory."""

    id: str
    """32 hex digits, random; stays through backup, restore and move."""
    epoch: int
    """Raised when another copy of the folder takes over: the highest alone may sign."""
    state: State = "ready"
    note: str = ""
    """Where it was moved to, what it was restored from, or what was left behind by a move."""
    recovered: int = 0
    """Epoch of its last safe start, which has a file of its own; 0: none was made, or by an earlier version."""


class _Body(msgspec.Struct, frozen=True):
    id: str
    epoch: int
    state: State
    note: str
    recovered: int = 0


def read(data_dir: Path) -> Identity:
    """The identity of a folder, whatever its state. Raises `IdentityError`."""
    try:
        body = read_sealed(data_dir / FILE, _Body)
    except FileNotFoundError:
        raise IdentityError(_without(data_dir)) from None
    except OSError as error:
        raise IdentityError(f"{data_dir / FILE}: {error.strerror}; let this user read it") from None
    except NotWhole as error:
        raise IdentityError(f"{error}; {_LOST}") from None
    return Identity(body.id, body.epoch, body.state, body.note, body.recovered)


def write(data_dir: Path, identity: Identity) -> None:
    """Put it into the folder; on disk when this returns. Raises `IdentityError`."""
    body = _Body(identity.id, identity.epoch, identity.state, identity.note, identity.recovered)
    try:
        write_sealed(data_dir / FILE, body)
    except OSError as error:
        raise IdentityError(told(error, data_dir / FILE)) from None


def make(data_dir: Path) -> Identity:
    """Give a folder its first identity, and make the folder if it is missing.

    A journal of an earlier version, which knew of no identities, is adopted. Raises `IdentityError` where there is an
    identity already, or was one.
    """
    if (data_dir / FILE).exists():
        raise IdentityError(f"{data_dir} has an identity already ({read(data_dir).id}); it needs no other")
    owner = owner_of(data_dir)
    if owner is not None:
        raise IdentityError(f"{data_dir} has a journal and no file `{FILE}` any more ({owner}); {_LOST}")
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise IdentityError(f"{told(error, data_dir)}, or choose another data_dir") from None
    made = Identity(secrets.token_hex(ID_BYTES), 1, "new")
    write(data_dir, made)
    return made


def owner_of(data_dir: Path) -> str | None:
    """The id that a folder's journal names; `None` without a journal, or of one that was never started with an
    identity. Raises `IdentityError` when it cannot be read."""
    return _said(data_dir, "identity")


def shares(data_dir: Path) -> bool:
    """Whether the folder is one of several that share their claims. Raises `IdentityError` when it cannot be read."""
    return _said(data_dir, SHARED) is not None


def _said(data_dir: Path, name: str) -> str | None:
    path = data_dir / JOURNAL
    try:
        return meta(path, name)
    except sqlite3.Error as error:
        raise IdentityError(told(error, path, "Put a copy in its place: `millrace relayer restore`")) from None


def bind(connection: sqlite3.Connection, identity: Identity) -> None:
    """Write into a journal whose it is. Raises `IdentityError` when it is another folder's, or `sqlite3.Error`."""
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('identity', ?)", (identity.id,))
    (owner,) = connection.execute("SELECT value FROM meta WHERE name = 'identity'").fetchone()
    if owner != identity.id:
        raise IdentityError(
            f"the journal belongs to the folder {owner}, the file `{FILE}` to {identity.id}: one of the two was copied "
            "here by itself; put back both of one folder"
        )


def check_may_start(data_dir: Path, identity: Identity) -> None:
    """Raises `IdentityError` when this is not a folder to start with."""
    if identity.state == "moved":
        raise IdentityError(
            f"{data_dir} was moved to {identity.note}: start the relayer there; if that one is lost, "
            "`millrace relayer recover` says how to start safely from what is here"
        )
    if identity.state == "restored" and shares(data_dir):
        raise IdentityError(f"{data_dir} was restored {identity.note}, and has no further use: {SHARES}")
    if identity.state == "restored":
        raise IdentityError(
            f"{data_dir} was restored {identity.note}: what was signed since then is not in it. Run "
            "`millrace relayer recover`, which says what is missing and makes a safe start of it"
        )


def raised(identity: Identity, least: int = 0, *, state: State = "ready", note: str = "") -> Identity:
    """The same with a higher epoch, above `least`, too."""
    return replace(identity, epoch=max(identity.epoch, least) + 1, state=state, note=note)


def started(identity: Identity) -> Identity:
    """The same once its journal and its mark are begun."""
    return replace(identity, state="ready")


_LOST = (
    "put the file of this very folder back, or restore a backup into an empty folder (`millrace relayer restore`), or "
    "make a safe start with what is here (`millrace relayer recover`)"
)


def _without(data_dir: Path) -> str:
    if not data_dir.exists():
        return f"{data_dir} is not there: make it with `millrace relayer init`, or restore a backup to it"
    if owner_of(data_dir) is not None:
        return f"{data_dir} has a journal and no file `{FILE}` any more: {_LOST}"
    if (data_dir / JOURNAL).exists():
        return (
            f"{data_dir} has a journal of an earlier version and no identity yet: if it is the one that was used last "
            "with its keys, adopt it with `millrace relayer init`; if not, find that one"
        )
    return f"{data_dir} has no identity: make one with `millrace relayer init`, or restore a backup to an empty folder"
