"""The journal's database on a PostgreSQL server: the same tables, rules and promises as the SQLite file.

A commit returns when the server has it on disk (`synchronous_commit = on`, and a server with `fsync = off` is
refused). Everything of a transaction travels at its commit, in one go. The writer holds a lock for as long as its
connection lives; when that was lost it takes the lock again and makes sure that nobody wrote in between.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Sequence
from typing import Any

from millrace.notifier.journal.changes import BlockKey, Changes, ContentKey, Known, LatestKey
from millrace.notifier.journal.rows import (
    NEWEST_BYTES,
    NEWEST_EVENTS,
    PRUNE_ROWS,
    SELECT,
    JournalUnusable,
    block_of,
    entry_of,
    event_row,
    held_of,
    intact,
    newest_of,
    prunable,
    row_of,
    signed,
    unsigned,
    update_held,
    update_live,
)
from millrace.notifier.rules.dedup import Block
from millrace.notifier.rules.entry import Entry
from millrace.notifier.rules.runs import Runs
from millrace.runtime import postgres
from millrace.runtime.postgres import Connection, Postgres, Refused, Unavailable
from millrace.runtime.settings import Secret

SCHEMA_VERSION = 1
_OURS = "millrace notifier journal, format "
_TABLES = {"events", "blocks", "contents", "latest", "shards", "facts"}

_CREATE = """
CREATE TABLE events (
    sequence BIGINT PRIMARY KEY, topic TEXT NOT NULL, shard BIGINT NOT NULL, marks BIGINT NOT NULL,
    message_id TEXT NOT NULL, received_ms BIGINT NOT NULL, checksum BIGINT NOT NULL, size BIGINT NOT NULL,
    payload BYTEA NOT NULL);
ALTER TABLE events ALTER payload SET STORAGE EXTERNAL; -- compressing costs more than it saves
CREATE INDEX events_by_topic ON events (topic, sequence);
CREATE TABLE blocks (
    shard BIGINT NOT NULL, hash BYTEA NOT NULL, generation BIGINT NOT NULL, state SMALLINT NOT NULL, nonce BIGINT,
    digest BYTEA NOT NULL, first_sequence BIGINT NOT NULL, announced SMALLINT NOT NULL, held_since BIGINT NOT NULL,
    PRIMARY KEY (shard, hash));
CREATE INDEX blocks_by_nonce ON blocks (shard, nonce);
CREATE INDEX blocks_by_age ON blocks (first_sequence);
CREATE INDEX blocks_waiting ON blocks (held_since) WHERE held_since > 0;
CREATE TABLE contents (
    topic TEXT NOT NULL, shard BIGINT NOT NULL, digest BYTEA NOT NULL, sequence BIGINT NOT NULL,
    PRIMARY KEY (topic, shard, digest));
CREATE INDEX contents_by_age ON contents (sequence);
CREATE TABLE latest (topic TEXT NOT NULL, shard BIGINT NOT NULL, digest BYTEA NOT NULL, PRIMARY KEY (topic, shard));
CREATE TABLE shards (shard BIGINT PRIMARY KEY, nonce BIGINT NOT NULL, saved_ms BIGINT NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
"""
_BLOCK = "generation, state, nonce, digest, first_sequence, announced, held_since"
_SET_HORIZON = "INSERT INTO facts VALUES ('horizon', $1) ON CONFLICT (name) DO UPDATE SET value = $1"
_PUT_BLOCK = f"""INSERT INTO blocks (shard, hash, {_BLOCK}) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)
    ON CONFLICT (shard, hash) DO UPDATE SET ({_BLOCK}) = ($3,$4,$5,$6,$7,$8,$9)"""


class PostgresStore:
    """One connection to the journal in the schema `schema`. The writer's is also the memory of the rules."""

    disk_bytes = 0

    def __init__(self, url: Secret, schema: str, *, writer: bool) -> None:
        self._schema = schema
        self._aside = f'rename the schema "{schema}" out of the'
        self._writer = writer
        self._commits: int | None = None  # how many this journal has seen, known once it is open
        self._doubt: Changes | None = None
        self._changes = Changes()
        self._blocks: Known[BlockKey, Block] = Known()
        self._contents: Known[ContentKey, int] = Known()
        self._latest: Known[LatestKey, bytes] = Known()
        self._nonces: dict[int, tuple[int, int]] = {}
        self._held: dict[BlockKey, Block] = {}
        self._horizon = 0  # memories from before this sequence are forgotten
        self._db = Postgres(url, "millrace notifier", self._on_connect)
        self.place = f"{self._db.place}, schema {schema}"
        try:
            self._open()
        except Refused as error:
            self._db.close()
            raise self._unusable(error) from None
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def _unusable(self, error: object) -> JournalUnusable:
        return JournalUnusable(f"{error}. Mend that on the server, or choose another journal_url or journal_schema")

    def _damaged(self, what: object) -> JournalUnusable:
        return JournalUnusable.damaged(self.place, what, self._aside)

    # Opening, and opening again.

    async def _on_connect(self, connection: Connection) -> None:
        """A new connection: make it ours. Raises `Refused` when the journal cannot be used any more."""
        await connection.execute(f"SET search_path TO {_quoted(self._schema)}")
        if not self._writer:
            await connection.execute("SET default_transaction_read_only = on")
            return
        if await connection.fetchval("SHOW fsync") != "on":
            raise Refused(f"{self.place}: the server runs with fsync = off and would lose what it acknowledged")
        if not await postgres.take_lock(connection, self._schema):
            words = f"{self.place} is in use by another notifier: stop it"
            raise Unavailable(words) if self._commits is not None else Refused(words)
        if self._commits is not None:
            await self._check_still_ours(connection)

    async def _check_still_ours(self, connection: Connection) -> None:
        commits = await connection.fetchval("SELECT value FROM facts WHERE name = 'commits'")
        known = self._commits or 0
        if commits != known and not (self._doubt and commits == known + 1):
            raise Refused(f"{self.place}: another notifier wrote to this journal while the connection was lost")

    def _open(self) -> None:
        tables = {
            row[0] for row in self._db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", self._schema)
        }
        if self._writer and not tables:
            self._db.run(self._create)
            tables = _TABLES
        self._require_ours(tables)
        self.origin = self._fact("origin")
        if not self._writer:
            return
        self.newest = self._read_newest()
        row = self._db.fetch("SELECT max(sequence), min(sequence), sum(size) FROM events")[0]
        self.next_sequence: int = max(self._fact("next"), (row[0] or 0) + 1)
        self.oldest: int = row[1] or self.next_sequence
        self.payload_bytes = int(row[2] or 0)
        self._nonces = {row[0]: (unsigned(row[1]), row[2]) for row in self._db.fetch("SELECT * FROM shards")}
        held = self._db.fetch(f"SELECT shard, hash, {_BLOCK} FROM blocks WHERE held_since > 0")
        self._held = {(row[0], row[1]): block_of(row[2:]) for row in held}  # whose mark waits
        self._undo = self.next_sequence, self.oldest, self.payload_bytes
        self._db.run(self._begin_run)
        self._commits = self._fact("commits")
        horizon = self._db.fetch("SELECT value FROM facts WHERE name = 'horizon'")  # none before the first
        self._horizon = int(horizon[0][0]) if horizon else 0

    async def _create(self, connection: Connection) -> None:
        schema = _quoted(self._schema)
        origin = time.time_ns() // 1_000_000  # as in the SQLite store: consumers of a lost journal learn of the gap
        facts = f"INSERT INTO facts VALUES ('origin', {origin}), ('next', {origin + 1}), ('commits', 0);"
        comment = f"COMMENT ON SCHEMA {schema} IS '{_OURS}{SCHEMA_VERSION}';"
        async with connection.transaction():
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}; {_CREATE} {facts} {comment}")

    async def _begin_run(self, connection: Connection) -> None:
        """Note that the present run begins behind the newest event."""
        async with connection.transaction():
            facts = await connection.fetch("DELETE FROM facts WHERE name LIKE 'run %' RETURNING name, value")
            self.runs = Runs.begin([(fact["name"], fact["value"]) for fact in facts], self.next_sequence - 1)
            await connection.executemany("INSERT INTO facts VALUES ($1,$2)", self.runs.facts)

    def _require_ours(self, tables: set[str]) -> None:
        query = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = $1"
        rows = self._db.fetch(query, self._schema)
        name = str(rows[0][0] or "") if rows else ""
        if not name.startswith(_OURS):
            raise JournalUnusable(f"{self.place} holds something else: choose another journal_schema")
        version = name.removeprefix(_OURS)
        if version != str(SCHEMA_VERSION):
            raise JournalUnusable(
                f"{self.place} has format {version}, this version reads {SCHEMA_VERSION}: "
                "start the version that wrote it, or choose another journal_schema"
            )
        missing = _TABLES - tables
        if missing:
            raise self._damaged(f"the table {', '.join(sorted(missing))} is missing")

    def _read_newest(self) -> list[Entry]:
        sizes = self._db.fetch("SELECT sequence, size FROM events ORDER BY sequence DESC LIMIT $1", NEWEST_EVENTS)
        totals = list(itertools.accumulate(row[1] for row in sizes))
        count = min(len(totals), 1 + bisect.bisect_left(totals, NEWEST_BYTES))
        rows = self._db.fetch(f"{SELECT} ORDER BY sequence DESC LIMIT $1", count)
        return newest_of(self.place, rows, self._aside)

    def _fact(self, name: str) -> int:
        rows = self._db.fetch("SELECT value FROM facts WHERE name = $1", name)
        if not rows:
            raise self._damaged(f"the fact {name!r} is missing")
        return int(rows[0][0])

    def _fetch(self, query: str, *values: object) -> list[Any]:
        try:
            return self._db.fetch(query, *values)
        except Refused as error:
            raise self._unusable(error) from None

    # Transactions.

    def begin(self) -> None:
        self._changes = Changes()
        self._undo = self.next_sequence, self.oldest, self.payload_bytes

    def commit(self) -> None:
        """Return once everything since `begin` is on disk. After an `OSError` ask `landed`."""
        if not self._changes:
            return
        self._doubt = self._changes
        try:
            self._db.run(self._send)
        except Refused as error:
            raise self._unusable(error) from None
        self._settle()

    async def _send(self, connection: Connection) -> None:
        changes = self._changes
        async with connection.transaction():
            await connection.execute(
                "UPDATE facts SET value = CASE name WHEN 'next' THEN $1::bigint ELSE $2::bigint END"
                " WHERE name IN ('next', 'commits')",
                self.next_sequence,
                (self._commits or 0) + 1,
            )
            if changes.events:
                await connection.executemany(
                    "INSERT INTO events VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)", [event_row(e) for e in changes.events]
                )
            if changes.blocks:
                await connection.executemany(_PUT_BLOCK, [(*k, *row_of(block)) for k, block in changes.blocks.items()])
            if changes.contents:
                await connection.executemany(
                    "INSERT INTO contents VALUES ($1,$2,$3,$4) ON CONFLICT (topic, shard, digest)"
                    " DO UPDATE SET sequence = $4",
                    [(*key, sequence) for key, sequence in changes.contents.items()],
                )
            if changes.latest:
                await connection.executemany(
                    "INSERT INTO latest VALUES ($1,$2,$3) ON CONFLICT (topic, shard) DO UPDATE SET digest = $3",
                    [(*key, digest) for key, digest in changes.latest.items()],
                )
            if changes.nonces:
                await connection.executemany(
                    "INSERT INTO shards VALUES ($1,$2,$3) ON CONFLICT (shard) DO UPDATE SET nonce = $2, saved_ms = $3",
                    [(shard, signed(nonce), at) for shard, (nonce, at) in changes.nonces.items()],
                )
            if changes.delete_events:
                await connection.execute("DELETE FROM events WHERE sequence <= $1", changes.delete_events)
            if changes.forget_before:
                await connection.execute(
                    "DELETE FROM blocks WHERE first_sequence < $1 AND held_since = 0", changes.forget_before
                )
                await connection.execute("DELETE FROM contents WHERE sequence < $1", changes.forget_before)
                await connection.execute(_SET_HORIZON, changes.forget_before)

    def _settle(self) -> None:
        """The changes are on disk: they become what is known."""
        changes, self._doubt, self._changes = self._changes, None, Changes()
        self._commits = (self._commits or 0) + 1
        for key, block in changes.blocks.items():
            self._blocks.put(key, block)
        update_held(self._held, changes.blocks)
        for content, sequence in changes.contents.items():
            self._contents.put(content, sequence)
        for name, digest in changes.latest.items():
            self._latest.put(name, digest)
        self._nonces.update(changes.nonces)
        self._horizon = max(self._horizon, changes.forget_before)

    def landed(self) -> bool:
        """Whether the transaction whose commit failed last is on disk after all: only its answer was lost.

        If it is not, it has been taken back. Raises `OSError` while the server cannot say.
        """
        if self._doubt is None:
            return False
        after = self.next_sequence, self.oldest, self.payload_bytes
        commits = self._fetch("SELECT value FROM facts WHERE name = 'commits'")[0][0]
        if commits == self._commits:
            self._doubt = None
            self.rollback()
            return False
        self.next_sequence, self.oldest, self.payload_bytes = after
        self._settle()
        return True

    def rollback(self) -> None:
        """Forget everything since `begin`; but not a commit in doubt, which `landed` decides."""
        if self._doubt is None:
            self._changes = Changes()
            self.next_sequence, self.oldest, self.payload_bytes = self._undo

    def mark(self) -> tuple[int, ...]:
        """A point inside a transaction to go back to."""
        return (self.next_sequence, self.payload_bytes, *self._changes.mark())

    def back_to(self, mark: tuple[int, ...]) -> None:
        self.next_sequence, self.payload_bytes, undo, events = mark
        self._changes.back_to(undo, events)

    # Events.

    def append(self, topic: str, shard: int, marks: int, message_id: str, now: int, payload: bytes) -> Entry:
        """Add an event under the next sequence."""
        entry = Entry(self.next_sequence, topic, shard, marks, message_id, now, payload)
        self._changes.events.append(entry)
        self.next_sequence += 1
        self.payload_bytes += len(payload)
        return entry

    def read(self, after: int, max_bytes: int, max_rows: int = 1024) -> tuple[list[Entry], list[int]]:
        """Events beyond the sequence `after`, at least one if there is one; and the sequences found corrupt."""
        sizes = self._fetch(
            "SELECT sequence, octet_length(payload) FROM events WHERE sequence > $1 ORDER BY sequence LIMIT $2",
            after,
            max_rows,
        )
        last, size = after, 0
        for sequence, length in sizes:
            last, size = sequence, size + length
            if size >= max_bytes:
                break
        entries: list[Entry] = []
        corrupt: list[int] = []
        for row in self._fetch(f"{SELECT} WHERE sequence > $1 AND sequence <= $2 ORDER BY sequence", after, last):
            if intact(row):
                entries.append(entry_of(row))
            else:
                corrupt.append(row[0])
        return entries, corrupt

    def prune(self, before_ms: int, max_bytes: int, dedup_window: int, rows: int = PRUNE_ROWS) -> int:
        """Delete some of the oldest events and memories beyond the bounds; return how many events went."""
        sizes = self._fetch(
            "SELECT sequence, size, received_ms FROM events WHERE sequence >= $1 ORDER BY sequence LIMIT $2",
            self.oldest,
            rows,
        )
        last, gone, freed = prunable(sizes, before_ms, self.payload_bytes, max_bytes)
        if gone:
            self._changes.delete_events = last
            self.oldest = last + 1
            self.payload_bytes -= freed
        horizon = self.next_sequence - dedup_window
        if horizon > max(self.origin, self._horizon):
            self._changes.forget_before = horizon
        return gone

    # The memory of the rules.

    def block(self, shard: int, block_hash: bytes) -> Block | None:
        key = shard, block_hash
        block = self._changes.blocks.get(key) or self._blocks.get(key)
        if block is None:
            rows = self._fetch(f"SELECT {_BLOCK} FROM blocks WHERE shard = $1 AND hash = $2", shard, block_hash)
            if not rows:
                return None
            block = block_of(rows[0])
            self._blocks.put(key, block)
        forgotten = block.first_sequence < self._horizon and not block.held_since
        return None if forgotten else block

    def blocks(self, keys: Sequence[BlockKey]) -> dict[BlockKey, Block]:
        """For a reader, behind whose back they change: so nothing is kept."""
        query = (
            f"SELECT shard, hash, {_BLOCK} FROM blocks WHERE (shard, hash) IN"
            " (SELECT * FROM unnest($1::bigint[], $2::bytea[]))"
        )
        rows = self._fetch(query, [shard for shard, _ in keys], [name for _, name in keys])
        return {(row[0], row[1]): block_of(row[2:]) for row in rows}

    def put_block(self, shard: int, block_hash: bytes, block: Block) -> None:
        self._changes.put(self._changes.blocks, (shard, block_hash), block)

    def live_at(self, shard: int, nonce: int) -> list[bytes]:
        rows = self._fetch(
            "SELECT hash FROM blocks WHERE shard = $1 AND nonce = $2 AND state IN (1, 2)"
            " AND (first_sequence >= $3 OR held_since > 0)",
            shard,
            signed(nonce),
            self._horizon,
        )
        live = dict.fromkeys(row[0] for row in rows)
        update_live(live, self._changes.blocks, shard, nonce, self._horizon)
        return list(live)

    def newest_nonce(self, shard: int) -> int | None:
        known = self._changes.nonces.get(shard) or self._nonces.get(shard)
        return None if known is None else known[0]

    def set_newest_nonce(self, shard: int, nonce: int) -> None:
        self._changes.put(self._changes.nonces, shard, (nonce, time.time_ns() // 1_000_000))

    def shards(self) -> dict[int, tuple[int, int]]:
        """Shard -> nonce of its newest block, and when (ms) that came."""
        return self._nonces | self._changes.nonces

    def waiting(self, before_ms: int) -> list[tuple[int, bytes, Block]]:
        return held_of(self._held | self._changes.blocks, before_ms)

    def add_content(self, topic: str, shard: int, digest: bytes) -> bool:
        key = topic, shard, digest
        seen = self._changes.contents.get(key) or self._contents.get(key)
        if seen is None:
            rows = self._fetch(
                "SELECT sequence FROM contents WHERE topic = $1 AND shard = $2 AND digest = $3", topic, shard, digest
            )
            if rows:
                seen = rows[0][0]
                self._contents.put(key, rows[0][0])
        if seen is not None and seen >= self._horizon:
            return False
        self._changes.put(self._changes.contents, key, self.next_sequence)
        return True

    def swap_latest(self, topic: str, shard: int, digest: bytes) -> bool:
        key = topic, shard
        before = self._changes.latest.get(key) or self._latest.get(key)
        if before is None:
            rows = self._fetch("SELECT digest FROM latest WHERE topic = $1 AND shard = $2", topic, shard)
            before = rows[0][0] if rows else None
        if before == digest:
            self._latest.put(key, digest)
            return False
        self._changes.put(self._changes.latest, key, digest)
        return True


def _quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
