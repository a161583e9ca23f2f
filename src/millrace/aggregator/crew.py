"""The main process of several workers: it fetches, judges and hands out the market, keeps the workers alive, and tells
operators of all of them. It answers no client itself.

Each worker has a socket of its own at the same port (SO_REUSEPORT): the kernel spreads connections over them. This
process holds all of these sockets, too. So whoever connects while a worker is being replaced waits for the next one
instead of being refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Sequence

import msgspec

from millrace.aggregator.channel import (
    TO_MAIN,
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
    ToWorker,
)
from millrace.aggregator.clients import shared_file
from millrace.aggregator.feed import Feed
from millrace.aggregator.metrics import RESTARTS, WORKERS, Report, counters_of, of_market, together
from millrace.aggregator.service import clients_of
from millrace.aggregator.settings import AggregatorSettings
from millrace.aggregator.snapshot import Market, Reading
from millrace.runtime import environment, logs
from millrace.runtime.http import BACKLOG
from millrace.runtime.process import wait_first
from millrace.runtime.settings import pack
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
MOST_SILENT = 30
"""Ticks without a word of a worker, which reports every second: it stands still, and is killed."""
MOST_TAKING = 300
"""Ticks that a worker takes a market in for, at most: it reports, and yet answers from an old one. The largest market
takes some seconds, and some times that beside quotes (`pace.py`)."""
DRAIN_SECONDS = 15.0
"""For a worker that is to end: three times what its server takes at most."""
START_SECONDS = 60.0
"""Until a new worker serves, where it replaces one that does."""
ASK_SECONDS = 0.5
"""For the reports of all workers when somebody looks; of who is too busy the last one counts, a second old."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds before a worker is started again; doubled for one that ended before it served."""
_NO_REPORT = Report()


class Process:
    """One process, as the main process sees it."""

    def __init__(self, slot: int, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.slot = slot
        self.process = process
        self.channel = channel
        self.heard: asyncio.Task[None] | None = None
        """The task that hears it; held here, as the loop alone would let it go."""
        self.serving = asyncio.Event()
        self.ended = asyncio.Event()
        self.knows = False
        """Whether it has a market to answer from."""
        self.report = _NO_REPORT
        self.answered = 0
        """The last question that it has answered."""
        self.silent = 0
        self.sent = ""
        """Id of the document sent last."""
        self.taking = False
        """Whether it has not taken that one yet: no other one is sent meanwhile."""
        self.taking_for = 0
        """Ticks since then."""

    def stuck(self) -> str:
        """Count a tick. Why the worker has to be killed, where it does."""
        self.silent += 1
        self.taking_for = self.taking_for + 1 if self.taking else 0
        if self.silent == MOST_SILENT:
            return "a worker stands still, killing it"
        return "a worker does not take in a market, killing it" if self.taking_for == MOST_TAKING else ""

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Crew:
    """The workers. `settings` say how many."""

    def __init__(self, settings: AggregatorSettings) -> None:
        self.settings = settings
        self.feed: Feed[Market] = Feed(settings, Reading())
        self._table = shared_file()
        self.clients = clients_of(settings, self._table)
        self.port = 0
        self._sockets: list[list[socket.socket]] = []
        """Of each slot."""
        self._slots: list[Process | None] = [None] * settings.workers
        self._all: set[Process] = set()
        """Those of the slots, and those that are being replaced or end."""
        self._gone = _NO_REPORT
        """What workers have counted that have ended."""
        self._restarts = 0
        self._asked = 0
        self._heard = asyncio.Event()
        self._stopping = False
        self._renewing: asyncio.Task[None] | None = None
        self._level = 0
        self._state: State | None = None

    @property
    def serving(self) -> int:
        """Workers that answer quotes."""
        return sum(worker is not None and worker.knows and worker.serving.is_set() for worker in self._slots)

    def pids(self) -> list[int]:
        """Process ids of all workers."""
        return [worker.process.pid for worker in self._all]

    def listen(self) -> int:
        """Take the port for all workers, before anything is started; returns it. Raises `OSError`."""
        self._sockets = listeners(self.settings.host, self.settings.port, self.settings.workers)
        self.port = int(self._sockets[0][0].getsockname()[1])
        return self.port

    async def run(self, stop: asyncio.Event, *more: Awaitable[object]) -> None:
        """Keep the workers and their market until `stop` is set, then end them. SIGHUP replaces them one by one.

        `more` is work that goes on meanwhile.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self.renew)
        try:
            keepers = [self._keep(slot) for slot in range(self.settings.workers)]
            await wait_first(stop, self.feed.run(), self._hand_out(), self._tick(), *keepers, *more)
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            self._stopping = True
            if self._renewing is not None:
                await end_tasks([self._renewing])
            self.close_sockets()  # nobody is let in any more who would find no worker
            await asyncio.gather(*(self._end(worker) for worker in list(self._all)))
            self.feed.close()
            os.close(self._table)

    def close_sockets(self) -> None:
        """Give the port up; the workers still have their own."""
        for sockets in self._sockets:
            for each in sockets:
                each.close()

    def renew(self) -> None:
        """Replace all workers, one after the other: the next one is let go when the one in its place serves."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        for slot in range(self.settings.workers):
            try:
                after = await self._start(slot)
            except OSError as error:
                log.error("workers are not replaced", extra={"reason": str(error)})
                return
            try:
                async with asyncio.timeout(START_SECONDS):
                    await _either(after.serving, after.ended)
            except TimeoutError:
                pass
            if not after.serving.is_set():
                log.error("workers are not replaced: the first new one does not serve", extra={"slot": slot})
                await self._end(after)
                return
            before, self._slots[slot] = self._slots[slot], after
            if before is not None:
                await self._end(before)
        log.info("workers replaced", extra={"count": self.settings.workers})

    async def _keep(self, slot: int) -> None:
        """Whenever a slot's worker ends unasked, start another one."""
        pause = FIRST_PAUSE
        while True:
            worker = self._slots[slot]
            if worker is None:
                try:
                    worker = await self._start(slot)
                except OSError as error:
                    log.error("a worker does not start", extra={"reason": str(error)})
                    await asyncio.sleep(LONGEST_PAUSE)
                    continue
                if self._slots[slot] is not None:  # `renew` has put another one there meanwhile
                    await self._end(worker)
                    continue
                self._slots[slot] = worker
            await worker.ended.wait()
            if self._slots[slot] is not worker:
                continue  # it was replaced
            self._slots[slot] = None
            self._restarts += 1
            pause = FIRST_PAUSE if worker.serving.is_set() else min(LONGEST_PAUSE, 2 * pause)
            log.error("a worker ended, starting another", extra={"slot": slot, "status": worker.process.returncode})
            await asyncio.sleep(pause)

    async def _start(self, slot: int) -> Process:
        """Start a worker. It serves once it has the present market, if there is one. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        listening = [each.fileno() for each in self._sockets[slot]]
        files = theirs.fileno(), self._table, *listening
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "millrace.aggregator.worker", str(os.getpid()), *map(str, files)),
                    pass_fds=files,
                    stdin=asyncio.subprocess.DEVNULL,
                    env=environment.for_child(),
                )
            except OSError:
                ours.close()
                raise
        worker = Process(slot, process, await Channel.over(ours))
        self._all.add(worker)
        level = logging.getLogger().level
        worker.channel.send(Begin(pack(part_of(self.settings)), self.settings.workers, level, logs.form()))
        if self._state is not None:
            worker.channel.send(self._state)
        self._send_market(worker)
        worker.channel.send(Serve())
        worker.heard = asyncio.create_task(self._listen(worker))
        worker.heard.add_done_callback(self._gone_quiet)
        return worker

    @staticmethod
    def _gone_quiet(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("a worker is not heard any more", exc_info=task.exception())

    async def _listen(self, worker: Process) -> None:
        """Hear a worker until it ends."""
        try:
            while (message := await worker.channel.receive(TO_MAIN)) is not None:
                worker.silent = 0
                match message:
                    case Taken(usable):
                        worker.taking = False
                        worker.knows = worker.knows or usable
                        self._tell_state()
                        self._send_market(worker)
                    case Serving():
                        worker.serving.set()
                        self._tell_state()
                    case Counted(report, number):
                        worker.report = report
                        worker.answered = max(worker.answered, number)
                        self._heard.set()
        finally:
            worker.kill()  # who says no more has ended, or is of no use
            await worker.process.wait()
            worker.channel.close()
            self._all.discard(worker)
            self._gone = together((self._gone, counters_of(worker.report)))
            worker.ended.set()
            self._heard.set()

    async def _end(self, worker: Process) -> None:
        """Let a worker answer what it is at, and end."""
        worker.channel.send(Drain())
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await worker.ended.wait()
        except TimeoutError:
            log.warning("killing a worker that did not end", extra={"slot": worker.slot})
            worker.kill()
            await worker.ended.wait()

    async def _hand_out(self) -> None:
        """Give every worker each new market, and tell them when it was seen again."""
        while True:
            await self.feed.wait_news()
            for worker in self._all:
                self._send_market(worker)

    def _send_market(self, worker: Process) -> None:
        market = self.feed.snapshot
        if market is None or worker.taking:
            return
        if worker.sent == market.id:
            worker.channel.send(Seen(market.received))
            return
        worker.sent, worker.taking, worker.taking_for = market.id, True, 0
        worker.channel.send(Document(market.data, market.received))

    async def _tick(self) -> None:
        """Look after the workers."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for worker in self._all:
                if why := worker.stuck():
                    log.error(why, extra={"slot": worker.slot})
                    worker.kill()
            level = logging.getLogger().level
            if level != self._level:
                self._level = level
                self._tell(Level(level))
            self._tell_state()

    def _tell_state(self) -> None:
        """Tell the workers what they say of the whole on /health; again to all where one is new."""
        state = State(self.serving, self.feed.last_error)
        if state != self._state:
            self._state = state
            self._tell(state)

    def _tell(self, message: ToWorker) -> None:
        for worker in self._all:
            worker.channel.send(message)

    async def report(self) -> Report:
        """What the whole service has counted, now."""
        self._asked += 1
        number = self._asked
        self._tell(Ask(number))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                while any(worker.answered < number for worker in self._all if worker.serving.is_set()):
                    self._heard.clear()
                    await self._heard.wait()
        found = together((self._gone, *(worker.report for worker in self._all)))
        of_all = {WORKERS.name: float(self.serving), RESTARTS.name: float(self._restarts)}
        return together((found, of_market(self.feed), Report(of_all)))


def part_of(settings: AggregatorSettings) -> AggregatorSettings:
    """The settings of one worker of several: its part of what the service has room for in all."""

    def part(most: int) -> int:
        return -(-most // settings.workers)

    return msgspec.structs.replace(
        settings,
        max_connections=part(settings.max_connections),
        max_streams=part(settings.max_streams),
        max_waiting_quotes=part(settings.max_waiting_quotes),
        trace_rate=settings.trace_rate / settings.workers,
    )


def listeners(host: str, port: int, count: int) -> list[list[socket.socket]]:
    """For each of `count` workers, sockets that listen at all addresses of `host:port`. Raises `OSError`."""
    found = dict.fromkeys(
        (family, address)
        for family, _, _, _, address in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    )
    made: list[list[socket.socket]] = [[] for _ in range(count)]
    try:
        for family, address in found:
            if port:
                _bound(family, address, shared=False).close()  # a port of another service is not to be shared
            for sockets in made:
                each = _bound(family, address, shared=True)
                sockets.append(each)
                each.listen(BACKLOG)
                if not port:  # the first one has taken a free port for all
                    port = int(each.getsockname()[1])
                address = (address[0], port, *address[2:])
    except OSError:
        for sockets in made:
            for each in sockets:
                each.close()
        raise
    return made


def _bound(family: int, address: Sequence[object], *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(tuple(address))
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"cannot listen at {address[0]}:{address[1]}: {error.strerror}") from None
    return made


async def _either(*events: asyncio.Event) -> None:
    """Wait until one of several things has happened."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(waits)
