"""A disk that is really full: nothing is answered that is not kept, consumers read on, and room ends it."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.notifier.app import Notifier

from ..helpers import WAIT, Node, event, notifier, peers, save_block
from ..test_operators import get

SMALL, LARGE = 4 * 1024 * 1024, 64 * 1024 * 1024
MakeRoom = Callable[[], None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, MakeRoom]]:
    """A directory on a small tmpfs, and how to enlarge it. Without the right to mount, a limit on files' sizes."""
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", tmp_path], check=True)

        def enlarge() -> None:
            subprocess.run(["mount", "-o", f"remount,size={LARGE}", tmp_path], check=True)

        yield tmp_path, enlarge
        subprocess.run(["umount", "--lazy", tmp_path], check=True)
    else:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, before[1]))
        yield tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def fill_up(running: Notifier, node: Node) -> tuple[asyncio.Task[None], int]:
    """Save blocks until the disk refuses one; returns what waits for its answer, and how many blocks were sent."""
    noise = random.Random(1)
    nonce = 0
    while True:
        block = save_block(0, nonce, events=[event(b"\1" * 32, "e", data=noise.randbytes(200_000))])
        answer = asyncio.create_task(node.save(block))
        nonce += 1
        while not answer.done():
            await asyncio.sleep(0.001)
            if running.journal.failing:
                return answer, nonce


async def test_a_full_disk(small_disk: tuple[Path, MakeRoom], monkeypatch: pytest.MonkeyPatch) -> None:
    """The node waits unanswered, `/ready` says why, consumers still get all that was kept; then all goes on."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    directory, make_room = small_disk
    async with notifier(directory, tail_bytes=100_000) as running, peers(running) as connect:
        answer, nonce = await fill_up(running, await connect.node())
        kept = nonce - 1
        assert kept >= 5
        assert not answer.done()
        assert running.journal.head == running.journal.oldest + kept - 1
        status, body = await get(running, "/ready")
        assert status == 503
        assert any("the journal cannot be written" in reason for reason in body["reasons"])
        assert (await get(running, "/health"))[0] == 200
        late = await connect.consumer()
        await late.subscribe(resume_after=0)
        assert len(await late.events(kept)) == kept
        make_room()
        await asyncio.wait_for(answer, WAIT)
        assert (await late.event()).counter == running.journal.head == running.journal.oldest + kept
        assert (await get(running, "/ready"))[0] == 200
    async with notifier(directory) as running, peers(running) as connect:
        again = await connect.consumer()
        await again.subscribe(resume_after=0)
        assert len(await again.events(kept + 1)) == kept + 1


@pytest.mark.parametrize("moved", [2, 4096])
async def test_less_retention_frees_a_full_disk(
    small_disk: tuple[Path, MakeRoom], monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    """After a start with less to keep, old events leave though nothing can be written, and nodes are answered."""
    monkeypatch.setattr("millrace.notifier.journal.journal._RETRY", (0.01, 0.01))
    monkeypatch.setattr("millrace.notifier.journal.log.SEGMENT_BYTES", 500_000)
    monkeypatch.setattr("millrace.notifier.journal.file_store._MAX_RECENT", moved)
    monkeypatch.setattr("millrace.notifier.journal.file_store.NEWEST_EVENTS", 1)
    directory, _ = small_disk
    async with notifier(directory) as running, peers(running) as connect:
        answer, nonce = await fill_up(running, await connect.node())
        answer.cancel()
    async with notifier(directory, retention_bytes=1_000_000) as running, peers(running) as connect:
        node = await connect.node()
        for number in range(nonce, nonce + 20):
            block = save_block(0, number, events=[event(b"\1" * 32, "e", data=bytes(200_000))])
            await asyncio.wait_for(node.save(block), WAIT)
        assert running.journal.oldest > running.journal.origin + 10
