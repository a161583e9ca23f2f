"""Claims as rows of the server: what is read of one, and what is written."""

from __future__ import annotations

from typing import Any, NamedTuple

from millrace.relayer.journal.submissions import Record

COLUMNS = "sender, nonce, client_hash, tx, kind, relayer, fee, cost, ip, created_ms, state, broadcast, ended_ms"


class Claimed(NamedTuple):
    """Who has a nonce."""

    client_hash: bytes
    seat: int
    kind: str
    state: str
    cost: str | None
    ended_ms: int | None
    signature: bytes | None = None
    """Of what is only to be signed, once its holder has told it."""
    tx: bytes | None = None
    """Of what may still run, where that was asked for."""
    is_kept: bool = True
    """Whether its holder has signed it, as far as was told: else it may still be let go of."""

    @property
    def is_open(self) -> bool:
        """Whether it may still run, as far as its holder has told."""
        return self.state == "journalled"

    @property
    def may_have_run(self) -> bool:
        """Of what is over: it did, or its nonce was used while nobody was told by what, so that its fee counts."""
        return self.state == "finished" or int(self.cost or 0) > 0


class Shared(NamedTuple):
    """A claim as a row of the journal, when it ended, and whether it is known to have failed."""

    record: Record
    ended_ms: int | None
    failed: bool = False


def claimed_of(row: tuple[Any, ...], ahead_ms: int) -> Claimed:
    """Who has a nonce, by a row; `ahead_ms`: the server's clock of ours."""
    claimed = Claimed(*row)
    ended_ms = None if claimed.ended_ms is None else claimed.ended_ms - ahead_ms
    return claimed._replace(ended_ms=ended_ms, state=_finished(claimed.state))


def _finished(state: str) -> str:
    """A claim's state as the journal has it, which keeps beside it what failed."""
    return "finished" if state == "failed" else state


def row_of(item: Record, ahead_ms: int) -> tuple[Any, ...]:
    """The values of a record, in the order of the statement that claims."""
    cost = None if item.cost is None else str(item.cost)
    return (
        item.sender, item.nonce, item.client_hash, item.tx, item.kind, item.relayer, str(item.fee), item.ip,
        item.created_ms + ahead_ms, item.state, item.broadcast, cost,
    )  # fmt: skip


def shared_of(row: Any, ahead_ms: int) -> Shared:
    """A row of `COLUMNS` and when it ended."""
    sender, nonce, client, tx, kind, relayer, fee, cost, ip, created_ms, state, broadcast, ended_ms = row
    return Shared(
        Record(
            sender, nonce, client, None, tx, kind, relayer, int(fee), None if cost is None else int(cost), ip,
            created_ms - ahead_ms, _finished(state), broadcast,
        ),
        None if ended_ms is None else ended_ms - ahead_ms,
        state == "failed",
    )  # fmt: skip
