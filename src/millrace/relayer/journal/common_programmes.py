"""What programmes paid for all relayers that share claims: rows beside the claims, counted in the claim's transaction.

Who is to be paid for is looked at with the programme's row locked, so of all relayers one at a time; a claim and what
is charged for it are there together or not at all. What became of a charge is read from its claim (`settle`) by who
has the seat then: nothing has to be told twice, and nothing is lost with a relayer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from millrace.relayer.journal.programmes import User
from millrace.runtime.postgres import Connection

MAX_USERS = 100_000
"""Of one programme, as of a relayer that is alone."""
FORGET_DAYS = 30
"""A programme that no relayer's policy has named for so long is forgotten."""
_HOLD = "SET LOCAL idle_in_transaction_session_timeout = '1s'"
"""Who stands still while it has a programme's row locked must not hold the others' claims up."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS programmes (
    programme TEXT PRIMARY KEY,
    spent NUMERIC NOT NULL,       -- fees known, and the worst case of what may still run; atomic units
    users INTEGER NOT NULL,       -- rows of `programme_users`
    named_at TIMESTAMPTZ NOT NULL -- when a policy had it last, or it paid
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS programme_users (
    programme TEXT NOT NULL,
    sender BYTEA NOT NULL,
    transactions INTEGER NOT NULL, -- paid for, and those that may still run
    PRIMARY KEY (programme, sender)
) WITH (fillfactor = 80);
CREATE TABLE IF NOT EXISTS programme_charges (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    seat INTEGER NOT NULL,        -- as of the claim
    programme TEXT NOT NULL,
    sender BYTEA NOT NULL,
    nonce BIGINT NOT NULL,
    fee NUMERIC NOT NULL,         -- the most it can cost
    void BOOLEAN NOT NULL         -- its claim was let go
) WITH (fillfactor = 80);
CREATE TABLE IF NOT EXISTS programmes_brought (
    folder TEXT PRIMARY KEY       -- whose own counts were added
);
"""
_ADD = """
INSERT INTO programmes SELECT programme, 0, 0, clock_timestamp() FROM unnest($1::text[]) AS programme
ORDER BY programme ON CONFLICT DO NOTHING
"""
_LOCK = "SELECT programme, spent, users FROM programmes WHERE programme = ANY($1::text[]) ORDER BY programme FOR UPDATE"
_LOOK = """
SELECT coalesce(users.transactions, 0), claims.sender IS NOT NULL
FROM unnest($1::text[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS asked (programme, sender, nonce, place)
LEFT JOIN programme_users AS users USING (programme, sender)
LEFT JOIN claims ON claims.sender = asked.sender AND claims.nonce = asked.nonce
ORDER BY place
"""
_CHARGE = """
WITH charged AS (
    INSERT INTO programme_charges (seat, programme, sender, nonce, fee, void)
    SELECT claims.seat, given.programme, given.sender, given.nonce, given.fee::numeric, false
    FROM unnest($2::text[], $3::bytea[], $4::bigint[], $5::bytea[], $6::text[])
        AS given (programme, sender, nonce, client_hash, fee)
    JOIN claims ON claims.sender = given.sender AND claims.nonce = given.nonce
        AND claims.client_hash = given.client_hash AND claims.seat = coalesce($1, claims.seat)
    RETURNING programme, sender, fee
), counted AS (
    INSERT INTO programme_users AS users SELECT programme, sender, count(*) FROM charged GROUP BY programme, sender
    ON CONFLICT (programme, sender) DO UPDATE SET transactions = users.transactions + excluded.transactions
    RETURNING users.programme, users.sender
), added AS (
    SELECT programme, count(*) AS users FROM counted
    WHERE NOT EXISTS (
        SELECT 1 FROM programme_users AS before
        WHERE before.programme = counted.programme AND before.sender = counted.sender
    ) GROUP BY programme
)
UPDATE programmes SET spent = spent + taken.fees, named_at = clock_timestamp(), users = users + coalesce(
    (SELECT added.users FROM added WHERE added.programme = taken.programme), 0)
FROM (SELECT programme, sum(fee) AS fees FROM charged GROUP BY programme) AS taken
WHERE programmes.programme = taken.programme
"""
VOID = """
UPDATE programme_charges AS charge SET void = true FROM unnest($2::bytea[], $3::bigint[]) AS gone (sender, nonce)
WHERE charge.seat = $1 AND charge.sender = gone.sender AND charge.nonce = gone.nonce AND NOT EXISTS (
    SELECT 1 FROM claims WHERE claims.sender = gone.sender AND claims.nonce = gone.nonce
)
"""
"""After claims were let go, in the same commit: the nonce may be claimed anew at once."""
ARE_THERE = "EXISTS (SELECT 1 FROM programme_charges AS charge WHERE charge.seat = $1)"
_OVER = """
charge.seat = $1 AND (charge.void OR EXISTS (
    SELECT 1 FROM claims WHERE claims.sender = charge.sender AND claims.nonce = charge.nonce AND cost IS NOT NULL
))
"""
_OVER_OF = f"SELECT DISTINCT programme FROM programme_charges AS charge WHERE {_OVER}"
_SETTLE = f"""
WITH over AS (
    DELETE FROM programme_charges AS charge WHERE {_OVER} AND programme = ANY($2::text[])
    RETURNING programme, sender, fee, CASE WHEN void THEN 0 ELSE (
        SELECT least(cost::numeric, charge.fee) FROM claims
        WHERE claims.sender = charge.sender AND claims.nonce = charge.nonce
    ) END AS cost
), freed AS (
    SELECT programme, sender, count(*) AS number FROM over WHERE cost = 0 GROUP BY programme, sender
), fewer AS (
    UPDATE programme_users AS users SET transactions = transactions - number FROM freed
    WHERE users.programme = freed.programme AND users.sender = freed.sender AND transactions > number
), none AS (
    DELETE FROM programme_users AS users USING freed
    WHERE users.programme = freed.programme AND users.sender = freed.sender AND transactions <= number
    RETURNING users.programme
)
UPDATE programmes SET spent = spent - back.fees,
    users = users - (SELECT count(*) FROM none WHERE none.programme = programmes.programme)
FROM (SELECT programme, sum(fee - cost) AS fees FROM over GROUP BY programme) AS back
WHERE programmes.programme = back.programme
"""
TOTALS = "SELECT programme, spent, users FROM programmes WHERE programme = ANY($1::text[])"
NAME = "UPDATE programmes SET named_at = clock_timestamp() WHERE programme = ANY($1::text[])"
FORGET = f"""
WITH gone AS (
    DELETE FROM programmes WHERE named_at < clock_timestamp() - interval '{FORGET_DAYS} days' AND NOT EXISTS (
        SELECT 1 FROM programme_charges AS charge WHERE charge.programme = programmes.programme
    ) RETURNING programme
)
DELETE FROM programme_users AS users USING gone WHERE users.programme = gone.programme
"""
_BROUGHT = """
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::integer[], $4::text[]) AS of (programme, sender, number, spent)
), counted AS (
    INSERT INTO programme_users AS users SELECT programme, sender, number FROM given
    ON CONFLICT (programme, sender) DO UPDATE SET transactions = users.transactions + excluded.transactions
)
UPDATE programmes SET spent = programmes.spent + total.spent, users = programmes.users + total.users
FROM (
    SELECT given.programme, sum(given.spent::numeric) AS spent, count(*) FILTER (WHERE users.sender IS NULL) AS users
    FROM given LEFT JOIN programme_users AS users USING (programme, sender) GROUP BY given.programme
) AS total
WHERE programmes.programme = total.programme
"""


class Limits(NamedTuple):
    """What a policy says of a programme."""

    budget: int
    per_user: int


class Total(NamedTuple):
    """What a programme has paid and may have to pay, for all."""

    programme: str
    spent: int
    users: int


class Charged(NamedTuple):
    """What a programme is to pay, with a claim."""

    programme: str
    sender: bytes
    nonce: int
    client_hash: bytes
    fee: int


async def admit(
    connection: Connection, charges: Sequence[Charged], limits: Mapping[str, Limits]
) -> tuple[list[Charged], list[Charged]]:
    """Lock programmes until the transaction ends; of these charges the new ones, and those that are beyond a limit.

    What is claimed already is neither: it was charged with its claim, or is another's. It must not be claimed in this
    transaction, as who has it may let go of it just now: then it would be ours and nobody charged.
    """
    await connection.execute(_HOLD)
    names = sorted({item.programme for item in charges})
    totals = await connection.fetch(_LOCK, names)
    if len(totals) < len(names):
        await connection.execute(_ADD, names)
        totals = await connection.fetch(_LOCK, names)
    spent = {name: int(amount) for name, amount, _ in totals}
    users = {name: number for name, _, number in totals}
    columns = [[item[place] for item in charges] for place in range(3)]
    taken: Counter[tuple[str, bytes]] = Counter()
    new, beyond = [], []
    for item, (before, is_claimed) in zip(charges, await connection.fetch(_LOOK, *columns), strict=True):
        if is_claimed:
            continue
        name, sender, limit = item.programme, item[:2], limits.get(item.programme, Limits(0, 0))
        count = before + taken[sender]
        if count >= limit.per_user or spent[name] + item.fee > limit.budget or (not count and users[name] >= MAX_USERS):
            beyond.append(item)
            continue
        spent[name] += item.fee
        users[name] += not count
        taken[sender] += 1
        new.append(item)
    return new, beyond


async def charge(connection: Connection, seat: int | None, charges: Iterable[Charged]) -> None:
    """Count those that `admit` let in and whose claims are now the seat's, or anybody's, in the same transaction."""
    rows = [(*item[:4], str(item.fee)) for item in charges]
    if rows:
        await connection.execute(_CHARGE, seat, *map(list, zip(*rows, strict=True)))


async def settle(connection: Connection, seat: int) -> None:
    """Give back what a seat's charges did not cost whose claims are over, or were let go."""
    over = [row[0] for row in await connection.fetch(_OVER_OF, seat)]
    if not over:
        return
    async with connection.transaction():
        await connection.execute(_HOLD)
        await connection.fetch(_LOCK, over)
        await connection.execute(_SETTLE, seat, over)


async def bring(connection: Connection, folder: str, users: Sequence[User], charges: Sequence[Charged]) -> None:
    """Add what a folder paid alone before it shared, once; `charges` are of its claims, maybe of a seat that it had."""
    async with connection.transaction():
        first = "INSERT INTO programmes_brought VALUES ($1) ON CONFLICT DO NOTHING RETURNING folder"
        if await connection.fetchval(first, folder) is None:
            return
        names = sorted({item.programme for item in users} | {item.programme for item in charges})
        await connection.execute(_ADD, names)
        await connection.fetch(_LOCK, names)
        rows = [(item.programme, item.sender, item.transactions, str(item.spent)) for item in users]
        if rows:
            await connection.execute(_BROUGHT, *map(list, zip(*rows, strict=True)))
        await charge(connection, None, charges)
