"""kill -9 of the relayer, of its signing process and of its gossip process, at random moments under load.

Clients that never give up submit to a relayer process whose transactions a listener on the gossip network takes into
blocks: in each shard some of the earlier format and then such as are executed later, of both some taken back. In the
end every acknowledged transaction is in a block, each (sender, nonce) was signed with one payload, no budget was
exceeded, and each subscription whose connection survived was told once. 15 kills by default; `MILLRACE_KILLS=500` is
the nightly form.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from relayer_support import NETWORK

from millrace.gossip import GossipHandle, GossipSettings, PeerSettings
from relayer.torture import AT_RISK, CLIENTS, CUTS, KILLS, PER_MINUTE, Line, Torture
from relayer.torture_chain import Chain
from servers.tasks import background

SLACK_MS = 20
"""Lines of the log carry wall-clock times rounded to a millisecond; windows are of another clock."""


@pytest.mark.timeout(900 + 6 * KILLS)
async def test_row_10_random_kill_9_of_relayer_signer_and_gossip(tmp_path: Path) -> None:
    """Over random kills nothing acknowledged is lost, nothing signed twice, no budget exceeded, each told once."""
    torture = Torture(tmp_path)
    chain = torture.chain
    topics = tuple(topic for shard in range(NETWORK.shards) for topic in NETWORK.transactions_topics(shard))
    settings = GossipSettings(peers=(PeerSettings(subscribe=topics),))
    async with GossipHandle(settings, chain.on_gossip) as listener, background(chain.produce()):
        await torture.prepare(listener.addresses[0])
        try:
            async with background(torture.keep()):
                clients = [asyncio.create_task(torture.client(number)) for number in range(CLIENTS)]
                async with background(*clients):
                    await torture.killer()
                    async with asyncio.timeout(300):  # a slow machine makes fewer and fuller blocks
                        await chain.changed.wait()
                    torture.done = True
                    lines = await asyncio.gather(*clients)
        finally:
            print(torture.report())
            await torture.close()
    assert chain.wrong == []
    assert len(chain.later) == NETWORK.shards, "all have changed over to blocks that are executed later"
    assert torture.kills == KILLS + CUTS and len(torture.accepted) >= 5 * KILLS
    assert chain.gossiped > 0 and torture.survived > 0
    assert 0 < chain.most_at_risk <= AT_RISK
    assert _untold(chain, lines) == []
    assert "Traceback" not in (tmp_path / "relayer.log").read_text()
    _journal_holds_what_was_sent(tmp_path / "data" / "journal.sqlite", chain)
    _budget_holds_by_the_log(tmp_path / "data" / "journal.sqlite")


def _untold(chain: Chain, lines: list[Line]) -> list[str]:
    """Subscriptions that outlived their transaction's block and were not told of it."""
    return [
        name
        for line in lines
        for name, subscription in line.subscriptions.items()
        if not subscription.told and chain.pushed_at.get(bytes.fromhex(name), 0.0) > subscription.since
    ]


def _journal_holds_what_was_sent(path: Path, chain: Chain) -> None:
    """Every row our keys pay for was reserved for exactly its fee, and nothing reached the chain without a row."""
    journal = sqlite3.connect(path)
    rows = dict(journal.execute("SELECT client_hash, fee FROM submissions WHERE relayer IS NOT NULL"))
    taken = {(sender, nonce) for sender, nonce in journal.execute("SELECT sender, nonce FROM submissions")}
    reserved = journal.execute("SELECT client_hash, amount FROM audit WHERE event = 'reserve'").fetchall()
    journal.close()
    assert len(reserved) == len(rows) and dict(reserved) == rows
    assert chain.payloads.keys() <= taken


def _budget_holds_by_the_log(path: Path) -> None:
    """The audit log alone, line by line: what a key had open and what it spent in any minute stays in its budget."""
    journal = sqlite3.connect(path)
    lines = journal.execute("SELECT time_ms, event, relayer, client_hash, amount FROM audit ORDER BY id").fetchall()
    journal.close()
    open_: dict[bytes, dict[bytes, int]] = {}
    spent: dict[bytes, deque[list[Any]]] = {}
    for time_ms, event, relayer, name, amount in lines:
        mine, charges = open_.setdefault(relayer, {}), spent.setdefault(relayer, deque())
        while charges and charges[0][0] <= time_ms - 60_000 + SLACK_MS:
            charges.popleft()
        if event == "reserve":
            mine[name] = int(amount)
            charges.append([time_ms, name, int(amount)])
            assert sum(mine.values()) <= AT_RISK
            assert sum(charge[2] for charge in charges) <= PER_MINUTE
        else:
            assert int(amount) <= mine.pop(name), "it ends once, for at most what was reserved"
            for charge in charges:
                if charge[1] == name:
                    charge[2] = int(amount) if event == "settle" else 0
