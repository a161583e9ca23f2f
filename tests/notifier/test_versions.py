"""An upgrade from a kept folder of an earlier version: events, their numbers and what was known of blocks stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from millrace.chain.proto import outport_pb2 as pb

from .helpers import block_hash, event, notifier, peers, save_block

KEPT = Path(__file__).parent / "kept"
FOREVER = 1e9
"""Seconds: what a kept folder has does not get too old to be told."""


@pytest.mark.parametrize("version", ["journal-3"])
async def test_an_upgrade_from_a_kept_folder(tmp_path: Path, version: str) -> None:
    """A consumer hears every event as before, a block that was told is none again, and numbers go on without a gap.

    The folder has six blocks of each of three shards, of which the last is not final, and a fork of shard 0 that was
    taken back. A second start finds the new form.
    """
    shutil.unpack_archive(KEPT / f"{version}.zip", tmp_path)
    said = json.loads((KEPT / f"{version}.json").read_text())
    last, subject = said[-1][1], said[-1][3]
    journals: list[str] = []
    for added in (1, 2):
        async with notifier(tmp_path, retention_seconds=FOREVER) as running, peers(running) as opened:
            consumer = await opened.consumer()
            reply = await consumer.subscribe(resume_after=0)
            journals.append(reply.journal)
            assert reply.head == last + added - 1
            told = await consumer.events(len(said) + added - 1)
            assert [[one.topic, one.counter, one.marks, one.id] for one in told[: len(said)]] == said
            node = await opened.node()
            for shard in (0, 1, 2):
                known = save_block(shard, 6, events=[event(b"\1" * 32, "swap", b"topic 6")])
                header = pb.Header(nonce=6, round=106, epoch=7, shardID=shard)  # as the folder has it, and its name
                known.blockData.headerBytes = pb.HeaderV2(header=header).SerializeToString()
                known.blockData.headerHash = block_hash((shard, 6, ""))
                await node.save(known)
            await node.save(save_block(1, 6 + added, events=[]))
            new = await consumer.event()
            assert (new.topic, new.counter) == ("SaveBlock", last + added)
            for journal in journals:
                moved = await opened.consumer()
                await moved.subscribe(resume_after=last, resume_id=subject, resume_journal=journal)
                assert [one.counter for one in await moved.events(added)] == list(range(last + 1, last + added + 1))
    assert (tmp_path / "events").is_dir()
