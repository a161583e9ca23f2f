"""Claims that wait for the server: who asked for them, and which of them go into one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from millrace.relayer.journal.common_programmes import Charged
from millrace.relayer.journal.programmes import Charge
from millrace.relayer.journal.submissions import Record
from millrace.relayer.journal.writer import JournalError

GROUP = 2_000
"""Claims of one statement."""


class Waiting(NamedTuple):
    """Claimed together or not at all."""

    records: Sequence[Record]
    charges: Sequence[Charge]
    done: asyncio.Future[None]


def next_group(queue: list[Waiting]) -> list[Waiting]:
    """Take as many of what waits as go into one statement; each nonce is in it once."""
    group: list[Waiting] = []
    names: set[tuple[bytes, int]] = set()
    while len(group) < len(queue) and len(names) < GROUP:
        following = queue[len(group)]
        of_it = {name_of(item) for item in following.records}
        if names & of_it:
            break
        names |= of_it
        group.append(following)
    del queue[: len(group)]
    return group


def name_of(item: Record) -> tuple[bytes, int]:
    """What a claim is known by."""
    return item.sender, item.nonce


def charged_of(records: Sequence[Record], group: Sequence[Waiting]) -> list[Charged]:
    """What programmes are charged with claims, in the order of these."""
    charges = {item.client_hash: item for waiting in group for item in waiting.charges}
    if not charges:
        return []
    return [
        Charged(found.programme, item.sender, item.nonce, item.client_hash, found.fee)
        for item in records
        if (found := charges.get(item.client_hash)) is not None
    ]


def settle(done: asyncio.Future[None], error: JournalError | None) -> None:
    """Answer who waits, unless that has been done."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
