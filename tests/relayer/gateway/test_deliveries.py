"""Words on accounts on their way to readers: joined, in order, and a few readers at a time."""

from __future__ import annotations

import asyncio

import pytest

from millrace.relayer.gateway import deliveries
from millrace.relayer.gateway.deliveries import Deliveries


class Reader:
    """A connection that keeps what was written to it, write by write."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self.writes: list[bytes] = []

    def send_frames(self, frames: bytes) -> None:
        self.writes.append(b"".join((*self.held, frames)))
        self.held.clear()


async def turn() -> None:
    """Let everything go on that can."""
    await asyncio.sleep(0)


async def test_what_is_for_one_reader_is_one_write() -> None:
    """Hundreds of accounts of one block are one write to each who hears of all, and one to who hears of some."""
    everyone, some = [Reader(), Reader()], Reader()
    queue = Deliveries(lambda: everyone)
    for number in range(200):
        queue.put_to_everyone(b"%03d" % number)
        if number % 100 == 0:
            queue.put(some, b"%03d" % number)
    await turn()
    assert [reader.writes for reader in everyone] == [[b"".join(b"%03d" % number for number in range(200))]] * 2
    assert some.writes == [b"000100"]


async def test_what_comes_later_stays_behind() -> None:
    """Whatever else a reader is sent goes behind the accounts that were told before, and nothing is written twice."""
    everyone = [Reader(), Reader()]
    queue = Deliveries(lambda: everyone)
    queue.put_to_everyone(b"account ")
    queue.join()
    everyone[0].send_frames(b"status")
    queue.put(everyone[0], b"more")
    await turn()
    assert [reader.writes for reader in everyone] == [[b"account status", b"more"], [b"account "]]


@pytest.mark.parametrize(("size", "each_turn"), [(10, 256), (deliveries.SLICE_BYTES // 4, 4)])
async def test_row_27_others_have_their_turn_in_between(size: int, each_turn: int) -> None:
    """However many readers there are, and however much is for each, a turn of the loop writes to a few of them."""
    everyone = [Reader() for _ in range(600)]
    queue = Deliveries(lambda: everyone)
    queue.put_to_everyone(bytes(size))
    before = 0
    while before < len(everyone):
        await turn()
        written = sum(len(reader.writes) for reader in everyone)
        assert 0 < written - before <= each_turn
        before = written
    assert all(len(reader.writes) == 1 for reader in everyone)


async def test_row_27_what_is_held_for_a_reader_is_bounded() -> None:
    """Where blocks come faster than turns a reader is written to without one, in order, before more is held for it."""
    everyone = [Reader()]
    queue = Deliveries(lambda: everyone)
    for number in range(10):
        queue.put_to_everyone(bytes([number]) * (deliveries.MOST_HELD // 2))
        queue.join()
        assert sum(map(len, everyone[0].held)) <= 2 * deliveries.MOST_HELD
    await turn()
    told = b"".join(everyone[0].writes)
    assert [told[place] for place in range(0, len(told), deliveries.MOST_HELD // 2)] == list(range(10))


async def test_when_all_is_written() -> None:
    """Who wants to know when all was told is called after the last write that was put before, at once without any."""
    everyone = [Reader() for _ in range(300)]
    queue = Deliveries(lambda: everyone)
    called: list[int] = []

    def note() -> None:
        called.append(sum(len(reader.writes) for reader in everyone))

    queue.when_written(note)
    assert called == [0]
    queue.put_to_everyone(b"x")
    queue.when_written(note)
    assert called == [0]
    while len(called) < 2:
        await turn()
    assert called == [0, 300]


async def test_a_defect_of_one_reader_keeps_nothing_from_others() -> None:
    """An exception at one write is the loop's to report; whoever waits behind it is written to."""

    class Broken(Reader):
        def send_frames(self, frames: bytes) -> None:
            raise RuntimeError("a defect")

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    good = Reader()
    queue = Deliveries(list)
    queue.put(Broken(), b"x")
    queue.put(good, b"y")
    for _ in range(3):
        await turn()
    assert good.writes == [b"y"]
