"""A data directory as `kill -9` leaves it, what its relayer promised, and ways to damage it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from relayer_support import transfer, wallet, with_identity

from millrace.chain.transaction import client_hash, to_proto
from millrace.relayer.journal import audit, chain, memory, outcomes, programmes, submissions
from millrace.relayer.journal.journal import Journal
from millrace.relayer.journal.submissions import Record

ALICE = wallet(1)
PAGE = 4096
OPEN, OVER, LATER = range(12), range(12, 24), range(24, 34)
"""Nonces: signed and in flight, over, and those that an older copy does not know."""


def row(nonce: int, data: bytes = b"", **changes: object) -> Record:
    """A row of a relayed transaction; other data makes another payload of the nonce."""
    tx = transfer(ALICE, nonce, data=data)
    made = Record(
        tx.sender, nonce, client_hash(tx), None, to_proto(tx),
        "relay", tx.relayer, 10, None, "ip", 1000 + nonce, "journalled", True,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def charge(nonce: int) -> programmes.Charge:
    """What a programme is charged for a row."""
    return programmes.Charge(row(nonce).client_hash, "launch", ALICE.public, 10)


def over(nonce: int) -> Callable[[sqlite3.Connection], None]:
    """What the end of a transaction writes."""
    item = row(nonce)
    assert item.relayer is not None

    def write(connection: sqlite3.Connection) -> None:
        submissions.end(connection, [(item.sender, nonce, item.client_hash, "finished", "7", 5000)])
        audit.write(connection, [(5000, "settle", item.relayer or b"", item.sender, nonce, item.client_hash, 7)])
        programmes.end(connection, item.client_hash, 7, 5000)
        outcomes.write(
            connection,
            [outcomes.Outcome(item.client_hash, 5000, item.relayer or b"", item.sender, nonce, None, 7, False)],
        )

    return write


class Folders(NamedTuple):
    """Copies of one folder, taken while its relayer ran."""

    now: Path
    older: Path
    """Ten nonces older."""


async def make(folder: Path, mark_path: str = "") -> Folders:
    """A folder whose relayer was killed, its log half copied into the database, and an older copy of it."""
    live = with_identity(folder / "live")
    journal = Journal(live / "journal.sqlite", mark_path)
    journal.open()
    try:
        for start in (OPEN, OVER):
            await journal.append([row(nonce) for nonce in start], [charge(nonce) for nonce in start])
            journal.cosigned([(ALICE.public, nonce, b"%064d" % nonce) for nonce in start])
        for nonce in OVER:
            journal.change(over(nonce))
        await journal.append([row(99, relayer=None, kind="broadcast")])
        journal.keep_cursor(7, "place")
        await journal.flush()
        other = sqlite3.connect(journal.path)
        other.execute("PRAGMA wal_checkpoint(PASSIVE)")
        shutil.copytree(live, folder / "older")
        for nonce in LATER:
            await journal.append([row(nonce)], [charge(nonce)])
        journal.cosigned([(ALICE.public, nonce, b"%064d" % nonce) for nonce in LATER])
        await journal.flush()
        shutil.copytree(live, folder / "now")
        other.close()
    finally:
        await journal.close()
    return Folders(folder / "now", folder / "older")


def contents(folder: Path) -> list[list[object]]:
    """What a reader of the journal sees, by the tables and by their indices."""
    connection = sqlite3.connect(f"{(folder / 'journal.sqlite').as_uri()}?mode=ro", uri=True)
    try:
        seen = [
            sorted(connection.execute(kind.query).fetchall(), key=repr)
            for kind in chain.there(connection, memory.KINDS)
        ]
        nonces = "SELECT nonce, client_hash FROM submissions WHERE sender = ? ORDER BY nonce"
        return [*seen, connection.execute(nonces, (ALICE.public,)).fetchall()]
    finally:
        connection.close()


class Damage(NamedTuple):
    """One way to damage a folder."""

    name: str
    do: Callable[[Path], None]


def deleted_and_emptied(folder: Path) -> Iterator[Damage]:
    """Each file deleted, and emptied."""
    for name in sorted(path.name for path in folder.iterdir()):
        yield Damage(f"{name} deleted", partial(_delete, names=(name,)))
        yield Damage(f"{name} emptied", partial(_put, name=name, data=b""))


def whole_files(older: Path) -> Iterator[Damage]:
    """Each file deleted, emptied, turned into a folder, put back from an older copy; the journal with its log, too."""
    yield from deleted_and_emptied(older)
    for name in sorted(path.name for path in older.iterdir()):
        yield Damage(f"{name} a folder", partial(_into_folder, name=name))
        yield Damage(f"{name} older", partial(_put_back, older=older, names=(name,)))
    journal = ("journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm")
    yield Damage("journal and log older", partial(_put_back, older=older, names=journal))
    yield Damage("journal and log deleted", partial(_delete, names=journal))
    yield Damage("journal and identity older", partial(_put_back, older=older, names=(*journal, "identity")))


def in_each_way(folder: Path, older: Path) -> Iterator[Damage]:
    """Each file deleted, emptied, cut in half, put back from an older copy, not to be read, turned into a folder."""
    for path in sorted(folder.iterdir()):
        name = path.name
        yield Damage(f"{name} deleted", partial(_delete, names=(name,)))
        yield Damage(f"{name} emptied", partial(_put, name=name, data=b""))
        yield Damage(f"{name} cut", partial(_cut, name=name, size=path.stat().st_size // 2))
        if (older / name).exists():
            yield Damage(f"{name} older", partial(_put_back, older=older, names=(name,)))
        yield Damage(f"{name} not to be read", partial(_forbid, name=name))
        yield Damage(f"{name} a folder", partial(_into_folder, name=name))


def cuts(folder: Path) -> Iterator[Damage]:
    """Each file cut at each page, and in the middle of pages of the log."""
    for path in sorted(folder.iterdir()):
        for size in range(PAGE, path.stat().st_size, PAGE):
            yield Damage(f"{path.name} cut at {size}", partial(_cut, name=path.name, size=size))
            if path.name.endswith("-wal"):
                yield Damage(f"{path.name} cut at {size + 1000}", partial(_cut, name=path.name, size=size + 1000))


def flips(folder: Path, count: int, seed: float, only: str = "") -> Iterator[Damage]:
    """So many single bits turned over: of each file as many, but of the journal and its log three times as many; or all
    of one file."""
    dice = random.Random(seed)
    paths = [path for path in sorted(folder.iterdir()) if path.stat().st_size and only in ("", path.name)]
    if not paths:
        return
    weights = [3 if path.name in ("journal.sqlite", "journal.sqlite-wal") else 1 for path in paths]
    for path in dice.choices(paths, weights, k=count):
        place, bit = dice.randrange(path.stat().st_size), dice.randrange(8)
        yield Damage(f"{path.name} bit {bit} of byte {place}", partial(_flip, name=path.name, place=place, bit=bit))


def _cut(folder: Path, name: str, size: int) -> None:
    _put(folder, name, (folder / name).read_bytes()[:size])


def _flip(folder: Path, name: str, place: int, bit: int) -> None:
    data = bytearray((folder / name).read_bytes())
    data[place] ^= 1 << bit
    _put(folder, name, bytes(data))


def _put(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)


def _put_back(folder: Path, older: Path, names: Sequence[str]) -> None:
    for name in names:
        shutil.copy(older / name, folder / name)


def _delete(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / name).unlink()


def _forbid(folder: Path, name: str) -> None:
    (folder / name).chmod(0)


def _into_folder(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()
