"""Faults follow from the seed, and lines are what they are said to be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cluster import faults
from cluster.lines import Line, Way

LINES = ["edge0>relayer1", "balancer>edge0"]


def test_a_seed_gives_the_same_faults() -> None:
    """Whatever the order of lines; another seed gives others, and a long run has every kind."""
    one = faults.plan(7, 600.0, LINES)
    assert one == faults.plan(7, 600.0, LINES[::-1]) != faults.plan(8, 600.0, LINES)
    assert {fault.kind for fault in one} == {*faults.WEIGHTS, "fail over"}
    assert {fault.seconds for fault in one if fault.kind == "fail over"} == {0.0, faults.LONGEST / 2}
    assert [fault.at for fault in one] == sorted(fault.at for fault in one) and one[-1].at < 600.0
    assert all(fault.seconds <= faults.CHAIN_LONGEST for fault in one if fault.victim == "chain")


def test_a_short_run_loses_its_primary_too() -> None:
    """Half way."""
    assert [fault.kind for fault in faults.plan(3, 25.0, LINES)].count("fail over") == 1


@contextlib.asynccontextmanager
async def line_to_an_echo() -> AsyncIterator[Line]:
    """A line to who says again what is said."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    line = Line(("one", "two"), ("127.0.0.1", server.sockets[0].getsockname()[1]))
    await line.start()
    try:
        yield line
    finally:
        await line.stop()
        server.close()


@pytest.mark.parametrize("way", ["silent", "deaf", "mute"])
async def test_a_stalled_line_loses_nothing(way: Way) -> None:
    """What was said meanwhile comes when all that was wrong is healed."""
    async with line_to_an_echo() as line:
        reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        line.part(way)
        line.part(way)
        writer.write(b"meanwhile")
        line.heal(way)
        waiting = asyncio.ensure_future(reader.readexactly(9))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not waiting.done()
        line.heal(way)
        assert await asyncio.wait_for(waiting, 10) == b"meanwhile"
        writer.close()


async def test_a_cut_line_ends_connections() -> None:
    """Those that stand, and those that are tried before it is healed."""
    async with line_to_an_echo() as line:
        reader, writer = await asyncio.open_connection("127.0.0.1", line.port)
        writer.write(b"x")
        await reader.readexactly(1)
        line.part("cut")
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        reader, again = await asyncio.open_connection("127.0.0.1", line.port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        line.heal("cut")
        reader, last = await asyncio.open_connection("127.0.0.1", line.port)
        last.write(b"after")
        assert await asyncio.wait_for(reader.readexactly(5), 10) == b"after"
        for each in (writer, again, last):
            each.close()
