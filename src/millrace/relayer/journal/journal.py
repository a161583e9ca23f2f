"""The relayer's memory on disk: what was promised, what was spent, how far the events were read.

SQLite, WAL, synchronous=FULL: `append` returns after fsync. One thread writes, in groups (`writer.py`), and says in
each what there is now (`chain.py`, `mark.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from millrace.chain import address
from millrace.chain.transaction import Transaction, TransactionError, from_proto
from millrace.relayer.journal import audit, chain, claims, identity, memory, outcomes, programmes
from millrace.relayer.journal import submissions as rows
from millrace.relayer.journal.advice import WHAT_TO_DO, advice
from millrace.relayer.journal.alone import FolderLock
from millrace.relayer.journal.chain import Chain, Chained, Link
from millrace.relayer.journal.checkpoints import Checkpoints
from millrace.relayer.journal.claim_errors import ProgrammeFull, TakenElsewhere
from millrace.relayer.journal.claim_rows import Shared
from millrace.relayer.journal.mark import Mark
from millrace.relayer.journal.reading import POLICY, RESERVATIONS, SHARED
from millrace.relayer.journal.sharing import Sharing
from millrace.relayer.journal.submissions import MAX_NONCE, Cosigned, Record
from millrace.relayer.journal.versions import bring_up_to_date
from millrace.relayer.journal.writer import JournalError, NonceTaken, Rows, Write, Writer

log = logging.getLogger(__name__)

QUOTA_MS = 3_600_000
BUDGET_MS = 24 * QUOTA_MS
_SEAT_WORD = "seat_word"
"""Entry of the table `meta`: the word with which this folder had a seat last."""
_SHARED_COMMITS = "shared_commits"
"""The same: how many commits of claims all of them had, as far as was heard."""

_SCHEMA = f"""
{audit.SCHEMA}
{rows.SCHEMA}
{outcomes.SCHEMA}
{chain.SCHEMA}
{claims.SCHEMA}
{programmes.SCHEMA}
CREATE TABLE IF NOT EXISTS write_offs (client_hash BLOB PRIMARY KEY, time_ms INTEGER NOT NULL) WITHOUT ROWID;
"""


class Journal:
    """The file, its writer thread and a reading connection. `open` it first, `close` it last."""

    def __init__(self, path: Path, mark_path: str = "") -> None:
        self.path = path
        self._mark_path = mark_path
        self._mark: Mark | None = None
        self._reader: sqlite3.Connection | None = None
        self._writer: Writer | None = None
        self._checkpoints: Checkpoints | None = None
        self._lock = FolderLock()
        self._cursor: int | None = None
        """What `keep_cursor` wrote last."""
        self._commits = 0
        """What `keep_commits` wrote last."""
        self.sharing: Sharing | None = None
        """Where what our keys are to sign is claimed first, if others have the same keys."""
        self._claiming: dict[bytes, list[tuple[Sequence[rows.End], Sequence[Write]]]] = {}
        """By client hash what is being claimed, and what ended it meanwhile."""
        self.records = 0

    # ---- life

    def open(self) -> None:
        """Open the file and start the writer; one of a new folder is made.

        Raises `IdentityError`, or `JournalError`, also when another process has it open or something of it is lost.
        """
        owner = identity.read(self.path.parent)
        try:
            self._take_lock()
            self._mark = Mark(memory.mark_place(self.path, self._mark_path), owner.id)
            last = memory.recall(self.path, self._mark, owner)
            memory.catch_up(self._mark, last)
            connection = _connect(self.path, Chained)
            assert isinstance(connection, Chained)
            link = _begin(connection, owner, last)
            self._mark.write(link)
            if owner.state == "new":
                identity.write(self.path.parent, identity.started(owner))
            self._reader = _connect(self.path)
        except memory.MemoryLost as error:
            self._lock.give_back()
            raise JournalError(f"{self.path}: {error}") from error
        except (OSError, sqlite3.Error) as error:
            self._lock.give_back()
            raise JournalError(f"{self.path}: {error}. {advice(error)}") from error
        self._checkpoints = Checkpoints(lambda: _connect(self.path), lambda: self.records)
        self._checkpoints.start()
        kept = Chain(connection, memory.KINDS, owner.id, link)
        self._writer = Writer(connection, kept, self._mark, self._checkpoints.committed)

    async def close(self) -> None:
        """Write what waits, then close the file."""
        if self._writer is not None:
            await self._writer.close()
        if self._checkpoints is not None:
            await asyncio.to_thread(self._checkpoints.stop)
        if self._reader is not None:
            self._reader.close()
        if self._mark is not None:
            self._mark.close()
        self._lock.give_back()

    def _take_lock(self) -> None:
        """Two relayers with one journal would each think the whole budget its own. Ends with the process."""
        try:
            self._lock.take(self.path.parent)
        except BlockingIOError:
            raise JournalError(f"{self.path.parent} is in use by another relayer: stop it or choose another") from None

    # ---- writing

    @property
    def waiting(self) -> int:
        """Changes not yet on disk."""
        return 0 if self._writer is None else self._writer.waiting

    @property
    def failed(self) -> str | None:
        """Why the last commit failed, until one succeeds."""
        return None if self._writer is None else self._writer.failed

    @property
    def commits(self) -> int:
        """Groups committed, or tried."""
        return 0 if self._writer is None else self._writer.commits

    async def append(self, records: Sequence[Record], charges: Sequence[programmes.Charge] = ()) -> None:
        """Write new rows, and what programmes are charged for them; returns when they are on disk.

        Raises `JournalFull`, or `JournalError` when the disk fails or a row's (sender, nonce) is held by
        another that may still run; then none of them is there. What others of our keys' relayers have, and what no
        programme pays for all of them: `Sharing.take`.
        """
        paid = [row for row in records if row.relayer is not None] if self.sharing is not None else []
        if paid and self.failed is not None:
            raise JournalError(self.failed)  # nothing is claimed that is let go of at once
        held = await self._claim(self.sharing, paid, charges) if self.sharing is not None and paid else []
        lines: list[audit.Line] = [
            (row.created_ms, "reserve", row.relayer, row.sender, row.nonce, row.client_hash, row.fee)
            for row in records
            if row.relayer is not None
        ]
        writes: list[Write] = [Rows(_insert, "submissions", records), Rows(audit.write, "audit", lines)]
        if charges and self.sharing is None:  # else all relayers of our keys count together
            writes.append(Rows(programmes.write, "programme_charges", charges))
        writes += held
        self.records += len(records)
        try:
            await self._open_writer().commit(*writes)
        except JournalError:
            await self._let_go(paid)
            raise

    def change(self, *writes: Write) -> None:
        """Make a change as soon as the disk takes it, all its parts or none, after those before it. Never refused."""
        self._open_writer().change(*writes)

    def cosigned(self, signed: Sequence[Cosigned]) -> None:
        """Keep relayer signatures, see `change`.

        Only now others with our keys may say that these are accepted: before, the signing process may refuse them.
        """
        if self.sharing is not None:
            self.sharing.kept([(sender, nonce) for sender, nonce, _ in signed])
        self.change(Rows(rows.take_signatures, "signatures", signed))

    def ended(self, ends: Sequence[rows.End], lines: Sequence[audit.Line], *further: Write) -> None:
        """Keep how submissions ended, and what came of their fees, see `change`."""
        writes = Rows(rows.end, "submissions", ends), Rows(audit.write, "audit", lines), *further
        if self.sharing is not None and lines:  # else nothing of it was claimed
            claiming = next((item[2] for item in ends if item[2] in self._claiming), None)
            if claiming is not None:
                self._claiming[claiming].append((ends, writes))
                return
            self.sharing.ended(ends)
        self.change(*writes)

    async def _claim(
        self, sharing: Sharing, records: Sequence[Record], charges: Sequence[programmes.Charge]
    ) -> list[Write]:
        """Claim rows before they are written; what ended of them meanwhile, to be written with them."""
        for row in records:
            self._claiming.setdefault(row.client_hash, [])
        held: list[Write] = []
        try:
            await sharing.take(records, charges)
        except (TakenElsewhere, ProgrammeFull):
            raise  # whatever of them is ours is claimed again, each alone
        except JournalError:
            await self._let_go(records)  # what such an earlier try made ours
            raise
        finally:
            for row in records:
                for ends, writes in self._claiming.pop(row.client_hash, ()):
                    sharing.ended(ends)
                    held += writes
        return held

    async def _let_go(self, records: Sequence[Record]) -> None:
        """These were not written: what of them is claimed for us is nobody's, unless it was written before.

        Raises `JournalError` where it is not known whether the server has heard that.
        """
        if self.sharing is None:
            return
        ours = [row for row in records if self.sharing.has(row.sender, row.nonce)]
        never = [(row.sender, row.nonce, row.client_hash) for row in ours if not self._may_run(row)]
        self.sharing.kept({(row.sender, row.nonce) for row in ours} - {claim[:2] for claim in never})
        if never:
            await self.sharing.let_go(never)

    def _may_run(self, row: Record) -> bool:
        """Whether these bytes may have been signed here; where that cannot be read they may."""
        try:
            found = self.find(row.sender, row.nonce, row.client_hash)
        except JournalError:
            return True
        return found is not None and found.state in rows.OPEN

    def unclaim(self, sender: bytes, nonce: int, client_hash: bytes) -> None:
        """What was refused by the signing process, and surely not signed, is nobody's claim."""
        if self.sharing is not None:
            self.sharing.void([(sender, nonce, client_hash)])

    async def unclaimed(self, names: Collection[tuple[bytes, int]]) -> None:
        """Return when no start finds these, here or at who has our seat next. Raises `JournalError` where one may."""
        await self.written()
        if self.sharing is not None:
            await self.sharing.voided(names)

    def tell_failed(self, sender: bytes, nonce: int) -> None:
        """What our keys paid for has failed: others that share their budget are told."""
        if self.sharing is not None:
            self.sharing.lose(sender, nonce)

    def keep_cursor(self, sequence: int, place: str) -> None:
        """Remember up to which event of the hub nothing need be read again, and the same for any notifier's hub.

        Called every second: while the disk fails one such change is enough to notice that it does no more.
        """
        if self.waiting if self.failed else sequence == self._cursor:
            return
        self._cursor = sequence
        if self.sharing is not None:
            self.sharing.keep_cursor(sequence, place)

        def write(connection: sqlite3.Connection) -> None:
            rows = ("cursor", str(sequence)), ("place", place)
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

        self.change(write)

    def forget_cursor(self) -> None:
        """Where to go on reading is not known: all that is open may have ended unheard."""
        self._cursor = None
        self.change(lambda connection: connection.execute("DELETE FROM meta WHERE name IN ('cursor', 'place')"))

    def keep_loss(self, time_ms: int) -> None:
        """Remember when events were lost last."""
        change = "INSERT OR REPLACE INTO meta VALUES ('events_lost_ms', ?)"
        self.change(lambda connection: connection.execute(change, (str(time_ms),)))

    def lost_ms(self) -> int | None:
        """When events were lost last, if they ever were. Raises `ValueError` for what no version wrote."""
        found = self.read("SELECT value FROM meta WHERE name = 'events_lost_ms'")
        return int(found[0][0]) if found else None

    def keep_pause(self, shards: frozenset[int]) -> None:
        """Remember which shards an operator paused."""
        text = " ".join(map(str, sorted(shards)))

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('paused_shards', ?)", (text,))

        self.change(write)

    async def keep_policy(self, checksum: str) -> None:
        """Remember which policy is the last good one; on disk when it returns. Raises `JournalError`."""
        self.change(
            lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (POLICY, checksum))
        )
        await self.written()

    def kept_policy(self) -> str | None:
        """What `keep_policy` wrote last. Raises `JournalError`."""
        found = self.read("SELECT value FROM meta WHERE name = ?", (POLICY,))
        return str(found[0][0]) if found else None

    def forget_write_off(self, client_hash: bytes) -> None:
        """What an operator asked to write off is not at risk any more."""
        self.change(lambda connection: drop_write_off(connection, client_hash))

    def prune(self, before_ms: int) -> None:
        """Forget submissions that were over before a time; the audit log is kept for ever.

        What a key of ours paid for within the last hour stays: a quota of its IP address still counts it. So does what
        it paid for a known person within the last day, which their budget counts, and what has an outcome that counts.
        """
        now_ms = time.time_ns() // 1_000_000
        recent_ms, day_ms = now_ms - QUOTA_MS, now_ms - BUDGET_MS

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM submissions WHERE ended_ms < ? AND (relayer IS NULL OR created_ms < ?) "
                "AND (relayer IS NULL OR NOT instr(ip, ' ') OR created_ms < ?) "
                "AND id NOT IN (SELECT id FROM results)",
                (before_ms, recent_ms, day_ms),
            )

        self.change(write)
        if self.sharing is not None:
            self.sharing.forget(min(before_ms, day_ms))

    async def written(self) -> None:
        """Return when all changes so far are on disk. Raises `JournalError`."""
        await self._open_writer().commit(lambda _: None)

    async def flush(self) -> None:
        """The same, and the server knows of them, too, that has our claims. Raises `JournalError`."""
        await self.written()
        if self.sharing is not None:
            await self.sharing.flush()

    # ---- one of several with the same keys

    def shared_with(self) -> str | None:
        """The id of those with whom claims were shared last, if they ever were. Raises `JournalError`."""
        found = self.read("SELECT value FROM meta WHERE name = ?", (SHARED,))
        return str(found[0][0]) if found else None

    async def share_with(self, shared: str) -> None:
        """Remember with whom. Raises `JournalError` where it is somebody else."""
        self._require_same(shared)
        self.change(
            lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SHARED, shared))
        )
        await self.flush()

    def seat_word(self) -> str | None:
        """The word with which this folder had a seat last and knew all of it. Raises `JournalError`."""
        found = self.read("SELECT value FROM meta WHERE name = ?", (_SEAT_WORD,))
        return str(found[0][0]) if found else None

    def keep_seat_word(self, word: str) -> None:
        """Have it remembered, before the first claim."""
        self.change(
            lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SEAT_WORD, word))
        )

    def _require_same(self, shared: str) -> str | None:
        """With whom claims were shared last. Raises `JournalError` unless that is nobody or the same."""
        before = self.shared_with()
        if before not in (None, shared):
            raise JournalError(
                f"{self.path.parent} shares its claims with {before} and this server has those of {shared}: put "
                "back the setting `claims_url`, or begin with an empty folder"
            )
        return before

    def known_commits(self, shared: str) -> int:
        """How many commits those with an id had, as far as was heard. Raises `JournalError`, also for another id than
        that of those with whom claims are shared: what is known of these must not be written over.
        """
        found = self.read("SELECT value FROM meta WHERE name = ?", (_SHARED_COMMITS,))
        return int(found[0][0]) if self._require_same(shared) == shared and found else 0

    def keep_commits(self, commits: int) -> None:
        """Remember that; called every second, see `keep_cursor`."""
        if self.waiting if self.failed else commits == self._commits:
            return
        self._commits = commits
        values = (_SHARED_COMMITS, str(commits))
        self.change(lambda connection: connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", values))

    async def adopt(
        self,
        records: Sequence[Record],
        ends: Sequence[rows.End],
        lines: Sequence[audit.Line],
        ended: Sequence[outcomes.Outcome] = (),
    ) -> None:
        """Take over rows and ends as they are claimed. Raises `JournalError` when another row is in the way."""
        await self._open_writer().commit(
            Rows(_insert, "submissions", records),
            Rows(rows.end, "submissions", ends),
            Rows(audit.write, "audit", lines),
            Rows(outcomes.write, "outcomes", ended),
        )

    async def hand_over(self, records: Sequence[Record], lines: Sequence[audit.Line]) -> None:
        """Forget rows that are claimed for another seat: who has that goes on with them. Raises `JournalError`."""
        names = [(row.sender, row.nonce, row.client_hash) for row in records]
        sql = "DELETE FROM submissions WHERE sender = ? AND nonce = ? AND client_hash = ?"
        await self._open_writer().commit(
            lambda connection: connection.executemany(sql, names), Rows(audit.write, "audit", lines)
        )

    def submitted(self, *, only_open: bool = False) -> list[Shared]:
        """What our keys may have signed, as it is claimed; with `only_open` what may still run."""
        wanted = "AND state IN ('journalled', 'signed', 'expired')" if only_open else ""
        return self._as_claims(f"relayer IS NOT NULL {wanted}", ())

    def written_off(self) -> list[Shared]:
        """The same of what was written off and may still run."""
        return self._as_claims("relayer IS NOT NULL AND state = 'superseded' AND ended_ms IS NULL", ())

    def found(self, names: Sequence[tuple[bytes, int]]) -> list[Shared]:
        """The same of those of these senders and nonces that are there."""
        return [item for name in names for item in self._as_claims("sender = ? AND nonce = ?", name)]

    def _as_claims(self, condition: str, values: tuple[Any, ...]) -> list[Shared]:
        columns = rows.COLUMNS.replace("state", "iif(state IN ('signed', 'expired'), 'journalled', state)")
        found = self.read(f"SELECT {columns}, NULL, ended_ms FROM submissions WHERE {condition} ORDER BY id", values)
        return [Shared(rows.record(row[:-1]), row[-1]) for row in found]

    def reservations(self) -> int:
        """How many reservations there are."""
        return int(self.read(RESERVATIONS)[0][0])

    def last_line_ms(self) -> int:
        """The time of the newest line of the audit log, 0 without any."""
        found = self.read("SELECT time_ms FROM audit ORDER BY id DESC LIMIT 1")
        return int(found[0][0]) if found else 0

    def follows_alone(self, since_ms: int) -> bool:
        """Whether anything waits for its end that nobody else with our keys knows of: it was only broadcast here, or
        who asks this relayer is told what it came to, which a block after `since_ms` has begun."""
        condition = "relayer IS NULL AND state IN ('journalled', 'signed', 'expired')"
        finished = "state = 'finished' AND ended_ms >= ?"
        return bool(self.read(f"SELECT 1 FROM submissions WHERE {condition} OR {finished} LIMIT 1", (since_ms,)))

    # ---- reading

    def read(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Rows of a query, by index, of milliseconds at most. Raises `JournalError`."""
        assert self._reader is not None
        try:
            return self._reader.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise JournalError(str(error)) from error

    def find(self, sender: bytes, nonce: int, client_hash: bytes) -> Record | None:
        """The row of these bytes, whatever its state."""
        if nonce > MAX_NONCE:
            return None
        sql = f"{rows.SELECT} WHERE sender = ? AND nonce = ? AND client_hash = ?"
        found = self.read(sql, (sender, nonce, client_hash))
        return rows.record(found[0]) if found else None

    def gives_way(self, sender: bytes, nonce: int) -> bool:
        """Whether what this file has for a nonce, if anything, was surely not signed by us. Raises `JournalError`."""
        return not self.read(rows.KEPT, (sender, nonce))

    async def is_taken(self, sender: bytes, nonce: int) -> bool:
        """Whether `append` would find this nonce taken in this file, whatever became of what has it.

        Raises `JournalError`.
        """
        if self.gives_way(sender, nonce):
            return False
        await self.written()  # how that ended may still be on its way to the disk
        return not self.gives_way(sender, nonce)

    def open_records(self) -> list[Record]:
        """Rows of transactions that may still run, oldest first."""
        return [
            rows.record(row)
            for row in self.read(
                f"{rows.SELECT} WHERE state IN ('journalled', 'signed', 'expired') ORDER BY created_ms"
            )
        ]

    async def latest(self, count: int) -> list[Record]:
        """The newest rows, newest first, read in a thread. Raises `JournalError`."""

        def find() -> list[Record]:
            with contextlib.closing(_connect(self.path)) as reader:
                found = reader.execute(f"{rows.SELECT} ORDER BY id DESC LIMIT ?", (count,))
                return [rows.record(row) for row in found]

        try:
            return await asyncio.to_thread(find)
        except sqlite3.Error as error:
            raise JournalError(str(error)) from error

    def spent_since(self, time_ms: int) -> list[audit.Spent]:
        """What our keys reserved since `time_ms` and did not get back, oldest first."""
        return audit.spent_since(self.read, time_ms)

    def origins_since(self, time_ms: int, strangers_ms: int) -> dict[bytes, str]:
        """Who asked for what our keys pay for, as `origin_text` has it, by client hash, as far as rows are still there.

        Of strangers, whose quotas reach less far back, since `strangers_ms`.
        """
        return dict(
            self.read(
                "SELECT client_hash, ip FROM submissions WHERE relayer IS NOT NULL AND created_ms >= ? "
                "AND (created_ms >= ? OR instr(ip, ' '))",
                (time_ms, strangers_ms),
            )
        )

    def outcomes_since(self, time_ms: int) -> list[outcomes.Outcome]:
        """How sponsored transactions ended since `time_ms`, oldest first."""
        return outcomes.since(self.read, time_ms)

    def failed_since(self, time_ms: int) -> list[tuple[bytes, int]]:
        """Sender and nonce of what our keys paid for and failed since `time_ms`."""
        return self.read(
            "SELECT sender, nonce FROM results JOIN submissions USING (id) WHERE failed AND time_ms >= ?",
            (time_ms,),
        )

    def undecided_since(self, time_ms: int) -> list[Record]:
        """What our keys paid for since `time_ms` without it being known yet whether it failed."""
        found = self.read(
            f"{rows.SELECT} WHERE relayer IS NOT NULL AND state = 'finished' AND ended_ms >= ? "
            "AND id NOT IN (SELECT id FROM results)",
            (time_ms,),
        )
        return [rows.record(row) for row in found]

    def write_offs(self) -> list[bytes]:
        """Client hashes whose at-risk fees an operator asked to write off."""
        return [row[0] for row in self.read("SELECT client_hash FROM write_offs")]

    def cursor(self) -> int | None:
        """The last event that need not be read again, or `None` before the first. Raises `ValueError` if it is none."""
        found = self.read("SELECT value FROM meta WHERE name = 'cursor'")
        return int(found[0][0]) if found else None

    def cursor_place(self) -> str:
        """The place that was kept with the cursor; empty: none was."""
        found = self.read("SELECT value FROM meta WHERE name = 'place'")
        return str(found[0][0]) if found else ""

    def paused_shards(self) -> frozenset[int]:
        """What `keep_pause` wrote last. Raises `JournalError` where that cannot be read."""
        found = self.read("SELECT value FROM meta WHERE name = 'paused_shards'")
        try:
            return frozenset(int(shard) for (text,) in found for shard in str(text).split())
        except ValueError as error:
            raise JournalError(
                f"which shards an operator paused cannot be read ({error}): start the relayer, which then pauses all "
                'of them, and say with POST /control/pause {"shards": […]} of its operators\' port which are to stay so'
            ) from None

    def _open_writer(self) -> Writer:
        assert self._writer is not None, "open it first"
        return self._writer


def transaction_of(record: Record) -> Transaction:
    """The transaction of a row. Raises `JournalError`: rows cannot be left out, for what they hold was promised."""
    try:
        return from_proto(record.tx)
    except TransactionError as error:
        raise JournalError(
            f"the transaction of {address.encode(record.sender)} with nonce {record.nonce} cannot be read ({error}). "
            f"{WHAT_TO_DO}"
        ) from None


def _insert(connection: sqlite3.Connection, records: Sequence[Record]) -> None:
    if rows.insert(connection, records) != len(records):
        raise NonceTaken("a nonce of this sender is taken")


def drop_write_off(connection: sqlite3.Connection, client_hash: bytes) -> None:
    """Forget a request to write off, as part of a change."""
    connection.execute("DELETE FROM write_offs WHERE client_hash = ?", (client_hash,))


def _begin(connection: Chained, owner: identity.Identity, last: Link | None) -> Link:
    """Make the tables that are missing, bring earlier versions up to date; the last link after that, in one commit."""
    to_this_version = bring_up_to_date(connection)
    kinds = (memory.META, outcomes.KIND, outcomes.BEFORE) if to_this_version else (memory.META,)
    before = _unwatched(connection, owner, kinds)
    connection.executescript(f"BEGIN IMMEDIATE;{to_this_version}{_SCHEMA}")
    try:
        if last is None:
            identity.bind(connection, owner)
            last = chain.begin(connection, memory.KINDS, owner.id)
        elif (after := _unwatched(connection, owner, kinds)) != before:
            last = chain.extend(connection, owner.id, last, after - before)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return last


def _unwatched(connection: sqlite3.Connection, owner: identity.Identity, kinds: Sequence[chain.Kind]) -> int:
    """The sum over what bringing a file up to date changes: tables, and rows of these kinds."""
    found = [row for kind in chain.there(connection, kinds) for row in connection.execute(kind.query)]
    return chain.schema_sum(connection, memory.KINDS, owner.id) + chain.sum_of(map(chain.content, found), owner.id)


def _connect(path: Path, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=kind)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 65536")  # pages: 256 MB, where `Checkpoints` cannot keep up
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection
