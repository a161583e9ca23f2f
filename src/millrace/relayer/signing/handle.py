"""The service's side of the signing process: start it, ask it, replace it when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

from millrace.relayer.journal.memory import mark_place
from millrace.relayer.rules.slices import PART, cost_of
from millrace.relayer.settings import RelayerSettings
from millrace.relayer.signing.wire import (
    HEADER,
    MAX_FRAME,
    Answer,
    Command,
    Done,
    Failed,
    Ready,
    Report,
    Start,
    Work,
    frame,
    report_decoder,
)
from millrace.runtime import environment
from millrace.runtime.tasks import end_tasks

log = logging.getLogger(__name__)

_RESTART_FIRST, _RESTART_MOST = 0.1, 5.0
START_SECONDS = 15.0
START_ATTEMPTS = 5
"""So many processes may be lost at the start of the service before it gives up."""
SILENT_SECONDS = 1.0
"""A process that works answers a frame within 50 ms; one that has not for so long is asked to verify no more."""
MAX_UNDER_WAY = 2
"""Frames it may have at once: it works on one while the other, a full one, waits in the socket."""


class SignerError(Exception):
    """The signing process cannot be started or does not answer."""


class SignerLost(SignerError):
    """The process went away, or could not be started: another one may do better."""


class _Asked(NamedTuple):
    """One question: transactions, what they cost, and who waits for one answer to each."""

    items: list[bytes]
    cost: int
    answer: asyncio.Future[list[Any]]


class _Group(NamedTuple):
    """What one frame asks."""

    sign: list[_Asked]
    check: list[_Asked]


class _Link(asyncio.Protocol):
    """Our end of the socket pair: frames out, reports in."""

    def __init__(self, on_done: Callable[[Done], None]) -> None:
        self._on_done = on_done
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[Report | None] = loop.create_future()
        """What it says of its keys; `None` when it ended without a word."""
        self.lost: asyncio.Future[None] = loop.create_future()
        self.answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        if not self.first.done():
            self.first.set_result(None)

    def send(self, record: Command) -> None:
        """Write one frame; to a process that has just ended nothing, as `lost` is about to tell."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(record))

    def close(self) -> None:
        """Hang up: the process ends by itself."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._buffer)
            if size > MAX_FRAME:
                raise OSError("the signing process sent an impossible frame")
            end = HEADER.size + size
            if len(self._buffer) < end:
                return
            report = report_decoder.decode(memoryview(self._buffer)[HEADER.size : end])
            del self._buffer[:end]
            if not self.first.done():
                self.first.set_result(report)
            elif isinstance(report, Done):
                self.answered = True
                self._on_done(report)


class SigningProcess:
    """One child that holds the keys. `start` it, then `check` and `sign`; it is replaced with back-off when lost.

    Questions travel in the order of asking, signing before checking, short ones that wait together in one frame. A
    question holds up others for as long as its transactions take: its caller asks for a part of a batch at a time.
    """

    def __init__(self, start: Start, timeout: float) -> None:
        self._start = start
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._process: asyncio.subprocess.Process | None = None
        self._link: _Link | None = None
        self._to_sign: deque[_Asked] = deque()
        self._to_check: deque[_Asked] = deque()
        self._under_way: deque[_Group] = deque()
        self._oldest_since = 0.0
        """When the oldest frame under way became that."""
        self._is_silent = False
        """Whether it has not answered that for `SILENT_SECONDS`."""
        self._pumps_soon = False
        self._deadline: asyncio.TimerHandle | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.on_return: Callable[[], None] = lambda: None
        """Called when a lost process has been replaced."""
        self.why_not: Callable[[], str | None] = lambda: None
        """Why nothing may be signed now, if so: asked before a question, and before its answer is given away."""
        self.relayers: dict[int, bytes] = {}
        """Public keys by shard, as the process found them."""
        self.restarts = 0

    @property
    def running(self) -> bool:
        """Whether the process has its keys and takes requests."""
        return self._link is not None

    @property
    def pid(self) -> int | None:
        """The id of the process, while there is one."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the process and wait for its keys. Raises `SignerError` with what is wrong with them.

        One that is lost before it is ready is replaced, as it is later on; after `START_ATTEMPTS` there is something
        wrong that its operator has to see.
        """
        link = await self._spawn_patiently()
        self._supervisor = asyncio.create_task(self._supervise(link), name="signer-supervisor")

    async def stop(self) -> None:
        """Let it answer what it was asked, then end the process."""
        waiting = [asked.answer for asked in self._asked()]
        if self.running:
            await asyncio.gather(*waiting, return_exceptions=True)
        if self._supervisor is not None:
            await end_tasks([self._supervisor])
        await self._end()
        self._fail_waiting()

    async def sign(self, transactions: list[bytes]) -> list[Answer]:
        """For each transaction its signature, or the process's reason to refuse.

        Raises `SignerError` when no answer came: then it is not known whether anything was signed.
        """
        self._require_leave()
        answers = await self._ask(self._to_sign, transactions)
        self._require_leave()
        return answers

    async def check(self, transactions: list[bytes]) -> list[str]:
        """For each transaction an empty text if it is signed as it should be, or the reason why not.

        Raises `SignerError` when no answer came, or has not come for a second: others can verify, too.
        """
        if self._is_silent:
            raise SignerError("the signing process does not answer")
        return await self._ask(self._to_check, transactions)

    # ---- questions

    def _require_leave(self) -> None:
        reason = self.why_not()
        if reason is not None:
            raise SignerError(reason)

    async def _ask(self, questions: deque[_Asked], items: list[bytes]) -> list[Any]:
        if not items:
            return []
        if not self.running:
            raise SignerError("the signing process is down; it is being started again")
        asked = _Asked(items, cost_of(items), self._loop.create_future())
        questions.append(asked)
        if not self._pumps_soon:
            self._pumps_soon = True
            self._loop.call_soon(self._pump)  # with what others ask in the same moment
        return await asked.answer

    def _pump(self) -> None:
        """Send what waits, as far as the process may have it."""
        self._pumps_soon = False
        while self._link is not None and self._has_frame():
            group = _Group(_frameful(self._to_sign), _frameful(self._to_check))
            if not self._under_way:
                self._oldest_since = self._loop.time()
            self._under_way.append(group)
            sign, check = ([item for asked in part for item in asked.items] for part in group)
            self._link.send(Work(sign, check))
            if self._deadline is None:
                self._deadline = self._loop.call_later(min(self._timeout, SILENT_SECONDS), self._look)

    def _has_frame(self) -> bool:
        """Whether to send: to an idle process whatever there is, to another only a full frame, as Nagle has it.

        The busier it is, the more goes together, and the seldomer it and the event loop have to wake each other.
        """
        if not self._under_way:
            return bool(self._to_sign or self._to_check)
        return len(self._under_way) < MAX_UNDER_WAY and (_fill_frame(self._to_sign) or _fill_frame(self._to_check))

    def _look(self) -> None:
        """Verify elsewhere what the oldest frame was not answered in time for, and kill the process if it is later yet.

        One timer serves all frames of that time.
        """
        self._deadline = None
        if not self._under_way:
            return
        waited = self._loop.time() - self._oldest_since
        if waited >= self._timeout:
            if self._process is not None and self._process.returncode is None:
                log.error("signing process hangs, killing it", extra={"pid": self.pid})
                self._process.kill()
            return
        if waited >= SILENT_SECONDS:
            self._is_silent = True
            to_check = [asked for group in self._under_way for asked in group.check]
            self._fail([*to_check, *self._to_check], "the signing process does not answer")
            self._to_check.clear()
        left = (self._timeout if self._is_silent else min(self._timeout, SILENT_SECONDS)) - waited
        self._deadline = self._loop.call_later(left, self._look)

    def _take_done(self, done: Done) -> None:
        group = self._under_way.popleft()
        self._oldest_since, self._is_silent = self._loop.time(), False
        for part, answers in ((group.sign, done.signed), (group.check, done.checked)):
            at = 0
            for asked in part:
                if not asked.answer.done():
                    asked.answer.set_result(answers[at : at + len(asked.items)])
                at += len(asked.items)
        self._pump()

    def _asked(self) -> list[_Asked]:
        """All questions without an answer."""
        under_way = [asked for group in self._under_way for part in group for asked in part]
        return [*under_way, *self._to_sign, *self._to_check]

    @staticmethod
    def _fail(questions: Iterable[_Asked], why: str) -> None:
        """No answer comes to them, at least not in time."""
        for asked in questions:
            if not asked.answer.done():
                asked.answer.set_exception(SignerError(why))

    def _fail_waiting(self) -> None:
        self._fail(self._asked(), "the signing process went down before it answered")
        self._is_silent = False
        self._under_way.clear()
        self._to_sign.clear()
        self._to_check.clear()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # ---- life

    async def _spawn_patiently(self) -> _Link:
        """`_spawn`, again with back-off while processes are lost. Raises `SignerError`."""
        delay = _RESTART_FIRST
        for attempt in range(1, START_ATTEMPTS):
            try:
                return await self._spawn()
            except SignerLost as error:
                log.warning("signing process lost at its start", extra={"reason": str(error), "attempt": attempt})
            await asyncio.sleep(delay)
            delay = min(delay * 2, _RESTART_MOST)
        try:
            return await self._spawn()
        except SignerLost as error:
            raise SignerError(
                f"{error}, {START_ATTEMPTS} times: see what it wrote, whether the machine has memory left (dmesg) and "
                "what limits there are (ulimit -a), then start the relayer again"
            ) from error

    async def _spawn(self) -> _Link:
        """A new process with its keys loaded. Raises `SignerError`."""
        try:
            ours = await self._launch()
            _, link = await self._loop.create_unix_connection(lambda: _Link(self._take_done), sock=ours)
        except OSError as error:  # no file descriptor or memory left, maybe only for a moment
            await self._end()
            raise SignerLost(f"no signing process can be started: {error}") from error
        try:
            link.send(self._start)
            async with asyncio.timeout(START_SECONDS):
                report = await link.first
        except TimeoutError as error:
            link.close()
            await self._end()
            raise SignerLost(f"the signing process was not ready within {START_SECONDS:.0f} s") from error
        if report is None:
            raise SignerLost(f"the signing process ended before it was ready, {await self._fate()}")
        if not isinstance(report, Ready):
            link.close()
            await self._end()
            raise SignerError(report.reason if isinstance(report, Failed) else "unexpected answer")
        if self.relayers and report.relayers != self.relayers:
            log.warning("the signing process came back with other keys")
        if not report.locked:
            log.warning("keys may be swapped to disk: the signing process may not lock its memory (ulimit -l)")
        self.relayers = report.relayers
        self._link = link
        return link

    async def _launch(self) -> socket.socket:
        """Start the process; our end of its socket pair. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "millrace.relayer.signing.process",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                    env=environment.for_child(),
                )
            except OSError:
                ours.close()
                raise
        return ours

    async def _supervise(self, link: _Link) -> None:
        delay = _RESTART_FIRST
        while True:
            await link.lost
            delay = _RESTART_FIRST if link.answered else delay
            await self._end()
            self._fail_waiting()
            self.restarts += 1
            log.error("signing process lost, starting another")
            while True:
                await asyncio.sleep(delay)
                delay = min(delay * 2, _RESTART_MOST)
                try:
                    link = await self._spawn()
                    break
                except SignerError as error:
                    log.error("signing process does not start", extra={"reason": str(error)})
            self.on_return()

    async def _fate(self) -> str:
        """How the process ended, which has closed its end; one that has not is killed."""
        process = self._process
        if process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await process.wait()
        await self._end()
        code = None if process is None else process.returncode
        if code is None or code >= 0:
            return f"with status {code}"
        return f"killed by {signal.Signals(-code).name}"

    async def _end(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()


def where_keys_are(settings: RelayerSettings, journal: Path) -> Start:
    """What a signing process of this service starts with, but for the `owner` of the journal.

    Keys in the environment are taken out of it: no child inherits them, and each new signing process gets them
    through its socket.
    """
    seeds = {name: seed for name in settings.key_env if (seed := environment.take_secret(name)) is not None}
    return Start(
        settings.key_files,
        settings.key_env,
        seeds,
        settings.key_passphrase_file,
        str(journal),
        str(mark_place(journal, settings.mark_path)),
        "",
        settings.policy_file,
        settings.network(),
    )


def _fill_frame(questions: deque[_Asked]) -> bool:
    """Whether there is enough for a frame; each question costs 1 at least."""
    return len(questions) >= PART or sum([asked.cost for asked in questions]) >= PART


def _frameful(questions: deque[_Asked]) -> list[_Asked]:
    """Take from the questions those that go into the next frame."""
    taken, room = [], PART
    while questions and room > 0:
        taken.append(questions.popleft())
        room -= taken[-1].cost
    return taken
