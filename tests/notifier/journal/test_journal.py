"""The journal's housekeeping: files of the log come and go, old events leave, defects surface."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from millrace.chain import outport
from millrace.chain.proto.hub_pb2 import Gap
from millrace.notifier.app import Notifier
from millrace.notifier.journal import journal as journal_module
from millrace.notifier.journal.file_store import Store
from millrace.notifier.journal.processor import Arrival
from millrace.notifier.journal.rows import JournalUnusable
from millrace.notifier.rules.dedup import Observer
from millrace.notifier.rules.entry import now_ms
from millrace.notifier.settings import NotifierSettings

from ..helpers import WAIT, event, finalized, notifier, peers, save_block
from ..journal_files import damage, log_files


async def test_files_of_the_log_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While events keep coming the log begins new files and old ones go, and consumers get all that is kept."""
    monkeypatch.setattr("millrace.notifier.journal.log.SEGMENT_BYTES", 200_000)
    monkeypatch.setattr(journal_module, "_PRUNE_EVERY", 0.01)
    async with notifier(tmp_path, retention_bytes=1_000_000, tail_bytes=1) as running, peers(running) as connect:
        node = await connect.node()
        big = event(b"\1" * 32, "big", data=b"x" * 50_000)
        nonce, first = 0, log_files(tmp_path)[0]
        while first.exists():
            await node.save(save_block(0, nonce, events=[big]))
            nonce += 1
        assert 20 <= nonce < 400
        while running.journal.head - running.journal.oldest > 18:  # what a million bytes hold
            await asyncio.sleep(0.01)
        consumer = await connect.consumer()
        await consumer.subscribe(resume_after=running.journal.oldest - 1)
        kept = running.journal.head - running.journal.oldest + 1
        assert len(await consumer.events(kept)) == kept >= 10
        disk = sum(file.stat().st_size for file in log_files(tmp_path))
    assert disk < 8_000_000, "the events of a start, up to 4 MiB, stay a little longer"
    async with notifier(tmp_path) as running:
        assert running.journal.head - running.journal.oldest + 1 == kept


async def test_retention_goes_on_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events beyond the size bound leave while the notifier runs; the newest stay."""
    monkeypatch.setattr(journal_module, "_PRUNE_EVERY", 0.01)
    async with notifier(tmp_path, retention_bytes=2000) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(100):
            await node.save(save_block(0, nonce))
        size = len(save_block(0, 99).SerializeToString())
        while running.journal.head - running.journal.oldest >= 2000 // size:
            await asyncio.sleep(0.01)
        assert running.journal.head >= running.journal.oldest


async def test_retention_keeps_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many events a commit brings, as many leave with it where there are too many."""
    monkeypatch.setattr(journal_module, "_PRUNE_EVERY", 0.0)
    async with notifier(tmp_path, retention_bytes=1) as running:
        journal, done = running.journal, asyncio.Event()
        observer = Observer(journal.head + 1)
        for nonce in range(2_000):
            payload = save_block(0, nonce).SerializeToString()
            arrival = Arrival(observer, "node", outport.SAVE_BLOCK, 1, payload, now_ms())
            journal.submit(arrival, done.set if nonce == 1_999 else lambda: None)
        await asyncio.wait_for(done.wait(), WAIT)
        assert journal.head - journal.oldest < 700, "two commits"


def set_clock(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Set the clock of this machine."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + int(hours * 3600 * 10**9))


async def test_a_clock_set_forward_ages_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events leave when so much time has passed, not when a clock says so: what they leave is gone for good."""
    monkeypatch.setattr(journal_module, "_PRUNE_EVERY", 0.01)
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        block = save_block(0, 0, events=[event(b"\1" * 32, "e", data=b"x" * 1_000_000)])
        for nonce in range(6):
            block.blockData.headerHash = bytes([nonce]) * 32
            await node.save(block)
        oldest = running.journal.oldest
        looked = asyncio.Semaphore(0)
        prune, loop = running.journal._store.prune, asyncio.get_running_loop()

        def counted(*bounds: int) -> int:
            loop.call_soon_threadsafe(looked.release)
            return prune(*bounds)

        set_clock(monkeypatch, 48)
        monkeypatch.setattr(running.journal._store, "prune", counted)
        for _ in range(3):  # the third begins when the loop has heard what came of the first
            await looked.acquire()
        assert running.journal.oldest == oldest
        await consumer.subscribe(resume_after=0)
        assert len(await consumer.events(6)) == 6


async def test_a_clock_set_back_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finality that waits for its block does not wait for a clock to come by again."""
    async with notifier(tmp_path, finalized_wait=60.0) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        await consumer.subscribe()
        await node.finalise(save_block(0, 0))
        set_clock(monkeypatch, -1)
        told = await consumer.event()
        assert (told.topic, told.marks) == (outport.FINALIZED_BLOCK, 2)


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_finality_waits_while_nodes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    """Its block comes when the node has its answer: while the disk is slow, or takes nothing, the time stands still."""
    monkeypatch.setattr(journal_module, "_RETRY", (0.01, 0.01))
    commit, may_commit = Store.commit, threading.Event()

    def stalled(self: Store) -> None:
        if refuses and not may_commit.is_set():
            raise sqlite3.OperationalError("disk full")
        may_commit.wait(WAIT)
        commit(self)

    block = save_block(0, 0)
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, other, consumer = await connect.node(), await connect.node(), await connect.consumer()
        await consumer.subscribe()
        set_clock(monkeypatch, 1)
        monkeypatch.setattr(Store, "commit", stalled)
        told = finalized(0, block.blockData.headerHash).SerializeToString()
        counter = node.post(outport.FINALIZED_BLOCK, told)
        while not running.metrics.queued_bytes._value.get() or not running.journal._queue.empty():
            await asyncio.sleep(0.001)
        another = other.post(outport.SAVE_BLOCK, save_block(1, 0).SerializeToString())
        while not running.metrics.messages.labels(outport.SAVE_BLOCK)._value.get():
            await asyncio.sleep(0.001)
        set_clock(monkeypatch, 1)
        may_commit.set()
        await node.acked(counter)
        await other.acked(another)
        await node.save(block)
        topics = [message.topic for message in await consumer.events(3)]
        assert topics == [outport.SAVE_BLOCK, outport.SAVE_BLOCK, outport.FINALIZED_BLOCK]
        await node.finalise(save_block(0, 1))
        set_clock(monkeypatch, 1)
        assert (await consumer.event()).marks == 2, "without a stall it waits no longer than it should"


async def test_what_a_node_meant_does_not_depend_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revert and a save that are written at the second attempt are one generation, and a resend of that is none."""
    monkeypatch.setattr(journal_module, "_RETRY", (0.01, 0.01))
    commit, may_commit, refuses = Store.commit, threading.Event(), threading.Event()

    def slow(self: Store) -> None:
        if refuses.is_set():
            raise sqlite3.OperationalError("disk full")
        may_commit.wait(WAIT)
        commit(self)

    async with notifier(tmp_path) as running, peers(running) as connect:
        node, other = await connect.node(), await connect.node()
        block = save_block(0, 0)
        await node.save(block)
        await other.save(block)
        with monkeypatch.context() as patch:
            patch.setattr(Store, "commit", slow)
            first = other.post(outport.SAVE_BLOCK, save_block(1, 0).SerializeToString())
            while not running.metrics.queued_bytes._value.get() or not running.journal._queue.empty():
                await asyncio.sleep(0.001)
            reverts = node.post(outport.REVERT_INDEXED_BLOCK, block.blockData.SerializeToString())
            saves = node.post(outport.SAVE_BLOCK, block.SerializeToString())
            while running.journal._queue.qsize() < 2:
                await asyncio.sleep(0.001)
            patch.setattr(running.journal, "_overdue_ms", lambda: refuses.set() or 0)  # with the next transaction
            may_commit.set()
            while not running.metrics.commit_failures._value.get():
                await asyncio.sleep(0.001)
            patch.undo()
        await other.acked(first)
        await node.acked(reverts)
        await node.acked(saves)
        await other.revert(block)
        await other.save(block)
        head = running.journal.head
        await other.revert(block)
        assert running.journal.head == head + 1
        await node.save(block)
        assert running.journal.head == head + 1


async def test_a_finality_waits_for_nodes_that_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits on disk goes on waiting at a start: its node may have stood still for as long."""
    block = save_block(0, 0)
    async with notifier(tmp_path) as running, peers(running) as connect:
        await (await connect.node()).finalise(block)
    set_clock(monkeypatch, 1)
    async with notifier(tmp_path) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        await consumer.subscribe()
        await node.save(save_block(1, 0))  # a commit or more
        await node.save(block)
        assert [message.marks for message in await consumer.events(3)] == [0, 0, 0]
        await node.finalise(save_block(0, 1))
        set_clock(monkeypatch, 1)
        assert (await consumer.event()).marks == 2


async def test_a_long_damaged_stretch_hides_nothing(tmp_path: Path) -> None:
    """However many events in a row are damaged, the intact ones behind them are read."""
    count = 1030  # more than a store reads at once
    async with notifier(tmp_path) as running, peers(running) as connect:
        node = await connect.node()
        counters = [node.post(outport.SAVE_BLOCK, save_block(0, nonce).SerializeToString()) for nonce in range(count)]
        for counter in counters:
            await node.acked(counter)
        first, head = running.journal.oldest, running.journal.head
        damage(tmp_path, *range(first, head - 1))
        entries = await running.journal.read(first - 1, 10**6)
        assert [entry.sequence for entry in entries] == [head - 1, head]
        assert await running.journal.read(head, 10**6) == []
        assert running.metrics.corrupt._value.get() == count - 2


async def test_damage_at_the_end_of_what_is_read_counts_once(tmp_path: Path) -> None:
    """Damage behind the last event that a read gives is one loss, though the next read finds it again."""
    async with notifier(tmp_path, tail_bytes=1) as running, peers(running) as connect:
        node, consumer = await connect.node(), await connect.consumer()
        for nonce in range(4):
            await node.save(save_block(0, nonce))
        first, head = running.journal.oldest, running.journal.head
        damage(tmp_path, head - 1, head)
        await consumer.subscribe(resume_after=0)
        await consumer.events(2)
        assert Gap.FromString((await consumer.event()).payload) == Gap(first=first + 2, last=head)
        assert (running.metrics.corrupt._value.get(), running.metrics.gaps._value.get()) == (2, 1)


async def test_damage_while_running_ends_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database found damaged while running ends the service with words for the operator; no node is answered."""
    running = Notifier(NotifierSettings(port=0, http_port=0, metrics_port=0, data_dir=tmp_path))

    def broken(self: Store) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    async with AsyncExitStack() as stack:
        await running.start(stack)
        async with peers(running) as connect:
            node = await connect.node()
            with monkeypatch.context() as patch:
                patch.setattr(Store, "commit", broken)
                node.post(outport.SAVE_BLOCK, save_block(0, 1).SerializeToString())
                with pytest.raises(JournalUnusable, match=r"malformed.*Restore it from a backup"):
                    await asyncio.wait_for(running.work(asyncio.Event()), 10)
            assert node.inbox.empty()
