"""What a relayer that stands by owes to its clients: transactions of before that it only had to broadcast.

No key of ours signed them, so nobody claimed them and who took the seat does not know them.
"""

from __future__ import annotations

import asyncio
import time

from millrace.relayer.journal.journal import Journal, transaction_of
from millrace.relayer.network.chain_api import ChainApi

RETRY_SECONDS = 1.0


async def pass_on(journal: Journal, api: ChainApi, lifetime: float) -> None:
    """Hand what was only broadcast, in the order it came in, to the chain API until that has said yes or no to each.

    What is older than `lifetime` seconds is sent no more, as ever. Raises `JournalError`.
    """
    since_ms = time.time_ns() // 1_000_000 - int(lifetime * 1000)
    waiting = [
        transaction_of(record)
        for record in journal.open_records()
        if record.relayer is None and record.state == "journalled" and record.created_ms >= since_ms
    ]
    while waiting:
        waiting = [tx for tx in waiting if await api.submit(tx) == "later"]
        await asyncio.sleep(RETRY_SECONDS)
