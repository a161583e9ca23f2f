"""What the holder of a seat tells of its claims with the seat's renewal: how they ended, and how far it has come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from millrace.relayer.journal import common_programmes as programmes
from millrace.runtime.postgres import Connection

_END = """
UPDATE claims SET state = ended.state, cost = coalesce(ended.cost, claims.cost), ended_ms = ended.ended_ms
FROM unnest($2::bytea[], $3::bigint[], $4::bytea[], $5::text[], $6::text[], $7::bigint[])
    AS ended (sender, nonce, client_hash, state, cost, ended_ms)
WHERE claims.sender = ended.sender AND claims.nonce = ended.nonce
    AND claims.client_hash = coalesce(ended.client_hash, claims.client_hash) AND claims.seat = $1
"""
_FAILED = """
UPDATE claims SET state = 'failed' FROM unnest($2::bytea[], $3::bigint[]) AS failed (sender, nonce)
WHERE claims.sender = failed.sender AND claims.nonce = failed.nonce AND claims.seat = $1 AND state = 'finished'
"""
_SENT = """
UPDATE claims SET broadcast = true FROM unnest($2::bytea[], $3::bigint[]) AS sent (sender, nonce)
WHERE claims.sender = sent.sender AND claims.nonce = sent.nonce AND claims.seat = $1
"""
_SIGNED = """
UPDATE claims SET signature = signed.signature FROM unnest($2::bytea[], $3::bigint[], $4::bytea[])
    AS signed (sender, nonce, signature)
WHERE claims.sender = signed.sender AND claims.nonce = signed.nonce AND claims.seat = $1
"""
_VOID = """
DELETE FROM claims USING unnest($2::bytea[], $3::bigint[], $4::bytea[]) AS void (sender, nonce, client_hash)
WHERE claims.sender = void.sender AND claims.nonce = void.nonce AND claims.client_hash = void.client_hash
    AND claims.seat = $1 AND state = 'journalled'
"""
KEPT = """
INSERT INTO kept_up_to VALUES ($1, $2)
ON CONFLICT (seat) DO UPDATE SET position = greatest(kept_up_to.position, excluded.position)
"""


ToldEnd = tuple[bytes, int, bytes | None, str, str | None, int | None]


class Progress(msgspec.Struct):
    """What is told beside claims, with the next renewal: how claims ended, and how far their holder has come."""

    ends: list[ToldEnd] = []
    """Without a hash it is whatever has the nonce, without a cost that stays what it was."""
    failed: list[tuple[bytes, int]] = []
    """What did cost its fee and is known to have failed, by the end that is told with it or before."""
    sent: set[tuple[bytes, int]] = set()
    """What was only signed, and is to be broadcast now."""
    signed: list[tuple[bytes, int, bytes]] = []
    """Signatures of what is only to be signed: it is never void."""
    void: list[tuple[bytes, int, bytes]] = []
    """What was claimed and did not get into the holder's own journal, or was refused and not signed."""
    reservations: int = 0
    kept: int = 0
    """All that was claimed up to this position of the seat is in the holder's journal, or let go of; 0: as before."""
    open_since: int = 0
    """By the server's clock: ours may be set while claims are open."""
    cursor: int | None = None
    cursor_place: str = ""
    keeps: int | None = None
    """Portions beyond these are given away."""
    needed: int | None = None
    """Of them, at most."""
    wants: bool = False
    """Whether to take more, as far as nobody has them."""
    sums: str = ""
    """Of our policy; empty: others need not know."""
    programmes: tuple[str, ...] = ()
    """Of our policy: what all paid of them is asked for."""
    may_vacate: bool = False
    """Whether who was not heard of for long may lose what it did not need: not while the server was away itself."""

    def follow(self, earlier: Progress) -> None:
        """Tell with this what was to be told before it."""
        self.ends = earlier.ends + self.ends
        self.failed = earlier.failed + self.failed
        self.sent |= earlier.sent
        self.signed = earlier.signed + self.signed
        self.void = earlier.void + self.void
        if self.cursor is None:
            self.cursor, self.cursor_place = earlier.cursor, earlier.cursor_place


async def tell(connection: Connection, seat: int, progress: Progress, ahead_ms: int) -> None:
    """Change what was claimed, in a transaction that holds the seat; `ahead_ms`: the server's clock of ours."""
    if progress.kept:
        await connection.execute(KEPT, seat, progress.kept)
    if progress.void:
        columns = columns_of(progress.void, 3)
        await connection.execute(_VOID, seat, *columns)
        await connection.execute(programmes.VOID, seat, *columns[:2])
    if progress.sent:
        await connection.execute(_SENT, seat, *columns_of(progress.sent, 2))
    if progress.signed:
        await connection.execute(_SIGNED, seat, *columns_of(progress.signed, 3))
    if progress.ends:
        ends = [(*item[:5], None if item[5] is None else item[5] + ahead_ms) for item in _last(progress.ends)]
        await connection.execute(_END, seat, *columns_of(ends, 6))
    if progress.failed:
        await connection.execute(_FAILED, seat, *columns_of(progress.failed, 2))


def _last(ends: Sequence[ToldEnd]) -> Collection[ToldEnd]:
    """One for each claim, as of several for a row the server takes any: what was written off may be over by now."""
    last: dict[tuple[bytes, int], ToldEnd] = {}
    for item in ends:
        before = last.get(item[:2])
        if before is not None and item[4] is None:
            item = *item[:4], before[4], item[5]
        last[item[:2]] = item
    return last.values()


def columns_of(rows: Collection[Sequence[Any]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(count)]
