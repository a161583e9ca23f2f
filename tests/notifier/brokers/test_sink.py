"""Where a sink begins, whatever became of its journal: it passes over nothing, and tells what it cannot have."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from millrace.chain.proto import outport_pb2 as pb
from millrace.notifier.app import Notifier
from millrace.notifier.brokers import sink
from millrace.notifier.brokers.cursor_file import Cursor, CursorFile
from millrace.notifier.brokers.item import Item
from millrace.notifier.brokers.sink import Bounds, Sink
from millrace.notifier.rules.entry import Entry
from millrace.runtime.settings import Secret
from servers.redis_server import RedisServer

from ..helpers import WAIT, notifier, peers, save_block, unique_name


class ListSink(Sink):
    """A broker that has room for all."""

    def __init__(self, running: Notifier) -> None:
        bounds = Bounds(1024, 1 << 30, 60.0, 1 << 30)
        super().__init__("list", bounds, running.settings, running.metrics, running.journal)
        self.items: list[Item] = []

    async def _deliver(self) -> None:
        self._opened("a list")
        while not self._stopping:
            self._wake.clear()
            if not self.behind:
                await self._wait()
                continue
            for item in await self._next_items(self._window.position):
                self._window.sent(item.sequence, 0, sink.now())
                self.items.append(item)
                self._confirm(item.sequence)


@asynccontextmanager
async def publishing(running: Notifier) -> AsyncIterator[ListSink]:
    """A sink that has come to the journal's head."""
    one = ListSink(running)
    await one.start()
    try:
        async with asyncio.timeout(WAIT):
            while one.lag:
                await asyncio.sleep(0.01)
        yield one
    finally:
        await one.stop()


async def told(
    directory: Path, blocks: Sequence[pb.OutportBlock], publish: bool = True, **settings: Any
) -> tuple[int, list[str]]:
    """The head of a notifier that is told blocks before its sink starts, and the ids that it publishes."""
    async with notifier(directory, **settings) as running, peers(running) as connect:
        node = await connect.node()
        for block in blocks:
            await node.save(block)
        if not publish:
            return running.journal.head, []
        async with publishing(running) as one:
            return running.journal.head, [item.message_id for item in one.items]


def ids(blocks: Sequence[pb.OutportBlock]) -> list[str]:
    return [f"SaveBlock:{block.shardID}:{block.blockData.headerHash.hex()}:1" for block in blocks]


BLOCKS = [save_block(0, nonce) for nonce in range(12)]


async def test_restarts(tmp_path: Path) -> None:
    """Each event once, however often the notifier starts again."""
    published = []
    for number in range(4):
        published += (await told(tmp_path, BLOCKS[3 * number :][:3]))[1]
    assert published == ids(BLOCKS)


async def test_killed_while_the_broker_is_away(tmp_path: Path) -> None:
    """A start takes the cursor over to its name also when it publishes nothing, and is killed."""
    await told(tmp_path, BLOCKS[:3])
    cursor = (tmp_path / "list.cursor").read_text()
    async with notifier(tmp_path) as running, asyncio.timeout(WAIT):
        one = ListSink(running)
        await one.start()
        while (tmp_path / "list.cursor").read_text() == cursor:
            await asyncio.sleep(0.01)
        kept = CursorFile(tmp_path / "list.cursor").load()
        assert kept == Cursor(int(cursor.split()[0]), running.journal.runs.present.name)
        await one.stop()


async def put_back(directory: Path) -> str:
    """A journal that was put back to its first two events while its sink had come to the sixth: that one's cursor."""
    home, backup = directory / "a", directory / "backup"
    await told(home, BLOCKS[:2])
    shutil.copytree(home, backup)
    await told(home, BLOCKS[2:6])
    cursor = (home / "list.cursor").read_text()
    shutil.rmtree(home)
    shutil.copytree(backup, home)
    return cursor


OTHERS = [save_block(1, nonce) for nonce in range(9)]


async def test_put_back(tmp_path: Path) -> None:
    """Put back as a whole, a journal goes on where it was then."""
    await put_back(tmp_path)
    assert (await told(tmp_path / "a", OTHERS))[1] == ids(OTHERS)


async def test_put_back_without_its_cursor(tmp_path: Path) -> None:
    """A cursor of a later state passes over nothing when the journal has passed it: a gap is told, and then all."""
    cursor = await put_back(tmp_path)
    await told(tmp_path / "a", OTHERS, publish=False)
    (tmp_path / "a" / "list.cursor").write_text(cursor)
    _, (gap, *published) = await told(tmp_path / "a", ())
    assert gap.startswith("gap:") and published == ids([*BLOCKS[:2], *OTHERS])


async def test_without_a_name(tmp_path: Path) -> None:
    """A cursor of an earlier version beyond what the journal has at the start is of a later state: a gap, then all."""
    cursor = await put_back(tmp_path)
    (tmp_path / "a" / "list.cursor").write_text(f"{cursor.split()[0]}\n")
    _, (gap, *published) = await told(tmp_path / "a", OTHERS)
    assert gap.startswith("gap:") and published == ids([*BLOCKS[:2], *OTHERS])


async def test_put_back_to_the_middle_of_a_start(tmp_path: Path) -> None:
    """What the journal lost may have been more than the broker has had: a gap is told, not only what comes next."""
    home, backup = tmp_path / "a", tmp_path / "backup"
    async with notifier(home) as running, peers(running) as connect:
        node = await connect.node()
        await node.save(BLOCKS[0])
        shutil.copytree(home, backup)  # quiet at the moment
        for block in BLOCKS[1:6]:
            await node.save(block)
        async with publishing(running) as one:
            assert len(one.items) == 6
    shutil.copy(home / "list.cursor", backup)
    _, (gap, *published) = await told(backup, OTHERS)
    assert gap.startswith("gap:") and published == ids([BLOCKS[0], *OTHERS])


async def test_of_another_journal(tmp_path: Path) -> None:
    """A cursor that belongs to another notifier's journal passes over nothing: a gap is told, and then all there is."""
    await told(tmp_path / "a", BLOCKS[:3], publish=False)
    await told(tmp_path / "b", BLOCKS)
    shutil.copy(tmp_path / "b" / "list.cursor", tmp_path / "a")
    _, (gap, *published) = await told(tmp_path / "a", ())
    assert gap.startswith("gap:") and published == ids(BLOCKS[:3])


async def test_gaps_of_two_who_share_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one's gap is told once, also after a restart: another journal has other events under the same sequences."""
    began = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: began)  # so that both begin with the same sequence
    await told(tmp_path / "a", BLOCKS[:3], publish=False)
    await told(tmp_path / "b", OTHERS[:3], publish=False)
    await told(tmp_path / "other", BLOCKS)
    redis = RedisServer(tmp_path)
    published = []
    try:
        redis.start()
        shared = {"redis_url": Secret(redis.url), "claim_group": unique_name()}
        for name in "abab":  # the second time as after a kill, with the cursor not written
            shutil.copy(tmp_path / "other" / "list.cursor", tmp_path / name)
            published.append((await told(tmp_path / name, (), **shared))[1])
    finally:
        redis.kill()
    (one, *blocks), (another, *others), *repeated = published
    assert blocks == ids(BLOCKS[:3]) and others == ids(OTHERS[:3]) and repeated == [[], []]
    assert one != another and one.split(":")[:3] == another.split(":")[:3]


async def test_made_anew(tmp_path: Path) -> None:
    """A journal that was moved away and made anew begins with a gap, from the cursor of the one before."""
    head, _ = await told(tmp_path, BLOCKS[:3])
    shutil.rmtree(tmp_path / "events")
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"journal.sqlite3{end}").unlink(missing_ok=True)
    _, (gap, *published) = await told(tmp_path, BLOCKS[3:5])
    assert gap.startswith(f"gap:{head + 1}:") and published == ids(BLOCKS[3:5])


async def test_what_was_read_is_used_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Redis is away few events are judged at a time; the journal is not read again for each few."""
    away: dict[str, Any] = {"redis_url": Secret("redis://127.0.0.1:1/0"), "claim_group": unique_name()}
    async with notifier(tmp_path, tail_bytes=1, claim_lease=0.1, **away) as running, peers(running) as connect:
        node = await connect.node()
        for nonce in range(60):
            await node.save(save_block(0, nonce))
        read, asked = running.journal.read, []

        async def counted(after: int, max_bytes: int) -> list[Entry]:
            asked.append(after)
            return await read(after, max_bytes)

        monkeypatch.setattr(running.journal, "read", counted)
        async with publishing(running) as one:
            sequences = [item.sequence for item in one.items]
            assert sequences == sorted(set(sequences)) and len(sequences) == 60
    assert len(asked) == 1
