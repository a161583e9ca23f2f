"""Leases of several machines: a row a key on a PostgreSQL server, which expires by the server's clock."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from millrace.chain import address
from millrace.relayer.journal.leases import Held, LeaseError, LeaseHeld, check
from millrace.runtime.postgres import ANSWER_SECONDS, END_IDLE, Connection, Postgres, Timelines, making, use_schema
from millrace.runtime.settings import Secret

_CLOCK = "used_ms", "set_back_ms", "set_back_at_ms"
"""What earlier versions had no columns for."""
_COLUMNS = (
    f"key, id, epoch, position, place, extract(epoch FROM held_at)::float8 * 1000 AS held_ms, {', '.join(_CLOCK)}"
)
_LEFT = "extract(epoch FROM expires_at - clock_timestamp())::float8 AS seconds_left"
_OURS = f"""
SELECT key, {_LEFT}, pg_logical_emit_message(true, 'millrace', '') FROM leases
WHERE key = ANY($1::bytea[]) AND word = $2
"""
"""What others of our word wrote counts once a commit behind it is acknowledged: the empty message makes it one."""
_ENOUGH = 3 / 4
"""Of a lease that several hold together. As each renews with less, and a fifth of a lease is between two looks, one of
them does in time; where all renewed at each look they would wait for each other's commits on the same rows."""
_HELD = (
    "held_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => $6), "
    "used_ms = $8, set_back_ms = $9, set_back_at_ms = $10"
)


class PostgresLeases:
    """Rows in a schema of a server, made when they are missing.

    A holder is known by a random word of its process: who has taken a row over has put another in its place, and then
    nothing is renewed any more. So two processes never both think a row theirs by what the server said last. Those who
    hold keys together have one word, and who finds that another has just renewed leaves it at that.
    """

    def __init__(self, url: Secret, schema: str, seconds: float, *, shared: str = "", before: str = "") -> None:
        """`shared`: the id of those who hold keys together, as one; `before`: of a folder that may have held them."""
        self.seconds = seconds
        self._schema = schema
        self._before = before
        self._is_shared = bool(shared)
        self._word = f"shared {shared}" if shared else secrets.token_hex(16)
        self._keys: set[bytes] = set()
        self._timelines = Timelines()
        self._db = Postgres(url, "millrace relayer leases", self._on_connect, seconds=ANSWER_SECONDS, most=seconds)

    async def _on_connect(self, connection: Connection) -> int:
        timeline = await self._timelines.check(connection, self._db.place)
        await connection.execute(END_IDLE)
        await use_schema(connection, self._schema)
        if await connection.fetchval(
            "SELECT count(*) = 1 FROM pg_attribute WHERE attrelid = to_regclass('leases') AND attname = $1", _CLOCK[-1]
        ):
            return timeline  # making waits for others, as long as one of them stands still while it does
        async with making(connection):
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS leases (key BYTEA PRIMARY KEY, id TEXT NOT NULL, epoch BIGINT NOT NULL,"
                " position BIGINT NOT NULL, place TEXT NOT NULL, word TEXT NOT NULL, held_at TIMESTAMPTZ NOT NULL,"
                " expires_at TIMESTAMPTZ NOT NULL)"
            )
            added = ", ".join(f"ADD COLUMN IF NOT EXISTS {name} BIGINT NOT NULL DEFAULT 0" for name in _CLOCK)
            await connection.execute(f"ALTER TABLE leases {added}")
        return timeline

    def remembered(self, keys: Collection[bytes]) -> dict[bytes, Held]:
        rows = self._db.fetch(f"SELECT {_COLUMNS} FROM leases WHERE key = ANY($1::bytea[])", list(keys))
        return {bytes(row["key"]): _held(row) for row in rows}

    def take(self, keys: Collection[bytes], mine: Held, *, force: bool = False) -> float:
        fresh = sorted(set(keys) - self._keys)

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                for key in fresh:
                    await self._take(connection, key, mine, force)

        left = self._left(fresh)
        if left is None or left < _ENOUGH * self.seconds:
            self._db.run(work)
            left = self.seconds
        self._keys.update(fresh)
        return left

    async def _take(self, connection: Connection, key: bytes, mine: Held, force: bool) -> None:
        """With the row locked: its holder cannot renew it meanwhile, nor can another take it, and nobody else waits."""
        values = key, *_values(mine, self.seconds, self._word)
        if await connection.fetchval(
            "INSERT INTO leases VALUES ($1, $2, $3, $4, $5, $7, clock_timestamp(), "
            "clock_timestamp() + make_interval(secs => $6), $8, $9, $10) ON CONFLICT DO NOTHING RETURNING true",
            *values,
        ):
            return
        row = await connection.fetchrow(f"SELECT {_COLUMNS}, word, {_LEFT} FROM leases WHERE key = $1 FOR UPDATE", key)
        if row["word"] != self._word and row["seconds_left"] > 0:
            raise LeaseHeld(
                f"{address.encode(key)} is in use by {row['place']}: stop that one first; if it was killed, its lease "
                f"ends in {row['seconds_left']:.0f} s",
                row["seconds_left"],
            )
        if not force and row["id"] != self._before:
            check(key, _held(row), mine)
        await connection.execute(
            f"UPDATE leases SET id = $2, epoch = $3, position = $4, place = $5, word = $7, {_HELD} WHERE key = $1",
            *values,
        )

    def renew(self, mine: Held) -> float:
        if not self._keys:
            return self.seconds
        left = self._left(self._keys)
        if left is not None and left >= _ENOUGH * self.seconds:
            return left
        only = f"AND expires_at < clock_timestamp() + make_interval(secs => {_ENOUGH} * $6)" if self._is_shared else ""
        lost = self._keys - self._update(self._keys, mine, self.seconds, only)
        if not lost:
            return self.seconds
        left = self._left(lost)  # another was first, or has them for itself
        if left is None:
            raise LeaseError(f"the lease of {address.encode(min(lost))} was taken over by another relayer")
        return left

    def _left(self, keys: Collection[bytes]) -> float | None:
        """For how long those of our word have these keys; `None` where they have not, or we are alone."""
        if not self._is_shared:
            return None
        rows = self._db.fetch(_OURS, sorted(keys), self._word)
        return min((row["seconds_left"] for row in rows), default=self.seconds) if len(rows) == len(keys) else None

    def give_back(self, keys: Collection[bytes], mine: Held) -> None:
        held = self._keys & set(keys)
        self._keys -= held
        if not self._is_shared:  # the others go on: what nobody renews ends by itself
            self._update(held, mine, 0.0)

    def _update(self, keys: Collection[bytes], mine: Held, seconds: float, only: str = "") -> set[bytes]:
        """Have these for so long; which of them we have."""
        rows = self._db.fetch(
            "UPDATE leases SET id = $2, epoch = $3, position = $4, place = $5, "
            f"{_HELD} WHERE key = ANY($1::bytea[]) AND word = $7 {only} RETURNING key",
            sorted(keys), *_values(mine, seconds, self._word),
        )  # fmt: skip
        return {bytes(row["key"]) for row in rows}

    def close(self) -> None:
        self._db.close()


def _held(row: Any) -> Held:
    clock = (row[name] for name in _CLOCK)
    return Held(row["id"], row["epoch"], row["position"], row["place"], int(row["held_ms"]), *clock)


def _values(mine: Held, seconds: float, word: str) -> tuple[Any, ...]:
    """The values of a statement from its second on."""
    clock = mine.used_ms, mine.set_back_ms, mine.set_back_at_ms
    return mine.id, mine.epoch, mine.position, mine.place, seconds, word, *clock
