"""The tables of the claims' server: made, brought up to date, and found to be those of this version."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from millrace.relayer.journal import common_programmes as programmes
from millrace.relayer.journal.portions import PORTIONS
from millrace.runtime.postgres import Connection, Refused, making

log = logging.getLogger(__name__)

MAKING_SECONDS = 600.0
"""For indexes that an earlier version did not have: some 4 s for a million claims on a busy machine."""
_VERSION = 2

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS sharing (
    version INTEGER NOT NULL, id TEXT NOT NULL, seats INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS seats (
    seat INTEGER PRIMARY KEY,
    folder TEXT NOT NULL,         -- identity of the data directory that had it last
    reservations BIGINT NOT NULL, -- how many that one's journal had: a copy with fewer is older, whoever left the seat
    place TEXT NOT NULL,          -- host, folder and process, for people
    word TEXT NOT NULL,           -- random, of the process that has it; behind a "-" of the one that left it
    expires_at TIMESTAMPTZ NOT NULL,
    position BIGINT NOT NULL,     -- commits of claims
    open_since BIGINT NOT NULL,   -- all claims made before, in ms, are over
    cursor BIGINT,                -- of the hub's events, and the same for any hub
    cursor_place TEXT NOT NULL,
    portions INTEGER NOT NULL,    -- of all budgets
    needed INTEGER NOT NULL,      -- of these, at most, for what was claimed
    wants BOOLEAN NOT NULL        -- whether its relayer has hardly any left
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
    created_ms BIGINT NOT NULL,   -- by the server's clock, as all times
    state TEXT NOT NULL,          -- as in the journal; "failed" of what is finished and did
    broadcast BOOLEAN NOT NULL,
    cost TEXT,
    ended_ms BIGINT,
    signature BYTEA,              -- of our key, where somebody else is to broadcast it
    position BIGINT NOT NULL DEFAULT 0, -- its seat's; 0 of holders that do not tell what they keep
    PRIMARY KEY (sender, nonce)
) WITH (fillfactor = 80);
CREATE TABLE IF NOT EXISTS sums (
    seat INTEGER PRIMARY KEY,
    sums TEXT NOT NULL            -- of the budgets in its holder's policy
);
CREATE TABLE IF NOT EXISTS kept_up_to ( -- no column of `seats`: earlier versions read all of a row there
    seat INTEGER PRIMARY KEY,
    position BIGINT NOT NULL      -- what was claimed up to it is signed by its holder, or let go of
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS claims_made ON claims (seat, created_ms);
CREATE INDEX IF NOT EXISTS claims_open ON claims (seat, created_ms) WHERE ended_ms IS NULL;
CREATE INDEX IF NOT EXISTS claims_written_off ON claims (relayer) WHERE state = 'superseded' AND ended_ms IS NULL;
DROP INDEX IF EXISTS claims_created; -- of earlier versions
ALTER TABLE claims ADD COLUMN IF NOT EXISTS position BIGINT NOT NULL DEFAULT 0; -- of earlier versions
ALTER TABLE claims SET (autovacuum_vacuum_scale_factor = 0.02); -- until then who looks for open claims meets ended ones
{programmes.SCHEMA}
"""
_IS_MADE = """
SELECT to_regclass('programmes_brought') IS NOT NULL AND to_regclass('claims_written_off') IS NOT NULL AND EXISTS (
    SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('claims') AND attname = 'position'
)
"""
"""Of what is made the table, the index and the column that came last. Whoever stands by asks every second, and to make
an index that is there keeps claims waiting all the same."""
_FROM_1 = f"""
ALTER TABLE seats ADD portions INTEGER NOT NULL DEFAULT {PORTIONS}, ADD needed INTEGER NOT NULL DEFAULT {PORTIONS},
    ADD wants BOOLEAN NOT NULL DEFAULT false;
ALTER TABLE claims ADD signature BYTEA;
UPDATE seats SET word = '';
UPDATE sharing SET version = {_VERSION};
"""
"""What is of version 1 as of this one; who had a seat may have spent all of an equal part, and is out."""


async def opened(connection: Connection, place: str, seats: int) -> str:
    """Make what is missing; the id of all who share. Raises `Refused` for another number of seats or version."""
    row = None
    if await connection.fetchval(_IS_MADE):
        row = await connection.fetchrow("SELECT version, id, seats FROM sharing")
    if row is None or row["version"] == 1:
        async with making(connection):
            row = await _make(connection, place, seats)
    if row["version"] != _VERSION:
        raise Refused(f"{place}: the claims are of version {row['version']}: start that version")
    if row["seats"] != seats:
        raise Refused(
            f"{place}: the claims are shared by {row['seats']} relayers and `claims_seats` is {seats}: it is the same "
            "for all of them, for good"
        )
    return str(row["id"])


async def _make(connection: Connection, place: str, seats: int) -> Any:
    log.warning("the claims' tables are made, or get what they lack: nobody claims meanwhile")
    await connection.execute(_SCHEMA, timeout=MAKING_SECONDS)
    row = await connection.fetchrow("SELECT version, id, seats FROM sharing")
    if row is None:
        row = {"version": _VERSION, "id": secrets.token_hex(16), "seats": seats}
        await connection.execute("INSERT INTO sharing VALUES ($1, $2, $3)", *row.values())
        await connection.execute(
            "INSERT INTO seats SELECT number, '', 0, '', '', '-infinity', 0, 0, NULL, '', $2, 0, false "
            "FROM generate_series(0, $1 - 1) AS number",
            seats,
            PORTIONS,
        )
    elif row["version"] == 1:
        await _bring_up_to_date(connection, place)
        row = await connection.fetchrow("SELECT version, id, seats FROM sharing")
    return row


async def _bring_up_to_date(connection: Connection, place: str) -> None:
    """Raises `Refused` beside who would go on in its old way."""
    holder = await connection.fetchval("SELECT place FROM seats WHERE expires_at > clock_timestamp() LIMIT 1")
    if holder is not None:
        raise Refused(
            f"{place}: the claims are of an earlier version, and {holder} holds a seat: stop all relayers of that "
            "version before one of this version starts"
        )
    await connection.execute(_FROM_1)
