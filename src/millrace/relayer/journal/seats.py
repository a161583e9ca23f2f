"""Claims that several relayers share, as rows of a PostgreSQL server, which is the arbiter of who has a nonce.

Each relayer has one of a fixed number of seats, leased to it by the server's clock. A claim is one statement: it moves
the seat's position on, if the seat is still its own, and inserts what nobody has claimed yet. So who lost the seat can
claim nothing, however late it wakes up; and a server that has forgotten commits is known by the position. Whoever is
idle knows it by the positions of all seats: what another one signed is not free because the server forgot it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from millrace.relayer.journal import common_programmes as programmes
from millrace.relayer.journal.claim_rows import COLUMNS, Claimed, Shared, claimed_of, row_of, shared_of
from millrace.relayer.journal.claim_tables import opened
from millrace.relayer.journal.common_programmes import Charged, Limits, Total
from millrace.relayer.journal.portions import AT_ONCE, PORTIONS
from millrace.relayer.journal.programmes import User
from millrace.relayer.journal.progress import KEPT, Progress, columns_of, tell
from millrace.relayer.journal.server_clock import ServerClock
from millrace.relayer.journal.submissions import Record
from millrace.runtime.postgres import (
    ANSWER_SECONDS,
    END_IDLE,
    Connection,
    Postgres,
    Refused,
    Timelines,
    Unavailable,
    Unfit,
    use_schema,
)
from millrace.runtime.settings import Secret

log = logging.getLogger(__name__)

ROWS_AT_ONCE = 2_000
"""Claims read, or forgotten, with one question."""
READING_SECONDS = 60.0
"""For a page of them at a start: the first passes over all that ended since the server tidied up last."""
_NO_LIMITS: Mapping[str, Limits] = MappingProxyType({})
UNTOLD = 2**63 - 1
"""Reservations of a seat whose holder has yet to know all: no journal has so many."""
LEFT = "-"
"""Before the word of who has left a seat, or was put out: nobody holds it with that, and it says who that was."""
GONE_SECONDS = 60
"""A seat whose lease has been over for so long is vacated when its portions are wanted."""

_GIVEN = (
    "unnest($4::bytea[], $5::bigint[], $6::bytea[], $7::bytea[], $8::text[], $9::bytea[], $10::text[], $11::text[], "
    "$12::bigint[], $13::text[], $14::boolean[], $15::text[], $16::bigint[]) "
    "AS given (sender, nonce, client_hash, tx, kind, relayer, fee, ip, created_ms, state, broadcast, cost, ended_ms)"
)
_NAMES = "current_setting('synchronous_standby_names')"
"""Of standbys that commits wait for."""
_CLAIM = f"""
WITH held AS (
    UPDATE seats SET position = position + 1, needed = coalesce($17, needed)
    WHERE seat = $1 AND word = $2 AND position = $3 AND expires_at > clock_timestamp()
        AND ({_NAMES} <> '' OR NOT $18) RETURNING seat, position
), new AS (
    INSERT INTO claims (seat, position, sender, nonce, client_hash, tx, kind, relayer, fee, ip, created_ms, state,
        broadcast, cost, ended_ms)
    SELECT held.seat, held.position, given.* FROM held, {_GIVEN} ON CONFLICT DO NOTHING RETURNING 1
), told AS (
    INSERT INTO kept_up_to SELECT held.seat, $19::bigint FROM held WHERE $19::bigint > 0
    ON CONFLICT (seat) DO UPDATE SET position = excluded.position WHERE kept_up_to.position < excluded.position
)
SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM new)
"""
_IS_KEPT = """
claims.position <= coalesce((SELECT told.position FROM kept_up_to AS told WHERE told.seat = claims.seat), 0)
"""
_WHOSE = f"""
SELECT claims.sender, claims.nonce, client_hash, seat, kind, state, cost, ended_ms, signature, NULL, {_IS_KEPT}
FROM claims
JOIN unnest($1::bytea[], $2::bigint[]) AS asked (sender, nonce) USING (sender, nonce)
"""
_CLAIMED = f"""
SELECT found.* FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS asked (sender, first, last), LATERAL (
    SELECT sender, nonce, client_hash, seat, kind, state, cost, ended_ms, signature,
        CASE WHEN state = 'journalled' THEN tx END, {_IS_KEPT}
    FROM claims WHERE claims.sender = asked.sender AND nonce BETWEEN first AND last OFFSET 0
) AS found
"""
"""`OFFSET 0`: each by the index, however many are asked for; joined, a hundred had all claims read (70 to 170 ms of
300,000 claims, where this takes 2 ms)."""
_RENEW = f"""
UPDATE seats SET expires_at = clock_timestamp() + make_interval(secs => $3), reservations = $4, open_since = $5,
    cursor = coalesce($6, cursor), cursor_place = CASE WHEN $6::bigint IS NULL THEN cursor_place ELSE $7 END,
    portions = least(portions, $8), needed = coalesce($9, needed), wants = $10
WHERE seat = $1 AND word = $2
RETURNING position, portions, EXISTS (
    SELECT 1 FROM seats AS other WHERE other.seat <> $1 AND other.wants AND other.expires_at > clock_timestamp()
), (SELECT sum(position) FROM seats)::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
{programmes.ARE_THERE}, {_NAMES}
"""
_TWIN = """
SELECT place FROM seats WHERE folder = $1 AND word NOT IN ($2, '') AND expires_at > clock_timestamp() LIMIT 1
"""
_SIT = f"""
WITH free AS (
    SELECT seat, ltrim(word, '{LEFT}') AS left_by, reservations AS told FROM seats
    WHERE word = $1 OR expires_at < clock_timestamp()
    ORDER BY word <> $1, folder <> $4, folder <> '', seat LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE seats SET word = $1, place = $2, expires_at = clock_timestamp() + make_interval(secs => $3), folder = $4,
    reservations = {UNTOLD}
FROM free WHERE seats.seat = free.seat
RETURNING seats.*, left_by, told, {_NAMES} AS names,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
"""
"""At once with the folder, under a lock of that: of two that start with one folder the other finds it. The version
before knows by folder and reservations whether it had a seat last."""
_SUMS = """
WITH mine AS (INSERT INTO sums VALUES ($1, $2) ON CONFLICT (seat) DO UPDATE SET sums = $2 WHERE sums.sums <> $2)
SELECT DISTINCT sums FROM sums JOIN seats USING (seat)
WHERE seat <> $1 AND word <> '' AND expires_at > clock_timestamp() ORDER BY sums
"""
_COMMITS = "SELECT coalesce(sum(position), 0)::bigint FROM seats"
_VACATE = f"""
UPDATE seats SET portions = needed, word = '{LEFT}' || ltrim(word, '{LEFT}'), wants = false WHERE seat IN (
    SELECT seat FROM seats WHERE expires_at < clock_timestamp() - make_interval(secs => $1) AND portions > needed
    FOR UPDATE SKIP LOCKED
)
"""
_TAKE = """
UPDATE seats SET position = position + 1,
    portions = portions + greatest(0, least($2, $3 - (SELECT sum(portions) FROM seats)))
WHERE seat = $1 RETURNING position, portions
"""
_FORGET = """
DELETE FROM claims WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM claims WHERE seat = $1 AND created_ms < $2 AND ended_ms < $2 ORDER BY created_ms LIMIT $3
)) AND seat = $1 AND ended_ms < $2
"""
"""So few at once that claims hardly wait; by the index, as the oldest of ours are always at its beginning."""
_WRITTEN_OFF = """
SELECT relayer, sum(fee::numeric) FROM claims WHERE state = 'superseded' AND ended_ms IS NULL AND seat <> $1
GROUP BY relayer
"""
_MADE = f"SELECT {COLUMNS} FROM claims WHERE seat = $1 AND created_ms >= $2 AND %s ORDER BY created_ms"
"""Claims of a seat by when they were made; what is asked for beside that decides over the index."""


class SeatError(Exception):
    """The seat is not ours any more, or the server is not what it was; the text says what to do."""


class TwinError(Exception):
    """A living relayer has this folder's identity: a copy of it, or this one before it was killed. Where that is."""


class Seat(NamedTuple):
    """A seat as its last holder left it."""

    number: int
    word: str
    """Ours, random, which nobody else has had or will have."""
    left_by: str
    """The word of who had it last; empty where nobody had, or a version that forgets its word as it leaves."""
    reservations: int
    """That its last holder told of its journal; `UNTOLD` where that ended before it had read what was claimed."""
    position: int
    open_since: int
    """All that was claimed before is over; in ms by the server's clock."""
    cursor: int | None
    cursor_place: str
    portions: int


class Renewed(NamedTuple):
    """What the server says of a seat that was renewed."""

    found: int
    """Its position before: less than was acknowledged where the server has forgotten some."""
    position: int
    portions: int
    others_want: bool
    """Whether another relayer has hardly any portions left."""
    commits: int
    """The positions of all seats, at least."""
    sums: tuple[str, ...]
    """What others say of the sums of their policies."""
    programmes: tuple[Total, ...] = ()
    """Of those that were asked for."""


class Made(NamedTuple):
    """What came of claims."""

    are_all_new: bool
    """Of those that were not refused."""
    refused: frozenset[tuple[bytes, int]]
    """By sender and nonce what no programme pays; nothing of it is claimed."""


class Seats:
    """The server's rows, for one task at a time. Raises `Unavailable`, or `Refused` where waiting does not help."""

    def __init__(self, url: Secret, schema: str, seats: int, seconds: float, *, needs_standby: bool = False) -> None:
        self.seconds = seconds
        self.number = -1
        """Of our seat."""
        self.commits = 0
        """The positions of all seats, at least, as far as the server acknowledged what it said of them."""
        self.clock = ServerClock()
        self._schema = schema
        self._seats = seats
        self._needs_standby = needs_standby
        self._timelines = Timelines()
        self._word = secrets.token_hex(16)
        self._db = Postgres(url, "millrace relayer claims", self._on_connect, seconds=ANSWER_SECONDS, most=seconds)

    async def _on_connect(self, connection: Connection) -> int:
        if await connection.fetchval("SHOW fsync") != "on":
            raise Refused(f"{self._db.place}: the server runs with fsync = off: what it commits can be lost")
        if self._needs_standby and not await connection.fetchval(f"SELECT {_NAMES}"):
            raise (Refused if self.number < 0 else Unfit)(self._no_standby())
        timeline = await self._timelines.check(connection, self._db.place)
        await connection.execute(END_IDLE)
        await use_schema(connection, self._schema)
        if self.number >= 0 and (known := await connection.fetchval(_COMMITS)) < self.commits:
            raise Unfit(self._forgotten(known))  # maybe an old primary that is back: another one may have all
        return timeline

    def _check_standby(self, names: str) -> None:
        """Somebody may have set it to nothing meanwhile. Raises `Unfit`."""
        if self._needs_standby and not names:
            raise Unfit(self._no_standby())

    def _no_standby(self) -> str:
        return (
            f"{self._db.place}: no standby is waited for: set synchronous_standby_names there, or claims_standby to "
            "false here"
        )

    def _forgotten(self, known: int) -> str:
        return (
            f"{self._db.place} has {known} commits of claims where {self.commits} were acknowledged: it has forgotten "
            "some, as one that was put back from a backup; see docs/relayer-operating.md"
        )

    async def open(self) -> str:
        """Make what is missing; the id of all who share. Raises `Refused` for another number of seats."""
        return await self._db.ask(lambda connection: opened(connection, self._db.place, self._seats))

    async def sit(self, folder: str, place: str) -> Seat | None:
        """Take a seat that nobody has, the folder's last one if that is free; `None` while all are taken.

        Asked again, as the answer was lost, it is the same one.
        Raises `Unavailable` while the server has fewer commits than were known, `TwinError` while another holder of a
        seat has the same folder.
        """

        async def work(connection: Connection) -> tuple[Any, int]:
            async with connection.transaction():
                commits = int(await connection.fetchval(_COMMITS))
                if commits < self.commits:
                    raise Unfit(self._forgotten(commits))
                await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", folder)
                twin = await connection.fetchval(_TWIN, folder, self._word)
                if twin is not None:
                    raise TwinError(twin)
                asked = self.clock.asked()
                row = await connection.fetchrow(_SIT, self._word, place, self.seconds, folder)
                if row is None:  # what was read counts once a commit behind it is acknowledged: this makes it one
                    await connection.execute("SELECT pg_logical_emit_message(true, 'millrace', '')")
                else:
                    self._check_standby(row["names"])
                    self.clock.answered(asked, row["now_ms"])
                return row, commits

        row, self.commits = await self._db.ask(work)
        if row is None:
            return None
        self.number = row["seat"]
        return Seat(
            row["seat"], row["word"], row["left_by"], row["told"], row["position"], row["open_since"], row["cursor"],
            row["cursor_place"], row["portions"],
        )  # fmt: skip

    async def settle_in(self, folder: str, reservations: int, sums: str = "") -> tuple[str, ...]:
        """The folder knows all that the seat's holders before it claimed; the sums of others' policies. Raises
        `SeatError`.
        """
        position = await self._own(
            "folder = $3, reservations = $4, expires_at = clock_timestamp() + make_interval(secs => $5)",
            folder, reservations, self.seconds,
        )  # fmt: skip
        await self._fetch(KEPT, self.number, position)
        return _texts(await self._fetch(_SUMS, self.number, sums)) if sums else ()

    async def renew(self, progress: Progress) -> Renewed:
        """Tell progress and go on holding the seat. Raises `SeatError` when another has it."""

        ahead = self.clock.most_ahead_ms

        async def work(connection: Connection) -> Renewed:
            async with connection.transaction():
                mine = self.number, self._word
                # First, so that nobody can take the seat before what follows is committed; else who takes it would
                # sign what is deleted behind its back.
                asked = self.clock.asked()  # here, as neither connecting nor what follows makes the time uncertain
                row = await connection.fetchrow(
                    _RENEW, *mine, self.seconds, progress.reservations, progress.open_since, progress.cursor,
                    progress.cursor_place, progress.keeps, progress.needed, progress.wants,
                )  # fmt: skip
                if row is None:
                    raise SeatError(f"seat {self.number} was taken over by another relayer")
                position, portions, others_want, commits, now_ms, are_charged, names = row
                self._check_standby(names)
                self.clock.answered(asked, now_ms)
                await tell(connection, self.number, progress, ahead)
                found = position
                sums = _texts(await connection.fetch(_SUMS, self.number, progress.sums)) if progress.sums else ()
                if progress.wants:
                    more = await self._more(connection, vacate=progress.may_vacate)
                    position, portions = more or (position, portions)
            if are_charged:  # not while the seat is locked: programmes are waited for
                await programmes.settle(connection, self.number)
            paid = await connection.fetch(programmes.TOTALS, progress.programmes) if progress.programmes else ()
            totals = tuple(Total(name, int(spent), users) for name, spent, users in paid)
            return Renewed(found, position, portions, others_want, commits, sums, totals)

        renewed = await self._db.ask(work)
        if renewed.commits < self.commits:
            raise SeatError(self._forgotten(renewed.commits))
        self.commits = renewed.commits
        return renewed

    async def _more(self, connection: Connection, *, vacate: bool) -> Any:
        """Take portions that nobody has, one relayer after the other; our position, and how many we have. None while
        another does: a renewal waits for nobody, who may stand still in the middle of it."""
        if await connection.fetchval("SELECT 1 FROM sharing FOR UPDATE SKIP LOCKED") is None:
            return None
        if vacate:
            await connection.execute(_VACATE, GONE_SECONDS)
        return await connection.fetchrow(_TAKE, self.number, AT_ONCE, PORTIONS * self._seats)

    async def position(self) -> int:
        """Commits of claims that the server remembers of our seat, which is renewed. Raises `SeatError`."""
        return await self._own("expires_at = clock_timestamp() + make_interval(secs => $3)", self.seconds)

    async def _own(self, change: str, *values: object) -> int:
        rows = await self._fetch(
            f"UPDATE seats SET {change} WHERE seat = $1 AND word = $2 RETURNING position, {_NAMES} AS names",
            self.number, self._word, *values,
        )  # fmt: skip
        if not rows:
            raise SeatError(f"seat {self.number} was taken over by another relayer")
        self._check_standby(rows[0]["names"])
        return int(rows[0]["position"])

    async def claim(
        self,
        records: Sequence[Record],
        position: int,
        ended_ms: Sequence[int | None] = (),
        needed: int | None = None,
    ) -> bool:
        """Claim what nobody has claimed yet, in one commit; whether that was all. Raises `SeatError`."""
        return (await self.claim_charged(records, position, ended_ms, needed)).are_all_new

    async def claim_charged(
        self,
        records: Sequence[Record],
        position: int,
        ended_ms: Sequence[int | None] = (),
        needed: int | None = None,
        charges: Sequence[Charged] = (),
        limits: Mapping[str, Limits] = _NO_LIMITS,
        kept: int = 0,
    ) -> Made:
        """The same, and charge programmes for some of them in that commit, as far as their limits go.

        `position`: the seat's before, as far as we know; `needed`: portions, at most, if that is another number;
        `kept`: up to which position all is signed. A seat that has run out and nobody has taken is renewed.
        Raises `Unavailable` where the position is another, as a statement of ours that was given up came through late.
        """
        made = await self._insert(records, position, ended_ms, needed, charges, limits, kept)
        if made is None:
            known = await self.position()
            if known < position:
                raise SeatError(
                    f"{self._db.place} has {known} commits of seat {self.number} where {position} were acknowledged: "
                    "it has forgotten some, as a standby that was promoted and had not been waited for; see "
                    "docs/relayer-operating.md"
                )
            if known == position:
                made = await self._insert(records, position, ended_ms, needed, charges, limits, kept)
        if made is None:
            raise Unavailable(f"{self._db.place}: the seat moved on while it was asked for")
        self.commits += 1
        return made

    async def _insert(
        self,
        records: Sequence[Record],
        position: int,
        ended_ms: Sequence[int | None],
        needed: int | None,
        charges: Sequence[Charged],
        limits: Mapping[str, Limits],
        kept: int,
    ) -> Made | None:
        """`None` where the seat has run out, is not ours, or is elsewhere."""
        if not charges:
            (row,) = await self._fetch(_CLAIM, *self._claim_values(records, position, ended_ms, needed, kept))
            held, new = row
            return Made(new == len(records), frozenset()) if held else None

        async def work(connection: Connection) -> Made | None:
            async with connection.transaction():
                admitted, beyond = await programmes.admit(connection, charges, limits)
                refused = frozenset((item.sender, item.nonce) for item in beyond)
                left = {(item.sender, item.nonce) for item in charges}
                left -= {(item.sender, item.nonce) for item in admitted}
                payable = [item for item in records if (item.sender, item.nonce) not in left]
                values = self._claim_values(payable, position, (), needed, kept)
                held, new = await connection.fetchrow(_CLAIM, *values)
                await programmes.charge(connection, self.number, admitted)
                return Made(new == len(payable) and left == refused, refused) if held else None

        return await self._db.ask(work)

    def _claim_values(
        self, records: Sequence[Record], position: int, ended_ms: Sequence[int | None], needed: int | None, kept: int
    ) -> tuple[Any, ...]:
        ahead = self.clock.most_ahead_ms
        columns = columns_of([row_of(item, ahead) for item in records], 12)
        ended = [None if at is None else at + ahead for at in ended_ms] or [None] * len(records)
        return self.number, self._word, position, *columns, ended, needed, self._needs_standby, kept

    async def bring_programmes(self, folder: str, users: Sequence[User], charges: Sequence[Charged]) -> None:
        """Add what a folder's programmes paid before it shared; asked twice it is the same."""
        await self._db.ask(lambda connection: programmes.bring(connection, folder, users, charges))

    async def whose(self, names: Sequence[tuple[bytes, int]]) -> dict[tuple[bytes, int], Claimed]:
        """Who has these nonces, as far as anybody has."""
        rows = await self._fetch(_WHOSE, *columns_of(names, 2))
        ahead = self.clock.least_ahead_ms
        return {(row[0], row[1]): claimed_of(tuple(row)[2:], ahead) for row in rows}

    async def claimed(self, asked: Collection[tuple[bytes, int, int]]) -> dict[bytes, dict[int, Claimed]]:
        """By sender and nonce who has what of these senders, each from a nonce up to another one."""
        found: dict[bytes, dict[int, Claimed]] = {}
        for sender, nonce, *claim in await self._fetch(_CLAIMED, *columns_of(list(asked), 3)):
            found.setdefault(sender, {})[nonce] = claimed_of(tuple(claim), self.clock.least_ahead_ms)
        return found

    async def written_off(self) -> dict[bytes, int]:
        """Fees that others wrote off and that may still have to be paid, by key."""
        return {key: int(fees) for key, fees in await self._fetch(_WRITTEN_OFF, self.number)}

    async def each_since(
        self, created_ms: int, open_since: int, take: Callable[[list[Shared]], Awaitable[None]]
    ) -> None:
        """Claims of our seat made since a time, and older ones that may still run, about in the order of being made.

        `open_since`: of the seat, by the server's clock. What was written off is read however old it is: a holder that
        did not know of it may have moved that on.
        """

        ahead = self.clock.least_ahead_ms

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                # Locked, it is nobody else's however long this takes.
                if not await connection.fetchval(
                    "SELECT true FROM seats WHERE seat = $1 AND word = $2 FOR UPDATE", self.number, self._word
                ):
                    raise SeatError(f"seat {self.number} was taken over by another relayer")
                since = created_ms + ahead
                older = f"created_ms < {since} AND ended_ms IS NULL"
                for first, which in (0, f"{older} AND state = 'superseded'"), (open_since, older), (since, "true"):
                    pages = connection.pages(
                        _MADE % which, self.number, first, size=ROWS_AT_ONCE, first=READING_SECONDS
                    )
                    async for page in pages:
                        await take([shared_of(row, ahead) for row in page])
                await connection.execute(
                    "UPDATE seats SET expires_at = clock_timestamp() + make_interval(secs => $2) WHERE seat = $1",
                    self.number, self.seconds,
                )  # fmt: skip

        await self._db.ask(work)

    async def forget(self, before_ms: int, named: Sequence[str] = ()) -> bool:
        """Forget claims of our seat that were over before a time, some at once, and programmes that nobody has `named`
        for long; whether there may be more.
        """
        if named:
            await self._fetch(programmes.NAME, named)
        await self._fetch(programmes.FORGET)
        before = before_ms + self.clock.least_ahead_ms
        done: str = await self._db.ask(
            lambda connection: connection.execute(_FORGET, self.number, before, ROWS_AT_ONCE)
        )
        return done == f"DELETE {ROWS_AT_ONCE}"

    async def _fetch(self, query: str, *values: object) -> list[Any]:
        rows: list[Any] = await self._db.ask(lambda connection: connection.fetch(query, *values))
        return rows

    async def leave(self) -> None:
        """Have the seat free for others."""
        if self.number >= 0:
            await self._own(f"expires_at = '-infinity', word = '{LEFT}' || word")
            self.number = -1

    async def close(self) -> None:
        await self._db.leave()


def _texts(rows: Sequence[Any]) -> tuple[str, ...]:
    return tuple(row[0] for row in rows)
