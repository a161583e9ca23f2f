"""Leases of several machines: a row a key on a PostgreSQL server, which expires by the server's clock."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from millrace.chain import address
from millrace.relayer.journal.leases import Held, LeaseError, LeaseHeld, check
from millrace.runtime.postgres import ANSWER_SECONDS, END_IDLE, Connection, Postgres, making, use_schema
from millrace.runtime.settings import Secret

_CLOCK = "used_ms", "set_back_ms", "set_back_at_ms"
"""What earlier versions had no columns for."""
_COLUMNS = (
    f"key, id, epoch, position, place, extract(epoch FROM held_at)::float8 * 1000 AS held_ms, {', '.join(_CLOCK)}"
)
_LEFT = "extract(epoch FROM expires_at - clock_timestamp())::float8 AS seconds_left"
_HELD = (
    "held_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => $6), "
    "used_ms = $8, set_back_ms = $9, set_back_at_ms = $10"
)


class PostgresLeases:
    """Rows in a schema of a server, made when they are missing.

    A holder is known by a random word of its process: who has taken a row over has put another in its place, and then
    nothing is renewed any more. So two processes never both think a row theirs by what the server said last.
    """

    def __init__(self, url: Secret, schema: str, seconds: float, *, shared: str = "", before: str = "") -> None:
        """`shared`: the id of those who hold keys together, as one; `before`: of a folder that may have held them."""
        self.seconds = seconds
        self._schema = schema
        self._before = before
        self._word = f"shared {shared}" if shared else secrets.token_hex(16)
        self._keys: set[bytes] = set()
        self._db = Postgres(url, "millrace relayer leases", self._on_connect, seconds=ANSWER_SECONDS)

    async def _on_connect(self, connection: Connection) -> None:
        await connection.execute(END_IDLE)
        await use_schema(connection, self._schema)
        if await connection.fetchval(
            "SELECT count(*) = 1 FROM pg_attribute WHERE attrelid = to_regclass('leases') AND attname = $1", _CLOCK[-1]
        ):
            return  # making waits for others, as long as one of them stands still while it does
        async with making(connection):
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS leases (key BYTEA PRIMARY KEY, id TEXT NOT NULL, epoch BIGINT NOT NULL,"
                " position BIGINT NOT NULL, place TEXT NOT NULL, word TEXT NOT NULL, held_at TIMESTAMPTZ NOT NULL,"
                " expires_at TIMESTAMPTZ NOT NULL)"
            )
            added = ", ".join(f"ADD COLUMN IF NOT EXISTS {name} BIGINT NOT NULL DEFAULT 0" for name in _CLOCK)
            await connection.execute(f"ALTER TABLE leases {added}")

    def remembered(self, keys: Collection[bytes]) -> dict[bytes, Held]:
        rows = self._db.fetch(f"SELECT {_COLUMNS} FROM leases WHERE key = ANY($1::bytea[])", list(keys))
        return {bytes(row["key"]): _held(row) for row in rows}

    def take(self, keys: Collection[bytes], mine: Held, *, force: bool = False) -> None:
        fresh = sorted(set(keys) - self._keys)

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                # One at a time: between the question and the answer nobody else can take a key that has no row yet.
                await connection.execute("LOCK TABLE leases IN SHARE ROW EXCLUSIVE MODE")
                for key in fresh:
                    await self._take(connection, key, mine, force)

        self._db.run(work)
        self._keys.update(fresh)

    async def _take(self, connection: Connection, key: bytes, mine: Held, force: bool) -> None:
        row = await connection.fetchrow(f"SELECT {_COLUMNS}, word, {_LEFT} FROM leases WHERE key = $1", key)
        if row is not None and row["word"] != self._word and row["seconds_left"] > 0:
            raise LeaseHeld(
                f"{address.encode(key)} is in use by {row['place']}: stop that one first; if it was killed, its lease "
                f"ends in {row['seconds_left']:.0f} s",
                row["seconds_left"],
            )
        if row is not None and not force and row["id"] != self._before:
            check(key, _held(row), mine)
        await connection.execute(
            "INSERT INTO leases VALUES ($1, $2, $3, $4, $5, $7, clock_timestamp(), "
            "clock_timestamp() + make_interval(secs => $6), $8, $9, $10) ON CONFLICT (key) DO UPDATE SET "
            f"id = $2, epoch = $3, position = $4, place = $5, word = $7, {_HELD}",
            key, *_values(mine, self.seconds, self._word),
        )  # fmt: skip

    def renew(self, mine: Held) -> None:
        self._update(self._keys, mine, self.seconds)

    def give_back(self, keys: Collection[bytes], mine: Held) -> None:
        held = self._keys & set(keys)
        self._keys -= held
        self._update(held, mine, 0.0)

    def _update(self, keys: Collection[bytes], mine: Held, seconds: float) -> None:
        if not keys:
            return
        rows = self._db.fetch(
            "UPDATE leases SET id = $2, epoch = $3, position = $4, place = $5, "
            f"{_HELD} WHERE key = ANY($1::bytea[]) AND word = $7 RETURNING key",
            sorted(keys), *_values(mine, seconds, self._word),
        )  # fmt: skip
        lost = set(keys) - {bytes(row["key"]) for row in rows}
        if lost:
            raise LeaseError(f"the lease of {address.encode(min(lost))} was taken over by another relayer")

    def close(self) -> None:
        self._db.close()


def _held(row: Any) -> Held:
    clock = (row[name] for name in _CLOCK)
    return Held(row["id"], row["epoch"], row["position"], row["place"], int(row["held_ms"]), *clock)


def _values(mine: Held, seconds: float, word: str) -> tuple[Any, ...]:
    """The values of a statement from its second on."""
    clock = mine.used_ms, mine.set_back_ms, mine.set_back_at_ms
    return mine.id, mine.epoch, mine.position, mine.place, seconds, word, *clock
