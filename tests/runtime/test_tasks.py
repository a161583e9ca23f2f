"""Tasks end when they are told to, also where a library loses what they were told."""

from __future__ import annotations

import asyncio

import pytest

from millrace.runtime import tasks


async def test_all_have_ended_and_put_things_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task's own clean-up is over when the call returns; what it raises there is not raised here."""
    done: list[int] = []

    async def tidy(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            done.append(number)
            if number == 1:
                raise OSError("at the end")

    started = [asyncio.create_task(tidy(number)) for number in range(3)]
    await asyncio.sleep(0)
    await tasks.end_tasks(started)
    assert sorted(done) == [0, 1, 2] and all(task.done() for task in started)


async def test_a_lost_cancellation_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that swallows its first cancellations, as some libraries make it do, is ended all the same."""
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.01)
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    await tasks.end_tasks([task])
    assert task.cancelled() and lost == 3


async def test_nothing_to_end() -> None:
    """No tasks, and tasks that ended long ago, take no time."""

    async def short() -> None:
        raise ValueError("ended by itself")

    task = asyncio.create_task(short())
    await asyncio.wait([task])
    async with asyncio.timeout(tasks.AGAIN_SECONDS):
        await tasks.end_tasks([])
        await tasks.end_tasks([task])
