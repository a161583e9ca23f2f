"""What became of transactions, by any of their hashes, for as long as submissions are kept: for clients who ask.

A file of its own, beside the journal: three random keys a row would make its commits several times as large, and nobody
waits for these. It can be lost: nothing is signed or refused because of it, and what a kill cuts off is taken from the
journal at the next start, or read from the notifier again (`events/bookmark.py`). One thread writes and reads, so an
answer always knows what was put before the question.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from millrace.chain.transaction import TransactionError, early_hashes, from_proto
from millrace.relayer.journal import submissions
from millrace.relayer.journal.reading import read_only
from millrace.relayer.journal.replaceable import is_damage, opened, put_aside, seal

log = logging.getLogger(__name__)

WRITE_SECONDS = 0.25
"""What ended waits so long for others to be written with."""
MAX_UNWRITTEN = 50_000
"""Half of what may be in flight; beyond it the oldest are left out of the file and counted."""
MAX_QUESTIONS = 64
"""Questions that wait for their answer at once; further ones are asked to come again."""
LOADED_AT_ONCE, PRUNED_AT_ONCE, MENDED_AT_ONCE = 2_000, 5_000, 500
OVERLAP_MS = 2_000
"""What ended so long before the newest in the file may have been cut off by a kill; longer than `WRITE_SECONDS`."""
MAX_OPEN = 200_000
"""As many transactions the tracker follows to their end."""

State = Literal["pending", "included", "success", "fail", "superseded", "dropped", "written off"]
"""`included`: its nonce is used, its end not known yet; `superseded`: its nonce was used by another; `dropped`: sent no
more, and no block had it; `written off`: its operator gave it up."""
UNSEEN = "it may have run: events were lost, or never came"
"""The reason of what is superseded as far as is known: its nonce is used, maybe by itself."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """The block that executed a transaction in its sender's shard."""

    shard: int
    nonce: int
    block_hash: bytes
    timestamp_ms: int


class Fate(msgspec.Struct, frozen=True, gc=False):
    """What is known of one transaction. Amounts are texts: they can be beyond what the file's integers hold."""

    client_hash: bytes
    sdk_hash: bytes
    """Empty unless it names a relayer."""
    chain_hash: bytes
    """Empty if it was never signed, as far as is known."""
    sender: bytes
    nonce: int
    kind: str
    relayer: bytes
    """Who pays the fee; empty where that is the sender."""
    max_fee: str
    state: State
    reason: str = ""
    fee: str | None = None
    place: Place | None = None
    time_ms: int = 0
    """When it came to this."""

    @property
    def is_over(self) -> bool:
        """Whether nobody has to wait for more."""
        return self.state not in ("pending", "included")

    @property
    def has_ended(self) -> bool:
        """Whether the chain has said how. What was given up may still run, and end then."""
        return self.state in ("success", "fail")

    @property
    def may_end(self) -> bool:
        """Whether the chain may say more of it: it never does of what was not signed."""
        return bool(self.chain_hash) and not self.has_ended


class FatesUnavailable(Exception):
    """No answer now; asking again later makes sense."""


_SCHEMA = """
CREATE TABLE IF NOT EXISTS fates (
    id INTEGER PRIMARY KEY,
    client_hash BLOB NOT NULL UNIQUE,
    sdk_hash BLOB,
    chain_hash BLOB,              -- only where it is not the client hash
    time_ms INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    body BLOB NOT NULL            -- MessagePack of a `Fate`, sealed
);
DROP INDEX IF EXISTS fates_by_sdk_hash;   -- of whole hashes, by an earlier version
DROP INDEX IF EXISTS fates_by_chain_hash;
CREATE INDEX IF NOT EXISTS fates_by_sdk ON fates (substr(sdk_hash, 1, 8)) WHERE sdk_hash IS NOT NULL;
CREATE INDEX IF NOT EXISTS fates_by_chain ON fates (substr(chain_hash, 1, 8)) WHERE chain_hash IS NOT NULL;
CREATE INDEX IF NOT EXISTS fates_by_time ON fates (time_ms);
CREATE INDEX IF NOT EXISTS fates_open ON fates (time_ms) WHERE is_open;
CREATE TABLE IF NOT EXISTS filled (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    after INTEGER                 -- the journal's rows up to this one are in the file; NULL: all of before it was made
);
"""
_FILLED = "INSERT OR REPLACE INTO filled VALUES (0, ?)"
_PUT = (
    "INSERT INTO fates (client_hash, sdk_hash, chain_hash, time_ms, is_open, body) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (client_hash) DO UPDATE SET sdk_hash = excluded.sdk_hash, chain_hash = excluded.chain_hash, "
    "time_ms = excluded.time_ms, is_open = excluded.is_open, body = excluded.body"
)
_FIND = " UNION ALL ".join(
    f"SELECT id, client_hash, body FROM fates WHERE {name} = :hash"
    for name in (
        "client_hash",
        "substr(chain_hash, 1, 8) = substr(:hash, 1, 8) AND chain_hash",
        "substr(sdk_hash, 1, 8) = substr(:hash, 1, 8) AND sdk_hash",
    )
)
"""By indices of which two hold no more of random keys than tells them apart: they are a third as large."""
_OPEN = "SELECT id, client_hash, body FROM fates WHERE is_open ORDER BY time_ms DESC LIMIT ?"
_ENDED = (
    f"SELECT {submissions.COLUMNS}, signature, ended_ms, id, "
    f"(SELECT failed FROM results WHERE results.id = submissions.id) FROM {submissions.SIGNED} "
    "WHERE state IN ('finished', 'superseded', 'dropped')"
)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Fate).decode

T = TypeVar("T")


class _Damaged(NamedTuple):
    """A row that says what nobody wrote."""

    id: object
    client_hash: object


class _Elsewhere(sqlite3.OperationalError):
    """It is not the file that is wrong: there is none until the next start, or the journal cannot be read."""

    sqlite_errorcode = sqlite3.SQLITE_CANTOPEN


class Fates:
    """The file and its thread. `open` it first, `close` it last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.left_out = 0
        """Never written, for want of a disk that takes them."""
        self.put_aside = 0
        """How often the file was damaged and made anew."""
        self.damaged = 0
        """Rows that were damaged when they were read, each once."""
        self._thread = ThreadPoolExecutor(1, "fates")
        self._connection: sqlite3.Connection | None = None
        """The thread's own."""
        self._unwritten: dict[bytes, Fate] = {}
        """By client hash: what came to another state before it was written is written once."""
        self._names: dict[bytes, bytes] = {}
        """The client hashes of these by their other hashes."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self.puts = 0
        """How often something was put."""
        self._on_disk = 0
        """How much of that is in the file."""
        self._asked = 0
        self._failing = ""
        self.filling: asyncio.Task[None] | None = None
        self._after: int | None = None
        """Behind which row of the journal the file is not filled yet; `None` if it is."""
        self._journal = path  # until `open` says which
        self._ends = False
        self._has_file = True

    @property
    def unwritten(self) -> int:
        """What waits to be written."""
        return len(self._unwritten)

    async def open(self, journal: Path) -> list[Fate]:
        """Open or make the file, and take from the journal what a kill cut off; what is still open, newest last.

        Damage is no loss, also when it is found later: the file is put aside and begins anew, and is filled from the
        journal as a new one is (`fill`); a row that alone is damaged is taken from there at once. A fault that may pass
        leaves the file as it is: until the next start, which takes what is missing from the journal, nothing is written
        and what ended before is not told.
        """
        self._journal = journal
        return await self._call(self._open, journal)

    def fill(self, journal: Path) -> None:
        """Begin to take what ended before the file was made from the journal, if that is not done; `close` ends it."""
        if self._after is not None and not self._ends and (self.filling is None or self.filling.done()):
            self.filling = asyncio.ensure_future(self._fill_on(journal))

    async def _fill_on(self, journal: Path) -> None:
        """In parts, so that others' questions and a stop come in between; the next start goes on from the last one."""
        try:
            while (after := self._after) is not None and not self._ends:
                files = self.put_aside
                last = await self._call(self._fill, journal, after)
                self._after = last if files == self.put_aside else 0  # of another file
        except sqlite3.Error as error:
            self._failed(error)

    async def _call(self, work: Callable[..., T], *arguments: object) -> T:
        """Have the thread do something; in another file if this one turns out to be damaged."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._surely, work, *arguments)

    async def close(self) -> None:
        """Write what waits, then close the file."""
        self._ends = True
        if self.filling is not None:
            await self.filling
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._timer is not None:
            self._timer.cancel()
        if await self._call(self._close, self._take()):
            self._on_disk = self.puts
        self._thread.shutdown()

    def put(self, fate: Fate) -> None:
        """Write this, or instead of what was known of the transaction; with the next batch."""
        self.puts += 1
        self._keep(fate)
        if self._has_file and self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write_later)

    def has(self, puts: int) -> bool:
        """Whether so much of what was put would outlive a loss of power."""
        return puts <= self._on_disk

    async def find(self, tx_hash: bytes) -> Fate | None:
        """What is known of the transaction with this client, SDK or chain hash. Raises `FatesUnavailable`."""
        if self._asked >= MAX_QUESTIONS:
            raise FatesUnavailable("too many questions about transactions: ask again later")
        self._asked += 1
        try:
            found = self._unwritten.get(self._names.get(tx_hash, tx_hash))
            if found is not None:
                return found
            return await self._call(self._find, tx_hash)
        except sqlite3.Error as error:
            raise FatesUnavailable(f"what became of transactions cannot be read ({error}): ask again later") from None
        finally:
            self._asked -= 1
            self.fill(self._journal)

    async def prune(self, before_ms: int) -> None:
        """Forget what ended before a time."""
        try:
            while await self._call(self._prune, before_ms):
                pass  # others' questions come in between
        except sqlite3.Error as error:
            self._failed(error)

    def _keep(self, fate: Fate) -> None:
        """Have this wait for the next batch; at the bound the oldest is left out."""
        name = fate.client_hash
        self._unwritten[name] = fate
        for other in (fate.chain_hash, fate.sdk_hash):
            if other:
                self._names[other] = name
        if len(self._unwritten) > MAX_UNWRITTEN:
            gone = self._unwritten.pop(next(iter(self._unwritten)))
            for other in (gone.chain_hash, gone.sdk_hash):
                self._names.pop(other, None)
            self.left_out += 1

    def _take(self) -> list[Fate]:
        """What waits, which is written now."""
        batch = list(self._unwritten.values())
        self._unwritten, self._names = {}, {}
        return batch

    def _write_later(self) -> None:
        self._timer = None
        batch, puts = self._take(), self.puts
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(self._thread, self._surely, self._write, batch)
        self._writing.add_done_callback(lambda done: self._written(done, batch, puts))

    def _written(self, done: asyncio.Future[None], batch: list[Fate], puts: int) -> None:
        """Write what came meanwhile, or try again what the disk did not take."""
        self._writing = None
        error = done.exception()
        if error is None:
            self._failing, self._on_disk = "", puts
        else:
            self._failed(error)
            for fate in batch + self._take():
                self._keep(fate)
        self.fill(self._journal)
        if self._unwritten and self._timer is None and self._has_file:
            self._timer = done.get_loop().call_later(WRITE_SECONDS, self._write_later)

    def _failed(self, error: BaseException) -> None:
        if str(error) != self._failing:
            log.error("what became of transactions is not written", extra={"error": str(error)})
        self._failing = str(error)

    # ---- the thread

    def _open(self, journal: Path) -> list[Fate]:
        try:
            return self._open_file(journal)
        except sqlite3.Error as error:
            if not is_damage(error, self.path):
                return self._go_without(error)
            return self._begin_anew(error)

    def _surely(self, work: Callable[..., T], *arguments: object) -> T:
        """Do it, and once more in another file where this one turns out to be damaged."""
        try:
            return work(*arguments)
        except sqlite3.Error as error:
            if self._connection is None or not is_damage(error, self.path):
                raise
            self._begin_anew(error)
        return work(*arguments)

    def _begin_anew(self, error: Exception) -> list[Fate]:
        """Put the file aside, and make another; what is still open of it."""
        self._close_file()
        try:
            aside = put_aside(self.path)
            self.put_aside += 1
            text = {"file": str(self.path), "error": str(error), "kept": str(aside)}
            log.error("the file of what became of transactions is damaged and made anew", extra=text)
            return self._open_file(self._journal)
        except (sqlite3.Error, OSError) as further:
            return self._go_without(further)

    def _go_without(self, error: Exception) -> list[Fate]:
        """Nothing is signed or refused because of the file: the service starts without it."""
        text = {"file": str(self.path), "error": str(error)}
        log.error("the file of what became of transactions cannot be used before the next start", extra=text)
        self._close_file()
        self._has_file, self._after = False, None
        return []

    def _close_file(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _file(self) -> sqlite3.Connection:
        """Raises `sqlite3.Error` where there is none."""
        if self._connection is None:
            raise _Elsewhere("its file cannot be used")
        return self._connection

    def _open_file(self, journal: Path) -> list[Fate]:
        connection = self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a few times a second at most: the place of reading passes it
        connection.executescript(_SCHEMA)
        (newest,) = connection.execute("SELECT MAX(time_ms) FROM fates").fetchone()
        (written,) = connection.execute("PRAGMA user_version").fetchone()  # in minutes; 0: by an earlier version
        filled = connection.execute("SELECT after FROM filled").fetchone()
        if not all(value is None or isinstance(value, int) for value in (newest, *(filled or ()))):
            raise sqlite3.OperationalError("a time or a number is none")
        if newest is not None or filled is not None:  # else it is a new one, see `fill`
            # The clock may have been set back since: what came to its end before has later times then.
            since = 0 if newest is None else min(newest, written * 60_000) if written else newest
            self._load(journal, since - OVERLAP_MS)
        self._after = 0 if filled is None else filled[0]
        return self._open_ones()

    def _open_ones(self) -> list[Fate]:
        """What may still come to an end, as far as it can be read."""
        rows = self._file.execute(_OPEN, (MAX_OPEN,)).fetchall()
        read = [(_read(body), _Damaged(id_, name)) for id_, name, body in rows][::-1]
        if damaged := [row for fate, row in read if fate is None]:
            self._mend(damaged)
            return self._open_ones()
        return [fate for fate, _ in read if fate is not None]

    def _fill(self, journal: Path, after: int) -> int | None:
        """Take some rows behind this one from the journal; the last of them, `None` if there are no more."""
        last = self._take_over(journal, "id > ? ORDER BY id LIMIT ?", (after, LOADED_AT_ONCE))
        self._file.execute(_FILLED, (last,))
        return last

    def _load(self, journal: Path, since_ms: int) -> None:
        """Take from the journal what ended since then and is not in the file."""
        self._take_over(journal, "(ended_ms >= ? OR ended_ms IS NULL)", (since_ms,))

    def _take_over(self, journal: Path, which: str, parameters: tuple[object, ...]) -> int | None:
        last: int | None = None
        for part in _ended(journal, which, parameters):
            last = part[-1][-2]
            fates = [_fate_of(submissions.record(row[:-3]), *row[-3::2]) for row in part]
            self._write([fate for fate in fates if fate is not None], keep=True)
        return last

    def _write(self, fates: Sequence[Fate], *, keep: bool = False) -> None:
        """Write all or none; `keep` what is known of them already."""
        connection = self._file
        sql = _PUT.partition("DO UPDATE")[0] + "DO NOTHING" if keep else _PUT
        rows = [
            (
                fate.client_hash,
                fate.sdk_hash or None,
                fate.chain_hash if fate.chain_hash not in (b"", fate.client_hash) else None,
                fate.time_ms,
                fate.may_end,
                seal(_encode(fate)),
            )
            for fate in fates
        ]
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(sql, rows)
            if not keep:
                connection.execute(f"PRAGMA user_version = {int(time.time() / 60)}")
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _find(self, tx_hash: bytes) -> Fate | None:
        found, damaged = self._look(tx_hash)
        if damaged:
            self._mend(damaged)
            found, _ = self._look(tx_hash)
        return found

    def _look(self, tx_hash: bytes) -> tuple[Fate | None, list[_Damaged]]:
        """What is known under a name, and the rows under it that are damaged: also where they are another's."""
        damaged: list[_Damaged] = []
        for id_, name, body in self._file.execute(_FIND, {"hash": tx_hash}).fetchall():
            fate = _read(body)
            if fate is not None and tx_hash in (fate.client_hash, fate.chain_hash, fate.sdk_hash):
                return fate, damaged
            damaged.append(_Damaged(id_, name))
        return None, damaged

    def _mend(self, damaged: Sequence[_Damaged]) -> None:
        """Have rows that are damaged say what the journal knows, or be gone."""
        if not damaged:
            return
        log.error("rows of what became of transactions are damaged", extra={"count": len(damaged)})
        self.damaged += len(damaged)
        self._file.executemany("DELETE FROM fates WHERE id = ?", [(row.id,) for row in damaged])
        names = [row.client_hash for row in damaged if isinstance(row.client_hash, bytes)]
        for first in range(0, len(names), MENDED_AT_ONCE):
            part = names[first : first + MENDED_AT_ONCE]
            self._take_over(self._journal, f"client_hash IN ({', '.join('?' * len(part))})", tuple(part))

    def _prune(self, before_ms: int) -> bool:
        """Forget some; whether there were any."""
        if self._connection is None:
            return False
        sql = "DELETE FROM fates WHERE id IN (SELECT id FROM fates WHERE time_ms < ? LIMIT ?)"
        return self._file.execute(sql, (before_ms, PRUNED_AT_ONCE)).rowcount > 0

    def _close(self, batch: list[Fate]) -> bool:
        """Write the last batch, and close; whether the file has all."""
        if self._connection is None:
            return False
        try:
            if batch:
                self._write(batch)
            return True
        except sqlite3.Error as error:
            self._failed(error)
            return False
        finally:
            self._close_file()


def _ended(journal: Path, which: str, parameters: tuple[object, ...]) -> Iterator[list[Any]]:
    """Rows of the journal that are over, in parts."""
    try:
        with contextlib.closing(read_only(journal)) as source:
            rows = source.execute(f"{_ENDED} AND {which}", parameters)
            while part := rows.fetchmany(LOADED_AT_ONCE):
                yield part
    except sqlite3.Error as error:
        raise _Elsewhere(f"the journal: {error}") from error


def _read(body: object) -> Fate | None:
    """What a row says; `None` if it is damaged. Of an earlier version, which had no checksums, not all damage shows."""
    plain = opened(body)
    try:
        fate = None if plain is None else _decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if fate is None or len(fate.sender) != 32 or len(fate.relayer) not in (0, 32):  # of no address
        return None
    return fate


def _fate_of(record: submissions.Record, ended_ms: int | None, failed: int | None) -> Fate | None:
    """What a row that is over says; `None` of what was never accepted. `failed` is 0 or 1 where that is known."""
    unsigned = record.state == "superseded" and record.chain_hash is None and record.cost == 0
    if unsigned and not record.broadcast:
        return None
    try:
        tx = from_proto(record.tx)
    except TransactionError:  # whoever needs it says so
        return None
    state: State
    if record.state == "finished":
        state = "included" if failed is None else "fail" if failed else "success"
    elif record.state == "dropped" or unsigned:  # the row of the latter does not say whether another took its nonce
        state = "dropped"
    else:
        state = "superseded" if ended_ms is not None else "written off"
    return Fate(
        client_hash=record.client_hash,
        sdk_hash=early_hashes(tx)[1],
        chain_hash=record.chain_hash or b"",
        sender=record.sender,
        nonce=record.nonce,
        kind=record.kind,
        relayer=tx.relayer,
        max_fee=str(record.fee),
        state=state,
        reason=UNSEEN if state == "superseded" and record.cost else "",
        fee=None if record.state != "finished" or record.cost is None else str(record.cost),
        time_ms=ended_ms or record.created_ms,
    )
