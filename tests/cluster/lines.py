"""Lines between the parts of the cluster: TCP proxies that stall, one way or both, or are cut, and heal.

A stalled line loses nothing: what was said waits, as it does for a cable that is put back in time. A cut one ends all
connections and takes no new ones. Each line has an address of its own, so that only two parts are parted.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

Way = Literal["silent", "deaf", "mute", "cut"]
"""Nothing goes through; nothing comes back; nothing gets there; connections end."""
CHUNK = 65536


class Line:
    """From one part to another's port. `to` may be changed: the next connection goes there."""

    def __init__(self, ends: tuple[str, str], to: tuple[str, int], listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.ends = ends
        self.to = to
        self._listen = listen
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._there.set()
        self._back.set()
        self._faults: list[Way] = []
        """What is wrong with it now; it may be several things at once."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """Host and port to connect to."""
        return f"{self._listen[0]}:{self._listen[1]}"

    @property
    def port(self) -> int:
        return self._listen[1]

    async def start(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._connected, *self._listen)
        self._listen = self._listen[0], self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.close()
        self._end_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def part(self, way: Way) -> None:
        """Something goes wrong, until it is healed."""
        self._faults.append(way)
        self._apply()

    def heal(self, way: Way) -> None:
        """One thing less is wrong."""
        self._faults.remove(way)
        self._apply()

    def all_well(self) -> None:
        """Nothing is wrong any more."""
        self._faults.clear()
        self._apply()

    def _apply(self) -> None:
        _switch(self._there, on=not {"silent", "mute"} & set(self._faults))
        _switch(self._back, on=not {"silent", "deaf"} & set(self._faults))
        if "cut" in self._faults:
            self._end_all()

    def _end_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            if "cut" not in self._faults:
                await self._there.wait()  # a stalled line answers no connect either
                there, to = await asyncio.open_connection(*self.to)
                self._writers.add(to)
                try:
                    async with asyncio.TaskGroup() as both:
                        both.create_task(_pump(reader, to, self._there))
                        both.create_task(_pump(there, writer, self._back))
                finally:
                    self._writers.discard(to)
                    to.transport.abort()
        except OSError:
            pass  # nobody is there: whoever asked sees the connection end
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
    """Pass on what comes until either side has ended."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await passes.wait()
            writer.write(data)
            await writer.drain()
    writer.transport.abort() if reader.exception() else writer.close()


def _switch(event: asyncio.Event, *, on: bool) -> None:
    if on:
        event.set()
    else:
        event.clear()
