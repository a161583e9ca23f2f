"""Claims that several relayers share, as rows of a PostgreSQL server, which is the arbiter of who has a nonce.

Each relayer has one of a fixed number of seats, leased to it by the server's clock. A claim is one statement: it moves
the seat's position on, if the seat is still its own, and inserts what nobody has claimed yet. So who lost the seat can
claim nothing, however late it wakes up; and a server that has forgotten commits is known by the position.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from millrace.relayer.journal.submissions import Record
from millrace.runtime.postgres import ANSWER_SECONDS, END_IDLE, Connection, Postgres, Refused, making, use_schema
from millrace.runtime.settings import Secret

ROWS_AT_ONCE = 2_000
"""Claims read with one question."""
_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sharing (
    version INTEGER NOT NULL, id TEXT NOT NULL, seats INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS seats (
    seat INTEGER PRIMARY KEY,
    folder TEXT NOT NULL,         -- identity of the data directory that had it last
    reservations BIGINT NOT NULL, -- how many that one's journal had: a copy with fewer is older
    place TEXT NOT NULL,          -- host, folder and process, for people
    word TEXT NOT NULL,           -- random, of the process that has it
    expires_at TIMESTAMPTZ NOT NULL,
    position BIGINT NOT NULL,     -- commits of claims
    open_since BIGINT NOT NULL,   -- all claims made before, in ms, are over
    cursor BIGINT,                -- of the hub's events, and the same for any hub
    cursor_place TEXT NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS claims (
    sender BYTEA NOT NULL,
    nonce BIGINT NOT NULL,
    client_hash BYTEA NOT NULL,
    seat INTEGER NOT NULL,
    tx BYTEA NOT NULL,
    kind TEXT NOT NULL,
    relayer BYTEA NOT NULL,
    fee TEXT NOT NULL,
    ip TEXT NOT NULL,
    created_ms BIGINT NOT NULL,
    state TEXT NOT NULL,
    broadcast BOOLEAN NOT NULL,
    cost TEXT,
    ended_ms BIGINT,
    PRIMARY KEY (sender, nonce)
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS claims_created ON claims USING brin (created_ms);
"""

_GIVEN = (
    "unnest($4::bytea[], $5::bigint[], $6::bytea[], $7::bytea[], $8::text[], $9::bytea[], $10::text[], $11::text[], "
    "$12::bigint[], $13::text[], $14::boolean[], $15::text[], $16::bigint[]) "
    "AS given (sender, nonce, client_hash, tx, kind, relayer, fee, ip, created_ms, state, broadcast, cost, ended_ms)"
)
_CLAIM = f"""
WITH held AS (
    UPDATE seats SET position = position + 1
    WHERE seat = $1 AND word = $2 AND position = $3 AND expires_at > clock_timestamp() RETURNING seat
), new AS (
    INSERT INTO claims (seat, sender, nonce, client_hash, tx, kind, relayer, fee, ip, created_ms, state, broadcast,
        cost, ended_ms)
    SELECT held.seat, given.* FROM held, {_GIVEN} ON CONFLICT DO NOTHING RETURNING 1
)
SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM new)
"""
_WHOSE = """
SELECT claims.sender, claims.nonce, client_hash, seat, kind, state, cost, ended_ms FROM claims
JOIN unnest($1::bytea[], $2::bigint[]) AS asked (sender, nonce) USING (sender, nonce)
"""
_END = """
UPDATE claims SET state = ended.state, cost = coalesce(ended.cost, claims.cost), ended_ms = ended.ended_ms
FROM unnest($3::bytea[], $4::bigint[], $5::bytea[], $6::text[], $7::text[], $8::bigint[])
    AS ended (sender, nonce, client_hash, state, cost, ended_ms), seats
WHERE claims.sender = ended.sender AND claims.nonce = ended.nonce
    AND claims.client_hash = coalesce(ended.client_hash, claims.client_hash)
    AND claims.seat = $1 AND seats.seat = $1 AND seats.word = $2
"""
_SENT = """
UPDATE claims SET broadcast = true FROM unnest($3::bytea[], $4::bigint[]) AS sent (sender, nonce), seats
WHERE claims.sender = sent.sender AND claims.nonce = sent.nonce AND claims.seat = $1
    AND seats.seat = $1 AND seats.word = $2
"""
_VOID = """
DELETE FROM claims USING unnest($3::bytea[], $4::bigint[], $5::bytea[]) AS void (sender, nonce, client_hash), seats
WHERE claims.sender = void.sender AND claims.nonce = void.nonce AND claims.client_hash = void.client_hash
    AND claims.seat = $1 AND state = 'journalled' AND seats.seat = $1 AND seats.word = $2
"""
_COLUMNS = "sender, nonce, client_hash, tx, kind, relayer, fee, cost, ip, created_ms, state, broadcast, ended_ms"


class SeatError(Exception):
    """The seat is not ours any more, or the server is not what it was; the text says what to do."""


class Seat(NamedTuple):
    """A seat as its last holder left it."""

    number: int
    folder: str
    reservations: int
    position: int
    open_since: int
    cursor: int | None
    cursor_place: str


class Claimed(NamedTuple):
    """Who has a nonce."""

    client_hash: bytes
    seat: int
    kind: str
    state: str
    cost: str | None
    ended_ms: int | None


class Shared(NamedTuple):
    """A claim as a row of the journal, and when it ended."""

    record: Record
    ended_ms: int | None


class Progress(msgspec.Struct):
    """What is told beside claims, with the next renewal: how claims ended, and how far their holder has come."""

    ends: list[tuple[bytes, int, bytes | None, str, str | None, int | None]] = []
    """Without a hash it is whatever has the nonce, without a cost that stays what it was."""
    sent: list[tuple[bytes, int]] = []
    """What was only signed, and is to be broadcast now."""
    void: list[tuple[bytes, int, bytes]] = []
    """What was claimed and did not get into the holder's own journal."""
    reservations: int = 0
    open_since: int = 0
    cursor: int | None = None
    cursor_place: str = ""


class Seats:
    """The server's rows, for one task at a time. Raises `Unavailable`, or `Refused` where waiting does not help."""

    def __init__(self, url: Secret, schema: str, seats: int, seconds: float, *, needs_standby: bool = False) -> None:
        self.seconds = seconds
        self.number = -1
        """Of our seat."""
        self._schema = schema
        self._seats = seats
        self._needs_standby = needs_standby
        self._word = secrets.token_hex(16)
        self._db = Postgres(url, "millrace relayer claims", self._on_connect, seconds=ANSWER_SECONDS)

    async def _on_connect(self, connection: Connection) -> None:
        if await connection.fetchval("SHOW fsync") != "on":
            raise Refused(f"{self._db.place}: the server runs with fsync = off: what it commits can be lost")
        if self._needs_standby and not await connection.fetchval("SHOW synchronous_standby_names"):
            raise Refused(
                f"{self._db.place}: no standby is waited for: set synchronous_standby_names there, or claims_standby "
                "to false here"
            )
        await connection.execute(END_IDLE)
        await use_schema(connection, self._schema)

    async def open(self) -> str:
        """Make what is missing; the id of all who share. Raises `Refused` for another number of seats."""

        async def work(connection: Connection) -> str:
            async with making(connection):
                await connection.execute(_SCHEMA)
                row = await connection.fetchrow("SELECT version, id, seats FROM sharing")
                if row is None:
                    row = {"version": _VERSION, "id": secrets.token_hex(16), "seats": self._seats}
                    await connection.execute("INSERT INTO sharing VALUES ($1, $2, $3)", *row.values())
                    await connection.execute(
                        "INSERT INTO seats SELECT number, '', 0, '', '', '-infinity', 0, 0, NULL, '' "
                        "FROM generate_series(0, $1 - 1) AS number",
                        self._seats,
                    )
            if row["version"] != _VERSION:
                raise Refused(f"{self._db.place}: the claims are of version {row['version']}: start that version")
            if row["seats"] != self._seats:
                raise Refused(
                    f"{self._db.place}: the claims are shared by {row['seats']} relayers and `claims_seats` is "
                    f"{self._seats}: it is the same for all of them, for good"
                )
            return str(row["id"])

        return await self._db.ask(work)

    async def sit(self, folder: str, place: str) -> Seat | None:
        """Take a seat that nobody has, the folder's last one if that is free; `None` while all are taken."""

        async def work(connection: Connection) -> Any:
            return await connection.fetchrow(
                "UPDATE seats SET word = $1, place = $2, expires_at = clock_timestamp() + make_interval(secs => $3) "
                "WHERE seat = (SELECT seat FROM seats WHERE expires_at < clock_timestamp() "
                "ORDER BY folder <> $4, folder <> '', seat LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *",
                self._word, place, self.seconds, folder,
            )  # fmt: skip

        row = await self._db.ask(work)
        if row is None:
            return None
        self.number = row["seat"]
        return Seat(
            row["seat"], row["folder"], row["reservations"], row["position"], row["open_since"], row["cursor"],
            row["cursor_place"],
        )  # fmt: skip

    async def settle_in(self, folder: str, reservations: int) -> None:
        """The folder knows all that the seat's holders before it claimed. Raises `SeatError`."""
        await self._own(
            "folder = $3, reservations = $4, expires_at = clock_timestamp() + make_interval(secs => $5)",
            folder, reservations, self.seconds,
        )  # fmt: skip

    async def renew(self, progress: Progress) -> None:
        """Tell progress and go on holding the seat. Raises `SeatError` when another has it."""

        async def work(connection: Connection) -> str:
            async with connection.transaction():
                mine = self.number, self._word
                if progress.void:
                    await connection.execute(_VOID, *mine, *_columns(progress.void, 3))
                if progress.sent:
                    await connection.execute(_SENT, *mine, *_columns(progress.sent, 2))
                if progress.ends:
                    await connection.execute(_END, *mine, *_columns(progress.ends, 6))
                return str(await connection.execute(
                    "UPDATE seats SET expires_at = clock_timestamp() + make_interval(secs => $3), reservations = $4, "
                    "open_since = $5, cursor = coalesce($6, cursor), "
                    "cursor_place = CASE WHEN $6::bigint IS NULL THEN cursor_place ELSE $7 END "
                    "WHERE seat = $1 AND word = $2",
                    *mine, self.seconds, progress.reservations, progress.open_since, progress.cursor,
                    progress.cursor_place,
                ))  # fmt: skip

        if await self._db.ask(work) != "UPDATE 1":
            raise SeatError(f"seat {self.number} was taken over by another relayer")

    async def position(self) -> int:
        """Commits of claims that the server remembers of our seat, which is renewed. Raises `SeatError`."""
        return await self._own("expires_at = clock_timestamp() + make_interval(secs => $3)", self.seconds)

    async def _own(self, change: str, *values: object) -> int:
        rows = await self._fetch(
            f"UPDATE seats SET {change} WHERE seat = $1 AND word = $2 RETURNING position",
            self.number, self._word, *values,
        )  # fmt: skip
        if not rows:
            raise SeatError(f"seat {self.number} was taken over by another relayer")
        return int(rows[0]["position"])

    async def claim(self, records: Sequence[Record], position: int, ended_ms: Sequence[int | None] = ()) -> bool:
        """Claim what nobody has claimed yet, in one commit; whether that was all. Raises `SeatError`.

        `position`: the seat's before, as far as we know. A seat that has run out and nobody has taken is renewed.
        """
        new = await self._insert(records, position, ended_ms)
        if new is None:
            known = await self.position()
            if known != position:
                raise SeatError(
                    f"{self._db.place} has {known} commits of seat {self.number} where {position} were acknowledged: "
                    "it has forgotten some, as a standby that was promoted and had not been waited for; see "
                    "docs/relayer-operating.md"
                )
            new = await self._insert(records, position, ended_ms)
        if new is None:
            raise SeatError(f"seat {self.number} was lost while it was renewed")
        return new == len(records)

    async def _insert(self, records: Sequence[Record], position: int, ended_ms: Sequence[int | None]) -> int | None:
        """How many rows were new; `None` where the seat has run out, is not ours, or is elsewhere."""
        columns = _columns([_row(item) for item in records], 12)
        ended = list(ended_ms) or [None] * len(records)
        (row,) = await self._fetch(_CLAIM, self.number, self._word, position, *columns, ended)
        held, new = row
        return int(new) if held else None

    async def whose(self, names: Sequence[tuple[bytes, int]]) -> dict[tuple[bytes, int], Claimed]:
        """Who has these nonces, as far as anybody has."""
        rows = await self._fetch(_WHOSE, *_columns(names, 2))
        return {(row[0], row[1]): Claimed(*tuple(row)[2:]) for row in rows}

    async def elsewhere(self, sender: bytes, nonce: int) -> list[Record]:
        """What other seats claimed for a sender from a nonce on and may still run."""
        rows = await self._fetch(
            f"SELECT {_COLUMNS} FROM claims WHERE sender = $1 AND nonce >= $2 AND state = 'journalled' AND seat <> $3",
            sender, nonce, self.number,
        )  # fmt: skip
        return [_shared(row).record for row in rows]

    async def each_since(
        self, created_ms: int, open_since: int, take: Callable[[list[Shared]], Awaitable[None]]
    ) -> None:
        """Claims of our seat made since a time, and older ones that are not over, about in the order of being made."""

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                # Locked, it is nobody else's however long this takes.
                if not await connection.fetchval(
                    "SELECT true FROM seats WHERE seat = $1 AND word = $2 FOR UPDATE", self.number, self._word
                ):
                    raise SeatError(f"seat {self.number} was taken over by another relayer")
                rows = await connection.cursor(
                    f"SELECT {_COLUMNS} FROM claims WHERE seat = $1 AND created_ms >= least($2::bigint, $3::bigint) "
                    "AND (created_ms >= $2 OR ended_ms IS NULL)",
                    self.number, created_ms, open_since,
                )  # fmt: skip
                while page := await rows.fetch(ROWS_AT_ONCE):
                    await take([_shared(row) for row in page])
                await connection.execute(
                    "UPDATE seats SET expires_at = clock_timestamp() + make_interval(secs => $2) WHERE seat = $1",
                    self.number, self.seconds,
                )  # fmt: skip

        await self._db.ask(work)

    async def forget(self, before_ms: int) -> None:
        """Forget claims of our seat that were over before a time."""
        await self._fetch(
            "DELETE FROM claims WHERE seat = $1 AND created_ms < $2 AND ended_ms < $2", self.number, before_ms
        )

    async def _fetch(self, query: str, *values: object) -> list[Any]:
        rows: list[Any] = await self._db.ask(lambda connection: connection.fetch(query, *values))
        return rows

    async def leave(self) -> None:
        """Have the seat free for others."""
        if self.number >= 0:
            await self._own("expires_at = '-infinity', word = ''")
            self.number = -1

    async def close(self) -> None:
        await self._db.leave()


def _columns(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]


def _row(item: Record) -> tuple[Any, ...]:
    cost = None if item.cost is None else str(item.cost)
    return (
        item.sender, item.nonce, item.client_hash, item.tx, item.kind, item.relayer, str(item.fee), item.ip,
        item.created_ms, item.state, item.broadcast, cost,
    )  # fmt: skip


def _shared(row: Any) -> Shared:
    sender, nonce, client, tx, kind, relayer, fee, cost, ip, created_ms, state, broadcast, ended_ms = row
    return Shared(
        Record(
            sender, nonce, client, None, tx, kind, relayer, int(fee), None if cost is None else int(cost), ip,
            created_ms, state, broadcast,
        ),
        ended_ms,
    )  # fmt: skip
