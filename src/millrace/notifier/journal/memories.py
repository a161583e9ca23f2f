"""What the rules remember, in tables of a SQLite file: as of some commit of the log; a start replays later ones.

Keys are hashes. They are moved here many at a time, in the order of eras, so that a move touches the pages of the
newest era only.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from millrace.notifier.journal.changes import BlockKey, ContentKey, LatestKey
from millrace.notifier.journal.recent import Recent
from millrace.notifier.journal.rows import JournalUnusable, block_of, row_of, signed, unsigned
from millrace.notifier.journal.segments import FILE_HEAD, Place
from millrace.notifier.journal.sqlite_schema import APPLICATION_ID, ERA_BITS, SCHEMA, SCHEMA_VERSION
from millrace.notifier.rules.dedup import Block
from millrace.notifier.rules.runs import Runs

FILE_NAME = "journal.sqlite3"
# What says nothing of the file's content: full, busy, locked, read-only, out of memory, cannot be opened.
_PASSING = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip
_ERAS = """WITH RECURSIVE found (era) AS (
    SELECT min(era) FROM {table}
    UNION ALL SELECT (SELECT min(era) FROM {table} WHERE era > found.era) FROM found WHERE found.era IS NOT NULL)
SELECT era FROM found WHERE era IS NOT NULL"""
"""Of a table, without a look at every row."""
_BLOCK = "generation, state, nonce, digest, first_sequence, announced, held_since"


class Memories:
    """One connection to the tables."""

    def __init__(self, directory: Path, *, writer: bool) -> None:
        self.path = directory / FILE_NAME
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10.0)
        try:
            self._open(writer)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise unusable(self.path, error) from error
        except JournalUnusable:
            self._db.close()
            raise

    def _open(self, writer: bool) -> None:
        self._db.execute("PRAGMA mmap_size = 0")
        if not writer:
            self._db.execute("PRAGMA query_only = 1")
            return
        if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            # A journal begins at the time of its creation, in ms: a consumer that knew another, lost journal names
            # a smaller sequence and so learns of the gap. A journal never writes 1,000 events each second for long.
            create(self._db, time.time_ns() // 1_000_000)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._require_ours()
        self.origin = self._fact("origin")
        self.moved = self._fact("moved")
        """The commit of the log as of which the tables are; 0: none."""
        self.start = Place(self._fact("segment"), self._fact("offset"))
        """Where a start reads the log from."""
        self.newest_file = self._fact("newest_file")
        """Number of the newest file that the log is known to have; 0: it has none yet."""
        self._read_eras()

    def _require_ours(self) -> None:
        if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise JournalUnusable(f"{self.path} is a database of something else: choose another data_dir")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version != SCHEMA_VERSION:
            raise JournalUnusable(
                f"{self.path} has format {version}, this version reads {SCHEMA_VERSION}: "
                "start the version that wrote it, or choose another data_dir"
            )

    def _fact(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise damaged(self.path, f"the fact {name!r} is missing")
        return int(row[0])

    def _read_eras(self) -> None:
        """Which eras the tables have."""
        self._eras = {
            table: {row[0] for row in self._db.execute(_ERAS.format(table=table))} for table in ("blocks", "contents")
        }

    def close(self) -> None:
        self._db.close()

    # Writing; each is a transaction.

    def begin_run(self, after: int) -> Runs:
        """The runs of this journal, with the present one, which begins behind the sequence `after`."""
        runs = Runs.begin(self._db.execute("SELECT name, value FROM facts"), after)
        statements: list[tuple[str, Sequence[Sequence[object]]]] = [
            ("DELETE FROM facts WHERE name LIKE 'run %'", [()]),
            ("INSERT INTO facts VALUES (?,?)", runs.facts),
        ]
        self._write({}, statements)
        return runs

    def _write(self, facts: dict[str, int], statements: Iterable[tuple[str, Sequence[Sequence[object]]]] = ()) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in statements:
                self._db.executemany(statement, rows)
            self._db.executemany("UPDATE facts SET value = ? WHERE name = ?", [(v, k) for k, v in facts.items()])
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def note_file(self, number: int) -> None:
        """The log has a file that begins with this commit."""
        if self.newest_file:
            self._write({"newest_file": number})
        else:  # its first: a start reads from there
            self._write({"newest_file": number, "segment": number, "offset": FILE_HEAD})
            self.start = Place(number, FILE_HEAD)
        self.newest_file = number

    def move(self, recent: Recent, moved: int, start: Place) -> None:
        """Take what was remembered up to the commit `moved`; starts then read the log from `start` on."""
        marks = ", ".join(f"{name} = excluded.{name}" for name in _BLOCK.split(", "))
        contents = sorted((era(sequence), *key, sequence) for key, sequence in recent.contents.items())
        statements: list[tuple[str, Sequence[Sequence[object]]]] = [
            (
                f"INSERT INTO blocks (era, shard, hash, {_BLOCK}) VALUES (?,?,?,?,?,?,?,?,?,?)"
                f" ON CONFLICT (era, shard, hash) DO UPDATE SET {marks}",
                sorted((era(block.first_sequence), *key, *row_of(block)) for key, block in recent.blocks.items()),
            ),
            ("INSERT OR REPLACE INTO contents VALUES (?,?,?,?,?)", contents),
            ("INSERT OR REPLACE INTO latest VALUES (?,?,?)", [(*key, d) for key, d in recent.latest.items()]),
            (
                "INSERT OR REPLACE INTO shards VALUES (?,?,?)",
                [(shard, signed(nonce), at) for shard, (nonce, at) in recent.nonces.items()],
            ),
        ]
        self._write({"moved": moved, "segment": start.segment, "offset": start.offset}, statements)
        self.moved, self.start = moved, start
        self._eras["blocks"].update(era(block.first_sequence) for block in recent.blocks.values())
        self._eras["contents"].update(map(era, recent.contents.values()))

    def forget(self, horizon: int, count: int) -> None:
        """Delete some rows of eras that lie behind a sequence, but no mark that waits."""
        statements: list[tuple[str, Sequence[Sequence[object]]]] = []
        for table, key, is_old in (
            ("blocks", "era, shard, hash", "era < ? AND held_since = 0"),
            ("contents", "era, topic, shard, digest", "era < ?"),
        ):
            old = f"SELECT {key} FROM {table} WHERE {is_old} ORDER BY {key} LIMIT ?"
            statements.append((f"DELETE FROM {table} WHERE ({key}) IN ({old})", [(era(horizon), count)]))
        self._write({}, statements)
        self._read_eras()

    def settle(self) -> None:
        """Have all in the one file, which can be moved then. Closing tries that too, and is silent when it fails."""
        if self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise sqlite3.OperationalError("the tables are in use by another program")

    # Reading.

    def blocks(self, keys: Sequence[BlockKey]) -> dict[BlockKey, Block]:
        """Those of these blocks that are here, for who does not know which eras there are by now."""
        self._db.execute("BEGIN")
        try:
            self._read_eras()
            found = {key: self.block(key) for key in keys}
        finally:
            self._db.execute("COMMIT")
        return {key: block for key, block in found.items() if block is not None}

    def block(self, key: BlockKey) -> Block | None:
        eras = self._eras["blocks"]
        places = ", ".join("?" * len(eras))
        ask = (
            f"SELECT {_BLOCK} FROM blocks WHERE era IN ({places}) AND shard = ? AND hash = ? ORDER BY era DESC LIMIT 1"
        )
        row = self._db.execute(ask, (*eras, *key)).fetchone()
        return None if row is None else block_of(row)

    def live_at(self, shard: int, nonce: int, horizon: int) -> list[bytes]:
        """Hashes of the blocks at a nonce that are not reverted, first heard of since `horizon`, or held."""
        rows = self._db.execute(
            "SELECT hash FROM blocks WHERE shard = ? AND nonce = ? AND state IN (1, 2)"
            " AND (first_sequence >= ? OR held_since > 0)",
            (shard, signed(nonce), horizon),
        )
        return [row[0] for row in rows]

    def held(self) -> dict[BlockKey, Block]:
        """Blocks whose mark waits."""
        rows = self._db.execute(f"SELECT shard, hash, {_BLOCK} FROM blocks WHERE held_since > 0")
        return {(row[0], row[1]): block_of(row[2:]) for row in rows}

    def content(self, key: ContentKey) -> int | None:
        """The sequence of a content."""
        eras = self._eras["contents"]
        places = ", ".join("?" * len(eras))
        ask = f"SELECT max(sequence) FROM contents WHERE era IN ({places}) AND topic = ? AND shard = ? AND digest = ?"
        found: int | None = self._db.execute(ask, (*eras, *key)).fetchone()[0]
        return found

    def latest(self, key: LatestKey) -> bytes | None:
        """The digest of what a shard's newest message of a topic said."""
        row = self._db.execute("SELECT digest FROM latest WHERE topic = ? AND shard = ?", key).fetchone()
        return None if row is None else row[0]

    def shards(self) -> dict[int, tuple[int, int]]:
        """Shard -> nonce of its newest block, and when (ms) that came."""
        return {row[0]: (unsigned(row[1]), row[2]) for row in self._db.execute("SELECT * FROM shards")}


def create(db: sqlite3.Connection, origin: int) -> None:
    """Make the tables of a journal without a log, which will begin behind the sequence `origin`."""
    facts = f"('origin', {origin}), ('moved', 0), ('segment', 0), ('offset', 0), ('newest_file', 0)"
    ours = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
    db.executescript(f"BEGIN; {ours} {SCHEMA} INSERT INTO facts VALUES {facts}; COMMIT;")


def unusable(path: Path, error: sqlite3.Error) -> JournalUnusable:
    """Why the database at `path` cannot be used."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING:  # what Python itself finds has no code
        return JournalUnusable(f"{path}: {error}. Mend that and start again")
    return damaged(path, error)


def damaged(path: Path, what: object) -> JournalUnusable:
    """The journal is not what it was; `path` is the database, and the log goes with it."""
    return JournalUnusable.damaged(path, what, "move journal.sqlite3* and the folder events")


def era(sequence: int) -> int:
    """Which era a sequence is of."""
    return sequence >> ERA_BITS
