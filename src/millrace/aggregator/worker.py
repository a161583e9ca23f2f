"""One of several processes that answer: `python -m millrace.aggregator.worker PARENT CHANNEL TABLE LISTENER…`.

Its main process (`crew.py`) starts it and gives it all it needs: settings, markets, the sockets that clients come to,
and the table of clients. It ends with its main process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys

from millrace.aggregator.channel import (
    TO_WORKER,
    Ask,
    Begin,
    Channel,
    Counted,
    Document,
    Drain,
    Level,
    Seen,
    Serve,
    Serving,
    State,
    Taken,
)
from millrace.aggregator.feed import Feed
from millrace.aggregator.health import Workers
from millrace.aggregator.service import Service, clients_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Builder, Snapshot
from millrace.dex.document import DocumentError
from millrace.runtime import logs
from millrace.runtime.process import die_with_parent, run_service, wait_first
from millrace.runtime.settings import unpack
from millrace.runtime.tracing import tracing

log = logging.getLogger(__name__)

REPORT_SECONDS = 1.0
"""Between two reports: what a worker that is killed has counted since the last one is not in the metrics."""


class Worker:
    """The process's life."""

    def __init__(
        self, channel: Channel, service: Service, feed: Feed[Snapshot], sockets: list[socket.socket], wanted: int
    ) -> None:
        """`sockets` listen for clients; `wanted` workers there are to be."""
        self._channel = channel
        self._service = service
        self._feed = feed
        self._sockets = sockets
        self._wanted = wanted
        self._markets: asyncio.Queue[Document | Seen | Serve] = asyncio.Queue()
        self._current = False
        """Whether the document sent last is the one in use."""

    async def run(self, stop: asyncio.Event) -> None:
        """Answer until `stop` is set or the main process says so."""
        try:
            await wait_first(stop, self._obey(), self._follow(), self._count())
        finally:
            await self._service.stop()
            self._report()
            await self._channel.flush()
            self._channel.close()

    async def _obey(self) -> None:
        """Do what the main process says, until it wants an end of it or has ended."""
        while (message := await self._channel.receive(TO_WORKER)) is not None:
            match message:
                case Document() | Seen() | Serve():
                    self._markets.put_nowait(message)
                case State(serving, last_error):
                    self._service.api.workers = Workers(serving, self._wanted)
                    self._feed.last_error = last_error
                case Ask(number):
                    self._report(number)
                case Level(level):
                    logging.getLogger().setLevel(level)
                case Drain():
                    return

    async def _follow(self) -> None:
        """Take in markets one after the other, in the order they were sent."""
        while True:
            match await self._markets.get():
                case Document(data, received):
                    await self._take(data, received)
                    self._channel.send(Taken(self._current))
                case Seen(received):
                    if self._current:
                        await self._feed.confirm(received)
                case Serve():
                    await self._service.start_on(self._sockets)
                    self._channel.send(Serving())

    async def _take(self, data: bytes, received: float) -> None:
        """Answer from a market from now on; from the one before where that cannot be built, which then gets old."""
        self._current = False
        try:
            if not await self._feed.offer(data, received, judged=True):
                await self._feed.confirm(received)
            self._current = True
        except DocumentError as error:
            log.error("a market cannot be used", extra={"reason": str(error)[:500]})
        except Exception:  # a defect of ours must not end the worker: others would have the same
            log.exception("snapshot could not be built")

    async def _count(self) -> None:
        while True:
            self._report()
            await asyncio.sleep(REPORT_SECONDS)

    def _report(self, number: int = 0) -> None:
        self._channel.send(Counted(self._service.api.metrics.report(), number))


async def _main(stop: asyncio.Event, connection: socket.socket, table: int, sockets: list[socket.socket]) -> None:
    channel = await Channel.over(connection)
    begin = await channel.receive(TO_WORKER)
    if not isinstance(begin, Begin):
        return  # the main process has ended meanwhile
    if begin.form:
        logs.configure("aggregator", logging.getLevelName(begin.level), json=begin.form == "json")
    settings = unpack(begin.settings, AggregatorSettings)
    with tracing("aggregator", settings) as tracer:
        feed = Feed(settings, Builder(settings.table()))
        service = Service(settings, feed, clients_of(settings, table), tracer)
        await Worker(channel, service, feed, sockets, begin.wanted).run(stop)


if __name__ == "__main__":
    parent, channel_file, table_file, *listeners = map(int, sys.argv[1:])
    die_with_parent(parent)
    connection = socket.socket(fileno=channel_file)
    sockets = [socket.socket(fileno=listener) for listener in listeners]
    run_service(lambda stop: _main(stop, connection, table_file, sockets), uvloop=True)
